"""Writing the index: units as rows of its tables."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    String,
    delete,
    func,
    insert,
    select,
)

from leaderboard.database import AVERAGES, ENTRIES, FILED, RESULTS, SCOPES, SCORES, UNITS
from leaderboard.found import Entry, Filed, Outcome, Unit
from leaderboard.scopes import REASONS, Scope, possible

log = logging.getLogger(__name__)

BEST = [REASONS.index(reason) for reason in ("", "other", "part", "bad", "failed", "none")]
"""Which of several results of a task answers a scope: the first in this order, then the newest."""

WRITTEN = (UNITS, ENTRIES, RESULTS, SCORES, AVERAGES, FILED)
"""The tables that hold units, in the order in which rows go in."""

Item = TypeVar("Item")


class Writer:
    """Writes units, counting the identifiers itself so that rows can go in by the thousand."""

    def __init__(self, connection: Connection, scopes: dict[str, list[Scope]]) -> None:
        self.connection = connection
        self.scopes = scopes
        self.next = {
            table.name: int(connection.scalar(select(func.coalesce(func.max(table.c.id), 0))) or 0) + 1
            for table in (UNITS,)
        }
        self.ids = self._scope_ids()
        self.slugs = set(connection.scalars(select(ENTRIES.c.slug)))
        self.results = set(connection.scalars(select(RESULTS.c.id)))

    def _scope_ids(self) -> dict[str, int]:
        known = {form: number for number, form in self.connection.execute(select(SCOPES.c.id, SCOPES.c.form))}
        forms = [scope.form for scopes in self.scopes.values() for scope in scopes if scope.form not in known]
        added = {form: number for number, form in enumerate(forms, len(known) + 1)}
        self._insert(SCOPES, [{"id": number, "form": form} for form, number in added.items()])
        return known | added

    def write(self, units: Iterable[Unit], former: Mapping[tuple[str, str], int]) -> int:
        """Take units in, some at a time, each in place of its former state; returns how many.

        One that cannot be read leaves its former state.
        """
        taken = 0
        for some in _batched(units, 50):
            rows: dict[str, list[dict[str, Any]]] = {table.name: [] for table in WRITTEN}
            read = [(unit, found) for unit in some if (found := _read(unit)) is not None]
            self._forget([former[key] for unit, _ in read if (key := key_of(unit)) in former])
            for unit, found in read:
                number = self._number(UNITS.name)
                row = {"source": unit.source, "name": unit.name, "stamp": unit.stamp}
                rows["units"].append({"id": number, **{name: _storable(v) for name, v in row.items()}})
                for one in found:
                    if isinstance(one, Filed):
                        rows["filed"].append(_filed_row(one, number))
                    else:
                        self._entry(one, number, rows)
            for table in WRITTEN:
                self._insert(table, rows[table.name])
            taken += len(read)
        return taken

    def _forget(self, units: Sequence[int]) -> None:
        """Drop units whose new state is at hand."""
        ours = select(ENTRIES.c.id).where(ENTRIES.c.unit.in_(units))
        self.slugs -= set(self.connection.scalars(select(ENTRIES.c.slug).where(ENTRIES.c.unit.in_(units))))
        self.results -= set(self.connection.scalars(select(RESULTS.c.id).where(RESULTS.c.entry.in_(ours))))
        drop(self.connection, units)

    def _entry(self, entry: Entry, unit: int, rows: dict[str, list[dict[str, Any]]]) -> None:
        if entry.slug in self.slugs:
            log.warning("%s (%s) stands in two folders. One is left out.", entry.model, entry.treatment)
            return
        self.slugs.add(entry.slug)
        number = permanent(entry.slug)
        rows["entries"].append(_entry_row(entry, number, unit))
        scores: dict[int, list[dict[str, Any]]] = {}
        for outcome in sorted(entry.outcomes, key=lambda one: one.written or "", reverse=True):
            result = self._result(entry, outcome)
            rows["results"].append(_result_row(outcome, result, number))
            for score in self._scores(outcome, number, result):
                scores.setdefault(score["scope"], []).append(score)
        rows["scores"] += [
            min(some, key=lambda score: BEST.index(score["reason"])) for some in scores.values()
        ]
        rows["averages"] += [
            {"entry": number, "suite": suite, "view": view, "document": document}
            for suite, view, document in entry.averages
        ]

    def _scores(self, outcome: Outcome, entry: int, result: int) -> Iterator[dict[str, Any]]:
        for scope in self.scopes.get(outcome.task, ()):
            value, low, high, reason = _answer(scope, outcome)
            yield {
                "scope": self.ids[scope.form],
                "entry": entry,
                "value": value,
                "low": low,
                "high": high,
                "reason": REASONS.index(reason),
                "result": result,
            }

    def _insert(self, table: Any, rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self.connection.execute(insert(table), rows)

    def _result(self, entry: Entry, outcome: Outcome) -> int:
        """The number of a result: what its address holds, so it comes of what it is a result of."""
        number = permanent(entry.slug, outcome.key or outcome.task)
        while number in self.results:
            number += 1
        self.results.add(number)
        return number

    def _number(self, table: str) -> int:
        self.next[table] += 1
        return self.next[table] - 1


def _answer(scope: Scope, outcome: Outcome) -> tuple[float | None, float | None, float | None, Any]:
    if outcome.status == "failed":
        return None, None, None, "failed"
    number = outcome.numbers.get(scope.view)
    if scope.view:
        if number is None or number.value is None:
            return None, None, None, "part"
        if not possible(number.value):
            return None, None, None, "bad"
        same = not scope.data or outcome.data == scope.data
        return number.value, number.low, number.high, "" if same else "other"
    value, reason = scope.answer(outcome.raw, outcome.data)
    return value, None, None, reason


def _entry_row(entry: Entry, number: int, unit: int) -> dict[str, Any]:
    names = (
        "model origin source trust treatment revision artifact recipe output parameters dimension "
        "max_tokens released open_weights adapted_from"
    )
    written = [outcome.written for outcome in entry.outcomes if outcome.written]
    return {
        **{name: _stored(ENTRIES.c[name], getattr(entry, name)) for name in names.split()},
        "id": number,
        "unit": unit,
        "slug": entry.slug,
        "model_slug": entry.model_slug,
        "trained_on": None if entry.trained_on is None else json.dumps(list(entry.trained_on)),
        "facts": json.dumps(entry.facts, default=str),
        "newest": _stored(ENTRIES.c.newest, max(written, default=None)),
        "tasks": len(entry.outcomes),
    }


def _filed_row(one: Filed, unit: int) -> dict[str, Any]:
    values = {name: _stored(FILED.c[name], getattr(one, name)) for name in ("kind", "name", "written")}
    documents = {"facts": json.dumps(one.facts), "document": one.document}
    return {**values, **documents, "id": permanent(one.kind, one.name), "unit": unit}


def key_of(unit: Unit) -> tuple[str, str]:
    """What a unit is known by, as the index holds it."""
    return _storable(unit.source), _storable(unit.name)


def _read(unit: Unit) -> Sequence[Entry | Filed] | None:
    """What a unit holds; None, and a word in the log, where it cannot be read: it is tried again."""
    try:
        return unit.read()
    except Exception:
        log.exception("%s of %s cannot be read. What was known of it stays.", unit.name, unit.source)
        return None


def permanent(*parts: str) -> int:
    """A number made of some texts, which every program can hold exactly: below 2**52."""
    return int(hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:13], 16)


def _result_row(outcome: Outcome, number: int, entry: int) -> dict[str, Any]:
    names = ("task", "type", "metric", "status", "value", "data", "key", "written", "document")
    values = {name: _stored(RESULTS.c[name], getattr(outcome, name)) for name in names}
    return {**values, "id": number, "entry": entry}


def _stored(column: Column[Any], value: Any) -> Any:
    """A value as every database takes it: text of the column's length, numbers that it can hold."""
    if value is None:
        return None
    kind = column.type
    if isinstance(value, str):
        return _storable(value)[: kind.length] if isinstance(kind, String) else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    most = 2**63 if isinstance(kind, BigInteger) else 2**31
    return None if isinstance(kind, Integer) and not -most <= value < most else value


def _storable(text: str) -> str:
    """Text that every database takes: no NUL, no half of a character."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def drop(connection: Connection, units: Sequence[int]) -> None:
    """Drop units with all that they hold."""
    for some in _batched(units, 500):
        entries = select(ENTRIES.c.id).where(ENTRIES.c.unit.in_(some))
        for table in (SCORES, RESULTS, AVERAGES):
            connection.execute(delete(table).where(table.c.entry.in_(entries)))
        for table in (ENTRIES, FILED):
            connection.execute(delete(table).where(table.c.unit.in_(some)))
        connection.execute(delete(UNITS).where(UNITS.c.id.in_(some)))


def _batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
