"""Optima by budget: parabolas of the loss, power laws through them, frontiers and their crossings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.fits.estimate import FitInterval, FittedLine, find_zero, fit_line
from harness.fits.runs import Floats, Runs

GROUPED, APART = 1.05, 1.15
"""Runs within 5 % are of one budget; two budgets are apart by 15 % or more."""

EDGE, LOST, FAR = 0.025, 0.25, 3.0
"""Shares of resamples whose vertex may lie outside the sizes: beyond the first a budget's own optimum is not
told, beyond the second the budget is in no power law. A vertex is no farther out than three half ranges."""

WINDOW, CROWD = 0.81, 5
"""A run is the best of the budgets from 0.81 C to C, of at least five runs (OptiBERT, section 3)."""


def group_budgets(flops: Floats) -> tuple[NDArray[np.int64], Floats, list[str]]:
    """The number of each run's budget, the budgets (geometric means), and a sentence on those grouped.

    Raises:
        UsageError: Budgets are neither one nor apart.
    """
    order = np.argsort(flops, kind="stable")
    numbers = np.zeros(len(flops), int)
    first, number = flops[order[0]], 0
    for before, place in itertools.pairwise(order):
        if flops[place] > GROUPED * first:
            if flops[place] < APART * flops[before]:
                raise UsageError(
                    f"Budgets of {flops[before]:.4g} and {flops[place]:.4g} operations are neither one "
                    "(within 5 %) nor apart (15 %).",
                    hint="Give the column flops the budget that was planned, or use --law chinchilla.",
                )
            first, number = flops[place], number + 1
        numbers[place] = number
    spans = [flops[numbers == n] for n in range(number + 1)]
    grouped = [span for span in spans if span.max() > 1.0005 * span.min()]
    notes = []
    if grouped:
        widest = max(float(span.max() / span.min()) for span in grouped)
        notes = [
            f"Runs within 5 % count as of one budget: {len(grouped)} budgets, up to {widest - 1:.1%} wide."
        ]
    return numbers, np.array([math.exp(np.log(span).mean()) for span in spans]), notes


@dataclass(frozen=True, kw_only=True)
class BudgetOptimum:
    """The optimum of a budget, of all runs and of each resample.

    Attributes:
        flops: The budget.
        runs: How many runs it has.
        size: The log size at the vertex, shape (1 + resamples,), the first that of all runs.
        loss: The loss there.
        best: The place of the run with the lowest loss.
        reason: Why the vertex is not told; "" where it is.
        usable: Whether it is in power laws. Those leave out what is at the edge without doubt: to leave out
            what may be there would choose budgets by their noise.
    """

    flops: float
    runs: int
    size: Floats
    loss: Floats
    best: int
    reason: str
    usable: bool


def fit_parabolas(
    runs: Runs, numbers: Sequence[int], budgets: Floats, weights: Floats
) -> list[BudgetOptimum]:
    """The parabola of the loss against the log size of every budget.

    Args:
        runs: Those of one method.
        numbers: The number of each run's budget.
        budgets: The budgets.
        weights: Of the runs in each resample, shape (resamples, runs).
    """
    optima = []
    for number, flops in enumerate(budgets):
        places = np.flatnonzero(np.asarray(numbers) == number)
        if not len(places):
            continue
        size, losses = np.log(runs.size[places]), runs.loss[places]
        different = len({*size.tolist()})
        reason, usable = f"{different} sizes, where a parabola needs 4", False
        vertex = loss = np.full(1 + len(weights), np.nan)
        if different >= 4:
            vertex, loss, outside = _fit_parabola(size, losses, weights[:, places])
            reason = "the optimum is at the edge of the sizes" if outside > EDGE else ""
            usable = outside <= LOST
        optimum = BudgetOptimum(
            flops=float(flops),
            runs=len(places),
            size=vertex,
            loss=loss,
            best=int(places[losses.argmin()]),
            reason=reason,
            usable=usable,
        )
        optima.append(optimum)
    return optima


def _fit_parabola(size: Floats, losses: Floats, weights: Floats) -> tuple[Floats, Floats, float]:
    """The log size and the loss at the vertex, of all runs and of each resample, and the share outside."""
    middle, half = (size.max() + size.min()) / 2, (size.max() - size.min()) / 2
    powers = np.vander((size - middle) / half, 3, increasing=True)
    inverse = np.linalg.pinv(powers)
    fitted = inverse @ losses
    # A resample moves the coefficients as its weights do, to first order. Residuals are divided by
    # 1 - leverage (HC3): of seven runs and three coefficients, they are else much smaller than errors.
    errors = (losses - powers @ fitted) / (1 - np.minimum(np.diag(powers @ inverse), 0.99))
    moved = fitted + ((weights - 1) * errors) @ inverse.T
    a, b, c = np.vstack([fitted, moved]).T
    with np.errstate(all="ignore"):
        vertex = np.clip(np.where(c > 0, -b / (2 * c), -FAR * np.sign(b)), -FAR, FAR)
    outside = np.abs(vertex) > 1
    share = 1.0 if outside[0] else float(outside[1:].mean())
    return middle + half * vertex, a + b * vertex + c * vertex**2, share


def fit_power_laws(optima: Sequence[BudgetOptimum]) -> tuple[Floats, Floats]:
    """log prefactor and exponent of the size at the vertices, each of shape (1 + resamples,)."""
    x = np.log([optimum.flops for optimum in optima])
    y = np.array([optimum.size for optimum in optima])
    centred = x - x.mean()
    exponent = centred @ y / (centred @ centred)
    return y.mean(axis=0) - exponent * x.mean(), exponent


def fit_best_line(optima: Sequence[BudgetOptimum], values: Floats) -> FittedLine:
    """The line of log values of the best run of each budget over the log budget."""
    return fit_line(
        np.log([optimum.flops for optimum in optima]), np.log([values[optimum.best] for optimum in optima])
    )


def fit_frontier(runs: Runs, optima: Sequence[BudgetOptimum]) -> tuple[Floats, Floats]:
    """log budgets and lowest log losses: of the parabolas, or of best runs if a budget has no parabola.

    Of several runs near an optimum the best is also the luckiest, so parabolas go first.
    """
    parabolas = all(optimum.usable for optimum in optima)
    lowest = [optimum.loss[0] if parabolas else runs.loss[optimum.best] for optimum in optima]
    return np.log([optimum.flops for optimum in optima]), np.log(lowest)


def find_crossing(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats], *, extrapolate: bool = False
) -> FitInterval | str:
    """The budget at which two frontiers cross, with its interval, or why there is none.

    The difference of the two at the budgets that both have is a line; where it is zero is known by Fieller's
    theorem. What both share at a budget, such as its data, is not in the difference.
    """
    shared, first_at, second_at = np.intersect1d(first[0].round(6), second[0].round(6), return_indices=True)
    if len(shared) < 3:
        return f"{len(shared)} budgets in common, where a crossing needs 3"
    zero = find_zero(fit_line(shared, first[1][first_at] - second[1][second_at]))
    if zero is None:
        return "the lines may be parallel"
    reach = np.ptp(shared) if extrapolate else 0.0
    if zero.low < shared.min() - reach or zero.high > shared.max() + reach:
        end = "the crossing or an end of its interval lies"
        return f"{end} farther out than the budgets are wide" if extrapolate else f"{end} outside the budgets"
    return FitInterval(*map(math.exp, zero))


def select_window_best(runs: Runs) -> NDArray[np.int64]:
    """The places of the runs that are the best of a window of budgets that ends at a run."""
    best = set()
    for flops in runs.flops:
        places = np.flatnonzero((runs.flops >= WINDOW * flops) & (runs.flops <= flops))
        if len(places) >= CROWD:
            best.add(int(places[runs.loss[places].argmin()]))
    return np.array(sorted(best), int)
