"""A recipe: what it does, in every setting, and who was fine-tuned by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from harness import catalog
from leaderboard.page import Crumb, Page, PageRoute, missing
from leaderboard.pages.recipe.page import recipe_page
from leaderboard.state import State, Text

if TYPE_CHECKING:
    from leaderboard.site import Site


class RecipeState(State):
    """What the page of a recipe can be asked."""

    variant: Text = Field("", description="Another reading of the same source; empty for the recipe's own.")


def view(site: Site, state: RecipeState, recipe: str) -> Page:
    """The page of a recipe."""
    known = catalog.recipes()
    if recipe not in known:
        raise missing("recipe", recipe, known, then="The page /recipes lists all.")
    entry = known[recipe]
    if state.variant and state.variant not in entry.variants:
        raise missing(f"variant of {recipe}", state.variant, entry.variants, then="The page shows them all.")
    found = recipe_page(site, entry, state.variant)
    return Page(
        title=f"{recipe}:{state.variant}" if state.variant else recipe,
        template="recipe.html",
        lead=entry.variants[state.variant] if state.variant else entry.summary,
        crumbs=[Crumb(label="Recipes", href="/recipes")],
        tables=found.tables,
        data=found.data,
        context=found,
    )


PAGE = PageRoute(
    path="/recipes/{recipe}",
    state=RecipeState,
    view=view,
    summary="A recipe: what it does, in every setting, and who was fine-tuned by it.",
    every=lambda site: [f"/recipes/{name}" for name in catalog.recipes()],
)
