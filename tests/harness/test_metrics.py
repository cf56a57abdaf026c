"""Weighted metrics against scikit-learn and SciPy on the examples repeated as often as they weigh."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from harness.metrics import METRICS

THEIRS: dict[str, Any] = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": lambda gold, predicted: sklearn.metrics.f1_score(gold, predicted, zero_division=0),
    "mcc": sklearn.metrics.matthews_corrcoef,
    "pearson": lambda gold, predicted: scipy.stats.pearsonr(gold, predicted)[0],
    "spearman": lambda gold, predicted: scipy.stats.spearmanr(gold, predicted)[0],
}


def test_all_are_tested() -> None:
    assert THEIRS.keys() == METRICS.keys()


@pytest.mark.parametrize("name", METRICS)
def test_they_are_those_of_the_libraries(name: str) -> None:
    rng = np.random.default_rng(0)
    numbers = name in ("pearson", "spearman")
    gold = rng.integers(0, 6 if numbers else 2, 60).astype(float)
    predicted = gold + rng.normal(size=60) if numbers else np.where(rng.random(60) < 0.7, gold, 1 - gold)
    predicted = predicted.round(1)
    weights = rng.multinomial(60, np.full(60, 1 / 60), size=20).astype(float)
    found = METRICS[name](gold, predicted, np.vstack([np.ones((1, 60)), weights]))
    for weighed, value in zip([np.ones(60), *weights], found, strict=True):
        times = weighed.astype(int)
        assert value == pytest.approx(THEIRS[name](gold.repeat(times), predicted.repeat(times)), abs=1e-12)


@pytest.mark.parametrize("name", ["f1", "mcc", "pearson", "spearman"])
def test_what_is_undefined_is_zero(name: str) -> None:
    gold = np.array([0.0, 1.0, 1.0, 0.0])
    constant = np.zeros(4)
    assert METRICS[name](gold, constant, np.ones((1, 4))).tolist() == [0.0]
    only_the_first = np.array([[4.0, 0.0, 0.0, 0.0]])
    assert METRICS[name](gold, 1 - gold, only_the_first).tolist() == [0.0]
    assert METRICS[name](gold * 1e6 + 1e9, constant + 0.1, np.ones((1, 4))).tolist() == [0.0]


def test_more_than_two_classes_have_an_accuracy() -> None:
    gold, predicted = np.array([0.0, 1, 2, 2]), np.array([0.0, 2, 2, 1])
    assert METRICS["accuracy"](gold, predicted, np.ones((1, 4))).tolist() == [0.5]
