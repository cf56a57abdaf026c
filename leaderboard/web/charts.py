"""SVG as text: elements with everything escaped, and the words that go into them."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from importlib.util import find_spec
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias
from unicodedata import east_asian_width
from urllib.parse import urlsplit

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

FONT = 12
COLOURS = 6
"""Series with a colour of their own; what is beyond shares one."""

_UNUSABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_NARROW, _BROAD = frozenset("iIjltfr.,:;'|!()[]/ "), frozenset("mwMW@%")


def element(name: str, *children: str, **attributes: object) -> Markup:
    """An element; text that is no Markup is escaped.

    `class_` is the attribute class, `stroke_width` is stroke-width; an attribute of None or "" is left out.

    >>> element("text", "a < b", x=1.50, class_="plot-text")
    Markup('<text x="1.5" class="plot-text">a &lt; b</text>')
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    inside = "".join(c if isinstance(c, Markup) else escape(clean(c)) for c in children)
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>")


def _value(value: object) -> str:
    return _short(value) if isinstance(value, float) else str(escape(clean(str(value))))


def _short(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def clean(text: str) -> str:
    """Text that XML can hold, on one line."""
    return _UNUSABLE.sub("\ufffd", text).replace("\r", " ").replace("\n", " ").replace("\t", " ")


def joined(parts: Iterable[Markup]) -> Markup:
    """Elements one after another."""
    return Markup("").join(parts)


def group(class_: str, parts: Iterable[Markup], **attributes: object) -> Markup:
    """Elements under one class; nothing for no elements."""
    inside = joined(parts)
    return element("g", inside, class_=class_, **attributes) if inside else Markup("")


def linked(inside: Markup, *, href: str, name: str, focusable: bool = True) -> Markup:
    """Something to point at, with a tooltip; a link where there is somewhere to go."""
    title = element("title", name)
    target = safe(href)
    if not target:
        return element("g", title, inside)
    return element("a", title, inside, href=target, tabindex=None if focusable else "-1")


def safe(href: str) -> str:
    r"""The address, or nothing where following it could run code.

    >>> safe("/models/a"), safe("java\nscript:alert(1)")
    ('/models/a', '')
    """
    try:
        scheme = urlsplit(href.strip()).scheme
    except ValueError:
        return ""
    return href if scheme in ("", "http", "https") else ""


def path(corners: Sequence[tuple[float, float]], *, closed: bool = False) -> str:
    """The `d` of a path through these."""
    return "M" + "L".join(f"{_short(x)},{_short(y)}" for x, y in corners) + ("Z" if closed else "")


def colour(place: int) -> str:
    """The class of the series at a place, from 0."""
    return f"series-{place + 1}" if place < COLOURS else "series-other"


def wide(text: str, size: float = FONT) -> float:
    """About how wide a text is; rather too wide."""
    return size * sum(map(_em, text))


def _em(letter: str) -> float:
    if letter in _NARROW:
        return 0.36
    if letter in _BROAD:
        return 0.95
    if east_asian_width(letter) in "WF":
        return 1.05
    return 0.7 if letter.isupper() else 0.6


def shortened(text: str, room: float, size: float = FONT) -> str:
    """The text, or its two ends where it is too wide for the room.

    >>> shortened("organisation/model-with-a-long-name-v2", 120)
    'organisa…name-v2'
    """
    text = clean(text)
    if wide(text, size) <= room:
        return text
    kept = min(len(text), int(room / size / 0.36))
    while kept > 2 and wide(text[: kept - kept // 2] + "…" + text[-(kept // 2) :], size) > room:
        kept -= 1
    return text[: kept - kept // 2] + "…" + (text[-(kept // 2) :] if kept > 1 else "")


Number: TypeAlias = "float | int | None"
Place: TypeAlias = "float | int | date | None"
Kind = Literal["linear", "log", "date"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        label: What it measures, with its unit.
        kind: How values are laid out; values of a `date` axis are dates.
    """

    label: str
    kind: Kind = "linear"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One point of a scatter.

    Attributes:
        label: Its name.
        x: None and what is not finite are left out, and so is y.
        y: Higher is better.
        y_low: The interval's lower end; None for no interval.
        y_high: The interval's upper end.
        href: Where it leads; empty for nowhere.
        series: The group that gives its colour and its marker.
        emphasised: Whether it is drawn larger and always named.
        hollow: Whether it is drawn as an outline and is never on the frontier: what is not comparable.
        note: A sentence for its tooltip.
    """

    label: str
    x: Place
    y: Number
    y_low: Number = None
    y_high: Number = None
    href: str = ""
    series: str = ""
    emphasised: bool = False
    hollow: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """Points, and the frontier of those that no other beats on both axes.

    Attributes:
        title: The picture's accessible name.
        x: The axis of what a score costs, or of when it came.
        y: The axis of the score.
        points: In any order.
        better: Which x is better; None draws no frontier.
        series: The order of the groups; those it lacks follow in order of appearance.
        desc: A sentence for those who cannot see it; what is counted is added.
    """

    title: str
    x: Axis
    y: Axis
    points: Sequence[Point]
    better: Better | None = "lower"
    series: Sequence[str] = ()
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BarSeries:
    """One model's bars: `values`, and `low` and `high` where given, have one item for each category."""

    label: str
    values: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Horizontal bars in groups: a group for each category, in it a bar for each series (2 to 6)."""

    title: str
    axis: Axis
    categories: Sequence[str]
    series: Sequence[BarSeries]
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RadarSeries:
    """One model's outline: a value for each axis."""

    label: str
    values: Sequence[Number]
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Radar:
    """Outlines over three axes or more that share one scale.

    Attributes:
        title: The picture's accessible name.
        axes: The spokes' names, clockwise from the top.
        series: 2 to 6 of them.
        low: The value at the centre; None takes a round number below the data.
        high: The value at the rim; None takes a round number above the data.
        desc: A sentence for those who cannot see it.
    """

    title: str
    axes: Sequence[str]
    series: Sequence[RadarSeries]
    low: float | None = None
    high: float | None = None
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A named value in a distribution."""

    label: str
    value: Number
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """All scores of a task; up to six of them named. `marks` are among `values`, not beside them."""

    title: str
    axis: Axis
    values: Sequence[Number]
    marks: Sequence[Mark] = ()
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePoint:
    """One point of a curve; the band lies between `low` and `high` where both are given."""

    x: Place
    y: Number
    low: Number = None
    high: Number = None
    href: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One curve; its points are joined in order of x and broken where y is missing."""

    label: str
    points: Sequence[LinePoint]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """Curves over one x axis: a loss against steps, a score against learning rates.

    `marks` are places on x with a word for each, drawn as upright lines.
    """

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    marks: Sequence[tuple[float, str]] = ()
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tone:
    """What a group of points has in common: its name, the place of its marker, the class of its colour."""

    label: str
    place: int
    colour: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackPoint:
    """One point of a track.

    Attributes:
        label: Its name.
        x: On a `date` axis a date's ordinal, with the part of the day; None is left out.
        y: Likewise.
        low: The interval's lower end, None for no interval.
        high: The interval's upper end.
        tone: Which of the track's tones it has.
        hollow: Whether it is an outline that no line leads to: what is not comparable.
        href: Where it leads.
        note: What else is said of it.
    """

    label: str
    x: Number
    y: Number
    low: Number = None
    high: Number = None
    tone: int = 0
    hollow: bool = False
    href: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """Points one after another, with their intervals: verdicts over time, scores over steps.

    Attributes:
        title: The picture's accessible name.
        x: Time, or steps.
        y: What is followed.
        points: In any order.
        tones: The groups that there may be.
        band: From where to where y does not count, drawn behind the points; None for none.
        band_label: What it is.
        marks: Places on x with a word for each, drawn as upright lines.
        joined: Whether a line leads from point to point.
        desc: A sentence for those who cannot see it; what is counted is added.
    """

    title: str
    x: Axis
    y: Axis
    points: Sequence[TrackPoint]
    tones: Sequence[Tone]
    band: tuple[float, float] | None = None
    band_label: str = ""
    marks: Sequence[tuple[float, str]] = ()
    joined: bool = False
    desc: str = ""


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
    all_paths = [float(f"{m}e{e}") for e in exponents for m in mantissas]
    first = max(v for v in all_paths if v <= low)
    last = min(v for v in all_paths if v >= high)
    return [v for v in all_paths if first <= v <= last]


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
    all_paths = [*values, 0.0] if zero else [*values]
    low, high = _apart(min(all_paths), max(all_paths), kind)
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


POLYGONS = (
    ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)),
    ((0.0, -1.35), (1.35, 0.0), (0.0, 1.35), (-1.35, 0.0)),
    ((0.0, -1.25), (1.25, 1.0), (-1.25, 1.0)),
    ((0.0, 1.25), (1.25, -1.0), (-1.25, -1.0)),
    ((-1.3, -0.45), (1.3, -0.45), (1.3, 0.45), (-1.3, 0.45)),
)
"""Square, diamond, triangle up, triangle down, bar; the first series has a circle."""


def marker(place: int, x: float, y: float, size: float) -> Markup:
    """The marker of the series at a place; beyond the last colour all are circles."""
    if not 0 < place < COLOURS:
        return element("circle", cx=x, cy=y, r=size)
    corners = [(x + size * right * 0.9, y + size * down * 0.9) for right, down in POLYGONS[place - 1]]
    return element("path", d=path(corners, closed=True))


Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom."""

Anchor = Literal["start", "middle", "end"]
HEIGHT = FONT * 1.15
DISTANCES = (8.0, 16.0, 28.0, 44.0, 64.0)
FAR = 20.0
"""A name beyond this is tied to its point by a line."""


NEAR, CLEAR = 28.0, 1
"""How far off a name that is no must may lie, and how much it may cover."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Name:
    """A name and its point; a `must` may lie far off and cover other points."""

    text: str
    x: float
    y: float
    must: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A name and the box it fills; `anchor` and `x` say how it is written there."""

    text: str
    x: float
    box: Box
    anchor: Anchor
    point: tuple[float, float]
    distance: float


def place(names: Sequence[Name], *, inside: Box, hard: Sequence[Box], soft: Sequence[Box]) -> list[Placed]:
    """Places for names, the first ones first; a name for which there is no room is left out.

    Args:
        names: The most important first.
        inside: What no name leaves.
        hard: What no name covers.
        soft: What a name covers only if it must.
    """
    taken = [*hard]
    ground = np.asarray(soft, dtype=np.float64).reshape(-1, 4)
    found: list[Placed] = []
    for name in names:
        blocked = np.asarray(taken, dtype=np.float64).reshape(-1, 4)
        best = _best(name, inside, blocked, ground)
        if best is not None:
            found.append(best)
            taken.append(best.box)
    return found


def _best(
    name: Name, inside: Box, blocked: NDArray[np.float64], ground: NDArray[np.float64]
) -> Placed | None:
    free = (
        (_covers(one.box, ground), one)
        for one in _places(name)
        if _within(one.box, inside) and not _covers(one.box, blocked)
    )
    fair = [(n, one) for n, one in free if name.must or (n <= CLEAR and one.distance <= NEAR)]
    return min(fair, key=lambda two: two[0] + two[1].distance / 12, default=(0, None))[1]


def _places(name: Name) -> Iterator[Placed]:
    text, x, y = name.text, name.x, name.y
    width, half = wide(text), HEIGHT / 2
    for far in DISTANCES:
        near = far * 0.75
        spots: tuple[tuple[float, float, Anchor], ...] = (
            (far, 0, "start"),
            (-far, 0, "end"),
            (0, -far - 2, "middle"),
            (0, far + 2, "middle"),
            (near, -near, "start"),
            (-near, -near, "end"),
            (near, near, "start"),
            (-near, near, "end"),
        )
        for right, down, anchor in spots:
            left = x + right - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
            box = (left, y + down - half, left + width, y + down + half)
            yield Placed(text=text, x=x + right, box=box, anchor=anchor, point=(x, y), distance=far)


def _within(box: Box, around: Box) -> bool:
    return box[0] >= around[0] and box[1] >= around[1] and box[2] <= around[2] and box[3] <= around[3]


def _covers(box: Box, others: NDArray[np.float64]) -> int:
    left, top, right, bottom = others.T
    return int(((left < box[2]) & (right > box[0]) & (top < box[3]) & (bottom > box[1])).sum())


def around(x: float, y: float, size: float) -> Box:
    """The box of a marker."""
    return (x - size, y - size, x + size, y + size)


def along(corners: Sequence[tuple[float, float]]) -> list[Box]:
    """Boxes that cover a line of steps."""
    return [
        (min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1) for (a, b), (c, d) in pairwise(corners)
    ]


def drawn(one: Placed) -> Markup:
    """The name, and a line to its point where it lies far off."""
    _, top, _, bottom = one.box
    text = element("text", one.text, x=one.x, y=bottom - 3.4, class_="plot-label", text_anchor=one.anchor)
    if one.distance < FAR:
        return text
    x, y = one.point
    end = (one.x, (top + bottom) / 2) if one.anchor != "middle" else (one.x, bottom if y > bottom else top)
    return (
        element("line", x1=x, y1=y, x2=end[0], y2=end[1], class_="plot-leader", stroke="currentColor") + text
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A point that can be drawn: its numbers, its series' place, and whether it is on the frontier."""

    point: Point
    x: float
    y: float
    place: int
    best: bool

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval's ends, where it has one."""
        low, high = (number(v, "linear") for v in (self.point.y_low, self.point.y_high))
        return None if low is None or high is None else (low, high)

    @property
    def named(self) -> bool:
        """Whether its name stands in the picture."""
        return self.best or self.point.emphasised


def series_of(plot: Scatter) -> list[str]:
    """The groups in order."""
    return list(dict.fromkeys([*plot.series, *(p.series for p in plot.points)]))


def spots(plot: Scatter) -> list[Spot]:
    """The points that can be drawn, as they came."""
    order = {name: i for i, name in enumerate(series_of(plot))}
    usable = [
        (p, x, y)
        for p in plot.points
        if (x := number(p.x, plot.x.kind)) is not None and (y := number(p.y, plot.y.kind)) is not None
    ]
    best = _spots_best(usable, plot.better)
    return [
        Spot(point=p, x=x, y=y, place=order[p.series], best=i in best) for i, (p, x, y) in enumerate(usable)
    ]


def _spots_best(usable: Sequence[tuple[Point, float, float]], better: Better | None) -> set[int]:
    """The places of those on the frontier, which hollow points have no part in."""
    full = [i for i, (point, _, _) in enumerate(usable) if not point.hollow]
    return {full[at] for at in frontier([usable[i][1:] for i in full], better)} if better else set()


def left_out(plot: Scatter) -> list[str]:
    """Sentences about the points that cannot be drawn."""
    said = []
    for axis, values in ((plot.x, [p.x for p in plot.points]), (plot.y, [p.y for p in plot.points])):
        if missing := sum(number(v, axis.kind) is None for v in values):
            what = "no value above 0 (the axis is logarithmic)" if axis.kind == "log" else "no value"
            said.append(f"{missing} of {len(values)} left out, with {what} for “{axis.label}”.")
    return said


def told(plot: Scatter, spot: Spot) -> str:
    """A point's tooltip."""
    ends = spot.ends
    interval = f" [{written(ends[0], digits=4)}, {written(ends[1], digits=4)}]" if ends else ""
    facts = [
        f"{plot.y.label} {written(spot.y, digits=4)}{interval}",
        f"{plot.x.label} {written(spot.x, plot.x.kind, 4)}",
        spot.point.series,
        "on the frontier" * spot.best,
        spot.point.note,
    ]
    return f"{spot.point.label}: " + " · ".join(filter(None, facts))


WIDTH, SMALL = 720, 500
"""A picture's width, and up to which it is a small one."""

LINE = 17.0
"""From one line of text to the next."""


def picture(
    parts: Iterable[Markup], *, title: str, desc: str, width: float, height: float, links: bool = False
) -> Markup:
    """The whole picture.

    What holds links is a group to assistive technology: those do not look for links within an image.
    """
    return element(
        "svg",
        element("title", title),
        element("desc", desc),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {round(width)} {round(height)}",
        width="100%",
        role="group" if links else "img",
        aria_label=title if links else None,
        class_="plot-svg" if width > SMALL else "plot-svg plot-small",
        font_size=FONT,
        fill="currentColor",
    )


def empty(*, title: str, desc: str, why: str, width: float) -> Markup:
    """A picture of nothing that says why."""
    lines = wrapped(why, width - 40)
    box = element("rect", x=1, y=1, width=width - 2, height=118, rx=6, class_="plot-empty", fill="none")
    texts = [
        element("text", line, x=width / 2, y=64 + LINE * i, text_anchor="middle", class_="plot-text")
        for i, line in enumerate(lines)
    ]
    said = f"{desc} {why}".strip()
    return picture([box, *texts], title=title, desc=said, width=width, height=120 + LINE * (len(lines) - 1))


def wrapped(text: str, room: float) -> list[str]:
    """The text in lines that fit."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if wide(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [shortened(line, room) for line in lines]


def sentences(notes: Sequence[str], *, top: float, width: float) -> tuple[Markup, float]:
    """Sentences below a picture, and how high they are."""
    lines = [line for note in notes for line in wrapped(note, width - 8)]
    texts = (
        element("text", line, x=4, y=top + LINE * (i + 1) - 4, class_="plot-note")
        for i, line in enumerate(lines)
    )
    return group("plot-notes", texts), LINE * len(lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One line of a legend: the series at `place`, where its name leads, and the class of another colour."""

    label: str
    place: int
    href: str = ""
    colour: str = ""


def legend(entries: Sequence[Entry], *, width: float) -> tuple[Markup, float]:
    """Names of the series with their markers at the top of a picture, and how high they are."""
    x, y, parts = 4.0, 0.0, []
    for entry in entries:
        text = shortened(entry.label, width - 40)
        room = 18 + wide(text) + 14
        if x > 4 and x + room > width:
            x, y = 4.0, y + LINE + 2
        sign = element("g", marker(entry.place, x + 6, y + 9, 5), class_=entry.colour or colour(entry.place))
        name = sign + element("text", text, x=x + 17, y=y + 13.2, class_="plot-text")
        parts.append(
            linked(name, href=entry.href, name=entry.label) if entry.href or text != entry.label else name
        )
        x += room
    return group("plot-legend", parts), y + LINE + 8 if parts else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Two axes and the room between them."""

    x: Scale
    y: Scale
    x_label: str
    y_label: str

    @property
    def box(self) -> Box:
        """The room between the axes."""
        return (self.x.start, self.y.end, self.x.end, self.y.start)

    def drawn(self, *, lower: float | None = None) -> Markup:
        """Grid, ticks, and the axes' names; `lower` is where the ticks of x stand, if not at the axis."""
        below = self.y.start if lower is None else lower
        return joined([self._grid(), self._below(below), self._beside(), self._names(below)])

    def _grid(self) -> Markup:
        left, top, right, bottom = self.box
        across = [element("line", x1=left, x2=right, y1=self.y.at(v), y2=self.y.at(v)) for v in self.y.ticks]
        down = [element("line", x1=self.x.at(v), x2=self.x.at(v), y1=top, y2=bottom) for v in self.x.ticks]
        axis = element(
            "line", x1=left, x2=right, y1=bottom, y2=bottom, class_="plot-axis", stroke="currentColor"
        )
        return group("plot-grid", across + down, stroke="currentColor", stroke_opacity="0.15") + axis

    def _below(self, bottom: float) -> Markup:
        texts = tick_texts(self.x.ticks, self.x.kind)
        spots = ((self.x.at(v), text) for v, text in zip(self.x.ticks, texts, strict=True))
        return group(
            "plot-tick",
            (element("text", text, x=at, y=bottom + LINE) for at, text in spots),
            text_anchor="middle",
        )

    def _beside(self) -> Markup:
        texts = tick_texts(self.y.ticks, self.y.kind)
        spots = ((self.y.at(v), text) for v, text in zip(self.y.ticks, texts, strict=True))
        return group(
            "plot-tick",
            (element("text", text, x=self.x.start - 8, y=at + 4) for at, text in spots),
            text_anchor="end",
        )

    def _names(self, bottom: float) -> Markup:
        _, top, right, _ = self.box
        x_label, y_label = (shortened(text, right - 8) for text in (self.x_label, self.y_label))
        return element("text", y_label, x=4, y=top - 12, class_="plot-name") + element(
            "text", x_label, x=right, y=bottom + 2 * LINE + 3, class_="plot-name", text_anchor="end"
        )


def upright(
    marks: Sequence[tuple[float, str]],
    axis: Axis,
    frame: Frame,
    kind: str = "plot-mark",
    *,
    low: bool = False,
) -> Iterator[Markup]:
    """Upright lines with their words at the top, or `low`, at the axis.

    A word that another one would cover stands in the line's tooltip alone.
    """
    _, top, right, bottom = frame.box
    free = 0.0
    for x, label in sorted(marks):
        at = frame.x.at(x)
        line = element("line", x1=at, x2=at, y1=top, y2=bottom, class_=kind, stroke="currentColor")
        room = wide(label, 11)
        start = at + 4 if at + 4 + room <= right + 30 else at - 4 - room
        if start >= free:
            line += element("text", label, x=start, y=bottom - 6 if low else top + 10, class_="plot-note")
            free = start + room + 6
        yield linked(line, href="", name=f"{label}: {axis.label} {written(x, axis.kind, 4)}")


ABOVE, BELOW = 28.0, 2 * LINE + 10
"""What a frame needs above and below the room between its axes."""


def framed(
    axes: tuple[Axis, Axis],
    values: tuple[Sequence[float], Sequence[float]],
    *,
    width: float,
    top: float,
    bottom: float,
) -> Frame:
    """A frame that holds these values, from `top` to `bottom` between its axes."""
    x, y = axes
    upright = laid_out(values[1], y.kind, start=bottom, end=top, most=int((bottom - top) / 45))
    left = max(wide(text) for text in tick_texts(upright.ticks, y.kind)) + 12
    level = laid_out(values[0], x.kind, start=left, end=width - 30, most=int((width - left - 30) / 62))
    return Frame(x=level, y=upright, x_label=x.label, y_label=y.label)


THICK, GAP = 13.0, 12.0
"""A bar's height with the room below it, and the room between two groups."""

NARROW = 520
"""Below this a category's name stands above its bars, not beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One bar's numbers, and what is written beside it."""

    text: str
    value: float
    low: float
    high: float


def _bar(series: BarSeries, place: int, texts: Mapping[float, str]) -> Bar | None:
    def at(values: Sequence[Number]) -> float | None:
        return number(values[place], "linear") if place < len(values) else None

    value, low, high = at(series.values), at(series.low), at(series.high)
    if value is None:
        return None
    ends = (low, high) if low is not None and high is not None else (value, value)
    return Bar(text=texts[value], value=value, low=ends[0], high=ends[1])


def bars(plot: Bars, *, width: float = WIDTH) -> Markup:
    """The picture of grouped bars; they start at 0, and a missing value is a dash.

    Raises:
        ValueError: If a series has more or fewer values than there are categories.
    """
    if any(len(s.values) != len(plot.categories) for s in plot.series):
        raise ValueError("every series of a bar plot has one value for each category")
    given = [v for s in plot.series for one in s.values if (v := number(one, "linear")) is not None]
    texts = dict(zip(given, alike(given), strict=True))
    all_paths = [[_bar(s, i, texts) for s in plot.series] for i in range(len(plot.categories))]
    known = [v for row in all_paths for bar in row if bar for v in (bar.value, bar.low, bar.high)]
    if not known:
        why = "Nothing to draw: no model has a value here."
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    return _drawn(plot, all_paths, known, width)


def _drawn(
    plot: Bars, all_paths: Sequence[Sequence[Bar | None]], known: Sequence[float], width: float
) -> Markup:
    head, top = legend(
        [Entry(label=s.label, place=i, href=s.href) for i, s in enumerate(plot.series)], width=width
    )
    beside = min(max(map(wide, plot.categories)) + 14, width * 0.32) if width >= NARROW else 0.0
    below = min(known) < 0
    start, end = beside + (46 if below else 4), width - 52
    scale = laid_out(known, "linear", start=start, end=end, most=int((end - start) / 62), zero=True)
    heading = 0.0 if beside else LINE
    deep = heading + THICK * len(plot.series) + GAP
    bottom = top + deep * len(all_paths)
    groups = (
        _group(plot, i, row, scale, top=top + deep * i, heading=heading) for i, row in enumerate(all_paths)
    )
    notes = ["– no value"] if any(bar is None for row in all_paths for bar in row) else []
    foot, high = sentences(notes, top=bottom + 2 * LINE + 6, width=width)
    parts = [head, _axis(plot, scale, top, bottom, width), *groups, foot]
    height = bottom + 2 * LINE + 8 + high
    links = any(s.href for s in plot.series)
    return picture(parts, title=plot.title, desc=_told(plot), width=width, height=height, links=links)


def _told(plot: Bars) -> str:
    models = ", ".join(s.label for s in plot.series)
    return f"{plot.desc} {len(plot.categories)} groups of bars for {models}.".strip()


def _axis(plot: Bars, scale: Scale, top: float, bottom: float, width: float) -> Markup:
    grid = (element("line", x1=scale.at(v), x2=scale.at(v), y1=top, y2=bottom) for v in scale.ticks)
    zero = element(
        "line", x1=scale.at(0), x2=scale.at(0), y1=top, y2=bottom, class_="plot-axis", stroke="currentColor"
    )
    texts = zip(scale.ticks, tick_texts(scale.ticks, "linear"), strict=True)
    ticks = (element("text", text, x=scale.at(v), y=bottom + LINE - 1) for v, text in texts)
    label = shortened(plot.axis.label, width - 8)
    name = element("text", label, x=scale.end, y=bottom + 2 * LINE, class_="plot-name", text_anchor="end")
    lines = group("plot-grid", grid, stroke="currentColor", stroke_opacity="0.15")
    return joined([lines, zero, group("plot-tick", ticks, text_anchor="middle"), name])


def _group(
    plot: Bars, place: int, row: Sequence[Bar | None], scale: Scale, *, top: float, heading: float
) -> Markup:
    category = plot.categories[place]
    room = scale.end if heading else scale.start - 14
    middle = top + 13 if heading else top + THICK * len(row) / 2 + 4
    name = element("text", shortened(category, room), x=4, y=middle, class_="plot-text")
    shown = (
        _one(bar, i, f"{plot.series[i].label}, {category}", scale, top=top + heading + THICK * i)
        for i, bar in enumerate(row)
    )
    return group("plot-group", [name, *shown])


def _one(bar: Bar | None, place: int, name: str, scale: Scale, *, top: float) -> Markup:
    middle = top + THICK / 2
    if bar is None:
        dash = element("text", "–", x=scale.at(0) + 5, y=middle + 4, class_="plot-value")
        return linked(dash, href="", name=f"{name}: no value")
    return linked(joined(_parts(bar, place, scale, top)), href="", name=f"{name}: {bar.text}{_ends(bar)}")


def _ends(bar: Bar) -> str:
    if not bar.low < bar.high:
        return ""
    return f" [{written(bar.low, digits=4)}, {written(bar.high, digits=4)}]"


def _parts(bar: Bar, place: int, scale: Scale, top: float) -> Iterator[Markup]:
    zero, end, middle = scale.at(0), scale.at(bar.value), top + THICK / 2
    yield element(
        "rect",
        x=min(zero, end),
        y=top + 1,
        width=abs(end - zero),
        height=THICK - 2,
        class_=f"plot-bar {colour(place)}",
    )
    low, high = scale.at(bar.low), scale.at(bar.high)
    if bar.low < bar.high:
        yield element(
            "path", d=path([(low, middle), (high, middle)]), class_="plot-whisker", stroke="currentColor"
        )
    right = bar.value >= 0
    at = max(end, high) + 5 if right else min(end, low) - 5
    yield element(
        "text", bar.text, x=at, y=middle + 4, class_="plot-value", text_anchor="start" if right else "end"
    )


HIGH, STRIP = 170.0, 40.0
"""How high the histogram is, and the strip with the quartiles below it."""


def bins(values: Sequence[float]) -> tuple[list[float], list[int]]:
    """Round edges and how many values lie from each to below the next (the last edge counts in).

    The bins are as wide as Freedman and Diaconis advise, 2 × the quartiles' distance ÷ the cube root
    of the count, but 8 to 40 of them are aimed at; round edges make them a few more or less.

    >>> bins([1, 1, 2, 9])[1]
    [2, 1, 0, 0, 0, 0, 0, 1]
    """
    low, high = min(values), max(values)
    if high - low <= max(abs(low), abs(high)) * 1e-9:
        room = max(abs(low), abs(high)) * 0.05 or 1.0
        low, high = low - room, high + room
    q1, q3 = np.quantile(values, (0.25, 0.75))
    width = 2 * float(q3 - q1) / len(values) ** (1 / 3)
    wanted = (high - low) / width if width > (high - low) / 40 else 40 if width else 8
    edges = ticks(low, high, "linear", round(1.5 * min(max(wanted, 8), 40)))
    counts = [0] * (len(edges) - 1)
    for value in values:
        counts[min(max(bisect_right(edges, value) - 1, 0), len(counts) - 1)] += 1
    return edges, counts


def distribution(plot: Distribution, *, width: float = WIDTH) -> Markup:
    """The picture of a distribution; a value that is missing or not finite is left out and counted."""
    values = [v for one in plot.values if (v := number(one, "linear")) is not None]
    missing = len(plot.values) - len(values)
    notes = [f"{missing} of {len(plot.values)} left out, without a value."] if missing else []
    if not values:
        why = " ".join(["Nothing to draw: there are no scores.", *notes])
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    marks = [(m, i, v) for i, m in enumerate(plot.marks) if (v := number(m.value, "linear")) is not None]
    notes += [f"{m.label}: no value." for m in plot.marks if number(m.value, "linear") is None]
    return _distribution_plot_drawn(plot, values, marks, notes, width)


def _distribution_plot_drawn(
    plot: Distribution,
    values: Sequence[float],
    marks: Sequence[tuple[Mark, int, float]],
    notes: Sequence[str],
    width: float,
) -> Markup:
    head, top = legend(_entries(marks), width=width)
    edges, counts = bins(values)
    known = [*values, edges[0], edges[-1], *(v for _, _, v in marks)]
    bottom = top + ABOVE + HIGH
    frame = _frame(plot, known, counts, top=top + ABOVE, width=width)
    quartiles = [float(q) for q in np.quantile(values, (0.25, 0.5, 0.75))]
    said = [_distribution_plot_told(quartiles, len(values)), *notes]
    foot, high = sentences(said, top=bottom + STRIP + BELOW - 4, width=width)
    data = [
        group("plot-bars", _bars(edges, counts, frame), fill_opacity="0.35"),
        _strip(values, frame, bottom),
        _box(quartiles, len(values), frame, bottom),
        joined(_mark(plot, m, i, v, frame, bottom) for m, i, v in marks),
    ]
    return picture(
        [head, frame.drawn(lower=bottom + STRIP), *data, foot],
        title=plot.title,
        desc=" ".join(filter(None, [plot.desc, *said])),
        width=width,
        height=bottom + STRIP + BELOW + high,
        links=any(m.href for m, _, _ in marks),
    )


def _distribution_plot_told(quartiles: Sequence[float], count: int) -> str:
    low, middle, high = (written(q, digits=4) for q in quartiles)
    return f"Quartiles {low} and {high}; median {middle}; {count} scores."


def _entries(marks: Sequence[tuple[Mark, int, float]]) -> list[Entry]:
    return [Entry(label=f"{m.label} · {written(v, digits=4)}", place=i, href=m.href) for m, i, v in marks]


def _frame(
    plot: Distribution, known: Sequence[float], counts: Sequence[int], *, top: float, width: float
) -> Frame:
    bottom = top + HIGH
    upright = laid_out([0, max(counts)], "linear", start=bottom, end=top, most=5)
    whole = tuple(t for t in upright.ticks if t == round(t))
    upright = replace(upright, ticks=whole)
    left = max(wide(written(t)) for t in whole) + 12
    level = laid_out(known, "linear", start=left, end=width - 20, most=int((width - left) / 55))
    return Frame(x=level, y=upright, x_label=plot.axis.label, y_label="Models")


def _bars(edges: Sequence[float], counts: Sequence[int], frame: Frame) -> Iterator[Markup]:
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            left, right, top = frame.x.at(low), frame.x.at(high), frame.y.at(count)
            bar = element(
                "rect",
                x=left + 0.5,
                y=top,
                width=max(right - left - 1, 0.5),
                height=frame.y.start - top,
                class_="plot-bin",
            )
            name = f"{count} from {written(low)} to {written(high)}"
            yield linked(bar, href="", name=name)


def _strip(values: Sequence[float], frame: Frame, bottom: float) -> Markup:
    spots = sorted({round(frame.x.at(v), 1) for v in values})
    d = "".join(path([(x, bottom + 5), (x, bottom + 15)]) for x in spots)
    return element("path", d=d, class_="plot-strip", stroke="currentColor", stroke_opacity="0.5")


def _box(quartiles: Sequence[float], count: int, frame: Frame, bottom: float) -> Markup:
    low, middle, high = (frame.x.at(q) for q in quartiles)
    box = element(
        "rect",
        x=low,
        y=bottom + 20,
        width=max(high - low, 1),
        height=12,
        class_="plot-quartiles",
        stroke="currentColor",
        fill_opacity="0.15",
    )
    line = element(
        "path",
        d=path([(middle, bottom + 18), (middle, bottom + 34)]),
        class_="plot-median",
        stroke="currentColor",
    )
    return linked(box + line, href="", name=_distribution_plot_told(quartiles, count))


def _mark(plot: Distribution, mark: Mark, place: int, value: float, frame: Frame, bottom: float) -> Markup:
    x, top = frame.x.at(value), frame.y.end
    stem = element("path", d=path([(x, top), (x, bottom + 15)]), class_="plot-stem", stroke="currentColor")
    sign = element("g", stem, marker(place, x, top, 5), class_=f"plot-mark {colour(place)}")
    return linked(sign, href=mark.href, name=f"{mark.label}: {plot.axis.label} {written(value, digits=4)}")


MARKED, DENSE, KEPT = 60, 200, 600
"""Points up to which a curve has markers, beyond which its line is thin, and that it keeps at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePlotSpot:
    """A point with its numbers; y is None where the curve is broken."""

    point: LinePoint
    x: float
    y: float | None
    low: float | None
    high: float | None


def _spots(plot: Lines, line: Line) -> list[LinePlotSpot]:
    found = []
    for p in line.points:
        x = number(p.x, plot.x.kind)
        y, low, high = (number(v, plot.y.kind) for v in (p.y, p.low, p.high))
        if low is None or high is None:
            low = high = None
        if x is not None:
            found.append(LinePlotSpot(point=p, x=x, y=y, low=low, high=high))
    return thinned(sorted(found, key=lambda s: s.x))


def thinned(spots: Sequence[LinePlotSpot], most: int = KEPT) -> list[LinePlotSpot]:
    """A long curve's shape: of each stretch of it the first, the least, the greatest, and every break."""
    if len(spots) <= most:
        return [*spots]
    size = -(-len(spots) * 3 // most)
    kept: list[LinePlotSpot] = []
    for start in range(0, len(spots), size):
        part = spots[start : start + size]
        here = [(s.y, i) for i, s in enumerate(part) if s.y is not None]
        chosen = {0, *((min(here)[1], max(here)[1]) if here else ())}
        broken = [i for i in range(1, len(part)) if part[i].y is None and part[i - 1].y is not None]
        kept += [part[i] for i in sorted({*chosen, *broken})]
    return kept if kept[-1] is spots[-1] else [*kept, spots[-1]]


def lines(plot: Lines, *, width: float = WIDTH) -> Markup:
    """The picture of curves; a point without a place on an axis is left out and counted."""
    curves = [_spots(plot, line) for line in plot.lines]
    notes = _left_out(plot)
    shown = [s for curve in curves for s in curve if s.y is not None]
    if not shown:
        why = " ".join(["Nothing to draw: there are no values.", *notes])
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    entries = [Entry(label=line.label, place=i) for i, line in enumerate(plot.lines)]
    head, top = legend(entries if len(entries) > 1 else [], width=width)
    bottom = top + ABOVE + max(220.0, min(width * 0.42, 300))
    places = [(x, label) for at, label in plot.marks if (x := number(at, plot.x.kind)) is not None]
    values = (
        [*(s.x for s in shown), *(x for x, _ in places)],
        [v for s in shown for v in (s.y, s.low, s.high) if v is not None],
    )
    frame = framed((plot.x, plot.y), values, width=width, top=top + ABOVE, bottom=bottom)
    drawn = (_curve(plot, i, curve, frame) for i, curve in enumerate(curves))
    foot, high = sentences(notes, top=bottom + BELOW, width=width)
    told = ", ".join(line.label for line in plot.lines)
    marked = [f"{label} at {written(x, plot.x.kind, 4)}." for x, label in places]
    curves_of = f"Curves of {told}: {plot.y.label} against {plot.x.label}."
    desc = " ".join(filter(None, [plot.desc, curves_of, *marked, *notes]))
    return picture(
        [head, frame.drawn(), *upright(places, plot.x, frame, "plot-choice", low=True), *drawn, foot],
        title=plot.title,
        desc=desc,
        width=width,
        height=bottom + BELOW + high,
        links=any(p.href for line in plot.lines for p in line.points),
    )


def _left_out(plot: Lines) -> list[str]:
    points = [p for line in plot.lines for p in line.points]
    said = []
    for axis, values in ((plot.x, [p.x for p in points]), (plot.y, [p.y for p in points])):
        if missing := sum(number(v, axis.kind) is None for v in values):
            what = "no value above 0 (the axis is logarithmic)" if axis.kind == "log" else "no value"
            said.append(f"{missing} of {len(values)} points left out, with {what} for “{axis.label}”.")
    return said


def _runs(curve: Sequence[LinePlotSpot]) -> Iterator[list[LinePlotSpot]]:
    for there, run in groupby(curve, key=lambda s: s.y is not None):
        if there:
            yield list(run)


def _curve(plot: Lines, place: int, curve: Sequence[LinePlotSpot], frame: Frame) -> Markup:
    parts = [_band(run, frame) for run in _runs(curve)]
    joins = (element("path", d=path([_at(s, frame) for s in run])) for run in _runs(curve) if len(run) > 1)
    parts.append(
        group(
            "plot-line plot-dense" if len(curve) > DENSE else "plot-line",
            joins,
            stroke="currentColor",
            fill="none",
        )
    )
    alone = {id(run[0]) for run in _runs(curve) if len(run) == 1}
    shown = [s for s in curve if s.y is not None]
    dots = (
        linked(marker(place, *_at(s, frame), 3.4), href=s.point.href, name=_line_plot_told(plot, place, s))
        for s in shown
        if len(shown) <= MARKED or id(s) in alone or s.point.href
    )
    return group(colour(place), [*parts, joined(dots)])


def _band(run: Sequence[LinePlotSpot], frame: Frame) -> Markup:
    there = [
        (frame.x.at(s.x), frame.y.at(s.low), frame.y.at(s.high))
        for s in run
        if s.low is not None and s.high is not None
    ]
    if len(there) < 2:
        return Markup("")
    corners = [(x, low) for x, low, _ in there] + [(x, high) for x, _, high in reversed(there)]
    return element(
        "path", d=path(corners, closed=True), class_="plot-band", stroke="none", fill_opacity="0.15"
    )


def _at(spot: LinePlotSpot, frame: Frame) -> tuple[float, float]:
    return frame.x.at(spot.x), frame.y.at(spot.y if spot.y is not None else frame.y.low)


def _line_plot_told(plot: Lines, place: int, spot: LinePlotSpot) -> str:
    y = written(spot.y or 0.0, digits=4)
    interval = ""
    if spot.low is not None and spot.high is not None:
        interval = f" [{written(spot.low, digits=4)}, {written(spot.high, digits=4)}]"
    facts = [
        f"{plot.y.label} {y}{interval}",
        f"{plot.x.label} {written(spot.x, plot.x.kind, 4)}",
        spot.point.note,
    ]
    return f"{plot.lines[place].label}: " + " · ".join(filter(None, facts))


LEAST = 3
BESIDE = 112.0
"""What the names beside the web take."""


def radar(plot: Radar, *, width: float = 480) -> Markup:
    """The picture of a radar; an outline is broken where a value is missing.

    Raises:
        ValueError: If a series has more or fewer values than there are axes, or `high` is not above `low`.
    """
    if any(len(s.values) != len(plot.axes) for s in plot.series):
        raise ValueError("every series of a radar has one value for each axis")
    known = [v for s in plot.series for one in s.values if (v := number(one, "linear")) is not None]
    if len(plot.axes) < LEAST or not known:
        why = (
            "Nothing to draw: a radar needs three axes."
            if known
            else "Nothing to draw: no model has a value here."
        )
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    radius = min(max(width / 2 - BESIDE, 80.0), 170.0)
    return _radar_plot_drawn(plot, _scale(plot, known, radius), known, width)


def _scale(plot: Radar, known: Sequence[float], radius: float) -> Scale:
    low = min(known) if plot.low is None else plot.low
    high = max(known) if plot.high is None else plot.high
    if plot.low is not None and plot.high is not None and not low < high:
        raise ValueError(f"a radar's rim, {high}, must be above its centre, {low}")
    found = laid_out((low, max(low, high)), "linear", start=0, end=radius, most=5)
    low = found.low if plot.low is None else plot.low
    high = found.high if plot.high is None else plot.high
    inner = {t for t in found.ticks if low < t < high}
    return Scale(
        kind="linear", low=low, high=high, start=0, end=radius, ticks=tuple(sorted({low, high, *inner}))
    )


def _radar_plot_drawn(plot: Radar, scale: Scale, known: Sequence[float], width: float) -> Markup:
    head, top = legend(
        [Entry(label=s.label, place=i, href=s.href) for i, s in enumerate(plot.series)], width=width
    )
    web = Web(x=width / 2, y=top + scale.end + 36, spokes=len(plot.axes), scale=scale)
    bottom = web.y + scale.end + 26
    notes = _notes(plot, scale, known)
    foot, high = sentences(notes, top=bottom, width=width)
    shapes = (_outline(plot, s, i, web) for i, s in enumerate(plot.series))
    desc = " ".join(filter(None, [plot.desc, f"{len(plot.axes)} axes.", *notes]))
    return picture(
        [head, web.drawn(plot.axes, width), *shapes, web.values(), foot],
        title=plot.title,
        desc=desc,
        width=width,
        height=bottom + high + 6,
        links=any(s.href for s in plot.series),
    )


def _notes(plot: Radar, scale: Scale, known: Sequence[float]) -> list[str]:
    notes = [f"Centre {written(scale.low)}, rim {written(scale.high)}."]
    if outside := sum(not scale.low <= v <= scale.high for v in known):
        notes.append(f"{outside} beyond the scale, drawn at its end.")
    if missing := sum(number(v, "linear") is None for s in plot.series for v in s.values):
        notes.append(f"{missing} missing: the outline is broken there.")
    return notes


@dataclass(frozen=True, kw_only=True, slots=True)
class Web:
    """Spokes and rings around a centre."""

    x: float
    y: float
    spokes: int
    scale: Scale

    def at(self, spoke: int, value: float) -> tuple[float, float]:
        """Where a value of a spoke lies; beyond the scale it lies at its end."""
        far = self.scale.at(min(max(value, self.scale.low), self.scale.high))
        return self.out(spoke, far)

    def out(self, spoke: int, far: float) -> tuple[float, float]:
        """The place on a spoke so far from the centre."""
        angle = 2 * math.pi * spoke / self.spokes
        return self.x + far * math.sin(angle), self.y - far * math.cos(angle)

    def drawn(self, names: Sequence[str], width: float) -> Markup:
        """Rings, and spokes with their names."""
        rings = [
            element("path", d=path([self.at(i, v) for i in range(self.spokes)], closed=True))
            for v in self.scale.ticks[1:]
        ]
        rim = self.scale.high
        spokes = [element("path", d=path([(self.x, self.y), self.at(i, rim)])) for i in range(self.spokes)]
        grid = group("plot-grid", rings + spokes, stroke="currentColor", stroke_opacity="0.15", fill="none")
        return grid + group("plot-text", self._names(names, width))

    def values(self) -> Markup:
        """What stands at each ring; drawn last, on top of the outlines."""
        texts = zip(self.scale.ticks, tick_texts(self.scale.ticks, "linear"), strict=True)
        at = (element("text", text, x=self.x + 3, y=self.y - self.scale.at(v) + 11) for v, text in texts)
        return group("plot-tick plot-ring", at)

    def _names(self, names: Sequence[str], width: float) -> Iterator[Markup]:
        for i, name in enumerate(names):
            x, y = self.out(i, self.scale.end + 14)
            angle = 2 * math.pi * i / self.spokes
            side = math.sin(angle)
            anchor = "middle" if abs(side) < 0.1 else "start" if side > 0 else "end"
            room = width if anchor == "middle" else width - x if side > 0 else x
            lines = wrapped(name, room - 4)[:2]
            first = y + 4 - LINE * (len(lines) - 1) * (0.5 + 0.5 * math.cos(angle))
            for down, line in enumerate(lines):
                yield element("text", line, x=x, y=first + LINE * down, text_anchor=anchor)


def _outline(plot: Radar, series: RadarSeries, place: int, web: Web) -> Markup:
    values = [number(v, "linear") for v in series.values]
    corners = [None if v is None else web.at(i, v) for i, v in enumerate(values)]
    dots = (
        linked(marker(place, *corner, 3.6), href="", name=f"{series.label}, {name}: {written(v, digits=4)}")
        for corner, name, v in zip(corners, plot.axes, values, strict=True)
        if corner is not None and v is not None
    )
    whole = [c for c in corners if c is not None]
    area = (
        element("path", d=path(whole, closed=True), class_="plot-area", stroke="none", fill_opacity="0.08")
        if len(whole) == len(corners)
        else Markup("")
    )
    sides = (
        element("path", d=path([a, b]))
        for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)
        if a is not None and b is not None
    )
    outline = group("plot-line", sides, stroke="currentColor", fill="none")
    return group(colour(place), [area, outline, joined(dots)])


FEW = 40
"""Up to so many points all are reached by the keyboard; beyond, only those that are named."""


def scatter(plot: Scatter, *, width: float = WIDTH) -> Markup:
    """The picture of a scatter; `width` is in units of the text, 360 for a phone.

    Points that have no place are counted in a sentence. Only the frontier and emphasised points are
    named, as far as there is room; every point has its name and values in a tooltip.
    """
    all_paths, notes = spots(plot), left_out(plot)
    if not all_paths:
        why = (
            " ".join(["Nothing to draw.", *notes]) if plot.points else "Nothing to draw: there are no points."
        )
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    top_part, top = legend(_scatter_plot_entries(plot, all_paths), width=width)
    bottom = top + ABOVE + max(240.0, min(width * 0.5, 360))
    heights = [v for s in all_paths for v in (s.y, *(s.ends or ()))]
    values = ([s.x for s in all_paths], [v for v in heights if number(v, plot.y.kind) is not None])
    frame = framed((_with_hint(plot), plot.y), values, width=width, top=top + ABOVE, bottom=bottom)
    below, high = sentences(notes, top=bottom + BELOW, width=width)
    parts = [top_part, frame.drawn(), *_data(plot, all_paths, frame), below]
    desc = " ".join(filter(None, [plot.desc, _scatter_plot_told(plot, all_paths), *notes]))
    return picture(
        parts, title=plot.title, desc=desc, width=width, height=bottom + BELOW + high, links=_links(all_paths)
    )


def _links(all_paths: Sequence[Spot]) -> bool:
    return any(s.point.href for s in all_paths)


def _scatter_plot_entries(plot: Scatter, all_paths: Sequence[Spot]) -> list[Entry]:
    used = {s.place for s in all_paths}
    names = [(i, name) for i, name in enumerate(series_of(plot)) if i in used]
    return [Entry(label=name or "other", place=i) for i, name in names] if len(names) > 1 else []


def _with_hint(plot: Scatter) -> Axis:
    hint = {"lower": "← better · ", "higher": "", None: ""}[plot.better]
    after = " · better →" if plot.better == "higher" else ""
    return plot.x if plot.x.kind == "date" else Axis(label=hint + plot.x.label + after, kind=plot.x.kind)


def _scatter_plot_told(plot: Scatter, all_paths: Sequence[Spot]) -> str:
    best = sorted((s for s in all_paths if s.best), key=lambda s: s.x)
    names = ", ".join(f"{s.point.label} ({written(s.y, digits=4)})" for s in best[:10])
    more = f" and {len(best) - 10} more" if len(best) > 10 else ""
    return f"{len(all_paths)} points." + (f" On the frontier: {names}{more}." if best else "")


def _data(plot: Scatter, all_paths: Sequence[Spot], frame: Frame) -> Iterator[Markup]:
    corners = _corners(plot, all_paths, frame)
    if corners:
        yield element("path", d=path(corners), class_="plot-frontier", fill="none", stroke="currentColor")
    yield group("plot-intervals", (_interval(s, frame) for s in all_paths if s.ends), stroke="currentColor")
    last = sorted(all_paths, key=lambda s: (s.point.emphasised, s.best))
    yield group("plot-points", (_point(plot, s, frame, len(all_paths)) for s in last))
    yield _names(all_paths, frame, corners)


def _corners(plot: Scatter, all_paths: Sequence[Spot], frame: Frame) -> list[tuple[float, float]]:
    best = sorted((s.x, s.y) for s in all_paths if s.best)
    if plot.better is None:
        return []
    edge = frame.x.high if plot.better == "lower" else frame.x.low
    return [(frame.x.at(x), frame.y.at(y)) for x, y in steps(best, plot.better, edge=edge)]


def _size(spot: Spot) -> float:
    if spot.point.emphasised:
        return 6.5
    return 5.0 if spot.best else 3.8


def _interval(spot: Spot, frame: Frame) -> Markup:
    x, ends = frame.x.at(spot.x), spot.ends or (spot.y, spot.y)
    low, high = (frame.y.at(v) if number(v, frame.y.kind) is not None else frame.y.start for v in ends)
    return element("path", d=path([(x, low), (x, high)]), class_=f"plot-interval {colour(spot.place)}")


def _point(plot: Scatter, spot: Spot, frame: Frame, count: int) -> Markup:
    point = spot.point
    more = {"plot-best": spot.best, "plot-emphasised": point.emphasised, "plot-hollow": point.hollow}
    kinds = " ".join(["plot-point", colour(spot.place), *(name for name, holds in more.items() if holds)])
    sign = marker(spot.place, frame.x.at(spot.x), frame.y.at(spot.y), _size(spot))
    inside = element("g", sign, class_=kinds)
    focusable = spot.named or count <= FEW
    return linked(inside, href=point.href, name=told(plot, spot), focusable=focusable)


def _names(all_paths: Sequence[Spot], frame: Frame, corners: Sequence[tuple[float, float]]) -> Markup:
    named = sorted((s for s in all_paths if s.named), key=lambda s: (not s.point.emphasised, -s.y, s.x))
    texts = [
        Name(
            text=shortened(s.point.label, 190),
            x=frame.x.at(s.x),
            y=frame.y.at(s.y),
            must=s.point.emphasised,
        )
        for s in named
    ]
    boxes = {s: around(frame.x.at(s.x), frame.y.at(s.y), _size(s)) for s in all_paths}
    hard = [boxes[s] for s in named]
    soft = [boxes[s] for s in all_paths if not s.named] + along(corners)
    left, top, right, bottom = frame.box
    inside = (left + 2, top - 8, right + 28, bottom - 2)
    return group("plot-labels", map(drawn, place(texts, inside=inside, hard=hard, soft=soft)))


TRACK_PLOT_FEW, TRACK_PLOT_MARKED = 60, 200
"""Up to so many points all are reached by the keyboard, and all on a line have a marker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackPlotSpot:
    """A point that can be drawn, with its numbers."""

    point: TrackPoint
    x: float
    y: float
    ends: tuple[float, float] | None


def moment(text: str) -> float | None:
    """An ISO time as a place on a `date` axis: days, in UTC; None of what is none.

    >>> moment("2026-01-02T12:00:00+00:00") - moment("2026-01-01"), moment("today")
    (1.5, None)
    """
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    if time.year not in YEARS:
        return None
    return time.toordinal() + (time.hour * 3600 + time.minute * 60 + time.second) / 86_400


def track(plot: Track, *, width: float = WIDTH) -> Markup:
    """The picture of a track; a point without a place on an axis is left out and counted."""
    shown = sorted(_track_plot_spots(plot), key=lambda spot: spot.x)
    notes = _track_plot_left_out(plot, len(shown))
    if not shown:
        why = " ".join(["Nothing to draw: there are no values.", *notes])
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    head, top = legend(_track_plot_entries(plot, shown), width=width)
    bottom = top + ABOVE + max(220.0, min(width * 0.42, 300))
    heights = [v for s in shown for v in (s.y, *(s.ends or ()))] + [*(plot.band or ())]
    frame = framed(
        (plot.x, plot.y), ([s.x for s in shown], heights), width=width, top=top + ABOVE, bottom=bottom
    )
    below = [f"The band is {plot.band_label}."] if plot.band and plot.band_label else []
    foot, high = sentences([*below, *notes], top=bottom + BELOW, width=width)
    desc = " ".join(filter(None, [plot.desc, f"{len(shown)} points.", *below, *_marked(plot), *notes]))
    return picture(
        [
            head,
            _track_plot_band(plot, frame),
            frame.drawn(),
            *upright(plot.marks, plot.x, frame),
            *_track_plot_data(plot, shown, frame),
            foot,
        ],
        title=plot.title,
        desc=desc,
        width=width,
        height=bottom + BELOW + high,
        links=any(s.point.href for s in shown),
    )


def _track_plot_spots(plot: Track) -> Iterator[TrackPlotSpot]:
    for point in plot.points:
        x, y, low, high = (
            _placed(value, kind)
            for value, kind in (
                (point.x, plot.x.kind),
                *((v, plot.y.kind) for v in (point.y, point.low, point.high)),
            )
        )
        if x is not None and y is not None:
            ends = None if low is None or high is None else (low, high)
            yield TrackPlotSpot(point=point, x=x, y=y, ends=ends)


def _placed(value: Number, kind: Kind) -> float | None:
    return number(value, "linear" if kind == "date" else kind)


def _track_plot_left_out(plot: Track, shown: int) -> list[str]:
    missing = len(plot.points) - shown
    log = ", or none above 0," if "log" in (plot.x.kind, plot.y.kind) else ""
    return [f"{missing} of {len(plot.points)} have no value{log} and are left out."] if missing else []


def _track_plot_entries(plot: Track, shown: Sequence[TrackPlotSpot]) -> list[Entry]:
    used = [tone for at, tone in enumerate(plot.tones) if any(s.point.tone == at for s in shown)]
    named = [Entry(label=tone.label, place=tone.place, colour=tone.colour) for tone in used]
    return named if len(named) > 1 or plot.band else []


def _marked(plot: Track) -> list[str]:
    return [f"{label} at {written(x, plot.x.kind, 4)}." for x, label in plot.marks]


def _track_plot_band(plot: Track, frame: Frame) -> Markup:
    if plot.band is None:
        return Markup("")
    left, _, right, _ = frame.box
    low, high = (frame.y.at(value) for value in plot.band)
    box = element("rect", x=left, y=high, width=right - left, height=low - high, class_="plot-margin")
    middle = frame.y.at(sum(plot.band) / 2)
    line = element("line", x1=left, x2=right, y1=middle, y2=middle, class_="plot-axis", stroke="currentColor")
    return box + line


def _track_plot_data(plot: Track, shown: Sequence[TrackPlotSpot], frame: Frame) -> Iterator[Markup]:
    solid = [_track_plot_at(s, frame) for s in shown if not s.point.hollow]
    if plot.joined and len(solid) > 1:
        joins = element("path", d=path(solid), stroke="currentColor", fill="none")
        yield group(f"plot-line {_colour(plot.tones[0])}", [joins])
    yield group(
        "plot-intervals",
        (_track_plot_interval(plot, s, frame) for s in shown if s.ends),
        stroke="currentColor",
    )
    dots = shown if len(shown) <= TRACK_PLOT_MARKED or not plot.joined else [*_track_plot_apart(shown)]
    yield group("plot-points", (_track_plot_point(plot, s, frame, len(dots)) for s in dots))


def _track_plot_apart(shown: Sequence[TrackPlotSpot]) -> Iterator[TrackPlotSpot]:
    """The points of a long line that have a marker: both ends, and what is not as the others are."""
    ends = (shown[0], shown[-1])
    return (s for s in shown if s.point.tone or s.point.hollow or s in ends)


def _track_plot_at(spot: TrackPlotSpot, frame: Frame) -> tuple[float, float]:
    return frame.x.at(spot.x), frame.y.at(spot.y)


def _colour(tone: Tone) -> str:
    return tone.colour or colour(tone.place)


def _track_plot_interval(plot: Track, spot: TrackPlotSpot, frame: Frame) -> Markup:
    x, (low, high) = frame.x.at(spot.x), spot.ends or (spot.y, spot.y)
    ends = path([(x, frame.y.at(low)), (x, frame.y.at(high))])
    return element("path", d=ends, class_=f"plot-interval {_colour(plot.tones[spot.point.tone])}")


def _track_plot_point(plot: Track, spot: TrackPlotSpot, frame: Frame, count: int) -> Markup:
    tone = plot.tones[spot.point.tone]
    kinds = f"plot-point plot-best {_colour(tone)}{' plot-hollow' if spot.point.hollow else ''}"
    inside = element("g", marker(tone.place, *_track_plot_at(spot, frame), 4.6), class_=kinds)
    return linked(
        inside, href=spot.point.href, name=_track_plot_told(plot, spot), focusable=count <= TRACK_PLOT_FEW
    )


def _track_plot_told(plot: Track, spot: TrackPlotSpot) -> str:
    interval = ""
    if spot.ends:
        interval = " [{}, {}]".format(*(written(value, digits=4) for value in spot.ends))
    facts = [
        f"{plot.y.label} {written(spot.y, digits=4)}{interval}",
        f"{plot.x.label} {written(spot.x, plot.x.kind, 6)}",
        plot.tones[spot.point.tone].label if len(plot.tones) > 1 else "",
        spot.point.note,
    ]
    return f"{spot.point.label}: " + " · ".join(filter(None, facts))


def frontier(points: Sequence[tuple[float, float]], better: Better) -> list[int]:
    """Which points no other beats, in order of x.

    A point beats another if it is at least as good on both axes and better on one. Points alike on
    both stay together. A point that is not a number on an axis is never on the frontier.

    Args:
        points: (x, y) each; y is better the higher.
        better: Which x is better.

    Returns:
        Indices into `points`, by x and then as they came.

    >>> frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "lower")
    [0, 2]
    >>> frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "higher")
    [2]
    """
    sign = 1 if better == "lower" else -1
    usable = [i for i, (x, y) in enumerate(points) if x == x and y == y]
    usable.sort(key=lambda i: (sign * points[i][0], -points[i][1], i))
    found: list[int] = []
    best: float | None = None
    for (_, y), alike in groupby(usable, key=lambda i: points[i]):
        if best is None or y > best:
            best = y
            found += alike
    return sorted(found, key=lambda i: (points[i][0], i))


def steps(
    corners: Sequence[tuple[float, float]], better: Better, *, edge: float
) -> list[tuple[float, float]]:
    """The frontier as a line of steps: the best y within reach at each x.

    Args:
        corners: The frontier's points in order of x.
        better: Which x is better.
        edge: The x where the line ends, beyond the worst of them.

    >>> steps([(1, 10), (3, 30)], "lower", edge=9)
    [(1, 10), (3, 10), (3, 30), (9, 30)]
    >>> steps([(1, 30), (3, 10)], "higher", edge=0)
    [(0, 30), (1, 30), (1, 10), (3, 10)]
    """
    if better == "higher":
        return [
            (-x, y) for x, y in reversed(steps([(-x, y) for x, y in reversed(corners)], "lower", edge=-edge))
        ]
    line: list[tuple[float, float]] = []
    for x, y in corners:
        if line:
            line.append((x, line[-1][1]))
        if not line or line[-1] != (x, y):
            line.append((x, y))
    return [*line, (edge, line[-1][1])] if line and line[-1][0] != edge else line


_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def plotly_file() -> Path:
    """The library's file in the installed package, found without importing it.

    Raises:
        FileNotFoundError: If the package is not installed, or has no such file.
    """
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise FileNotFoundError("the package plotly is not installed, or holds no package_data/plotly.min.js")


def plot_data(plot: Scatter) -> dict[str, Any]:
    """A scatter as plain values: what its picture shows, and no more.

    Groups hold their points in columns: label, href, text (what a reader sees), x, y, low, high, best,
    emphasised, hollow.
    """
    all_paths = spots(plot)
    names = series_of(plot)
    groups = [(i, [s for s in all_paths if s.place == i]) for i in range(len(names))]
    return {
        "title": clean(plot.title),
        "x": _interactive_axis(plot.x),
        "y": _interactive_axis(plot.y),
        "better": plot.better,
        "series": [_series(plot, names[i], i, members) for i, members in groups if members],
        "frontier": _frontier(plot, all_paths),
    }


def _interactive_axis(axis: Axis) -> dict[str, str]:
    return {"label": clean(axis.label), "kind": axis.kind}


def _series(plot: Scatter, name: str, place: int, members: Sequence[Spot]) -> dict[str, Any]:
    return {
        "name": clean(name) or "other",
        "colour": place + 1 if place < COLOURS else 0,
        "label": [clean(s.point.label) for s in members],
        "href": [safe(s.point.href) for s in members],
        "text": [clean(told(plot, s)) for s in members],
        "x": [_interactive_value(s.x, plot.x) for s in members],
        "y": [s.y for s in members],
        "low": [s.ends[0] if s.ends else None for s in members],
        "high": [s.ends[1] if s.ends else None for s in members],
        "best": [s.best for s in members],
        "emphasised": [s.point.emphasised for s in members],
        "hollow": [s.point.hollow for s in members],
    }


def _interactive_value(x: float, axis: Axis) -> float | str:
    return written(x, "date") if axis.kind == "date" else x


def _frontier(plot: Scatter, all_paths: Sequence[Spot]) -> dict[str, list[Any]]:
    if plot.better is None or not all_paths:
        return {"x": [], "y": []}
    edge = (max if plot.better == "lower" else min)(s.x for s in all_paths)
    line = steps(sorted({(s.x, s.y) for s in all_paths if s.best}), plot.better, edge=edge)
    return {"x": [_interactive_value(x, plot.x) for x, _ in line], "y": [y for _, y in line]}


def json_script(data: Mapping[str, Any]) -> Markup:
    r"""A script element that holds data; nothing in it can end the element or begin another.

    >>> json_script({"a": "</script>"})
    Markup('<script type="application/json" class="plot-data">{"a":"\\u003c/script\\u003e"}</script>')
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    inside = Markup(text.translate(_IN_SCRIPT))
    return element("script", inside, type="application/json", class_="plot-data")


def figure(plot: Scatter, *, caption: str = "", width: float = WIDTH) -> Markup:
    """A scatter with what static/plot.js needs to take its place."""
    said = element("figcaption", caption) if caption else Markup("")
    return element(
        "figure",
        said,
        scatter(plot, width=width),
        json_script(plot_data(plot)),
        class_="plot",
        data_plot="scatter",
    )
