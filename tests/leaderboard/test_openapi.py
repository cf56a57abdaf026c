"""The API as it is described: schemathesis asks what the description allows, and what it does not."""

from __future__ import annotations

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


MOST = r"/suites/\{suite\}\.(json|csv)$|\.svg$|feed|healthz|metrics|records"
"""Routes that are asked more; the other pages are asked as JSON."""


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
@few(8)
def test_answers_are_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


@SCHEMA.include(path_regex=r"\.json$").exclude(path_regex=MOST).parametrize()
@few(1)
def test_other_answers_are_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


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
