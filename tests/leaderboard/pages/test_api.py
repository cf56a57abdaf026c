"""Addresses that are none, and the API as it is described."""

from __future__ import annotations

import zlib
from string import Formatter
from typing import Any
from urllib.parse import quote

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

from html_pages import BROWSER
from leaderboard.pages import about
from leaderboard.pages.result import build_key_table
from leaderboard.web.page_state import State
from site_data import Parsed, standard_app

# Addresses that are none


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(standard_app(), follow_redirects=False)


def test_what_is_none_is_not_found_with_the_nearest(client: TestClient) -> None:
    for asked, near in [
        ("/models/acme--tiny-bose", "acme--tiny-base"),
        ("/models/acme--tiny-bose.json", "acme--tiny-base"),
        ("/suites/nanobier", "nanobeir"),
        ("/suites/nanobeir%00", "nanobeir"),
    ]:
        answer = client.get(asked, headers=BROWSER)
        assert answer.status_code == 404, asked
        assert near in answer.text, asked


@pytest.mark.parametrize("name", ["//evil.example/x", "/\\evil.example", "..//evil.example", "é", "%", ""])
def test_no_redirect_leads_out_of_the_site(client: TestClient, name: str) -> None:
    for kind in ("models", "suites"):
        answer = client.get(f"/{kind}/{quote(name)}", headers=BROWSER)
        assert answer.status_code in (200, 307, 404), answer.text
        there = answer.headers.get("location", "/").removeprefix("http://testserver")
        assert there.startswith("/")
        assert not there.startswith("//")


# The API as it is described: schemathesis asks what the description allows, and what it does not


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


MOST = r"/suites/\{suite\}\.(json|csv)$|\.svg$|healthz|metrics|records"
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
@few(10)
def test_answers_are_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


@pytest.mark.slow
@SCHEMA.include(path_regex=r"\.json$").exclude(path_regex=MOST).parametrize()
@few(6)
def test_other_answers_are_as_described(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


def document() -> dict[str, Any]:
    found: dict[str, Any] = TestClient(standard_app()).get("/openapi.json").json()
    return found


def test_the_names_that_are_asked_lead_somewhere(client: TestClient) -> None:
    named = [path for path in document()["paths"] if "{" in path and path.endswith(".json")]
    paths = [path.format(**{name: known[0] for name, known in REAL.items()}) for path in named if real(path)]
    assert len(paths) > 4
    assert {path: client.get(path).status_code for path in paths} == dict.fromkeys(paths, 200)


def real(path: str) -> bool:
    """Whether every name in the path is one of `REAL`."""
    return {name for _, name, _, _ in Formatter().parse(path) if name} <= REAL.keys()


def test_every_page_is_described_with_its_parameters() -> None:
    app, paths = standard_app(), document()["paths"]
    for route in app.state.site.pages:
        base = "/index" if route.path == "/" else route.path
        for form in route.formats:
            said = paths[f"{base}.{form}"]["get"]
            named = {p["name"] for p in said["parameters"] if p["in"] == "query"}
            assert named == set(route.state.model_fields)
            assert all(p.get("description") for p in said["parameters"] if p["in"] == "query"), base
            assert {"200", "400", "404", "414", "422", "429"} <= set(said["responses"])
            assert said["summary"].startswith(route.summary)
    assert {method for path in paths.values() for method in path} == {"get"}
    ids = [one["operationId"] for methods in paths.values() for one in methods.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", ["/suites/nanobeir.json", "/index.json", "/tasks.json"])
def test_an_answer_that_is_there_has_the_described_form(path: str) -> None:
    """Names that are made up lead nowhere: these lead somewhere."""
    template = path.replace("nanobeir", "{suite}")
    SCHEMA[template]["GET"].validate_response(TestClient(standard_app(), base_url="http://x").get(path))


# The page of the API: every parameter with what it takes; and what other pages say in words


@pytest.fixture(scope="module")
def parameters() -> dict[tuple[str, str], tuple[str, ...]]:
    """What a parameter takes, its default and what it does, by page and name."""
    (table,) = about.show_api.view(standard_app().state.site, State.model_validate({})).tables
    keys = [column.key for column in table.columns]
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    page = ""
    for row in table.rows:
        cells = dict(zip(keys, (cell.text for cell in row.cells), strict=True))
        page = cells["path"] or page
        found[page, cells["name"]] = (cells["values"], cells["default"], cells["means"])
    return found


@pytest.mark.parametrize(
    ("page", "name", "takes", "default"),
    [
        ("/suites/{suite}", "mean", "tasks, types, untouched", "tasks"),
        ("/suites/{suite}", "origin", "measured, imported, reported", ""),
        ("/suites/{suite}", "open", "0, 1", "0"),
        ("/suites/{suite}", "tokens", "a whole number from 1 to 2,147,483,647", ""),
        ("/suites/{suite}", "page", "a whole number from 1 to 100,000", "1"),
        ("/suites/{suite}", "cols", "text, again and again for several", ""),
        ("/tasks", "q", "text", ""),
        ("/pareto", "price", "a number", ""),
        ("/pareto", "scale", "log, linear", ""),
        ("every page", "theme", "auto, light, dark", "auto"),
    ],
)
def test_what_parameters_take(
    parameters: dict[tuple[str, str], tuple[str, ...]], page: str, name: str, takes: str, default: str
) -> None:
    assert parameters[page, name][:2] == (takes, default)


def test_every_value_that_is_offered_is_taken(parameters: dict[tuple[str, str], tuple[str, ...]]) -> None:
    states = {route.path: route.state for route in standard_app().state.site.pages} | {"every page": State}
    tried = 0
    for (page, name), (takes, default, _) in parameters.items():
        closed = name and not takes.startswith(("text", "a "))
        for value in takes.split(", ") if closed else ():
            states[page].model_validate({name: value})
            tried += 1
        if default:
            kind = states[page]
            assert kind.model_validate({name: default}) == kind.model_validate({}), (page, name)
    assert tried > 50


def test_no_signs_of_markdown_are_shown() -> None:
    text = Parsed(TestClient(standard_app()).get("/api").text).text
    assert "`" not in text


def test_keys_have_no_empty_ends_and_nothing_is_no_code() -> None:
    values: dict[str, Any] = {"applied": {"": ""}, "asked": {"named": {}, "default": None}}
    table = build_key_table("prompts", "Prompts", values)
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["applied.all", "(empty)"],
        ["asked.default", "–"],
    ]
