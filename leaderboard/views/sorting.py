"""Tables that a reader sorts: one list of fields gives the headings, the order and the cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from leaderboard.web.page import build_missing_error
from leaderboard.web.tables import (
    Cell,
    Sorted,
    Table,
    TableColumn,
    TableRow,
    format_value_cell,
    mark_row_heads,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Field(Generic[T]):
    """A column of a table: its heading, its cell of a row, and the value that sorts (None stands last).

    Its cell may be a plain value; without one it shows the value that sorts. `up` says that a first click
    sorts from the smallest value; the others are those of TableColumn.
    """

    key: str
    label: str
    cell: Callable[[T], Any] | None = None
    sort: Callable[[T], Any] | None = None
    numeric: bool = False
    up: bool = False
    note: str = ""
    sticky: bool = False
    group: str = ""
    card: str = ""

    def build_head(self, state: Any = None, path: str = "") -> TableColumn:
        """The heading; a click sorts by it where a page's state has `sort`.

        Args:
            state: The page's state.
            path: The page's path, where the table stands on another one.
        """
        url, order = "", state.sort if state and self.sort else ""
        if state and self.sort:
            first, second = f"-{self.key}", self.key
            if self.up or not self.numeric:
                first, second = second, first
            url = f"{path}?{state.build_query(sort=second if order == first else first, **state.first_page)}"
        direction: Sorted = ""
        if order.removeprefix("-") == self.key:
            direction = "descending" if order.startswith("-") else "ascending"
        return TableColumn(
            key=self.key, label=self.label, group=self.group, numeric=self.numeric, note=self.note,
            sticky=self.sticky, card=self.card, sort=url, sorted=direction,
        )  # fmt: skip

    def build_cell(self, row: T) -> Cell:
        """The cell of a row."""
        if self.cell:
            return format_value_cell(self.cell(row))
        value = self.sort(row) if self.sort else None
        return format_value_cell("" if value is None else value)


def sort_rows(rows: Sequence[T], fields: Sequence[Field[T]], sort: str) -> list[T]:
    """Rows by the field that `sort` names, with `-` in front from the largest value.

    Args:
        rows: The rows.
        fields: The fields of their table.
        sort: The key of a field, with `-` in front for the largest first.

    Raises:
        NotFound: No field that sorts has this name.
    """
    values = {field.key: field.sort for field in fields if field.sort}
    value = values.get(sort.removeprefix("-"))
    if value is None:
        raise build_missing_error(
            "column", sort.removeprefix("-"), values, then="Click a column's heading to sort by it."
        )
    # None compares with nothing, and rows without a value are last in either order.
    valued_rows = [row for row in rows if value(row) is not None]
    valued_rows.sort(key=value, reverse=sort.startswith("-"))
    return [*valued_rows, *(row for row in rows if value(row) is None)]


def fill_table(
    name: str,
    caption: str,
    fields: Sequence[Field[T]],
    rows: Iterable[T],
    *,
    state: Any = None,
    path: str = "",
    key: Callable[[T], str] = lambda row: "",
    kind: Callable[[T], str] = lambda row: "",
    group: Callable[[T], str] = lambda row: "",
    notes: Sequence[str] = (),
    cards: bool = False,
) -> Table:
    """A table of rows by its fields.

    Args:
        name: Its anchor.
        caption: What it shows.
        fields: The columns.
        rows: From top to bottom.
        state: The page's state, for headings that sort.
        path: The page's path, where the table stands on another one.
        key: What a row is about.
        kind: How a row looks.
        group: The heading over a row and those that follow with the same.
        notes: Sentences below it.
        cards: Whether a phone shows each row as a card.
    """
    columns = [field.build_head(state, path) for field in fields]
    body, heading = list[TableRow](), ""
    for row in rows:
        if (row_group := group(row)) != heading:
            heading = row_group
            cells = [Cell(text=heading if is_head else "") for is_head in mark_row_heads(columns)]
            body.append(TableRow(kind="group", cells=cells))
        body.append(TableRow(cells=[field.build_cell(row) for field in fields], key=key(row), kind=kind(row)))
    return Table(name=name, caption=caption, columns=columns, rows=body, notes=notes, cards=cards)
