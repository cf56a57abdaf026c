"""Entries on a suite by what all of them have: means, differences with intervals, and fields that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import hypot, isfinite
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from harness.differences import Comparable
from harness.scores import shown_only
from leaderboard.data.entries import Entry
from leaderboard.data.queries import Queries, Score
from leaderboard.data.scores import NONE, OTHER, Floats, SuiteScores, half_width
from leaderboard.data.suites import views
from leaderboard.pages._task_scores import tie


class TypeMean(NamedTuple):
    """A type's mean of each entry, over `tasks` of its `expected` tasks."""

    values: Floats
    tasks: int
    expected: int


class Difference(NamedTuple):
    """A difference of two means and half of its 95 % interval; None where a single task gives none."""

    value: float
    half: float | None

    @property
    def is_clear(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.half is not None and abs(self.value) > self.half


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two entries by their rows, on the tasks that all have; differences are the first's minus the second's.

    `untouched` is over the tasks that selected no entry; None where no task did, or all did.
    """

    first: int
    second: int
    wins: int
    losses: int
    ties: int
    tasks: Difference
    types: Difference
    untouched: Difference | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Common:
    """Entries on a suite.

    Attributes:
        entries: In the order that a reader chose; differences are to the first.
        scores: The suite for these entries alone, a row for each.
        overlaps: How many tasks all of them have, by suite; suites without any are left out.
    """

    entries: Sequence[Entry]
    scores: SuiteScores
    overlaps: Mapping[str, int]

    @cached_property
    def columns(self) -> list[int]:
        """The columns that all of them have."""
        return [int(at) for at in np.flatnonzero(self.scores.counted.all(axis=0))]

    @cached_property
    def by_type(self) -> dict[str, list[int]]:
        """Those columns by type; types without any are left out."""
        columns = self.scores.site_suite.suite.columns
        by_type = {
            kind: [at for at in self.columns if columns[at].type == kind] for kind in self.scores.by_type
        }
        return {kind: places for kind, places in by_type.items() if places}

    @cached_property
    def types(self) -> dict[str, TypeMean]:
        """The means within types that all have: whole ones, else those over the columns that all have."""
        types = {}
        for kind, means in self.scores.by_type.items():
            if means.complete.all():
                types[kind] = TypeMean(means.values, means.expected, means.expected)
            elif places := self.by_type.get(kind):
                types[kind] = TypeMean(self.mean(places), len(places), means.expected)
        return types

    @property
    def over_tasks(self) -> Floats:
        """The mean over the columns that all have, of each entry; NaN where there are none."""
        means = self.scores.over_tasks
        return means.values if means.complete.all() else self.mean(self.columns)

    @property
    def over_types(self) -> Floats:
        """The mean of the types' means that all have, of each entry; NaN where there are none."""
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
        apart = {*self.selected, *shown_only(suite)}
        return [at for at in self.columns if suite.columns[at].name not in apart] if self.selected else []

    @property
    def on_other_data(self) -> int:
        """How many columns all would have if every revision of the data counted."""
        fits = (self.scores.reasons == 0) | (self.scores.reasons == OTHER)
        return int((fits & np.isfinite(self.scores.values)).all(axis=0).sum())

    def mean(self, columns: Sequence[int]) -> Floats:
        """The mean over some columns, of each entry."""
        if not columns:
            return np.full(len(self.entries), np.nan)
        means: Floats = self.scores.values[:, list(columns)].mean(axis=1)
        return means

    def tied(self, one: int, other: int, at: int) -> bool:
        """Whether two entries are equal on a column, or within their known intervals combined."""
        values, low, high = self.scores.values, self.scores.low, self.scores.high
        halves = [float(high[row, at] - low[row, at]) / 2 for row in (one, other)]
        return tie(
            float(values[one, at]),
            float(values[other, at]),
            *(half if isfinite(half) else None for half in halves),
        )

    def winners(self, at: int) -> list[int]:
        """The best entry of a column, and those tied with it."""
        rows = range(len(self.entries))
        best = max(rows, key=lambda row: float(self.scores.values[row, at]))
        return [row for row in rows if row == best or self.tied(best, row, at)]

    def pairs(self) -> list[Pair]:
        """Every two of the entries; none where they have no column in common."""
        rows = range(len(self.entries)) if self.columns else range(0)
        return [self._pair(one, other) for one, other in combinations(rows, 2)]

    def _pair(self, one: int, other: int) -> Pair:
        values = self.scores.values
        gaps = values[one] - values[other]
        common = gaps[self.columns]
        signs = [0 if self.tied(one, other, at) else int(np.sign(gaps[at])) for at in self.columns]
        kinds = [self.scores.site_suite.suite.columns[at].type for at in self.columns]
        weights = [len(kinds) / (len(self.by_type) * len(self.by_type[kind])) for kind in kinds]
        known = self._known_half(one, other)
        return Pair(
            first=one, second=other, wins=signs.count(1), losses=signs.count(-1), ties=signs.count(0),
            tasks=_difference(common) if known is None else Difference(float(common.mean()), known),
            types=_difference(common * np.array(weights)),
            untouched=_difference(gaps[self.untouched]) if self.untouched else None,
        )  # fmt: skip

    def _known_half(self, one: int, other: int) -> float | None:
        """Half of the interval of a difference of means with intervals of their own, over all columns."""
        averages = [self.scores.averages.get(row, {}).get("interval") for row in (one, other)]
        if len(self.columns) < len(self.scores.site_suite.suite.columns) or None in averages:
            return None
        return hypot(*[(high - low) / 2 for low, high in averages])  # type: ignore[misc]


def _difference(differences: Floats) -> Difference:
    half = half_width(differences)
    return Difference(float(differences.mean()), half if isfinite(half) else None)


_Places: TypeAlias = "Mapping[str, Sequence[set[int]]]"
"""By suite, for each entry the places of columns."""


def common(
    queries: Queries, entries: Sequence[Entry], *, suite: str = "", view: str = "", pinned: bool = False
) -> Common:
    """Entries on a suite; without a name, on that where they have most in common.

    Args:
        queries: The site's queries.
        entries: 2 to 6.
        suite: A suite that there is, by slug.
        view: A convention of it; empty for that which most of them have.
        pinned: Whether only scores on the pinned revisions of the data count.
    """
    averages = [(suite, name) for _, suite, name, _ in queries.averages([entry.id for entry in entries])]
    counted = (0,) if pinned else (0, OTHER)
    columns = _columns_of(queries, entries, lambda one: one.value is not None and one.reason in counted)
    overlaps = _shared(columns)
    slug = suite or _best_suite(queries, overlaps)
    if not suite and not overlaps:  # then by scores that do not count
        columns = _columns_of(queries, entries, lambda one: one.reason != NONE)
        slug = _best_suite(
            queries, _shared(columns) or {s: sum(map(len, rows)) for s, rows in columns.items()}
        )
    chosen = queries.suites[slug]
    name = view or max(views(chosen.suite), key=lambda one: averages.count((slug, one)))
    scores = queries.scores_of(entries, chosen, name, pinned=pinned)
    return Common(entries=entries, scores=scores, overlaps=overlaps)


def _columns_of(queries: Queries, entries: Sequence[Entry], fits: Callable[[Score], bool]) -> _Places:
    """The columns of each suite that each entry has, by scores that fit or as printed in a paper."""
    row = {entry.id: at for at, entry in enumerate(entries)}
    scopes: list[set[int]] = [set() for _ in entries]
    for one in queries.scores(entry=list(row)):
        if fits(one):
            scopes[row[one.entry]].add(one.scope)
    places = {
        slug: [{at for at, some in enumerate(columns) if some and own.issuperset(some)} for own in scopes]
        for slug, columns in _scopes_of(queries).items()
    }
    for entry, slug, _, document in queries.averages(list(row)):
        names, types = document.get("columns", {}), document.get("types", {})
        suite = queries.suites.get(slug)
        columns = enumerate(suite.suite.columns) if suite else ()
        places.get(slug, [set()] * len(row))[row[entry]].update(
            at for at, one in columns if one.name in names or one.type in types
        )
    return places


_scopes: WeakKeyDictionary[Queries, dict[str, list[list[int]]]] = WeakKeyDictionary()


def _scopes_of(queries: Queries) -> Mapping[str, list[list[int]]]:
    """The scopes of each suite's columns by its first convention, cached."""
    if queries not in _scopes:
        _scopes[queries] = {
            slug: [[queries.scope_ids[s.form] for s in some] for some in one.scopes(views(one.suite)[0])]
            for slug, one in queries.suites.items()
        }
    return _scopes[queries]


def _shared(columns: _Places) -> dict[str, int]:
    counts = {slug: len(set.intersection(*rows)) for slug, rows in columns.items()}
    return {slug: count for slug, count in counts.items() if count}


def _best_suite(queries: Queries, counts: Mapping[str, int]) -> str:
    """The suite with the highest count times the share of its columns; main ones with half go first."""
    shares = {slug: count / len(queries.suites[slug].suite.columns) for slug, count in counts.items()}
    main = [slug for slug in counts if queries.suites[slug].main and shares[slug] >= 0.5]
    return max(main or counts or queries.suites, key=lambda slug: counts.get(slug, 0) * shares.get(slug, 0))


class Differing(NamedTuple):
    """A field that differs: each entry's values, and on how many tasks they differ."""

    name: str
    values: Sequence[list[Any]]
    tasks: int


def measured_fields(queries: Queries, shared: Common, rows: Sequence[int]) -> list[list[Mapping[str, Any]]]:
    """Identity and provenance of measured entries: for each task that all have, the fields of each."""
    results = shared.scores.results
    ids = [[int(results[row, at]) for row in rows] for at in shared.columns] if len(rows) > 1 else []
    documents = queries.result_documents([number for some in ids for number in some if number])
    return [
        [Comparable(identity=d["identity"]).fields(d["provenance"]) for d in (documents[n] for n in some)]
        for some in ids
        if all(number in documents for number in some)
    ]


def differing(tasks: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Differing]:
    """The fields in which several differ on some task.

    Args:
        tasks: For each task, each one's fields.

    >>> [tuple(one) for one in differing([[{"a": 1, "b": 2}, {"a": 1, "b": 3}]])]
    [('b', [[2], [3]], 1)]
    """
    for name in sorted({name for some in tasks for fields in some for name in fields}):
        rows = [[fields.get(name) for fields in some] for some in tasks]
        rows = [values for values in rows if any(value != values[0] for value in values)]
        if rows:
            own = [
                [v for at, v in enumerate(values) if v not in values[:at]]
                for values in zip(*rows, strict=True)
            ]
            yield Differing(name, own, len(rows))
