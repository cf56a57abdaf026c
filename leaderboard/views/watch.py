"""A watch: scores of a pretraining run, step by step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Crumb, Page, PageRoute, missing
from leaderboard.pages.watch.page import WatchPage, watch_page
from leaderboard.state import State, Text
from leaderboard.views.watches import crumbs
from leaderboard.watched import opened

if TYPE_CHECKING:
    from leaderboard.site import Site


class WatchState(State):
    """What the page of a watch can be asked."""

    task: Text = Field("", description="The task whose scores are drawn; empty for the mean.")
    scale: Literal["linear", "log"] = Field("linear", description="How steps are laid out.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Checkpoints on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of checkpoints.")


def view(site: Site, state: WatchState, watch: str) -> Page:
    """The page of a watch."""
    known = site.queries.watches
    if watch not in known:
        raise missing("watch", watch, known, then="The page /watches lists all.")
    found: WatchPage = watch_page(
        site.queries, watch, opened(json.loads(site.queries.filed("watch", watch))), state
    )
    return Page(
        title=found.watch.name,
        template="watch.html",
        lead=found.lead,
        crumbs=[*crumbs(site), Crumb(label="Watches", href="/watches")],
        tables=[found.table],
        data=found.data,
        context=found,
    )


PAGE = PageRoute(
    path="/watch/{watch}",
    state=WatchState,
    view=view,
    summary="A watch: the mean or a task's score against the step, and every checkpoint.",
    every=lambda site: [f"/watch/{name}" for name in site.queries.watches],
)
