"""Every watch of a pretraining run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderboard.page import Crumb, Page, PageRoute
from leaderboard.pages.watch.list import watches_table
from leaderboard.state import State

if TYPE_CHECKING:
    from leaderboard.site import Site


def crumbs(site: Site) -> list[Crumb]:
    """The way to the list of watches: by the checks, where there are any."""
    return [Crumb(label="Checks", href="/checks")] if "check" in site.kinds else []


def view(site: Site, state: State) -> Page:
    """The list of watches."""
    return Page(
        title="Watches",
        template="watches.html",
        lead="Pretraining runs whose checkpoints are measured as they come.",
        crumbs=crumbs(site),
        tables=[watches_table(site.queries)],
    )


PAGE = PageRoute(
    path="/watches",
    state=State,
    view=view,
    summary="Every watch of a pretraining run: how far it is, and where its level dropped.",
    every=lambda site: ["/watches"] if site.queries.watches else [],
)
