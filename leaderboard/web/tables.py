"""Tables: what a page shows and what its JSON, CSV, Markdown and LaTeX hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

from harness.core.types import is_number
from leaderboard.web.marks import KINDS, PLAIN, CellKind

Value: TypeAlias = "float | int | str | bool | None"

Sorted = Literal["", "ascending", "descending"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: What a reader sees, not escaped.
        value: The same as a number or a text; None for nothing.
        href: Where it leads, a path of this site.
        kind: Why it looks as it does: names of KINDS with spaces between.
        note: A sentence about it, shown on hover.
        deviation: The standard deviation of the value over the seeds of a training.
        parts: Small cells that stand in it, one beside another; `note` says them in words.
    """

    text: str = ""
    value: Value = None
    href: str = ""
    kind: str = ""
    note: str = ""
    deviation: float | None = None
    parts: Sequence[Cell] = ()

    def mark(self, kind: str, note: str = "") -> Cell:
        """This cell with one kind more, and a sentence why."""
        notes = "; ".join(filter(None, [self.note, note]))
        return replace(self, kind=f"{self.kind} {kind}".strip(), note=notes) if kind else self


EMPTY = Cell()


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """One column.

    Attributes:
        key: Its name in URLs, JSON and the table's head; unique in the table.
        label: The heading.
        group: The heading over several columns that follow one another.
        numeric: Whether it holds numbers, which stand to the right.
        href: Where the heading leads as a link of its own (a task's page).
        sort: The URL that sorts by this column.
        sorted: How it is sorted now.
        note: What the column is, in a sentence.
        sticky: Whether it stays when the table is scrolled sideways.
        fold: The URL that opens or folds the column's group.
        open: Whether the group is open.
        card: Its label on a phone, where a table of cards shows no other columns.
    """

    key: str
    label: str
    group: str = ""
    numeric: bool = False
    href: str = ""
    sort: str = ""
    sorted: Sorted = ""
    note: str = ""
    sticky: bool = False
    fold: str = ""
    open: bool = False
    card: str = ""

    @property
    def css(self) -> str:
        """The classes of its cells."""
        looks = {"t": not self.numeric, "sticky": self.sticky, "card": self.card}
        return " ".join(name for name, holds in looks.items() if holds)

    @property
    def syllables(self) -> list[str]:
        """The heading without its group's name, in parts between which a line may end."""
        # Not at its start: STSBenchmark would be a "Benchmark".
        short = re.sub(f"(?<=.){re.escape(self.group.replace(' ', ''))}", "", self.label, count=1)
        words = re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[_\-./])", short if len(short) > 2 else self.label)
        halves = [
            (w[: len(w) // 2], w[len(w) // 2 :]) if len(w) > 15 and " " not in w else (w,) for w in words
        ]
        return [part for half in halves for part in half]


@dataclass(frozen=True, kw_only=True, slots=True)
class TableRow:
    """One row; `kind` is "", "part" (incomplete), "beside" (asked for by name) or "group" (a heading).

    `key` names what the row is about (an entry's slug).
    """

    cells: Sequence[Cell]
    key: str = ""
    kind: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """One table of a page.

    Attributes:
        name: Unique on its page; its anchor.
        caption: What it shows, in a few words.
        columns: From left to right.
        rows: From top to bottom, each with a cell for every column.
        notes: Sentences below it.
        cards: Whether a phone shows each row as a card with the columns that have `card`.
    """

    name: str
    caption: str
    columns: Sequence[TableColumn]
    rows: Sequence[TableRow]
    notes: Sequence[str] = ()
    cards: bool = False

    @property
    def looks(self) -> list[list[Value]]:
        """Of every column the classes of its cells, its label on a card, and whether it names the row."""
        return [
            [c.css for c in self.columns],
            [c.card for c in self.columns],
            [*mark_row_heads(self.columns)],
        ]

    @property
    def groups(self) -> list[tuple[TableColumn, int]]:
        """The first column of each group with its width; empty where no column has a group."""
        runs = [list(run) for _, run in groupby(self.columns, key=lambda c: (c.group, c.sticky))]
        return [(run[0], len(run)) for run in runs] if any(c.group for c in self.columns) else []

    @property
    def legend(self) -> list[tuple[str, CellKind]]:
        """The kinds of its cells that need a word."""
        used = {cell.kind for row in self.rows for cell in row.cells}
        names = {name for kinds in used for name in kinds.split()} - PLAIN
        return [(name, kind) for name, kind in KINDS.items() if name in names]

    @property
    def entries(self) -> Iterator[tuple[str, TableRow]]:
        """The rows without headings, each with the heading above it."""
        heading = ""
        for row in self.rows:
            if row.kind == "group":
                heading = next((cell.text for cell in row.cells if cell.text), "")
            else:
                yield heading, row


def mark_row_heads(columns: Sequence[TableColumn]) -> list[bool]:
    """Which column holds the rows' headings: the first that names a model or anything else."""
    heads = [column.key in ("model", "name") for column in columns]
    return [holds and not any(heads[:at]) for at, holds in enumerate(heads)]


def describe_value(value: Any) -> str:
    """A setting's value in words.

    >>> [describe_value(value) for value in (1e-05, (0.9, 0.98), None, True, {"RTE": 100})]
    ['1e-05', '0.9, 0.98', '–', 'yes', 'RTE 100']
    """
    if value is None or value in ((), {}, ""):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {describe_value(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(describe_value(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_value_cell(value: Any) -> Cell:
    """A plain value as a cell: empty of an empty text, a dash of None.

    >>> [format_value_cell(value).text for value in (1200, 2e-05, True, "", None)]
    ['1,200', '2e-05', 'yes', '', '–']
    """
    if isinstance(value, Cell):
        return value
    if value == "":
        return EMPTY
    if is_number(value):
        return Cell(text=f"{value:,}" if isinstance(value, int) else f"{value:.6g}", value=value)
    return Cell(text=describe_value(value), value=value)


def link(text: str, href: str = "", *, kind: str = "", note: str = "") -> Cell:
    """A name as a cell, which leads to its page where it has one."""
    return Cell(text=text, value=text, href=href, kind=kind, note=note)


def build_values_row(*values: Any, key: str = "") -> TableRow:
    """A row of plain values and cells."""
    return TableRow(key=key, cells=[format_value_cell(value) for value in values])


def values_table(
    name: str,
    caption: str,
    labels: Mapping[str, str],
    rows: Iterable[Sequence[Any] | TableRow],
    numbers: str | None = None,
    *,
    notes: Sequence[str] = (),
    groups: Mapping[str, str] = {},
    says: Mapping[str, str] = {},
) -> Table:
    """A table of plain values and cells, whose first column stays when it is scrolled.

    Args:
        name: Its anchor.
        caption: What it shows.
        labels: The headings by key.
        rows: From top to bottom.
        numbers: The keys of the columns with numbers; None for those that hold numbers and no texts.
        notes: Sentences below it.
        groups: The heading over a column, by key.
        says: What a column is, in a sentence, by key.
    """
    body = [row if isinstance(row, TableRow) else build_values_row(*row) for row in rows]
    named = _list_number_keys(labels, body) if numbers is None else numbers.split()
    columns = [
        TableColumn(key=key, label=label, group=groups.get(key, ""), numeric=key in named, sticky=not at,
                    note=says.get(key, ""))
        for at, (key, label) in enumerate(labels.items())
    ]  # fmt: skip
    return Table(name=name, caption=caption, columns=columns, rows=body, notes=notes)


def _list_number_keys(labels: Mapping[str, str], rows: Sequence[TableRow]) -> list[str]:
    columns = zip(*([cell.value for cell in row.cells] for row in rows), strict=True)
    return [
        key
        for key, values in zip(labels, columns, strict=False)
        if any(map(is_number, values)) and not any(isinstance(value, str) for value in values)
    ]
