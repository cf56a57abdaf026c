"""What a plot shows, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeAlias

Number: TypeAlias = "float | int | None"
Place: TypeAlias = "float | int | date | None"
Kind = Literal["linear", "log", "date"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        label: What it measures, with its unit.
        kind: How values are laid out; values of a `date` axis are dates.
    """

    label: str
    kind: Kind = "linear"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One point of a scatter.

    Attributes:
        label: Its name.
        x: None and what is not finite are left out, and so is y.
        y: Higher is better.
        y_low: The interval's lower end; None for no interval.
        y_high: The interval's upper end.
        href: Where it leads; empty for nowhere.
        series: The group that gives its colour and its marker.
        emphasised: Whether it is drawn larger and always named.
        hollow: Whether it is drawn as an outline and is never on the frontier: what is not comparable.
        note: A sentence for its tooltip.
    """

    label: str
    x: Place
    y: Number
    y_low: Number = None
    y_high: Number = None
    href: str = ""
    series: str = ""
    emphasised: bool = False
    hollow: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """Points, and the frontier of those that no other beats on both axes.

    Attributes:
        title: The picture's accessible name.
        x: The axis of what a score costs, or of when it came.
        y: The axis of the score.
        points: In any order.
        better: Which x is better; None draws no frontier.
        series: The order of the groups; those it lacks follow in order of appearance.
        desc: A sentence for those who cannot see it; what is counted is added.
    """

    title: str
    x: Axis
    y: Axis
    points: Sequence[Point]
    better: Better | None = "lower"
    series: Sequence[str] = ()
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BarSeries:
    """One model's bars: `values`, and `low` and `high` where given, have one item for each category."""

    label: str
    values: Sequence[Number]
    low: Sequence[Number] = ()
    high: Sequence[Number] = ()
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """Horizontal bars in groups: a group for each category, in it a bar for each series (2 to 6)."""

    title: str
    axis: Axis
    categories: Sequence[str]
    series: Sequence[BarSeries]
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RadarSeries:
    """One model's outline: a value for each axis."""

    label: str
    values: Sequence[Number]
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Radar:
    """Outlines over three axes or more that share one scale.

    Attributes:
        title: The picture's accessible name.
        axes: The spokes' names, clockwise from the top.
        series: 2 to 6 of them.
        low: The value at the centre; None takes a round number below the data.
        high: The value at the rim; None takes a round number above the data.
        desc: A sentence for those who cannot see it.
    """

    title: str
    axes: Sequence[str]
    series: Sequence[RadarSeries]
    low: float | None = None
    high: float | None = None
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A named value in a distribution."""

    label: str
    value: Number
    href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """All scores of a task; up to six of them named. `marks` are among `values`, not beside them."""

    title: str
    axis: Axis
    values: Sequence[Number]
    marks: Sequence[Mark] = ()
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePoint:
    """One point of a curve; the band lies between `low` and `high` where both are given."""

    x: Place
    y: Number
    low: Number = None
    high: Number = None
    href: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One curve; its points are joined in order of x and broken where y is missing."""

    label: str
    points: Sequence[LinePoint]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """Curves over one x axis: a loss against steps, a score against learning rates.

    `marks` are places on x with a word for each, drawn as upright lines.
    """

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    marks: Sequence[tuple[float, str]] = ()
    desc: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tone:
    """What a group of points has in common: its name, the place of its marker, the class of its colour."""

    label: str
    place: int
    colour: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackPoint:
    """One point of a track.

    Attributes:
        label: Its name.
        x: On a `date` axis a date's ordinal, with the part of the day; None is left out.
        y: Likewise.
        low: The interval's lower end, None for no interval.
        high: The interval's upper end.
        tone: Which of the track's tones it has.
        hollow: Whether it is an outline that no line leads to: what is not comparable.
        href: Where it leads.
        note: What else is said of it.
    """

    label: str
    x: Number
    y: Number
    low: Number = None
    high: Number = None
    tone: int = 0
    hollow: bool = False
    href: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """Points one after another, with their intervals: verdicts over time, scores over steps.

    Attributes:
        title: The picture's accessible name.
        x: Time, or steps.
        y: What is followed.
        points: In any order.
        tones: The groups that there may be.
        band: From where to where y does not count, drawn behind the points; None for none.
        band_label: What it is.
        marks: Places on x with a word for each, drawn as upright lines.
        joined: Whether a line leads from point to point.
        desc: A sentence for those who cannot see it; what is counted is added.
    """

    title: str
    x: Axis
    y: Axis
    points: Sequence[TrackPoint]
    tones: Sequence[Tone]
    band: tuple[float, float] | None = None
    band_label: str = ""
    marks: Sequence[tuple[float, str]] = ()
    joined: bool = False
    desc: str = ""
