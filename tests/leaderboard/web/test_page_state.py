"""The state of a page stands in its URL, and comes back from it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from leaderboard.pages.suite import SuiteState
from leaderboard.web.page_state import SIZES, State, build_address, build_paging, describe_errors
from leaderboard.web.routes import load_page_routes

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
    assert read(SuiteState, state.build_query()) == state


@given(STATES)
def test_a_change_changes_that_alone(state: SuiteState) -> None:
    changed = read(SuiteState, state.build_query(page=7, q="x"))
    assert changed == state.model_copy(update={"page": 7, "q": "x"})
    assert read(SuiteState, state.build_query(cols=[])).cols == []  # type: ignore[attr-defined]


def test_what_is_usual_is_not_said() -> None:
    assert SuiteState().build_query() == ""
    assert SuiteState(open=True, cols=["a", "b"]).build_query() == "open=1&cols=a&cols=b"
    assert SuiteState(page=3).build_query(page=1) == ""


def test_every_parameter_of_every_page_is_described_and_optional() -> None:
    for route in load_page_routes():
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
        ({"tokens": "8k"}, ["tokens: write a number alone, not '8k'. At least so many tokens of input"]),
        ({"most": "200M"}, ["most: write a number alone, not '200M'. At most so many million parameters"]),
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
    assert SuiteState(q="x").show_all_rows() == SuiteState(q="x", rows="all")
    assert SuiteState(q="x").show_all_rows().list_query_pairs() == [("q", "x"), ("rows", "all")]
    for named in (SuiteState(rows="100"), SuiteState(page=1), SuiteState(rows="25", page=3)):
        assert named.show_all_rows() == named
    assert State(theme="dark").show_all_rows() == State(theme="dark")


def test_what_a_state_shows_and_says() -> None:
    state = SuiteState(theme="dark", q="a b", rows="25", page=2, cols=["mean"])
    assert state.list_query_pairs()  # what is changed later is not what was said before
    assert state.build_filter_query() == "q=a+b&cols=mean"
    assert state.collect_changes() == {"theme": "dark", "q": "a b", "rows": "25", "page": 2, "cols": ["mean"]}
    assert state.apply_changes(q="c").list_query_pairs() == [*state.list_query_pairs(q="c")]
    assert (SuiteState().build_filter_query(), SuiteState().collect_changes()) == ("", {})


def test_texts_and_lists_have_an_end() -> None:
    wrong: list[dict[str, Any]] = [{"q": "x" * 201}, {"cols": ["x"] * 201}, {"page": 0}]
    for values in wrong:
        with pytest.raises(ValidationError):
            SuiteState.model_validate(values)


@given(TEXT, st.dictionaries(TEXT, TEXT, max_size=3))
def test_an_address_is_one_path_and_one_query(path: str, query: dict[str, str]) -> None:
    found = build_address(f"/{path}", query)
    assert all(c.isascii() and c not in " \"'<>\\" and c >= " " for c in found)
    parts = urlsplit(f"http://host{found}")
    assert parts.fragment == ""
    assert parse_qs(parts.query, keep_blank_values=True) == {n: [v] for n, v in query.items()}


@given(st.integers(0, 1200), st.sampled_from(SIZES), st.integers(1, 30))
def test_pages_hold_every_row_once(total: int, rows: str, page: int) -> None:
    state = SuiteState(rows=rows, page=page)  # type: ignore[arg-type]
    where = build_paging(total, state, "/x")
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
        for one in [build_paging(total, state.model_copy(update={"page": number}), "/x")]
        for n in range(one.first, one.last + 1)
        if total
    ]
    assert seen == list(range(1, total + 1))
