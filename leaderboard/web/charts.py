"""Charts: each is a figure in Plotly's form as plain JSON, and the same values as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import groupby, pairwise
from textwrap import wrap
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from markupsafe import escape

from harness.core.terminal import clean_text
from leaderboard.web.drawing import format_tick, list_linear_ticks
from leaderboard.web.tables import Cell, Table, TableColumn, TableRow, Value

Number: TypeAlias = "float | int | None"
Place: TypeAlias = "float | int | date | str | None"
Kind = Literal["linear", "log", "date"]
Json: TypeAlias = "dict[str, Any]"
Better = Literal["lower", "higher"]
P = TypeVar("P", bound="Point")

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "hexagon")
"""Of the groups that have a colour of their own; all others share one."""

NAMES = 30
"""Points of a scatter that carry their name, where it fits."""
DRAWN = 500
"""Points of a scatter that are drawn, beside its frontier: more are a cloud that takes megabytes."""
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
    """Points and their frontier; `better` says which x is better, None draws no frontier.

    Of more points than `most` the highest and the frontier are drawn.
    """

    points: Sequence[Point]
    better: Better | None = "lower"
    series: Sequence[str] = ()
    most: int = DRAWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One line, joined in order of x and broken where y is missing; or points and a law through them."""

    label: str
    points: Sequence[Point]
    law: Sequence[Point] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines(_Plane):
    """Lines over one x axis; where points have intervals, an area shows them."""

    lines: Sequence[Curve]


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
    """One model's bars: `values` have an item for each category."""

    label: str
    values: Sequence[Number]
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
class Heat:
    """Cells over bins of two axes: `values`, None in an empty cell, and `counts` are (bins up, bins across).

    `across` and `up` are the edges of the bins, or a value for each bin.
    """

    x: Axis
    y: Axis
    across: Sequence[float]
    up: Sequence[float]
    values: Sequence[Sequence[Number]]
    counts: Sequence[Sequence[int]]


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


def build_chart(name: str, title: str, plot: Scatter | Lines | Track | Bars | Distribution | Heat) -> Chart:
    """A plot as a chart; its name is unique on its page."""
    figure, heads, rows = _DRAW[type(plot)](plot)
    body = [
        TableRow(cells=[v if isinstance(v, Cell) else Cell(text=format_chart_value(v), value=v) for v in row])
        for row in rows
    ]
    texts = [any(isinstance(row[at], str | Cell) for row in rows) for at in range(len(heads))]
    columns = [
        TableColumn(key=f"c{at}", label=head, numeric=not text)
        for at, (head, text) in enumerate(zip(heads, texts, strict=True))
    ]
    table = Table(name=f"{name}-values", caption=title, columns=columns, rows=body)
    notes = _list_plot_notes(plot, len(rows)) if isinstance(plot, Scatter | Track) else []
    return Chart(name=name, title=title, figure=figure, table=table, notes=notes)


def build_size_chart(
    title: str, label: str, points: Iterable[Point], name: str = "size", most: int = DRAWN
) -> Chart:
    """Scores against the number of parameters; what was measured is emphasised.

    Args:
        title: The heading of the chart.
        label: The label of the upright axis.
        points: The models; x is the number of parameters.
        name: The chart's name, unique on its page.
        most: The points that are drawn, at most, beside the frontier.
    """
    plot_points = [replace(point, emphasised=point.series == "measured") for point in points]
    plot = Scatter(x=Axis(label="Parameters", kind="log"), y=Axis(label=label), points=plot_points, most=most)
    return build_chart(name, title, plot)


def select_frontier_points(plot: Scatter, points: Sequence[P]) -> list[P]:
    """Those of a scatter's points on its frontier, by x; hollow points are never on it."""
    full = [point for point in points if not point.hollow and _place_points(plot, [point])]
    return [full[i] for i in _find_best_points(plot, _place_points(plot, full))]


def _find_best_points(plot: Scatter, drawn: Sequence[Point]) -> list[int]:
    places = [(point.x, point.y) for point in drawn]
    return compute_frontier(places, plot.better) if plot.better else []  # type: ignore[arg-type]


def compute_frontier(points: Sequence[tuple[Any, float]], better: Better) -> list[int]:
    """Indices of the points that no other beats, by x; y is better the higher, and ties stay together.

    >>> compute_frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "lower")
    [0, 2]
    """
    # NaN is not equal to itself.
    order = sorted((i for i, (x, y) in enumerate(points) if x == x and y == y), key=lambda i: -points[i][1])
    order.sort(key=lambda i: points[i][0], reverse=better == "higher")
    unbeaten: list[int] = []
    best = -math.inf
    for (_, y), equal in groupby(order, key=lambda i: points[i]):
        if y > best:
            best = y
            unbeaten += equal
    return sorted(unbeaten, key=lambda i: (points[i][0], i))


def convert_axis_value(value: Place, kind: Kind = "linear") -> Any:
    """A value as JSON for an axis; None where the axis cannot hold it.

    >>> convert_axis_value(float("nan")), convert_axis_value(0, "log"), convert_axis_value(3, "log")
    (None, None, 3.0)
    >>> convert_axis_value(date(2026, 1, 2), "date")
    '2026-01-02'
    """
    if kind == "date":
        text: Any = value.isoformat() if isinstance(value, date) else value
        try:
            time = datetime.fromisoformat(text)
            if time.year not in YEARS or len(text) == 10:
                return text if time.year in YEARS else None
            # A time in UTC.
            return f"{time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        except (TypeError, ValueError, OverflowError):
            return None
    if value is None or isinstance(value, str | date):
        return None
    valid = math.isfinite(value) and abs(value) <= LARGEST and (kind != "log" or value > 0)
    return float(value) if valid else None


def _place_points(plot: _Plane, points: Iterable[Point], *, gaps: bool = False) -> list[Point]:
    """The points that the axes can hold, with their places as JSON; `gaps` keeps those without a y."""
    across, up = plot.x.kind, plot.y.kind
    placed = []
    for p in points:
        y, low, high = (convert_axis_value(value, up) for value in (p.y, p.low, p.high))
        placed.append(replace(p, x=convert_axis_value(p.x, across), y=y, low=low, high=high))
    return [p for p in placed if p.x is not None and (gaps or p.y is not None)]


def format_chart_value(value: Value) -> str:
    """A value as people read it.

    >>> [format_chart_value(v) for v in (52.4149, 149_000_000, 0.00002, 3000, None, "a")]
    ['52.41', '149M', '2e-05', '3000', '', 'a']
    """
    if value is None or isinstance(value, str | bool):
        return str(value or "")
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if unit <= abs(value) < 1e15:
            return f"{value / unit:.4g}{letter}"
    if abs(value - round(value)) < 1e-9:
        return f"{value:.6g}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.4g}"


def _escape_label(text: str) -> str:
    """Text as HTML, in one line."""
    return str(escape(clean_text(" ".join(text.split()))))


def _format_hover(label: str, *facts: str) -> str:
    lines = [_escape_label(line) for fact in facts for line in wrap(fact, 64)]
    return "<br>".join([f"<b>{_escape_label(label)}</b>", *lines])


def _format_bounds(low: Value, high: Value) -> str:
    return "" if low is None or high is None else f" [{format_chart_value(low)}, {format_chart_value(high)}]"


def _pick_colour(place: int) -> str:
    return f"series-{place + 1}" if place < len(SYMBOLS) else "other"


def _build_axis(axis: Axis, values: Sequence[Any] = ()) -> Json:
    ticks: Json = {}
    if axis.kind == "log":
        least, most = min(values, default=1), max(values, default=1)
        # Over less than two and a half decades ticks at powers of ten would be one or two.
        if least < most <= 2 * least:
            pairs = [*list_linear_ticks(least, most)]
            ticks = {"tickvals": [place for place, _ in pairs], "ticktext": [text for _, text in pairs]}
        elif most <= 300 * least:
            digits = (1, 1.5, 2, 3, 5, 7) if most <= 10 * least else (1, 2, 5)
            places = [
                one * 10.0**power
                for power in range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
                for one in digits
            ]
            ticks = {"tickvals": places, "ticktext": [format_tick(place) for place in places]}
    title = {"text": _escape_label(axis.label)}
    return {"title": title, "type": axis.kind, **ticks}


def _build_plane_figure(
    plot: _Plane, data: list[Json], points: Sequence[Point], height: int, **more: Any
) -> tuple[Any, ...]:
    """The figure over two axes with its marks, and the points as a table."""
    lines, words = [], []
    above = "top" if more.get("showlegend", True) else "bottom"
    for position, word in plot.marks:
        ends = {"xref": "x", "yref": "paper", "x0": position, "x1": position, "y0": 0, "y1": 1}
        lines.append({"type": "line", **ends, "line": {"width": 1, "dash": "dash"}})
        # On a logarithmic axis Plotly takes the exponent for an annotation, but the value for a line.
        place = {"x": math.log10(position) if plot.x.kind == "log" else position, "y": 1, "yref": "paper"}
        look = {"text": _escape_label(word), "showarrow": False, "xanchor": "left", "yanchor": above}
        words.append({**place, **look})
    across = _build_axis(plot.x, [p.x for p in points])
    up = _build_axis(plot.y, [p.y for p in points if p.y is not None])
    layout = {"height": height, "xaxis": across, "yaxis": up, "showlegend": True, "shapes": lines,
              "annotations": words, **more}  # fmt: skip
    heads = ("Name", "Group", plot.x.label, plot.y.label, "from", "to")
    rows = [
        [Cell(text=p.label, value=p.label, href=p.href), p.series, p.x, p.y, p.low, p.high] for p in points
    ]
    return {"data": data, "layout": layout}, heads, rows


def _build_error_bars(values: Sequence[Any], low: Sequence[Any], high: Sequence[Any]) -> Json:
    complete = [None not in each for each in zip(values, low, high, strict=True)]
    above = [h - v if k else 0 for v, h, k in zip(values, high, complete, strict=True)]
    below = [v - b if k else 0 for v, b, k in zip(values, low, complete, strict=True)]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "visible": any(complete)}


def _build_trace(plot: _Plane, name: str, points: Sequence[Point], place: int, **more: Any) -> Json:
    """Points of one group, with what a reader sees on hover."""
    y = [p.y for p in points]
    texts = [
        _format_hover(
            p.label or name, f"{plot.y.label} {format_chart_value(p.y)}{_format_bounds(p.low, p.high)}",
            f"{plot.x.label} {format_chart_value(p.x)}", name if p.label else "", p.note,  # type: ignore[arg-type]
        )
        for p in points
    ]  # fmt: skip
    symbol = SYMBOLS[place if place < len(SYMBOLS) else 0]
    marker = {"symbol": [f"{symbol}-open" if p.hollow else symbol for p in points], "size": 8}
    return {
        "type": "scatter", "mode": "markers", "name": _escape_label(name) or "models",
        "x": [p.x for p in points], "y": y,
        "error_y": _build_error_bars(y, [p.low for p in points], [p.high for p in points]),
        "customdata": [p.href for p in points], "hovertext": texts, "marker": marker,
        "meta": {"colour": _pick_colour(place)}, **more,
    }  # fmt: skip


def _list_plot_notes(plot: Scatter | Track, drawn: int) -> list[str]:
    notes = [f"The band is {plot.band_label}."] if isinstance(plot, Track) and plot.band_label else []
    placed = len(_place_points(plot, plot.points))
    if placed > drawn:
        notes.append(f"The {drawn:,} highest and those of the frontier are drawn, of {placed:,}.")
    if missing := len(plot.points) - placed:
        log = ", or none above 0," if "log" in (plot.x.kind, plot.y.kind) else ""
        notes.append(f"{missing} of {len(plot.points)} have no value{log} and are left out.")
    return notes


def _list_point_names(points: Iterable[Point]) -> list[Json]:
    """The names that may stand beside their points, at most 27 letters long, without organisations.

    Names that are the same without what stands before their slash, as of two folders, are whole.
    """
    every = list(points)
    shorts = {p.label: p.label.rpartition("/")[2] or p.label for p in every}
    counts = Counter(shorts.values())
    short = [(p, shorts[p.label] if counts[shorts[p.label]] == 1 else p.label) for p in every]
    return [
        {"x": p.x, "y": p.y, "text": _escape_label(name if len(name) < 28 else f"{name[:16]}…{name[-10:]}")}
        for p, name in short
    ]


def _draw_scatter(plot: Scatter) -> tuple[Any, ...]:
    every = sorted(_place_points(plot, plot.points), key=lambda p: -p.y)  # type: ignore[operator]
    solid_points = [p for p in every if not p.hollow]
    best = [solid_points[at] for at in _find_best_points(plot, solid_points)]
    frontier = {id(p) for p in best}
    points = [p for at, p in enumerate(every) if at < plot.most or id(p) in frontier]
    strong = {id(p) for p in (*best, *(p for p in points if p.emphasised))}
    # In pixels.
    diameters = {**dict.fromkeys(strong, 10), **{id(p): 13 for p in points if p.emphasised}}
    data = []
    for place, name in enumerate(dict.fromkeys([*plot.series, *(p.series for p in plot.points)])):
        if group := [p for p in points if p.series == name]:
            trace = _build_trace(plot, name, group, place)
            opacity = [1 if id(p) in strong else 0.6 for p in group]
            outline = {"width": [2 if p.emphasised else 1 for p in group]}
            sizes = [diameters.get(id(p), 7) for p in group]
            trace["marker"] |= {"size": sizes, "opacity": opacity, "line": outline}
            data.append(trace)
    data += [_build_frontier_line(best, every, lower=plot.better == "lower")] if best else []
    first = sorted(points, key=lambda p: (not p.emphasised, id(p) not in strong, p.hollow))[:NAMES]
    return _build_plane_figure(plot, data, points, 460, meta={"names": _list_point_names(first)})


def _build_frontier_line(best: Sequence[Point], points: Sequence[Point], *, lower: bool) -> Json:
    """The best y within reach at each x, up to the last point."""
    # The line goes on to the last point, which its best point beats.
    edge = (max if lower else min)(p.x for p in points)  # type: ignore[type-var]
    corners = [(p.x, p.y) for p in best]
    corners = [*corners, (edge, corners[-1][1])] if lower else [(edge, corners[0][1]), *corners]
    line = {"width": 1.5, "dash": "dot", "shape": "hv" if lower else "vh"}
    x, y = [x for x, _ in corners], [y for _, y in corners]
    return {"type": "scatter", "mode": "lines", "name": "frontier", "line": line, "x": x, "y": y,
             "meta": {"colour": "ink"}}  # fmt: skip


_LINE_ALONE: Json = {"mode": "lines", "showlegend": False, "error_y": {"visible": False}}
"""What makes a trace a line without points and intervals."""


def _draw_lines(plot: Lines) -> tuple[Any, ...]:
    data: list[Json] = []
    shown: list[Point] = []
    for place, line in enumerate(plot.lines):
        points = sorted(_place_points(plot, line.points, gaps=True), key=lambda p: p.x)  # type: ignore[arg-type, return-value]
        mode = "lines+markers" if len(points) <= MANY else "lines"
        shown += [replace(p, label=p.label or line.label) for p in points]
        if line.law:
            law = _place_points(plot, line.law)
            data.append(_build_trace(plot, line.label, law, place, **_LINE_ALONE))
            data.append(_build_trace(plot, line.label, points, place))
            continue
        trace = _build_trace(plot, line.label, points, place, mode=mode, connectgaps=False)
        # The area shows the intervals.
        trace["error_y"]["visible"] = False
        data += [*_build_interval_area(points, trace["meta"]), trace]
    return _build_plane_figure(plot, data, shown, 380)


def _build_interval_area(points: Sequence[Point], meta: Json) -> list[Json]:
    """The area between both ends, in a part for each run of points that have them."""
    x: list[Any] = []
    y: list[Any] = []
    for bounded, run in groupby(points, key=lambda p: None not in (p.low, p.high)):
        if bounded:
            some = list(run)
            x += [*(p.x for p in some), *(p.x for p in reversed(some)), None]
            y += [*(p.high for p in some), *(p.low for p in reversed(some)), None]
    area = {"type": "scatter", "mode": "none", "fill": "toself", "showlegend": False}
    # None breaks the outline between two runs; the last one would end in nothing.
    return [{**area, "x": x[:-1], "y": y[:-1], "meta": meta}] if x else []


def _draw_track(plot: Track) -> tuple[Any, ...]:
    points = sorted(_place_points(plot, plot.points), key=lambda p: p.x)  # type: ignore[arg-type, return-value]
    data: list[Json] = []
    if plot.joined:
        data.append(_build_trace(plot, "", [p for p in points if not p.hollow], 0, **_LINE_ALONE))
    for place, (name, colour) in enumerate(plot.tones.items()):
        if group := [p for p in points if p.series == name]:
            data.append(
                _build_trace(plot, name, group, place, meta={"colour": colour or _pick_colour(place)})
            )
    figure, heads, rows = _build_plane_figure(plot, data, points, 340)
    if plot.band:
        ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": plot.band[0], "y1": plot.band[1]}
        figure["layout"]["shapes"].append({"type": "rect", **ends})
    return figure, heads, rows


def _draw_bars(plot: Bars) -> tuple[Any, ...]:
    names = [_escape_label(name) for name in plot.categories]
    data = []
    for place, series in enumerate(plot.series):
        values = [convert_axis_value(v) for v in series.values]
        texts = [format_chart_value(v) for v in values]
        named = zip(plot.categories, texts, strict=True)
        data.append({
            "type": "bar", "orientation": "h", "name": _escape_label(series.label), "x": values, "y": names,
            "customdata": [series.href] * len(values),
            "hovertext": [_format_hover(series.label, f"{name}: {text}") for name, text in named],
            "text": texts, "meta": {"colour": _pick_colour(place)},
        })  # fmt: skip
    # Pixels: for the legend, and for each category its name and its bars.
    height = 110 + len(names) * (14 + 20 * len(plot.series))
    layout = {"height": height, "xaxis": _build_axis(plot.axis), "yaxis": {"autorange": "reversed"},
              "barmode": "group", "showlegend": len(data) > 1}  # fmt: skip
    rows = [
        [name, *(convert_axis_value(one.values[at]) for one in plot.series)]
        for at, name in enumerate(plot.categories)
    ]
    return {"data": data, "layout": layout}, ["", *(one.label for one in plot.series)], rows


def _draw_distribution(plot: Distribution) -> tuple[Any, ...]:
    values = np.array([v for v in map(convert_axis_value, plot.values) if v is not None])
    if not values.size:
        return {"data": [], "layout": {}}, ("From", "To", "Models"), []
    low, high = float(values.min()), float(values.max())
    # A histogram of equal values needs a width.
    room = 0.5 if high - low <= 1e-9 * max(abs(low), abs(high), 1) else 0.0
    # The square-root rule, within what is readable on a page.
    bins = min(30, max(5, math.isqrt(values.size)))
    counts, edges = np.histogram(values, bins=bins, range=(low - room, high + room))
    rows = [[float(a), float(b), int(n)] for a, b, n in zip(edges, edges[1:], counts, strict=False)]
    texts = [
        _format_hover(f"{n} models", f"{format_chart_value(a)} to {format_chart_value(b)}")
        for a, b, n in rows
    ]
    bars = {
        "type": "bar", "name": "models", "x": [(a + b) / 2 for a, b, _ in rows], "y": [n for _, _, n in rows],
        "width": float(edges[1] - edges[0]), "hovertext": texts,
        "meta": {"colour": "other"},
    }  # fmt: skip
    middle = float(np.median(values))
    plane = _Plane(
        x=plot.axis, y=Axis(label="models"), marks=[(middle, f"median {format_chart_value(middle)}")]
    )
    valid_marks = [p for p in plot.marks if convert_axis_value(p.x) is not None]
    heights = [replace(p, y=next((n for _, b, n in rows if p.x <= b), 0)) for p in valid_marks]  # type: ignore[operator]
    marks = _place_points(plane, heights)
    data = [bars, *([_build_trace(plane, "chosen", marks, 0)] if marks else [])]
    more = {"meta": {"names": _list_point_names(marks)}, "showlegend": False}
    return _build_plane_figure(plane, data, marks, 300, **more)[0], ("From", "To", "Models"), rows


def _draw_heat(plot: Heat) -> tuple[Any, ...]:
    axes, names = [], []
    for label, marks, bins in (
        (plot.x.label, plot.across, len(plot.values[0])), (plot.y.label, plot.up, len(plot.values)),
    ):  # fmt: skip
        # A bin is one wide: its edges are whole numbers, and its own value stands in its middle.
        shift = 0.0 if len(marks) > bins else 0.5
        texts = [format_tick(float(f"{mark:.3g}")) for mark in marks]
        places = [number + shift for number in range(len(marks))]
        title = {"text": _escape_label(label)}
        axes.append({"title": title, "type": "linear", "tickvals": places, "ticktext": texts})
        names.append(texts if shift else [f"{low} – {high}" for low, high in pairwise(texts)])
    cells = [
        (x, y, convert_axis_value(value), count)
        for y, (values, counts) in enumerate(zip(plot.values, plot.counts, strict=True))
        for x, (value, count) in enumerate(zip(values, counts, strict=True))
    ]
    rows = [[names[0][x], names[1][y], value, count] for x, y, value, count in cells]
    trace = {
        "type": "heatmap", "x": [cell[0] + 0.5 for cell in cells], "y": [cell[1] + 0.5 for cell in cells],
        "z": [cell[2] for cell in cells], "text": [cell[3] for cell in cells], "meta": {"colour": "series-1"},
        "hovertext": [
            _format_hover(format_chart_value(value) or "empty", f"{count} runs", f"{plot.x.label} {across}",
                          f"{plot.y.label} {up}")
            for across, up, value, count in rows
        ],
    }  # fmt: skip
    layout = {"height": 64 + 46 * len(names[1]), "xaxis": axes[0], "yaxis": axes[1], "showlegend": False}
    return {"data": [trace], "layout": layout}, [plot.x.label, plot.y.label, "Mean", "Runs"], rows


_DRAW: dict[type[Any], Callable[[Any], tuple[Any, ...]]] = {
    Scatter: _draw_scatter, Lines: _draw_lines, Track: _draw_track, Bars: _draw_bars,
    Distribution: _draw_distribution, Heat: _draw_heat,
}  # fmt: skip
