"""Why compared entries may differ: how they were identified and how they came about, field by field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from harness.differences import Comparable
from leaderboard.database import RESULTS
from leaderboard.grid import OTHER
from leaderboard.pages.compare.chosen import labels
from leaderboard.pages.compare.common import Common
from leaderboard.queries import Entry, Queries
from leaderboard.tables import Cell, Column, Row, Table

LONG = 160
"""Characters of a value that a page prints, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A field that differs: each entry's values, and on how many of the tasks they differ."""

    name: str
    values: Sequence[Sequence[Any]]
    tasks: int


@dataclass(kw_only=True)
class _Found:
    """Values of a field, by entry, while they are collected."""

    values: list[list[Any]]
    tasks: int = 0


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What differs between measured entries: the fields, between whom, and over how many tasks."""

    entries: Sequence[Entry] = ()
    fields: Sequence[Field] = field(default_factory=list)
    tasks: int = 0


def measured_differences(queries: Queries, common: Common) -> Differences:
    """Fields of identity and provenance in which measured entries differ on tasks that all have."""
    rows = [row for row, entry in enumerate(common.entries) if entry.origin == "measured"]
    if len(rows) < 2:
        return Differences()
    documents = _documents(queries, common, rows)
    tasks = [
        [Comparable(identity=d["identity"]).fields(d["provenance"]) for d in (documents[one] for one in ids)]
        for at in common.columns
        for ids in [[int(common.grid.results[row, at]) for row in rows]]
        if all(one in documents for one in ids)
    ]
    return Differences(
        entries=[common.entries[row] for row in rows], fields=differing(tasks), tasks=len(tasks)
    )


def differing(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> list[Field]:
    """The fields in which several differ on some task.

    Args:
        tasks: For each task, each one's fields.

    >>> [(f.name, f.values, f.tasks) for f in differing([[{"a": 1, "b": 2}, {"a": 1, "b": 3}]])]
    [('b', [[2], [3]], 1)]
    """
    found: dict[str, _Found] = {}
    for some in tasks:
        for name in sorted({name for fields in some for name in fields}):
            values = [fields.get(name) for fields in some]
            if all(value == values[0] for value in values):
                continue
            there = found.setdefault(name, _Found(values=[[] for _ in some]))
            there.tasks += 1
            for known, value in zip(there.values, values, strict=True):
                if value not in known:
                    known.append(value)
    return [Field(name=name, values=one.values, tasks=one.tasks) for name, one in sorted(found.items())]


def _documents(queries: Queries, common: Common, rows: Sequence[int]) -> dict[int, Any]:
    ids = [int(n) for n in common.grid.results[rows][:, common.columns].ravel() if n]
    wanted = select(RESULTS.c.id, RESULTS.c.document).where(RESULTS.c.id.in_(ids))
    with queries.reading() as connection:
        return {number: json.loads(text) for number, text in connection.execute(wanted)}


def differences_table(found: Differences, letters: Mapping[int, str]) -> Table:
    """The fields of measured entries, which differ."""
    return Table(
        name="differences",
        caption="Measured entries: fields that differ on tasks that all have",
        columns=[
            Column(key="field", label="Field", sticky=True),
            *(Column(key=f"e{at}", label=letters[entry.id]) for at, entry in enumerate(found.entries)),
            Column(key="tasks", label="Tasks", numeric=True, note="On how many of the tasks it differs."),
        ],
        rows=[
            Row(
                cells=[
                    Cell(text=one.name, value=one.name),
                    *(_values_cell(values) for values in one.values),
                    Cell(text=f"{one.tasks} of {found.tasks}", value=one.tasks),
                ]
            )
            for one in found.fields
        ],
        notes=["Times, rates and memory are left out: they are measurements, not conditions."],
    )


def _values_cell(values: Sequence[Any]) -> Cell:
    told = "; ".join(_plain(value) for value in values[:3])
    told += f"; and {len(values) - 3} more" if len(values) > 3 else ""
    return Cell(text=_short(told), value="; ".join(_plain(value) for value in values[:20]))


def _plain(value: Any) -> str:
    if value is None:
        return "not there"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    """A value of a table; hashes are cut."""
    text = re.sub(r"\b[0-9a-f]{16,}\b", lambda found: found[0][:12], text)
    return text if len(text) <= LONG else f"{text[:LONG]} …"


def origins_table(queries: Queries, common: Common) -> Table:
    """In what else the entries differ, as far as their sources say it."""
    entries = common.entries
    data = _data(common)
    facts = {entry.id: queries.facts(entry) for entry in entries}
    makes: Sequence[tuple[str, Callable[[Entry], str]]] = (
        ("Origin", lambda entry: entry.origin),
        ("Source", lambda entry: entry.source),
        ("Trust in the revision", lambda entry: entry.trust),
        ("Revision", lambda entry: entry.revision or "not known"),
        ("Treatment", lambda entry: entry.treatment or "the source does not say"),
        ("Output", lambda entry: entry.output),
        ("mteb", lambda entry: _mteb(facts[entry.id])),
        ("Data", lambda entry: data[entry.id]),
    )
    rows = [(name, [make(entry) for entry in entries]) for name, make in makes]
    return Table(
        name="origins",
        caption="Where the numbers come from: what differs",
        columns=[
            Column(key="field", label="Field", sticky=True),
            *(Column(key=f"s{at}", label=label) for at, label in enumerate(labels(entries))),
        ],
        rows=[
            Row(cells=[Cell(text=name, value=name), *(Cell(text=_short(v), value=v) for v in values)])
            for name, values in rows
            if len(set(values)) > 1
        ],
    )


def _mteb(facts: Mapping[str, Any]) -> str:
    """The version of mteb that scored, where it is known."""
    told = facts.get("mteb_versions") or facts.get("treatment", {}).get("scoring") or "not known"
    return told if isinstance(told, str) else ", ".join(map(str, told))


def _data(common: Common) -> dict[int, str]:
    """For each entry, on how many of the columns that all have its data is the suite's."""
    other = common.grid.reasons == OTHER
    count = len(common.columns)
    return {
        entry.id: f"the suite’s on {count - int(other[row, common.columns].sum())} of {count} columns"
        for row, entry in enumerate(common.entries)
    }
