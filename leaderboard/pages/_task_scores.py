"""Names of tasks in URLs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from harness.types import Column, Task
from leaderboard.data.entries import precedence
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import REASONS, Raw, Reason, Scope, SiteSuite, scope_of, slug, views
from leaderboard.web.page import missing
from leaderboard.web.parameters import address

if TYPE_CHECKING:
    from leaderboard.pages.task import TaskState


ENDS = (".json", ".csv", ".md", ".tex")
"""What a path of a twin ends with."""


def task_path(name: str) -> str:
    """The page of a task: its name where a path can hold it, else a short form with a digest.

    >>> task_path("STS12"), task_path("my task")
    ('/tasks/STS12', '/tasks/my%20task')
    >>> task_path("../a")
    '/tasks/a-61b4c98b'
    """
    return address(f"/tasks/{task_key(name)}")


def column_path(listed: SiteSuite, column: Column) -> str:
    """The page of a column's only task, as the column asks for it; empty for a column of several."""
    if len(column.tasks) != 1:
        return ""
    query = {"scope": f"{listed.slug}:{column.name}"} if column.name in listed.parts else None
    return address(f"/tasks/{task_key(column.tasks[0].name)}", query)


def task_key(name: str) -> str:
    """What stands for a task in a path, not quoted."""
    safe = all(sign.isascii() and (sign.isalnum() or sign in "-_. ") for sign in name)
    if safe and name.strip(". ") and not name.endswith(ENDS) and len(name) <= 100:
        return name
    return f"{slug(name)[:80]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}".lstrip("-")


def find_task(text: str, names: Iterable[str]) -> str:
    """The task that a part of a path names.

    Raises:
        NotFound: There is none; the nearest are named.
    """
    known = list(names)
    if text in known:
        return text
    keys = {task_key(name): name for name in known if task_key(name) != name}
    if text in keys:
        return keys[text]
    raise missing("task", text, known, then="The page /tasks lists all.")


MOST = "most"
"""The question of a task that no suite asks: what most entries have."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that is asked of a task.

    Attributes:
        names: What stands for it in URLs: each suite that asks it, with its convention where there is one, or
            with its column where that shows a part of the task.
        scope: Splits, subsets, data and convention.
        holders: The suites that ask it.
        task: The task as the first of them has it; None where no suite asks it.
    """

    names: tuple[str, ...]
    scope: Scope
    holders: Sequence[SiteSuite] = ()
    task: Task | None = None

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def label(self) -> str:
        """The question in a few words, for a choice among several."""
        more = f" and {len(self.holders) - 1} more" if len(self.holders) > 1 else ""
        asked = f"{self.holders[0].suite.title}{more}" if self.holders else "what most entries have"
        view = f", as {self.scope.view} prints it" if self.scope.view else ""
        return f"{asked}{view}: {self.scope_text}"

    @property
    def scope_text(self) -> str:
        """Splits and subsets in a few words."""
        return f"{' + '.join(self.scope.splits)}; {listing(self.scope.subsets, 'subset')}"


def listing(names: Sequence[str], what: str, most: int = 3) -> str:
    """Names, or how many there are.

    >>> listing(["de"], "subset"), listing(["a", "b", "c", "d"], "subset")
    ('subset de', '4 subsets')
    """
    if len(names) > most:
        return f"{len(names)} {what}s"
    return f"{what}{'s' if len(names) != 1 else ''} {', '.join(names)}"


_asked: WeakKeyDictionary[Queries, dict[str, list[Question]]] = WeakKeyDictionary()


def asked(queries: Queries) -> Mapping[str, list[Question]]:
    """The questions of every task that a suite holds; those of main suites first."""
    if queries not in _asked:
        _asked[queries] = _all(list(queries.suites.values()))
    return _asked[queries]


def known_tasks(queries: Queries) -> list[str]:
    """Every task that has a result or is held by a suite."""
    return sorted({*queries.tasks, *asked(queries)})


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A task in a column of a suite."""

    listed: SiteSuite
    column: Column
    task: Task

    @property
    def part(self) -> str:
        """The name of the column, where it shows a part of the task."""
        return self.column.name if self.column.name in self.listed.parts else ""


def _all(suites: Sequence[SiteSuite]) -> dict[str, list[Question]]:
    places: dict[str, dict[Scope, list[_Place]]] = {}
    for one in suites:
        for view in views(one.suite):
            for column in one.suite.columns:
                for task in column.tasks:
                    scopes = places.setdefault(task.name, {})
                    place = _Place(listed=one, column=column, task=task)
                    scopes.setdefault(scope_of(task, view), []).append(place)
    return {name: _questions(scopes) for name, scopes in places.items()}


def _questions(scopes: Mapping[Scope, Sequence[_Place]]) -> list[Question]:
    """The questions of a task: whole ones, then parts, those outside of means last."""
    ordered = sorted(scopes, key=lambda s: (bool(scopes[s][0].part), bool(scopes[s][0].column.shown_only)))
    return [
        Question(
            names=tuple(_name(one, scope) for one in scopes[scope]),
            scope=scope,
            holders=list({one.listed.slug: one.listed for one in scopes[scope]}.values()),
            task=scopes[scope][0].task,
        )
        for scope in ordered
    ]


def _name(place: _Place, scope: Scope) -> str:
    return ":".join(filter(None, (place.listed.slug, scope.view or place.part)))


def common_question(task: str, results: Sequence[tuple[Raw, str]]) -> Question:
    """What most entries have of a task: the commonest splits and subsets, then the commonest data.

    Args:
        task: Its name.
        results: Main scores by split and subset, and the data they are of.
    """
    shapes = Counter(_shape(raw) for raw, _ in results if raw)
    shape = max(shapes, key=lambda one: (shapes[one], one), default=((), ()))
    data = Counter(data for raw, data in results if data and _shape(raw) == shape)
    pinned = max(data, key=lambda one: (data[one], one), default="")
    return Question(names=(MOST,), scope=Scope(task=task, splits=shape[0], subsets=shape[1], data=pinned))


def _shape(raw: Raw) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(sorted(raw)), tuple(sorted({subset for subsets in raw.values() for subset in subsets}))


def first_of_models(rows: Sequence[Scored], *, any_revision: bool) -> list[Scored]:
    """One row for each model: a number that is ranked, then the best known revision, then the newest."""
    best: dict[str, Scored] = {}
    for one in rows:
        there = best.get(one.entry.model_slug)
        if there is None or _weight(one, any_revision) > _weight(there, any_revision):
            best[one.entry.model_slug] = one
    return list(best.values())


def _weight(one: Scored, any_revision: bool) -> tuple[bool | int | str, ...]:
    entry = one.entry
    ranked = counts(one, any_revision=any_revision)
    return (ranked, one.value is not None, *precedence(entry))


def places(rows: Sequence[Scored]) -> dict[int, int]:
    """Ranks by entry, of rows that all count; each group of ties begins with its best.

    Two share a rank where their scores are equal, or where both have intervals and differ by no more
    than the half-widths put together as those of independent numbers.
    """
    found: dict[int, int] = {}
    leader: Scored | None = None
    for position, one in enumerate(sorted(rows, key=lambda r: -(r.value or 0.0)), 1):
        if leader is None or not alike(leader, one):
            leader, first = one, position
        found[one.entry.id] = first
    return found


def alike(one: Scored, other: Scored) -> bool:
    """Whether two numbers of a task cannot be told apart, by what is known of them."""
    return tie(one.value, other.value, one.half, other.half)


def tie(one: float | None, other: float | None, half: float | None, other_half: float | None) -> bool:
    """Whether two numbers are equal, or lie within their known intervals put together.

    >>> tie(0.5, 0.52, None, 0.01), tie(0.5, 0.52, 0.015, 0.015)
    (False, True)
    """
    if one is None or other is None:
        return False
    room = hypot(half, other_half) if half is not None and other_half is not None else 0.0
    return abs(one - other) <= room


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
        found: dict[str, tuple[SiteSuite, dict[str, None]]] = {}
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


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One entry's number for a question; without one, `reason` says why (leaderboard.data.suites.WHY).

    Of a training's seeds there are the standard deviation and how many have a number; `trained_on` counts the
    task's texts in the training data.
    """

    entry: Entry
    value: float | None
    low: float | None = None
    high: float | None = None
    reason: Reason
    result: int
    data: str
    deviation: float | None = None
    seeds: int | None = None
    trained_on: int | None = None

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval; None where none is known."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True, kw_only=True)
class Found:
    """One result of a task, read."""

    result: int
    entry: int
    task: str
    status: str
    data: str
    raw: Raw
    values: Mapping[str, Any]


def stored(queries: Queries, question: Question) -> list[Scored]:
    """The numbers of a question that a suite asks, as the index has them."""
    number = queries.scope_ids.get(question.scope.form, 0)
    rows = queries.scores(scope=number)
    return [
        Scored(
            entry=queries.entries[row.entry], value=row.value, low=row.low, high=row.high,
            reason=REASONS[row.reason], result=row.result, data=row.data, deviation=row.deviation,
            seeds=row.seeds, trained_on=row.trained_on,
        )
        for row in rows
        if not queries.entries[row.entry].member
    ]  # fmt: skip


def read(queries: Queries, tasks: Sequence[str]) -> list[Found]:
    """Every result of some tasks with its main scores by split and subset."""
    return [
        Found(
            result=row.id, entry=row.entry, task=row.task, status=row.status, data=row.data, raw=raw,
            values={"seeds": row.seeds, "trained_on": row.trained_on},
        )
        for row, raw in queries.task_results(tasks)
        if not queries.entries[row.entry].member
    ]  # fmt: skip


def answered(queries: Queries, scope: Scope, results: Iterable[Found]) -> list[Scored]:
    """The numbers of a scope, made of results."""
    return [_answer(queries.entries[one.entry], scope, one) for one in results]


def _answer(entry: Entry, scope: Scope, one: Found) -> Scored:
    gone: Mapping[str, Reason] = {"failed": "failed", "part": "seeds"}
    value, reason = (None, gone[one.status]) if one.status in gone else scope.answer(one.raw, one.data)
    return Scored(entry=entry, value=value, reason=reason, result=one.result, data=one.data, **one.values)


def most_have(task: str, results: Sequence[Found]) -> Question:
    """The question of a task that no suite asks."""
    return common_question(task, [(one.raw, one.data) for one in results if one.status == "done"])


def counts(one: Scored, *, any_revision: bool = False) -> bool:
    """Whether a number is ranked: a number as it is asked for, and not one that a paper prints."""
    there = one.value is not None and one.value == one.value
    fits = one.reason == "" or (any_revision and one.reason == "other")
    return there and fits and one.entry.origin != "reported"
