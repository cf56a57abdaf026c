"""A suite as arrays: entries x columns, why cells are missing, their means, and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.core.types import Suite
from harness.results.scores import Spread, Untouched, is_selection_column, list_small_columns
from leaderboard.data.entries import Entry, compute_precedence
from leaderboard.data.ranking import (
    FEWEST,
    Floats,
    Ints,
    Means,
    Ranks,
    SuiteMeans,
    compute_half_widths,
    compute_suite_means,
    rank_entries,
    select_mean_columns,
)
from leaderboard.data.suites import REASONS, SiteSuite

BYTES = 80
"""Of the numbers of a cell."""

OTHER = REASONS.index("other")
NONE = REASONS.index("none")

CONTRADICTION = 0.0005
"""The difference from which on the mean of parts contradicts the number of the whole: 0.05 points."""

CHANCE_ROOM = 0.01
"""How far above a random answer a score is still at chance level."""

RANDOM, UNFAIR = "mteb/baseline-random-encoder", "p-MRR"
"""mteb's encoder of random vectors, whose scores say what chance gives; and a metric on which 0 is a common,
honest score."""


_UNSHARED = "not all models have it"
"""The reason why a column is outside of the means over those that all models have."""


@dataclass(frozen=True, kw_only=True)
class UntouchedMeans(SuiteMeans):
    """The means over the columns that chose no model of some rows; `part` says which columns did."""

    part: Untouched


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Scores of entries: arrays of (entries, scopes), or of (entries, columns).

    Attributes:
        values: Shares of 1, NaN where nothing is known; `low` and `high` are the 95 % interval.
        reasons: Places in REASONS.
        results: The result that a cell leads to; 0 for none or several.
        seeds: How many seeds have a score.
        trained_on: How many texts of the tasks are in the training data.
        sources: The entry whose own result a cell shows: of several revisions of a model, one.
        by_seed: The values of each seed, (seeds, scopes or columns), by the rows that stand for several.
        data: The revision of the data by row and scope or column, where it is not the pinned one.
    """

    values: Floats
    low: Floats
    high: Floats
    reasons: NDArray[np.uint8]
    results: Ints
    seeds: Ints
    trained_on: Ints
    sources: Ints
    by_seed: Mapping[int, Floats] = field(default_factory=dict)
    data: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @staticmethod
    def from_columns(
        columns: Mapping[str, NDArray[Any]],
        entries: Sequence[int],
        scopes: Sequence[int],
        seeds: Mapping[int, Sequence[int]],
    ) -> Cells:
        """Cells of stored scores.

        Args:
            columns: Columns of stored scores by name, (scores,) each.
            entries: The entries' numbers, one for each row.
            scopes: The scopes' numbers, one for each column of the result.
            seeds: By row, the entries of its seeds.
        """
        # DuckDB gives masked arrays for columns that hold NULL.
        stored = {name: np.ma.filled(values, _EMPTY[name]) for name, values in columns.items()}
        has_entry, row_of = _locate_values(stored["entry"], entries)
        has_scope, place_of = _locate_values(stored["scope"], scopes)
        indices = np.flatnonzero(has_entry & has_scope)
        rows, places = row_of[indices], place_of[indices]
        arrays: dict[str, Any] = {}
        for name, column in _CELLS.items():
            arrays[name] = np.full((len(entries), len(scopes)), _EMPTY[column])
            arrays[name][rows, places] = stored[column][indices]
        cells = zip(rows.tolist(), places.tolist(), stored["data"][indices], strict=True)
        by_seed = {row: Cells.from_columns(stored, some, scopes, {}).values for row, some in seeds.items()}
        arrays["reasons"] = arrays["reasons"].astype(np.uint8)
        data = {(row, place): str(revision) for row, place, revision in cells if revision}
        return Cells(by_seed=by_seed, data=data, **arrays)


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteScores(Cells, SuiteMeans):
    """A suite under one convention: cells by entry and column, and means.

    Attributes:
        counted: Whether a value counts in means.
        deviations: Over seeds.
        averages: What else is known of a row's means: the interval of a trained one, the `spread` of one over
            few examples, or what a paper prints (leaderboard.data.backbones).
        pinned: Whether only scores on the pinned revisions of the data count.
        contradicted: What an import says of the whole of a column, by row and column, where the mean of the
            parts, which counts, is another number.
        chance: What a random answer gets on each column, (columns,): 0 where nothing says it, NaN where it
            says nothing.
        unranked: The rows that are only shown beside those that rank.
    """

    site_suite: SiteSuite
    convention: str
    entries: Sequence[Entry]
    counted: NDArray[np.bool_]
    deviations: Floats
    averages: Mapping[int, Mapping[str, Any]]
    chance: Floats
    pinned: bool = False
    contradicted: Mapping[tuple[int, int], float] = field(default_factory=dict)
    unranked: frozenset[int] = frozenset()
    _ranks: dict[tuple[str, str], Ranks] = field(default_factory=dict)

    def mean(self, over: str) -> Means:
        """The mean over "types", within a type, or else over the tasks."""
        return self.by_type.get(over) or (self.over_types if over == "types" else self.over_tasks)

    @property
    def size(self) -> int:
        """Bytes that it takes, by estimate."""
        return len(self.entries) * (len(self.site_suite.suite.columns) + len(self.by_type) + 8) * BYTES

    @cached_property
    def row_of(self) -> dict[int, int]:
        """The row of each entry, by the entry's number."""
        return {entry.id: row for row, entry in enumerate(self.entries)}

    @cached_property
    def at_chance(self) -> NDArray[np.bool_]:
        """Which values are no better than a random answer, (rows, columns)."""
        is_model = np.array([entry.model != RANDOM for entry in self.entries], bool)
        return np.asarray(is_model[:, None] & (self.values <= self.chance + CHANCE_ROOM))

    @cached_property
    def first(self) -> NDArray[np.bool_]:
        """Which row stands for its model."""
        mask = np.zeros(len(self.entries), bool)
        mask[self.select_best_rows(range(len(self.entries)))] = True
        return mask

    def select_best_rows(self, rows: Iterable[int], count: Ints | None = None) -> list[int]:
        """Of some rows the one of each model with the most columns, then the best known revision.

        A paper's row stands for itself.
        """
        counts = self.over_tasks.count if count is None else count
        best: dict[str, int] = {}
        for row in sorted(
            rows, key=lambda row: (counts[row], *compute_precedence(self.entries[row])), reverse=True
        ):
            entry = self.entries[row]
            best.setdefault(entry.slug if entry.origin == "reported" else entry.model_slug, row)
        return sorted(best.values())

    @cached_property
    def zero_shot(self) -> Floats:
        """The share of the columns that each model was not trained on; NaN where its makers say nothing."""
        return self.measure_zero_shot(range(len(self.site_suite.suite.columns)))

    def measure_zero_shot(self, places: Sequence[int]) -> Floats:
        """The same share of some columns."""
        stated = np.array([entry.trained_on is not None for entry in self.entries], bool)
        return np.where(stated, 1 - self._seen[:, places].sum(axis=1) / max(1, len(places)), np.nan)

    @cached_property
    def _seen(self) -> NDArray[np.bool_]:
        """Which columns each model was trained on, as its makers state; (entries, columns)."""
        columns = self.site_suite.suite.columns
        names = [[column.name, *(task.name for task in column.tasks)] for column in columns]
        mask = np.zeros((len(self.entries), len(columns)), bool)
        for row, entry in enumerate(self.entries):
            if entry.trained_on:
                mask[row] = [not entry.trained_on.isdisjoint(some) for some in names]
        return mask

    def list_seen_columns(self, row: int) -> list[str]:
        """The columns that a row's model was trained on, as its makers state."""
        return [self.site_suite.suite.columns[at].name for at in np.flatnonzero(self._seen[row])]

    def compute_ranks(self, over: str, each: str) -> Ranks:
        """Ranks by the mean over "tasks" or "types", among one row for each "model" or all rows ("entry")."""
        key = (over, each)
        if key not in self._ranks:
            averages = {} if over == "types" else self.averages
            ranked = self._select_rankable(self.over_tasks, each)
            values, weights = self.weigh_columns(over)
            # Borda points count tasks, whichever mean ranks.
            points = self.weigh_columns("tasks")[1]
            means = self.mean(over).values
            self._ranks[key] = rank_entries(values, means, ranked, averages, weights, points)
        return self._ranks[key]

    def weigh_columns(self, over: str) -> tuple[Floats, Floats]:
        """The scores of the averaged columns, and what each weighs in the mean over "tasks" or "types".

        The weights are of mean 1. A type weighs what its columns weigh on average.
        """
        columns, places = self.site_suite.suite.columns, select_mean_columns(self.site_suite.suite)
        shares = np.array(self.site_suite.weights or [1.0] * len(columns))[places]
        if over == "types":
            types = [columns[place].type for place in places]
            shares = shares / [types.count(kind) for kind in types]
        return self.values[:, places], shares / shares.mean() if len(shares) else shares

    def compute_mean_halves(self, over: str) -> tuple[Floats, Floats]:
        """Half of the 95 % intervals of each row's mean over "tasks" or "types".

        Returns:
            That over tasks such as these, and that over the examples of these tasks, (rows,) each; NaN where
            a score or its interval is not known.
        """
        values, weights = self.weigh_columns(over)
        places = select_mean_columns(self.site_suite.suite)
        halves = (self.high - self.low)[:, places] / 2 * weights
        by_examples = np.sqrt((halves**2).sum(axis=1)) / max(1, len(places))
        if len(places) < FEWEST:
            return np.full(len(values), np.nan), by_examples
        return compute_half_widths(np.where(self.counted[:, places], values, np.nan), weights), by_examples

    def narrow(self, rows: Sequence[int], places: Sequence[int], site_suite: SiteSuite) -> SuiteScores:
        """Some rows and columns alone, with means of their own.

        Args:
            rows: The rows, in order.
            places: The columns.
            site_suite: The suite of these columns.
        """
        row_at, column_at = ({number: at for at, number in enumerate(some)} for some in (rows, places))
        arrays = {n: getattr(self, n)[np.ix_(rows, places)] for n in (*_CELLS, "counted", "deviations")}
        by_seed = {row_at[row]: of[:, places] for row, of in self.by_seed.items() if row in row_at}
        marks: dict[str, Any] = {
            name: {(row_at[row], column_at[at]): one for (row, at), one in getattr(self, name).items()
                   if row in row_at and at in column_at}
            for name in ("data", "contradicted")
        }  # fmt: skip
        suite, values, counted = site_suite.suite, arrays["values"], arrays["counted"]
        # What is known of a mean is known of the one over all columns alike.
        is_whole = len(places) == self.values.shape[1] and not site_suite.weights
        averages = {row_at[r]: one for r, one in self.averages.items() if is_whole and r in row_at}
        means = compute_suite_means(suite, values, counted, averages, by_seed, site_suite.weights)
        spreads = _average_spreads(suite, (arrays["high"] - arrays["low"]) / 2, counted)
        averages |= {row: {**averages.get(row, {}), "spread": one} for row, one in spreads.items()}
        return replace(
            self, site_suite=site_suite, entries=[self.entries[row] for row in rows], by_seed=by_seed,
            averages=averages, chance=self.chance[list(places)], _ranks={}, **marks, **vars(means), **arrays,
        )  # fmt: skip

    def rank_untouched(self, untouched: UntouchedMeans, each: str) -> Ranks:
        """Ranks by the mean over the untouched columns, which are the same for every row."""
        column_values = self.values[:, select_mean_columns(untouched.part.suite)]
        means = untouched.over_tasks
        return rank_entries(column_values, means.values, self._select_rankable(means, each), {})

    def _select_rankable(self, means: Means, each: str) -> NDArray[np.bool_]:
        measured = np.array([entry.origin != "reported" for entry in self.entries], bool)
        kept: NDArray[np.bool_] = means.complete & measured
        kept[[*self.unranked]] = False
        return kept & self.first if each == "model" else kept

    @cached_property
    def selected(self) -> NDArray[np.bool_]:
        """Which columns chose each model, or one of its parents, among several; (entries, columns)."""
        columns = self.site_suite.suite.columns
        mask = np.zeros((len(self.entries), len(columns)), bool)
        for row, entry in enumerate(self.entries):
            # Few entries were selected: the others keep their row of zeros.
            if entry.lineage and entry.lineage.selections:
                mask[row] = [is_selection_column(column, entry.lineage) for column in columns]
        return mask

    def find_selection_columns(self, row: int, kind: str = "") -> list[str]:
        """The columns in the means (or in that of a type) that chose a row's model."""
        # Of most rows at once: pages of models ask in every suite.
        if not self.selected[row].any():
            return []
        columns, averaged = self.site_suite.suite.columns, select_mean_columns(self.site_suite.suite)
        chosen_columns = [columns[at] for at in averaged if self.selected[row, at]]
        return [column.name for column in chosen_columns if kind in ("", column.type)]

    def compute_untouched_means(self, rows: Iterable[int], *, shared: bool = False) -> UntouchedMeans | None:
        """Every entry's means over columns that chose no model of some rows; None where none or all did.

        Of these columns the means are over all, or over those `shared` by all of the rows.
        """
        some = list(rows)
        chosen = [row for row in some if self.selected[row].any()]
        part = Untouched.from_suite(self.site_suite.suite, [self.entries[row].lineage for row in chosen])
        if part is not None and shared:
            # Means can be compared only over columns that every row has.
            part = _limit_shared_columns(part, set(np.flatnonzero(self.counted[some].all(axis=0)).tolist()))
        if part is None or not part.count:
            return None
        means = compute_suite_means(part.suite, self.values, self.counted, {}, self.by_seed)
        return UntouchedMeans(part=part, **vars(means))


_EMPTY: Mapping[str, Any] = {
    "entry": 0, "scope": 0, "value": np.nan, "low": np.nan, "high": np.nan, "reason": NONE, "result": 0,
    "seeds": 0, "trained_on": 0, "source": 0, "data": "",
}  # fmt: skip
"""The columns of stored scores, and what stands for nothing."""

_CELLS = {
    "values": "value", "low": "low", "high": "high", "reasons": "reason", "results": "result",
    "seeds": "seeds", "trained_on": "trained_on", "sources": "source",
}  # fmt: skip
"""The arrays of cells, and the columns that they are of."""


def _locate_values(values: NDArray[Any], wanted: Sequence[int]) -> tuple[NDArray[np.bool_], Ints]:
    """Which values are among the wanted ones, and the place of each there."""
    numbers = np.array(wanted, np.int64)
    if not len(numbers):
        return np.zeros(len(values), bool), np.zeros(len(values), np.int64)
    order = np.argsort(numbers)
    # searchsorted, as a dictionary is slow for hundreds of thousands of rows. `clip` moves places behind
    # the end to the last number, which the comparison then refuses.
    positions = order[np.searchsorted(numbers, values, sorter=order).clip(max=len(numbers) - 1)]
    return numbers[positions] == values, positions


def build_suite_scores(
    site_suite: SiteSuite,
    convention: str,
    entries: Sequence[Entry],
    cells: Cells,
    columns: Sequence[Sequence[int]],
    averages: Mapping[int, Mapping[str, Any]],
    *,
    pinned: bool = False,
    wholes: Sequence[int | None] = (),
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
        wholes: For each column of several tasks, the place of the scope that imported models have where some
            of the parts have no number.
    """
    shape = (len(entries), len(columns))
    arrays: dict[str, Any] = {name: np.full(shape, _EMPTY[own]) for name, own in _CELLS.items()}
    arrays["reasons"] = arrays["reasons"].astype(np.uint8)
    values, reasons = arrays["values"], arrays["reasons"]
    single = [place for place, scopes in enumerate(columns) if len(scopes) == 1]
    of_single = [columns[place][0] for place in single]
    for name in _CELLS:
        arrays[name][:, single] = getattr(cells, name)[:, of_single]
    for place, scopes in enumerate(columns):
        if len(scopes) > 1:
            chosen = list(scopes)
            arrays["seeds"][:, place] = cells.seeds[:, chosen].min(axis=1)
            arrays["trained_on"][:, place] = cells.trained_on[:, chosen].sum(axis=1)
            low, high = cells.sources[:, chosen].min(axis=1), cells.sources[:, chosen].max(axis=1)
            arrays["sources"][:, place] = np.where(low == high, low, 0)
            # NaN of one part makes the mean NaN: a mean over the others would look complete.
            values[:, place] = cells.values[:, chosen].mean(axis=1)
            codes = cells.reasons[:, chosen]
            # "other" has a number and the rest have none, so the rest go first.
            worst = np.where(codes == OTHER, 0, codes).max(axis=1)
            reasons[:, place] = np.where(worst > 0, worst, codes.max(axis=1))
            # Some scopes have a score and others none: the reason is the missing part.
            some = (codes != NONE).any(axis=1) & (codes == NONE).any(axis=1)
            reasons[some, place] = REASONS.index("part")
    imported = np.array([entry.origin == "imported" for entry in entries], bool)
    contradicted: dict[tuple[int, int], float] = {}
    has_whole = np.zeros(shape, bool)
    for place, whole_place in enumerate(wholes):
        if whole_place is not None:
            incomplete, stated = imported & np.isnan(values[:, place]), cells.values[:, whole_place]
            has_whole[:, place] = incomplete
            for name in ("values", "reasons", "sources", "trained_on"):
                arrays[name][incomplete, place] = getattr(cells, name)[incomplete, whole_place]
            # A cell leads to the result of the whole only where both say the same.
            same = imported & (np.abs(values[:, place] - stated) <= CONTRADICTION)
            arrays["results"][same, place] = cells.results[same, whole_place]
            rows = np.flatnonzero(imported & ~same & np.isfinite(values[:, place] - stated)).tolist()
            contradicted |= {(row, place): float(stated[row]) for row in rows}
    place_by_name = {column.name: place for place, column in enumerate(site_suite.suite.columns)}
    # Papers have no results: what they print of single columns is in their document.
    for row, document in averages.items():
        for name, value in document.get("columns", {}).items():
            values[row, place_by_name[name]], reasons[row, place_by_name[name]] = value, 0
    counted = ((reasons == 0) | ((reasons == OTHER) & (not pinned))) & np.isfinite(values)
    counted[[row for row, document in averages.items() if document.get("apart")]] = False
    random = [row for row, entry in enumerate(entries) if entry.model == RANDOM]
    chance = np.nan_to_num(values[random[0]]) if random else np.zeros(len(columns))
    chance[[any(task.metric == UNFAIR for task in one.tasks) for one in site_suite.suite.columns]] = np.nan
    by_seed = {row: _mean_scope_columns(of, columns) for row, of in cells.by_seed.items()}
    deviations = np.full(shape, np.nan)
    for row, seed_values in by_seed.items():
        deviations[row] = np.where(counted[row], seed_values.std(axis=0, ddof=1), np.nan)
    means = compute_suite_means(site_suite.suite, values, counted, averages, by_seed)
    spreads = _average_spreads(site_suite.suite, (arrays["high"] - arrays["low"]) / 2, counted)
    averages = {**averages, **{r: {**averages.get(r, {}), "spread": one} for r, one in spreads.items()}}
    # A column's cell has the data of its parts, or of the whole whose number it has.
    places: dict[int | None, list[tuple[int, bool]]] = {}
    for place, (scopes, whole_place) in enumerate(zip_longest(columns, wholes)):
        for scope, is_whole in [*((scope, False) for scope in scopes), (whole_place, True)]:
            places.setdefault(scope, []).append((place, is_whole))
    data = {
        (row, at): one for (row, scope), one in cells.data.items()
        for at, is_whole in places.get(scope, ()) if has_whole[row, at] == is_whole
    }  # fmt: skip
    return SuiteScores(
        site_suite=site_suite, convention=convention, entries=entries, counted=counted, deviations=deviations,
        averages=averages, chance=chance, by_seed=by_seed, pinned=pinned, data=data,
        contradicted=contradicted, **vars(means), **arrays,
    )  # fmt: skip


def _average_spreads(suite: Suite, halves: Floats, counted: NDArray[np.bool_]) -> dict[int, Spread]:
    """The spreads of means over small columns alone, by row; of rows that lack a column there is none.

    Args:
        suite: The suite.
        halves: Half of the interval of each score, NaN where it is not known, (rows, columns).
        counted: Which scores count, of the same shape.
    """
    small = list_small_columns(suite)
    places = select_mean_columns(suite) if small else []
    columns = [suite.columns[place].name for place in places]
    if not columns or any(name not in small for name in columns):
        return {}
    return {
        row: Spread.average(
            [
                replace(small[name], half=None if half != half else half)
                for name, half in zip(columns, halves[row, places].tolist(), strict=True)
            ]
        )
        for row in np.flatnonzero(counted[:, places].all(axis=1)).tolist()
    }


def _limit_shared_columns(part: Untouched, shared: set[int]) -> Untouched:
    """An untouched part whose means leave out the columns that not all models share, too."""
    columns = list(part.suite.columns)
    for place in {*range(len(columns))} - shared:
        columns[place] = replace(columns[place], shown_only=columns[place].shown_only or _UNSHARED)
    suite = replace(part.suite, columns=tuple(columns))
    return replace(part, suite=suite, count=len(select_mean_columns(suite)))


def _mean_scope_columns(values: Floats, columns: Sequence[Sequence[int]]) -> Floats:
    """The columns of values by scope: (rows, columns)."""
    empty = np.full(len(values), np.nan)
    means = [values[:, list(scopes)].mean(axis=1) if scopes else empty for scopes in columns]
    return np.array(means).reshape(len(columns), len(values)).T
