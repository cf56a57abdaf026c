"""Laws of the whole loss, fitted by Huber's loss of logarithms from many starts, and to every resample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.stats import t as student

from harness.fits.equations import compute_optimum_law
from harness.fits.runs import Floats, Runs

DELTA = 1e-3
"""Huber's δ of the papers, in logarithms of losses."""

SAME = 1e-3
"""Two optima are one if their objectives differ by no more than this share."""


@dataclass(frozen=True, kw_only=True)
class LawInputs:
    """Logarithms of sizes and tokens about their means, and the frozen share of the weights."""

    size: Floats
    tokens: Floats
    frozen: Floats
    mean_size: float
    mean_tokens: float

    @classmethod
    def from_runs(cls, runs: Runs, centre: LawInputs | None = None) -> LawInputs:
        """The inputs of runs, about the means of other inputs or about their own."""
        size, tokens = np.log(runs.size), np.log(runs.tokens)
        mean_size, mean_tokens = (
            (centre.mean_size, centre.mean_tokens) if centre else (float(size.mean()), float(tokens.mean()))
        )
        frozen = 1 - runs.others.get("trainable", np.ones(len(runs)))
        return cls(
            size=size - mean_size,
            tokens=tokens - mean_tokens,
            frozen=frozen,
            mean_size=mean_size,
            mean_tokens=mean_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class Law:
    """A formula of the loss.

    Attributes:
        names: Its parameters as they are fitted: sizes and tokens are divided by their geometric means, else
            A and α would be one parameter to any optimizer.
        predict: The log losses (resamples, runs) of parameters (resamples, parameters) and of inputs.
        starts: Values of each parameter to begin from, by the mean loss.
        restore: The parameters of the formula as printed, by name.
        exponents: Those that must be above 0, so that a term of the loss shrinks.
        in_losses: Parameters in the unit of the loss, where others are logarithms or exponents.
        optional: A factor and its exponent, which has no effect where the factor is 0.
    """

    names: tuple[str, ...]
    predict: Callable[[Floats, LawInputs], Floats]
    starts: Callable[[float], Sequence[Sequence[float]]]
    restore: Callable[[Floats, LawInputs], Mapping[str, Floats]]
    exponents: tuple[str, ...]
    in_losses: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def _predict_chinchilla(theta: Floats, inputs: LawInputs) -> Floats:
    e, a, alpha, b, beta = (theta[:, n, None] for n in range(5))
    with np.errstate(over="ignore"):
        loss: Floats = np.exp(e) + np.exp(a - alpha * inputs.size) + np.exp(b - beta * inputs.tokens)
        return np.log(loss)


def _start_chinchilla(loss: float) -> list[tuple[float, ...]]:
    parts = [(math.log(0.4 * loss), math.log(0.3 * loss)), (math.log(0.8 * loss), math.log(0.1 * loss))]
    return [
        (e, term, alpha, term, beta)
        for (e, term), alpha, beta in itertools.product(parts, (0.1, 0.3, 0.8, 1.5), (0.1, 0.3, 0.8, 1.5))
    ]


def _restore_chinchilla(theta: Floats, inputs: LawInputs) -> dict[str, Floats]:
    e, a, alpha, b, beta = theta.T
    with np.errstate(over="ignore"):
        return {
            "E": np.exp(e),
            "A": np.exp(a + alpha * inputs.mean_size),
            "α": alpha,
            "B": np.exp(b + beta * inputs.mean_tokens),
            "β": beta,
        }


CHINCHILLA = Law(
    names=("E", "A", "α", "B", "β"),
    predict=_predict_chinchilla,
    starts=_start_chinchilla,
    restore=_restore_chinchilla,
    exponents=("α", "β"),
)


def _predict_finetuning(theta: Floats, inputs: LawInputs) -> Floats:
    c, a_d, b_d, alpha, a_s, b_s, c_s, beta = (theta[:, n, None] for n in range(8))
    # 0^b is 0: with nothing frozen only c_s is left.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        frozen = np.where(inputs.frozen > 0, inputs.frozen ** np.abs(b_s), 0.0)
        loss = (
            np.exp(c)
            + (a_d * inputs.tokens + b_d) * np.exp(-alpha * inputs.size)
            + (a_s * frozen + c_s) * np.exp(-beta * inputs.tokens)
        )
        return np.log(np.maximum(loss, 1e-12))


def _start_finetuning(loss: float) -> list[tuple[float, ...]]:
    return [
        (math.log(0.5 * loss), 0.0, 0.25 * loss, alpha, a_s, b_s, 0.25 * loss, beta)
        for alpha, beta, a_s, b_s in itertools.product((0.1, 0.4), (0.1, 0.4), (0.0, 0.2 * loss), (1.0, 3.0))
    ]


def _restore_finetuning(theta: Floats, inputs: LawInputs) -> dict[str, Floats]:
    c, a_d, b_d, alpha, a_s, b_s, c_s, beta = theta.T
    with np.errstate(over="ignore", invalid="ignore"):
        by_size, by_tokens = np.exp(alpha * inputs.mean_size), np.exp(beta * inputs.mean_tokens)
        return {
            "C": np.exp(c),
            "a_d": a_d * by_size,
            "b_d": (b_d - a_d * inputs.mean_tokens) * by_size,
            "α": alpha,
            "a_s": a_s * by_tokens,
            "b_s": np.abs(b_s),
            "c_s": c_s * by_tokens,
            "β": beta,
        }


FINETUNING = Law(
    names=("C", "a_d", "b_d", "α", "a_s", "b_s", "c_s", "β"),
    predict=_predict_finetuning,
    starts=_start_finetuning,
    restore=_restore_finetuning,
    exponents=("α", "β"),
    in_losses=("a_d", "b_d", "a_s", "c_s"),
    optional=("a_s", "b_s"),
)


def _compute_jacobian(law: Law, theta: Floats, inputs: LawInputs) -> Floats:
    """Derivatives of the log losses, shape (resamples, runs, parameters), by central differences."""
    step = 1e-6
    columns = []
    for n in range(theta.shape[1]):
        shift = np.zeros(theta.shape[1])
        shift[n] = step
        columns.append((law.predict(theta + shift, inputs) - law.predict(theta - shift, inputs)) / (2 * step))
    return np.stack(columns, axis=-1)


def _compute_huber(residuals: Floats, delta: float) -> Floats:
    size = np.abs(residuals)
    return np.where(size <= delta, residuals**2 / (2 * delta), size - delta / 2)


@dataclass(frozen=True, kw_only=True)
class Optima:
    """What the starts have reached.

    Attributes:
        theta: The parameters of the best optimum.
        optima: For each optimum its objective and the share of starts that reach it, the best first.
    """

    theta: Floats
    optima: tuple[tuple[float, float], ...]


def find_optima(law: Law, inputs: LawInputs, losses: Floats, *, starts: int | None = None) -> Optima:
    """The optima that BFGS and L-BFGS reach from a grid of starts.

    Args:
        law: The formula.
        inputs: The runs, shape (runs,).
        losses: Their losses.
        starts: How many of the starts are used, at even distances; None for all.
    """
    target = np.log(losses)

    def evaluate_objective(theta: Floats, delta: float) -> tuple[float, Floats]:
        residuals = law.predict(theta[None], inputs)[0] - target
        gradient = np.clip(residuals / delta, -1, 1) @ _compute_jacobian(law, theta[None], inputs)[0]
        value = float(_compute_huber(residuals, delta).sum())
        return (value, gradient) if math.isfinite(value) else (1e9, np.zeros_like(theta))

    grid = [*law.starts(float(np.median(losses)))]
    grid = grid if starts is None else grid[:: max(1, len(grid) // starts)]
    ends = []
    for start, method in itertools.product(grid, ("BFGS", "L-BFGS-B")):
        theta = np.array(start)
        # δ falls to that of the papers: far from the optimum the gradient of a small δ has no length.
        for delta in (0.1, 0.01, DELTA):
            options = (
                {"maxiter": 1000} if method == "BFGS" else {"maxiter": 2000, "ftol": 1e-13, "gtol": 1e-8}
            )
            with np.errstate(all="ignore"):
                theta = minimize(
                    evaluate_objective, theta, args=(delta,), jac=True, method=method, options=options
                ).x
        ends.append((evaluate_objective(theta, DELTA)[0], theta))
    ends.sort(key=lambda end: end[0])
    groups: list[list[float]] = []
    for value, _ in ends:
        if groups and value <= groups[-1][0] * (1 + SAME):
            groups[-1].append(value)
        else:
            groups.append([value])
    optima = tuple((group[0], len(group) / len(ends)) for group in groups)
    return Optima(theta=ends[0][1], optima=optima)


def measure_weakest(law: Law, inputs: LawInputs, losses: Floats, theta: Floats) -> tuple[float, Floats]:
    """The half width of the interval of what the runs tell least, a combination of parameters of length 1.

    The smallest singular value of the Jacobian says how much such a change moves the log losses. What is
    fitted are medians, whose deviation is √(π/2) times that of means.

    Args:
        law: The formula; its optional parameters are not looked at.
        inputs: The runs, shape (runs,).
        losses: Their losses.
        theta: The optimum.

    Returns:
        The half width, in logarithms, exponents and shares of the median loss; and the squared weight of each
        of the parameters.
    """
    units = np.array([np.median(losses) if name in law.in_losses else 1.0 for name in law.names])
    kept = np.array([name not in law.optional for name in law.names])
    jacobian = (_compute_jacobian(law, theta[None], inputs)[0] * units)[:, kept]
    _, lengths, directions = np.linalg.svd(jacobian, full_matrices=False)
    # A fit of medians meets as many runs as it has parameters: those tell no noise.
    residuals = np.sort(np.abs(law.predict(theta[None], inputs)[0] - np.log(losses)))[len(law.names) :]
    # No deviation is below δ, within which Huber's loss tells nothing apart.
    deviation = math.sqrt(math.pi / 2) * max(1.4826 * float(np.median(residuals)), DELTA)
    freedom = max(len(losses) - len(law.names), 1)
    weights = np.zeros(len(law.names))
    weights[kept] = directions[-1] ** 2
    return float(student.ppf(0.975, freedom)) * deviation / max(float(lengths[-1]), 1e-12), weights


def refit_resamples(law: Law, inputs: LawInputs, losses: Floats, weights: Floats, theta: Floats) -> Floats:
    """The parameters of every resample, shape (resamples, parameters), all from the optimum of all runs.

    Levenberg and Marquardt's steps on reweighted squares, which have the minimum of Huber's loss.

    Args:
        law: The formula.
        inputs: The runs, shape (runs,).
        losses: Their losses.
        weights: Shape (resamples, runs).
        theta: The optimum of all runs.
    """
    target = np.log(losses)
    every = np.tile(theta, (len(weights), 1))
    for delta, steps in ((10 * DELTA, 8), (DELTA, 30)):
        damping = np.full(len(weights), 1e-3)
        residuals = law.predict(every, inputs) - target
        value = (weights * _compute_huber(residuals, delta)).sum(axis=1)
        moving = np.arange(len(weights))
        for _ in range(steps):
            jacobian = _compute_jacobian(law, every[moving], inputs)
            scale = weights[moving] / np.maximum(np.abs(residuals[moving]), delta)
            weighted = jacobian * scale[:, :, None]
            squares = np.swapaxes(weighted, 1, 2) @ jacobian
            slope = (weighted * residuals[moving][:, :, None]).sum(axis=1)
            diagonal = np.einsum("bii->bi", squares)
            diagonal += damping[moving, None] * diagonal + 1e-12 * diagonal.max(axis=1, keepdims=True)
            step = np.linalg.solve(squares, slope[:, :, None])[:, :, 0]
            with np.errstate(all="ignore"):
                candidate = every[moving] - np.clip(step, -1, 1)
                left = law.predict(candidate, inputs) - target
                reached = (weights[moving] * _compute_huber(left, delta)).sum(axis=1)
            better = reached < value[moving]
            gain = np.where(better, value[moving] - reached, np.inf)
            chosen = moving[better]
            every[chosen], residuals[chosen], value[chosen] = candidate[better], left[better], reached[better]
            damping[moving] = np.where(better, damping[moving] / 5, damping[moving] * 10)
            moving = moving[(gain > 1e-6 * value[moving]) & (damping[moving] < 1e8)]
            if not len(moving):
                break
    return every


def compute_optimum(fit: Mapping[str, Floats], flops: float, per_unit: float) -> dict[str, Floats]:
    """The size, the tokens and the loss at the optimum of a budget, of every set of parameters.

    Args:
        fit: The parameters of `CHINCHILLA`, each of shape (resamples,).
        flops: The budget.
        per_unit: The operations for each unit of size and token: C = per_unit · N · D.
    """
    rows = []
    with np.errstate(all="ignore"):
        logs = [np.log(fit["A"]), fit["α"], np.log(fit["B"]), fit["β"]]
        for log_a, alpha, log_b, beta in zip(*logs, strict=True):
            if not (alpha > 0 and beta > 0 and math.isfinite(log_a) and math.isfinite(log_b)):
                rows.append((math.inf, math.inf))
                continue
            prefactor, eta = compute_optimum_law(log_a, alpha, log_b, beta)
            rows.append((prefactor, eta))
        prefactors, eta = np.array(rows).T
        size = np.exp(prefactors + eta * math.log(flops / per_unit))
        tokens = flops / per_unit / size
        loss = fit["E"] + fit["A"] / size ** fit["α"] + fit["B"] / tokens ** fit["β"]
    return {"η": eta, "size": size, "tokens": tokens, "loss": loss}
