"""What a task costs, from times that were taken on many machines."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.proxy.ridge import Floats

FEW = 5
"""A model with fewer times than that tells nothing of the tasks' relative cost."""

ROUNDS, CLOSE = 500, 1e-9


@dataclass(frozen=True, kw_only=True)
class Times:
    """The fit log seconds = model + task.

    Attributes:
        models: (models,), NaN for one with too few times.
        tasks: (tasks,), NaN for one without any.
        spread: The median of the absolute residuals: 0.7 is a factor of two.
    """

    models: Floats
    tasks: Floats
    spread: float

    def minutes(self, rows: NDArray[np.int64]) -> Floats:
        """The minutes of each task on a model whose speed is the median of some rows, (tasks,).

        Infinite for a task whose time nobody tells.
        """
        found = self.models[rows]
        known = found if np.isfinite(found).any() else self.models
        speed = np.median(known[np.isfinite(known)]) if np.isfinite(known).any() else np.nan
        return np.nan_to_num(np.exp(self.tasks + speed) / 60, nan=np.inf)

    def nearest(self, rows: NDArray[np.int64]) -> int:
        """Which of some rows is the closest to their median; -1 where none has times."""
        found = self.models[rows]
        if np.isnan(found).all():
            return -1
        return int(rows[np.nanargmin(np.abs(found - np.nanmedian(found)))])


def fit_times(seconds: Floats) -> Times:
    """Fit log time = model + task by alternating medians, which single wild times do not move.

    Args:
        seconds: (models, tasks), NaN where no time is told.

    >>> times = fit_times(np.outer([1.0, 60.0], [1.0, 2.0, 4.0, 8.0, 16.0]))
    >>> times.minutes(np.array([1])).round(6).tolist(), times.spread
    ([1.0, 2.0, 4.0, 8.0, 16.0], 0.0)
    """
    logs = np.log(seconds)
    enough = np.isfinite(logs).sum(axis=1) >= min(FEW, logs.shape[1])
    logs = np.where(enough[:, None], logs, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows and columns without any time
        tasks = np.nanmedian(logs - np.nanmedian(logs, axis=1, keepdims=True), axis=0)
        for _ in range(ROUNDS):
            models, before = np.nanmedian(logs - tasks, axis=1), tasks
            tasks = np.nanmedian(logs - models[:, None], axis=0)
            if np.nanmax(np.abs(tasks - before), initial=0) < CLOSE:
                break
        residuals = np.abs(logs - tasks - models[:, None])
        return Times(models=models, tasks=tasks, spread=float(np.round(np.nanmedian(residuals), 12)))
