"""Resamples: their moments are those of drawing with replacement, or of its limit."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import poisson

from harness.stats import DRAWS_AT_ONCE, FEW, blocks


def drawn(units: int, count: int, seed: int = 0) -> np.ndarray:
    return np.concatenate(list(blocks(units, count, np.random.default_rng(seed)))).astype(np.float64)


@pytest.mark.parametrize("units", [1, 2, 7, FEW - 1, FEW, 1000, 200_000])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_there_are_as_many_as_asked_for_in_blocks_that_are_not_too_large(units: int, count: int) -> None:
    found = list(blocks(units, count, np.random.default_rng(0)))
    assert sum(len(block) for block in found) == count
    assert all(block.shape[1] == units and block.dtype == np.float32 for block in found)
    assert all(len(block) == 1 or block.size <= DRAWS_AT_ONCE for block in found)
    assert all((block >= 0).all() and (block == block.round()).all() for block in found)


@pytest.mark.parametrize("units", [2, 5, FEW - 1])
def test_of_few_as_many_are_drawn_as_there_are(units: int) -> None:
    assert set(drawn(units, 500).sum(axis=1)) == {units}


def test_three_units_are_drawn_with_the_probabilities_of_the_multinomial() -> None:
    count = 60_000
    seen = Counter(map(tuple, drawn(3, count).astype(int).tolist()))
    exact = Counter(tuple(np.bincount(one, minlength=3).tolist()) for one in product(range(3), repeat=3))
    assert seen.keys() == exact.keys()
    for one, times in exact.items():
        chance = times / 27
        assert abs(seen[one] / count - chance) < 5 * np.sqrt(chance / count)


@pytest.mark.parametrize("units", [FEW, 1000])
def test_of_many_each_is_drawn_once_on_average_with_variance_one(units: int) -> None:
    found = drawn(units, 8000)
    size = found.size
    assert found.mean() == pytest.approx(1, abs=5 / np.sqrt(size))
    assert found.var() == pytest.approx(1, abs=5 * np.sqrt(3 / size))
    for count in range(6):
        chance = poisson.pmf(count, 1)
        assert (found == count).mean() == pytest.approx(chance, abs=5 * np.sqrt(chance / size) + 1e-5)


@pytest.mark.parametrize(("units", "expected"), [(50, -1 / 49), (FEW, 0.0)])
def test_units_are_independent_but_for_their_sum(units: int, expected: float) -> None:
    count = 20_000
    related = np.corrcoef(drawn(units, count).T)
    apart = related[~np.eye(units, dtype=bool)]
    assert apart.mean() == pytest.approx(expected, abs=5 / np.sqrt(count * units * (units - 1) / 2))
    assert np.abs(apart - expected).max() < 6 / np.sqrt(count)


def test_rows_are_independent() -> None:
    found = drawn(FEW, 20_000)
    first, second = found[:-1].ravel(), found[1:].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(first.size)


def test_chance_comes_from_the_generator_alone() -> None:
    for units in (20, 500):
        assert (drawn(units, 100, seed=3) == drawn(units, 100, seed=3)).all()
        assert (drawn(units, 100, seed=3) != drawn(units, 100, seed=4)).any()
