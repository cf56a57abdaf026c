"""A suite as arrays: entries x columns, why cells are missing, both means, and ranks with ties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.scores import Untouched, column_chose, shown_only
from harness.types import Suite
from leaderboard.data.entries import Trust
from leaderboard.data.queries import Entry
from leaderboard.data.suites import REASONS, SiteSuite
from leaderboard.web.tables import Cell

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

LEVEL = 0.95
"""Of the intervals that make ties."""

TRUST: tuple[Trust, ...] = ("measured", "commit", "other", "external", "none", "reported")
"""From the best known model to the least known."""

CELL, NUMBERS = 400, 60
"""Bytes of a cell that is drawn and kept, and of its numbers alone."""


def knownness(entry: Entry) -> tuple[bool, int, int, str]:
    """What puts entries of one model in order: seeds after what stands for them, trust, tasks, the newest."""
    return (not entry.member, -TRUST.index(entry.trust), entry.tasks, entry.newest or "")


OTHER = REASONS.index("other")
NONE = REASONS.index("none")


@dataclass(frozen=True, kw_only=True)
class Means:
    """One mean of every entry: (entries,) each.

    `count` of `expected` columns (or types) count; the value is over those, NaN where there are none.
    `deviations` are standard deviations over the seeds of a training, NaN for what has no seeds.
    """

    over: str
    values: Floats
    count: Ints
    expected: int
    deviations: Floats

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which entries have all that is wanted."""
        return np.asarray((self.count == self.expected) & (self.expected > 0))


@dataclass(frozen=True, kw_only=True)
class SuiteMeans:
    """Every mean of a suite: over its columns, over its types, and within each type."""

    over_tasks: Means
    over_types: Means
    by_type: Mapping[str, Means]


@dataclass(frozen=True, kw_only=True)
class UntouchedMeans(SuiteMeans):
    """The means over the columns that chose no model of some rows; `part` says which columns did."""

    part: Untouched


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Ranks of the entries that have every column; 0 for others.

    Attributes:
        place: 1 for the first; entries that cannot be told apart share one.
        borda: Points: for each column, the number of entries that are worse, ties half.
        mean_rank: The mean of an entry's ranks in the columns; NaN for others.
    """

    place: Ints
    borda: Floats
    mean_rank: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteScores:
    """A suite under one convention.

    Attributes:
        site_suite: The suite.
        convention: The convention's name; empty for the main score.
        entries: One for each row.
        values: (entries, columns), shares of 1; NaN where nothing is known.
        low: Likewise, of the 95 % interval.
        high: Likewise.
        reasons: (entries, columns), places in REASONS.
        results: (entries, columns), the result that a cell leads to; 0 for none or several.
        counted: (entries, columns), whether a value counts in means.
        deviations: (entries, columns), standard deviations over seeds; NaN for what has none.
        seeds: (entries, columns), of entries over several seeds, how many of these have a score.
        trained_on: (entries, columns), how many texts of the column's tasks are in the training data.
        by_type: The means within each type.
        over_tasks: The mean over columns.
        over_types: The mean of the types' means.
        averages: What else is known of a row's means: the interval of a trained one, or what a paper
            prints (leaderboard.data.paper_rows).
        by_seed: The values of each seed, (seeds, columns), by the rows that stand for several.
        pinned: Whether only scores on the pinned revisions of the data count.
        drawn: Cells and their HTML by column and row: a page with another order draws none anew.
    """

    site_suite: SiteSuite
    convention: str
    entries: Sequence[Entry]
    values: Floats
    low: Floats
    high: Floats
    reasons: NDArray[np.uint8]
    results: Ints
    counted: NDArray[np.bool_]
    deviations: Floats
    seeds: Ints
    trained_on: Ints
    by_type: Mapping[str, Means]
    over_tasks: Means
    over_types: Means
    averages: Mapping[int, Mapping[str, Any]]
    by_seed: Mapping[int, Floats] = field(default_factory=dict)
    pinned: bool = False
    drawn: dict[str, dict[int, tuple[Cell, str]]] = field(default_factory=dict)
    _ranks: dict[tuple[str, str], Ranks] = field(default_factory=dict)

    def mean(self, over: str) -> Means:
        """The mean over "tasks" or "types"."""
        return self.over_types if over == "types" else self.over_tasks

    @property
    def keeps_cells(self) -> bool:
        """Whether drawn cells are kept: of what most readers ask for."""
        return self.site_suite.main

    @property
    def size(self) -> int:
        """Bytes that it takes, by estimate, with all its cells drawn where these are kept."""
        cells = len(self.entries) * (len(self.site_suite.suite.columns) + len(self.by_type) + 8)
        return cells * (CELL if self.keeps_cells else NUMBERS)

    @cached_property
    def first(self) -> NDArray[np.bool_]:
        """Which row stands for its model."""
        found = np.zeros(len(self.entries), bool)
        found[self.one_for_each_model(range(len(self.entries)))] = True
        return found

    def one_for_each_model(self, rows: Iterable[int], count: Ints | None = None) -> list[int]:
        """Of some rows the one of each model with the most columns, then the best known revision.

        A paper's row stands for itself. `count` has the columns of each row, (entries,); None for
        all columns of the suite.
        """
        counts = self.over_tasks.count if count is None else count

        def weight(row: int) -> tuple[Any, ...]:
            return (int(counts[row]), *knownness(self.entries[row]))

        best: dict[str, int] = {}
        for row in rows:
            entry = self.entries[row]
            name = entry.slug if entry.origin == "reported" else entry.model_slug
            if name not in best or weight(row) > weight(best[name]):
                best[name] = row
        return sorted(best.values())

    @cached_property
    def zero_shot(self) -> Floats:
        """The share of the columns that each model was not trained on, by its makers' account.

        NaN where they say nothing; (entries,).
        """
        columns = self.site_suite.suite.columns
        tasks = [[column.name, *(task.name for task in column.tasks)] for column in columns]
        found = np.full(len(self.entries), np.nan)
        for row, entry in enumerate(self.entries):
            if entry.trained_on is not None:
                seen = sum(not entry.trained_on.isdisjoint(names) for names in tasks)
                found[row] = 1 - seen / len(tasks)
        return found

    def ranks(self, over: str, each: str) -> Ranks:
        """Ranks by the mean over "tasks" or "types", among one row for each "model" or all rows ("entry")."""
        key = (over, each)
        if key not in self._ranks:
            averages, weights = ({}, _weights(self.site_suite)) if over == "types" else (self.averages, None)
            ranked = self._ranked(self.over_tasks, each)
            self._ranks[key] = rank(self.values, self.mean(over).values, ranked, averages, weights)
        return self._ranks[key]

    def untouched_ranks(self, untouched: UntouchedMeans, each: str) -> Ranks:
        """Ranks by the mean over the untouched columns, which are the same for every row."""
        own = self.values[:, _averaged(untouched.part.suite)]
        means = untouched.over_tasks
        return rank(own, means.values, self._ranked(means, each), {})

    def _ranked(self, means: Means, each: str) -> NDArray[np.bool_]:
        measured = np.array([entry.origin != "reported" for entry in self.entries], bool)
        kept: NDArray[np.bool_] = means.complete & measured
        return kept & self.first if each == "model" else kept

    @cached_property
    def selected(self) -> NDArray[np.bool_]:
        """Which columns chose each model, or one of its parents, among several; (entries, columns)."""
        columns = self.site_suite.suite.columns
        found = np.zeros((len(self.entries), len(columns)), bool)
        for row, entry in enumerate(self.entries):
            if entry.lineage and entry.lineage.selections:
                found[row] = [column_chose(column, entry.lineage) for column in columns]
        return found

    def chose(self, row: int, kind: str = "") -> list[str]:
        """The columns in the means (or in that of a type) that chose a row's model."""
        columns, averaged = self.site_suite.suite.columns, _averaged(self.site_suite.suite)
        own = [columns[at] for at in averaged if self.selected[row, at]]
        return [column.name for column in own if kind in ("", column.type)]

    def untouched(self, rows: Iterable[int]) -> UntouchedMeans | None:
        """The means over the columns that chose no model of some rows; None where none of them did.

        They are of every entry, and over the same columns for all; also None where every column chose.
        """
        chosen = [row for row in rows if self.selected[row].any()]
        part = Untouched.of(self.site_suite.suite, [self.entries[row].lineage for row in chosen])
        if part is None or not part.count:
            return None
        means = _suite_means(part.suite, self.values, self.counted, {}, self.by_seed)
        return UntouchedMeans(
            part=part, over_tasks=means.over_tasks, over_types=means.over_types, by_type=means.by_type
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """What is known of every entry and scope, before columns are made of them: (entries, scopes).

    `by_seed` are the values of each seed, (seeds, scopes), by the rows that stand for several.
    """

    values: Floats
    low: Floats
    high: Floats
    reasons: NDArray[np.uint8]
    results: Ints
    seeds: Ints
    trained_on: Ints
    by_seed: Mapping[int, Floats] = field(default_factory=dict)


def seed_values(values: Sequence[Mapping[int, float | None]], column: Mapping[int, int]) -> Floats:
    """The values of seeds by scope as an array, (seeds, scopes); NaN where there is none."""
    found = np.full((len(values), len(column)), np.nan)
    for at, own in enumerate(values):
        for scope, value in own.items():
            if value is not None and scope in column:
                found[at, column[scope]] = value
    return found


def suite_scores(
    site_suite: SiteSuite,
    convention: str,
    entries: Sequence[Entry],
    cells: Cells,
    columns: Sequence[Sequence[int]],
    averages: Mapping[int, Mapping[str, Any]],
    *,
    pinned: bool = False,
) -> SuiteScores:
    """Put a suite together.

    Args:
        site_suite: The suite.
        convention: The convention's name.
        entries: One for each row.
        cells: By scope.
        columns: The scopes of each column, as places in `cells`.
        averages: By row.
        pinned: Whether only scores on the pinned revisions of the data count.
    """
    shape = (len(entries), len(columns))
    values, low, high = (np.full(shape, np.nan) for _ in range(3))
    reasons, results = np.full(shape, NONE, np.uint8), np.zeros(shape, np.int64)
    seeds, trained_on = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for place, scopes in enumerate(columns):
        if scopes:
            chosen = list(scopes)
            seeds[:, place] = cells.seeds[:, chosen].min(axis=1)
            trained_on[:, place] = cells.trained_on[:, chosen].sum(axis=1)
            values[:, place] = cells.values[:, chosen].mean(axis=1)
            codes = cells.reasons[:, chosen]
            worst = np.where(codes == OTHER, 0, codes).max(axis=1)  # "other" has a number, the rest have none
            reasons[:, place] = np.where(worst > 0, worst, codes.max(axis=1))
        if len(scopes) > 1:  # some of several tasks are missing: part of the column
            some = (codes != NONE).any(axis=1) & (codes == NONE).any(axis=1)
            reasons[some, place] = REASONS.index("part")
        if len(scopes) == 1:
            low[:, place], high[:, place] = cells.low[:, scopes[0]], cells.high[:, scopes[0]]
            results[:, place] = cells.results[:, scopes[0]]
    _lay_printed(site_suite, averages, values, reasons)
    counted = ((reasons == 0) | ((reasons == OTHER) & (not pinned))) & np.isfinite(values)
    by_seed = {row: _columns_of(of, columns) for row, of in cells.by_seed.items()}
    deviations = np.full(shape, np.nan)
    for row, own in by_seed.items():
        deviations[row] = np.where(counted[row], own.std(axis=0, ddof=1), np.nan)
    means = _suite_means(site_suite.suite, values, counted, averages, by_seed)
    return SuiteScores(
        site_suite=site_suite, convention=convention, entries=entries, values=values, low=low, high=high,
        reasons=reasons, results=results, counted=counted, deviations=deviations, seeds=seeds,
        trained_on=trained_on,
        by_type=means.by_type, over_tasks=means.over_tasks, over_types=means.over_types, averages=averages,
        by_seed=by_seed, pinned=pinned,
    )  # fmt: skip


def _suite_means(
    suite: Suite,
    values: Floats,
    counted: NDArray[np.bool_],
    averages: Mapping[int, Mapping[str, Any]],
    by_seed: Mapping[int, Floats],
) -> SuiteMeans:
    """The means of every row, of those that a paper prints as printed, with deviations over seeds."""
    averaged = _averaged(suite)
    by_type = _by_type(suite, averaged, values, counted)
    over_tasks = _mean("tasks", values[:, averaged], counted[:, averaged])
    _lay_printed_means(averages, by_type, over_tasks)
    over_types = _over_types(by_type, len(values))
    for row, own in by_seed.items():
        means = [over_tasks, over_types, *by_type.values()]
        _lay_deviations(row, own, counted[[row] * len(own)], suite, means)
    return SuiteMeans(over_tasks=over_tasks, over_types=over_types, by_type=by_type)


def _columns_of(values: Floats, columns: Sequence[Sequence[int]]) -> Floats:
    """The columns of values by scope: (rows, columns)."""
    found = [
        values[:, list(scopes)].mean(axis=1) if scopes else np.full(len(values), np.nan) for scopes in columns
    ]
    return np.array(found).reshape(len(columns), len(values)).T


def _lay_deviations(
    row: int,
    values: Floats,
    counted: NDArray[np.bool_],
    suite: Suite,
    means: Sequence[Means],
) -> None:
    """Put in the deviations of a row's means, from the columns of each of its seeds."""
    averaged = _averaged(suite)
    by_type = _by_type(suite, averaged, values, counted)
    own = [_mean("tasks", values[:, averaged], counted[:, averaged]), _over_types(by_type, len(values))]
    for mean, of in zip(means, [*own, *by_type.values()], strict=True):
        mean.deviations[row] = of.values.std(ddof=1)


def _lay_printed(
    site_suite: SiteSuite,
    averages: Mapping[int, Mapping[str, Any]],
    values: Floats,
    reasons: NDArray[np.uint8],
) -> None:
    """Put in what papers print of single columns."""
    place = {column.name: at for at, column in enumerate(site_suite.suite.columns)}
    for row, document in averages.items():
        for name, value in document.get("columns", {}).items():
            values[row, place[name]], reasons[row, place[name]] = value, 0


def _lay_printed_means(
    averages: Mapping[int, Mapping[str, Any]], by_type: Mapping[str, Means], over_tasks: Means
) -> None:
    """Put in the means that papers print of types, and the mean over tasks that follows from them."""
    for row, document in averages.items():
        for kind, value in document.get("types", {}).items():
            by_type[kind].values[row], by_type[kind].count[row] = value, by_type[kind].expected
        if document.get("over_tasks") is not None:
            over_tasks.values[row], over_tasks.count[row] = document["over_tasks"], over_tasks.expected


def _mean(over: str, values: Floats, counted: NDArray[np.bool_]) -> Means:
    count = counted.sum(axis=1)
    sums = np.where(counted, values, 0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        values_of = sums / count
    return Means(
        over=over, values=values_of, count=count, expected=values.shape[1],
        deviations=np.full(len(values_of), np.nan),
    )  # fmt: skip


def _averaged(suite: Suite) -> list[int]:
    """The places of the columns that the means are over."""
    apart = shown_only(suite)
    return [place for place, column in enumerate(suite.columns) if column.name not in apart]


def _by_type(
    suite: Suite, averaged: Sequence[int], values: Floats, counted: NDArray[np.bool_]
) -> dict[str, Means]:
    types = {place: suite.columns[place].type for place in averaged}
    return {
        kind: _mean(kind, values[:, at], counted[:, at])
        for kind in dict.fromkeys(types.values())
        for at in [[place for place, other in types.items() if other == kind]]
    }


def _over_types(by_type: Mapping[str, Means], entries: int) -> Means:
    """The mean of the types' means; a type counts only where all its columns do."""
    shape = (len(by_type), entries)
    values = np.array([means.values for means in by_type.values()]).reshape(shape).T
    whole = np.array([means.complete for means in by_type.values()], bool).reshape(shape).T
    return _mean("types", values, whole)


def _weights(site_suite: SiteSuite) -> Floats:
    """What a column weighs in the mean over types, times the number of columns."""
    types = [column.type for column in site_suite.suite.columns]
    kinds = len(set(types))
    return np.array([len(types) / (kinds * types.count(kind)) for kind in types])


def rank(
    values: Floats,
    means: Floats,
    ranked: NDArray[np.bool_],
    averages: Mapping[int, Mapping[str, Any]],
    weights: Floats | None = None,
) -> Ranks:
    """Ranks of some entries by a mean; each group of ties begins with its best.

    Args:
        values: (entries, columns).
        means: (entries,).
        ranked: (entries,), which are to be ranked: those that have every column.
        averages: What is known of a mean's interval, by row.
        weights: (columns,), what a column weighs in the mean, of mean 1; None for all alike.
    """
    weights = np.ones(values.shape[1]) if weights is None else weights
    place = np.zeros(len(means), np.int64)
    borda, mean_rank = np.zeros(len(means)), np.full(len(means), np.nan)
    rows = np.flatnonzero(ranked)
    rows = rows[np.argsort(-means[rows], kind="stable")]
    leader = -1
    for position, row in enumerate(rows.tolist(), 1):
        if leader < 0 or not tied(
            values[leader], values[row], weights, averages.get(leader), averages.get(row)
        ):
            leader, first = row, position
        place[row] = first
    if len(rows):
        inside = values[rows]
        worse = (inside[:, None, :] > inside[None, :, :]).sum(axis=1)
        same = (inside[:, None, :] == inside[None, :, :]).sum(axis=1) - 1
        borda[rows] = (worse + same / 2).sum(axis=1)
        mean_rank[rows] = (len(rows) - worse - same / 2).mean(axis=1)
    return Ranks(place=place, borda=borda, mean_rank=mean_rank)


def tied(
    first: Floats,
    second: Floats,
    weights: Floats,
    one: Mapping[str, Any] | None = None,
    other: Mapping[str, Any] | None = None,
) -> bool:
    """Whether two models cannot be told apart: 0 lies in the 95 % interval of their difference.

    Where both means have intervals over seeds and examples, these are put together as those of
    independent means. Else the tasks are taken as a sample of such tasks: the paired differences,
    weighted as in the mean, give Student's interval of their mean.

    Args:
        first: (columns,), scores of the one.
        second: (columns,), scores of the other.
        weights: (columns,), of mean 1.
        one: The known interval of the first mean.
        other: The known interval of the second.
    """
    differences = (first - second) * weights
    mean = float(differences.mean())
    bounds = [found["interval"] for found in (one, other) if found and found.get("interval")]
    if len(bounds) == 2:
        return abs(mean) <= float(np.hypot(*[(high - low) / 2 for low, high in bounds]))
    return abs(mean) <= half_width(differences)


def half_width(differences: Floats) -> float:
    """Half of Student's 95 % interval of a mean; infinite for a single value.

    >>> round(half_width(np.array([1.0, 2.0, 3.0])), 3)
    2.484
    """
    from scipy.special import stdtrit

    count = len(differences)
    if count < 2:
        return float("inf")
    quantile = stdtrit(count - 1, (1 + LEVEL) / 2)
    return float(quantile * differences.std(ddof=1) / np.sqrt(count))
