"""The list of suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from leaderboard.data.descriptions import describe_suite
from leaderboard.data.suites import SiteSuite
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State, Text
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site

COLUMNS = (
    Column(key="name", label="Suite", sticky=True),
    Column(key="entries", label="Models", numeric=True, note="Models with a score."),
    Column(key="columns", label="Tasks", numeric=True),
    Column(key="types", label="Task types"),
    Column(key="about", label="About"),
    Column(key="typed", label="On the command line"),
)


class SuitesState(State):
    """The parameters of the list of suites."""

    q: Text = Field("", description="Part of a suite's name.")


def view(site: Site, state: SuitesState) -> Page:
    """Every suite by kind, the main ones first, with what is in it."""
    known = site.queries.entries_of_suites
    suites = [suite for suite in site.queries.suites.values() if state.q.casefold() in _names(suite)]
    suites.sort(key=lambda suite: (_kind(suite), -known.get(suite.slug, 0)))
    rows: list[Row] = []
    kind = ""
    for suite in suites:
        if _kind(suite) != kind:
            kind = _kind(suite)
            rows.append(Row(kind="group", cells=[Cell(text=kind), *[Cell()] * (len(COLUMNS) - 1)]))
        rows.append(_row(suite, known.get(suite.slug, 0)))
    caption = f"{len(suites)} suites, {sum(suite.slug in known for suite in suites)} of them with scores"
    return Page(
        title="Suites",
        template="suites.html",
        lead="A suite is a list of tasks, each at one revision of its data, with the means over them.",
        tables=[Table(name="suites", caption=caption, columns=COLUMNS, rows=rows)],
        context=state,
    )


def _names(suite: SiteSuite) -> str:
    return f"{suite.suite.title} {suite.typed}".casefold()


def _kind(suite: SiteSuite) -> str:
    """The heading that a suite stands under."""
    return "Boards" if suite.main else "Other benchmarks of mteb"


def _row(suite: SiteSuite, entries: int) -> Row:
    types = ", ".join(dict.fromkeys(column.type for column in suite.suite.columns))
    about = describe_suite(suite.typed, suite.suite.title).text
    short = about if len(about) <= 120 else f"{about[:119].rsplit(' ', 1)[0]} …"
    typed = f"--suite {suite.typed!r}" if " " in suite.typed else f"--suite {suite.typed}"
    return Row(
        cells=[
            Cell(text=suite.suite.title, value=suite.suite.title, href=f"/suites/{suite.slug}"),
            Cell(text=str(entries) if entries else "–", value=entries, kind="" if entries else "none"),
            Cell(text=str(len(suite.suite.columns)), value=len(suite.suite.columns)),
            Cell(text=types, value=types),
            Cell(text=short, value=about, note=about if short != about else ""),
            Cell(text=typed, value=suite.typed),
        ]
    )


PAGES = (
    PageRoute(
        path="/suites",
        state=SuitesState,
        view=view,
        summary="Every suite: its tasks, and how many models have scores in it.",
        all_paths=lambda site: ["/suites"],
    ),
)
