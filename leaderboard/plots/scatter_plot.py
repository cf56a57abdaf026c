"""Points with their frontier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from leaderboard.plots.frame import (
    ABOVE,
    BELOW,
    WIDTH,
    Entry,
    Frame,
    empty,
    framed,
    legend,
    picture,
    sentences,
)
from leaderboard.plots.labels import Name, along, around, drawn, place
from leaderboard.plots.markers import marker
from leaderboard.plots.pareto import steps
from leaderboard.plots.scales import number
from leaderboard.plots.shapes import Axis, Scatter
from leaderboard.plots.spots import Spot, left_out, series_of, spots, told
from leaderboard.plots.svg import colour, element, group, linked, path, shortened
from leaderboard.plots.ticks import written

FEW = 40
"""Up to so many points all are reached by the keyboard; beyond, only those that are named."""


def scatter(plot: Scatter, *, width: float = WIDTH) -> Markup:
    """The picture of a scatter; `width` is in units of the text, 360 for a phone.

    Points that have no place are counted in a sentence. Only the frontier and emphasised points are
    named, as far as there is room; every point has its name and values in a tooltip.
    """
    every, notes = spots(plot), left_out(plot)
    if not every:
        why = (
            " ".join(["Nothing to draw.", *notes]) if plot.points else "Nothing to draw: there are no points."
        )
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    top_part, top = legend(_entries(plot, every), width=width)
    bottom = top + ABOVE + max(240.0, min(width * 0.5, 360))
    heights = [v for s in every for v in (s.y, *(s.ends or ()))]
    values = ([s.x for s in every], [v for v in heights if number(v, plot.y.kind) is not None])
    frame = framed((_with_hint(plot), plot.y), values, width=width, top=top + ABOVE, bottom=bottom)
    below, high = sentences(notes, top=bottom + BELOW, width=width)
    parts = [top_part, frame.drawn(), *_data(plot, every, frame), below]
    desc = " ".join(filter(None, [plot.desc, _told(plot, every), *notes]))
    return picture(
        parts, title=plot.title, desc=desc, width=width, height=bottom + BELOW + high, links=_links(every)
    )


def _links(every: Sequence[Spot]) -> bool:
    return any(s.point.href for s in every)


def _entries(plot: Scatter, every: Sequence[Spot]) -> list[Entry]:
    used = {s.place for s in every}
    names = [(i, name) for i, name in enumerate(series_of(plot)) if i in used]
    return [Entry(label=name or "other", place=i) for i, name in names] if len(names) > 1 else []


def _with_hint(plot: Scatter) -> Axis:
    hint = {"lower": "← better · ", "higher": "", None: ""}[plot.better]
    after = " · better →" if plot.better == "higher" else ""
    return plot.x if plot.x.kind == "date" else Axis(label=hint + plot.x.label + after, kind=plot.x.kind)


def _told(plot: Scatter, every: Sequence[Spot]) -> str:
    best = sorted((s for s in every if s.best), key=lambda s: s.x)
    names = ", ".join(f"{s.point.label} ({written(s.y, digits=4)})" for s in best[:10])
    more = f" and {len(best) - 10} more" if len(best) > 10 else ""
    return f"{len(every)} points." + (f" On the frontier: {names}{more}." if best else "")


def _data(plot: Scatter, every: Sequence[Spot], frame: Frame) -> Iterator[Markup]:
    corners = _corners(plot, every, frame)
    if corners:
        yield element("path", d=path(corners), class_="plot-frontier", fill="none", stroke="currentColor")
    yield group("plot-intervals", (_interval(s, frame) for s in every if s.ends), stroke="currentColor")
    last = sorted(every, key=lambda s: (s.point.emphasised, s.best))
    yield group("plot-points", (_point(plot, s, frame, len(every)) for s in last))
    yield _names(every, frame, corners)


def _corners(plot: Scatter, every: Sequence[Spot], frame: Frame) -> list[tuple[float, float]]:
    best = sorted((s.x, s.y) for s in every if s.best)
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


def _names(every: Sequence[Spot], frame: Frame, corners: Sequence[tuple[float, float]]) -> Markup:
    named = sorted((s for s in every if s.named), key=lambda s: (not s.point.emphasised, -s.y, s.x))
    texts = [
        Name(
            text=shortened(s.point.label, 190),
            x=frame.x.at(s.x),
            y=frame.y.at(s.y),
            must=s.point.emphasised,
        )
        for s in named
    ]
    boxes = {s: around(frame.x.at(s.x), frame.y.at(s.y), _size(s)) for s in every}
    hard = [boxes[s] for s in named]
    soft = [boxes[s] for s in every if not s.named] + along(corners)
    left, top, right, bottom = frame.box
    inside = (left + 2, top - 8, right + 28, bottom - 2)
    return group("plot-labels", map(drawn, place(texts, inside=inside, hard=hard, soft=soft)))
