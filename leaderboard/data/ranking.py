"""The means of a suite's rows over tasks and over types, and the ranks by them, with ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.core.groups import group_by
from harness.core.types import Suite
from harness.results.scores import list_exclusions

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FEWEST = 6
"""Tasks from which on an interval over tasks can say that two models are level."""

ROUNDING = 1e-12
"""How far means of equal scores can differ by the rounding of sums: far below a printed digit."""


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

    `borda` is the number of entries that are worse, ties half, summed over the columns with their weights.
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
    weights: Sequence[float] = (),
) -> SuiteMeans:
    """The means of every row, those of papers as printed, with deviations over seeds.

    Args:
        suite: The suite, whose columns have types.
        values: Scores as shares of 1, (rows, columns).
        counted: Which values count, of the same shape.
        averages: By row what a paper prints of its means (leaderboard.data.backbones).
        by_seed: By row the scores of each of its seeds, (seeds, columns).
        weights: What each column weighs, (columns,); empty for 1 each.
    """
    averaged, column_weights = select_mean_columns(suite), np.array(weights or [1.0] * len(suite.columns))
    places = group_by(averaged, lambda place: suite.columns[place].type)

    def compute_means(over: str, at: Sequence[int]) -> Means:
        return _compute_row_means(over, values[:, at], counted[:, at], column_weights[at])

    by_type = {kind: compute_means(kind, at) for kind, at in places.items()}
    over_tasks = compute_means("tasks", averaged)
    for row, document in averages.items():
        for kind, value in document.get("types", {}).items():
            by_type[kind].values[row], by_type[kind].count[row] = value, by_type[kind].expected
        if document.get("over_tasks") is not None:
            over_tasks.values[row], over_tasks.count[row] = document["over_tasks"], over_tasks.expected
    type_weights = [column_weights[at].mean() for at in places.values()]
    type_values = np.array([means.values for means in by_type.values()]).reshape(len(by_type), len(values))
    # A type counts only where all its columns do.
    complete = np.array([means.complete for means in by_type.values()], bool).reshape(type_values.shape)
    over_types = _compute_row_means("types", type_values.T, complete.T, np.array(type_weights))
    for row, seed_values in by_seed.items():
        # The deviation of a mean needs the mean of each seed: tasks vary together, so their deviations do
        # not add up to it.
        all_counted = counted[[row] * len(seed_values)]
        seed_means = compute_suite_means(suite, seed_values, all_counted, {}, {}, weights)
        pairs = [(over_tasks, seed_means.over_tasks), (over_types, seed_means.over_types)]
        for mean, seeds in [*pairs, *((by_type[kind], seed_means.by_type[kind]) for kind in by_type)]:
            mean.deviations[row] = seeds.values.std(ddof=1)
    return SuiteMeans(over_tasks=over_tasks, over_types=over_types, by_type=by_type)


def _compute_row_means(over: str, values: Floats, counted: NDArray[np.bool_], weights: Floats) -> Means:
    count = counted.sum(axis=1)
    sums = np.where(counted, values * weights, 0).sum(axis=1)
    # A row without a single column is 0 / 0: NaN is what it shall have.
    with np.errstate(invalid="ignore"):
        values_of = sums / (counted * weights).sum(axis=1)
    return Means(
        over=over, values=values_of, count=count, expected=values.shape[1],
        deviations=np.full(len(values_of), np.nan),
    )  # fmt: skip


def select_mean_columns(suite: Suite) -> list[int]:
    """The places of the columns that the means are over."""
    apart = list_exclusions(suite)
    return [place for place, column in enumerate(suite.columns) if column.name not in apart]


def choose_shared_columns(
    counted: NDArray[np.bool_], least: int | None, select_rows: Callable[[Sequence[int]], NDArray[np.bool_]]
) -> tuple[list[int], list[tuple[int, int]]]:
    """The columns of the largest complete table of some rows, or of the one with at least so many rows.

    Columns are tried in the order of how many rows have them; those that all rows of a table have belong
    to it. Finding the largest of all tables is NP-hard (Peeters, 2003, on bicliques), and this order is
    one that a reader can follow.

    Args:
        counted: Which scores count, (rows, columns).
        least: The rows that the table shall have; None for the most scores, rows times columns.
        select_rows: Which rows may be in a table of some columns, (rows,).

    Returns:
        The places of the columns, and (columns, rows) of every table to choose from, the widest first: of
        those with as many columns or more each has the most rows.
    """
    order = np.argsort(-counted.sum(axis=0), kind="stable")
    complete = np.logical_and.accumulate(counted[:, order], axis=1)
    columns_by_count: dict[int, list[int]] = {}
    tables: dict[int, list[int]] = {}
    for count, rows in list(zip(complete.sum(axis=0).tolist(), complete.T, strict=True))[::-1]:
        if count and count not in columns_by_count:
            columns_by_count[count] = np.flatnonzero(counted[rows].all(axis=0)).tolist()
            selected = int((rows & select_rows(columns_by_count[count])).sum())
            if selected > max(tables, default=0):
                tables[selected] = columns_by_count[count]
    sizes = [(len(columns), count) for count, columns in tables.items()]
    if not sizes:
        return [], []
    most = max(tables)
    best = max(sizes, key=lambda size: size[0] * size[1])[1]
    return tables[best if least is None else min(c for c in tables if c >= min(least, most))], sizes


def rank_entries(
    values: Floats,
    means: Floats,
    ranked: NDArray[np.bool_],
    averages: Mapping[int, Mapping[str, Any]],
    weights: Floats | None = None,
    points: Floats | None = None,
) -> Ranks:
    """Ranks of the `ranked` entries by a mean; each group of ties begins with its best.

    Args:
        values: Scores as shares of 1, (rows, columns).
        means: The mean that ranks, (rows,).
        ranked: Which rows get a rank, (rows,).
        averages: By row what else is known of its mean; `interval` holds the ends.
        weights: What a column weighs in the mean, of mean 1; None for 1 each.
        points: The same in Borda points.
    """
    weights, points = (np.ones(values.shape[1]) if one is None else one for one in (weights, points))
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
        # Scores that differ by the rounding of sums are level.
        inside = np.round(values[rows], 9)
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
        borda[rows] = (worse + same / 2) @ points
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
    independent means. Else it is that of the paired differences (compute_half_widths). Over fewer than
    `FEWEST` tasks only equal means are a tie: by so few that interval would make almost anything level.

    Args:
        first: The scores of one model, (columns,), as shares of 1.
        second: Those of the other, of the same columns.
        weights: What a column weighs in the mean, of mean 1.
        first_average: What is known of the first model's mean; `interval` holds its ends.
        second_average: The same of the second model.
    """
    differences = first - second
    mean = float(differences @ weights / weights.sum())
    averages = (first_average, second_average)
    bounds = [average["interval"] for average in averages if average and average.get("interval")]
    if len(bounds) == 2:
        return abs(mean) <= float(np.hypot(*[(high - low) / 2 for low, high in bounds]))
    half = float(compute_half_widths(differences, weights)) if len(differences) >= FEWEST else 0.0
    return abs(mean) <= half + ROUNDING


def compute_half_widths(values: Floats, weights: Floats) -> Floats:
    """Half of the 95 % interval of weighted means, the tasks being a sample of such tasks; NaN of NaN.

    Tasks are taken as independent of their types. If types move scores, the interval is too wide for other
    tasks of the same types, and too narrow for tasks of other types (benchmarks/rank_intervals.py).

    With shares v of the weights the variance of the mean is Σ v² r² / (1 - 2 v + Σ v²), over residuals r
    about the weighted mean: of scores with variance 1 the residual has the variance 1 - 2 v + Σ v², so that
    each term is v² as it should be (HC2: MacKinnon and White, 1985, "Some heteroskedasticity-consistent
    covariance matrix estimators"). Student's t has the degrees of freedom of the effective number of tasks,
    1 / Σ v² (Kish, 1965, "Survey Sampling"), less one. With equal weights this is Student's interval.

    Args:
        values: Scores or differences, (..., columns) of at least two columns.
        weights: What a column weighs, (columns,).

    >>> compute_half_widths(np.array([1.0, 2.0, 3.0]), np.ones(3)).round(3).tolist()
    2.484
    """
    residuals = values - (values @ weights / weights.sum())[..., None]
    return np.asarray(np.linalg.norm(residuals * _compute_half_factors(weights), axis=-1))


def _compute_half_factors(weights: Floats) -> Floats:
    """What residuals are times, so that the root of their squares' sum is half of the interval."""
    # Not at the top: scipy loads slowly, and only ranks need it.
    from scipy.special import stdtrit

    shares = weights / weights.sum()
    size = shares @ shares
    # At least one degree: where a single task has nearly all the weight, there is no more than a guess.
    factor = stdtrit(max(1.0, 1 / size - 1), 0.975)
    return np.asarray(factor * shares / np.sqrt(1 - 2 * shares + size))


def bound_ranks(values: Floats, weights: Floats) -> Ints:
    """The best and the worst rank of each row, (rows, 2), that its tasks leave open.

    A row stands behind those that are better beyond the 95 % interval of their difference, and before those
    that are worse beyond it: marginal intervals of ranks (Mogstad, Romano, Shaikh and Wilhelm, 2024,
    "Inference for Ranks"), without a correction for the number of pairs. Fewer than `FEWEST` tasks leave
    every rank open.

    Args:
        values: Scores of the ranked rows, (rows, columns).
        weights: What a column weighs in the mean, of mean 1.
    """
    rows, count = values.shape
    bounds = np.tile([1, rows], (rows, 1))
    if not rows or count < FEWEST:
        return bounds
    means = values @ weights / weights.sum()
    scaled = (values - means[:, None]) * _compute_half_factors(weights)
    squares = (scaled**2).sum(axis=1)
    # Row by row: the table of all pairs of 8,000 models would take 512 MB.
    for row in range(rows):
        halves = np.sqrt(np.maximum(squares + squares[row] - 2 * scaled @ scaled[row], 0)) + ROUNDING
        gaps = means - means[row]
        bounds[row] += (gaps > halves).sum(), -(-gaps > halves).sum()
    return bounds
