"""Round numbers along an axis, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from itertools import count

from leaderboard.plots.shapes import Kind

SLACK = 1e-9
"""The part of a step by which data may pass the last tick: what rounding does to 0.1 * 3."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
YEARS = range(1900, 2200)
"""A date outside of these is a mistake."""


def ticks(low: float, high: float, kind: Kind, most: int = 6) -> list[float]:
    """Round numbers from at most `low` to at least `high`.

    Args:
        low: The least value; above 0 on a log axis, a date's ordinal on a date axis.
        high: The greatest; above `low`.
        kind: The axis.
        most: How many at most, 3 or more.

    >>> ticks(0.12, 0.58, "linear")
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    >>> ticks(3e7, 7e9, "log", most=9)
    [20000000.0, 50000000.0, 100000000.0, 200000000.0, 500000000.0, 1000000000.0, 2000000000.0,\
 5000000000.0, 10000000000.0]
    """
    if kind == "log":
        return _log(low, high, most)
    return _dates(low, high, most) if kind == "date" else _linear(low, high, most)


def _linear(low: float, high: float, most: int) -> list[float]:
    exponent = math.floor(math.log10((high - low) / most))
    for power in count(exponent):
        for factor in (1, 2, 2.5, 5):
            step = factor * 10.0**power
            first, last = math.floor(low / step + SLACK), math.ceil(high / step - SLACK)
            if last - first < most:
                return [round(k * step, max(0, 1 - power)) + 0.0 for k in range(first, last + 1)]
    raise AssertionError("steps grow without end")


def _log(low: float, high: float, most: int) -> list[float]:
    for mantissas in ((1, 2, 5), (1,)):
        found = _covering(low, high, mantissas)
        if len(found) <= most:
            break
    else:
        return _decades(low, high, most)
    if high < 5 * low:
        even = _linear(low, high, most)
        return even if even[0] > 0 else found
    return found


def _covering(low: float, high: float, mantissas: Sequence[int]) -> list[float]:
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = [float(f"{m}e{e}") for e in exponents for m in mantissas]
    first = max(v for v in every if v <= low)
    last = min(v for v in every if v >= high)
    return [v for v in every if first <= v <= last]


def _decades(low: float, high: float, most: int) -> list[float]:
    for step in count(2):
        first = math.floor(math.log10(low) / step) * step
        found = [float(f"1e{e}") for e in range(first, math.ceil(math.log10(high)) + step, step)]
        while len(found) > 2 and found[-2] >= high:
            found.pop()
        if len(found) <= most:
            return found
    raise AssertionError("steps grow without end")


def _dates(low: float, high: float, most: int) -> list[float]:
    for days in (1, 2, 7, 14):
        first, last = math.floor((low - 1) / days), math.ceil((high - 1) / days)
        if last - first < most:
            return [float(k * days + 1) for k in range(first, last + 1)]
    start, end = date.fromordinal(math.floor(low)), date.fromordinal(math.ceil(high))
    for months in (1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400):
        first = (start.year * 12 + start.month - 1) // months
        last = -(-(end.year * 12 + end.month - 1 + (end.day > 1)) // months)
        if last - first < most:
            break
    return [float(date(k * months // 12, k * months % 12 + 1, 1).toordinal()) for k in range(first, last + 1)]


def tick_texts(values: Sequence[float], kind: Kind) -> list[str]:
    """What stands at each tick: as many decimals as the steps need, years alone where all are.

    >>> tick_texts([0.0, 2.5, 5.0], "linear")
    ['0', '2.5', '5']
    >>> tick_texts([1e-05, 2e-05, 1e7], "log")
    ['1e-5', '2e-5', '10M']
    """
    if kind != "date":
        large = max(map(abs, values)) >= 1e4
        return [written(v, thousands=1e3 if large else 1e4) for v in values]
    days = [date.fromordinal(round(v)) for v in values]
    if all((d.month, d.day) == (1, 1) for d in days):
        return [str(d.year) for d in days]
    if all(d.day == 1 for d in days):
        return [f"{MONTHS[d.month - 1]} {d.year}" for d in days]
    return [f"{d.day} {MONTHS[d.month - 1]}" for d in days]


def written(value: float, kind: Kind = "linear", digits: int = 9, thousands: float = 1e4) -> str:
    """A value as people read it.

    Args:
        value: A number, or a date's ordinal.
        kind: Of its axis.
        digits: How many count.
        thousands: From where on thousands are written as k.

    >>> [written(v, digits=4) for v in (52.4149, 149_000_000, 1.2346e9, 0.00002, 0, -3, 4.2e21)]
    ['52.41', '149M', '1.235B', '2e-5', '0', '−3', '4.2e21']
    """
    if kind == "date":
        return date.fromordinal(round(value)).isoformat()
    size = abs(value)
    sign = "−" if value < 0 and size else ""
    if size and not 1e-3 <= size < 1e15:
        mantissa, exponent = f"{size:.{min(digits, 4) - 1}e}".split("e")
        return f"{sign}{_plain(float(mantissa), 4)}e{int(exponent)}"
    for unit, letter in SIZES if size >= thousands else ():
        if size >= unit:
            return f"{sign}{_plain(size / unit, digits)}{letter}"
    return sign + _plain(size, digits)


def alike(values: Sequence[float]) -> list[str]:
    """Values that stand below one another, with the same decimals: 2, or 3 where none reaches 1.

    >>> alike([52, 70.126, -3]), alike([0.5, 0.25])
    (['52.00', '70.13', '−3.00'], ['0.500', '0.250'])
    """
    most = max(map(abs, values), default=0)
    if most >= 1e4 or 0 < most < 1e-3:
        return [written(v, digits=4) for v in values]
    decimals = 2 if most >= 1 else 3
    return [f"{round(v, decimals) + 0.0:.{decimals}f}".replace("-", "−") for v in values]


def _plain(value: float, digits: int) -> str:
    text = f"{float(f'{value:.{digits}g}'):.{digits}f}"
    return text.rstrip("0").rstrip(".")
