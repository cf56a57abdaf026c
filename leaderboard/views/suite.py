"""A suite: models x tasks, both means, completeness, ranks with ties."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.filters import EntryState
from leaderboard.grid import Grid
from leaderboard.page import Crumb, Page, PageRoute, missing
from leaderboard.pages.suite.columns import by_key
from leaderboard.pages.suite.page import SuitePage, suite_page
from leaderboard.pages.suite.rows import untouched_of
from leaderboard.scopes import views
from leaderboard.state import Text, Texts

if TYPE_CHECKING:
    from leaderboard.site import Site


class SuiteState(EntryState):
    """What the page of a suite can be asked."""

    zero: Literal["", "all", "most"] = Field(
        "",
        description="Only models that by their makers' account were trained on none of the tasks (all) or "
        "on under half of them (most).",
    )
    type: Text = Field("", description="Only columns of this task type.")
    cols: Texts = Field([], description="Only these columns; none named shows all.")
    pin: Texts = Field([], description="Entries that stay on top.")
    sort: Text = Field("-mean", description="A column's key; with - in front the highest first.")
    mean: Literal["tasks", "types", "untouched"] = Field(
        "tasks",
        description="The mean that ranks: over tasks, over types, or over the tasks that chose no model "
        "shown (untouched).",
    )
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    revisions: Literal["pinned", "any"] = Field(
        "pinned", description="Whether scores on other revisions of the data count (any)."
    )
    group: Literal["", "backbone", "recipe", "organisation"] = Field(
        "", description="What rows are put together by."
    )
    each: Literal["model", "entry"] = Field(
        "model", description="One row for each model, or for each revision and treatment."
    )
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: SuiteState, suite: str) -> Page:
    """The page of a suite."""
    queries = site.queries
    if suite not in queries.suites:
        raise missing("suite", suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[suite]
    known = views(listed.suite)
    if state.view and state.view not in known:
        raise missing("view", state.view, known, then="The suite's page offers those there are.")
    chosen = state.view or known[0]
    grid = queries.grid(listed, chosen, any_revision=state.revisions == "any")
    untouched = untouched_of(grid, state)
    found: SuitePage = suite_page(grid, by_key(grid, state, untouched), f"/suites/{suite}", untouched)
    return Page(
        title=listed.suite.title,
        template="suite.html",
        lead=found.lead,
        crumbs=[Crumb(label="Suites", href="/suites")],
        tables=[found.table],
        data=found.data,
        context=found,
        notes=[*listed.suite.notes, *found.warnings, *_unpinned(grid, state)],
    )


def _unpinned(grid: Grid, state: SuiteState) -> list[str]:
    """What is to be said of pins that are no entry here."""
    there = {entry.slug for entry in grid.entries} if state.pin else set()
    return [f"No entry here is called {name!r}: it is not pinned." for name in state.pin if name not in there]


def every(site: Site) -> Iterable[str]:
    """The page of every suite that has scores."""
    return [f"/suites/{slug}" for slug in site.queries.suites]


PAGE = PageRoute(
    path="/suites/{suite}",
    state=SuiteState,
    view=view,
    summary="A suite: models x tasks, both means, completeness, and ranks with ties.",
    every=every,
)
