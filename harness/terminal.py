"""Consoles: as wide as the terminal, and wide enough for a whole table where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

WIDE = 200


def console(*, stderr: bool = False) -> Console:
    """A console that never cuts a name off when its output is read by a program or from a file.

    What stands in brackets is text, as in a prompt, and never markup.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False)
