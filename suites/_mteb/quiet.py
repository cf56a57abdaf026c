"""mteb without its progress bars, log lines and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Keep mteb's own progress bars, log lines and warnings off the terminal."""
    import logging
    import warnings

    loggers = [logging.getLogger(name) for name in ("mteb", "datasets")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), _no_bars():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _no_bars() -> Iterator[None]:
    from tqdm.std import tqdm

    bar: Any = tqdm
    shown = bar.__init__

    def hidden(self: Any, *args: Any, **options: Any) -> None:
        shown(self, *args, **{**options, "disable": True})

    bar.__init__ = hidden
    try:
        yield
    finally:
        bar.__init__ = shown
