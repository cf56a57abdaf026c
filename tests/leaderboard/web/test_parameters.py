"""Addresses: they hold the state of a page, and the API describes them."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from html_pages import BROWSER
from leaderboard.pages import api
from leaderboard.pages.result import keyed
from leaderboard.pages.suite import SuiteState
from leaderboard.web.parameters import SIZES, State, address, describe_errors, paging
from leaderboard.web.site import page_routes
from site_data import Parsed, standard_app

# The state of a page stands in its URL, and comes back from it


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
STATES = st.builds(
    SuiteState,
    q=TEXT,
    cols=st.lists(TEXT, max_size=3),
    open=st.booleans(),
    tokens=st.one_of(st.none(), st.integers(1, 10**6)),
    mean=st.sampled_from(["tasks", "types"]),
    page=st.integers(1, 100),
    theme=st.sampled_from(["auto", "dark"]),
)


def read(state: type[State], query: str) -> State:
    """The state as a server reads it."""
    found = parse_qs(query, keep_blank_values=True)
    many = {
        n for n, f in state.model_fields.items() if isinstance(f.get_default(call_default_factory=True), list)
    }
    return state.model_validate({n: v if n in many else v[-1] for n, v in found.items()})


@settings(max_examples=200)
@given(STATES)
def test_a_state_comes_back_from_its_query(state: SuiteState) -> None:
    assert read(SuiteState, state.query()) == state


@given(STATES)
def test_a_change_changes_that_alone(state: SuiteState) -> None:
    changed = read(SuiteState, state.query(page=7, q="x"))
    assert changed == state.model_copy(update={"page": 7, "q": "x"})
    assert read(SuiteState, state.query(cols=[])).cols == []  # type: ignore[attr-defined]


def test_what_is_usual_is_not_said() -> None:
    assert SuiteState().query() == ""
    assert SuiteState(open=True, cols=["a", "b"]).query() == "open=1&cols=a&cols=b"
    assert SuiteState(page=3).query(page=1) == ""


def test_every_parameter_of_every_page_is_described_and_optional() -> None:
    for route in page_routes():
        assert route.state.model_validate({}) == route.state.model_validate({"theme": "auto"})
        for name, field in route.state.model_fields.items():
            assert field.description, f"{route.path}: {name}"
        for wrong in ({"theme": "pink"}, {"unknown": "1"}):
            with pytest.raises(ValidationError):
                route.state.model_validate(wrong)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"colls": "x"}, ["There is no parameter 'colls'. Did you mean cols?"]),
        ({"zzzzzzzz": "x"}, ["There is no parameter 'zzzzzzzz'."]),
        ({"page": 0, "colls": "x"}, ["page: ", "There is no parameter 'colls'. Did you mean cols?"]),
    ],
)
def test_what_is_wrong_with_a_query_is_said(query: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        SuiteState.model_validate(query)
    found = describe_errors(SuiteState, caught.value.errors())
    assert len(found) == len(says)
    for sentence, start in zip(found, says, strict=True):
        assert sentence == start if start.startswith("There") else sentence.startswith(start)
        assert sentence.endswith((".", "?"))


def test_all_rows_unless_some_are_named() -> None:
    assert SuiteState(q="x").whole() == SuiteState(q="x", rows="all", tasks=["all"])
    assert SuiteState(q="x").whole().pairs() == [("q", "x"), ("tasks", "all"), ("rows", "all")]
    for named in (SuiteState(rows="100"), SuiteState(page=1), SuiteState(rows="25", page=3)):
        assert named.changed(tasks=["STS"]).whole() == named.changed(tasks=["STS"])
        assert named.whole() == named.changed(tasks=["all"])
    assert State(theme="dark").whole() == State(theme="dark")


def test_what_a_state_shows_and_says() -> None:
    state = SuiteState(theme="dark", q="a b", rows="25", page=2, cols=["mean"])
    assert state.pairs()  # what is changed later is not what was said before
    assert state.filters() == "q=a+b&cols=mean"
    assert state.not_default() == {"theme": "dark", "q": "a b", "rows": "25", "page": 2, "cols": ["mean"]}
    assert state.changed(q="c").pairs() == [*state.pairs(q="c")]
    assert (SuiteState().filters(), SuiteState().not_default()) == ("", {})


def test_texts_and_lists_have_an_end() -> None:
    wrong: list[dict[str, Any]] = [{"q": "x" * 201}, {"cols": ["x"] * 201}, {"page": 0}]
    for values in wrong:
        with pytest.raises(ValidationError):
            SuiteState.model_validate(values)


@given(TEXT, st.dictionaries(TEXT, TEXT, max_size=3))
def test_an_address_is_one_path_and_one_query(path: str, query: dict[str, str]) -> None:
    found = address(f"/{path}", query)
    assert all(c.isascii() and c not in " \"'<>\\" and c >= " " for c in found)
    parts = urlsplit(f"http://host{found}")
    assert parts.fragment == ""
    assert parse_qs(parts.query, keep_blank_values=True) == {n: [v] for n, v in query.items()}


@given(st.integers(0, 1200), st.sampled_from(SIZES), st.integers(1, 30))
def test_pages_hold_every_row_once(total: int, rows: str, page: int) -> None:
    state = SuiteState(rows=rows, page=page)  # type: ignore[arg-type]
    where = paging(total, state, "/x")
    size = total if rows == "all" else int(rows)
    count = max(1, -(-total // size)) if size else 1
    at = min(page, count)
    assert where.last == min(total, at * size)
    assert where.first == (0 if not total else (at - 1) * size + 1)
    (current,) = [int(label) for label, _, current in where.pages if current]
    assert current == at
    assert (where.prev != "", where.next != "") == (at > 1, at < count)
    seen = [
        n
        for number in range(1, count + 1)
        for one in [paging(total, state.model_copy(update={"page": number}), "/x")]
        for n in range(one.first, one.last + 1)
        if total
    ]
    assert seen == list(range(1, total + 1))


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
@few(12)
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
        for form in route.formats:
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


# The page of the API: every parameter with what it takes; and what other pages say in words


@pytest.fixture(scope="module")
def parameters() -> dict[tuple[str, str], tuple[str, ...]]:
    """What a parameter takes, its default and what it does, by page and name."""
    (table,) = api.view(standard_app().state.site, State.model_validate({})).tables
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
    table = keyed("prompts", "Prompts", values)
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["applied.all", "(empty)"],
        ["asked.default", "–"],
    ]
