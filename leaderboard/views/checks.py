"""Every model line that checks were made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Page, PageRoute
from leaderboard.pages.checks.lines import PATH, LinesPage, lines_page
from leaderboard.state import State, Text

if TYPE_CHECKING:
    from leaderboard.site import Site


class ChecksState(State):
    """What the list of model lines can be asked."""

    verdict: Literal["", "regressed", "inconclusive", "improved", "equivalent"] = Field(
        "", description="Only lines whose last check has this verdict."
    )
    baseline: Text = Field("", description="Only lines against this baseline: its name, or the model's.")
    suite: Text = Field("", description="Only lines on this suite, as it was typed.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Lines on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of lines.")


def view(site: Site, state: ChecksState) -> Page:
    """The list of model lines."""
    found: LinesPage = lines_page(site.queries, state)
    return Page(
        title="Checks",
        template="checks.html",
        lead="New checkpoints against their baselines: what got worse, what got better, what cannot be told.",
        tables=[found.table],
        data={"checks": found.checks, "lines": found.total},
        context=found,
    )


PAGE = PageRoute(
    path=PATH,
    state=ChecksState,
    view=view,
    summary="Model lines: a baseline and its suites, with the verdicts of the checks against it.",
    every=lambda site: [PATH] if site.queries.checks else [],
)
