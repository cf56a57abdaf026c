"""One result in full."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from leaderboard.page import Crumb, NotFound, Page, PageRoute
from leaderboard.pages.model.result import result_page, score_of
from leaderboard.queries import Entry
from leaderboard.state import State, Text

if TYPE_CHECKING:
    from leaderboard.site import Site


class ResultState(State):
    """What the page of a result can be asked."""

    q: Text = Field("", description="Part of the name of a subset or a metric.")
    split: Text = Field("", description="Only scores of this split.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Scores on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of scores.")


def view(site: Site, state: ResultState, id: str) -> Page:
    """The page of a result."""
    rows = site.queries.results(id=int(id)) if id.isascii() and id.isdecimal() and len(id) < 17 else []
    if not rows:
        raise NotFound(f"No result is called {id!r}.", hint="The page of a model lists its results.")
    row = rows[0]
    found = result_page(site.queries, row, state, f"/results/{row.id}")
    entry = site.queries.entries[row.entry]
    return Page(
        title=f"{entry.model} on {row.task}",
        template="result.html",
        lead=_lead(row, entry),
        crumbs=[
            Crumb(label="Models", href="/"),
            Crumb(label=entry.model, href=f"/models/{entry.model_slug}"),
        ],
        tables=found.tables,
        data=found.data,
        context=found,
        notes=found.notes,
    )


def _lead(row: Any, entry: Entry) -> str:
    if row.status == "failed":
        return "It was run and failed."
    return f"{row.metric or 'Main score'} × 100: {score_of(row, entry)}, {entry.origin}."


def every(site: Site) -> Iterable[str]:
    """The page of every measured result: imported ones are too many, and hold little more."""
    measured = [e.id for e in site.queries.entries.values() if e.origin == "measured"]
    return [f"/results/{row.id}" for row in site.queries.results(entry=measured)]


PAGE = PageRoute(
    path="/results/{id}",
    state=ResultState,
    view=view,
    summary="One result in full: raw metrics, identity, provenance, training, and the error of a failure.",
    every=every,
)
