"""All tasks: type, metric, number of results, the best score, and the suites that hold each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.page import Page, PageRoute
from leaderboard.pages.task.list import PATH, TaskList, task_list
from leaderboard.state import State, Text

if TYPE_CHECKING:
    from leaderboard.site import Site


class TasksState(State):
    """What the list of tasks can be asked."""

    q: Text = Field("", description="Part of a task's name.")
    type: Text = Field("", description="Only tasks of this type; `not known` for those without one.")
    suite: Text = Field("", description="Only tasks of this suite.")
    held: Literal["", "suite", "none"] = Field("", description="Only tasks in a suite, or in none.")
    scored: bool = Field(False, description="Only tasks with results.")
    sort: Text = Field("-results", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: TasksState) -> Page:
    """The list of tasks."""
    found: TaskList = task_list(site.queries, state)
    return Page(
        title="Tasks",
        template="tasks.html",
        lead=found.lead,
        tables=[found.table],
        data=found.data,
        context=found,
    )


def every(site: Site) -> Iterable[str]:
    """The list itself."""
    return [PATH]


PAGE = PageRoute(
    path=PATH,
    state=TasksState,
    view=view,
    summary="All tasks, with the number of results, the best score, and the suites that hold each.",
    every=every,
)
