"""The best entry of tasks, each by its first question (leaderboard.pages.task.questions)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from weakref import WeakKeyDictionary

from sqlalchemy import and_, func, select

from leaderboard.database import ENTRIES, SCORES
from leaderboard.pages.task.questions import asked
from leaderboard.pages.task.scores import Found, answered, counts, most_have, read
from leaderboard.queries import Entry, Queries


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best ranked score of a task."""

    entry: Entry
    value: float


_kept: WeakKeyDictionary[Queries, dict[str, Best | None]] = WeakKeyDictionary()


def best_of(queries: Queries, tasks: Sequence[str]) -> Mapping[str, Best | None]:
    """The best of each of `tasks`; None where nobody is ranked. What was asked once is kept."""
    known = _kept.setdefault(queries, {})
    wanted = [name for name in tasks if name not in known]
    held = [name for name in wanted if name in asked(queries)]
    free = [name for name in wanted if name not in asked(queries)]
    found = {**(_of_suites(queries, held) if held else {}), **(_of_none(queries, free) if free else {})}
    known.update({name: found.get(name) for name in wanted})
    return {name: known[name] for name in tasks}


def _of_suites(queries: Queries, tasks: Iterable[str]) -> dict[str, Best]:
    """Of tasks that a suite asks: the highest number in the index."""
    names = {queries.scope_ids.get(asked(queries)[name][0].scope.form, 0): name for name in tasks}
    counted = and_(SCORES.c.reason == 0, SCORES.c.scope.in_(list(names)), ENTRIES.c.origin != "reported",
                   ENTRIES.c.member.is_(False))  # fmt: skip
    top = (
        select(SCORES.c.scope, func.max(SCORES.c.value).label("value"))
        .join(ENTRIES, ENTRIES.c.id == SCORES.c.entry)
        .where(counted)
        .group_by(SCORES.c.scope)
        .subquery()
    )
    wanted = (
        select(SCORES.c.scope, func.min(SCORES.c.entry), top.c.value)
        .join(top, and_(top.c.scope == SCORES.c.scope, top.c.value == SCORES.c.value))
        .join(ENTRIES, ENTRIES.c.id == SCORES.c.entry)
        .where(counted)
        .group_by(SCORES.c.scope, top.c.value)
    )
    with queries.reading() as connection:
        rows = connection.execute(wanted).all()
    return {names[scope]: Best(entry=queries.entries[entry], value=value) for scope, entry, value in rows}


def _of_none(queries: Queries, tasks: Sequence[str]) -> dict[str, Best]:
    """Of tasks that no suite asks: the highest number of those that answer what most entries have."""
    results = sorted(read(queries, tasks), key=lambda one: (one.task, one.result))
    found = {}
    for name, some in groupby(results, key=lambda one: one.task):
        best = _best(queries, name, list(some))
        if best:
            found[name] = best
    return found


def _best(queries: Queries, task: str, results: Sequence[Found]) -> Best | None:
    rows = answered(queries, most_have(task, results).scope, results)
    ranked = [(one.value, one.entry) for one in rows if one.value is not None and counts(one)]
    value, entry = max(ranked, key=lambda pair: pair[0], default=(None, None))
    return None if value is None or entry is None else Best(entry=entry, value=value)
