"""Printing to a terminal: a console for people, programs and files, and tables that are never cut."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table


WIDE = 200
"""The columns of a console that is not a terminal."""

FIRST = 0.4
"""The share of the width that names of a table's first column may take unfolded."""


NARROW = 6
"""The width of a folded column, at least."""


def create_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 200 columns for programs and files; brackets are no markup."""
    stream = sys.stderr if stderr else sys.stdout
    # sys.stdout is None where a parent process has closed it.
    width = None if stream is not None and stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False)


def print_table(table: Table, console: Console) -> None:
    """Print a table without its empty columns, below its title; nothing is cut.

    Where it is too wide names are folded, and numbers stay whole.
    """
    from rich.text import Text

    if table.title:
        console.print(Text(str(table.title), style="italic"), soft_wrap=True)
        table.title = None
    columns = table.columns = [column for column in table.columns if any(map(str, column.cells))]
    longest = [max((len(str(cell)) for cell in column.cells), default=0) for column in columns]
    widths = [max(len(str(column.header)), least) for column, least in zip(columns, longest, strict=True)]
    least = [
        longest[n] if column.justify == "right" else min(widths[n], NARROW)
        for n, column in enumerate(columns)
    ]
    # rich draws two blanks and a line for each column, and one line more.
    room, total_width = console.width - 3 * len(columns) - 1, console.width
    # All columns but the first are narrowed first; names in that one are folded only if need be.
    for first in (min(longest[0], int(FIRST * total_width)), least[0]):
        while sum(widths) > room:
            wide = [n for n, width in enumerate(widths) if width > max(least[n], 0 if n else first)]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    for column, width in zip(columns, widths, strict=True):
        column.width, column.overflow = width, "fold"
    # A table that cannot be made narrower is printed in full width, and the terminal wraps its lines.
    console.width = max(total_width, total_width - room + sum(widths))
    console.print(table, crop=False)
    console.width = total_width
