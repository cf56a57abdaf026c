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
LETTER = 5.8
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
        return _format_share(self.x.find_share(value))

    def place_up(self, value: Any) -> float:
        """A place upwards, in pixels from the top."""
        return round(self.height * (1 - self.y.find_share(value)), 1)


def _format_share(share: float) -> str:
    return f"{100 * share:.2f}%"


def draw_figure(figure: Json) -> Markup:
    """A figure as HTML: the plot as SVG, and its legend.

    Args:
        figure: Traces and layout in Plotly's form; texts are escaped already.
    """
    data, layout = figure["data"], figure["layout"]
    if any(trace.get("orientation") == "h" for trace in data):
        label = f'<p class="note">{layout["xaxis"]["title"]["text"]}</p>'
        return Markup(f"{_draw_legend(data, layout)}{_draw_categories(data)}{label}")
    height = layout["height"] - FRAME
    plane = _Plane(x=_fit_axis(data, layout, "x"), y=_fit_axis(data, layout, "y"), height=height)
    parts = [*_draw_axes(plane, layout), *_draw_shapes(plane, layout)]
    for trace in data:
        inside = {"bar": _draw_columns, "heatmap": _draw_cells}.get(trace["type"], _draw_points)
        parts.append(f'<g class="c-{trace["meta"]["colour"]}">{"".join(inside(plane, trace))}</g>')
    parts += _draw_names(plane, figure)
    plot = f'<svg class="plane" height="{height}" aria-hidden="true">{"".join(parts)}</svg>'
    return Markup(f"{_draw_legend(data, layout)}{plot}")


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


def _draw_axes(plane: _Plane, layout: Json) -> Iterator[str]:
    height = plane.height
    for number, text in plane.y.ticks:
        y = round(height * (1 - plane.y.find_tick_share(number)), 1)
        yield f'<line class="grid" x2="100%" y1="{y}" y2="{y}"/>'
        yield f'<text class="end" x="-8" y="{y + 4}">{text}</text>'
    for number, text in plane.x.ticks:
        x = _format_share(plane.x.find_tick_share(number))
        yield f'<line class="grid" x1="{x}" x2="{x}" y2="{height}"/>'
        yield f'<text class="mid" x="{x}" y="{height + 17}">{text}</text>'
    across, up = layout["xaxis"]["title"]["text"], layout["yaxis"]["title"]["text"]
    yield f'<text class="mid axis" x="50%" y="{height + 36}">{across}</text>'
    yield f'<text class="mid axis" transform="translate(-46 {height / 2}) rotate(-90)">{up}</text>'


def _draw_shapes(plane: _Plane, layout: Json) -> Iterator[str]:
    """The band, and upright lines with their words."""
    for shape in layout.get("shapes", ()):
        if shape["type"] == "rect":
            top, bottom = sorted((plane.place_up(shape["y0"]), plane.place_up(shape["y1"])))
            top, bottom = max(top, 0), min(bottom, plane.height)
            yield f'<rect class="band" width="100%" y="{top}" height="{max(bottom - top, 0):.1f}"/>'
        else:
            x = plane.place_across(shape["x0"])
            yield f'<line class="mark" x1="{x}" x2="{x}" y2="{plane.height}"/>'
    for word in layout.get("annotations", ()):
        x = plane.place_across(10 ** word["x"] if plane.x.kind == "log" else word["x"])
        y = -4 if word["yanchor"] == "bottom" else 12
        yield f'<text class="word" x="{x}" dx="4" y="{y}">{word["text"]}</text>'


def _draw_points(plane: _Plane, trace: Json) -> Iterator[str]:
    """The line or area of a trace, the intervals of its points, and their markers."""
    if "lines" in trace["mode"] or trace.get("fill"):
        yield _draw_path(plane, trace)
    if "markers" not in trace["mode"]:
        return
    bars = trace["error_y"]
    for index, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        if y is None:
            continue
        place = plane.place_across(x)
        if bars["visible"] and (bars["array"][index] or bars["arrayminus"][index]):
            ends = plane.place_up(y + bars["array"][index]), plane.place_up(y - bars["arrayminus"][index])
            yield f'<line class="bar" x1="{place}" x2="{place}" y1="{ends[0]}" y2="{ends[1]}"/>'
        marker = _draw_marker(trace["marker"], index)
        yield _link(trace, index, f'<svg x="{place}" y="{plane.place_up(y)}">{marker}</svg>')


def _draw_marker(marker: Json, index: int = 0) -> str:
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


def _link(trace: Json, index: int, mark: str) -> str:
    """A mark with the words of its hover, and the link of its point."""
    words = re.sub(r"</?b>", "", trace["hovertext"][index]).replace("<br>", "\n")
    titled = f"<g>{mark}<title>{words}</title></g>"
    href = trace.get("customdata", [""] * (index + 1))[index]
    # The table below leads to the same pages, and is the way for keyboards and readers of screens.
    return f'<a href="{Markup.escape(href)}" tabindex="-1">{titled}</a>' if href else titled


def _draw_path(plane: _Plane, trace: Json) -> str:
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


def _draw_cells(plane: _Plane, trace: Json) -> Iterator[str]:
    """The cells of a heat map, fuller the higher, each with its number and below it the count."""
    means = [value for value in trace["z"] if value is not None] or [0.0]
    low, span = min(means), max(means) - min(means) or 1.0
    # The numbers of more cells beside one another have no room on a phone.
    name = "mid name wide" if plane.x.high > 8 else "mid name"
    width, height = _format_share(1 / plane.x.high), f"{plane.height / plane.y.high:.1f}"
    for index, (x, y, value, count) in enumerate(
        zip(trace["x"], trace["y"], trace["z"], trace["text"], strict=True)
    ):
        top, middle = plane.place_up(y + 0.5), plane.place_across(x)
        box = f'x="{plane.place_across(x - 0.5)}" y="{top}" width="{width}" height="{height}"'
        if value is None:
            mark = f'<rect class="cell empty" {box}/>'
            mark += f'<text class="{name}" x="{middle}" y="{top + 27}">none</text>'
        else:
            # Never so full that its number could not be read in either colour scheme.
            mark = f'<rect class="cell" {box} fill-opacity="{0.05 + 0.45 * (value - low) / span:.2f}"/>'
            mark += f'<text class="{name}" x="{middle}" y="{top + 20}">{value:.2f}</text>'
            mark += f'<text class="{name}" x="{middle}" y="{top + 36}">{count}</text>'
        yield _link(trace, index, mark)


def _draw_columns(plane: _Plane, trace: Json) -> Iterator[str]:
    """The upright bars of a histogram."""
    half = trace["width"] / 2
    for index, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        width = 0.96 * (plane.x.find_share(x + half) - plane.x.find_share(x - half))
        place, top = f'x="{plane.place_across(x - half)}" width="{_format_share(width)}"', plane.place_up(y)
        box = f'{place} y="{top}" height="{plane.height - top:.1f}"'
        yield _link(trace, index, f'<rect class="column" {box}/>')


def _draw_categories(data: Sequence[Json]) -> str:
    """Horizontal bars: below the name of each category one for each series."""
    values = [v for trace in data for v in trace["x"] if v is not None] or [1.0]
    low, high = min(0.0, *values), max(0.0, *values) or 1.0
    # The longest bar leaves room for its number.
    scale = _Scale(kind="linear", low=low, high=high + (high - low) * 0.12)
    rows, step, parts = data[0]["y"], 14 + 20 * len(data), []
    for index, name in enumerate(rows):
        parts.append(f'<text y="{index * step + 11}">{name}</text>')
        for place, trace in enumerate(data):
            if trace["x"][index] is not None:
                bar = _draw_bar(scale, trace, index, index * step + 16 + 18 * place)
                parts.append(f'<g class="c-{trace["meta"]["colour"]}">{bar}</g>')
    return (
        f'<svg class="plane rows" height="{len(rows) * step + 8}" aria-hidden="true">{"".join(parts)}</svg>'
    )


def _draw_bar(scale: _Scale, trace: Json, index: int, top: int) -> str:
    """A horizontal bar from 0, and its number."""
    left, right = sorted((scale.find_share(0), scale.find_share(trace["x"][index])))
    box = f'x="{_format_share(left)}" width="{_format_share(right - left)}" y="{top}" height="15"'
    number = f'<text x="{_format_share(right)}" dx="5" y="{top + 12}">{trace["text"][index]}</text>'
    return _link(trace, index, f"<rect {box}/>") + number


def _draw_legend(data: Sequence[Json], layout: Json) -> str:
    shown = [trace for trace in data if trace.get("showlegend", True) and trace.get("name") and trace["x"]]
    if not layout.get("showlegend", True) or not shown:
        return ""
    items = []
    for trace in shown:
        mark = '<path class="line dotted" d="M-8 0H8"/>' if trace.get("mode") == "lines" else ""
        if trace["type"] == "bar":
            mark = '<rect x="-6" y="-6" width="12" height="12"/>'
        elif "markers" in trace.get("mode", ""):
            symbol = trace["marker"]["symbol"][0].removesuffix("-open")
            mark = _draw_marker({"symbol": [symbol], "size": 9})
        sign = (
            f'<svg viewBox="-9 -9 18 18" class="c-{trace["meta"]["colour"]}" aria-hidden="true">{mark}</svg>'
        )
        items.append(f"<li>{sign}{trace['name']}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


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


def _draw_names(plane: _Plane, figure: Json) -> Iterator[str]:
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
