"""Entries on a suite by what all of them have: means, differences with intervals, and fields that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from math import hypot, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.core import files
from harness.core.groups import group_by
from harness.core.types import Column
from harness.results.differences import Comparable
from harness.results.record_units import ScoredRecord
from harness.results.score_differences import Difference, MeanDifference
from harness.results.units import Units
from harness.storage.store import Store
from leaderboard.data.entries import Entry
from leaderboard.data.queries import Queries
from leaderboard.data.ranking import FEWEST, Floats, Means, compute_half_widths, select_mean_columns
from leaderboard.data.scores import NONE, SuiteScores, UntouchedMeans
from leaderboard.data.suites import list_conventions
from leaderboard.views.model_scores import iter_present_scores
from leaderboard.views.task_scores import is_tie

TESTS = 130
"""Tests over examples on a page, at most; of more entries only the first pairs are tested."""

LEVEL = 0.05
"""Of a test, two-sided."""

NEAR = 1e-4
"""How far the difference over examples may be from that of the two scores."""


class PairedDifference(NamedTuple):
    """The difference of two means, half of its 95 % interval (None for none), and what that is made of."""

    value: float
    half: float | None
    by: Literal["", "examples", "intervals", "tasks"] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    """Two entries by their rows, on the tasks that all have; differences are the first's minus the second's.

    `untouched` is over the tasks that selected no entry; None where no task did, or all did.
    """

    first: int
    second: int
    wins: int
    losses: int
    ties: int
    tasks: PairedDifference
    types: PairedDifference
    untouched: PairedDifference | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Common:
    """Entries on a suite, in the order that a reader chose: differences are to the first.

    `overlaps` counts the tasks that all of them have, by suite; suites without any are left out. `tests` are
    differences of two rows on a column over the examples that both were scored on.
    """

    entries: Sequence[Entry]
    scores: SuiteScores
    overlaps: Mapping[str, int]
    tests: Mapping[tuple[int, int, int], Difference] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[int]:
        """The columns that all of them have."""
        return [int(at) for at in np.flatnonzero(self.scores.counted.all(axis=0))]

    @cached_property
    def shared(self) -> SuiteScores:
        """The same over these columns alone."""
        rows = range(len(self.entries))
        return self.scores.narrow(rows, self.columns, self.scores.site_suite.select_columns(self.columns))

    @cached_property
    def by_type(self) -> dict[str, list[int]]:
        """These columns by type."""
        columns = self.scores.site_suite.suite.columns
        return group_by(self.columns, lambda at: columns[at].type)

    @cached_property
    def averaged(self) -> list[int]:
        """Those columns that means are over: some are shown alone."""
        return [at for at in select_mean_columns(self.scores.site_suite.suite) if at in self.columns]

    @cached_property
    def types(self) -> dict[str, Means]:
        """The means within types that all have."""
        names = {*self.shared.by_type}
        names |= {kind for kind, means in self.scores.by_type.items() if means.complete.all()}
        return {kind: self.find_mean(kind) for kind in self.scores.by_type if kind in names}

    def find_mean(self, over: str) -> Means:
        """A mean over all that the suite has of it, where every entry has that, else over what they share."""
        means = self.scores.mean(over)
        return means if means.complete.all() else self.shared.mean(over)

    @property
    def over_types(self) -> Floats:
        """The mean of the types' means that all have, of each entry; NaN without shared types."""
        values = [means.values for means in self.types.values()]
        return np.mean(values, axis=0) if values else np.full(len(self.entries), np.nan)

    @cached_property
    def untouched(self) -> UntouchedMeans | None:
        """The means over the shared columns that selected none of the entries; None where none or all did."""
        return self.scores.compute_untouched_means(range(len(self.entries)), shared=True)

    def is_tied(self, one: int, other: int, at: int) -> bool:
        """Whether two entries are level on a column: by its test, else by their known intervals."""
        # Tests are kept with the smaller row first.
        if test := self.tests.get((min(one, other), max(one, other), at)):
            return test.compute_two_sided_test()[0] > LEVEL
        values, low, high = self.scores.values, self.scores.low, self.scores.high
        halves = [float(high[row, at] - low[row, at]) / 2 for row in (one, other)]
        widths = [half if isfinite(half) else None for half in halves]
        return is_tie(float(values[one, at]), float(values[other, at]), *widths)

    def find_winners(self, at: int) -> list[int]:
        """The best entry of a column, and those tied with it."""
        rows = range(len(self.entries))
        best = max(rows, key=lambda row: float(self.scores.values[row, at]))
        return [row for row in rows if row == best or self.is_tied(best, row, at)]

    def list_pairs(self) -> list[_Pair]:
        """Every two of the entries; none where they have no column in common."""
        rows = range(len(self.entries)) if self.averaged else range(0)
        return [self._compare_rows(one, other) for one, other in combinations(rows, 2)]

    def _compare_rows(self, one: int, other: int) -> _Pair:
        gaps = self.scores.values[one] - self.scores.values[other]
        signs = [0 if self.is_tied(one, other, at) else int(np.sign(gaps[at])) for at in self.columns]
        rest = select_mean_columns(self.untouched.part.suite) if self.untouched else []
        bounds = [self.scores.averages.get(row, {}).get("interval") for row in (one, other)]
        # Intervals of their own are those of means over all columns.
        is_complete = len(self.columns) == len(self.scores.site_suite.suite.columns) and all(bounds)
        half = hypot(*[(b[1] - b[0]) / 2 for b in bounds if b]) if is_complete else None
        return _Pair(
            first=one, second=other, wins=signs.count(1), losses=signs.count(-1), ties=signs.count(0),
            tasks=self._compute_gap(one, other, self.averaged, known_half=half),
            types=self._compute_gap(one, other, self.averaged, self.shared.weigh_columns("types")[1]),
            untouched=self._compute_gap(one, other, rest) if rest else None,
        )  # fmt: skip

    def _compute_gap(
        self,
        one: int,
        other: int,
        columns: Sequence[int],
        weights: Floats | None = None,
        *,
        known_half: float | None = None,
    ) -> PairedDifference:
        """The difference of two means over columns, whose `weights` are of mean 1."""
        factors = np.ones(len(columns)) if weights is None else weights
        gaps = (self.scores.values[one] - self.scores.values[other])[list(columns)]
        value = float((gaps * factors).mean())
        # The surest first: a test over the same examples, then intervals of both means, then the tasks as a
        # sample.
        half = self._compute_test_half(one, other, columns, by_type=weights is not None)
        if half is not None:
            return PairedDifference(value, half, "examples")
        if known_half is not None:
            return PairedDifference(value, known_half, "intervals")
        if len(columns) < FEWEST:
            return PairedDifference(value, None)
        return PairedDifference(value, float(compute_half_widths(gaps, factors)), "tasks")

    def _compute_test_half(
        self, one: int, other: int, columns: Sequence[int], *, by_type: bool
    ) -> float | None:
        """Half of the interval of a difference of means whose columns were all tested."""
        suite, tests = self.scores.site_suite.suite, dict[str, Difference]()
        chosen = tuple(suite.columns[at] for at in columns)
        parts = replace(suite, columns=chosen).parts
        for index, column in zip(columns, chosen, strict=True):
            if (one, other, index) in self.tests:
                name = column.name if column.name in parts else column.tasks[0].name
                tests[name] = self.tests[one, other, index]
        if by_type and not parts:
            kinds = dict.fromkeys(column.type for column in chosen)
            tasks = {kind: [c.tasks[0] for c in chosen if c.type == kind] for kind in kinds}
            chosen = tuple(Column(name=kind, type=kind, tasks=tuple(some)) for kind, some in tasks.items())
        mean = MeanDifference.aggregate_suite(replace(suite, columns=chosen), tests)
        if mean is None or len(tests) < len(columns) or len(mean.columns) < len(chosen):
            return None
        return None if by_type and parts else mean.total.compute_bound_offset(1 - LEVEL / 2)


def load_common(
    queries: Queries,
    entries: Sequence[Entry],
    *,
    suite: str = "",
    view: str = "",
    pinned: bool = False,
    folders: Sequence[Path] = (),
) -> Common:
    """Entries on a suite; without a name, on that where they have most in common.

    Args:
        queries: The site's queries.
        entries: 2 to 6.
        suite: The slug of one of the site's suites; empty for none.
        view: A convention; if the suite does not have it, the one by which they have most in common.
        pinned: Whether only scores on the pinned revisions of the data count.
        folders: Results folders whose records may hold a score for each example.
    """
    present = {(one.site_suite.slug, one.convention): one
               for one in iter_present_scores(queries, entries, pinned=pinned)}  # fmt: skip
    numbers = {key: _find_numbers(scores) for key, scores in present.items()}
    shared = {key: int(has[:, select_mean_columns(present[key].site_suite.suite)].all(axis=0).sum())
              for key, has in numbers.items()}  # fmt: skip
    # Where nothing that counts is common, scores that do not count still say which suite is nearest.
    others = {key: has | ~np.isin(present[key].reasons, (0, NONE)) for key, has in numbers.items()}
    by_all = {key: int(has.all(axis=0).sum()) for key, has in others.items()}
    overlaps, by_any = _find_most(shared), {key: int(has.sum()) for key, has in others.items()}
    counts = overlaps or _find_most(by_all) or _find_most(by_any)
    chosen = queries.suites[suite or _choose_best_suite(queries, counts)]
    names = list_conventions(chosen.suite)
    name = view if view in names else max(names, key=lambda one: shared.get((chosen.slug, one), 0))
    scores = present.get((chosen.slug, name)) or queries.load_suite_scores(
        chosen, name, entries=entries, pinned=pinned
    )
    common = Common(entries=entries, scores=scores, overlaps=overlaps)
    return replace(common, tests=_run_paired_tests(queries, common, [Store(folder) for folder in folders]))


def _find_numbers(scores: SuiteScores) -> NDArray[np.bool_]:
    """Which columns each row has, by themselves or within a printed mean of their type, (rows, columns)."""
    columns = scores.site_suite.suite.columns
    means = [scores.mean(c.type).complete & (c.type in scores.by_type) for c in columns]
    return np.asarray(scores.counted | np.transpose(means))


def _find_most(counts: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """The most of each suite by any of its conventions; suites of nothing are left out."""
    most = {slug: count for (slug, _), count in sorted(counts.items(), key=lambda pair: pair[1])}
    return {slug: most[slug] for slug, _ in counts if most[slug]}


_Tests: TypeAlias = "dict[tuple[int, int, int], Difference]"
"""By two rows and a column."""

_Record: TypeAlias = "tuple[str, str, str]"
"""An artifact's folder, a task and a key: where a store has a record."""


def _run_paired_tests(queries: Queries, shared: Common, stores: Sequence[Store]) -> _Tests:
    """The tests over examples of two rows on a column that all have, cached."""
    scores = shared.scores
    cache: dict[tuple[Any, ...], Difference | None] = queries.known.setdefault("tests", {})
    columns = [at for at in shared.columns if len(scores.site_suite.suite.columns[at].tasks) == 1]
    measured = [row for row, entry in enumerate(shared.entries) if entry.origin == "measured" and stores]
    # Each test reads the examples of both sides from files.
    pairs = [*combinations(measured, 2)][: max(1, TESTS // max(1, len(columns)))]
    records = _find_example_records(queries, shared, sorted({row for pair in pairs for row in pair}), columns)
    tests: _Tests = {}
    for (first, other), column in product(pairs, columns):
        sides = [records.get((row, column), ()) for row in (first, other)]
        if all(sides):
            key = (scores.site_suite.slug, scores.convention, column, *sides)
            if key not in cache:
                cache[key] = _test(scores, column, sides, stores)
            gap = scores.values[first, column] - scores.values[other, column]
            # A test over other examples than those of the score says nothing of the score.
            if (test := cache[key]) and abs(test.delta - gap) < NEAR:
                tests[first, other, column] = test
    return tests


def _find_example_records(
    queries: Queries, shared: Common, rows: Sequence[int], columns: Sequence[int]
) -> dict[tuple[int, int], tuple[_Record, ...]]:
    """The records of measured rows by column: of a training over several seeds one for each."""
    scopes = queries.list_scope_columns(shared.scores.site_suite, shared.scores.convention)
    members = {row: queries.list_members(shared.entries[row]) or [shared.entries[row]] for row in rows}
    # A store finds the folder of an artifact by the twelve digits at its end, whatever stands before them.
    folders = {one.id: f"model-{one.artifact}"[:18] for some in members.values() for one in some}
    if not folders:
        return {}
    result_ids = {(one.entry, one.scope): one.result for one in queries.find_scores(entry=[*folders])}
    results = {one.id: one for one in queries.find_results(id=sorted({*result_ids.values()} - {0}))}
    records = {}
    for row, column in product(rows, columns):
        numbers = [result_ids.get((one.id, scopes[column][0]), 0) for one in members[row]]
        if all(number in results and results[number].key for number in numbers):
            some = [results[number] for number in numbers]
            records[row, column] = tuple((folders[one.entry], one.task, str(one.key)) for one in some)
    return records


def _test(
    scores: SuiteScores, at: int, sides: Sequence[Sequence[_Record]], stores: Sequence[Store]
) -> Difference | None:
    """A test of two sides over the examples that all their records were scored on; None without those."""
    suite = scores.site_suite.suite
    (task,), convention = suite.columns[at].tasks, suite.conventions.get(scores.convention)
    parts = convention.parts[task.name] if convention and task.output == "label" else ()
    joined = []
    for side in sides:
        models = []
        for record in side:
            scored = ScoredRecord.find(stores, *record, parts=parts, cache=files.resolve_cache_folder())
            units = scored.units if scored else None
            units = units if parts or units is None else units.select_subsets(task.cells)
            if units is None:
                return None
            models.append(units if len(side) == 1 else units.pool_runs())
        try:
            joined.append(Units.join_runs(models))
        except ValueError:
            return None
    first, other = joined
    # A stratum of one example has no variance.
    if not first.has_same_examples(other) or min(stratum.count for stratum in first.strata) < 2:
        return None
    return Difference.compare_units(first, other, paired=False)


def _choose_best_suite(queries: Queries, counts: Mapping[str, int]) -> str:
    """The suite with the highest count, and share of its columns; main ones with half go first."""
    shares = {slug: count / len(queries.suites[slug].suite.columns) for slug, count in counts.items()}
    main = [slug for slug in counts if queries.suites[slug].main and shares[slug] >= 0.5]
    return max(main or counts or queries.suites, key=lambda slug: (counts.get(slug, 0), shares.get(slug, 0)))


def load_record_fields(
    queries: Queries, shared: Common, rows: Sequence[int]
) -> list[list[Mapping[str, Any]]]:
    """Identity and provenance of measured entries: for each task that all have, the fields of each."""
    results = shared.scores.results
    ids = [[int(results[row, at]) for row in rows] for at in shared.columns] if len(rows) > 1 else []
    documents = queries.load_result_documents([number for some in ids for number in some if number])
    shown = [[documents[number] for number in some] for some in ids if documents.keys() >= {*some}]
    return [
        [Comparable(identity=one["identity"]).flatten_fields(one["provenance"]) for one in some]
        for some in shown
    ]


def iter_field_differences(
    tasks: Sequence[Sequence[Mapping[str, Any]]],
) -> Iterator[tuple[str, list[list[Any]], int]]:
    """The fields in which several differ on some task: each one's values, and on how many tasks they differ.

    Args:
        tasks: For each task, each one's fields.

    >>> list(iter_field_differences([[{"a": 1, "b": 2}, {"a": 1, "b": 3}]]))
    [('b', [[2], [3]], 1)]
    """
    for name in sorted({name for some in tasks for fields in some for name in fields}):
        rows = [[fields.get(name) for fields in some] for some in tasks]
        rows = [values for values in rows if any(value != values[0] for value in values)]
        if rows:
            columns = zip(*rows, strict=True)
            every = [[v for at, v in enumerate(values) if v not in values[:at]] for values in columns]
            yield name, every, len(rows)
