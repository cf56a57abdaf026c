"""Outlines of models over several axes that share one scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leaderboard.plots.frame import LINE, Entry, empty, legend, picture, sentences, wrapped
from leaderboard.plots.markers import marker
from leaderboard.plots.scales import Scale, laid_out, number
from leaderboard.plots.shapes import Radar, RadarSeries
from leaderboard.plots.svg import colour, element, group, joined, linked, path
from leaderboard.plots.ticks import tick_texts, written

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
    return _drawn(plot, _scale(plot, known, radius), known, width)


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


def _drawn(plot: Radar, scale: Scale, known: Sequence[float], width: float) -> Markup:
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
