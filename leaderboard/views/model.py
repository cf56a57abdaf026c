"""A model: its facts, its entries, its place in every suite, and all its results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Crumb, Page, PageRoute, missing
from leaderboard.pages.model.page import model_page
from leaderboard.state import State, Text, address

if TYPE_CHECKING:
    from leaderboard.site import Site


class ModelState(State):
    """What the page of a model can be asked."""

    entry: Text = Field("", description="Which entry to show, by its name in URLs; empty for the best known.")
    q: Text = Field("", description="Part of a task's name.")
    type: Text = Field("", description="Only results of this task type.")
    sort: Text = Field("task", description="A column of the results; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Results on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of results.")


def view(site: Site, state: ModelState, model: str) -> Page:
    """The page of a model."""
    models = site.queries.models
    if model not in models:
        raise missing("model", model, models, then="The overview at / finds models by a part of their name.")
    found = model_page(site, state, models[model], address(f"/models/{model}"))
    return Page(
        title=found.entry.model,
        template="model.html",
        lead=found.lead,
        crumbs=[Crumb(label="Models", href="/")],
        tables=found.tables,
        data=found.data,
        context=found,
    )


def every(site: Site) -> Iterable[str]:
    """The page of every model."""
    return [f"/models/{slug}" for slug in site.queries.models]


PAGE = PageRoute(
    path="/models/{model}",
    state=ModelState,
    view=view,
    summary="A model: facts, lineage, entries, its place in every suite, and all its task results.",
    every=every,
)
