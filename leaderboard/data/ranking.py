"""The means of a suite's rows over tasks and over types, and the ranks by them, with ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.core.types import Suite
from harness.results.scores import list_exclusions

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FEWEST = 6
"""Tasks from which on an interval over tasks can say that two models are level."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """One mean of every entry, over those `count` of `expected` columns (or types) that count; else NaN.

    `deviations` are those over the seeds of a training, NaN for what has no seeds.
    """

    over: str
    values: Floats
    count: Ints
    expected: int
    deviations: Floats

    @cached_property
    def complete(self) -> NDArray[np.bool_]:
        """Which entries have all that is wanted."""
        return np.asarray((self.count == self.expected) & (self.expected > 0))


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteMeans:
    """Every mean of a suite: over its columns, over its types, and within each type."""

    over_tasks: Means
    over_types: Means
    by_type: Mapping[str, Means]


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Ranks of the entries that have every column: 0 and NaN for others; those that are level share a place.

    `borda` is for each column the number of entries that are worse, ties half.
    """

    place: Ints
    borda: Floats
    mean_rank: Floats


def compute_suite_means(
    suite: Suite,
    values: Floats,
    counted: NDArray[np.bool_],
    averages: Mapping[int, Mapping[str, Any]],
    by_seed: Mapping[int, Floats],
) -> SuiteMeans:
    """The means of every row, those of papers as printed, with deviations over seeds.

    Args:
        suite: The suite, whose columns have types.
        values: Scores as shares of 1, (rows, columns).
        counted: Which values count, of the same shape.
        averages: By row what a paper prints of its means (leaderboard.data.backbones).
        by_seed: By row the scores of each of its seeds, (seeds, columns).
    """
    averaged = select_mean_columns(suite)
    by_type = _compute_type_means(suite, averaged, values, counted)
    over_tasks = _compute_row_means("tasks", values[:, averaged], counted[:, averaged])
    for row, document in averages.items():
        for kind, value in document.get("types", {}).items():
            by_type[kind].values[row], by_type[kind].count[row] = value, by_type[kind].expected
        if document.get("over_tasks") is not None:
            over_tasks.values[row], over_tasks.count[row] = document["over_tasks"], over_tasks.expected
    over_types = _merge_type_means(by_type, len(values))
    for row, seed_values in by_seed.items():
        # The deviation of a mean needs the mean of each seed: tasks vary together, so their deviations do
        # not add up to it.
        seed_means = compute_suite_means(suite, seed_values, counted[[row] * len(seed_values)], {}, {})
        pairs = [(over_tasks, seed_means.over_tasks), (over_types, seed_means.over_types)]
        for mean, seeds in [*pairs, *((by_type[kind], seed_means.by_type[kind]) for kind in by_type)]:
            mean.deviations[row] = seeds.values.std(ddof=1)
    return SuiteMeans(over_tasks=over_tasks, over_types=over_types, by_type=by_type)


def _compute_row_means(over: str, values: Floats, counted: NDArray[np.bool_]) -> Means:
    count = counted.sum(axis=1)
    sums = np.where(counted, values, 0).sum(axis=1)
    # A row without a single column is 0 / 0: NaN is what it shall have.
    with np.errstate(invalid="ignore"):
        values_of = sums / count
    return Means(
        over=over, values=values_of, count=count, expected=values.shape[1],
        deviations=np.full(len(values_of), np.nan),
    )  # fmt: skip


def select_mean_columns(suite: Suite) -> list[int]:
    """The places of the columns that the means are over."""
    apart = list_exclusions(suite)
    return [place for place, column in enumerate(suite.columns) if column.name not in apart]


def _compute_type_means(
    suite: Suite, averaged: Sequence[int], values: Floats, counted: NDArray[np.bool_]
) -> dict[str, Means]:
    types = {place: suite.columns[place].type for place in averaged}
    return {
        kind: _compute_row_means(kind, values[:, at], counted[:, at])
        for kind in dict.fromkeys(types.values())
        for at in [[place for place, other in types.items() if other == kind]]
    }


def _merge_type_means(by_type: Mapping[str, Means], entries: int) -> Means:
    """The mean of the types' means; a type counts only where all its columns do."""
    shape = (len(by_type), entries)
    values = np.array([means.values for means in by_type.values()]).reshape(shape).T
    complete = np.array([means.complete for means in by_type.values()], bool).reshape(shape).T
    return _compute_row_means("types", values, complete)


def compute_type_weights(suite: Suite) -> Floats:
    """What each of the averaged columns weighs in the mean over types, times their number."""
    types = [suite.columns[place].type for place in select_mean_columns(suite)]
    kinds = len(set(types))
    return np.array([len(types) / (kinds * types.count(kind)) for kind in types])


def rank_entries(
    values: Floats,
    means: Floats,
    ranked: NDArray[np.bool_],
    averages: Mapping[int, Mapping[str, Any]],
    weights: Floats | None = None,
) -> Ranks:
    """Ranks of the `ranked` entries by a mean; each group of ties begins with its best.

    Args:
        values: Scores as shares of 1, (rows, columns).
        means: The mean that ranks, (rows,).
        ranked: Which rows get a rank, (rows,).
        averages: By row what else is known of its mean; `interval` holds the ends.
        weights: What a column weighs in the mean, of mean 1; None for 1 each.
    """
    weights = np.ones(values.shape[1]) if weights is None else weights
    place = np.zeros(len(means), np.int64)
    borda, mean_rank = np.zeros(len(means)), np.full(len(means), np.nan)
    rows = np.flatnonzero(ranked)
    # Stable, so that equal means keep the order of the rows.
    rows = rows[np.argsort(-means[rows], kind="stable")]
    leader = -1
    # Compared with the first of the group, not with the neighbour: being level is not transitive, and a
    # chain of neighbours could join the best with the worst.
    for position, row in enumerate(rows.tolist(), 1):
        if leader < 0 or not is_level_pair(
            values[leader], values[row], weights, averages.get(leader), averages.get(row)
        ):
            leader, first = row, position
        place[row] = first
    if len(rows):
        inside = values[rows]
        # By order, not pair by pair: 8,000 models have 64 million pairs.
        ordered = np.sort(inside, axis=0)
        worse, upto = (
            np.column_stack(
                [np.searchsorted(*pair, side=side) for pair in zip(ordered.T, inside.T, strict=True)]
            )
            for side in ("left", "right")
        )
        # - 1, as each row equals itself.
        same = upto - worse - 1
        borda[rows] = (worse + same / 2).sum(axis=1)
        mean_rank[rows] = (len(rows) - worse - same / 2).mean(axis=1)
    return Ranks(place=place, borda=borda, mean_rank=mean_rank)


def is_level_pair(
    first: Floats,
    second: Floats,
    weights: Floats,
    first_average: Mapping[str, Any] | None = None,
    second_average: Mapping[str, Any] | None = None,
) -> bool:
    """Whether two models cannot be told apart: 0 lies in the 95 % interval of their difference.

    Where both means have intervals over seeds and examples, these are put together as those of
    independent means. Else the tasks are taken as a sample of such tasks: the paired differences,
    weighted as in the mean, give Student's interval of their mean. Over fewer than `FEWEST` tasks
    only equal means are a tie: by so few that interval would make almost anything level.

    Args:
        first: The scores of one model, (columns,), as shares of 1.
        second: Those of the other, of the same columns.
        weights: What a column weighs in the mean, of mean 1.
        first_average: What is known of the first model's mean; `interval` holds its ends.
        second_average: The same of the second model.
    """
    differences = (first - second) * weights
    mean = float(differences.mean())
    averages = (first_average, second_average)
    bounds = [average["interval"] for average in averages if average and average.get("interval")]
    if len(bounds) == 2:
        return abs(mean) <= float(np.hypot(*[(high - low) / 2 for low, high in bounds]))
    # 1e-12: means of equal scores differ by the rounding of sums, far below a printed digit.
    return abs(mean) < 1e-12 if len(differences) < FEWEST else abs(mean) <= compute_half_width(differences)


def compute_half_width(differences: Floats) -> float:
    """Half of Student's 95 % interval of a mean; infinite for a single value.

    >>> round(compute_half_width(np.array([1.0, 2.0, 3.0])), 3)
    2.484
    """
    # Not at the top: scipy loads slowly, and only ranks need it.
    from scipy.special import stdtrit

    count = len(differences)
    if count < 2:
        return float("inf")
    return float(stdtrit(count - 1, 0.975) * differences.std(ddof=1) / np.sqrt(count))
