"""A task with the question that a page's state chooses, and everybody's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaderboard.page import missing
from leaderboard.pages.task.questions import Question, asked, listing
from leaderboard.pages.task.scores import Scored, answered, most_have, read, stored
from leaderboard.queries import Queries
from leaderboard.scopes import Listed, Scope
from leaderboard.state import address

if TYPE_CHECKING:
    from leaderboard.views.task import TaskState

THEN = "The task's page offers those there are."


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """What the page of a task is about.

    Attributes:
        task: Its name.
        questions: What the suites ask of it; one that most entries answer where no suite asks.
        question: The chosen one.
        scope: What is scored: the question's scope, or a single subset.
        subsets: Every subset that a question holds.
        rows: Every entry with a result on the task.
    """

    task: str
    questions: Sequence[Question]
    question: Question
    scope: Scope
    subsets: Sequence[str]
    rows: Sequence[Scored]

    @property
    def holders(self) -> list[tuple[str, str, str]]:
        """The suites that hold the task: title, URL, and what they ask of it."""
        found: dict[str, tuple[Listed, dict[str, None]]] = {}
        for question in self.questions:
            for one in question.holders:
                found.setdefault(one.slug, (one, {}))[1][question.scope_text] = None
        return [
            (one.suite.title, address(f"/suites/{one.slug}"), _several(list(asks)))
            for one, asks in found.values()
        ]


def _several(asks: Sequence[str]) -> str:
    """What the columns of a suite ask of a task."""
    return " and ".join(asks) if len(asks) < 4 else f"{len(asks)} parts of it"


def choose(queries: Queries, state: TaskState, task: str) -> Chosen:
    """The task as a state asks for it.

    Raises:
        NotFound: The state names a question or a subset that is none.
    """
    questions = asked(queries).get(task, [])
    results = read(queries, [task]) if state.subset or not questions else []
    questions = questions or [most_have(task, results)]
    question = _question(questions, state.scope)
    subsets = sorted({subset for one in questions for subset in one.scope.subsets})
    if state.subset and state.subset not in subsets:
        raise missing("subset", state.subset, subsets, then=THEN)
    scope = _narrowed(question.scope, state.subset)
    from_index = question.holders and scope == question.scope
    rows = stored(queries, question) if from_index else answered(queries, scope, results)
    return Chosen(task=task, questions=questions, question=question, scope=scope, subsets=subsets, rows=rows)


def _narrowed(scope: Scope, subset: str) -> Scope:
    if not subset or scope.subsets == (subset,):
        return scope
    return Scope(task=scope.task, splits=scope.splits, subsets=(subset,), data=scope.data)


def _question(questions: Sequence[Question], name: str) -> Question:
    """The question of this name; any suite that asks it names it as well."""
    asked_so = [one for one in questions if not name or name in one.names]
    by_suite = [one for one in questions if name in [suite.slug for suite in one.holders]]
    if asked_so or by_suite:
        return [*asked_so, *by_suite][0]
    raise missing("scope", name, [one.name for one in questions], then=THEN)


Fact = tuple[str, ...]
"""Name and value, with a URL and a note where there are such."""


def facts(queries: Queries, chosen: Chosen) -> list[Fact]:
    """What is asked, for the head of the page."""
    kind, metric, results = queries.tasks.get(chosen.task, ("", "", 0))
    task, scope = chosen.question.task, chosen.scope
    name = (task.metric if task else metric) or "not known"
    data_set = task.data.path or "local or built" if task else "not known"
    subsets = listing(scope.subsets, "subset").removeprefix("subsets ").removeprefix("subset ")
    return [
        ("Type", (task.type if task else kind) or "not known"),
        ("Metric", f"what {scope.view} prints of it" if scope.view else name),
        ("Data set", data_set),
        ("Data revision", scope.data or "none", "", _pinned_by(chosen)),
        ("Splits", ", ".join(scope.splits) or "none", "", _mean_over(scope.splits)),
        ("Subsets", subsets or "none", "", _mean_over(scope.subsets)),
        ("Results", str(results), "", "whatever they were asked"),
    ]


def _pinned_by(chosen: Chosen) -> str:
    if not chosen.scope.data:
        return "nothing pins the data"
    return (
        "pinned by the suite" if chosen.question.holders else "no suite pins it: most entries have this one"
    )


def _mean_over(names: Sequence[str]) -> str:
    return "the score is the mean over them" if len(names) > 1 else ""
