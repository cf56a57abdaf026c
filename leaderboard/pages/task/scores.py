"""The numbers of one task: what every entry has for a question, or why it has none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from leaderboard.database import RESULTS, SCORES
from leaderboard.pages.task.questions import Question, common_question
from leaderboard.queries import Entry, Queries
from leaderboard.scopes import REASONS, Raw, Reason, Scope, main_scores


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One entry's number for a question; without one, `reason` says why (leaderboard.scopes.WHY).

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
    wanted = (
        select(SCORES.c.entry, SCORES.c.value, SCORES.c.low, SCORES.c.high, SCORES.c.reason, SCORES.c.result,
               SCORES.c.deviation, SCORES.c.seeds, SCORES.c.trained_on, RESULTS.c.data)
        .join(RESULTS, RESULTS.c.id == SCORES.c.result)
        .where(SCORES.c.scope == number)
        .order_by(SCORES.c.entry)
    )  # fmt: skip
    with queries.reading() as connection:
        rows = connection.execute(wanted).all()
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
    columns = ("id", "entry", "task", "metric", "status", "data", "document", "seeds", "trained_on")
    wanted = select(*[RESULTS.c[name] for name in columns]).where(RESULTS.c.task.in_(list(tasks)))
    with queries.reading() as connection:
        rows = connection.execute(wanted.order_by(RESULTS.c.id)).all()
    return [
        Found(
            result=row.id, entry=row.entry, task=row.task, status=row.status, data=row.data,
            raw=_raw(queries.entries[row.entry], json.loads(row.document), row.metric),
            values={"seeds": row.seeds, "trained_on": row.trained_on},
        )
        for row in rows
        if not queries.entries[row.entry].member
    ]  # fmt: skip


def _raw(entry: Entry, document: Mapping[str, Any], metric: str) -> Raw:
    """Main scores by split and subset of a result's document: of a record, or as an import keeps them."""
    if entry.origin != "measured":
        return document
    return main_scores(document["scores"], metric, document.get("main_score"))


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
