"""Two to six entries side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Page, PageRoute
from leaderboard.pages.compare.chosen import PATH
from leaderboard.pages.compare.page import ComparePage, compare_page
from leaderboard.state import State, Text, Texts

if TYPE_CHECKING:
    from leaderboard.site import Site


class CompareState(State):
    """What a comparison can be asked."""

    m: Texts = Field([], description="Entries, 2 to 6; differences are to the first.")
    q: Text = Field("", description="Part of the name of a model that is to be added.")
    suite: Text = Field("", description="The suite; without one, that where all have most in common.")
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    revisions: Literal["pinned", "any"] = Field(
        "pinned", description="Whether scores on other revisions of the data count (any)."
    )
    type: Text = Field("", description="Only tasks of this type in the table of tasks.")
    sort: Text = Field("", description="A column's key of the table of tasks; with - in front downwards.")
    plot: Literal["bars", "radar"] = Field("bars", description="The picture of the means by type.")


def view(site: Site, state: CompareState) -> Page:
    """The comparison."""
    found: ComparePage = compare_page(site.queries, state)
    return Page(
        title=found.title,
        template="compare.html",
        lead=found.lead,
        tables=found.tables,
        data=found.data,
        context=found,
        notes=found.notes,
    )


def every(site: Site) -> Iterable[str]:
    """The chooser."""
    return [PATH]


PAGE = PageRoute(
    path=PATH,
    state=CompareState,
    view=view,
    summary="2 to 6 entries: differences task by task, wins and losses, and why they may differ.",
    every=every,
)
