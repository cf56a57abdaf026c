"""Consoles: as wide as the terminal, and wide enough for a whole table where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

WIDE = 200


def console(*, stderr: bool = False) -> Console:
    """A console that never cuts a name off when its output is read by a program or from a file."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream) if stream.isatty() else Console(file=stream, width=WIDE)
