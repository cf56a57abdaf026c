"""Metrics of weighted examples: one call scores many resamples of one set of predictions.

`weights` has a row for each resample: how often each example is in it. A row of ones is the set
itself. Every function returns one value for each row, as a share of 1, NaN nowhere: a metric that
the predictions leave undefined is 0, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]

Metric: TypeAlias = Callable[[Floats, Floats, Floats], Floats]
"""From gold (examples,), predicted (examples,) and weights (resamples, examples) to (resamples,)."""


def accuracy(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Share of the examples predicted as they are.

    >>> accuracy(np.array([0.0, 1, 1]), np.array([0.0, 1, 0]), np.array([[1.0, 1, 1], [0, 0, 3]])).tolist()
    [0.6666666666666666, 0.0]
    """
    return _ratio(weights @ (gold == predicted), weights.sum(axis=1))


def f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Harmonic mean of precision and recall of class 1.

    >>> f1(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 1, 0]), np.ones((1, 4))).tolist()
    [0.5]
    """
    both = weights @ ((gold == 1) & (predicted == 1))
    return _ratio(2 * both, weights @ (gold == 1) + weights @ (predicted == 1))


def mcc(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Matthews' correlation coefficient of two classes, 0 where only one is predicted.

    >>> mcc(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0]), np.ones((1, 4))).round(4).tolist()
    [0.5774]
    """
    return pearson((gold == 1).astype(float), (predicted == 1).astype(float), weights)


def pearson(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation, 0 where one side is constant.

    >>> pearson(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]), np.ones((1, 3))).round(6).tolist()
    [1.0]
    """
    # Moments of centred values keep the digits that sums of raw squares lose.
    return _correlation(_centred(gold)[None], _centred(predicted)[None], weights)


def spearman(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of the ranks, ties sharing their mean rank.

    >>> spearman(np.array([1.0, 2, 3]), np.array([1.0, 10, 5]), np.ones((1, 3))).round(6).tolist()
    [0.5]
    """
    return _correlation(_ranks(gold, weights), _ranks(predicted, weights), weights)


METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
}
"""By the name a task has them under."""


def _ranks(values: Floats, weights: Floats) -> Floats:
    """Mean ranks in each resample, centred, (resamples, examples)."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    group = np.empty(len(values), dtype=np.intp)
    group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(values)]))
    counts = np.take(weights, order, axis=1)
    if len(starts) < len(values):
        counts = np.add.reduceat(counts, starts, axis=1)
    ranks = counts.cumsum(axis=1)
    ranks -= (counts - 1) / 2
    ranks -= weights.sum(axis=1, keepdims=True) / 2
    return np.asarray(np.take(ranks, group, axis=1))


def _correlation(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Of values centred about 0, a row for each resample or one for all."""
    total = weights.sum(axis=1)
    by_x, by_y = weights * x, weights * y
    sum_x, sum_y = by_x.sum(axis=1), by_y.sum(axis=1)
    both = _dot(by_x, y) - sum_x * sum_y / total
    spread_x, spread_y = _dot(by_x, x) - sum_x**2 / total, _dot(by_y, y) - sum_y**2 / total
    return _ratio(both, np.sqrt(np.maximum(spread_x, 0)) * np.sqrt(np.maximum(spread_y, 0)))


def _dot(x: Floats, y: Floats) -> Floats:
    """The sum of each row's products; `y` may be one row for all."""
    return np.asarray(x @ y[0] if len(y) == 1 else np.einsum("ij,ij->i", x, y))


def _centred(values: Floats) -> Floats:
    found: Floats = values - values.mean()
    return found


def _ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, 0 where there is nothing below."""
    small = below <= TINY
    return np.where(small, 0.0, above / np.where(small, 1.0, below))


TINY = 1e-12
"""Spreads and counts below this are rounding."""
