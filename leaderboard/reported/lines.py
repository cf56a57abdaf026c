"""Lines of a table and its columns of numbers: what a paper's table and one of several papers share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from leaderboard.reported.cells import printed_cell
from leaderboard.reported.printed import AVERAGE, Printed, key_of, number_of, plain
from leaderboard.reported.recompute import OVER_TASKS, OVER_TYPES, means
from leaderboard.tables import EMPTY, Cell, Column, Row

SHORT = {OVER_TASKS: "mean over tasks"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table: what stands before its numbers, and these by column."""

    labels: Mapping[str, str]
    first: Printed
    cells: dict[str, Printed] = field(default_factory=dict)

    @property
    def model(self) -> tuple[str, str]:
        """Its model's name and size class, as printed."""
        return self.first.model, self.first.size_class

    @property
    def means(self) -> dict[str, float]:
        """Its means, made again."""
        suite = self.first.suite
        values = {plain(suite, name): row.number for name, row in self.cells.items()}
        return means(suite, {name: x for name, x in values.items() if name != AVERAGE})


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """A column of numbers; `measured` is what measured cells call it, empty if there are none."""

    column: Column
    make: Callable[[Line], Cell]
    measured: tuple[str, str] | None = None


def printed_lines(rows: Sequence[Printed]) -> list[Line]:
    """The lines of a paper's table."""
    return lines_of(rows, _printed_labels, lambda row: _task(row)[1])


def _task(row: Printed) -> tuple[str, str]:
    """The task that a hyperparameter is of, and the column."""
    task, _, name = row.metric.rpartition(":")
    return (task, name) if row.unit == "hyperparameter" else ("", row.metric)


def _printed_labels(row: Printed) -> dict[str, str]:
    """MosaicBERT's settings also hold what stands in a column of print: hours, the price of an hour."""
    setting = re.sub(r"; [\d.]+ h$| at \$[\d.]+/GPU-h$", "", row.setting)
    return {
        "Model": row.model,
        "Size": row.size_class,
        "Parameters": row.params,
        "Setting": setting,
        "Task": _task(row)[0],
    }


def lines_of(
    rows: Sequence[Printed], labels: Callable[[Printed], dict[str, str]], column: Callable[[Printed], str]
) -> list[Line]:
    """A number goes into the last line with its labels, or a new one if its place there is taken."""
    lines: list[Line] = []
    for row in rows:
        own, name = labels(row), column(row)
        fits = (line for line in reversed(lines) if line.labels == own and name not in line.cells)
        if (line := next(fits, None)) is None:
            lines.append(line := Line(labels=own, first=row))
        line.cells[name] = row
    return lines


def heads_of(lines: Sequence[Line]) -> list[str]:
    """The labels that a table needs: a setting that all lines share goes below it."""
    values = {name: {line.labels[name] for line in lines} for name in lines[0].labels}
    return [name for name, found in values.items() if found != {""} and (name != "Setting" or len(found) > 1)]


def head_columns(heads: Sequence[str]) -> list[Column]:
    """The columns of the labels."""
    return [Column(key=key_of(name).lower(), label=name, sticky=name == heads[0]) for name in heads]


def row_of(line: Line, heads: Sequence[str], numbers: Sequence[Numbers]) -> Row:
    """A line as a row."""
    labels = [Cell(text=line.labels[name], value=line.labels[name] or None) for name in heads]
    return Row(cells=[*labels, *(one.make(line) for one in numbers)])


def numbers_of(lines: Sequence[Line], *, ways: Sequence[str], ours: bool) -> list[Numbers]:
    """The printed columns, with a column behind those that have numbers which do not follow, and means."""
    found: list[Numbers] = []
    names = dict.fromkeys(name for line in lines for name in line.cells)
    for name in names:
        cells = [line.cells[name] for line in lines if name in line.cells]
        found.append(_printed_column(name, cells))
        if ours and any(row.follows == "no" for row in cells):
            found.append(_our_column(name, cells[0]))
    return found + [_mean_column(way, lines[0].first.suite) for way in ways]


def _printed_column(name: str, cells: Sequence[Printed]) -> Numbers:
    units = {row.unit for row in cells if row.value}
    column = Column(
        key=key_of(name),
        label=name,
        group=cells[0].suite,
        numeric=all(row.number is not None for row in cells if row.value),
        note=units.pop() if len(units) == 1 else "",
    )
    return Numbers(
        column=column,
        make=lambda line: printed_cell(line.cells[name]) if name in line.cells else EMPTY,
        measured=(cells[0].suite, plain(cells[0].suite, name)),
    )


def _our_column(name: str, first: Printed) -> Numbers:
    def make(line: Line) -> Cell:
        row = line.cells.get(name)
        if row is None or not row.recomputed:
            return EMPTY
        return Cell(text=row.recomputed, value=number_of(row.recomputed), note=f"{row.recomputed_as}.")

    note = f"what {name} comes to from the printed numbers, where the print does not follow from them"
    key = f"{key_of(name)}-recomputed"
    column = Column(key=key, label="recomputed", group=first.suite, numeric=True, note=note)
    return Numbers(column=column, make=make)


def _mean_column(way: str, suite: str) -> Numbers:
    name, places = SHORT.get(way, way), 2 if way in (OVER_TYPES, OVER_TASKS) else 3

    def make(line: Line) -> Cell:
        value = line.means.get(way)
        return EMPTY if value is None else Cell(text=f"{value:.{places}f}", value=round(value, places))

    label = f"{name} (recomputed)"
    column = Column(key=key_of(name), label=label, numeric=True, note=f"{way}, from the printed numbers")
    return Numbers(column=column, make=make, measured=(suite, name))
