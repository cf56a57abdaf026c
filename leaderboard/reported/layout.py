"""A paper's table, laid out as in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from leaderboard.reported.lines import (
    Line,
    Numbers,
    head_columns,
    heads_of,
    numbers_of,
    printed_lines,
    row_of,
)
from leaderboard.reported.notes import notes_of
from leaderboard.reported.printed import Paper, PaperTable, key_of, plain, title
from leaderboard.reported.recompute import OVER_TASKS, OVER_TYPES
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

Measured: TypeAlias = Mapping[tuple[str, str, str, str], Cell]
"""Cells by printed model, size class, suite and metric (as printed, or as `plain` gives it).

The cell with neither suite nor metric stands at the head of the model's line."""


def paper_table(paper: Paper, table: PaperTable, *measured: Measured) -> Table:
    """A paper's table as in print, with what we make of its aggregates.

    Args:
        paper: The paper.
        table: One of its tables.
        measured: Cells of lines of their own, each directly below a model's last printed line.
    """
    lines = printed_lines(table.rows)
    ways = [OVER_TYPES, OVER_TASKS] if table.rows[0].suite.startswith("MTEB(") else []
    numbers = numbers_of(lines, ways=ways, ours=not ways)
    heads = heads_of(lines)
    made = [_plainly(cells) for cells in measured]
    last = {line.model: at for at, line in enumerate(lines)}
    rows: list[Row] = []
    for at, line in enumerate(lines):
        rows.append(row_of(line, heads, numbers))
        if last[line.model] == at:
            rows += [row for cells in made for row in _below(line, heads, numbers, cells)]
    return Table(
        name=f"table-{key_of(table.id)}",
        caption=f"{paper.name}, {title(table.id)}: {table.caption}",
        columns=[*_heads(heads, lines), *(one.column for one in numbers)],
        rows=rows,
        notes=notes_of(lines, table.rows, ways),
    )


def _heads(heads: Sequence[str], lines: Sequence[Line]) -> list[Column]:
    """The columns of the labels; `model` only where names are names: `D/F_N vs C` is no one's model."""
    odd = any({"/", " "} <= set(line.first.model) for line in lines)
    columns = head_columns(heads)
    return [replace(one, key="line") if odd and one.key == "model" else one for one in columns]


def _plainly(cells: Measured) -> Measured:
    return {(m, s, suite, plain(suite, metric)): cell for (m, s, suite, metric), cell in cells.items()}


def _below(line: Line, heads: Sequence[str], numbers: Sequence[Numbers], cells: Measured) -> list[Row]:
    """What was measured of a line's model; nothing if that is nothing."""
    found = [_measured(line, one, cells) for one in numbers]
    if all(cell is EMPTY for cell in found):
        return []
    head = cells.get((*line.model, "", ""), Cell(text="measured here", value="measured here"))
    return [Row(cells=[_as_measured(head), *[EMPTY] * (len(heads) - 1), *found])]


def _measured(line: Line, numbers: Numbers, cells: Measured) -> Cell:
    if numbers.measured is None:
        return EMPTY
    return _as_measured(cells.get((*line.model, *numbers.measured), EMPTY))


def _as_measured(cell: Cell) -> Cell:
    kinds = dict.fromkeys([*cell.kind.split(), "measured"])
    return cell if cell is EMPTY else replace(cell, kind=" ".join(kinds))
