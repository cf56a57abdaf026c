"""A paper: its tables as printed, beside what was measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderboard.page import Crumb, Page, PageRoute, missing
from leaderboard.pages.papers.paper import paper_page
from leaderboard.state import State

if TYPE_CHECKING:
    from leaderboard.site import Site


def view(site: Site, state: State, paper: str) -> Page:
    """The page of a paper."""
    if paper not in site.papers:
        raise missing("paper", paper, site.papers, then="The page /papers lists all.")
    found = paper_page(site, site.papers[paper])
    return Page(
        title=site.papers[paper].title,
        template="paper.html",
        lead=found.lead,
        crumbs=[Crumb(label="Papers", href="/papers")],
        tables=found.tables,
        data=found.data,
        context=found,
    )


PAGE = PageRoute(
    path="/papers/{paper}",
    state=State,
    view=view,
    summary="A paper: every table as printed, with what was measured here below its lines.",
    every=lambda site: [f"/papers/{slug}" for slug in site.papers],
)
