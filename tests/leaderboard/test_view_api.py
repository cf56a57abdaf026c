"""The page of the API: every parameter with what it takes; and what other pages say in words."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from leaderboard.pages.model.page import _of_suites
from leaderboard.pages.model.result_tables import keyed
from leaderboard.state import State
from leaderboard.views import api
from site_data import Parsed, standard_app


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], tuple[str, ...]]:
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
        ("/suites/{suite}", "mean", "tasks, types", "tasks"),
        ("/suites/{suite}", "origin", "measured, imported, reported", ""),
        ("/suites/{suite}", "open", "0, 1", "0"),
        ("/suites/{suite}", "tokens", "a whole number from 1 to 2,147,483,647", ""),
        ("/suites/{suite}", "page", "a whole number from 1 to 100,000", "1"),
        ("/suites/{suite}", "pin", "text, again and again for several", ""),
        ("/tasks", "q", "text", ""),
        ("/pareto", "price", "a number", ""),
        ("/pareto", "scale", "log, linear", ""),
        ("every page", "theme", "auto, light, dark", "auto"),
    ],
)
def test_what_parameters_take(
    rows: dict[tuple[str, str], tuple[str, ...]], page: str, name: str, takes: str, default: str
) -> None:
    assert rows[page, name][:2] == (takes, default)


def test_every_value_that_is_offered_is_taken(rows: dict[tuple[str, str], tuple[str, ...]]) -> None:
    states = {route.path: route.state for route in standard_app().state.site.pages} | {"every page": State}
    tried = 0
    for (page, name), (takes, default, _) in rows.items():
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


@pytest.mark.parametrize(
    ("suites", "says"),
    [
        ({}, "No suite asks for any of it."),
        ({"a": False}, "It has a part of one suite."),
        ({"a": False, "b": False}, "It has a part of 2 suites."),
        ({"a": True}, "It has all of one suite."),
        ({"a": True, "b": False}, "It has all of one suite and a part of one other."),
        ({"a": True, "b": True, "c": False, "d": False}, "It has all of 2 suites and a part of 2 others."),
    ],
)
def test_suites_of_a_model_in_words(suites: dict[str, bool], says: str) -> None:
    assert _of_suites(suites) == says


def test_keys_have_no_empty_ends_and_nothing_is_no_code() -> None:
    values: dict[str, Any] = {"applied": {"": ""}, "asked": {"named": {}, "default": None}}
    table = keyed("prompts", "Prompts", values)
    assert [[cell.text for cell in row.cells] for row in table.rows] == [
        ["applied.all", "(empty)"],
        ["asked.default", "–"],
    ]
