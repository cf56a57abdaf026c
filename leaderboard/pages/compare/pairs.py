"""Two entries against each other: who is higher on how many tasks, and what the mean difference says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import hypot, isfinite

from leaderboard.grid import Floats, half_width
from leaderboard.pages.compare.common import Common
from leaderboard.pages.task.ranks import tie

APART = "cannot be told apart"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A difference of two means and half of its 95 % interval; None where a single task gives none."""

    value: float
    half: float | None

    @property
    def told_apart(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.half is not None and abs(self.value) > self.half


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two entries, by their places; differences are the first's minus the second's.

    Attributes:
        first: The place of the one.
        second: The place of the other.
        wins: On how many of the tasks that all have the first is higher.
        losses: On how many the second is.
        ties: On how many neither is.
        tasks: The difference of the means over tasks.
        types: The difference of the means over types.
        untouched: That of the means over the tasks that chose neither; None where no task chose, or all did.
    """

    first: int
    second: int
    wins: int
    losses: int
    ties: int
    tasks: Difference
    types: Difference
    untouched: Difference | None = None


def pairs(common: Common) -> list[Pair]:
    """Every two of the entries; none where they have no column in common."""
    rows = range(len(common.entries)) if common.columns else range(0)
    return [_pair(common, one, other) for one, other in combinations(rows, 2)]


def _pair(common: Common, one: int, other: int) -> Pair:
    found = list(outcomes(common, one, other))
    values = common.grid.values[:, common.columns]
    differences = values[one] - values[other]
    known = _known_half(common, one, other)
    untouched = common.grid.values[:, common.untouched or []]
    return Pair(
        first=one,
        second=other,
        wins=found.count(1),
        losses=found.count(-1),
        ties=found.count(0),
        tasks=_difference(differences)
        if known is None
        else Difference(value=float(differences.mean()), half=known),
        types=_difference(differences * common.type_weights),
        untouched=_difference(untouched[one] - untouched[other]) if common.untouched else None,
    )


def _difference(differences: Floats) -> Difference:
    half = half_width(differences)
    return Difference(value=float(differences.mean()), half=half if isfinite(half) else None)


def _known_half(common: Common, one: int, other: int) -> float | None:
    """Half of the interval of the difference of means that have intervals of their own.

    Those are of the whole suite, so they serve only where all have all of it.
    """
    grid = common.grid
    bounds = [found for row in (one, other) if (found := grid.averages.get(row, {}).get("interval"))]
    if len(common.columns) < len(grid.listed.suite.columns) or len(bounds) < 2:
        return None
    return hypot(*[(high - low) / 2 for low, high in bounds])


def outcomes(common: Common, one: int, other: int) -> Iterator[int]:
    """For each common column: 1 where the one is higher, -1 where the other is, 0 where neither."""
    for at in common.columns:
        first, second = float(common.grid.values[one, at]), float(common.grid.values[other, at])
        yield 0 if tied_at(common, one, other, at) else 1 if first > second else -1


def tied_at(common: Common, one: int, other: int, at: int) -> bool:
    """Whether two entries cannot be told apart on a column: equal, or within their known intervals."""
    values = common.grid.values
    return tie(
        float(values[one, at]), float(values[other, at]), _half(common, one, at), _half(common, other, at)
    )


def _half(common: Common, row: int, at: int) -> float | None:
    half = float(common.grid.high[row, at] - common.grid.low[row, at]) / 2
    return half if isfinite(half) else None


def winners(common: Common, at: int) -> list[int]:
    """The entries that the best of a column cannot be told apart from, the best one among them."""
    rows = range(len(common.entries))
    best = max(rows, key=lambda row: float(common.grid.values[row, at]))
    return [row for row in rows if row == best or tied_at(common, best, row, at)]
