"""Tables that a reader sorts: one list of fields gives the headings, the order and the cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from leaderboard.web.page import missing
from leaderboard.web.tables import Cell, TableColumn, TableRow

T = TypeVar("T")


class _Sortable(Protocol):
    @property
    def sort(self) -> str: ...

    def query(self, **changes: Any) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Field(Generic[T]):
    """A column of a table: its heading, its cell of a row, and the value that sorts (None stands last).

    Without a cell it shows the value that sorts. `up` says that a first click sorts from the smallest value.
    """

    key: str
    label: str
    cell: Callable[[T], Cell] | None = None
    sort: Callable[[T], Any] | None = None
    numeric: bool = False
    up: bool = False
    note: str = ""
    sticky: bool = False

    def head(self, state: _Sortable | None = None, path: str = "", **changes: Any) -> TableColumn:
        """The heading; `changes` are other parameters that a click sets, without a state there is none."""
        url, order = "", state.sort if state and self.sort else ""
        if state and self.sort:
            first, second = f"-{self.key}", self.key
            if self.up or not self.numeric:
                first, second = second, first
            url = f"{path}?{state.query(sort=second if order == first else first, **changes)}"
        return TableColumn(
            key=self.key, label=self.label, numeric=self.numeric, note=self.note, sticky=self.sticky,
            sort=url, sorted="" if order.removeprefix("-") != self.key
            else "descending" if order.startswith("-") else "ascending",
        )  # fmt: skip

    def of(self, row: T) -> Cell:
        """The cell of a row."""
        if self.cell:
            return self.cell(row)
        value = self.sort(row) if self.sort else None
        text = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
        return Cell(text=text, value=value)


def in_order(rows: Sequence[T], fields: Sequence[Field[T]], sort: str) -> list[T]:
    """Rows by the field that `sort` names, with `-` in front from the largest value.

    Raises:
        NotFound: There is no such field.
    """
    values = {field.key: field.sort for field in fields if field.sort}
    value = values.get(sort.removeprefix("-"))
    if value is None:
        raise missing(
            "column", sort.removeprefix("-"), values, then="Click a column's heading to sort by it."
        )
    known = [row for row in rows if value(row) is not None]
    known.sort(key=value, reverse=sort.startswith("-"))
    return [*known, *(row for row in rows if value(row) is None)]


def row_of(row: T, fields: Sequence[Field[T]], key: str = "", kind: str = "") -> TableRow:
    """The row of a table."""
    return TableRow(cells=[field.of(row) for field in fields], key=key, kind=kind)
