"""Printing to a terminal: a console for people, programs and files, and tables whose numbers are never cut.

Names and errors come from files that others wrote. What is printed obeys none of their control characters.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment
    from rich.table import Table


Named = TypeVar("Named")

NAMES_SHOWN = 6
"""The number of names that a line shows."""

WIDE = 200
"""The columns of a console that is not a terminal."""

FIRST = 0.4
"""The share of the width that names of a table's first column may take unfolded."""

NARROW = 6
"""The width of a folded column, at least."""

LONGEST_CELL, LONGEST_MESSAGE = 1000, 9000
"""The characters at which a cell, and what is written on standard error at once, are cut.

None is as long, unless a stranger has chosen a name in it.
"""

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")
"""Control characters, and those that end a line or turn the direction of what follows."""

_PLAIN_SIGNS = str.maketrans(
    dict(zip("×–−·²Δ≈✓✗▁▂▃▄▅▆▇█", "x--.2d~vx12345678", strict=True))
    | {"…": "...", "→": "->", "±": "+-", "≤": "<=", "≥": ">=", "✅": "OK", "❌": "NO", "❓": "??"}
)
"""What stands for a sign where the encoding of a terminal lacks it."""

_ERRORS = "harness-terminal"


def group_names(pairs: Iterable[tuple[str, Named]]) -> dict[Named, list[str]]:
    """The names of each thing that pairs of a name and a thing have, in order and each once.

    >>> group_names([("RTE", "late"), ("MRPC", "late"), ("RTE", "late")])
    {'late': ['RTE', 'MRPC']}
    """
    groups: dict[Named, dict[str, None]] = {}
    for name, thing in pairs:
        groups.setdefault(thing, {})[name] = None
    return {thing: [*names] for thing, names in groups.items()}


def shorten_names(names: Sequence[str], most: int = NAMES_SHOWN, *, between: str = ", ") -> str:
    """A list of names, cut where it is long.

    >>> shorten_names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return between.join(names[:most]) + more


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


def clean_text(text: str, *, line: bool = False) -> str:
    r"""A text without characters that a terminal or a browser obeys: they stand as escapes.

    They are escapes of JSON, so that JSON keeps its meaning.

    Args:
        text: A text, perhaps from a stranger.
        line: Whether it stands in one line, so that line feeds are escaped, too.

    >>> print(clean_text("a\x1b[31mb\u202ec"))
    a\u001b[31mb\u202ec
    """
    cleaned = _CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)
    return cleaned.replace("\r\n", "\n").replace("\n", "\\n") if line else cleaned


class _CleanStream:
    """A stream of text that writes cleaned texts, and is the stream itself otherwise."""

    # click writes UTF-8 past a stream of ASCII; this one takes any text (see `prepare_output`).
    encoding = "utf-8"

    def __init__(self, stream: Any, longest: int | None = None) -> None:
        self.stream, self._longest = stream, longest

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        cut = self._longest is not None and len(text) > self._longest
        self.stream.write(clean_text(f"{text[: self._longest]}…\n" if cut else text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for text in lines:
            self.write(text)


@contextmanager
def clean_output() -> Iterator[None]:
    """Have all that is printed cleaned; a console of `create_console` keeps its colours."""
    prepare_output()
    errors = _CleanStream(sys.stderr, LONGEST_MESSAGE)
    with redirect_stdout(_CleanStream(sys.stdout)), redirect_stderr(errors):
        yield


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

    class _CleanConsole(Console):
        """A console whose texts are cleaned one by one: its own colours pass."""

        def render(self, *arguments: Any) -> Iterable[Segment]:
            for segment in super().render(*arguments):
                yield segment if segment.control else segment._replace(text=clean_text(segment.text))

    prepare_output()
    stream: Any = sys.stderr if stderr else sys.stdout
    stream = stream.stream if isinstance(stream, _CleanStream) else stream
    return _CleanConsole(file=stream, width=None if stream.isatty() else WIDE, markup=False)


def print_lines(lines: Iterable[str], console: Console | None = None, *, style: str | None = None) -> None:
    """Print texts as they are, without colours for numbers; a terminal wraps them, and nothing else does."""
    out = console or create_console()
    for line in lines:
        out.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def show_progress(name: str, *, quiet: bool, in_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, if that is a terminal; it is told what is done, and of how much.

    Args:
        name: What is counted, in words.
        quiet: Whether there is no bar in any case.
        in_bytes: Whether bytes are counted.
    """
    from rich import progress

    console = create_console(stderr=True)
    columns = (
        progress.TextColumn(name),
        progress.BarColumn(bar_width=30),
        progress.DownloadColumn() if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    hidden = quiet or not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def create_table(
    *names: str, numbers: Iterable[str] = (), notes: Iterable[str] = (), title: str | None = None
) -> Table:
    """A table without rows.

    Args:
        names: The headers of its first columns.
        numbers: Those of columns whose cells end below one another.
        notes: Those of the last columns, which are dim.
        title: What stands above it.
    """
    from rich.table import Column, Table

    right = [Column(name, justify="right") for name in numbers]
    return Table(*names, *right, *(Column(name, style="dim") for name in notes), title=title)


def print_table(table: Table, console: Console) -> None:
    """Print a table without its empty columns, below its title; only texts beyond all sense are cut.

    Where it is too wide names are folded, and numbers stay whole.
    """
    from rich.text import Text

    for column in table.columns:
        # Before widths are measured: rich takes an escape sequence for nothing.
        column._cells = [_clean_cell(cell) for cell in column.cells]

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


def _clean_cell(cell: Any) -> Any:
    """A cell of text in one line, cut where it is longer than any name."""
    text = clean_text(str(cell), line=True)
    text = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"
    return cell if text == str(cell) else text
