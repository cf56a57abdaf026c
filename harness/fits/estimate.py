"""Estimates with intervals: resamples that methods share, lines through a few points, and laws of the loss.

A law of the loss is fitted by Huber's loss of logarithms from many starts, and from there to every resample.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from harness.fits.laws import Law, build_inputs
from harness.fits.runs import Floats, Runs

LEVEL = 0.95
"""The level of every interval."""

DELTA = 1e-3
"""Huber's δ of the papers, in logarithms of losses."""

SAME = 1e-3
"""Two optima are one if their objectives differ by no more than this share."""


class FitInterval(NamedTuple):
    """An estimate with the ends of its interval."""

    value: float
    low: float
    high: float

    def convert_ends(self, change: Callable[[float], float]) -> FitInterval:
        """The interval of a growing function of the estimate."""
        with np.errstate(over="ignore"):
            return FitInterval(*(change(end) if math.isfinite(end) else end for end in self))


NOTHING = FitInterval(math.nan, math.nan, math.nan)


def draw_weights(runs: Runs, level: str, count: int, seed: int) -> Floats:
    """Weights of the runs in each resample, shape (count, runs), with mean 1.

    Runs of several methods that have the same size, budget and seed have the same weight in a resample, so
    that methods are compared on the same draws. Weights are exponential (the Bayesian bootstrap of Rubin,
    1981): no resample lacks a run, so that each can be fitted, also where a budget has four runs.

    Args:
        runs: The runs.
        level: The column of their budgets.
        count: The resamples.
        seed: The seed of the draws.
    """
    seeds = runs.columns.get("seed", np.zeros(len(runs)))
    cells = [*zip(*(values.tolist() for values in (runs["size"], runs[level], seeds)), strict=True)]
    # Where a method has no such cell twice, the n-th run of a method shares the n-th draw of the cell.
    turns: Counter[tuple[object, ...]] = Counter()
    names = []
    for cell in zip(cells, runs["method"].tolist(), strict=True):
        names.append((cell[0], turns[cell]))
        turns[cell] += 1
    places = {name: n for n, name in enumerate(dict.fromkeys(names))}
    draws = np.random.default_rng(seed).exponential(size=(count, len(places)))
    return draws[:, [places[name] for name in names]]


def compute_interval(values: Floats, runs: int, parameters: int) -> FitInterval:
    """The percentile interval of a bootstrap about the estimate, expanded to Student's distribution.

    Plain percentiles lie about the middle of the resamples, which of a median regression varies less than the
    estimate, so that they hold the truth too often. The shift is half of Efron's (1987), which would be right
    if the middle of the resamples were off by a bias, and not by chance.

    Args:
        values: The estimate, and those of the resamples; infinite where a resample has none.
        runs: The runs that were resampled.
        parameters: The parameters that were fitted to them.
    """
    value, resampled = float(values[0]), values[1:]
    below = float(np.mean(resampled < value) + np.mean(resampled <= value)) / 2
    # The estimate may lie outside all resamples.
    shift = ndtri(min(max(below, 1 / len(resampled)), 1 - 1 / len(resampled)))
    reach = student.ppf((1 + LEVEL) / 2, max(runs - parameters, 1))
    with np.errstate(invalid="ignore"):
        low, high = np.quantile(resampled, ndtr([shift - reach, shift + reach]), method="nearest")
    return FitInterval(value, float(low), float(high))


# Lines


class _FittedLine(NamedTuple):
    """A straight line through points: its slope, and its height at their middle.

    `spread` is the sum of squares of x about the middle, and `half` the half width of the interval of a mean
    of one point.
    """

    slope: float
    height: float
    middle: float
    spread: float
    points: int
    half: float

    @property
    def slope_interval(self) -> FitInterval:
        """The slope with Student's interval."""
        side = self.half / math.sqrt(self.spread)
        return FitInterval(self.slope, self.slope - side, self.slope + side)

    def predict_at(self, x: float, further: int = 0) -> FitInterval:
        """The line at x with its interval, or with 1 that of a further point."""
        value = self.height + self.slope * (x - self.middle)
        apart = (x - self.middle) ** 2 / self.spread
        reach = self.half * math.sqrt(further + 1 / self.points + apart)
        return FitInterval(value, value - reach, value + reach)

    def find_zero(self) -> FitInterval | None:
        """Where it is zero, with Fieller's interval; None where the interval is not bounded."""
        side, up = self.half**2 / self.spread, self.half**2 / self.points
        # (height + slope · d)² ≤ up + side · d²
        a, b, c = self.slope**2 - side, self.height * self.slope, self.height**2 - up
        if a <= 0:
            return None
        root = math.sqrt(max(b * b - a * c, 0.0))
        ends = (-self.height / self.slope, (-b - root) / a, (-b + root) / a)
        return FitInterval(*(self.middle + end for end in ends))


def fit_line(x: Floats, y: Floats) -> _FittedLine:
    """Least squares with Student intervals, of three or more points."""
    middle, height, freedom = float(x.mean()), float(y.mean()), len(x) - 2
    spread = float(((x - middle) ** 2).sum())
    slope = float(((x - middle) * y).sum()) / spread
    deviation = math.sqrt(float(((y - height - slope * (x - middle)) ** 2).sum()) / freedom)
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * deviation
    return _FittedLine(slope, height, middle, spread, len(x), half)


# Laws of the loss


class Optima(NamedTuple):
    """The parameters of the best optimum, and each optimum's objective and share of starts."""

    theta: Floats
    optima: tuple[tuple[float, float], ...]


def _compute_huber(residuals: Floats, delta: float) -> Floats:
    size = np.abs(residuals)
    return np.where(size <= delta, residuals**2 / (2 * delta), size - delta / 2)


class LossEstimator:
    """Fits a law to the losses of runs and of every resample of them.

    Parameters are as `Law` has them, (parameters,) or (resamples, parameters), of log sizes and log tokens
    about the means of these: about 0, A and α would be one parameter to any optimizer.

    Args:
        law: The formula.
        runs: The runs.
    """

    def __init__(self, law: Law, runs: Runs) -> None:
        self.law = law
        self._target: Floats = np.log(runs["loss"])
        self._median = float(np.median(runs["loss"]))
        self._middle = [float(np.log(runs[name]).mean()) for name in ("size", "tokens")]
        self._inputs = build_inputs(runs.columns, self._middle)

    def predict(self, theta: Floats, runs: Runs) -> Floats:
        """The log losses of runs, (resamples, runs)."""
        return self.law.predict(theta, build_inputs(runs.columns, self._middle))

    def name_values(self, theta: Floats) -> dict[str, Floats]:
        """The parameters of the formula as printed, each (resamples,)."""
        return self.law.name_values(theta, self._middle)

    def compute_residuals(self, theta: Floats) -> Floats:
        """Predicted less measured log losses, (resamples, runs)."""
        return self.law.predict(theta, self._inputs) - self._target

    def compute_jacobian(self, theta: Floats) -> Floats:
        """Derivatives of the log losses, shape (resamples, runs, parameters), by central differences."""
        step, predict = 1e-6, self.law.predict
        shifts = step * np.eye(theta.shape[1])
        moved = [predict(theta + one, self._inputs) - predict(theta - one, self._inputs) for one in shifts]
        jacobian: Floats = np.stack(moved, axis=-1) / (2 * step)
        return jacobian

    def _evaluate_objective(self, theta: Floats, delta: float) -> tuple[float, Floats]:
        residuals = self.compute_residuals(theta[None])[0]
        gradient = np.clip(residuals / delta, -1, 1) @ self.compute_jacobian(theta[None])[0]
        value = float(_compute_huber(residuals, delta).sum())
        return (value, gradient) if math.isfinite(value) else (1e9, np.zeros_like(theta))

    def find_optima(self, starts: int | None = None) -> Optima:
        """The optima that BFGS and L-BFGS reach from so many starts, at even distances; None for all."""
        grid = [*self.law.starts(self._median)]
        grid = grid if starts is None else grid[:: max(1, len(grid) // starts)]
        methods = {"BFGS": {"maxiter": 1000}, "L-BFGS-B": {"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-8}}
        ends = []
        for start, (method, options) in itertools.product(grid, methods.items()):
            theta = np.array(start)
            # δ falls to that of the papers: far from the optimum the gradient of a small δ has no length.
            for delta in (0.1, 0.01, DELTA):
                evaluate = partial(self._evaluate_objective, delta=delta)
                with np.errstate(all="ignore"):
                    theta = minimize(evaluate, theta, jac=True, method=method, options=options).x
            ends.append((evaluate(theta)[0], theta))
        ends.sort(key=lambda end: end[0])
        optima: dict[float, float] = {}
        for value, _ in ends:
            if not optima or value > [*optima][-1] * (1 + SAME):
                optima[value] = 0.0
            optima[[*optima][-1]] += 1
        return Optima(ends[0][1], tuple((value, count / len(ends)) for value, count in optima.items()))

    def measure_weakest(self, theta: Floats) -> tuple[float, Floats]:
        """What the runs tell least of an optimum: a combination of parameters of length 1.

        The smallest singular value of the Jacobian says how much such a change moves the log losses. What is
        fitted are medians, whose deviation is √(π/2) times that of means. Optional parameters are left out.

        Returns:
            The half width of its interval, in logarithms, exponents and shares of the median loss; and the
            squared weight of each of the parameters.
        """
        law, runs = self.law, len(self._target)
        units = np.array([self._median if name in law.in_losses else 1.0 for name in law.names])
        kept = np.array([name not in law.optional for name in law.names])
        jacobian = (self.compute_jacobian(theta[None])[0] * units)[:, kept]
        _, lengths, directions = np.linalg.svd(jacobian, full_matrices=False)
        # A fit of medians meets as many runs as it has parameters: those tell no noise.
        residuals = np.sort(np.abs(self.compute_residuals(theta[None])[0]))[len(law.names) :]
        # No deviation is below δ, within which Huber's loss tells nothing apart.
        deviation = math.sqrt(math.pi / 2) * max(1.4826 * float(np.median(residuals)), DELTA)
        weights = np.zeros(len(law.names))
        weights[kept] = directions[-1] ** 2
        errors = float(student.ppf((1 + LEVEL) / 2, max(runs - len(law.names), 1)))
        return errors * deviation / max(float(lengths[-1]), 1e-12), weights

    def refit_resamples(self, weights: Floats, theta: Floats) -> Floats:
        """The parameters of every resample, shape (resamples, parameters), all from the optimum of all runs.

        Levenberg and Marquardt's steps on reweighted squares, which have the minimum of Huber's loss.

        Args:
            weights: Of the runs in each resample, shape (resamples, runs).
            theta: The optimum of all runs.
        """
        every = np.tile(theta, (len(weights), 1))
        for delta, steps in ((10 * DELTA, 8), (DELTA, 30)):
            damping = np.full(len(weights), 1e-3)
            residuals = self.compute_residuals(every)
            value = (weights * _compute_huber(residuals, delta)).sum(axis=1)
            moving = np.arange(len(weights))
            for _ in range(steps):
                jacobian = self.compute_jacobian(every[moving])
                scale = weights[moving] / np.maximum(np.abs(residuals[moving]), delta)
                weighted = jacobian * scale[:, :, None]
                squares = np.swapaxes(weighted, 1, 2) @ jacobian
                slope = (weighted * residuals[moving][:, :, None]).sum(axis=1)
                diagonal = np.einsum("bii->bi", squares)
                diagonal += damping[moving, None] * diagonal + 1e-12 * diagonal.max(axis=1, keepdims=True)
                step = np.linalg.solve(squares, slope[:, :, None])[:, :, 0]
                with np.errstate(all="ignore"):
                    candidate = every[moving] - np.clip(step, -1, 1)
                    left = self.compute_residuals(candidate)
                    reached = (weights[moving] * _compute_huber(left, delta)).sum(axis=1)
                better = reached < value[moving]
                gain = np.where(better, value[moving] - reached, np.inf)
                chosen = moving[better]
                every[chosen], residuals[chosen] = candidate[better], left[better]
                value[chosen] = reached[better]
                damping[moving] = np.where(better, damping[moving] / 5, damping[moving] * 10)
                moving = moving[(gain > 1e-6 * value[moving]) & (damping[moving] < 1e8)]
                if not len(moving):
                    break
        return every
