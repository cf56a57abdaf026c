"""Means over a suite: over tasks and over types, always both, with how many columns are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.types import Column, Suite


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean and what it is over: `there` of `wanted` columns (or types) had a score.

    `value` is the mean of those that are there, None if there are none.
    """

    over: str
    value: float | None
    there: int
    wanted: int

    @property
    def complete(self) -> bool:
        """Whether every column was there; a mean that is not is never ranked."""
        return self.there == self.wanted


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """A suite's columns and its two means."""

    columns: Mapping[str, float | None]
    by_type: Mapping[str, Mean]
    over_tasks: Mean
    over_types: Mean


def aggregate(suite: Suite, scores: Mapping[str, float]) -> Aggregates:
    """The two means of a suite from the main scores of its tasks.

    A column of several tasks (CQADupstack) is their mean and counts once; it is there only if
    all of them are. The mean over types is that of the types' own means, and a type is there,
    and counts, only if all its columns are.
    """
    columns = {column.name: _column(column, scores) for column in suite.columns}
    types = dict.fromkeys(column.type for column in suite.columns)
    by_type = {kind: mean(kind, [columns[c.name] for c in suite.columns if c.type == kind]) for kind in types}
    complete = [one.value if one.complete else None for one in by_type.values()]
    return Aggregates(
        columns=columns,
        by_type=by_type,
        over_tasks=mean("tasks", list(columns.values())),
        over_types=mean("types", complete),
    )


def _column(column: Column, scores: Mapping[str, float]) -> float | None:
    values = [scores.get(task.name) for task in column.tasks]
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def mean(over: str, values: Sequence[float | None]) -> Mean:
    """The plain mean of those values that are there."""
    there = [value for value in values if value is not None]
    value = sum(there) / len(there) if there else None
    return Mean(over=over, value=value, there=len(there), wanted=len(values))
