"""The points of a scatter that can be drawn, and what is said of them and of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboard.plots.pareto import frontier
from leaderboard.plots.scales import number
from leaderboard.plots.shapes import Better, Point, Scatter
from leaderboard.plots.ticks import written


@dataclass(frozen=True, kw_only=True, slots=True)
class Spot:
    """A point that can be drawn: its numbers, its series' place, and whether it is on the frontier."""

    point: Point
    x: float
    y: float
    place: int
    best: bool

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval's ends, where it has one."""
        low, high = (number(v, "linear") for v in (self.point.y_low, self.point.y_high))
        return None if low is None or high is None else (low, high)

    @property
    def named(self) -> bool:
        """Whether its name stands in the picture."""
        return self.best or self.point.emphasised


def series_of(plot: Scatter) -> list[str]:
    """The groups in order."""
    return list(dict.fromkeys([*plot.series, *(p.series for p in plot.points)]))


def spots(plot: Scatter) -> list[Spot]:
    """The points that can be drawn, as they came."""
    order = {name: i for i, name in enumerate(series_of(plot))}
    usable = [
        (p, x, y)
        for p in plot.points
        if (x := number(p.x, plot.x.kind)) is not None and (y := number(p.y, plot.y.kind)) is not None
    ]
    best = _best(usable, plot.better)
    return [
        Spot(point=p, x=x, y=y, place=order[p.series], best=i in best) for i, (p, x, y) in enumerate(usable)
    ]


def _best(usable: Sequence[tuple[Point, float, float]], better: Better | None) -> set[int]:
    """The places of those on the frontier, which hollow points have no part in."""
    full = [i for i, (point, _, _) in enumerate(usable) if not point.hollow]
    return {full[at] for at in frontier([usable[i][1:] for i in full], better)} if better else set()


def left_out(plot: Scatter) -> list[str]:
    """Sentences about the points that cannot be drawn."""
    said = []
    for axis, values in ((plot.x, [p.x for p in plot.points]), (plot.y, [p.y for p in plot.points])):
        if missing := sum(number(v, axis.kind) is None for v in values):
            what = "no value above 0 (the axis is logarithmic)" if axis.kind == "log" else "no value"
            said.append(f"{missing} of {len(values)} left out, with {what} for “{axis.label}”.")
    return said


def told(plot: Scatter, spot: Spot) -> str:
    """A point's tooltip."""
    ends = spot.ends
    interval = f" [{written(ends[0], digits=4)}, {written(ends[1], digits=4)}]" if ends else ""
    facts = [
        f"{plot.y.label} {written(spot.y, digits=4)}{interval}",
        f"{plot.x.label} {written(spot.x, plot.x.kind, 4)}",
        spot.point.series,
        "on the frontier" * spot.best,
        spot.point.note,
    ]
    return f"{spot.point.label}: " + " · ".join(filter(None, facts))
