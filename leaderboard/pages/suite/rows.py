"""Rows of a suite's page: which, in which order, and what is marked in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from leaderboard.grid import Grid, UntouchedMeans
from leaderboard.page import missing
from leaderboard.pages.suite.columns import SuiteColumn
from leaderboard.render import cell_html
from leaderboard.tables import Cell, Row

if TYPE_CHECKING:
    from leaderboard.views.suite import SuiteState


PRINTED = "Printed in papers, without rank"
"""The heading over rows of papers."""


def population(grid: Grid, state: SuiteState) -> NDArray[np.bool_]:
    """The rows that there are before any filter."""
    return grid.first if state.each == "model" else np.ones(len(grid.entries), bool)


def rows_kept(grid: Grid, state: SuiteState) -> list[int]:
    """The rows that pass the filters; of a model's several the one with most, unless all are asked for."""
    rows = [
        row
        for row, entry in enumerate(grid.entries)
        if state.keeps(entry) and _unseen_enough(grid, row, state)
    ]
    return grid.one_for_each_model(rows) if state.each == "model" else rows


def _unseen_enough(grid: Grid, row: int, state: SuiteState) -> bool:
    share = grid.unseen[row]
    return not state.zero or bool(share == 1 if state.zero == "all" else share > 0.5)


def marks_of(grid: Grid, rows: Sequence[int]) -> dict[tuple[int, str], str]:
    """The best and the second best cells of each task's column among some rows, by row and key."""
    rows = [row for row in rows if grid.entries[row].origin != "reported"]
    if not rows:
        return {}
    inside = np.where(grid.counted, grid.values, -np.inf)[rows]
    found = {}
    for at, column in enumerate(grid.listed.suite.columns):
        known = inside[np.isfinite(inside[:, at]), at]
        best = np.unique(known)[-2:][::-1]
        for kind, value in zip(("best", "second"), best, strict=False):
            for row in np.flatnonzero(inside[:, at] == value).tolist():
                found[rows[row], f"task:{column.name}"] = kind
    return found


def in_order(grid: Grid, state: SuiteState, columns: Sequence[SuiteColumn], rows: Sequence[int]) -> list[int]:
    """Rows in order, those of papers last; groups stand together in the order of their first rows."""
    printed = {row for row in rows if grid.entries[row].origin == "reported"}
    ordered = _sorted(grid, state, columns, [row for row in rows if row not in printed])
    ordered += _sorted(grid, state, columns, [row for row in rows if row in printed])
    if not state.group:
        return ordered
    groups: dict[str, list[int]] = {}
    for row in ordered:
        groups.setdefault(getattr(grid.entries[row], state.group) or "", []).append(row)
    return [row for members in groups.values() for row in members]


def _sorted(grid: Grid, state: SuiteState, columns: Sequence[SuiteColumn], rows: Sequence[int]) -> list[int]:
    """Rows in order; those without a value last, by how much of the suite they have."""
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    key = state.mean if key == "mean" else key
    if key in ("model", "origin"):
        return sorted(rows, key=lambda r: getattr(grid.entries[r], key).casefold(), reverse=down)
    by = {column.key: column.sort for column in columns if column.sort is not None}
    if key not in by:
        raise missing("column", key, [*by, "model", "origin"], then="Click a column's heading to sort by it.")
    values = by[key].tolist()
    order = [r for r in rows if values[r] == values[r]]
    order.sort(key=lambda r: values[r], reverse=down)
    rest = [r for r in rows if values[r] != values[r]]
    part = grid.mean("types" if state.mean == "types" else "tasks")
    there, means = part.there.tolist(), np.nan_to_num(part.values, nan=-1.0).tolist()
    rest.sort(key=lambda r: (-there[r], -means[r]))
    return [*order, *rest]


def rows_pinned(grid: Grid, state: SuiteState) -> list[int]:
    """The rows that stay on top."""
    return [row for row, entry in enumerate(grid.entries) if entry.slug in state.pin]


def untouched_of(grid: Grid, state: SuiteState) -> UntouchedMeans | None:
    """The means over the columns that chose no model of those shown; None where none was chosen so."""
    if not grid.selected.any():
        return None
    return grid.untouched([*rows_kept(grid, state), *rows_pinned(grid, state)])


Drawn = dict[int, tuple[Cell, str]]
"""Cells of a column with their HTML, by row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What makes rows: the columns that are shown, and the cells that are marked."""

    grid: Grid
    columns: Sequence[SuiteColumn]
    marks: Mapping[tuple[int, str], str]
    state: SuiteState
    path: str
    own: dict[str, dict[int, tuple[Cell, str]]] = field(default_factory=dict)

    def body(self, rows: Sequence[int]) -> list[Row]:
        """Some rows, put together where that is asked for."""
        if not self.state.group:
            own = [row for row in rows if self.grid.entries[row].origin != "reported"]
            printed = [self.row(row) for row in rows if self.grid.entries[row].origin == "reported"]
            head = [self._heading(PRINTED)] if printed else []
            return [*(self.row(row) for row in own), *head, *printed]
        groups: dict[str, list[int]] = {}
        for row in rows:
            name = getattr(self.grid.entries[row], self.state.group)
            groups.setdefault(name or f"no {self.state.group}", []).append(row)
        found = []
        for name, members in groups.items():
            found += [self._heading(name), *(self.row(row) for row in members)]
        return found

    def _heading(self, name: str) -> Row:
        cells = [Cell(text=name if column.key == "model" else "") for column in self.columns]
        return Row(kind="group", cells=cells)

    def row(self, row: int, *, pinned: bool = False) -> Row:
        """The row of an entry."""
        entry = self.grid.entries[row]
        kind = "pinned" if pinned else "" if self.grid.over_tasks.complete[row] else "part"
        drawn = [kept.get(row) or self._draw(column, row, kept) for column, kept in self._kept]
        if row in self._marked:
            drawn = [self._mark(one, column, row) for one, (column, _) in zip(drawn, self._kept, strict=True)]
        return Row(
            cells=[*(column.cell(row) for column in self.columns[:2]), *[cell for cell, _ in drawn]],
            key=entry.slug,
            kind=kind,
            pin=self._pin(entry.slug, pinned),
            drawn="".join([html for _, html in drawn]),
        )

    @cached_property
    def _kept(self) -> list[tuple[SuiteColumn, Drawn]]:
        """The columns behind the first two, each with its cells that were drawn before."""
        return [
            (column, self._drawn(column).setdefault(column.kept or column.key, {}))
            for column in self.columns[2:]
        ]

    def _drawn(self, column: SuiteColumn) -> dict[str, Drawn]:
        """Where a column's cells are kept: with the grid, or for this page alone."""
        return self.grid.drawn if self.grid.keeps_cells and not column.passing else self.own

    @cached_property
    def _marked(self) -> set[int]:
        return {row for row, _ in self.marks}

    @cached_property
    def _query(self) -> str:
        return self.state.query()

    def _pin(self, slug: str, pinned: bool) -> str:
        """The URL that pins an entry, or lets it go; slugs need no escapes."""
        if pinned:
            return f"{self.path}?{self.state.query(pin=[one for one in self.state.pin if one != slug])}"
        return f"{self.path}?{self._query}{'&' if self._query else ''}pin={slug}"

    @staticmethod
    def _draw(column: SuiteColumn, row: int, kept: Drawn) -> tuple[Cell, str]:
        """A cell with its HTML, made once for all pages."""
        cell = column.cell(row)
        kept[row] = cell, cell_html(cell, numeric=column.numeric)
        return kept[row]

    def _mark(self, one: tuple[Cell, str], column: SuiteColumn, row: int) -> tuple[Cell, str]:
        mark = self.marks.get((row, column.key))
        if mark is None:
            return one
        cell = replace(one[0], kind=f"{one[0].kind} {mark}".strip())
        return cell, cell_html(cell, numeric=column.numeric)
