"""Quantities with intervals: weighted resamples that methods share, and lines through a few points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from harness.core.errors import UsageError
from harness.fits.runs import Floats, LawName, Runs
from harness.fits.stored import Quantity

LEVEL = 0.95
"""The level of every interval."""


class FitInterval(NamedTuple):
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float


def draw_weights(runs: Runs, budgets: Sequence[int] | None, count: int, seed: int) -> Floats:
    """Weights of the runs in each resample, shape (count, runs), with mean 1.

    Runs of several methods that have the same size, budget and seed have the same weight in a resample, so
    that methods are compared on the same draws. Weights are exponential (the Bayesian bootstrap of Rubin,
    1981): no resample lacks a run, so that each can be fitted, also where a budget has four runs.

    Args:
        runs: The runs.
        budgets: The number of the budget of each run; None for operations as they are.
        count: The resamples.
        seed: The seed of the draws.
    """
    level = runs.flops if budgets is None else np.asarray(budgets)
    seeds = runs.others.get("seed", np.zeros(len(runs)))
    cells = [*zip(runs.size, level, seeds, strict=True)]
    # Where a method has no such cell twice, the n-th run of a method shares the n-th draw of the cell.
    met: dict[tuple[object, ...], int] = {}
    names = []
    for cell, method in zip(cells, runs.method, strict=True):
        turn = met[cell, method] = met.get((cell, method), -1) + 1
        names.append((*cell, turn))
    places = {name: n for n, name in enumerate(dict.fromkeys(names))}
    draws = np.random.default_rng(seed).exponential(size=(count, len(places)))
    return draws[:, [places[name] for name in names]]


def compute_interval(value: float, resampled: Floats, runs: int, parameters: int) -> FitInterval:
    """The percentile interval of a bootstrap about the estimate, expanded to Student's distribution.

    Plain percentiles lie about the middle of the resamples, which of a median regression varies less than the
    estimate, so that they hold the truth too often. The shift is half of Efron's (1987), which would be right
    if the middle of the resamples were off by a bias, and not by chance.

    Args:
        value: The estimate.
        resampled: The estimates of the resamples; infinite where a resample has none.
        runs: The runs that were resampled.
        parameters: The parameters that were fitted to them.
    """
    below = float(np.mean(resampled < value) + np.mean(resampled <= value)) / 2
    # The estimate may lie outside all resamples.
    shift = ndtri(min(max(below, 1 / len(resampled)), 1 - 1 / len(resampled)))
    reach = student.ppf((1 + LEVEL) / 2, max(runs - parameters, 1))
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(resampled, ndtr([shift - reach, shift + reach]), method="nearest")
    return FitInterval(value, float(low), float(high))


class FittedLine(NamedTuple):
    """A straight line y = intercept + slope · x with the residuals' deviation."""

    intercept: FitInterval
    slope: FitInterval
    middle: float
    height: FitInterval
    freedom: int

    def predict_at(self, x: float) -> FitInterval:
        """The line at x, with the interval of the line."""
        value = self.height.value + self.slope.value * (x - self.middle)
        half = math.hypot(
            self.height.high - self.height.value, (self.slope.high - self.slope.value) * (x - self.middle)
        )
        return FitInterval(value, value - half, value + half)

    def predict_point(self, x: float) -> FitInterval:
        """The line at x, with the interval of a further point."""
        value, _, high = self.predict_at(x)
        single = (self.height.high - self.height.value) * math.sqrt(self.freedom + 2)
        half = math.hypot(high - value, single)
        return FitInterval(value, value - half, value + half)


def fit_line(x: Floats, y: Floats) -> FittedLine:
    """Least squares with Student intervals, of three or more points."""
    middle, freedom = float(x.mean()), len(x) - 2
    spread = float(((x - middle) ** 2).sum())
    slope = float(((x - middle) * y).sum()) / spread
    height = float(y.mean())
    deviation = math.sqrt(float(((y - height - slope * (x - middle)) ** 2).sum()) / freedom)
    factor = float(student.ppf((1 + LEVEL) / 2, freedom)) * deviation
    up, side = factor / math.sqrt(len(x)), factor / math.sqrt(spread)
    at_zero, half = height - slope * middle, math.hypot(up, side * middle)
    return FittedLine(
        FitInterval(at_zero, at_zero - half, at_zero + half),
        FitInterval(slope, slope - side, slope + side),
        middle,
        FitInterval(height, height - up, height + up),
        freedom,
    )


def find_zero(line: FittedLine) -> FitInterval | None:
    """Where a line is zero, with Fieller's interval; None where the interval is not bounded."""
    slope, height = line.slope, line.height
    side, up = slope.high - slope.value, height.high - height.value
    if abs(slope.value) <= side:
        return None
    # (height + slope · d)² ≤ up² + side² · d²
    a, b, c = slope.value**2 - side**2, height.value * slope.value, height.value**2 - up**2
    root = math.sqrt(max(b * b - a * c, 0.0))
    ends = [line.middle + (-b - root) / a, line.middle + (-b + root) / a]
    return FitInterval(line.middle - height.value / slope.value, *ends)


# Fits

GROUPED = 1.05
"""Runs within 5 % are of one budget."""

NOTHING = FitInterval(math.nan, math.nan, math.nan)


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What is done beside the fit.

    Attributes:
        resamples: How many resamples give the intervals.
        seed: The seed of their weights.
        budget: The operations for which size and tokens are planned; None for none.
        extrapolate: Whether a budget or a crossing may lie outside the budgets of the runs.
        starts: How many starts an optimizer has; None for all.
    """

    resamples: int = 4000
    seed: int = 42
    budget: float | None = None
    extrapolate: bool = False
    starts: int | None = None


@dataclass(kw_only=True)
class Fit:
    """A fitted law.

    Attributes:
        law: Its name.
        runs: How many runs it was fitted to.
        quantities: What it gives; those without a value have a reason.
        plans: By method the size, tokens and loss at the optimum of the wanted budget.
        optima: By method, for each optimum its objective and the share of starts that reach it.
        notes: Sentences.
    """

    law: LawName
    runs: int
    quantities: list[Quantity] = field(default_factory=list)
    plans: dict[str, dict[str, Quantity]] = field(default_factory=dict)
    optima: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def identified(self) -> bool:
        """Whether the runs tell every quantity."""
        planned = (quantity for plan in self.plans.values() for quantity in plan.values())
        return not any(quantity.reason for quantity in (*self.quantities, *planned))

    def choose_method(self) -> str | None:
        """The method of the lowest loss at the wanted budget; None where intervals overlap, or of no plan."""
        ends = {
            method: (plan["loss"].low or 0.0, plan["loss"].high or 0.0)
            for method, plan in self.plans.items()
            if not any(quantity.reason for quantity in plan.values())
        }
        best = min(ends, key=lambda method: ends[method][1], default=None)
        lows = [low for method, (low, _) in ends.items() if method != best]
        return best if best is not None and all(low > ends[best][1] for low in lows) else None

    def to_json(self) -> dict[str, Any]:
        """The fit as JSON."""
        plans = {m: {n: q.model_dump() for n, q in plan.items()} for m, plan in self.plans.items()}
        fields = {"law": self.law, "runs": self.runs, "identified": self.identified}
        optima = {m: [{"objective": o, "share": s} for o, s in every] for m, every in self.optima.items()}
        return {
            **fields,
            "quantities": [q.model_dump() for q in self.quantities],
            "plans": plans,
            "optima": optima,
            "notes": self.notes,
        }

    def add_quantity(self, name: str, method: str, interval: FitInterval, reason: str = "") -> None:
        """Add what is known of a quantity: its interval, or why there is none."""
        self.quantities.append(build_quantity(name, method, interval, reason))

    def refuse_quantities(
        self, names: Sequence[str], method: str, reason: str, settings: FitSettings
    ) -> None:
        """Add why quantities of a method are not told, and with them the plan of a wanted budget."""
        self.quantities += [Quantity(name=name, method=method, reason=reason) for name in names]
        if settings.budget is not None:
            parts = ("size", "tokens", "loss")
            self.plans[method] = {name: Quantity(name=name, method=method, reason=reason) for name in parts}


def build_quantity(name: str, method: str, interval: FitInterval, reason: str = "") -> Quantity:
    """A quantity with its interval, or with the reason why there is none."""
    if not reason and not all(map(math.isfinite, interval)):
        reason = "it has no finite interval"
    if reason:
        return Quantity(name=name, method=method, reason=reason)
    return Quantity(name=name, method=method, value=interval.value, low=interval.low, high=interval.high)


def require_runs(runs: Runs, method: str, law: str, needed: int) -> None:
    """Refuse fewer runs of a method than its law needs."""
    if len(runs) < needed:
        of = f" of {method}" if method else ""
        raise UsageError(
            f"{len(runs)} runs{of} are fewer than the {needed} that the law {law} needs.",
            hint="Add runs.",
        )
