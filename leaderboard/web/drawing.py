"""Figures drawn as SVG: points, lines, areas and bars over two axes, at any width without a script.

A figure is data and layout in Plotly's form, as `charts` makes it. Across, places are shares of the width, so
that texts keep their size on a phone; upwards they are pixels. Marks get their colour from the style sheet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from markupsafe import Markup

Json: TypeAlias = "dict[str, Any]"
Box: TypeAlias = "tuple[float, float, float, float]"
"""Left, top, right and bottom, in pixels."""
_Boxed: TypeAlias = "tuple[tuple[Any, Any], Box]"
"""A point by its values, and the box of its marker."""

FRAME = 64
"""Pixels of a figure's height that its axis and its legend take."""
ROOM = 0.05
"""The share of an axis that stays free at both ends."""
DAYS = (1 / 1440, 1 / 288, 1 / 96, 1 / 24, 1 / 8, 1 / 4, 1, 2, 5, 10, 20)
"""Steps between the dates of an axis shorter than three months."""
NARROW, WIDE = 240, 560
"""The plot's width in pixels on a phone and beside a table: names are placed for both."""
LETTER = 6.5
"""The width of a letter of a name in pixels, about."""

SHAPES = {
    "circle": "M{0} 0A{0} {0} 0 1 1-{0} 0A{0} {0} 0 1 1 {0} 0Z",
    "square": "M-{0}-{0}H{0}V{0}H-{0}Z",
    "diamond": "M0-{1}L{1} 0 0 {1}-{1} 0Z",
    "triangle-up": "M0-{1}L{1} {0}H-{1}Z",
    "triangle-down": "M0 {1}L{1}-{0}H-{1}Z",
    "hexagon": "M{0}-{2}V{2}L0 {0}-{0} {2}V-{2}L0-{0}Z",
}
"""The outlines of markers: {0} is the radius, {1} a quarter more, {2} half of it."""


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """An axis: its ends as numbers, and the ticks with their texts."""

    kind: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]] = ()

    def find_share(self, value: Any) -> float:
        """Where a value is between the axis' ends, as a share."""
        return self.find_tick_share(_convert_number(value, self.kind))

    def find_tick_share(self, number: float) -> float:
        """Where a number is that is already on the axis."""
        return (number - self.low) / (self.high - self.low)


@dataclass(frozen=True, kw_only=True)
class _Plane:
    """A figure's axes and the height of its plot in pixels."""

    x: _Scale
    y: _Scale
    height: float

    def place_across(self, value: Any) -> str:
        """A place across, as a share of the width."""
        return format_share(self.x.find_share(value))

    def place_up(self, value: Any) -> float:
        """A place upwards, in pixels from the top."""
        return round(self.height * (1 - self.y.find_share(value)), 1)


def format_share(share: float) -> str:
    """A share as CSS writes it."""
    return f"{100 * share:.2f}%"


def fit_plane(figure: Json) -> _Plane:
    """The axes of a figure, and the height of its plot."""
    data, layout = figure["data"], figure["layout"]
    x, y = (_fit_axis(data, layout, name) for name in ("x", "y"))
    return _Plane(x=x, y=y, height=layout["height"] - FRAME)


def fit_bars(data: Sequence[Json]) -> _Scale:
    """The axis of horizontal bars from 0."""
    values = [v for trace in data for v in trace["x"] if v is not None] or [1.0]
    low, high = min(0.0, *values), max(0.0, *values) or 1.0
    # The longest bar leaves room for its number.
    return _Scale(kind="linear", low=low, high=high + (high - low) * 0.12)


def format_title(hover: str) -> str:
    """The words of a hover as a title, which has no markup."""
    return re.sub(r"</?b>", "", hover).replace("<br>", "\n")


def _convert_number(value: Any, kind: str) -> float:
    """A value on its axis: the logarithm, the days of a date, or the number itself."""
    if kind == "date":
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() / 86_400
    return math.log10(value) if kind == "log" else float(value)


def _fit_axis(data: Sequence[Json], layout: Json, name: str) -> _Scale:
    axis = layout[f"{name}axis"]
    if data and data[0]["type"] == "heatmap":
        marks = [*zip(axis["tickvals"], axis["ticktext"], strict=True)]
        return _Scale(kind="linear", low=0.0, high=float(len({*data[0][name]})), ticks=marks)
    values = [
        _convert_number(value, axis["type"])
        for trace in data
        for value in _list_axis_values(trace, name)
        if value is not None
    ] or [0.0, 1.0]
    low, high = min(values), max(values)
    room = (high - low) * ROOM or abs(high) * ROOM or 1.0
    grounded = name == "y" and any(trace["type"] == "bar" for trace in data)
    low, high = (0.0 if grounded else low - room), high + room
    if "tickvals" in axis:
        ticks = [(math.log10(v), text) for v, text in zip(axis["tickvals"], axis["ticktext"], strict=True)]
    else:
        ticks = list(_TICKS[axis["type"]](low, high))
    return _Scale(
        kind=axis["type"], low=low, high=high, ticks=[tick for tick in ticks if low <= tick[0] <= high]
    )


def _list_axis_values(trace: Json, name: str) -> list[Any]:
    """The values of a trace on an axis, with the ends of its intervals and the edges of its bars."""
    values, bars, width = list(trace[name]), trace.get(f"error_{name}") or {}, trace.get("width")
    if name == "x" and width:
        return [edge for v in values for edge in (v - width / 2, v + width / 2)]
    if bars.get("visible"):
        ends = zip(values, bars["array"], bars["arrayminus"], strict=True)
        values += [end for v, above, below in [*ends] if v is not None for end in (v + above, v - below)]
    return values


def _choose_step(span: float) -> float:
    """A round step for about five ticks.

    >>> [_choose_step(span) for span in (1, 37, 60)]
    [0.2, 10.0, 20.0]
    """
    power = 10.0 ** math.floor(math.log10(span / 5))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power * 5 >= span)


def list_linear_ticks(low: float, high: float) -> Iterator[tuple[float, str]]:
    """About five round numbers of a range, with their texts."""
    step = _choose_step(high - low)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield number * step, format_tick(round(number * step, 12))


def _list_log_ticks(low: float, high: float) -> Iterator[tuple[float, str]]:
    every = math.ceil((high - low) / 8)
    for power in range(math.ceil(low), math.floor(high) + 1, every):
        yield power, format_tick(10.0**power)


def _list_date_ticks(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Years or months where an axis is long, else days or hours."""
    start = datetime.fromtimestamp(low * 86_400, UTC)
    months = (high - low) / 30
    if months >= 3:
        every = next((size for size in (1, 2, 3, 6) if months / size <= 6), 12 * math.ceil(months / 72))
        for month in range(start.year * 12, start.year * 12 + start.month + math.ceil(months) + 1, every):
            day = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
            yield day.timestamp() / 86_400, f"{day:%Y}" if every >= 12 else f"{day:%b %Y}"
        return
    step = next((days for days in DAYS if days * 5 >= high - low), 20)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number * step)
        yield number * step, f"{time:%d %b}" if step >= 1 else f"{time:%d %b %H:%M}"


_TICKS: dict[str, Callable[[float, float], Iterator[tuple[float, str]]]] = {
    "linear": list_linear_ticks, "log": _list_log_ticks, "date": _list_date_ticks,
}  # fmt: skip


def format_tick(number: float) -> str:
    """A number at an axis.

    >>> [format_tick(number) for number in (0.002, 50, 2e3, 5e8, 1e9, -2e6, 5e16)]
    ['0.002', '50', '2k', '500M', '1B', '-2M', '5e16']
    """
    if abs(number) >= 1e15:
        return f"{number:g}".replace("e+", "e")
    letters = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
    size, letter = next(((size, letter) for size, letter in letters if abs(number) >= size), (1, ""))
    return f"{number / size:g}{letter}"


def draw_marker(marker: Json, index: int = 0) -> str:
    """The marker of one point of a trace."""
    symbol, size = marker["symbol"][index], marker["size"]
    radius = (size if isinstance(size, int) else size[index]) / 2
    kinds = {
        "point": True,
        "open": symbol.endswith("-open"),
        "faint": "opacity" in marker and marker["opacity"][index] < 1,
        "first": "line" in marker and marker["line"]["width"][index] > 1,
    }
    lengths = (f"{length:g}" for length in (radius, radius * 1.25, radius / 2))
    outline = SHAPES[symbol.removesuffix("-open")].format(*lengths)
    return f'<path class="{" ".join(kind for kind, holds in kinds.items() if holds)}" d="{outline}"/>'


def draw_path(plane: _Plane, trace: Json) -> str:
    """A line, broken where a value is missing, or an area, in thousandths of the plot."""
    shape, parts, pen = trace.get("line", {}).get("shape"), [], "M"
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if y is None:
            pen = "M"
            continue
        place = (f"{1000 * plane.x.find_share(x):.1f}", f"{1000 * (1 - plane.y.find_share(y)):.1f}")
        if pen == "L" and shape:
            parts.append(f"H{place[0]}V{place[1]}" if shape == "hv" else f"V{place[1]}H{place[0]}")
        else:
            parts.append(f"{pen}{place[0]} {place[1]}")
        pen = "L"
    name = "area" if trace.get("fill") else "line dotted" if shape else "line"
    box = f'viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="{plane.height}"'
    return f'<svg {box}><path class="{name}" d="{"".join(parts)}"/></svg>'


def _list_shifts(
    name: Json, x: float, y: float, size: Sequence[float], points: Sequence[_Boxed], taken: Sequence[Box]
) -> Iterator[tuple[int, tuple[float, float], Box]]:
    """Where a name may stand: how many points it covers, how far from its own in pixels, and its box."""
    width = _measure_text(name["text"])
    for across, up in ((-1, -20), (-0.5, -23), (0, -21), (-1, -7), (0, -7), (0, 6), (-0.5, 9), (-1, 6)):
        # Beside the point where it is not above or below.
        shift = (across * width + {-1: -6, -0.5: 0, 0: 7}[across], float(up))
        left, top = x + shift[0], y + shift[1]
        box = (left, top, left + width, top + 14)
        inside = left >= 0 and box[2] <= size[0] and top >= -8 and box[3] <= size[1]
        if inside and all(_is_apart(box, other) for other in taken):
            place = (name["x"], name["y"])
            yield sum(point != place and not _is_apart(box, other) for point, other in points), shift, box


def _measure_text(text: str) -> float:
    return LETTER * len(Markup(text).unescape())


def _is_apart(a: Box, b: Box) -> bool:
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def draw_names(plane: _Plane, figure: Json) -> Iterator[str]:
    """Names beside their points: those that have room on a phone, then those that have it on a page."""
    names = figure["layout"].get("meta", {}).get("names", ())
    shifts: dict[int, tuple[float, float]] = {}
    for width, kind in ((NARROW, "name"), (WIDE, "name wide")):
        places = [(plane.x.find_share(name["x"]) * width, plane.place_up(name["y"])) for name in names]
        points = list(_list_point_boxes(plane, figure["data"], width))
        taken = list(_list_drawn_boxes(plane, figure, width))
        for index, (dx, dy) in shifts.items():
            left, top = places[index][0] + dx, places[index][1] + dy
            taken.append((left, top, left + _measure_text(names[index]["text"]), top + 14))
        for index, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
            if index in shifts:
                continue
            free = _list_shifts(name, x, y, (width, plane.height), points, taken)
            best = min(free, key=itemgetter(0), default=None)
            # The first names may cover two points, so that the best are named in a crowd.
            if best and best[0] <= (2 if index < 8 else 0):
                _, (dx, dy), box = best
                shifts[index] = (dx, dy)
                taken.append(box)
                place = f'x="{plane.place_across(name["x"])}" dx="{dx:.0f}" y="{y + dy + 11:.0f}"'
                yield f'<text class="{kind}" {place}>{name["text"]}</text>'


def _list_point_boxes(plane: _Plane, data: Sequence[Json], width: float) -> Iterator[_Boxed]:
    for trace in data:
        if trace.get("mode") != "markers":
            continue
        sizes = trace["marker"]["size"]
        for index, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
            half = (sizes if isinstance(sizes, int) else sizes[index]) / 2
            across, up = plane.x.find_share(x) * width, plane.place_up(y)
            yield (x, y), (across - half, up - half, across + half, up + half)


def _list_drawn_boxes(plane: _Plane, figure: Json, width: float) -> Iterator[Box]:
    """The boxes of stepped lines, upright marks, bars and words."""

    def x(value: Any) -> float:
        return width * plane.x.find_share(value)

    y = plane.place_up
    for trace in figure["data"]:
        if trace.get("line", {}).get("shape"):
            for (x0, y0), (x1, y1) in pairwise(zip(map(x, trace["x"]), map(y, trace["y"]), strict=True)):
                corner = (x1, y0) if trace["line"]["shape"] == "hv" else (x0, y1)
                yield from (_span((x0, y0), corner), _span(corner, (x1, y1)))
        if trace["type"] == "bar":
            half = trace["width"] / 2
            for middle, height in zip(trace["x"], trace["y"], strict=True):
                yield (x(middle - half), y(height), x(middle + half), plane.height)
    for shape in figure["layout"].get("shapes", ()):
        if shape["type"] == "line":
            yield _span((x(shape["x0"]), 0), (x(shape["x0"]), plane.height))
    for word in figure["layout"].get("annotations", ()):
        left = x(10 ** word["x"] if plane.x.kind == "log" else word["x"])
        yield (left, -18, left + _measure_text(word["text"]) + 4, 18)


def _span(start: tuple[float, float], end: tuple[float, float]) -> Box:
    (left, right), (top, bottom) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return (left - 1, top - 1, right + 1, bottom + 1)
