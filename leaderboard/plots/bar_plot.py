"""Horizontal bars in groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaderboard.plots.frame import LINE, WIDTH, Entry, empty, legend, picture, sentences
from leaderboard.plots.scales import Scale, laid_out, number
from leaderboard.plots.shapes import Bars, BarSeries, Number
from leaderboard.plots.svg import colour, element, group, joined, linked, path, shortened, wide
from leaderboard.plots.ticks import alike, tick_texts, written

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
    every = [[_bar(s, i, texts) for s in plot.series] for i in range(len(plot.categories))]
    known = [v for row in every for bar in row if bar for v in (bar.value, bar.low, bar.high)]
    if not known:
        why = "Nothing to draw: no model has a value here."
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    return _drawn(plot, every, known, width)


def _drawn(plot: Bars, every: Sequence[Sequence[Bar | None]], known: Sequence[float], width: float) -> Markup:
    head, top = legend(
        [Entry(label=s.label, place=i, href=s.href) for i, s in enumerate(plot.series)], width=width
    )
    beside = min(max(map(wide, plot.categories)) + 14, width * 0.32) if width >= NARROW else 0.0
    below = min(known) < 0
    start, end = beside + (46 if below else 4), width - 52
    scale = laid_out(known, "linear", start=start, end=end, most=int((end - start) / 62), zero=True)
    heading = 0.0 if beside else LINE
    deep = heading + THICK * len(plot.series) + GAP
    bottom = top + deep * len(every)
    groups = (_group(plot, i, row, scale, top=top + deep * i, heading=heading) for i, row in enumerate(every))
    notes = ["– no value"] if any(bar is None for row in every for bar in row) else []
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
