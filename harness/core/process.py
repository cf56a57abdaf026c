"""The start and the end of a process that uses heavy libraries."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hold_collector() -> Iterator[None]:
    """Keep the garbage collector off imports.

    They make many objects and no garbage, which it would search again and again for a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def shorten_exit(codes: list[int]) -> None:
    """At the end of this process, end it with the code in `codes`, without Python's own finalization.

    That takes more than a second with torch and mteb, and frees what ends with the process anyway. Threads
    end before, and what `atexit` was given later than here. Without a code the process ends as usual.
    """
    atexit.register(_end_process, codes)


def _end_process(codes: list[int]) -> None:
    if codes:
        for stream in (sys.stdout, sys.stderr):
            # A stream may be None, closed, or a pipe whose reader has gone.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(codes[-1])
