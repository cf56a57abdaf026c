"""Curves of several runs: scores at budgets, budgets to a score, and which run is better.

A run has a curve for each of its seeds, and every interval is over seeds: Student's t for one run, Welch's
for two. Budgets are compared by the logarithm of their ratio. Of one seed nothing is said. A point of a curve
has a budget (a step, or an amount of tokens, hours, operations or dollars) and a score; arrays are (points,).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError

Floats: TypeAlias = NDArray[np.float64]

LEVEL = 0.05
"""The chance that an interval lies beside the truth, and that any of all compared runs that are equal is
called better."""

BUDGETS = 8
"""The most budgets at which runs are compared: each takes its share of the level."""

NEAR_END = 0.9
"""Where the usual score to reach lies, between the highest first and the lowest last score of all curves."""


@dataclass(frozen=True, kw_only=True)
class SeedCurve:
    """The curve of one seed of a run: `budgets` ascend, and `scores` are those there.

    `diverged` says why the run counts as diverged, and is empty for a sound one.
    """

    run: str
    seed: str
    budgets: Floats
    scores: Floats
    diverged: str = ""

    @property
    def name(self) -> str:
        """The run with its seed."""
        return f"{self.run}/{self.seed}"


@dataclass(frozen=True, kw_only=True)
class SeedInterval:
    """An estimate over seeds; without bounds where there are too few seeds."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class _RunReach:
    """The budget that a run takes to a score, if all seeds get there: `reached` of `seeds` do.

    `early` seeds have it at their first point, so that their budget is not known.
    """

    run: str
    reached: int
    early: int
    seeds: int
    budget: SeedInterval | None


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A run beside another: the speed-up at equal score, and the differences of the score at each budget.

    `better` and `lower` are the budgets at which the difference is sure, all of them together; `verdict` is
    `better` or `lower` if it is sure at every budget, `not told apart` or, of a single seed, `nothing`.
    """

    run: str
    other: str
    speedup: SeedInterval | None
    differences: tuple[SeedInterval, ...]
    better: tuple[float, ...]
    lower: tuple[float, ...]
    verdict: str


@dataclass(frozen=True, kw_only=True)
class CurveComparison:
    """Several runs beside one another: `scores` are, for each run, those at each of the budgets."""

    budgets: tuple[float, ...]
    scores: Mapping[str, tuple[SeedInterval, ...]]
    score: float
    reaches: tuple[_RunReach, ...]
    pairs: tuple[RunComparison, ...]


def compare_runs(curves: Sequence[SeedCurve], score: float | None = None) -> CurveComparison:
    """Compare runs at common budgets and at one score.

    Args:
        curves: A curve for each seed of each run.
        score: The score to reach; by default one near the lowest last score.

    Raises:
        UsageError: A curve goes back or stands twice, or no budget is common to all.

    Example:
        >>> x, y = np.array([1.0, 2.0, 4.0, 8.0]), np.array([0.1, 0.2, 0.3, 0.4])
        >>> fast = [SeedCurve(run="a", seed=str(n), budgets=x / 2, scores=y + n / 100) for n in range(2)]
        >>> slow = [SeedCurve(run="b", seed=str(n), budgets=x, scores=y + n / 99) for n in range(2)]
        >>> round(compare_runs([*fast, *slow], 0.25).pairs[0].speedup.value, 2)
        2.0
    """
    runs: dict[str, list[SeedCurve]] = {}
    for curve in curves:
        _check_curve(curve)
        runs.setdefault(curve.run, []).append(curve)
    _check_copies(curves)
    budgets = _choose_budgets(curves)
    first, last = max(c.scores[0] for c in curves), min(c.scores.max() for c in curves)
    score = float(first + NEAR_END * (last - first)) if score is None else score
    tables = {
        run: np.array([np.interp(budgets, one.budgets, one.scores) for one in seeds])
        for run, seeds in runs.items()
    }
    logs = {run: np.array([compute_log_budget(one, score) for one in seeds]) for run, seeds in runs.items()}
    pairs = [*itertools.combinations(runs, 2)]
    return CurveComparison(
        budgets=tuple(map(float, budgets)),
        scores={run: tuple(map(_estimate_mean, table.T)) for run, table in tables.items()},
        score=score,
        reaches=tuple(_build_reach(run, values) for run, values in logs.items()),
        pairs=tuple(_compare_pair(pair, tables, logs, budgets, LEVEL / len(pairs)) for pair in pairs),
    )


def _estimate_mean(values: Floats, level: float = LEVEL) -> SeedInterval:
    """The mean of seeds with Student's interval, (seeds,)."""
    return estimate_difference(values, np.zeros(0), level)


def estimate_difference(values: Floats, others: Floats, level: float = LEVEL) -> SeedInterval:
    """The difference of two means of seeds, with Welch's interval (Welch, 1947).

    Args:
        values: Of one run, (seeds,).
        others: Of the other, (seeds,); empty for the mean of the first alone.
        level: The chance that the interval lies beside the truth.
    """
    from scipy.special import stdtrit

    sides = [side for side in (values, others) if len(side)]
    mean = float(values.mean() - (others.mean() if len(others) else 0))
    if min(map(len, sides)) < 2:
        return SeedInterval(value=mean)
    parts = np.array([side.var(ddof=1) / len(side) for side in sides])
    freedoms = np.array([len(side) - 1 for side in sides])
    # Satterthwaite's degrees of freedom are too few for equal numbers of few seeds. Welch's of 1938, with 2
    # here, are nearly unbiased there, but too many where the side with fewer seeds has the most noise.
    shift = 2 if len({*map(len, sides)}) == 1 < len(sides) else 0
    variance = float(parts.sum())
    # Without any noise every share will do, as the interval is a point.
    shares = parts / variance if variance else np.full(len(parts), 1 / len(parts))
    freedom = 1 / float((shares**2 / (freedoms + shift)).sum()) - shift
    freedom = min(max(freedom, freedoms.min()), freedoms.sum())
    half = float(stdtrit(freedom, 1 - level / 2) * np.sqrt(variance))
    return SeedInterval(value=mean, low=mean - half, high=mean + half)


def compute_log_budget(curve: SeedCurve, score: float) -> float:
    """The logarithm of the budget at which a curve reaches a score.

    The curve is made monotone first (isotonic regression), as a lucky checkpoint does not reach a score, and
    is straight in the logarithm of the budget between two points.

    Returns:
        Infinity if it never gets there, minus infinity if it is there at its first point.
    """
    from scipy.optimize import isotonic_regression

    # A point at no budget has no logarithm; a score that is there already is early all the same.
    positive = curve.budgets > 0
    x, y = np.log(curve.budgets[positive]), isotonic_regression(curve.scores[positive]).x
    place = int(np.searchsorted(y, score))
    if place == 0:
        return -np.inf
    if place == len(y):
        return np.inf
    share = (score - y[place - 1]) / (y[place] - y[place - 1])
    return float(x[place - 1] + share * (x[place] - x[place - 1]))


def _choose_budgets(curves: Sequence[SeedCurve]) -> Floats:
    """The budgets at which all curves are compared: points of all of them, else some between.

    Raises:
        UsageError: No budget is common to all.
    """
    low, high = max(c.budgets[0] for c in curves), min(c.budgets[-1] for c in curves)
    if low > high:
        late = max(curves, key=lambda one: one.budgets[0])
        early = min(curves, key=lambda one: one.budgets[-1])
        raise UsageError(
            f"{late.name} begins at {late.budgets[0]:,g}, and {early.name} ends at {early.budgets[-1]:,g}: "
            "no budget is common to all.",
            hint="Give both the same unit, or leave one out.",
        )
    common = set.intersection(*(set(one.budgets.tolist()) for one in curves))
    if len(common) >= min(3, *(len(one.budgets) for one in curves)):
        points = np.array(sorted(common))
        shown: Floats = points[np.unique(np.linspace(0, len(points) - 1, BUDGETS).round().astype(int))]
        return shown
    return np.unique(np.geomspace(low, high, BUDGETS) if low > 0 else np.linspace(low, high, BUDGETS))


def _check_curve(curve: SeedCurve) -> None:
    """Refuse a curve whose budget does not grow."""
    for before, after in itertools.pairwise(curve.budgets):
        if after <= before:
            how = "stands twice" if after == before else f"is followed by {after:,g}"
            raise UsageError(
                f"In {curve.name} {before:,g} {how}: the budget of a run only grows.",
                hint="Keep one row for each point, or name what comes after a restart another seed.",
            )


def _check_copies(curves: Sequence[SeedCurve]) -> None:
    """Refuse two seeds of a run with the same scores, whose interval would be of one."""
    for first, other in itertools.combinations(curves, 2):
        if first.run == other.run and np.array_equal(first.scores, other.scores) and len(first.scores) > 1:
            raise UsageError(
                f"{first.name} and {other.name} have the same scores: one seed is counted twice.",
                hint="Leave one of them out.",
            )


def _build_reach(run: str, logs: Floats) -> _RunReach:
    reached = bool(np.isfinite(logs).all())
    return _RunReach(
        run=run,
        reached=int((logs < np.inf).sum()),
        early=int((logs == -np.inf).sum()),
        seeds=len(logs),
        budget=_convert_logs(_estimate_mean(logs)) if reached else None,
    )


def _convert_logs(interval: SeedInterval) -> SeedInterval:
    ends = [None if end is None else float(np.exp(end)) for end in (interval.low, interval.high)]
    return SeedInterval(value=float(np.exp(interval.value)), low=ends[0], high=ends[1])


def _compare_pair(
    names: tuple[str, str],
    tables: Mapping[str, Floats],
    logs: Mapping[str, Floats],
    budgets: Floats,
    level: float,
) -> RunComparison:
    """Compare two runs by their scores at the budgets, (seeds, budgets), and their log budgets, (seeds,)."""
    run, other = names
    columns = [*zip(tables[run].T, tables[other].T, strict=True)]
    # Better at every budget: each alone at the full level (an intersection-union test, Berger, 1982).
    # Better at some: all together at the level (Bonferroni).
    every = [_describe_difference(estimate_difference(*column, level)) for column in columns]
    sure = [_describe_difference(estimate_difference(*column, level / len(budgets))) for column in columns]
    reached = bool(np.isfinite([*logs[run], *logs[other]]).all())
    return RunComparison(
        run=run,
        other=other,
        speedup=_convert_logs(estimate_difference(logs[other], logs[run])) if reached else None,
        differences=tuple(estimate_difference(*column) for column in columns),
        better=tuple(float(x) for x, call in zip(budgets, sure, strict=True) if call == "better"),
        lower=tuple(float(x) for x, call in zip(budgets, sure, strict=True) if call == "lower"),
        verdict=every[0] if len(set(every)) == 1 else "not told apart",
    )


def _describe_difference(difference: SeedInterval) -> str:
    """What a difference says of the first run."""
    if difference.low is None or difference.high is None:
        return "nothing"
    if difference.low > 0:
        return "better"
    return "lower" if difference.high < 0 else "not told apart"
