"""Some entries on a suite: what they have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from harness.scores import shown_only
from leaderboard.database import AVERAGES, SCORES
from leaderboard.grid import NONE, OTHER, Cells, Floats, Grid, grid, seed_values
from leaderboard.pages.compare.chosen import labels
from leaderboard.queries import Entry, Queries
from leaderboard.scopes import views


@dataclass(frozen=True, kw_only=True, eq=False)
class TypeMean:
    """A type's mean of each entry, over `columns` of its `wanted` columns."""

    values: Floats
    columns: int
    wanted: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Common:
    """Entries on a suite.

    Attributes:
        entries: In the order that they were chosen in; differences are to the first.
        grid: The suite for these entries alone, a row for each.
        overlaps: How many columns all of them have, by suite; suites without any are left out.
    """

    entries: Sequence[Entry]
    grid: Grid
    overlaps: Mapping[str, int]

    @property
    def labels(self) -> list[str]:
        """A short name for each entry."""
        return labels(self.entries)

    @cached_property
    def columns(self) -> list[int]:
        """The columns that all of them have."""
        return [int(at) for at in np.flatnonzero(self.grid.counted.all(axis=0))]

    @cached_property
    def by_type(self) -> dict[str, list[int]]:
        """Those columns by type; types without any are left out."""
        found: dict[str, list[int]] = {}
        for at in self.columns:
            found.setdefault(self.grid.listed.suite.columns[at].type, []).append(at)
        return {kind: found[kind] for kind in self.grid.by_type if kind in found}

    @property
    def on_other_data(self) -> int:
        """How many columns all of them would have if other revisions of the data counted."""
        fits = (self.grid.reasons == 0) | (self.grid.reasons == OTHER)
        return int((fits & np.isfinite(self.grid.values)).all(axis=0).sum())

    @cached_property
    def types(self) -> dict[str, TypeMean]:
        """The means within types that all have: whole ones, else those over the columns that all have."""
        found = {}
        for kind, means in self.grid.by_type.items():
            if means.complete.all():
                found[kind] = TypeMean(values=means.values, columns=means.wanted, wanted=means.wanted)
            elif at := self.by_type.get(kind):
                found[kind] = TypeMean(values=self.mean(at), columns=len(at), wanted=means.wanted)
        return found

    @property
    def over_tasks(self) -> Floats:
        """The mean over the columns that all have, of each entry; NaN where there are none."""
        means = self.grid.over_tasks
        return means.values if means.complete.all() else self.mean(self.columns)

    @cached_property
    def selected(self) -> list[str]:
        """The columns by whose scores one of the entries was chosen among several."""
        columns = self.grid.listed.suite.columns
        return [column.name for at, column in enumerate(columns) if self.grid.selected[:, at].any()]

    @cached_property
    def untouched(self) -> list[int] | None:
        """The columns of a mean over tasks that chose none of the entries; None where no column chose any."""
        suite = self.grid.listed.suite
        apart = {*self.selected, *shown_only(suite)}
        return [at for at in self.columns if suite.columns[at].name not in apart] if self.selected else None

    @property
    def over_types(self) -> Floats:
        """The mean of the types' means that all have, of each entry; NaN where there are none."""
        values = [one.values for one in self.types.values()]
        return np.mean(values, axis=0) if values else np.full(len(self.entries), np.nan)

    def mean(self, columns: Sequence[int]) -> Floats:
        """The mean over some columns, of each entry."""
        if not columns:
            return np.full(len(self.entries), np.nan)
        found: Floats = self.grid.values[:, list(columns)].mean(axis=1)
        return found

    @property
    def type_weights(self) -> Floats:
        """What each common column weighs in the mean over types, of mean 1."""
        counts = {kind: len(at) for kind, at in self.by_type.items()}
        types = [self.grid.listed.suite.columns[at].type for at in self.columns]
        return np.array([len(types) / (len(counts) * counts[kind]) for kind in types])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scores:
    """Everything that is known of some entries: (entries, scopes), by the place of a scope's number."""

    places: Mapping[int, int]
    cells: Cells
    by_seed: Mapping[int, Sequence[Mapping[int, float | None]]]

    def some(self, ids: Sequence[int]) -> Cells:
        """The cells of some scopes; of those that nobody has, cells that say so."""
        at = [self.places.get(number, len(self.places)) for number in ids]
        cells, column = self.cells, {number: place for place, number in enumerate(ids)}
        return Cells(
            values=cells.values[:, at], low=cells.low[:, at], high=cells.high[:, at],
            reasons=cells.reasons[:, at], results=cells.results[:, at], seeds=cells.seeds[:, at],
            trained_on=cells.trained_on[:, at],
            by_seed={row: seed_values(of, column) for row, of in self.by_seed.items()},
        )  # fmt: skip


def common(
    queries: Queries, entries: Sequence[Entry], *, suite: str = "", view: str = "", any_revision: bool = False
) -> Common:
    """Entries on a suite; without a name, on that where they have most in common.

    Args:
        queries: The index.
        entries: 2 to 6.
        suite: A suite that there is, by slug.
        view: A convention of it; empty for its first.
        any_revision: Whether scores on other revisions of the data count.
    """
    scores, averages = _scores(queries, entries), _averages(queries, entries)
    printed = _printed(queries, averages)
    overlaps = _overlaps(queries, scores, printed, any_revision=any_revision)
    listed = queries.suites[suite or _most(queries, scores, printed, overlaps)]
    known = views(listed.suite)
    view = view or max(known, key=lambda one: len(averages.get((listed.slug, one), ())))
    columns = [[queries.scope_ids[scope.form] for scope in some] for some in listed.scopes(view)]
    ids = list(dict.fromkeys(number for some in columns for number in some))
    place = {number: at for at, number in enumerate(ids)}
    made = grid(
        listed,
        view,
        entries,
        scores.some(ids),
        [[place[number] for number in some] for some in columns],
        averages.get((listed.slug, view), {}),
        any_revision=any_revision,
    )
    return Common(entries=entries, grid=made, overlaps=overlaps)


def _scores(queries: Queries, entries: Sequence[Entry]) -> _Scores:
    row = {entry.id: at for at, entry in enumerate(entries)}
    wanted = select(SCORES).where(SCORES.c.entry.in_(list(row)))
    with queries.reading() as connection:
        found = connection.execute(wanted).all()
    places = {number: at for at, number in enumerate(dict.fromkeys(one.scope for one in found))}
    shape = (len(entries), len(places) + 1)  # the last is of scopes that nobody has
    values, low, high = (np.full(shape, np.nan) for _ in range(3))
    reasons, results = np.full(shape, NONE, np.uint8), np.zeros(shape, np.int64)
    seeds, texts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for one in found:
        at = row[one.entry], places[one.scope]
        values[at], low[at], high[at] = (np.nan if n is None else n for n in (one.value, one.low, one.high))
        reasons[at], results[at] = one.reason, one.result
        seeds[at], texts[at] = one.seeds or 0, one.trained_on or 0
    cells = Cells(
        values=values, low=low, high=high, reasons=reasons, results=results, seeds=seeds, trained_on=texts
    )
    of_seeds = {row: queries.scores_by_seed(one) for row, one in enumerate(entries) if one.of_seeds}
    return _Scores(places=places, cells=cells, by_seed=of_seeds)


_columns: WeakKeyDictionary[Queries, dict[str, list[list[int]]]] = WeakKeyDictionary()


def _suite_columns(queries: Queries) -> Mapping[str, list[list[int]]]:
    """The numbers of the scopes of each suite's columns, by its first convention."""
    if queries not in _columns:
        _columns[queries] = {
            slug: [[queries.scope_ids[s.form] for s in some] for some in one.scopes(views(one.suite)[0])]
            for slug, one in queries.suites.items()
        }
    return _columns[queries]


Held = Mapping[str, Sequence[set[int]]]
"""By suite, for each entry the places of columns."""


def _overlaps(
    queries: Queries, scores: _Scores, printed: Mapping[str, Mapping[int, set[int]]], *, any_revision: bool
) -> dict[str, int]:
    """How many columns of each suite all entries have; suites without any are left out."""
    reasons = scores.cells.reasons
    counted = ((reasons == 0) | ((reasons == OTHER) & any_revision)) & np.isfinite(scores.cells.values)
    return _shared(_held(queries, scores, printed, counted))


def _shared(held: Held) -> dict[str, int]:
    return {slug: n for slug, rows in held.items() if (n := len(set.intersection(*rows)))}


def _held(
    queries: Queries,
    scores: _Scores,
    printed: Mapping[str, Mapping[int, set[int]]],
    there: NDArray[np.bool_],
) -> Held:
    """The columns that each entry has, where `there` says it of scopes, or that a paper prints of it."""
    good = [{number for number, at in scores.places.items() if row[at]} for row in there]
    return {
        slug: [
            printed.get(slug, {}).get(row, set())
            | {at for at, some in enumerate(columns) if some and known.issuperset(some)}
            for row, known in enumerate(good)
        ]
        for slug, columns in _suite_columns(queries).items()
    }


def _printed(queries: Queries, averages: Averages) -> dict[str, dict[int, set[int]]]:
    """The columns of which papers print numbers or the type's mean: by suite and row."""
    found: dict[str, dict[int, set[int]]] = {}
    for (slug, _), rows in averages.items():
        for row, document in rows.items():
            names, types = document.get("columns", {}), document.get("types", {})
            columns = queries.suites[slug].suite.columns
            there = {at for at, one in enumerate(columns) if one.name in names or one.type in types}
            found.setdefault(slug, {}).setdefault(row, set()).update(there)
    return found


def _most(
    queries: Queries,
    scores: _Scores,
    printed: Mapping[str, Mapping[int, set[int]]],
    overlaps: Mapping[str, int],
) -> str:
    """The suite with the most in common: columns that all have, times the share of the suite's columns.

    A main suite goes first where all have half of it. Where nothing is in common on the pinned data,
    other data serves to choose, and then what anybody has.
    """
    some = overlaps
    if not some:
        held = _held(queries, scores, printed, scores.cells.reasons != NONE)
        some = _shared(held) or {slug: sum(map(len, rows)) for slug, rows in held.items()}
    shares = {slug: n / len(queries.suites[slug].suite.columns) for slug, n in some.items()}
    main = [slug for slug in some if queries.suites[slug].main and shares[slug] >= 0.5]
    return max(main or some or queries.suites, key=lambda slug: some.get(slug, 0) * shares.get(slug, 0))


Averages = Mapping[tuple[str, str], Mapping[int, Mapping[str, Any]]]
"""By suite and convention: what is known of the means of each entry, by row."""


def _averages(queries: Queries, entries: Sequence[Entry]) -> Averages:
    row = {entry.id: at for at, entry in enumerate(entries)}
    wanted = select(AVERAGES).where(AVERAGES.c.entry.in_(list(row)))
    found: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    with queries.reading() as connection:
        for one in connection.execute(wanted):
            if one.suite in queries.suites:
                found.setdefault((one.suite, one.view), {})[row[one.entry]] = json.loads(one.document)
    return found
