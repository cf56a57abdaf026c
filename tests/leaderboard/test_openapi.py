"""The API as it is described: schemathesis asks what the description allows, and what it does not."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from site_data import standard_app

SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", standard_app())

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)


REAL = {
    "suite": ("nanobeir", "glue", "mteb"),
    "model": ("acme--tiny-base", "acme--tiny-large"),
    "task": ("NanoArguAnaRetrieval", "RTE"),
    "paper": ("optibert", "neobert"),
    "recipe": ("glue-neobert", "glue-quick"),
}
"""Names that lead somewhere: two of three addresses have one of them."""


@SCHEMA.hook
def map_path_parameters(
    context: schemathesis.HookContext, path_parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    for name in REAL.keys() & (path_parameters or {}).keys():
        assert path_parameters is not None
        choice = zlib.crc32(str(path_parameters[name]).encode("utf-8", "replace"))
        if choice % 3:
            path_parameters[name] = REAL[name][choice % len(REAL[name])]
    return path_parameters


MOST = r"/suites/\{suite\}\.(json|csv)$|\.svg$|feed|healthz|metrics|records"
"""Routes that are asked more; the other pages are asked as JSON."""


ANSWERED: Counter[tuple[str, int]] = Counter()
"""How often each route gave each status."""


def note(case: schemathesis.Case, answer: Any) -> None:
    ANSWERED[case.operation.path, answer.status_code] += 1


def few(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@SCHEMA.include(path_regex=MOST).parametrize()
@few(20)
def test_answers_are_as_described(case: schemathesis.Case) -> None:
    note(case, case.call_and_validate(checks=CHECKS))


@SCHEMA.include(path_regex=r"\.json$").exclude(path_regex=MOST).parametrize()
@few(6)
def test_other_answers_are_as_described(case: schemathesis.Case) -> None:
    note(case, case.call_and_validate(checks=CHECKS))


def test_not_all_of_it_led_nowhere() -> None:
    """Runs behind the two above: of the pages with names in their paths, each was found at least once."""
    named = {path for path, _ in ANSWERED if any(f"{{{name}}}" in path for name in REAL) and ".json" in path}
    assert len(named) > 4
    assert {path for path in named if ANSWERED[path, 200]} == named


def document() -> dict[str, Any]:
    found: dict[str, Any] = TestClient(standard_app()).get("/openapi.json").json()
    return found


def test_every_page_is_described_with_its_parameters() -> None:
    app, paths = standard_app(), document()["paths"]
    for route in app.state.site.pages:
        base = "/index" if route.path == "/" else route.path
        for form in ("json", "csv", "md", "tex") if route.twins else ():
            said = paths[f"{base}.{form}"]["get"]
            named = {p["name"] for p in said["parameters"] if p["in"] == "query"}
            assert named == set(route.state.model_fields)
            assert all(p.get("description") for p in said["parameters"] if p["in"] == "query"), base
            assert {"200", "400", "404", "414", "422", "429"} <= set(said["responses"])
            assert said["summary"].startswith(route.summary)
    assert set(paths["/api/records"]) == {"post"}
    ids = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", ["/suites/nanobeir.json", "/index.json", "/tasks.json"])
def test_an_answer_that_is_there_has_the_described_form(path: str) -> None:
    """Names that are made up lead nowhere: these lead somewhere."""
    template = path.replace("nanobeir", "{suite}")
    SCHEMA[template]["GET"].validate_response(TestClient(standard_app(), base_url="http://x").get(path))
