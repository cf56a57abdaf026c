"""The list of recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderboard.page import Page, PageRoute
from leaderboard.pages.recipe.tables import recipes_table
from leaderboard.state import State

if TYPE_CHECKING:
    from leaderboard.site import Site


def view(site: Site, state: State) -> Page:
    """Every recipe: what it does, where it is from, and how much was measured with it."""
    return Page(
        title="Recipes",
        template="recipes.html",
        lead="A recipe is how a backbone becomes a model: a paper's way of fine-tuning, in every setting.",
        tables=[recipes_table(site.queries)],
    )


PAGE = PageRoute(
    path="/recipes",
    state=State,
    view=view,
    summary="Every recipe: what it does, its source, its variants, and how many entries it made.",
    every=lambda site: ["/recipes"],
)
