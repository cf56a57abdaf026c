"""What static/plot.js needs to draw a scatter anew with Plotly, and the library's file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from markupsafe import Markup

from leaderboard.plots.frame import WIDTH
from leaderboard.plots.pareto import steps
from leaderboard.plots.scatter_plot import scatter
from leaderboard.plots.shapes import Axis, Scatter
from leaderboard.plots.spots import Spot, series_of, spots, told
from leaderboard.plots.svg import COLOURS, clean, element, safe
from leaderboard.plots.ticks import written

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
    every = spots(plot)
    names = series_of(plot)
    groups = [(i, [s for s in every if s.place == i]) for i in range(len(names))]
    return {
        "title": clean(plot.title),
        "x": _axis(plot.x),
        "y": _axis(plot.y),
        "better": plot.better,
        "series": [_series(plot, names[i], i, members) for i, members in groups if members],
        "frontier": _frontier(plot, every),
    }


def _axis(axis: Axis) -> dict[str, str]:
    return {"label": clean(axis.label), "kind": axis.kind}


def _series(plot: Scatter, name: str, place: int, members: Sequence[Spot]) -> dict[str, Any]:
    return {
        "name": clean(name) or "other",
        "colour": place + 1 if place < COLOURS else 0,
        "label": [clean(s.point.label) for s in members],
        "href": [safe(s.point.href) for s in members],
        "text": [clean(told(plot, s)) for s in members],
        "x": [_value(s.x, plot.x) for s in members],
        "y": [s.y for s in members],
        "low": [s.ends[0] if s.ends else None for s in members],
        "high": [s.ends[1] if s.ends else None for s in members],
        "best": [s.best for s in members],
        "emphasised": [s.point.emphasised for s in members],
        "hollow": [s.point.hollow for s in members],
    }


def _value(x: float, axis: Axis) -> float | str:
    return written(x, "date") if axis.kind == "date" else x


def _frontier(plot: Scatter, every: Sequence[Spot]) -> dict[str, list[Any]]:
    if plot.better is None or not every:
        return {"x": [], "y": []}
    edge = (max if plot.better == "lower" else min)(s.x for s in every)
    line = steps(sorted({(s.x, s.y) for s in every if s.best}), plot.better, edge=edge)
    return {"x": [_value(x, plot.x) for x, _ in line], "y": [y for _, y in line]}


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
