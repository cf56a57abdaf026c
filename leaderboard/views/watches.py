"""Every watch of a pretraining run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderboard.page import Page, PageRoute
from leaderboard.pages.watch.list import watches_table
from leaderboard.state import State

if TYPE_CHECKING:
    from leaderboard.site import Site


def view(site: Site, state: State) -> Page:
    """The list of watches."""
    return Page(
        title="Watches",
        template="watches.html",
        lead="Pretraining runs whose checkpoints are measured as they come.",
        tables=[watches_table(site.queries)],
    )


PAGE = PageRoute(
    path="/watches",
    state=State,
    view=view,
    summary="Every watch of a pretraining run: how far it is, and where its level dropped.",
    every=lambda site: ["/watches"] if site.queries.watches else [],
)
