"""All scores of one task: a histogram, a strip of ticks, the quartiles, and named models."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from markupsafe import Markup

from leaderboard.plots.frame import ABOVE, BELOW, WIDTH, Entry, Frame, empty, legend, picture, sentences
from leaderboard.plots.markers import marker
from leaderboard.plots.scales import laid_out, number
from leaderboard.plots.shapes import Distribution, Mark
from leaderboard.plots.svg import colour, element, group, joined, linked, path, wide
from leaderboard.plots.ticks import ticks, written

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
    return _drawn(plot, values, marks, notes, width)


def _drawn(
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
    said = [_told(quartiles, len(values)), *notes]
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


def _told(quartiles: Sequence[float], count: int) -> str:
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
    return linked(box + line, href="", name=_told(quartiles, count))


def _mark(plot: Distribution, mark: Mark, place: int, value: float, frame: Frame, bottom: float) -> Markup:
    x, top = frame.x.at(value), frame.y.end
    stem = element("path", d=path([(x, top), (x, bottom + 15)]), class_="plot-stem", stroke="currentColor")
    sign = element("g", stem, marker(place, x, top, 5), class_=f"plot-mark {colour(place)}")
    return linked(sign, href=mark.href, name=f"{mark.label}: {plot.axis.label} {written(value, digits=4)}")
