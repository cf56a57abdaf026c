"""Metrics of weighted units: one call scores many resamples of one set of predictions.

`weights` has a row for each resample: the number of times each unit is in it. A row of ones is the set
itself. Every function maps gold (units,), predicted (units,) and weights (resamples, units) to (resamples,),
as shares of 1 and never NaN: a metric that the predictions leave undefined is 0, as in scikit-learn. Those of
retrieval, such as nDCG, are mteb's own; `suites/_mteb/query_metrics.py` has those of single queries.
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


def _compute_accuracy(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Share of the examples predicted as they are.

    >>> gold, predicted = np.array([0.0, 1, 1]), np.array([0.0, 1, 0])
    >>> _compute_accuracy(gold, predicted, np.array([[1.0, 1, 1], [0, 0, 3]])).tolist()
    [0.6666666666666666, 0.0]
    """
    return _compute_safe_ratio(weights @ (gold == predicted), weights.sum(axis=1))


def _compute_f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Harmonic mean of precision and recall of class 1.

    >>> _compute_f1(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 1, 0]), np.ones((1, 4))).tolist()
    [0.5]
    """
    # 2 TP / (2 TP + FP + FN), whose denominator is the number of ones on both sides.
    both = weights @ ((gold == 1) & (predicted == 1))
    return _compute_safe_ratio(2 * both, weights @ (gold == 1) + weights @ (predicted == 1))


def _compute_mcc(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Matthews' correlation coefficient of two classes, 0 where only one is predicted.

    >>> _compute_mcc(np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0]), np.ones((1, 4))).round(4).tolist()
    [0.5774]
    """
    # Matthews' coefficient is Pearson's correlation of the two indicators.
    return _compute_pearson((gold == 1).astype(float), (predicted == 1).astype(float), weights)


def _compute_pearson(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation, 0 where one side is constant.

    >>> _compute_pearson(np.array([1.0, 2, 3]), np.array([2.0, 4, 6]), np.ones((1, 3))).round(6).tolist()
    [1.0]
    """
    # Moments of centred values keep the digits that sums of raw squares lose.
    x, y = gold - gold.mean(), predicted - predicted.mean()
    moments = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=1).astype(weights.dtype)
    sums: Floats = weights @ moments
    total, of_x, of_y, both, spread_x, spread_y = sums.T
    return _compute_correlation(
        both - of_x * of_y / total, spread_x - of_x**2 / total, spread_y - of_y**2 / total
    )


def _compute_spearman(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Pearson's correlation of the ranks, ties sharing their mean rank.

    >>> _compute_spearman(np.array([1.0, 2, 3]), np.array([1.0, 10, 5]), np.ones((1, 3))).round(6).tolist()
    [0.5]
    """
    correlation: Floats = _compute_rank_correlations(
        _Ranks.rank_values(gold), [_Ranks.rank_values(predicted)], weights
    )[0]
    return correlation


@dataclass(frozen=True, kw_only=True)
class _Ranks:
    """The rising order of values and their groups of ties, from which ranks in any resample follow."""

    order: Places
    starts: Places
    group: Places

    @classmethod
    def rank_values(cls, values: Floats) -> _Ranks:
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        group = np.empty(len(values), dtype=np.intp)
        group[order] = np.repeat(np.arange(len(starts)), np.diff([*starts, len(values)]))
        return cls(order=order, starts=starts, group=group)

    def rank_resamples(self, weights: Floats) -> Floats:
        """Twice the mean ranks in each resample, about their mean, (resamples, examples)."""
        # Twice a mean rank is a whole number, and int32 holds it for up to a billion units.
        counts = np.take(weights, self.order, axis=1).astype(np.int32)
        if len(self.starts) < len(self.order):
            counts = np.add.reduceat(counts, self.starts, axis=1)
        ranks = np.cumsum(counts, axis=1, dtype=np.int32)  # ten times as fast as with floats
        total = ranks[:, -1:].copy()
        ranks *= 2
        ranks -= counts
        ranks -= total
        return np.take(ranks.astype(weights.dtype), self.group, axis=1)


def _compute_rank_correlations(gold: _Ranks, predicted: Sequence[_Ranks], weights: Floats) -> Floats:
    """Spearman's correlation of several predictions with the same gold, (predictions, resamples)."""
    x = gold.rank_resamples(weights)
    by_x = weights * x
    spread_x, correlations = _sum_row_products(by_x, x), []
    for ranks in predicted:
        y = ranks.rank_resamples(weights)
        correlations.append(
            _compute_correlation(_sum_row_products(by_x, y), spread_x, _sum_row_products(weights * y, y))
        )
    return np.stack(correlations)


def prepare_spearman(gold: Floats, predicted: Sequence[Floats]) -> Callable[[Floats], Floats]:
    """Spearman's correlation of several predictions with the same gold, prepared for many calls.

    Returns:
        A function from weights (resamples, units) to (predictions, resamples).
    """
    orders = [_Ranks.rank_values(values) for values in (gold, *predicted)]
    return lambda weights: _compute_rank_correlations(orders[0], orders[1:], weights)


METRICS: Mapping[str, Metric] = {
    "accuracy": _compute_accuracy,
    "f1": _compute_f1,
    "mcc": _compute_mcc,
    "pearson": _compute_pearson,
    "spearman": _compute_spearman,
}
"""Metrics by the name that a task has for them."""


def _compute_correlation(both: Floats, spread_x: Floats, spread_y: Floats) -> Floats:
    """The correlation from sums of products of centred values."""
    return _compute_safe_ratio(both, np.sqrt(np.maximum(spread_x, 0)) * np.sqrt(np.maximum(spread_y, 0)))


def _sum_row_products(x: NDArray[Any], y: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", x, y))


def _compute_safe_ratio(above: Floats, below: Floats) -> Floats:
    """The quotient, 0 where the denominator is 0."""
    small = below <= TINY
    return np.where(small, 0.0, above / np.where(small, 1.0, below))


TINY = 1e-12
"""The bound below which spreads and counts are rounding errors."""


def _compute_weighted_mean(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """The mean of what each unit scored; `gold` is not used.

    >>> _compute_weighted_mean(np.zeros(0), np.array([0.0, 1.0]), np.array([[1.0, 1.0], [2.0, 0.0]])).tolist()
    [0.5, 0.0]
    """
    return np.asarray((weights @ predicted.astype(weights.dtype)) / weights.sum(axis=1))


def _average_precision(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """Precision where a positive is found, averaged over the positives; ties are found together.

    As scikit-learn's `average_precision_score`; 0 where there is no positive.

    >>> gold, scores = np.array([1.0, 0, 1]), np.array([0.9, 0.8, 0.1])
    >>> _average_precision(gold, scores, np.ones((1, 3))).round(4).tolist()
    [0.8333]
    """
    order = np.argsort(-predicted, kind="stable")
    ordered = predicted[order]
    ends = np.flatnonzero(np.concatenate([ordered[1:] != ordered[:-1], [True]]))
    ordered_weights = np.take(weights, order, axis=1).astype(np.int32)
    positive = np.flatnonzero(gold[order] == 1)
    if not len(positive):
        return np.zeros(len(weights), dtype=weights.dtype)
    right = np.cumsum(ordered_weights[:, positive], axis=1, dtype=np.int32)
    seen = np.cumsum(ordered_weights, axis=1, dtype=np.int32)
    # For tied units the counts of the last unit apply to all of them.
    end = ends[np.searchsorted(ends, positive)]
    upto = np.searchsorted(positive, end, side="right") - 1
    precision = right[:, upto] / np.maximum(seen[:, end], 1)
    total = right[:, -1]
    return _sum_row_products(ordered_weights[:, positive], precision) / np.maximum(total, 1)


def _compute_macro_f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """F1 of each class, averaged over the classes that are in gold or predicted of the resample.

    >>> _compute_macro_f1(np.array([0.0, 1, 2]), np.array([0.0, 1, 1]), np.ones((1, 3))).round(4).tolist()
    [0.5556]
    """
    class_f1, class_counts = _compute_class_f1(gold, predicted, weights)
    return np.asarray(
        (class_f1 * (class_counts > 0)).sum(axis=1) / np.maximum((class_counts > 0).sum(axis=1), 1)
    )


def _compute_weighted_f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """F1 of each class, averaged over the units by their gold class.

    >>> _compute_weighted_f1(np.array([0.0, 1, 2]), np.array([0.0, 1, 1]), np.ones((1, 3))).round(4).tolist()
    [0.5556]
    """
    classes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)[1]
    of_gold = classes[: len(gold)]
    class_f1, _ = _compute_class_f1(gold, predicted, weights)
    return np.asarray((weights * class_f1[:, of_gold]).sum(axis=1) / weights.sum(axis=1))


MEASURES: Mapping[str, Metric] = {
    **METRICS,
    "mean": _compute_weighted_mean,
    "average_precision": _average_precision,
    "macro_f1": _compute_macro_f1,
    "weighted_f1": _compute_weighted_f1,
}
"""The metrics of single units that a check compares, by name."""


def compute_v_measure(gold: Places, predicted: Places) -> float:
    """Harmonic mean of homogeneity and completeness of a clustering, as scikit-learn's.

    A check computes it without scikit-learn, whose import takes a second.

    >>> compute_v_measure(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    classes, clusters = (np.unique(one, return_inverse=True)[1] for one in (gold, predicted))
    joint = np.bincount(classes * (clusters.max() + 1) + clusters)
    of_gold, of_predicted = _compute_entropy(np.bincount(classes)), _compute_entropy(np.bincount(clusters))
    # V = 2 · mutual information / (entropy of classes + of clusters) (Rosenberg and Hirschberg, 2007).
    shared = of_gold + of_predicted - _compute_entropy(joint)
    total = of_gold + of_predicted
    return float(np.clip(2 * shared / total, 0, 1)) if total > 0 else 1.0


def compute_v_measure_losses(gold: Places, predicted: Places, texts: Places) -> Floats:
    """What the V-measure loses without each text, in the order of the texts' numbers.

    Args:
        gold: The class of each place, (places,).
        predicted: The cluster of each place, (places,).
        texts: The text at each place, (places,); a text is left out with all of its places.

    >>> gold, predicted, texts = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), np.array([3, 5, 7, 9])
    >>> compute_v_measure_losses(gold, predicted, texts).round(3).tolist()
    [0.07, 0.07, 0.344, -0.656]
    """
    classes, clusters = (np.unique(one, return_inverse=True)[1] for one in (gold, predicted))
    cells = classes * (int(clusters.max()) + 1) + clusters
    _, first, copies = np.unique(texts, return_index=True, return_counts=True)
    rest = len(texts) - copies

    def compute_entropies(groups: Places) -> Floats:
        """Of the groups' sizes without each text, from the sum of n log n, of which one term changes."""
        sizes = np.bincount(groups)
        text_group_sizes = sizes[groups[first]]
        sums = (
            _compute_n_log_n(sizes).sum()
            - _compute_n_log_n(text_group_sizes)
            + _compute_n_log_n(text_group_sizes - copies)
        )
        return np.asarray(np.log(np.maximum(rest, 1)) - sums / np.maximum(rest, 1))

    total = compute_entropies(classes) + compute_entropies(clusters)
    shared = np.clip(2 * (total - compute_entropies(cells)) / np.where(total > 0, total, 1), 0, 1)
    return np.asarray(compute_v_measure(gold, predicted) - np.where(total > 0, shared, 1.0))


def _compute_n_log_n(counts: NDArray[np.int_]) -> Floats:
    # 0 log 0 is 0.
    return np.asarray(counts * np.log(np.maximum(counts, 1)))


def _compute_entropy(counts: Places) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _compute_class_f1(gold: Floats, predicted: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """F1 of every class, and its number of units in gold and predicted, (resamples, classes)."""
    from scipy.sparse import csr_array

    count = len(gold)
    classes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)[1]
    width, rows = int(classes.max()) + 1, np.arange(count)
    ones = np.ones(count, dtype=weights.dtype)
    of_gold, of_predicted = (
        csr_array((ones, (rows, part)), shape=(count, width)) for part in (classes[:count], classes[count:])
    )
    of_both = csr_array(
        ((gold == predicted).astype(weights.dtype), (rows, classes[:count])), shape=(count, width)
    )
    class_counts = weights @ of_gold + weights @ of_predicted
    return 2 * (weights @ of_both) / np.where(class_counts == 0, 1, class_counts), class_counts
