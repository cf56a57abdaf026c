"""Metrics of weighted units: one call scores many resamples of one set of predictions.

`weights` has a row for each resample: the number of times each unit is in it. A row of ones is the set
itself. Every function maps gold (units,), predicted (units,) and weights (resamples, units) to (resamples,),
as shares of 1 and never NaN: a metric that the predictions leave undefined is 0, as in scikit-learn.
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
"""A function from gold (units,), predicted (units,) and weights (resamples, units) to (resamples,)."""


def _accuracy(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Share of the examples predicted as they are.

    >>> _accuracy(np.array([0.0, 1, 1]), np.array([0.0, 1, 0]), np.array([[1.0, 1, 1], [0, 0, 3]])).tolist()
    [0.6666666666666666, 0.0]
    """
    return _ratio(weights @ (gold == predicted), weights.sum(axis=1))


def _f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Harmonic mean of precision and recall of class 1.

    >>> _f1(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 1, 0]), np.ones((1, 4))).tolist()
    [0.5]
    """
    both = weights @ ((gold == 1) & (predicted == 1))
    return _ratio(2 * both, weights @ (gold == 1) + weights @ (predicted == 1))


def _mcc(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Matthews' correlation coefficient of two classes, 0 where only one is predicted.

    >>> _mcc(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0]), np.ones((1, 4))).round(4).tolist()
    [0.5774]
    """
    return _pearson((gold == 1).astype(float), (predicted == 1).astype(float), weights)


def _pearson(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation, 0 where one side is constant.

    >>> _pearson(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]), np.ones((1, 3))).round(6).tolist()
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


def _spearman(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of the ranks, ties sharing their mean rank.

    >>> _spearman(np.array([1.0, 2, 3]), np.array([1.0, 10, 5]), np.ones((1, 3))).round(6).tolist()
    [0.5]
    """
    found: Floats = _correlations(_Ranks.of(gold), [_Ranks.of(predicted)], weights)[0]
    return found


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    """The rising order of values and their groups of ties, from which ranks in any resample follow."""

    order: Places
    starts: Places
    group: Places

    @classmethod
    def of(cls, values: Floats) -> _Ranks:
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
        ranks = np.cumsum(counts, axis=1, dtype=np.int32)  # ten times as fast as with floats
        total = ranks[:, -1:].copy()
        ranks *= 2
        ranks -= counts
        ranks -= total
        return np.take(ranks.astype(weights.dtype), self.group, axis=1)


def _correlations(gold: _Ranks, predicted: Sequence[_Ranks], weights: Floats) -> Floats:
    """Spearman's correlation of several predictions with the same gold, (predictions, resamples)."""
    x = gold.within(weights)
    by_x = weights * x
    spread_x, found = _dot(by_x, x), []
    for one in predicted:
        y = one.within(weights)
        found.append(_correlation(_dot(by_x, y), spread_x, _dot(weights * y, y)))
    return np.stack(found)


def prepare_spearman(gold: Floats, predicted: Sequence[Floats]) -> Callable[[Floats], Floats]:
    """Spearman's correlation of several predictions with the same gold, prepared for many calls.

    Returns:
        A function from weights (resamples, units) to (predictions, resamples).
    """
    orders = [_Ranks.of(values) for values in (gold, *predicted)]
    return lambda weights: _correlations(orders[0], orders[1:], weights)


METRICS: Mapping[str, Metric] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "mcc": _mcc,
    "pearson": _pearson,
    "spearman": _spearman,
}
"""Metrics by the name that a task has for them."""


def _correlation(both: Floats, spread_x: Floats, spread_y: Floats) -> Floats:
    """The correlation from sums of products of centred values."""
    return _ratio(both, np.sqrt(np.maximum(spread_x, 0)) * np.sqrt(np.maximum(spread_y, 0)))


def _dot(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", x, y))


def _centred(values: Floats) -> Floats:
    found: Floats = values - values.mean()
    return found


def _ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, 0 where the denominator is 0."""
    small = below <= TINY
    return np.where(small, 0.0, above / np.where(small, 1.0, below))


TINY = 1e-12
"""The bound below which spreads and counts are rounding errors."""
