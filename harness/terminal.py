"""Consoles: as wide as the terminal, and wide enough for a whole table where there is none."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

WIDE = 200


def most_common(texts: Sequence[str]) -> str:
    """The text that stands most often, the first of several.

    >>> most_common(["a", "b", "b"])
    'b'
    """
    return max(dict.fromkeys(texts), key=list(texts).count)


def console(*, stderr: bool = False) -> Console:
    """A console that never cuts a name off when its output is read by a program or from a file.

    What stands in brackets is text, as in a prompt, and never markup.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False)
