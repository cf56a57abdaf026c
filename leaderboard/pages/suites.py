"""The list of suites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from leaderboard.data.suites import SiteSuite
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State, Text
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


class SuitesState(State):
    """What the list of suites can be asked."""

    q: Text = Field("", description="Part of a suite's name.")


def view(site: Site, state: SuitesState) -> Page:
    """Every suite: what is in it, and how much is known."""
    known = site.queries.entries_of_suites
    suites = [one for one in site.queries.suites.values() if state.q.casefold() in _names(one)]
    scored = sum(one.slug in known for one in suites)
    suites.sort(key=lambda one: (not one.main, -known.get(one.slug, 0)))
    return Page(
        title="Suites",
        template="suites.html",
        lead="A suite is a list of tasks with its means; each column is a task at one revision of its data.",
        tables=[
            Table(
                name="suites",
                caption=f"{len(suites)} suites, {scored} of them with scores",
                columns=[
                    Column(key="name", label="Suite", sticky=True),
                    Column(key="typed", label="On the command line"),
                    Column(key="columns", label="Columns", numeric=True),
                    Column(key="types", label="Task types"),
                    Column(
                        key="entries",
                        label="Entries",
                        numeric=True,
                        note="Entries with a score in the suite.",
                    ),
                ],
                rows=[_row(one, known.get(one.slug, 0)) for one in suites],
            )
        ],
        context=state,
    )


def _names(one: SiteSuite) -> str:
    return f"{one.suite.title} {one.typed}".casefold()


def _row(one: SiteSuite, entries: int) -> Row:
    types = list(dict.fromkeys(column.type for column in one.suite.columns))
    return Row(
        cells=[
            Cell(text=one.suite.title, value=one.suite.title, href=f"/suites/{one.slug}"),
            Cell(
                text=f"--suite {one.typed!r}" if " " in one.typed else f"--suite {one.typed}", value=one.typed
            ),
            Cell(text=str(len(one.suite.columns)), value=len(one.suite.columns)),
            Cell(text=", ".join(types), value=", ".join(types)),
            Cell(text=str(entries) if entries else "–", value=entries, kind="" if entries else "none"),
        ]
    )


PAGE = PageRoute(
    path="/suites",
    state=SuitesState,
    view=view,
    summary="Every suite: its columns, and how many entries have scores in it.",
    all_paths=lambda site: ["/suites"],
)

PAGES = (PAGE,)
