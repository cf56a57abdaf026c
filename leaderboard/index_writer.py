"""Writing the index: units as rows of its tables."""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import fmean, stdev
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
    update,
)

from leaderboard.database import AVERAGES, ENTRIES, FILED, RESULTS, SCOPES, SCORES, UNITS
from leaderboard.found import Entry, Filed, Outcome, Unit
from leaderboard.scopes import REASONS, Scope, possible

log = logging.getLogger(__name__)

BEST = [REASONS.index(reason) for reason in ("", "other", "part", "bad", "failed", "none", "seeds")]
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
                "deviation": None,
                "seeds": None,
                "trained_on": outcome.trained_on,
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
        "lineage": entry.lineage.model_dump_json() if entry.lineage else None,
        "group": entry.group,
        "seeds": json.dumps([entry.lineage.seed]) if entry.lineage else None,
        "member": False,
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
    names = ("task", "type", "metric", "status", "value", "data", "key", "written", "document", "trained_on")
    values = {name: _stored(RESULTS.c[name], getattr(outcome, name)) for name in names}
    return {**values, "id": number, "entry": entry, "deviation": None, "seeds": None}


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


SEEDS = "seeds"
"""The source of units that stand for several seeds of a training."""

_SOME, _OTHER = REASONS.index("seeds"), REASONS.index("other")


def write_groups(connection: Connection) -> None:
    """Write an entry for every training with several seeds anew, in the place of the former ones."""
    drop(connection, list(connection.scalars(select(UNITS.c.id).where(UNITS.c.source == SEEDS))))
    connection.execute(update(ENTRIES).where(ENTRIES.c.member).values(member=False))
    groups: dict[str, list[Any]] = {}
    for entry in connection.execute(
        select(ENTRIES).where(ENTRIES.c.group.is_not(None)).order_by(ENTRIES.c.id)
    ):
        groups.setdefault(entry.group, []).append(entry)
    for members in groups.values():
        ordered = sorted(members, key=lambda one: json.loads(one.lineage)["seed"])
        if len(ordered) > 1:
            _write_group(connection, ordered)


def _write_group(connection: Connection, members: Sequence[Any]) -> None:
    """One entry for all seeds: means over them of what all of them have."""
    first, ids = members[0], [member.id for member in members]
    unit = int(connection.scalar(select(func.max(UNITS.c.id))) or 0) + 1
    slug = f"{first.model_slug}-{hashlib.sha256(f'{SEEDS} {first.group}'.encode()).hexdigest()[:8]}"
    number = permanent(slug)
    results = connection.execute(select(RESULTS).where(RESULTS.c.entry.in_(ids))).all()
    tasks: dict[str, list[Any]] = {}
    for result in sorted(
        results, key=lambda one: (ids.index(one.entry), one.status != "done", one.written or "")
    ):
        if all(other.entry != result.entry for other in tasks.get(result.task, ())):
            tasks.setdefault(result.task, []).append(result)
    rows = [_group_result(slug, number, some, members) for some in tasks.values()]
    seeds = [json.loads(member.lineage)["seed"] for member in members]
    connection.execute(insert(UNITS).values(id=unit, source=SEEDS, name=first.group, stamp=""))
    lineage = json.dumps(_shared_lineage([json.loads(member.lineage) for member in members]))
    own = {"id": number, "unit": unit, "slug": slug, "artifact": None, "seeds": json.dumps(seeds)}
    newest = max((member.newest or "" for member in members), default="") or None
    connection.execute(
        insert(ENTRIES).values(
            {**first._mapping, **own, "lineage": lineage, "newest": newest, "tasks": len(rows)}
        )
    )
    same = {"member": True, "model": first.model, "model_slug": first.model_slug}
    connection.execute(update(ENTRIES).where(ENTRIES.c.id.in_(ids)).values(same))
    connection.execute(insert(RESULTS), rows)
    task_of = {result.id: result.task for result in results}
    scores: dict[int, list[Any]] = {}
    for score in connection.execute(select(SCORES).where(SCORES.c.entry.in_(ids))):
        scores.setdefault(score.scope, []).append(score)
    if scores:
        made = [
            {**_over_seeds(some, len(members)), "scope": scope, "entry": number,
             "result": permanent(slug, task_of[some[0].result])}
            for scope, some in scores.items()
        ]  # fmt: skip
        connection.execute(insert(SCORES), made)


def _shared_lineage(lineages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The lineage of all seeds; what their sweeps chose stays where all chose the same value."""
    first = lineages[0]
    sweeps: list[dict[str, Any]] = [made["sweep"] for made in lineages if made.get("sweep")]
    if all(sweep["chosen"] == sweeps[0]["chosen"] for sweep in sweeps):
        return first
    return {**first, "sweep": {**sweeps[0], "chosen": None, "curve": []}}


def _over_seeds(scores: Sequence[Any], wanted: int) -> dict[str, Any]:
    """The mean of a scope's scores and its deviation; where some seeds have none, how many have one."""
    values = [score.value for score in scores if score.value is not None]
    complete = len(values) == wanted
    reasons = {score.reason for score in scores}
    reason = (_OTHER if _OTHER in reasons else 0) if complete else _SOME if values else max(reasons)
    return {
        "value": fmean(values) if complete else None,
        "low": None,
        "high": None,
        "reason": reason,
        "deviation": stdev(values) if complete else None,
        "seeds": len(values),
        "trained_on": max(
            (score.trained_on for score in scores if score.trained_on is not None), default=None
        ),
    }


def _group_result(slug: str, entry: int, results: Sequence[Any], members: Sequence[Any]) -> dict[str, Any]:
    """The result of a task over all seeds, with a document like a record's that names those of the seeds."""
    values = [result.value for result in results if result.value is not None and result.status == "done"]
    complete = len(values) == len(members)
    newest = max(results, key=lambda one: one.written or "")
    seeds = {member.id: json.loads(member.lineage)["seed"] for member in members}
    documents = [json.loads(result.document) for result in results]
    document = {
        name: value
        for name, value in documents[0].items()
        if name not in ("key", "digest", "examples", "run")
    }
    document["lineage"] = _shared_lineage([one["lineage"] for one in documents])
    for part, own in (
        ("identity", ("artifact",)),
        ("model", ("artifact", "weights")),
        ("lineage", ("seed",)),
    ):
        document[part] = {name: value for name, value in document[part].items() if name not in own}
    document |= {
        "training": {},
        "main_score": fmean(values) if complete else None,
        "scores": _mean_of([one["scores"] for one in documents]) if complete else {},
        "seeds": [
            {"seed": seeds[r.entry], "result": r.id, "key": r.key, "status": r.status, "main_score": r.value}
            for r in results
        ],
        "error": None,
    }
    return {
        **newest._mapping,
        "id": permanent(slug, newest.task),
        "entry": entry,
        "status": "done" if complete else "part",
        "value": document["main_score"],
        "data": newest.data if len({result.data for result in results}) == 1 else "",
        "key": None,
        "deviation": stdev(values) if complete else None,
        "seeds": len(values),
        "document": json.dumps(document),
    }


def _mean_of(values: Sequence[Any]) -> Any:
    """The means of numbers in documents of one form; None where one of them has something else."""
    if all(isinstance(value, Mapping) for value in values):
        shared = [name for name in values[0] if all(name in value for value in values)]
        return {name: _mean_of([value[name] for value in values]) for name in shared}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return fmean(values) if numbers else None


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
