"""Metrics and measures of weighted examples against scikit-learn and SciPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from harness.results.weighted_metrics import MEASURES, METRICS, Floats, compute_v_measure


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


# Every measure of weighted units against scikit-learn or SciPy on the units repeated as they weigh


def quietly(score: Callable[..., Any], **more: Any) -> Callable[..., float]:
    """A score of the libraries, 0 where they find it undefined."""

    def scored(gold: Floats, predicted: Floats) -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = score(gold, predicted, **more)
        value = float(getattr(value, "statistic", value))
        return 0.0 if np.isnan(value) else value

    return scored


THEIR_MEASURES: dict[str, Callable[..., float]] = {
    "accuracy": quietly(sklearn.metrics.accuracy_score),
    "f1": quietly(sklearn.metrics.f1_score, zero_division=0),
    "mcc": quietly(sklearn.metrics.matthews_corrcoef),
    "pearson": quietly(scipy.stats.pearsonr),
    "spearman": quietly(scipy.stats.spearmanr),
    "mean": lambda _, predicted: float(np.mean(predicted)),
    "average_precision": quietly(sklearn.metrics.average_precision_score),
    "macro_f1": quietly(sklearn.metrics.f1_score, average="macro", zero_division=0),
    "weighted_f1": quietly(sklearn.metrics.f1_score, average="weighted", zero_division=0),
}
"""Independent of ours; `gold` and `predicted` have a row for each unit as often as it was drawn."""
CLASSES = {"accuracy": 2, "f1": 2, "mcc": 2, "average_precision": 2, "macro_f1": 5, "weighted_f1": 5}


def made(name: str, rng: np.random.Generator, units: int) -> tuple[Floats, Floats]:
    """Gold and predicted of units, with ties and, of classes, some that only one side has."""
    if name in ("pearson", "spearman", "average_precision"):
        gold = rng.integers(0, CLASSES.get(name, 6), units).astype(float)
        return gold, (gold + rng.normal(size=units)).round(1)
    if name == "mean":
        return np.zeros(0), rng.random(units).round(1)
    gold = rng.integers(0, CLASSES[name], units).astype(float)
    wrong = rng.integers(0, CLASSES[name] + (CLASSES[name] > 2), units)
    return gold, np.where(rng.random(units) < 0.6, gold, wrong)


def expected(name: str, gold: Floats, predicted: Floats, weights: Floats) -> list[float]:
    rows = weights.astype(int)
    return [THEIR_MEASURES[name](gold.repeat(w) if len(gold) else gold, predicted.repeat(w)) for w in rows]


def test_every_measure_is_tested() -> None:
    assert THEIR_MEASURES.keys() == MEASURES.keys()


@pytest.mark.parametrize("units", [2, 3, 7, 60])
@pytest.mark.parametrize("name", MEASURES)
def test_a_weight_is_a_row_repeated(name: str, units: int) -> None:
    rng = np.random.default_rng(units)
    for _ in range(5):
        gold, predicted = made(name, rng, units)
        weights = rng.multinomial(units, np.full(units, 1 / units), size=12).astype(float)
        weights[0] = 1
        found = MEASURES[name](gold, predicted, weights)
        assert found.shape == (12,)
        assert found == pytest.approx(expected(name, gold, predicted, weights), abs=1e-7)


@pytest.mark.parametrize("units", [5, 300, 20_000])
@pytest.mark.parametrize("name", MEASURES)
def test_single_precision_is_close_to_double(name: str, units: int) -> None:
    rng = np.random.default_rng(1)
    gold, predicted = made(name, rng, units)
    weights = rng.poisson(1, size=(6, units)).astype(float)
    weights[:, 0] += 1
    double = MEASURES[name](gold, predicted, weights)
    single = MEASURES[name](gold, predicted, weights.astype(np.float32))
    assert np.abs(double - single).max() < 2e-5
    assert np.isfinite(single).all()


@pytest.mark.parametrize("name", ["f1", "mcc", "average_precision", "pearson", "spearman"])
def test_a_resample_that_leaves_it_undefined_is_zero(name: str) -> None:
    gold, predicted = np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])
    only_one = np.array([[3.0, 0.0, 0.0]])
    for weights in (only_one, only_one.astype(np.float32)):
        assert MEASURES[name](gold, predicted, weights).tolist() == [0.0]


def test_macro_f1_leaves_out_a_class_that_a_resample_lacks() -> None:
    gold, predicted = np.array([0.0, 1, 2, 2]), np.array([0.0, 1, 2, 0])
    assert MEASURES["macro_f1"](gold, predicted, np.array([[2.0, 2, 0, 0]])).tolist() == [1.0]
    assert MEASURES["macro_f1"](gold, predicted, np.array([[0.0, 0, 0, 4]])).tolist() == [0.0]


def test_ties_are_found_together() -> None:
    """Whatever order equal predictions stand in, precision is that after all of them."""
    gold, predicted = np.array([0.0, 1, 0, 1]), np.array([0.5, 0.5, 0.5, 0.5])
    for order in ([0, 1, 2, 3], [3, 1, 2, 0], [2, 0, 3, 1]):
        found = MEASURES["average_precision"](gold[order], predicted[order], np.ones((1, 4)))
        assert found.tolist() == [0.5]


labels = st.lists(st.integers(0, 4), min_size=1, max_size=30)


@given(labels, labels)
def test_v_measure_is_that_of_scikit_learn(one: list[int], other: list[int]) -> None:
    count = min(len(one), len(other))
    gold, predicted = np.array(one[:count]), np.array(other[:count])
    theirs = sklearn.metrics.v_measure_score(gold, predicted)
    assert compute_v_measure(gold, predicted) == pytest.approx(theirs, abs=1e-9)


@given(st.data())
def test_names_of_classes_do_not_matter(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    gold, predicted = made("macro_f1", rng, 40)
    weights = rng.poisson(1, size=(3, 40)) + 1.0
    other = rng.permutation(100)[:6].astype(float)
    for name in ("macro_f1", "weighted_f1"):
        renamed = MEASURES[name](other[gold.astype(int)], other[predicted.astype(int)], weights)
        assert renamed == pytest.approx(MEASURES[name](gold, predicted, weights))
