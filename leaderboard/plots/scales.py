"""Where a value lies in a picture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from leaderboard.plots.shapes import Kind, Place
from leaderboard.plots.ticks import YEARS, ticks

LARGEST = 1e100
"""A number beyond this is a mistake; one nearer to 0 than its inverse is 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Values from `low` to `high` laid from `start` to `end`, in units of the picture."""

    kind: Kind
    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Where a value lies; outside of `low` to `high` it lies outside."""
        low, high = (math.log(v) if self.kind == "log" else v for v in (self.low, self.high))
        here = math.log(value) if self.kind == "log" else value
        return self.start + (here - low) / (high - low) * (self.end - self.start)


def number(value: Place, kind: Kind) -> float | None:
    """A value as a number that an axis can hold; None where it cannot.

    >>> number(float("nan"), "linear"), number(0, "log"), number(3, "log"), number(3, "date")
    (None, None, 3.0, None)
    """
    if value is None or (kind == "date") != isinstance(value, date):
        return None
    if isinstance(value, date):
        return float(value.toordinal()) if value.year in YEARS else None
    found = float(value)
    if not math.isfinite(found) or abs(found) > LARGEST:
        return None
    if kind == "log":
        return found if found >= 1 / LARGEST else None
    return found if abs(found) >= 1 / LARGEST else 0.0


def laid_out(
    values: Iterable[float], kind: Kind, *, start: float, end: float, most: int = 6, zero: bool = False
) -> Scale:
    """The scale that holds all of these and ends at round numbers.

    Args:
        values: At least one; as `number` gives them.
        kind: The axis.
        start: Where its low end lies.
        end: Where its high end lies.
        most: How many ticks at most.
        zero: Whether it holds 0 as well.
    """
    every = [*values, 0.0] if zero else [*values]
    low, high = _apart(min(every), max(every), kind)
    found = ticks(low, high, kind, max(3, most))
    return Scale(
        kind=kind,
        low=min(low, found[0]),
        high=max(high, found[-1]),
        start=start,
        end=end,
        ticks=tuple(found),
    )


def _apart(low: float, high: float, kind: Kind) -> tuple[float, float]:
    """Bounds that differ: around one value some room is made."""
    if kind == "date":
        return (low, high) if high - low >= 3 else (low - 15, high + 15)
    if high - low > max(abs(low), abs(high)) * 1e-9:
        return low, high
    if kind == "log":
        return low / 2, high * 2
    room = max(abs(low), abs(high)) * 0.05 or 1.0
    return low - room, high + room
