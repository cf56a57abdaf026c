"""Which records of two models are held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.record import Record

Reason = Literal["task", "splits", "number", "data", "settings"]
"""What no record of the other model shares."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """A record that has no counterpart, and what keeps the other model's records of the task apart."""

    record: Record
    of: Literal["first", "second"]
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Records of two models that may be compared, and those that may not."""

    pairs: tuple[tuple[Record, Record], ...]
    alone: tuple[Alone, ...]


def pair(first: Sequence[Record], second: Sequence[Record], *, across_data: bool = False) -> Pairing:
    """Hold records of the same task, splits, subsets, data and settings against each other.

    What is left over then, one record of each model on the same data, is a pair as well: each model
    under settings of its own. Several that are left over are not, for it is open which belongs to
    which. With `across_data` the data need not be the same.
    """
    pairs: list[tuple[Record, Record]] = []
    for group in dict.fromkeys(_group(r, across_data) for r in first):
        mine = [r for r in first if _group(r, across_data) == group]
        theirs = [r for r in second if _group(r, across_data) == group]
        alike = [(x, y) for x in mine for y in theirs if _settings(x) == _settings(y)]
        rest = [r for r in mine if r not in [x for x, _ in alike]]
        others = [r for r in theirs if r not in [y for _, y in alike]]
        pairs += alike
        if len(rest) == len(others) == 1:
            pairs.append((rest[0], others[0]))
    paired = [record for both in pairs for record in both]
    left = [(r, "first", second) for r in first if r not in paired]
    left += [(r, "second", first) for r in second if r not in paired]
    alone = tuple(Alone(record=r, of=of, reason=_reason(r, others)) for r, of, others in left)  # type: ignore[arg-type]
    return Pairing(pairs=tuple(pairs), alone=alone)


def _reason(record: Record, others: Sequence[Record]) -> Reason:
    same = [r for r in others if r.task.name == record.task.name]
    if not same:
        return "task"
    same = [r for r in same if _shape(r) == _shape(record)]
    if not same:
        return "splits"
    same = [r for r in same if _number(r) == _number(record)]
    if not same:
        return "number"
    return "settings" if any(_data(r) == _data(record) for r in same) else "data"


def _group(record: Record, across_data: bool) -> tuple[Any, ...]:
    return (record.task.name, *_shape(record), _number(record), () if across_data else _data(record))


def _number(record: Record) -> tuple[Any, ...]:
    """How the main score came out of raw metrics: two that differ in it are two quantities."""
    identity = record.identity
    of = identity["scoring"] if "recipe" in identity else ""
    return (identity.get("view"), identity.get("kind") == "maximum", of)


def _shape(record: Record) -> tuple[Any, ...]:
    return tuple(record.identity["splits"]), tuple(record.identity["subsets"])


def _data(record: Record) -> tuple[Any, ...]:
    return tuple(sorted(record.identity["data"].items()))


def _settings(record: Record) -> tuple[Any, ...]:
    identity = record.identity
    if "recipe" in identity:
        names = ("recipe", "protocol", "kind", "final_seeds", "fresh_seeds", "scoring")
        start = identity.get("start", {})
        return (*(identity.get(name) for name in names), start.get("from"), start.get("content"))
    return tuple(identity[name] for name in ("encoding", "prompts", "seed", "scoring"))
