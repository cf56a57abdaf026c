"""Metrics of weighted examples: one call scores many resamples of one set of predictions.

`weights` has a row for each resample: how often each example is in it. A row of ones is the set
itself. Every function returns one value for each row, as a share of 1, NaN nowhere: a metric that
the predictions leave undefined is 0, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.floating[Any]]

Places: TypeAlias = NDArray[np.intp]

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
    x, y = _centred(gold), _centred(predicted)
    moments = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=1).astype(weights.dtype)
    sums: Floats = weights @ moments
    total, of_x, of_y, both, spread_x, spread_y = sums.T
    found: Floats = _correlation(
        both - of_x * of_y / total, spread_x - of_x**2 / total, spread_y - of_y**2 / total
    )
    return found


def spearman(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of the ranks, ties sharing their mean rank.

    >>> spearman(np.array([1.0, 2, 3]), np.array([1.0, 10, 5]), np.ones((1, 3))).round(6).tolist()
    [0.5]
    """
    found: Floats = correlations(Ranks.of(gold), [Ranks.of(predicted)], weights)[0]
    return found


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The order of a set of values, from which the ranks in any resample follow.

    Attributes:
        order: The places of the values, the lowest first, (examples,).
        starts: Where in that order each group of equal values begins.
        group: The group of each value, (examples,).
    """

    order: Places
    starts: Places
    group: Places

    @classmethod
    def of(cls, values: Floats) -> Ranks:
        """The order of these values."""
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        group = np.empty(len(values), dtype=np.intp)
        group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(values)]))
        return cls(order=order, starts=starts, group=group)

    def within(self, weights: Floats) -> Floats:
        """Twice the mean ranks in each resample, about their mean, (resamples, examples)."""
        counts = np.take(weights, self.order, axis=1).astype(np.int32)
        if len(self.starts) < len(self.order):
            counts = np.add.reduceat(counts, self.starts, axis=1)
        ranks = np.cumsum(counts, axis=1, dtype=np.int32)  # ten times as fast as one of floats
        total = ranks[:, -1:].copy()
        ranks *= 2
        ranks -= counts
        ranks -= total
        return np.take(ranks.astype(weights.dtype), self.group, axis=1)


def correlations(gold: Ranks, predicted: Sequence[Ranks], weights: Floats) -> Floats:
    """Spearman's correlation of several predictions with the same gold, (predictions, resamples)."""
    x = gold.within(weights)
    by_x = weights * x
    spread_x, found = _dot(by_x, x), []
    for one in predicted:
        y = one.within(weights)
        found.append(_correlation(_dot(by_x, y), spread_x, _dot(weights * y, y)))
    return np.stack(found)


METRICS: Mapping[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
}
"""By the name a task has them under."""


def _correlation(both: Floats, spread_x: Floats, spread_y: Floats) -> Floats:
    """From sums of products of values about their means."""
    return _ratio(both, np.sqrt(np.maximum(spread_x, 0)) * np.sqrt(np.maximum(spread_y, 0)))


def _dot(x: Floats, y: Floats) -> Floats:
    """The sum of each row's products."""
    return np.asarray(np.einsum("ij,ij->i", x, y))


def _centred(values: Floats) -> Floats:
    found: Floats = values - values.mean()
    return found


def _ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, 0 where there is nothing below."""
    small = below <= TINY
    return np.where(small, 0.0, above / np.where(small, 1.0, below))


TINY = 1e-12
"""Spreads and counts below this are rounding."""
