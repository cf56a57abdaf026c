"""The metrics of the gate, computed from units and how often each is drawn.

Every metric takes gold (units,), predictions (units,) and weights (resamples, units), and gives (resamples,).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.metrics import METRICS, Floats, Metric

Codes = NDArray[np.intp]


def _mean(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """The mean of what each unit scored; there is no gold.

    >>> _mean(np.zeros(0), np.array([0.0, 1.0]), np.array([[1.0, 1.0], [2.0, 0.0]])).tolist()
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
    found = np.take(weights, order, axis=1).astype(np.int32)
    positive = np.flatnonzero(gold[order] == 1)
    if not len(positive):
        return np.zeros(len(weights), dtype=weights.dtype)
    right = np.cumsum(found[:, positive], axis=1, dtype=np.int32)
    seen = np.cumsum(found, axis=1, dtype=np.int32)
    # For tied units the counts of the last unit apply to all of them.
    end = ends[np.searchsorted(ends, positive)]
    upto = np.searchsorted(positive, end, side="right") - 1
    precision = right[:, upto] / np.maximum(seen[:, end], 1)
    total = right[:, -1]
    return np.asarray(_weighted_dot(found[:, positive], precision) / np.maximum(total, 1))


def _macro_f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """F1 of each class, averaged over the classes that are in gold or predicted of the resample.

    >>> _macro_f1(np.array([0.0, 1, 2]), np.array([0.0, 1, 1]), np.ones((1, 3))).round(4).tolist()
    [0.5556]
    """
    found, there = _f1_of_classes(gold, predicted, weights)
    return np.asarray((found * (there > 0)).sum(axis=1) / np.maximum((there > 0).sum(axis=1), 1))


def _weighted_f1(gold: Floats, predicted: Floats, weights: Floats) -> Floats:
    """F1 of each class, averaged over the units by their gold class.

    >>> _weighted_f1(np.array([0.0, 1, 2]), np.array([0.0, 1, 1]), np.ones((1, 3))).round(4).tolist()
    [0.5556]
    """
    classes = np.unique(np.concatenate([gold, predicted]), return_inverse=True)[1]
    of_gold = classes[: len(gold)]
    found, _ = _f1_of_classes(gold, predicted, weights)
    return np.asarray((weights * found[:, of_gold]).sum(axis=1) / weights.sum(axis=1))


MEASURES: Mapping[str, Metric] = {
    **METRICS,
    "mean": _mean,
    "average_precision": _average_precision,
    "macro_f1": _macro_f1,
    "weighted_f1": _weighted_f1,
}
"""The gate's metrics by name; `_units_by_type` in record_units.py says which type of task has which."""


def v_measure(gold: Codes, predicted: Codes) -> float:
    """Harmonic mean of homogeneity and completeness of a clustering, as scikit-learn's.

    >>> v_measure(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    classes, clusters = (np.unique(one, return_inverse=True)[1] for one in (gold, predicted))
    joint = np.bincount(classes * (clusters.max() + 1) + clusters)
    of_gold, of_predicted = _entropy(np.bincount(classes)), _entropy(np.bincount(clusters))
    shared = of_gold + of_predicted - _entropy(joint)
    total = of_gold + of_predicted
    return float(np.clip(2 * shared / total, 0, 1)) if total > 0 else 1.0


def without_each(gold: Codes, predicted: Codes, texts: Codes) -> Floats:
    """What the V-measure loses without each text, all its places at once, by the order of the texts.

    >>> without_each(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), np.array([3, 5, 7, 9])).round(3).tolist()
    [0.07, 0.07, 0.344, -0.656]
    """
    classes, clusters = (np.unique(one, return_inverse=True)[1] for one in (gold, predicted))
    cells = classes * (int(clusters.max()) + 1) + clusters
    _, first, copies = np.unique(texts, return_index=True, return_counts=True)
    rest = len(texts) - copies

    def entropies(groups: Codes) -> Floats:
        """Of the groups' sizes without each text, from the sum of n log n, of which one term changes."""
        sizes = np.bincount(groups)
        own = sizes[groups[first]]
        sums = _n_log_n(sizes).sum() - _n_log_n(own) + _n_log_n(own - copies)
        return np.asarray(np.log(np.maximum(rest, 1)) - sums / np.maximum(rest, 1))

    total = entropies(classes) + entropies(clusters)
    shared = np.clip(2 * (total - entropies(cells)) / np.where(total > 0, total, 1), 0, 1)
    return np.asarray(v_measure(gold, predicted) - np.where(total > 0, shared, 1.0))


def _n_log_n(counts: NDArray[np.int_]) -> Floats:
    return np.asarray(counts * np.log(np.maximum(counts, 1)))


def _weighted_dot(x: NDArray[np.int32], y: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", x, y))


def _entropy(counts: Codes) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _f1_of_classes(gold: Floats, predicted: Floats, weights: Floats) -> tuple[Floats, Floats]:
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
    there = weights @ of_gold + weights @ of_predicted
    return 2 * (weights @ of_both) / np.where(there == 0, 1, there), there
