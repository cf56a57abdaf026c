"""Laws of the whole loss as data: a formula over log sizes and log tokens, its parameters and its starts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.fits.runs import Floats, LawName

EXPONENTS = ("α", "β")
"""Parameters that must be above 0, so that a term of the loss shrinks."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A formula of the loss.

    Attributes:
        names: Its parameters, as they lie in an array.
        predict: The log losses (sets, runs) of parameters (sets, parameters) and of inputs (3, runs).
        starts: Parameters to begin from, by the median loss.
        move: The rows of parameters for inputs about a middle, as they are for inputs about 0.
        logs: Parameters that are fitted as logarithms.
        in_losses: Parameters in the unit of the loss, where others are logarithms or exponents.
        optional: A factor and its exponent, which has no effect where the factor is 0.
    """

    names: tuple[str, ...]
    predict: Callable[[Floats, Floats], Floats]
    starts: Callable[[float], Sequence[Sequence[float]]]
    move: Callable[[Floats, Sequence[float]], Sequence[Floats]]
    logs: tuple[str, ...]
    in_losses: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def name_values(self, theta: Floats, middle: Sequence[float]) -> dict[str, Floats]:
        """The parameters of the formula as printed, each (sets,), of those of inputs about a middle."""
        with np.errstate(over="ignore", invalid="ignore"):
            moved = zip(self.names, self.move(theta.T, middle), strict=True)
            return {name: np.exp(values) if name in self.logs else values for name, values in moved}

    def predict_losses(self, values: Mapping[str, float], columns: Mapping[str, Floats]) -> Floats:
        """The loss of each run by parameters as printed, (runs,)."""
        with np.errstate(divide="ignore"):
            theta = [np.log(values[name]) if name in self.logs else values[name] for name in self.names]
        losses: Floats = np.exp(self.predict(np.array([theta]), build_inputs(columns)))[0]
        return losses


def build_inputs(columns: Mapping[str, Floats], middle: Sequence[float] = (0.0, 0.0)) -> Floats:
    """Log sizes and log tokens about a middle, and the frozen shares of the weights, (3, runs)."""
    frozen = 1 - columns.get("trainable", np.ones(len(columns["size"])))
    return np.array([np.log(columns["size"]) - middle[0], np.log(columns["tokens"]) - middle[1], frozen])


def _predict_chinchilla(theta: Floats, inputs: Floats) -> Floats:
    e, a, alpha, b, beta = theta.T[:, :, None]
    with np.errstate(over="ignore"):
        loss: Floats = np.exp(e) + np.exp(a - alpha * inputs[0]) + np.exp(b - beta * inputs[1])
        return np.log(loss)


def _start_chinchilla(loss: float) -> list[tuple[float, ...]]:
    parts = [(math.log(0.4 * loss), math.log(0.3 * loss)), (math.log(0.8 * loss), math.log(0.1 * loss))]
    slopes = (0.1, 0.3, 0.8, 1.5)
    return [(e, term, a, term, b) for (e, term), a, b in itertools.product(parts, slopes, slopes)]


def _predict_finetuning(theta: Floats, inputs: Floats) -> Floats:
    c, a_d, b_d, alpha, a_s, b_s, c_s, beta = theta.T[:, :, None]
    size, tokens, frozen = inputs
    # 0^b is 0: with nothing frozen only c_s is left.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        share = np.where(frozen > 0, frozen ** np.abs(b_s), 0.0)
        by_size = (a_d * tokens + b_d) * np.exp(-alpha * size)
        loss = np.exp(c) + by_size + (a_s * share + c_s) * np.exp(-beta * tokens)
        logs: Floats = np.log(np.maximum(loss, 1e-12))
        return logs


def _start_finetuning(loss: float) -> list[tuple[float, ...]]:
    return [
        (math.log(0.5 * loss), 0.0, 0.25 * loss, alpha, a_s, b_s, 0.25 * loss, beta)
        for alpha, beta, a_s, b_s in itertools.product((0.1, 0.4), (0.1, 0.4), (0.0, 0.2 * loss), (1.0, 3.0))
    ]


def _move_finetuning(rows: Floats, middle: Sequence[float]) -> list[Floats]:
    c, a_d, b_d, alpha, a_s, b_s, c_s, beta = rows
    by_size, by_tokens = np.exp(alpha * middle[0]), np.exp(beta * middle[1])
    size_terms = [a_d * by_size, (b_d - a_d * middle[1]) * by_size, alpha]
    return [c, *size_terms, a_s * by_tokens, np.abs(b_s), c_s * by_tokens, beta]


LOSS_LAWS: Mapping[LawName, Law] = {
    "chinchilla": Law(
        names=("E", "A", "α", "B", "β"),
        predict=_predict_chinchilla,
        starts=_start_chinchilla,
        move=lambda rows, middle: [
            rows[0], rows[1] + rows[2] * middle[0], rows[2], rows[3] + rows[4] * middle[1], rows[4],
        ],
        logs=("E", "A", "B"),
    ),
    "finetune": Law(
        names=("C", "a_d", "b_d", "α", "a_s", "b_s", "c_s", "β"),
        predict=_predict_finetuning,
        starts=_start_finetuning,
        move=_move_finetuning,
        logs=("C",),
        in_losses=("a_d", "b_d", "a_s", "c_s"),
        optional=("a_s", "b_s"),
    ),
}  # fmt: skip


def compute_optimum_law(log_a: Any, alpha: Any, log_b: Any, beta: Any) -> tuple[Any, Any]:
    """The optimum N = n · C^η where N · D = C of L = E + A / N^α + B / D^β: ln n, and η.

    Then D = C^(1 − η) / n and D / N = C^(1 − 2η) / n². These are the equations 6 and 7 of OptiBERT.

    Args:
        log_a: The natural logarithm of A, a number or an array as all of them.
        alpha: α.
        log_b: The natural logarithm of B.
        beta: β.

    Example:
        >>> [float(part) for part in compute_optimum_law(0.0, 0.5, 0.0, 0.5)]
        [0.0, 0.5]
    """
    return (log_a - log_b + np.log(alpha / beta)) / (alpha + beta), beta / (alpha + beta)


def compute_optimum(fit: Mapping[str, Floats], flops: float, per_unit: float) -> dict[str, Floats]:
    """The exponent η, the size, the tokens and the loss at the optimum of a budget.

    Args:
        fit: The parameters of `chinchilla`, each of shape (sets,), as is what is returned.
        flops: The budget.
        per_unit: The operations for each unit of size and token: C = per_unit · N · D.
    """
    with np.errstate(all="ignore"):
        log_a, log_b = np.log(fit["A"]), np.log(fit["B"])
        valid = (fit["α"] > 0) & (fit["β"] > 0) & np.isfinite(log_a) & np.isfinite(log_b)
        closed = compute_optimum_law(log_a, fit["α"], log_b, fit["β"])
        prefactor, eta = (np.where(valid, part, np.inf) for part in closed)
        size = np.exp(prefactor + eta * math.log(flops / per_unit))
        tokens = flops / per_unit / size
        loss = fit["E"] + fit["A"] / size ** fit["α"] + fit["B"] / tokens ** fit["β"]
    return {"η": eta, "size": size, "tokens": tokens, "loss": loss}
