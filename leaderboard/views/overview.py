"""The overview: models x suites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.filters import EntryState
from leaderboard.page import Page, PageRoute
from leaderboard.pages.overview import overview
from leaderboard.state import Text, Texts

if TYPE_CHECKING:
    from leaderboard.site import Site


class OverviewState(EntryState):
    """What the overview can be asked."""

    cols: Texts = Field([], description="Only these suites; none named shows the main ones.")
    sort: Text = Field("", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: OverviewState) -> Page:
    """The first page."""
    papers = {slug: paper.title for slug, paper in site.papers.items()}
    found = overview(site.queries, state, papers, _tiles(site))
    return Page(
        title="Which encoder?",
        template="overview.html",
        lead="What is known of text encoders downstream, how well it is known, and what is not comparable.",
        tables=[found.table],
        data={"found": {kind: [name for name, _ in pairs] for kind, pairs in found.found}},
        context=found,
    )


def _tiles(site: Site) -> list[tuple[str, str, str]]:
    entries = site.queries.entries.values()
    results = {
        origin: sum(e.tasks for e in entries if e.origin == origin and not e.of_seeds)
        for origin in ("measured", "imported")
    }
    printed = sum(paper.numbers for paper in site.papers.values())
    return [
        ("models", f"{len(site.queries.models):,}", ""),
        ("scores measured", f"{results['measured']:,}", "/?origin=measured"),
        ("scores imported", f"{results['imported']:,}", "/?origin=imported"),
        ("numbers printed in papers", f"{printed:,}", "/papers"),
        ("suites with scores", f"{len(site.queries.entries_of_suites):,}", "/suites"),
    ]


PAGE = PageRoute(
    path="/",
    state=OverviewState,
    view=view,
    summary="Models x suites: the mean over each suite's tasks where all of them are there.",
    every=lambda site: ["/"],
)
