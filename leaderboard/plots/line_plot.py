"""Curves: over training steps, over learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

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
    upright,
)
from leaderboard.plots.markers import marker
from leaderboard.plots.scales import number
from leaderboard.plots.shapes import Line, LinePoint, Lines
from leaderboard.plots.svg import colour, element, group, joined, linked, path
from leaderboard.plots.ticks import written

MARKED, DENSE, KEPT = 60, 200, 600
"""Points up to which a curve has markers, beyond which its line is thin, and that it keeps at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A point with its numbers; y is None where the curve is broken."""

    point: LinePoint
    x: float
    y: float | None
    low: float | None
    high: float | None


def _spots(plot: Lines, line: Line) -> list[Spot]:
    found = []
    for p in line.points:
        x = number(p.x, plot.x.kind)
        y, low, high = (number(v, plot.y.kind) for v in (p.y, p.low, p.high))
        if low is None or high is None:
            low = high = None
        if x is not None:
            found.append(Spot(point=p, x=x, y=y, low=low, high=high))
    return thinned(sorted(found, key=lambda s: s.x))


def thinned(spots: Sequence[Spot], most: int = KEPT) -> list[Spot]:
    """A long curve's shape: of each stretch of it the first, the least, the greatest, and every break."""
    if len(spots) <= most:
        return [*spots]
    size = -(-len(spots) * 3 // most)
    kept: list[Spot] = []
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


def _runs(curve: Sequence[Spot]) -> Iterator[list[Spot]]:
    for there, run in groupby(curve, key=lambda s: s.y is not None):
        if there:
            yield list(run)


def _curve(plot: Lines, place: int, curve: Sequence[Spot], frame: Frame) -> Markup:
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
        linked(marker(place, *_at(s, frame), 3.4), href=s.point.href, name=_told(plot, place, s))
        for s in shown
        if len(shown) <= MARKED or id(s) in alone or s.point.href
    )
    return group(colour(place), [*parts, joined(dots)])


def _band(run: Sequence[Spot], frame: Frame) -> Markup:
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


def _at(spot: Spot, frame: Frame) -> tuple[float, float]:
    return frame.x.at(spot.x), frame.y.at(spot.y if spot.y is not None else frame.y.low)


def _told(plot: Lines, place: int, spot: Spot) -> str:
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
