"""The papers: who they are, where they differ, and their scores side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from leaderboard.page import Page, PageRoute
from leaderboard.pages.papers.all import papers_page
from leaderboard.state import State, Text

if TYPE_CHECKING:
    from leaderboard.site import Site


class PapersState(State):
    """What the list of papers can be asked."""

    suite: Text = Field("", description="The printed suite that is laid side by side.")


def view(site: Site, state: PapersState) -> Page:
    """The list of papers."""
    found = papers_page(site.papers, state)
    return Page(
        title="Papers",
        template="papers.html",
        lead=found.lead,
        tables=found.tables,
        context=found,
    )


PAGE = PageRoute(
    path="/papers",
    state=PapersState,
    view=view,
    summary="What papers print: the papers, what they differ in, and their scores side by side.",
    every=lambda site: ["/papers"],
)
