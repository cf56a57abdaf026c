"""A model line: the history of the checks against one baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Crumb, NotFound, Page, PageRoute
from leaderboard.pages.checks.line import LinePage, line_page
from leaderboard.pages.checks.lines import PATH, lines_of
from leaderboard.state import State

if TYPE_CHECKING:
    from leaderboard.site import Site


class LineState(State):
    """What the page of a model line can be asked."""

    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Checks on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of checks.")


def view(site: Site, state: LineState, line: str) -> Page:
    """The page of a model line."""
    lines = lines_of(site.queries)
    if line not in lines:
        raise NotFound(f"No model line is called {line!r}.", hint=f"The page {PATH} lists all.")
    found: LinePage = line_page(lines[line], state)
    last = lines[line].last
    return Page(
        title=lines[line].title,
        template="line.html",
        lead=f"Newest verdicts: {found.said}.",
        crumbs=[Crumb(label="Checks", href=PATH)],
        tables=[found.table],
        data={
            "line": line,
            "baseline": last.baseline,
            "named": last.named,
            "suites": list(last.suites),
            "recipe": last.recipe or None,
            "checks": len(lines[line].checks),
        },
        context=found,
    )


PAGE = PageRoute(
    path=f"{PATH}/{{line}}",
    state=LineState,
    view=view,
    summary="A model line: its checks over time, with the difference of the mean and its interval.",
    every=lambda site: [f"{PATH}/{name}" for name in lines_of(site.queries)],
)
