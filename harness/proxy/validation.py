"""How far a proxy is off on models of families that it has never seen."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.proxy import ridge
from harness.proxy.choice import Choice
from harness.proxy.ridge import Floats, Ints

LEVEL = 0.95
"""The share of held-out models whose mean lies in the interval."""

Choose = Callable[[Floats, Floats, Ints], Choice]
"""Chooses on a training set: (scores, target, families)."""

Progress = Callable[[int, int], None]
"""Called with the families held out so far, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Held-out errors, shares of 1.

    Attributes:
        rmse: Root mean square.
        mae: Mean absolute error.
        half_width: No more than 1 - LEVEL of held-out models were further off than this.
        kendall: Rank correlation (tau-b) of predictions and means; null where one is constant.
        spearman: Likewise.
    """

    rmse: float
    mae: float
    half_width: float
    kendall: float | None
    spearman: float | None


def held_out(
    scores: Floats, target: Floats, families: Ints, choose: Choose, progress: Progress | None = None
) -> Floats:
    """Each model's prediction by a proxy chosen and fitted without its family, (models,).

    Args:
        scores: (models, tasks).
        target: (models,).
        families: (models,), numbers; two of them at least.
        choose: Chooses the tasks and the penalty: it sees the other families only.
        progress: Told how far it is.
    """
    tell = progress or (lambda done, total: None)
    predicted, names = np.empty(len(target)), np.unique(families)

    def without(family: int) -> tuple[NDArray[np.bool_], Floats]:
        out = families == family
        choice = choose(scores[~out], target[~out], families[~out])
        columns = list(choice.tasks)
        line = ridge.fit(scores[~out][:, columns], target[~out], choice.penalty)
        return out, line.predict(scores[out][:, columns])

    tell(0, len(names))
    with ThreadPoolExecutor(
        len(os.sched_getaffinity(0))
    ) as pool:  # numpy works without the interpreter's lock
        for done, (out, found) in enumerate(pool.map(without, names.tolist()), 1):
            predicted[out] = found
            tell(done, len(names))
    return predicted


def judged(target: Floats, predicted: Floats) -> Errors:
    """The errors of predictions, both (models,).

    >>> off = judged(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2, 0.4]))
    >>> round(off.half_width, 3), round(off.mae, 3)
    (0.1, 0.067)
    """
    residuals = np.abs(predicted - target)
    return Errors(
        rmse=float(np.sqrt(np.mean(residuals**2))),
        mae=float(residuals.mean()),
        half_width=half_width(residuals),
        kendall=_correlation("kendalltau", target, predicted),
        spearman=_correlation("spearmanr", target, predicted),
    )


def half_width(residuals: Floats) -> float:
    """The split-conformal bound: the ⌈(n + 1) · LEVEL⌉-th smallest of n, the largest where n is too small.

    >>> half_width(np.arange(1.0, 101.0))
    96.0
    """
    place = min(math.ceil((len(residuals) + 1) * LEVEL), len(residuals))
    return float(np.sort(residuals)[place - 1])


def _correlation(name: str, target: Floats, predicted: Floats) -> float | None:
    from scipy import stats

    if not np.ptp(target) or not np.ptp(predicted):
        return None
    return float(getattr(stats, name)(target, predicted)[0])
