"""Ridge regression on many small sets of tasks at once, with its error on held-out families.

Nothing is fitted anew for a set: the products of all columns, summed within each fold, hold all that
any set of columns and any fold needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

PENALTIES = (1.0, 3.0, 10.0, 30.0)
"""Ridge penalties tried, for scores scaled to a standard deviation of 1."""

FOLDS, PARTITIONS = 5, 4
"""Parts that families are put into where sets of tasks are chosen, and how often they are put anew."""


@dataclass(frozen=True, kw_only=True)
class Linear:
    """What predicts: intercept + scores · coefficients, (tasks,)."""

    coefficients: Floats
    intercept: float

    def predict(self, scores: Floats) -> Floats:
        """The predictions of some rows of scores, (models, tasks)."""
        return np.asarray(scores @ self.coefficients + self.intercept)


@dataclass(frozen=True, kw_only=True)
class Products:
    """Products of the columns [scaled scores, 1, target]: (tasks + 2, tasks + 2) of all `rows`.

    `folds` are those of each fold of every partition, (partitions * folds, tasks + 2, tasks + 2).
    """

    folds: Floats
    whole: Floats
    rows: int
    partitions: int

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return int(self.folds.shape[1]) - 2


def products(scores: Floats, target: Floats, groups: Ints) -> Products:
    """The products of a training set.

    Args:
        scores: (models, tasks).
        target: (models,).
        groups: (partitions, models), the fold of each, from 0.
    """
    scaled = (scores - scores.mean(axis=0)) / _scale(scores)
    columns = np.column_stack([scaled, np.ones(len(target)), target - target.mean()])
    parts = [columns[one == fold] for one in groups for fold in range(int(one.max()) + 1)]
    return Products(
        folds=np.stack([part.T @ part for part in parts]),
        whole=columns.T @ columns,
        rows=len(target),
        partitions=len(groups),
    )


def errors(of: Products, sets: Sequence[Sequence[int]], penalty: float) -> Floats:
    """The mean squared error of each set of tasks, every fold predicted without itself, (sets,).

    Args:
        of: The training set.
        sets: Of one length, each the columns of its tasks.
        penalty: Of the ridge; the intercept has none.
    """
    chosen = np.asarray(sets, dtype=np.int64)
    chosen = np.column_stack([chosen, np.full(len(chosen), of.tasks)])
    rows, columns, last = chosen[:, :, None], chosen[:, None, :], of.tasks + 1
    others = of.whole - of.folds
    ridge = np.diag([penalty] * (chosen.shape[1] - 1) + [1e-9])
    weights = np.linalg.solve(others[:, rows, columns] + ridge, others[:, chosen, last][..., None])[..., 0]
    crossed = (weights * of.folds[:, chosen, last]).sum(axis=2)
    squared = np.einsum("fsi,fsij,fsj->fs", weights, of.folds[:, rows, columns], weights)
    total = of.folds[:, None, last, last] - 2 * crossed + squared
    return np.asarray(total.sum(axis=0) / (of.rows * of.partitions))


def fit(scores: Floats, target: Floats, penalty: float) -> Linear:
    """The ridge regression of `target` (models,) on `scores` (models, tasks), in the scores' own unit."""
    scale, middle = _scale(scores), scores.mean(axis=0)
    scaled = (scores - middle) / scale
    inner = scaled.T @ scaled + penalty * np.eye(scores.shape[1])
    coefficients = np.linalg.solve(inner, scaled.T @ (target - target.mean())) / scale
    return Linear(coefficients=coefficients, intercept=float(target.mean() - middle @ coefficients))


def folds(families: Ints, count: int = FOLDS, partitions: int = PARTITIONS) -> Ints:
    """A fold for each model in every partition, (partitions, models), the same at every call.

    Families stay whole, the folds are about alike in size, and the largest families lie apart.
    """
    draw = np.random.default_rng(0)
    return np.stack([_partition(families, count, draw) for _ in range(partitions)])


def _partition(families: Ints, count: int, draw: np.random.Generator) -> Ints:
    names, places, sizes = np.unique(families, return_inverse=True, return_counts=True)
    load = np.zeros(min(count, len(names)), np.int64)
    fold = np.zeros(len(names), np.int64)
    for family in np.lexsort((draw.random(len(names)), -sizes)):
        fold[family] = lightest = int(load.argmin())
        load[lightest] += sizes[family]
    return fold[places]


def _scale(scores: Floats) -> Floats:
    """The columns' standard deviations; 1 for a constant one."""
    scale = scores.std(axis=0)
    return np.where(scale > 0, scale, 1.0)
