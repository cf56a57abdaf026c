"""The tasks that compared entries have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from harness.scores import delta_text, score_text
from leaderboard.page import missing
from leaderboard.pages.compare.chosen import LETTERS
from leaderboard.pages.compare.common import Common
from leaderboard.pages.compare.pairs import APART, tied_at, winners
from leaderboard.pages.suite.cells import choices_made, leaks, texts_text
from leaderboard.pages.task.names import column_path
from leaderboard.scopes import REASONS, scopes_of
from leaderboard.tables import Cell, Column, Row, Table
from leaderboard.words import over_seeds

if TYPE_CHECKING:
    from leaderboard.views.compare import CompareState


def tasks_table(common: Common, state: CompareState, path: str) -> Table:
    """Each column that all have: scores, differences to the first entry, and who is best.

    A type that the suite lacks is passed over.

    Raises:
        NotFound: The state sorts by a column that is none.
    """
    columns = _task_columns(common, state, path)
    return Table(
        name="tasks",
        caption="Scores × 100 on what all have, and differences to the first",
        columns=columns,
        rows=[_task_row(common, at) for at in _ordered(common, state)],
        notes=[_tie_note(common)],
    )


def _tie_note(common: Common) -> str:
    known = bool(np.isfinite(common.grid.low[:, common.columns]).any())
    rule = "equal, or within their known intervals put together" if known else "equal"
    more = "" if known else " No interval is known for these scores."
    return f"“tie”: the best scores are {rule}.{more}"


def _task_columns(common: Common, state: CompareState, path: str) -> list[Column]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")

    def column(name: str, label: str, note: str = "", *, numeric: bool = True) -> Column:
        first, other = (f"-{name}", name) if numeric else (name, f"-{name}")
        wanted = other if state.sort == first else first
        return Column(
            key=name, label=label, numeric=numeric, note=note, sticky=name == "name",
            sort=f"{path}?{state.query(sort=wanted)}#t-tasks",
            sorted=("descending" if down else "ascending") if name == key else "",
        )  # fmt: skip

    found = [column("name", "Task", numeric=False), column("type", "Type", numeric=False)]
    for at, label in enumerate(common.labels):
        found.append(column(f"s{at}", label))
        if at:
            found.append(column(f"d{at}", f"{LETTERS[at]} − A", "The difference to the first."))
    if len(common.entries) > 2:
        found.append(column("spread", "Spread", "The best score less the worst."))
    return [*found, Column(key="best", label="Best")]


def _task_row(common: Common, at: int) -> Row:
    column, values = common.grid.listed.suite.columns[at], common.grid.values[:, at]
    best = winners(common, at)
    alone = best[0] if len(best) == 1 else None
    href = column_path(common.grid.listed, column)
    cells = [Cell(text=column.name, value=column.name, href=href), Cell(text=column.type, value=column.type)]
    for row, value in enumerate(map(float, values)):
        cells.append(_score_cell(common, row, at, best=row == alone))
        if row:
            delta = value - float(values[0])
            note = f"{APART}, by their intervals or as they are equal" if tied_at(common, row, 0, at) else ""
            cells.append(Cell(text=delta_text(delta), value=delta, note=note))
    if len(values) > 2:
        spread = float(values.max() - values.min())
        cells.append(Cell(text=f"{100 * spread:.2f}", value=spread))
    told = common.labels[alone] if alone is not None else "tie"
    return Row(cells=[*cells, Cell(text=told, value=told)], key=column.name)


def _score_cell(common: Common, row: int, at: int, *, best: bool) -> Cell:
    grid, entry = common.grid, common.entries[row]
    value, low, high = (float(a[row, at]) for a in (grid.values, grid.low, grid.high))
    column, texts = grid.listed.suite.columns[at], int(grid.trained_on[row, at])
    asked = scopes_of(column)
    kinds = [*(["best"] if best else []), *leaks(entry, asked, texts, column.name)]
    kinds += ["other"] if REASONS[grid.reasons[row, at]] == "other" else []
    result = int(grid.results[row, at])
    href = f"/results/{result}" if result else ""
    notes = [f"95 %: {score_text(low)} to {score_text(high)}"] if low == low else []
    notes += [*choices_made(entry, asked), *([texts_text(texts)] if texts else [])]
    cell = Cell(text=score_text(value), value=value, kind=" ".join(kinds), href=href, note="; ".join(notes))
    return over_seeds(cell, float(grid.deviations[row, at]), entry.seeds)


def _ordered(common: Common, state: CompareState) -> list[int]:
    """The common columns of a type in order: as the suite has them unless the state sorts."""
    suite, values = common.grid.listed.suite, common.grid.values
    wanted = state.type if state.type in common.grid.by_type else ""
    rows = [at for kind, some in common.by_type.items() if wanted in ("", kind) for at in some]
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    by: dict[str, Callable[[int], float | str]] = {
        "name": lambda at: suite.columns[at].name.casefold(),
        "type": lambda at: suite.columns[at].type,
        "spread": lambda at: float(np.ptp(values[:, at])),
    }
    for row in range(len(common.entries)):
        by[f"s{row}"] = lambda at, row=row: float(values[row, at])  # type: ignore[misc]
        by[f"d{row}"] = lambda at, row=row: float(values[row, at] - values[0, at])  # type: ignore[misc]
    if key and key not in by:
        raise missing("column", key, by, then="Click a column's heading to sort by it.")
    return sorted(rows, key=by[key], reverse=down) if key else rows
