"""A task: what is asked, who answers how well, and how scores are spread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from leaderboard.filters import EntryState
from leaderboard.page import Crumb, Page, PageRoute
from leaderboard.pages.task.names import find_task, task_key
from leaderboard.pages.task.page import TaskPage, task_page
from leaderboard.pages.task.questions import known_tasks
from leaderboard.state import Text, Texts

if TYPE_CHECKING:
    from leaderboard.site import Site


class TaskState(EntryState):
    """What the page of a task can be asked."""

    scope: Text = Field(
        "",
        description="Whose question: a suite's name in URLs, with `:` and a convention where it has some. "
        "Suites may ask a task for other splits or subsets.",
    )
    subset: Text = Field("", description="Only this subset.")
    revisions: Literal["pinned", "any"] = Field(
        "pinned", description="Whether scores on other revisions of the data are ranked (any)."
    )
    each: Literal["model", "entry"] = Field(
        "model", description="One row for each model, or for each revision and treatment."
    )
    pin: Texts = Field([], description="Entries that stay on top and are marked in the plot.")
    sort: Text = Field("-score", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: TaskState, task: str) -> Page:
    """The page of a task."""
    name = find_task(task, known_tasks(site.queries))
    found: TaskPage = task_page(site.queries, state, name)
    return Page(
        title=name,
        template="task.html",
        lead=found.lead,
        crumbs=[Crumb(label="Tasks", href="/tasks")],
        tables=[found.table],
        data=found.data,
        context=found,
        notes=found.warnings,
    )


def every(site: Site) -> Iterable[str]:
    """The page of every task that has a result or is held by a suite."""
    return [f"/tasks/{task_key(name)}" for name in known_tasks(site.queries)]


PAGE = PageRoute(
    path="/tasks/{task}",
    state=TaskState,
    view=view,
    summary="A task: ranking of all entries, and the distribution of their scores.",
    every=every,
)
