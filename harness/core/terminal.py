"""Printing to a terminal: a console for people, programs and files, and tables that are never cut."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


WIDE = 200
"""The columns of a console that is not a terminal."""

FIRST = 0.4
"""The share of the width that names of a table's first column may take unfolded."""


NARROW = 6
"""The width of a folded column, at least."""

_PLAIN_SIGNS = str.maketrans(
    dict(zip("×–−·²Δ≈✓✗▁▂▃▄▅▆▇█", "x--.2d~vx12345678", strict=True))
    | {"…": "...", "→": "->", "±": "+-", "≤": "<=", "≥": ">=", "✅": "OK", "❌": "NO", "❓": "??"}
)
"""What stands for a sign where the encoding of a terminal lacks it."""

_ERRORS = "harness-terminal"


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """The text in place of characters that the encoding of a stream lacks.

    Those without a plain sign, and all of them in JSON, are escaped as in JSON: it keeps its meaning.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    if not error.object.startswith(("{", "[")):
        text = text.translate(_PLAIN_SIGNS)
    return json.dumps(text)[1:-1], error.end


codecs.register_error(_ERRORS, _replace_unencodable)


def prepare_output() -> None:
    """Have standard output and error write any text, whatever their encoding, and nowhere if closed."""
    # A stream is None where a parent process has closed it.
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Streams in memory have no encoding.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def create_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or 200 columns for programs and files; brackets are no markup."""
    # Not at the top: every command line has its streams accept all text, also those that use no console.
    from rich.console import Console

    prepare_output()
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else WIDE, markup=False)


def print_table(table: Table, console: Console) -> None:
    """Print a table without its empty columns, below its title; nothing is cut.

    Where it is too wide names are folded, and numbers stay whole.
    """
    from rich.text import Text

    if table.title:
        console.print(Text(str(table.title), style="italic"), soft_wrap=True)
        table.title = None
    columns = table.columns = [column for column in table.columns if any(map(str, column.cells))]
    if not columns:
        return
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
