"""What compared entries have: means over what all have, and what only some have."""

from __future__ import annotations

import numpy as np

from harness.scores import score_text
from leaderboard.grid import Floats, Grid, Means
from leaderboard.pages.compare.common import Common
from leaderboard.pages.suite.cells import mean_of
from leaderboard.pages.task.names import column_path
from leaderboard.scopes import REASONS, Reason
from leaderboard.tables import EMPTY, Cell, Column, Row, Table
from leaderboard.words import some_seeds

SHORT: dict[Reason, str] = {
    "none": "not run",
    "failed": "failed",
    "other": "other data",
    "bad": "impossible value",
    "part": "splits or subsets missing",
}
"""Why a cell does not count, in few words."""


def entry_columns(common: Common, *, numeric: bool = True) -> list[Column]:
    """A column for each entry."""
    return [Column(key=f"s{at}", label=label, numeric=numeric) for at, label in enumerate(common.labels)]


def means_table(common: Common) -> Table:
    """Means over the columns that all have, and below them each entry's own."""
    grid, suite = common.grid, common.grid.listed.suite
    count, whole = len(common.columns), len(suite.columns)
    rows = []
    if np.isfinite(common.over_tasks).all():
        told = f"{whole if grid.over_tasks.complete.all() else count} of {whole} columns"
        rows.append(_mean_row("Over tasks", told, common.over_tasks, common))
    if common.untouched:
        told = f"{len(common.untouched)} of {whole} columns"
        rows.append(_mean_row("Over untouched tasks", told, common.mean(common.untouched)))
    if len(grid.by_type) > 1:
        told = f"{len(common.types)} of {len(grid.by_type)} types, as below"
        rows.append(_mean_row("Over types", told, common.over_types, common))
        rows += [
            _mean_row(kind, f"{one.columns} of {one.wanted} columns", one.values, common, kind)
            for kind, one in common.types.items()
        ]
    own = [_own_row("Own, over tasks", grid, grid.over_tasks, "columns")]
    own += [_own_row("Own, over types", grid, grid.over_types, "types")] if len(grid.by_type) > 1 else []
    return Table(
        name="means",
        caption=f"{suite.title}: means × 100 over what all have",
        columns=[
            Column(key="mean", label="Mean", sticky=True),
            Column(key="of", label="Of"),
            *entry_columns(common),
        ],
        rows=[*rows, *own],
        notes=[
            "Like for like: over columns that all of them have. Rows that begin with “Own” are over "
            "whatever each has, so compare them only where they are complete.",
            *_selection_notes(common),
        ],
    )


def _selection_notes(common: Common) -> list[str]:
    """What is to be known where columns chose some of the entries."""
    if common.untouched is None:
        return []
    rest = "the mean over untouched tasks leaves them out, for all alike"
    return [
        f"Scores on {', '.join(common.selected)} chose a checkpoint or a setting of some of these models, "
        f"and err upward there: "
        f"{rest if common.untouched else 'nothing that all of them have is untouched'}."
    ]


def _mean_row(name: str, told: str, values: Floats, common: Common | None = None, kind: str = "") -> Row:
    """A row of means; marked, where columns are given, of entries that some of these chose."""
    best = np.nanmax(values) if np.isfinite(values).any() else None
    cells = [
        Cell(text=score_text(v), value=_number(v), kind="best" if v == best else "")
        for v in map(float, values)
    ]
    if common is not None:
        cells = [mean_of(cell, common.grid, row, kind) for row, cell in enumerate(cells)]
    return Row(cells=[Cell(text=name, value=name), Cell(text=told, value=told), *cells])


def _own_row(name: str, grid: Grid, means: Means, what: str) -> Row:
    cells = [mean_of(_own_cell(means, row, what), grid, row) for row in range(len(means.values))]
    return Row(cells=[Cell(text=name, value=name), Cell(text=f"{means.wanted} {what}"), *cells])


def _own_cell(means: Means, row: int, what: str) -> Cell:
    there, value = int(means.there[row]), float(means.values[row])
    if not there:
        return Cell(text="–", kind="none")
    if means.complete[row]:
        return Cell(text=score_text(value), value=value)
    told = f"{score_text(value)} ({there}/{means.wanted})"
    return Cell(text=told, value=value, kind="part", note=f"over {there} of {means.wanted} {what}")


def _number(value: float) -> float | None:
    return value if value == value else None


def missing_table(common: Common) -> Table:
    """Columns that some of them have and others do not, with why."""
    grid, suite = common.grid, common.grid.listed.suite
    there = grid.reasons != REASONS.index("none")
    some = [at for at in range(len(suite.columns)) if at not in set(common.columns) and there[:, at].any()]
    nobody = int((~there.any(axis=0)).sum())
    return Table(
        name="missing",
        caption="Not compared, as not all have it",
        columns=[
            Column(key="name", label="Task", sticky=True), Column(key="type", label="Type"),
            *entry_columns(common),
        ],
        rows=[_missing_row(common, at) for at in some],
        notes=[f"{nobody} columns of the suite that nobody has are left out."] if nobody else [],
    )  # fmt: skip


def _missing_row(common: Common, at: int) -> Row:
    column = common.grid.listed.suite.columns[at]
    href = column_path(common.grid.listed, column)
    cells = [_why_cell(common, row, at) for row in range(len(common.entries))]
    name = Cell(text=column.name, value=column.name, href=href)
    return Row(cells=[name, Cell(text=column.type, value=column.type), *cells], key=column.name)


def _why_cell(common: Common, row: int, at: int) -> Cell:
    grid = common.grid
    reason, value = REASONS[grid.reasons[row, at]], float(grid.values[row, at])
    if reason == "seeds":
        return some_seeds(int(grid.seeds[row, at]), len(grid.entries[row].seeds))
    if grid.counted[row, at]:
        return Cell(text=score_text(value), value=value)
    if reason == "other" and value == value:
        return Cell(text=f"{score_text(value)}, {SHORT[reason]}", value=value, kind="other")
    kind = reason if reason in ("none", "failed", "bad") else ""
    return Cell(text=SHORT.get(reason, "–"), kind=kind) if reason else EMPTY
