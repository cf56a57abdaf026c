"""Tasks: their addresses, what suites ask of them, and the scores of entries with ranks and ties."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from math import hypot, isfinite
from typing import Any, TypeAlias

from harness.core.groups import group_by
from harness.core.types import Column, Data, Suite, Task
from leaderboard.data.entries import Entry
from leaderboard.data.queries import EntryResult, Queries, cache_by_queries
from leaderboard.data.scores import SuiteScores
from leaderboard.data.suites import (
    Raw,
    Scope,
    SiteSuite,
    build_task_scope,
    format_slug,
    list_conventions,
)
from leaderboard.web.page import Moved, build_missing_error
from leaderboard.web.page_state import build_address

ENDS = (".json", ".csv", ".md", ".tex")
"""Ends of addresses that name a format."""

MOST = "most"
"""The question of a task that is in no suite: what most entries have."""

TRUST_TEXTS: Mapping[str, str] = {
    "measured": "the hash of the weights, which were measured here",
    "commit": "a commit",
    "external": "its makers' statement: the weights are not pinned",
    "none": "nothing: the source does not state which weights were scored",
    "other": "a name that is no commit: the weights behind it may change",
    "reported": "a paper",
}
"""By what the revision of a model is known."""


def format_task_path(name: str) -> str:
    """The address of a task's page.

    >>> format_task_path("STS12"), format_task_path("my task"), format_task_path("../a")
    ('/tasks/STS12', '/tasks/my%20task', '/tasks/a-61b4c98b')
    """
    return build_address(f"/tasks/{format_task_key(name)}")


def format_column_path(site_suite: SiteSuite, column: Column) -> str:
    """The address of the only task of a column, as the suite asks for it; empty for a column of several."""
    if len(column.tasks) != 1:
        return ""
    query = {"scope": f"{site_suite.slug}:{column.name}"} if column.name in site_suite.parts else None
    return build_address(f"/tasks/{format_task_key(column.tasks[0].name)}", query)


@cache
def format_task_key(name: str) -> str:
    """The name of a task in addresses, not quoted: a short form with a digest where a path cannot hold it."""
    safe = all(sign.isascii() and (sign.isalnum() or sign in "-_. ") for sign in name)
    if safe and name.strip(". ") and not name.endswith(ENDS) and len(name) <= 100:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{format_slug(name)[:80]}-{digest}".lstrip("-")


def find_task(key: str, names: Iterable[str]) -> str:
    """The task of a name in an address.

    Raises:
        Moved: A task has this name, written in other capitals.
        NotFound: No task has this name; the message names the nearest.
    """
    names = list(names)
    keys = {format_task_key(name): name for name in names} | {name: name for name in names}
    if key not in keys:
        for name in (name for name in keys if name.casefold() == key.casefold()):
            raise Moved(task=format_task_key(keys[name]))
        raise build_missing_error("task", key, names, then="The page /tasks lists all.")
    return keys[key]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What some suites ask of a task, and the task as the first of them has it.

    `names` are its names in addresses: each suite that asks it, with its convention, or with its column where
    that shows a part of the task.
    """

    names: tuple[str, ...]
    task: Task
    view: str = ""
    suites: Sequence[SiteSuite] = ()

    @cached_property
    def scope(self) -> Scope:
        """What is asked of the task."""
        return build_task_scope(self.task, self.view)

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def label(self) -> str:
        """The question in a few words."""
        more = f" and {len(self.suites) - 1} more" if len(self.suites) > 1 else ""
        suites = f"{self.suites[0].suite.title}{more}" if self.suites else "what most entries have"
        view = f", as {self.scope.view} prints it" if self.scope.view else ""
        return f"{suites}{view}: {self.scope_text}"

    def narrow_to_subset(self, subset: str) -> Question:
        """The same of one subset alone, whose number is the main score: conventions are of whole tasks."""
        if not subset or self.task.subsets == (subset,):
            return self
        return replace(self, task=replace(self.task, subsets=(subset,), output="vector"), view="")

    @property
    def scope_text(self) -> str:
        """Splits and subsets in a few words."""
        names, plural = self.scope.subsets, "" if len(self.scope.subsets) == 1 else "s"
        subsets = f"subset{plural} {', '.join(names)}" if len(names) <= 3 else f"{len(names)} subsets"
        return f"{' + '.join(self.scope.splits)}; {subsets}"


@cache_by_queries
def load_questions(queries: Queries) -> Mapping[str, list[Question]]:
    """The questions of every task of a suite: whole ones first, then parts, last those outside of means."""
    places: dict[Scope, list[tuple[SiteSuite, Column, Task]]] = {}
    for site_suite in queries.suites.values():
        for view, column in product(list_conventions(site_suite.suite), site_suite.suite.columns):
            for task in column.tasks:
                places.setdefault(build_task_scope(task, view), []).append((site_suite, column, task))

    def is_behind(scope: Scope) -> tuple[bool, bool]:
        site_suite, column, _ = places[scope][0]
        return column.name in site_suite.parts, bool(column.shown_only)

    by_task = group_by(sorted(places, key=is_behind), lambda scope: scope.task)
    return {task: [_build_question(scope, places[scope]) for scope in some] for task, some in by_task.items()}


def _build_question(scope: Scope, places: Sequence[tuple[SiteSuite, Column, Task]]) -> Question:
    parts = [(one.slug, scope.view or (c.name if c.name in one.parts else "")) for one, c, _ in places]
    return Question(
        names=tuple(":".join(filter(None, part)) for part in parts),
        task=places[0][2],
        view=scope.view,
        suites=list({one.slug: one for one, *_ in places}.values()),
    )


def list_site_tasks(queries: Queries) -> list[str]:
    """Every task that has a result or is in a suite."""
    return sorted({*queries.tasks, *load_questions(queries)})


def find_common_question(
    task: str, results: Iterable[tuple[Raw, str]], kind: str = "", metric: str = ""
) -> Question:
    """What most entries have of a task: the most frequent splits and subsets, then the most frequent data.

    Args:
        task: The task.
        results: Main scores by split and subset, and the revision of their data.
        kind: The task's type.
        metric: Its main metric.
    """
    shapes = [(_extract_score_shape(raw), data) for raw, data in results if raw]
    shape = _find_most_frequent((shape for shape, _ in shapes), ((), ()))
    data = _find_most_frequent((data for one, data in shapes if data and one == shape), "")
    unknown: Mapping[str, Any] = {"source": None}
    common = Task(
        name=task,
        type=kind,
        metric=metric,
        splits=shape[0],
        subsets=shape[1],
        data=Data(revision=data),
        **unknown,
    )
    return Question(names=(MOST,), task=common)


def _extract_score_shape(raw: Raw) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(sorted(raw)), tuple(sorted({subset for subsets in raw.values() for subset in subsets}))


def build_raw_scope(task: str, raw: Raw) -> Scope:
    """The scope of every split and subset of a result, on any data."""
    splits, subsets = _extract_score_shape(raw)
    return Scope(task=task, splits=splits, subsets=subsets, data="")


def _find_most_frequent(values: Iterable[Any], default: Any) -> Any:
    counts = Counter(values)
    # The value decides where two are as frequent: the answer is the same after each start.
    return max(counts, key=lambda value: (counts[value], value), default=default)


Results: TypeAlias = "Sequence[tuple[EntryResult, Raw]]"
"""Results with their main scores by split and subset."""


def load_task_results(queries: Queries, tasks: Sequence[str]) -> Results:
    """Every result of some tasks, of one entry for each model."""
    entries = queries.entries
    return [(row, raw) for row, raw in queries.find_task_results(tasks) if not entries[row.entry].member]


def build_default_question(queries: Queries, task: str, results: Results) -> Question:
    """The question of a task that is in no suite."""
    kind, metric, _ = queries.tasks.get(task, ("", "", 0))
    done = [(raw, row.data) for row, raw in results if row.status == "done"]
    return find_common_question(task, done, kind, metric)


def load_question_scores(
    queries: Queries, question: Question, *, pinned: bool = False, revisions: bool = False
) -> SuiteScores:
    """The scores of a question as a suite of one column.

    Args:
        queries: The site's queries.
        question: What is asked of the task.
        pinned: Whether only scores on the pinned revision of the data count.
        revisions: Whether each revision of an imported model has its own row.
    """
    column = Column(name=question.task.name, type=question.task.type, tasks=(question.task,))
    suite = Suite(name=column.name, title=column.name, columns=(column,))
    scores = queries.load_suite_scores(
        SiteSuite(slug=question.name, typed="", suite=suite, main=False), question.view,
        pinned=pinned, revisions=revisions,
    )  # fmt: skip
    return add_score_intervals(scores)


def add_score_intervals(scores: SuiteScores) -> SuiteScores:
    """A suite of one column with the known 95 % intervals of its scores, by which rows may share a rank."""
    bounds = zip(scores.low[:, 0].tolist(), scores.high[:, 0].tolist(), strict=True)
    intervals = {row: {"interval": ends} for row, ends in enumerate(bounds) if all(map(isfinite, ends))}
    return replace(scores, averages=intervals, _ranks={})


def find_asked_scores(queries: Queries, task: str, results: Sequence[int]) -> dict[int, float]:
    """The scores of some results as the first suite asks for their task, by the result's number."""
    questions = load_questions(queries).get(task)
    if not questions or not results:
        return {}
    scope = queries.scope_ids.get(questions[0].scope.form, 0)
    scores = queries.find_scores(scope=scope, result=list(results))
    return {one.result: one.value for one in scores if one.value is not None}


def is_tie(one: float | None, other: float | None, half: float | None, other_half: float | None) -> bool:
    """Whether two scores are equal, or differ by no more than the half-widths of both intervals combined.

    Args:
        one: A score, as a share of 1.
        other: Another score on the same task.
        half: Half of the first score's 95 % interval; None where it is not known.
        other_half: Half of the second score's interval.

    >>> is_tie(0.5, 0.52, None, 0.01), is_tie(0.5, 0.52, 0.015, 0.015)
    (False, True)
    """
    if one is None or other is None:
        return False
    # The half-width of a difference of independent scores.
    room = hypot(half, other_half) if half is not None and other_half is not None else 0.0
    return abs(one - other) <= room


Best: TypeAlias = "tuple[Entry, float] | None"
"""The first entry of a task with its score; None where none is ranked."""


def load_best_scores(queries: Queries, tasks: Sequence[str]) -> Mapping[str, Best]:
    """The best of each task by its first question, cached."""
    questions = load_questions(queries)
    cache: dict[str, Best] = queries.known.setdefault("best", {})
    new_tasks = [name for name in tasks if name not in cache]
    scopes = {queries.scope_ids.get(questions[n][0].scope.form, 0): n for n in new_tasks if n in questions}
    # None for all of them first: a task without a ranked score is not asked for again.
    cache.update(dict.fromkeys(new_tasks))
    for scope, (entry, value) in (queries.find_best_scores(list(scopes)) if scopes else {}).items():
        cache[scopes[scope]] = queries.entries[entry], value
    others: dict[str, list[tuple[EntryResult, Raw]]] = {
        name: [] for name in new_tasks if name not in questions
    }
    for row, raw in load_task_results(queries, list(others)) if others else ():
        others[row.task].append((row, raw))
    for name, results in others.items():
        question = build_default_question(queries, name, results)
        answers = [
            (queries.entries[row.entry], question.scope.answer(raw, row.data)[0])
            for row, raw in results
            if row.status == "done"
        ]
        scored = [(entry, value) for entry, value in answers if value is not None]
        cache[name] = max(scored, key=lambda pair: pair[1], default=None)
    return {name: cache[name] for name in tasks}
