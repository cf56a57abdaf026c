"""The list of suites."""

from __future__ import annotations

from pydantic import Field

from leaderboard.data.descriptions import describe_suite
from leaderboard.data.suites import SiteSuite
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State, Text
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Column, Row, Table

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
    """Every suite by kind, the boards first, those with the most models before the others."""
    known, query = site.queries.entries_of_suites, state.q.casefold()
    suites = [s for s in site.queries.suites.values() if query in f"{s.suite.title} {s.typed}".casefold()]
    suites.sort(key=lambda suite: (not suite.main, -known.get(suite.slug, 0)))
    rows: list[Row] = []
    for main, heading in ((True, "Boards"), (False, "Other benchmarks of mteb")):
        own = [_row(suite, known.get(suite.slug, 0)) for suite in suites if suite.main == main]
        group = Row(kind="group", cells=[Cell(text=heading), *[Cell()] * (len(COLUMNS) - 1)])
        rows += [group, *own] if own else []
    caption = f"{len(suites)} suites, {sum(suite.slug in known for suite in suites)} of them with scores"
    return Page(
        title="Suites",
        template="suites.html",
        lead="A suite is a list of tasks, each at one revision of its data, with the means over them.",
        tables=[Table(name="suites", caption=caption, columns=COLUMNS, rows=rows)],
        context=state,
    )


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
