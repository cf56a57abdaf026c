"""Entries on a suite by what all of them have: means, differences with intervals, and fields that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product
from math import hypot, isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from harness.core import paths
from harness.core.types import Column
from harness.results.differences import Comparable
from harness.results.record_units import ScoredRecord
from harness.results.score_differences import Difference, MeanDifference
from harness.results.scores import list_exclusions
from harness.results.units import Units
from harness.storage.store import Store
from leaderboard.data.entries import Entry
from leaderboard.data.queries import Queries, ScopeScore, cache_by_queries
from leaderboard.data.ranking import FEWEST, Floats, compute_half_widths
from leaderboard.data.scores import NONE, OTHER, SuiteScores
from leaderboard.data.suites import list_conventions
from leaderboard.views.task_scores import is_tie

TESTS = 130
"""Tests over examples on a page, at most; of more entries only the first pairs are tested."""

LEVEL = 0.05
"""Of a test, two-sided."""

NEAR = 1e-4
"""How far the difference over examples may be from that of the two scores."""


class _TypeMean(NamedTuple):
    """A type's mean of each entry, over `of` of its `expected` tasks."""

    values: Floats
    of: int
    expected: int


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
    def averaged(self) -> list[int]:
        """Those columns that means are over: some are shown alone."""
        suite = self.scores.site_suite.suite
        apart = list_exclusions(suite)
        return [at for at in self.columns if suite.columns[at].name not in apart]

    @cached_property
    def by_type(self) -> dict[str, list[int]]:
        """Those columns by type; types without any are left out."""
        columns, by_type = self.scores.site_suite.suite.columns, dict[str, list[int]]()
        for kind in self.scores.by_type:
            if places := [at for at in self.columns if columns[at].type == kind]:
                by_type[kind] = places
        return by_type

    @cached_property
    def types(self) -> dict[str, _TypeMean]:
        """The means within types that all have: whole ones, else those over the columns that all have."""
        types = {}
        for kind, means in self.scores.by_type.items():
            if means.complete.all():
                types[kind] = _TypeMean(means.values, means.expected, means.expected)
            elif places := [at for at in self.by_type.get(kind, ()) if at in self.averaged]:
                types[kind] = _TypeMean(self.mean(places), len(places), means.expected)
        return types

    @property
    def over_tasks(self) -> Floats:
        """The mean over the columns that all have, of each entry; NaN without such columns."""
        means = self.scores.over_tasks
        return means.values if means.complete.all() else self.mean(self.averaged)

    @property
    def over_types(self) -> Floats:
        """The mean of the types' means that all have, of each entry; NaN without shared types."""
        values = [one.values for one in self.types.values()]
        return np.mean(values, axis=0) if values else np.full(len(self.entries), np.nan)

    @cached_property
    def selected(self) -> list[str]:
        """The columns by whose scores one of the entries was selected among several."""
        columns = self.scores.site_suite.suite.columns
        return [column.name for at, column in enumerate(columns) if self.scores.selected[:, at].any()]

    @cached_property
    def untouched(self) -> list[int]:
        """The columns of a mean over tasks that selected none of the entries; empty where no column did."""
        suite = self.scores.site_suite.suite
        rest = [at for at in self.averaged if suite.columns[at].name not in self.selected]
        return rest if self.selected else []

    def mean(self, columns: Sequence[int]) -> Floats:
        """The mean over some columns, of each entry."""
        if not columns:
            return np.full(len(self.entries), np.nan)
        means: Floats = self.scores.values[:, list(columns)].mean(axis=1)
        return means

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
        kinds = [self.scores.site_suite.suite.columns[at].type for at in self.averaged]
        # Each type weighs the same, and each task in it; times the number of tasks, so that the mean is 1.
        weights = [len(kinds) / (len({*kinds}) * kinds.count(kind)) for kind in kinds]
        bounds = [self.scores.averages.get(row, {}).get("interval") for row in (one, other)]
        # Intervals of their own are those of means over all columns.
        is_complete = len(self.columns) == len(self.scores.site_suite.suite.columns) and all(bounds)
        half = hypot(*[(b[1] - b[0]) / 2 for b in bounds if b]) if is_complete else None
        return _Pair(
            first=one, second=other, wins=signs.count(1), losses=signs.count(-1), ties=signs.count(0),
            tasks=self._compute_gap(one, other, self.averaged, known_half=half),
            types=self._compute_gap(one, other, self.averaged, weights),
            untouched=self._compute_gap(one, other, self.untouched) if self.untouched else None,
        )  # fmt: skip

    def _compute_gap(
        self,
        one: int,
        other: int,
        columns: Sequence[int],
        weights: Sequence[float] = (),
        *,
        known_half: float | None = None,
    ) -> PairedDifference:
        """The difference of two means over columns, whose `weights` are of mean 1."""
        factors = np.array(weights) if weights else np.ones(len(columns))
        gaps = (self.scores.values[one] - self.scores.values[other])[list(columns)]
        value = float((gaps * factors).mean())
        # The surest first: a test over the same examples, then intervals of both means, then the tasks as a
        # sample.
        half = self._compute_test_half(one, other, columns, by_type=bool(weights))
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


_Places: TypeAlias = "Mapping[str, Sequence[set[int]]]"
"""By suite, for each entry the places of columns."""


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
        view: A convention; if the suite does not have it, the one that most of them have.
        pinned: Whether only scores on the pinned revisions of the data count.
        folders: Results folders whose records may hold a score for each example.
    """
    averages = [row[1:3] for row in queries.list_averages([entry.id for entry in entries])]
    counted = (0,) if pinned else (0, OTHER)
    columns = _collect_columns(queries, entries, lambda one: one.value is not None and one.reason in counted)
    counts = overlaps = _count_overlaps(columns)
    # Nothing that counts is common: scores that do not count still say which suite is nearest.
    if not suite and not overlaps:
        columns = _collect_columns(queries, entries, lambda one: one.reason != NONE)
        counts = _count_overlaps(columns) or {slug: sum(map(len, rows)) for slug, rows in columns.items()}
    slug = suite or _choose_best_suite(queries, counts)
    chosen = queries.suites[slug]
    names = list_conventions(chosen.suite)
    name = view if view in names else max(names, key=lambda one: averages.count((slug, one)))
    scores = queries.load_suite_scores(chosen, name, entries=entries, pinned=pinned)
    shared = Common(entries=entries, scores=scores, overlaps=overlaps)
    return replace(shared, tests=_run_paired_tests(queries, shared, [Store(folder) for folder in folders]))


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
            scored = ScoredRecord.find(stores, *record, parts=parts, cache=paths.resolve_cache_folder())
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


def _collect_columns(
    queries: Queries, entries: Sequence[Entry], fits: Callable[[ScopeScore], bool]
) -> _Places:
    """The columns of each suite that each entry has, by scores that fit or as printed in a paper."""
    row = {entry.id: at for at, entry in enumerate(entries)}
    scopes: list[set[int]] = [set() for _ in entries]
    for score in queries.find_scores(entry=list(row)):
        if fits(score):
            scopes[row[score.entry]].add(score.scope)
    places = {
        slug: [{at for at, some in enumerate(columns) if some and own.issuperset(some)} for own in scopes]
        for slug, columns in _load_column_scopes(queries).items()
    }
    for entry, slug, _, document in queries.list_averages(list(row)):
        names = {} if document.get("apart") else document.get("columns", {})
        types, suite = document.get("types", {}), queries.suites.get(slug)
        columns = enumerate(suite.suite.columns) if suite else ()
        # A paper may print a suite that this site does not list: its columns go into a set that nobody
        # keeps.
        places.get(slug, [set()] * len(row))[row[entry]].update(
            at for at, one in columns if one.name in names or one.type in types
        )
    return places


@cache_by_queries
def _load_column_scopes(queries: Queries) -> Mapping[str, list[list[int]]]:
    """The scopes of each suite's columns by its first convention, cached."""
    return {
        slug: queries.list_scope_columns(one, list_conventions(one.suite)[0])
        for slug, one in queries.suites.items()
    }


def _count_overlaps(columns: _Places) -> dict[str, int]:
    counts = {slug: len(set.intersection(*rows)) for slug, rows in columns.items()}
    return {slug: count for slug, count in counts.items() if count}


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
