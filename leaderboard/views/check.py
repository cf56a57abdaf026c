"""A check in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Crumb, NotFound, Page, PageRoute
from leaderboard.pages.checks.check import CheckPage, check_page, find_check
from leaderboard.state import State, Text

if TYPE_CHECKING:
    from leaderboard.site import Site


class CheckState(State):
    """What the page of a check can be asked."""

    verdict: Literal["", "regressed", "missing", "inconclusive", "not testable", "improved", "equivalent"] = (
        Field("", description="Only tasks of this verdict.")
    )
    type: Text = Field("", description="Only tasks of this type.")
    sort: Text = Field(
        "verdict", description="A column's key of the table of tasks; with - in front downwards."
    )


def view(site: Site, state: CheckState, check: str) -> Page:
    """The page of a check."""
    name = find_check(site.queries, check)
    if name is None:
        raise NotFound(f"No check is called {check!r}.", hint="The page /checks leads to all of them.")
    found: CheckPage = check_page(site.queries, name, state)
    made = found.check
    against = made.baseline.baseline or made.baseline.name
    return Page(
        title=f"{made.candidate.name} against {against}",
        template="check.html",
        lead=f"{made.overall.capitalize()} on {', '.join(made.suites) or 'no suite'}.",
        crumbs=[Crumb(label="Checks", href="/checks"), Crumb(label=f"Against {against}", href=found.line)],
        tables=found.tables,
        data=found.data,
        context=found,
        notes=made.warnings,
    )


PAGE = PageRoute(
    path="/check/{check}",
    state=CheckState,
    view=view,
    summary="A check in full: verdict and why, means and tasks with their intervals, the policy.",
    every=lambda site: [f"/check/{name}" for name in site.queries.checks],
)
