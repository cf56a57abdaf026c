"""Charts: each is a Plotly figure as plain JSON, and the same values as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, TypeAlias

import numpy as np
from markupsafe import escape

from leaderboard.web.tables import Cell, Column, Row, Table, Value

Number: TypeAlias = "float | int | None"
Place: TypeAlias = "float | int | date | str | None"
Kind = Literal["linear", "log", "date"]
Better = Literal["lower", "higher"]
Json: TypeAlias = "dict[str, Any]"

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "hexagon")
"""Of the groups that have a colour of their own; all others share one."""
NAMES = 30
"""Points of a scatter that carry their name, where it fits."""
MANY = 200
"""Points of a line from which on it has no markers."""
LARGEST, YEARS = 1e100, range(1900, 2200)
"""A number or a date beyond these is a mistake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis: its label with the unit, and its scale."""

    label: str
    kind: Kind = "linear"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One point; without an x or a y it is left out.

    Attributes:
        label: Its name.
        x: Where it is across.
        y: Where it is upwards; in a scatter higher is better.
        low: The interval's lower end.
        high: The interval's upper end.
        href: Where a click leads.
        series: The group that gives its colour and its symbol.
        size: Parameters, shown as the marker's size.
        emphasised: Whether it is larger and named first.
        hollow: Whether it is not comparable: an outline, and never on the frontier.
        note: A sentence shown on hover.
    """

    x: Place
    y: Number
    label: str = ""
    low: Number = None
    high: Number = None
    href: str = ""
    series: str = ""
    size: Number = None
    emphasised: bool = False
    hollow: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plane:
    """What plots over two axes share; `marks` are upright lines, each with a word."""

    x: Axis
    y: Axis
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter(_Plane):
    """Points and their frontier; `better` says which x is better, None draws no frontier."""

    points: Sequence[Point]
    better: Better | None = "lower"
    series: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line, joined in order of x and broken where y is missing."""

    label: str
    points: Sequence[Point]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines(_Plane):
    """Lines over one x axis; where points have intervals, an area shows them."""

    lines: Sequence[Line]


@dataclass(frozen=True, kw_only=True, slots=True)
class Track(_Plane):
    """Points one after another with their intervals: checks by date, scores by step.

    `tones` gives each group its colour ("" for the usual one); `band` is the range in which y counts as
    equal; `joined` leads a line from point to point.
    """

    points: Sequence[Point]
    tones: dict[str, str]
    band: tuple[float, float] | None = None
    band_label: str = ""
    joined: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BarSeries:
    """One model's bars: `values`, and `low` and `high` where given, have an item for each category."""

    label: str
    values: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Horizontal bars: a group for each category, in it a bar for each series."""

    axis: Axis
    categories: Sequence[str]
    series: Sequence[BarSeries]


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """All scores of a task; `marks` are points whose x is among `values`."""

    axis: Axis
    values: Sequence[Number]
    marks: Sequence[Point] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A chart of a page: Plotly's data and layout, the same values as a table, and sentences below.

    Each trace names its colour in `meta.colour`; the page's script looks it up in the theme.
    """

    name: str
    title: str
    figure: Json
    table: Table
    notes: Sequence[str] = ()


def chart(name: str, title: str, plot: Scatter | Lines | Track | Bars | Distribution) -> Chart:
    """A plot as a chart; its name is unique on its page."""
    notes: list[str] = []
    if isinstance(plot, Bars):
        figure, columns, rows = _bars(plot)
    elif isinstance(plot, Distribution):
        figure, columns, rows = _distribution(plot)
    else:
        draw = {Scatter: _scatter, Lines: _lines, Track: _track}[type(plot)]
        figure, points = draw(plot)  # type: ignore[operator]
        columns, rows, notes = _values(plot, points), _rows(plot, points), _left_out(plot, points)
    body = [Row(cells=[_cell(value) for value in row]) for row in rows]
    table = Table(name=f"{name}-values", caption=title, columns=columns, rows=body)
    return Chart(name=name, title=title, figure=figure, table=table, notes=notes)


def _cell(value: Value | Cell) -> Cell:
    return value if isinstance(value, Cell) else Cell(text=_text(value), value=value)


def frontier(points: Sequence[tuple[float, float]], better: Better) -> list[int]:
    """Indices of the points that no other beats, by x; y is better the higher, and ties stay together.

    >>> frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "lower")
    [0, 2]
    """
    sign = 1 if better == "lower" else -1
    usable = [i for i, (x, y) in enumerate(points) if x == x and y == y]
    usable.sort(key=lambda i: (sign * points[i][0], -points[i][1], i))
    unbeaten: list[int] = []
    best = -math.inf
    for (_, y), equal in groupby(usable, key=lambda i: points[i]):
        if y > best:
            best = y
            unbeaten += equal
    return sorted(unbeaten, key=lambda i: (points[i][0], i))


def frontier_points(plot: Scatter) -> list[Point]:
    """The points on a scatter's frontier, by x; hollow points are never on it."""
    points = [point for point in _drawn(plot, plot.points) if not point.hollow]
    places = [(_order(point.x), float(point.y or 0)) for point in points]
    return [points[i] for i in frontier(places, plot.better)] if plot.better else []


def number(value: Place, kind: Kind = "linear") -> Any:
    """A value as JSON for an axis; None where the axis cannot hold it.

    >>> number(float("nan")), number(0, "log"), number(3, "log"), number(date(2026, 1, 2), "date")
    (None, None, 3.0, '2026-01-02')
    """
    if kind == "date":
        return _time(value.isoformat() if isinstance(value, date) else value)
    if value is None or isinstance(value, str | date):
        return None
    known = math.isfinite(value) and abs(value) <= LARGEST and (kind != "log" or value > 0)
    return float(value) if known else None


def plotly_file() -> Path:
    """The library's file in the installed package, without importing it.

    Raises:
        FileNotFoundError: The package is not installed, or has no such file.
    """
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return path
    raise FileNotFoundError("the package plotly is not installed, or holds no package_data/plotly.min.js")


def _time(text: Any) -> str | None:
    """A date, or a time in UTC, as ISO text."""
    try:
        time = datetime.fromisoformat(text)
        if len(text) > 10:
            time = time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
        return (
            time.strftime("%Y-%m-%d %H:%M:%S" if len(text) > 10 else "%Y-%m-%d") * (time.year in YEARS)
            or None
        )
    except (TypeError, ValueError, OverflowError):
        return None


def _order(x: Any) -> float:
    return float(x.toordinal()) if isinstance(x, date) else float(x)


def _drawn(plot: _Plane, points: Iterable[Point]) -> list[Point]:
    """The points that both axes can hold."""
    return [p for p in points if None not in (number(p.x, plot.x.kind), number(p.y, plot.y.kind))]


def _text(value: Value) -> str:
    """A value as people read it.

    >>> [_text(v) for v in (52.4149, 149_000_000, 0.00002, 3000, None, "a")]
    ['52.41', '149M', '2e-05', '3000', '', 'a']
    """
    if value is None or isinstance(value, str | bool):
        return str(value or "")
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if unit <= abs(value) < 1e15:
            return f"{value / unit:.4g}{letter}"
    whole = abs(value - round(value)) < 1e-9
    return f"{value:.2f}" if abs(value) >= 1 and not whole else f"{value:.{6 if whole else 4}g}"


def _plain(text: str) -> str:
    """Text that Plotly shows as it is, tags and all."""
    return str(escape(" ".join(text.split())))


def _hover(label: str, *facts: str) -> str:
    lines = [_plain(line) for fact in facts for line in wrap(fact, 64)]
    return "<br>".join([f"<b>{_plain(label)}</b>", *lines])


def _reach(low: Value, high: Value) -> str:
    return "" if low is None or high is None else f" [{_text(low)}, {_text(high)}]"


def _colour(place: int) -> str:
    return f"series-{place + 1}" if place < len(SYMBOLS) else "other"


def _axis(axis: Axis, values: Iterable[Any] = ()) -> Json:
    ticks: Json = {}
    if axis.kind == "log":
        least = min(values, default=1)
        ticks = {"dtick": "D2", "exponentformat": "B"} if least >= 1 else {"exponentformat": "e"}
    title = {"text": _plain(axis.label)}
    return {"title": title, "type": axis.kind, "automargin": True, "zeroline": False, **ticks}


def _layout(height: int, x: Json, y: Json, **more: Any) -> Json:
    legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemsizing": "constant"}
    margin = {"l": 56, "r": 24, "t": 16, "b": 48}
    return {
        "height": height,
        "xaxis": x,
        "yaxis": y,
        "hovermode": "closest",
        "legend": legend,
        "margin": margin,
        **more,
    }


def _plane_layout(plot: _Plane, height: int, points: Sequence[Point], **more: Any) -> Json:
    """The layout over two axes, with the marks."""
    xs = [number(p.x, plot.x.kind) for p in points]
    lines, words = [], []
    for at, word in plot.marks:
        ends = {"xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1}
        lines.append({"type": "line", **ends, "line": {"width": 1, "dash": "dash"}})
        place = {"x": math.log10(at) if plot.x.kind == "log" else at, "y": 1, "yref": "paper"}
        words.append({**place, "text": _plain(word), "showarrow": False, "xanchor": "left", "yanchor": "top"})
    axes = _axis(plot.x, xs), _axis(plot.y, [number(p.y) for p in points])
    return _layout(height, *axes, showlegend=True, shapes=lines, annotations=words, **more)


def _error(values: Sequence[Any], low: Sequence[Any], high: Sequence[Any]) -> Json:
    known = [None not in each for each in zip(values, low, high, strict=True)]
    above = [h - v if k else 0 for v, h, k in zip(values, high, known, strict=True)]
    below = [v - b if k else 0 for v, b, k in zip(values, low, known, strict=True)]
    ends = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return {**ends, "visible": any(known), "thickness": 1, "width": 0}


def _trace(plot: _Plane, name: str, points: Sequence[Point], place: int, **more: Any) -> Json:
    """Points of one group, with what a reader sees on hover."""
    x, y = ([number(v, axis.kind) for v in some] for axis, some in (
        (plot.x, [p.x for p in points]), (plot.y, [p.y for p in points])))  # fmt: skip
    low, high = [number(p.low) for p in points], [number(p.high) for p in points]
    texts = [
        _hover(p.label or name, f"{plot.y.label} {_text(b)}{_reach(*ends)}", f"{plot.x.label} {_text(a)}",
               *((name,) if p.label else ()), p.note)
        for p, a, b, *ends in zip(points, x, y, low, high, strict=True)
    ]  # fmt: skip
    symbol = SYMBOLS[place % len(SYMBOLS) if place < len(SYMBOLS) else 0]
    marker = {"symbol": [symbol + "-open" * p.hollow for p in points], "size": 8}
    return {
        "type": "scatter", "mode": "markers", "name": _plain(name) or "models", "x": x, "y": y,
        "error_y": _error(y, low, high), "customdata": [p.href for p in points],
        "hoverinfo": "text", "hovertext": texts, "marker": marker, "meta": {"colour": _colour(place)}, **more,
    }  # fmt: skip


def _values(plot: _Plane, points: Sequence[Point]) -> list[Column]:
    labels = ("Name", "Group", plot.x.label, plot.y.label, "from", "to")
    return [Column(key=f"c{at}", label=label, numeric=at > 1) for at, label in enumerate(labels)]


def _rows(plot: _Plane, points: Sequence[Point]) -> Iterator[list[Value | Cell]]:
    for p in points:
        place = (number(p.x, plot.x.kind), number(p.y, plot.y.kind))
        yield [
            Cell(text=p.label, value=p.label, href=p.href),
            p.series,
            *place,
            number(p.low),
            number(p.high),
        ]


def _left_out(plot: Scatter | Lines | Track, points: Sequence[Point]) -> list[str]:
    notes = [f"The band is {plot.band_label}."] if isinstance(plot, Track) and plot.band_label else []
    if missing := 0 if isinstance(plot, Lines) else len(plot.points) - len(points):
        log = ", or none above 0," if "log" in (plot.x.kind, plot.y.kind) else ""
        notes.append(f"{missing} of {len(plot.points)} have no value{log} and are left out.")  # type: ignore[union-attr]
    return notes


def _scatter(plot: Scatter) -> tuple[Json, list[Point]]:
    best = frontier_points(plot)
    strong = {id(point) for point in best}
    points = sorted(_drawn(plot, plot.points), key=lambda p: -float(p.y or 0))
    data = []
    for place, name in enumerate(dict.fromkeys([*plot.series, *(p.series for p in plot.points)])):
        if group := [point for point in points if point.series == name]:
            trace = _trace(plot, name, group, place)
            loud = [p.emphasised or id(p) in strong for p in group]
            sizes = [_diameter(p, one) for p, one in zip(group, loud, strict=True)]
            outline = {"width": [2 if p.emphasised else 1 for p in group]}
            trace["marker"] |= {
                "size": sizes,
                "opacity": [1 if one else 0.6 for one in loud],
                "line": outline,
            }
            data.append(trace)
    data += [_frontier_line(plot, best, points)] if best else []
    first = sorted(points, key=lambda p: (not p.emphasised, id(p) not in strong, p.hollow))[:NAMES]
    names = [
        {"x": number(p.x, plot.x.kind), "y": number(p.y), "text": _plain(_short(p.label))} for p in first
    ]
    return {"data": data, "layout": _plane_layout(plot, 460, points, meta={"names": names})}, points


def _short(label: str) -> str:
    """A model's name without its organisation, at most 27 letters."""
    name = label.rpartition("/")[2] or label
    return name if len(name) <= 27 else f"{name[:16]}…{name[-10:]}"


def _diameter(point: Point, strong: bool) -> float:
    """A marker's diameter in pixels, by parameters where they are given."""
    if size := number(point.size, "log"):
        return float(round(min(24.0, max(6.0, 7 + 4.5 * math.log10(size / 2e7))), 1))
    return 13 if point.emphasised else 10 if strong else 7


def _frontier_line(plot: Scatter, best: Sequence[Point], points: Sequence[Point]) -> Json:
    """The best y within reach at each x, up to the last point."""
    corners = [(p.x, number(p.y)) for p in best]
    lower = plot.better == "lower"
    edge = (max if lower else min)((p.x for p in points), key=_order)
    corners = [*corners, (edge, corners[-1][1])] if lower else [(edge, corners[0][1]), *corners]
    line = {"width": 1.5, "dash": "dot", "shape": "hv" if lower else "vh"}
    x, y = [number(x, plot.x.kind) for x, _ in corners], [y for _, y in corners]
    looks = {"type": "scatter", "mode": "lines", "name": "frontier", "hoverinfo": "skip", "line": line}
    return {**looks, "x": x, "y": y, "meta": {"colour": "ink"}}


def _lines(plot: Lines) -> tuple[Json, list[Point]]:
    data: list[Json] = []
    shown: list[Point] = []
    for place, line in enumerate(plot.lines):
        points = [p for p in line.points if number(p.x, plot.x.kind) is not None]
        points.sort(key=lambda p: number(p.x, plot.x.kind))
        mode = "lines+markers" if len(points) <= MANY else "lines"
        trace = _trace(plot, line.label, points, place, mode=mode, connectgaps=False)
        trace["error_y"]["visible"] = False
        data += [*_area(plot, points, trace), trace]
        shown += [replace(p, label=p.label or line.label) for p in points]
    return {"data": data, "layout": _plane_layout(plot, 380, shown)}, shown


def _area(plot: Lines, points: Sequence[Point], line: Json) -> list[Json]:
    """The areas between both ends, one for each run of points that have them."""
    x: list[Any] = []
    y: list[Any] = []
    for known, run in groupby(points, key=lambda p: None not in (number(p.low), number(p.high))):
        if known:
            some = list(run)
            x += [number(p.x, plot.x.kind) for p in (*some, *reversed(some))] + [None]
            y += [*(p.high for p in some), *(p.low for p in reversed(some)), None]
    looks = {"type": "scatter", "mode": "none", "fill": "toself", "hoverinfo": "skip", "showlegend": False}
    return [{**looks, "x": x[:-1], "y": y[:-1], "meta": line["meta"]}] if x else []


def _track(plot: Track) -> tuple[Json, list[Point]]:
    points = sorted(_drawn(plot, plot.points), key=lambda p: number(p.x, plot.x.kind))
    data: list[Json] = []
    for place, (name, colour) in enumerate(plot.tones.items()):
        group = [p for p in points if p.series == name]
        if group:
            data.append(_trace(plot, name, group, place, meta={"colour": colour or _colour(place)}))
    if plot.joined:
        solid = [p for p in points if not p.hollow]
        line = _trace(plot, "", solid, 0, mode="lines", hoverinfo="skip", showlegend=False)
        data.insert(0, line | {"error_y": {"visible": False}})
    layout = _plane_layout(plot, 340, points)
    if plot.band:
        ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": plot.band[0], "y1": plot.band[1]}
        layout["shapes"].append({"type": "rect", **ends, "layer": "below", "line": {"width": 0}})
    return {"data": data, "layout": layout}, points


def _bars(plot: Bars) -> tuple[Json, list[Column], list[list[Value]]]:
    names = [_plain(name) for name in plot.categories]
    data = []
    for place, one in enumerate(plot.series):
        values = [number(v) for v in one.values]
        low, high = ([number(v) for v in ends] or [None] * len(values) for ends in (one.low, one.high))
        texts = [
            _hover(one.label, f"{name}: {_text(value)}{_reach(*ends)}")
            for name, value, *ends in zip(plot.categories, values, low, high, strict=True)
        ]
        data.append({
            "type": "bar", "orientation": "h", "name": _plain(one.label), "x": values, "y": names,
            "error_x": _error(values, low, high), "customdata": [one.href] * len(values),
            "hoverinfo": "text", "hovertext": texts, "text": [_text(value) for value in values],
            "textposition": "auto", "meta": {"colour": _colour(place)},
        })  # fmt: skip
    height = 110 + len(names) * (14 + 20 * len(plot.series))
    upright = {"autorange": "reversed", "automargin": True}
    layout = _layout(height, _axis(plot.axis), upright, barmode="group", showlegend=len(data) > 1)
    labels = ["", *(one.label for one in plot.series)]
    rows = [
        [name, *(number(one.values[at]) for one in plot.series)] for at, name in enumerate(plot.categories)
    ]
    return {"data": data, "layout": layout}, _numeric(labels, 1), rows


def _numeric(labels: Sequence[str], texts: int) -> list[Column]:
    return [Column(key=f"c{at}", label=label, numeric=at >= texts) for at, label in enumerate(labels)]


def _distribution(plot: Distribution) -> tuple[Json, list[Column], list[list[Value]]]:
    values = np.array([v for v in map(number, plot.values) if v is not None])
    columns = _numeric(("From", "To", "Models"), 0)
    if not values.size:
        return {"data": [], "layout": {}}, columns, []
    low, high = float(values.min()), float(values.max())
    room = 0.5 if high - low <= 1e-9 * max(abs(low), abs(high), 1) else 0.0
    ends = (low - room, high + room)
    counts, edges = np.histogram(values, bins=min(30, max(5, math.isqrt(values.size))), range=ends)
    rows = [[float(a), float(b), int(n)] for a, b, n in zip(edges, edges[1:], counts, strict=False)]
    texts = [_hover(f"{n} models", f"{_text(a)} to {_text(b)}") for a, b, n in rows]
    bars = {
        "type": "bar", "name": "models", "x": [(a + b) / 2 for a, b, _ in rows], "y": [n for _, _, n in rows],
        "width": float(edges[1] - edges[0]), "hoverinfo": "text", "hovertext": texts,
        "meta": {"colour": "other"},
    }  # fmt: skip
    marks = [
        replace(p, y=next((n for a, b, n in rows if p.x <= b), 0))
        for p in plot.marks
        if number(p.x) is not None
    ]  # type: ignore[operator]
    middle = float(np.median(values))
    plane = _Plane(x=plot.axis, y=Axis(label="models"), marks=[(middle, f"median {_text(middle)}")])
    names = [{"x": number(p.x), "y": number(p.y), "text": _plain(_short(p.label))} for p in marks]
    layout = _plane_layout(plane, 300, marks, meta={"names": names}, bargap=0.04)
    data = [bars, *([_trace(plane, "chosen", marks, 0)] if marks else [])]
    return {"data": data, "layout": layout | {"showlegend": False}}, columns, rows
