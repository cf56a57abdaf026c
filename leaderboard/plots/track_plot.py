"""Points one after another: verdicts over time, scores over training steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

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
from leaderboard.plots.shapes import Kind, Number, Tone, Track, TrackPoint
from leaderboard.plots.svg import colour, element, group, linked, path
from leaderboard.plots.ticks import YEARS, written

FEW, MARKED = 60, 200
"""Up to so many points all are reached by the keyboard, and all on a line have a marker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A point that can be drawn, with its numbers."""

    point: TrackPoint
    x: float
    y: float
    ends: tuple[float, float] | None


def moment(text: str) -> float | None:
    """An ISO time as a place on a `date` axis: days, in UTC; None of what is none.

    >>> moment("2026-01-02T12:00:00+00:00") - moment("2026-01-01"), moment("today")
    (1.5, None)
    """
    try:
        time = datetime.fromisoformat(text)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    if time.year not in YEARS:
        return None
    return time.toordinal() + (time.hour * 3600 + time.minute * 60 + time.second) / 86_400


def track(plot: Track, *, width: float = WIDTH) -> Markup:
    """The picture of a track; a point without a place on an axis is left out and counted."""
    shown = sorted(_spots(plot), key=lambda spot: spot.x)
    notes = _left_out(plot, len(shown))
    if not shown:
        why = " ".join(["Nothing to draw: there are no values.", *notes])
        return empty(title=plot.title, desc=plot.desc, why=why, width=width)
    head, top = legend(_entries(plot, shown), width=width)
    bottom = top + ABOVE + max(220.0, min(width * 0.42, 300))
    heights = [v for s in shown for v in (s.y, *(s.ends or ()))] + [*(plot.band or ())]
    frame = framed(
        (plot.x, plot.y), ([s.x for s in shown], heights), width=width, top=top + ABOVE, bottom=bottom
    )
    below = [f"The band is {plot.band_label}."] if plot.band and plot.band_label else []
    foot, high = sentences([*below, *notes], top=bottom + BELOW, width=width)
    desc = " ".join(filter(None, [plot.desc, f"{len(shown)} points.", *below, *_marked(plot), *notes]))
    return picture(
        [
            head,
            _band(plot, frame),
            frame.drawn(),
            *upright(plot.marks, plot.x, frame),
            *_data(plot, shown, frame),
            foot,
        ],
        title=plot.title,
        desc=desc,
        width=width,
        height=bottom + BELOW + high,
        links=any(s.point.href for s in shown),
    )


def _spots(plot: Track) -> Iterator[Spot]:
    for point in plot.points:
        x, y, low, high = (
            _placed(value, kind)
            for value, kind in (
                (point.x, plot.x.kind),
                *((v, plot.y.kind) for v in (point.y, point.low, point.high)),
            )
        )
        if x is not None and y is not None:
            ends = None if low is None or high is None else (low, high)
            yield Spot(point=point, x=x, y=y, ends=ends)


def _placed(value: Number, kind: Kind) -> float | None:
    return number(value, "linear" if kind == "date" else kind)


def _left_out(plot: Track, shown: int) -> list[str]:
    missing = len(plot.points) - shown
    log = ", or none above 0," if "log" in (plot.x.kind, plot.y.kind) else ""
    return [f"{missing} of {len(plot.points)} have no value{log} and are left out."] if missing else []


def _entries(plot: Track, shown: Sequence[Spot]) -> list[Entry]:
    used = [tone for at, tone in enumerate(plot.tones) if any(s.point.tone == at for s in shown)]
    named = [Entry(label=tone.label, place=tone.place, colour=tone.colour) for tone in used]
    return named if len(named) > 1 or plot.band else []


def _marked(plot: Track) -> list[str]:
    return [f"{label} at {written(x, plot.x.kind, 4)}." for x, label in plot.marks]


def _band(plot: Track, frame: Frame) -> Markup:
    if plot.band is None:
        return Markup("")
    left, _, right, _ = frame.box
    low, high = (frame.y.at(value) for value in plot.band)
    box = element("rect", x=left, y=high, width=right - left, height=low - high, class_="plot-margin")
    middle = frame.y.at(sum(plot.band) / 2)
    line = element("line", x1=left, x2=right, y1=middle, y2=middle, class_="plot-axis", stroke="currentColor")
    return box + line


def _data(plot: Track, shown: Sequence[Spot], frame: Frame) -> Iterator[Markup]:
    solid = [_at(s, frame) for s in shown if not s.point.hollow]
    if plot.joined and len(solid) > 1:
        joins = element("path", d=path(solid), stroke="currentColor", fill="none")
        yield group(f"plot-line {_colour(plot.tones[0])}", [joins])
    yield group("plot-intervals", (_interval(plot, s, frame) for s in shown if s.ends), stroke="currentColor")
    dots = shown if len(shown) <= MARKED or not plot.joined else [*_apart(shown)]
    yield group("plot-points", (_point(plot, s, frame, len(dots)) for s in dots))


def _apart(shown: Sequence[Spot]) -> Iterator[Spot]:
    """The points of a long line that have a marker: both ends, and what is not as the others are."""
    ends = (shown[0], shown[-1])
    return (s for s in shown if s.point.tone or s.point.hollow or s in ends)


def _at(spot: Spot, frame: Frame) -> tuple[float, float]:
    return frame.x.at(spot.x), frame.y.at(spot.y)


def _colour(tone: Tone) -> str:
    return tone.colour or colour(tone.place)


def _interval(plot: Track, spot: Spot, frame: Frame) -> Markup:
    x, (low, high) = frame.x.at(spot.x), spot.ends or (spot.y, spot.y)
    ends = path([(x, frame.y.at(low)), (x, frame.y.at(high))])
    return element("path", d=ends, class_=f"plot-interval {_colour(plot.tones[spot.point.tone])}")


def _point(plot: Track, spot: Spot, frame: Frame, count: int) -> Markup:
    tone = plot.tones[spot.point.tone]
    kinds = f"plot-point plot-best {_colour(tone)}{' plot-hollow' if spot.point.hollow else ''}"
    inside = element("g", marker(tone.place, *_at(spot, frame), 4.6), class_=kinds)
    return linked(inside, href=spot.point.href, name=_told(plot, spot), focusable=count <= FEW)


def _told(plot: Track, spot: Spot) -> str:
    interval = ""
    if spot.ends:
        interval = " [{}, {}]".format(*(written(value, digits=4) for value in spot.ends))
    facts = [
        f"{plot.y.label} {written(spot.y, digits=4)}{interval}",
        f"{plot.x.label} {written(spot.x, plot.x.kind, 6)}",
        plot.tones[spot.point.tone].label if len(plot.tones) > 1 else "",
        spot.point.note,
    ]
    return f"{spot.point.label}: " + " · ".join(filter(None, facts))
