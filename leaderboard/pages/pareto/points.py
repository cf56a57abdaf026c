"""The points of the trade-off page: which entries have both values, and which stands for its model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, TypeAlias

from leaderboard.grid import Grid
from leaderboard.pages.pareto.measures import FLOPS, MEASURES, Target
from leaderboard.pages.pareto.printed import PrintedPoint
from leaderboard.plots.shapes import Axis, Point, Scatter
from leaderboard.plots.spots import spots
from leaderboard.queries import Entry

if TYPE_CHECKING:
    from leaderboard.views.pareto import ParetoState

Place: TypeAlias = float | date

SERIES = ("imported", "reported", "measured")
"""In the order of the plot's colours, which are those of the origins elsewhere."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dot:
    """One point.

    Attributes:
        entry: What it is of.
        x: What the score costs, in the measure's own unit.
        score: A share of 1.
        low: Of the 95 % interval; NaN for none.
        high: Likewise.
        whole: Whether the score is of all that it should be of.
        there: Of how many columns it is.
        href: Where it leads.
        note: What must be known of it.
        selected: Whether scores that it is made of chose the model.
    """

    entry: Entry
    x: Place
    score: float
    low: float = float("nan")
    high: float = float("nan")
    whole: bool = True
    there: int
    href: str
    note: str = ""
    selected: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Cloud:
    """All points of a page.

    Attributes:
        dots: The best score first, incomplete ones last.
        best: Those of `dots` on the frontier, by x.
        plot: The picture.
        without: How many models pass the filters and have the score, but no known x.
        part: How many have some of the score's columns only and are not shown.
    """

    dots: Sequence[Dot]
    best: Sequence[Dot]
    plot: Scatter
    without: int
    part: int

    def beaten_by(self, dot: Dot) -> Dot | None:
        """The best of the frontier that is at least as good on both axes, None for one on it."""
        if dot in self.best or not dot.whole:
            return None
        lower = self.plot.better == "lower"
        return max(
            (one for one in self.best if (one.x <= dot.x if lower else one.x >= dot.x)),  # type: ignore[operator]
            key=lambda one: one.score,
            default=None,
        )


def rows_shown(grid: Grid, state: ParetoState) -> list[int]:
    """The rows that pass the filters, without those of papers."""
    return [
        row for row, entry in enumerate(grid.entries) if entry.origin != "reported" and state.keeps(entry)
    ]


def cloud(
    grid: Grid,
    state: ParetoState,
    score: Target,
    values: Mapping[int, Place],
    printed: Iterable[PrintedPoint],
    axis: Axis,
) -> Cloud:
    """The points of a grid in a state.

    Args:
        grid: The suite.
        state: Its filters hold.
        score: What stands upwards.
        values: What stands across, by row.
        printed: Points of papers.
        axis: Of the values.
    """
    kept = [row for row in rows_shown(grid, state) if score.there[row]]
    whole = [row for row in kept if score.whole[row]]
    shown = _standing(grid, score, [row for row in (kept if state.part else whole) if row in values], state)
    dots = [_dot(grid, score, row, values[row]) for row in shown]
    dots += [_printed(point, score) for point in printed if state.keeps(point.entry)]
    dots.sort(key=lambda dot: (not dot.whole, -dot.score))
    plot = _plot(dots, state, axis, score.label, grid.listed.suite.title)
    own = {id(dot_point): dot for dot, dot_point in zip(dots, plot.points, strict=True)}
    best = [spot for spot in spots(plot) if spot.best]
    return Cloud(
        dots=dots,
        best=[own[id(spot.point)] for spot in sorted(best, key=lambda spot: spot.x)],
        plot=plot,
        without=_models(grid, kept if state.part else whole) - _models(grid, shown),
        part=0 if state.part else _models(grid, kept) - _models(grid, whole),
    )


def _models(grid: Grid, rows: Iterable[int]) -> int:
    return len({grid.entries[row].model_slug for row in rows})


def _standing(grid: Grid, score: Target, rows: Sequence[int], state: ParetoState) -> list[int]:
    """One row for each model: that with the most columns, then the best known revision."""
    if state.each == "entry":
        return list(rows)
    return grid.one_for_each_model(rows, score.there)


def _dot(grid: Grid, score: Target, row: int, x: Place) -> Dot:
    entry = grid.entries[row]
    whole, there, selected = bool(score.whole[row]), int(score.there[row]), bool(score.selected[row])
    notes = [] if whole else [f"only {there} of {score.wanted}: not comparable"]
    notes += ["scores in it chose the model"] if selected else []
    return Dot(
        entry=entry, x=x, score=float(score.values[row]), low=float(score.low[row]),
        high=float(score.high[row]), whole=whole, there=there, href=f"/models/{entry.model_slug}",
        note="; ".join(notes), selected=selected,
    )  # fmt: skip


def _printed(point: PrintedPoint, score: Target) -> Dot:
    return Dot(
        entry=point.entry, x=point.flop, score=point.score, there=score.wanted, href=point.href,
        note=point.note,
    )  # fmt: skip


def _plot(dots: Sequence[Dot], state: ParetoState, axis: Axis, label: str, suite: str) -> Scatter:
    return Scatter(
        title=f"{label[0].upper()}{label[1:]}, {suite}, against {MEASURES[state.x].name}",
        x=axis,
        y=Axis(label=f"{label[0].upper()}{label[1:]} (× 100)"),
        points=[_point(dot, state) for dot in dots],
        better=MEASURES[state.x].better,
        series=SERIES,
    )


def _point(dot: Dot, state: ParetoState) -> Point:
    x = dot.x / FLOPS if state.x == "flops" and isinstance(dot.x, int | float) else dot.x
    return Point(
        label=dot.entry.model, x=x, y=100 * dot.score, y_low=100 * dot.low, y_high=100 * dot.high,
        href=dot.href, series=dot.entry.origin, hollow=not dot.whole, note=dot.note,
    )  # fmt: skip
