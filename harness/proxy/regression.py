"""A ridge regression of a suite's mean on some tasks, and its errors on families that it has not seen.

Many small sets of tasks are fitted at once: the products of all columns, summed within each fold, hold all
that any set of columns and any fold needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.proxy.table import Floats, Ints

FOLDS, PARTITIONS = 5, 4
"""The folds of families within which sets of tasks are compared, and the number of such partitions."""


LEVEL = 0.95
"""The share of held-out models whose mean lies in the interval."""


@dataclass(frozen=True, kw_only=True)
class _Linear:
    """A linear predictor: intercept + scores · coefficients, (tasks,)."""

    coefficients: Floats
    intercept: float

    def predict(self, scores: Floats) -> Floats:
        """The predictions for rows of scores, (models, tasks)."""
        return np.asarray(scores @ self.coefficients + self.intercept)


@dataclass(frozen=True, kw_only=True)
class Products:
    """The products of the columns [scaled scores, 1, target]: (tasks + 2, tasks + 2) over all `rows`.

    `folds` holds those of each fold of every partition, (partitions * folds, tasks + 2, tasks + 2).
    """

    folds: Floats
    whole: Floats
    rows: int
    partitions: int

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return int(self.folds.shape[1]) - 2

    @staticmethod
    def compute_products(scores: Floats, target: Floats, groups: Ints) -> Products:
        """The products of a training set.

        Args:
            scores: (models, tasks).
            target: (models,).
            groups: The fold of each model in each partition, (partitions, models), from `split_families`.
        """
        scaled = (scores - scores.mean(axis=0)) / _scale(scores)
        # Centred, as sums of raw squares lose digits.
        columns = np.column_stack([scaled, np.ones(len(target)), target - target.mean()])
        parts = [columns[one == fold] for one in groups for fold in range(int(one.max()) + 1)]
        return Products(
            folds=np.stack([part.T @ part for part in parts]),
            whole=columns.T @ columns,
            rows=len(target),
            partitions=len(groups),
        )

    def compute_errors(self, sets: Sequence[Sequence[int]], penalty: float) -> Floats:
        """The mean squared error of ridge regressions, every fold predicted without itself.

        Args:
            sets: Sets of tasks by their columns, all of one size.
            penalty: The ridge penalty, for scores scaled to a standard deviation of 1.

        Returns:
            The error of each set, (sets,).
        """
        chosen = np.asarray(sets, dtype=np.int64)
        chosen = np.column_stack([chosen, np.full(len(chosen), self.tasks)])
        rows, columns, last = chosen[:, :, None], chosen[:, None, :], self.tasks + 1
        # Products are sums over models, so those without a fold are a difference; nothing is summed again.
        others = self.whole - self.folds
        # The intercept, in the last place, is not penalized; 1e-9 keeps the system solvable.
        ridge = np.diag([penalty] * (chosen.shape[1] - 1) + [1e-9])
        weights = np.linalg.solve(others[:, rows, columns] + ridge, others[:, chosen, last][..., None])[
            ..., 0
        ]
        crossed = (weights * self.folds[:, chosen, last]).sum(axis=2)
        squared = np.einsum("fsi,fsij,fsj->fs", weights, self.folds[:, rows, columns], weights)
        total = self.folds[:, None, last, last] - 2 * crossed + squared
        return np.asarray(total.sum(axis=0) / (self.rows * self.partitions))


def fit_ridge(scores: Floats, target: Floats, penalty: float) -> _Linear:
    """The ridge regression of a target on scores, in the scores' own unit.

    Args:
        scores: (models, tasks).
        target: (models,).
        penalty: The ridge penalty, for scores scaled to a standard deviation of 1.
    """
    scale, middle = _scale(scores), scores.mean(axis=0)
    scaled = (scores - middle) / scale
    inner = scaled.T @ scaled + penalty * np.eye(scores.shape[1])
    coefficients = np.linalg.solve(inner, scaled.T @ (target - target.mean())) / scale
    return _Linear(coefficients=coefficients, intercept=float(target.mean() - middle @ coefficients))


def split_families(families: Ints, count: int = FOLDS, partitions: int = PARTITIONS) -> Ints:
    """Fixed folds of about equal size: families stay whole, the largest lie apart.

    Args:
        families: The family of each model, (models,).
        count: The folds of a partition, fewer where there are fewer families.
        partitions: The number of partitions.

    Returns:
        The fold of each model in each partition, (partitions, models).
    """
    # A fixed seed: the same import gives the same proxy.
    draw = np.random.default_rng(0)
    return np.stack([_draw_partition(families, count, draw) for _ in range(partitions)])


def _draw_partition(families: Ints, count: int, draw: np.random.Generator) -> Ints:
    names, places, sizes = np.unique(families, return_inverse=True, return_counts=True)
    load = np.zeros(min(count, len(names)), np.int64)
    fold = np.zeros(len(names), np.int64)
    # lexsort sorts by its last key first: the largest families, and among equals by chance. Each goes to the
    # lightest fold so far.
    for family in np.lexsort((draw.random(len(names)), -sizes)):
        fold[family] = lightest = int(load.argmin())
        load[lightest] += sizes[family]
    return fold[places]


def _scale(scores: Floats) -> Floats:
    """The standard deviation of each column; 1 for a constant column."""
    scale = scores.std(axis=0)
    return np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, kw_only=True)
class _Errors:
    """Held-out errors, shares of 1.

    No more than 1 - LEVEL of held-out models are further off than `half_width`. `kendall` (tau-b) and
    `spearman` are rank correlations of predictions and means; None where either is constant.
    """

    rmse: float
    mae: float
    half_width: float
    kendall: float | None
    spearman: float | None


def measure_errors(target: Floats, predicted: Floats) -> _Errors:
    """The errors of predictions, both (models,).

    >>> off = measure_errors(np.array([0.1, 0.2, 0.3]), np.array([0.2, 0.2, 0.4]))
    >>> round(off.half_width, 3), round(off.mae, 3)
    (0.1, 0.067)
    """
    residuals = np.abs(predicted - target)
    return _Errors(
        rmse=float(np.sqrt(np.mean(residuals**2))),
        mae=float(residuals.mean()),
        half_width=_compute_half_width(residuals),
        kendall=_compute_rank_correlation("kendalltau", target, predicted),
        spearman=_compute_rank_correlation("spearmanr", target, predicted),
    )


def _compute_half_width(residuals: Floats) -> float:
    """The split-conformal bound: the ⌈(n + 1) · LEVEL⌉-th smallest of n, the largest where n is too small.

    >>> _compute_half_width(np.arange(1.0, 101.0))
    96.0
    """
    # Lei et al. (2018, Distribution-Free Predictive Inference for Regression): the n + 1 counts the new
    # model.
    place = min(math.ceil((len(residuals) + 1) * LEVEL), len(residuals))
    return float(np.sort(residuals)[place - 1])


def _compute_rank_correlation(name: str, target: Floats, predicted: Floats) -> float | None:
    from scipy import stats

    if not np.ptp(target) or not np.ptp(predicted):
        return None
    return float(getattr(stats, name)(target, predicted)[0])
