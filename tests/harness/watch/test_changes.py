from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from harness.watch.changes import HINDSIGHT, _arrivals, _forecast, changes

EVEN = [1000 * step for step in range(1, 31)]
DOUBLED = [round(64 * 1.35**power) for power in range(30)]


def smooth(steps: list[int], shape: str) -> np.ndarray:
    x = np.log1p(np.asarray(steps, float))
    if shape == "flat":
        return np.full(len(steps), 0.5)
    return 0.3 + 0.02 * x if shape == "rising" else 0.3 + 0.3 / (1 + np.exp(-1.5 * (x - np.log(8000))))


def test_the_forecast_is_the_prediction_interval_of_a_straight_line() -> None:
    """Against the mean of a future observation as scipy's regression gives its parts."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=8)
    y = 2 * x + rng.normal(size=8)
    fit = stats.linregress(x, y)
    residual = np.sqrt(((y - fit.intercept - fit.slope * x) ** 2).sum() / 6)
    error = np.sqrt(residual**2 + fit.intercept_stderr**2)
    expected, found, degrees = _forecast(x, y, 0.0)
    assert expected == pytest.approx(fit.intercept)
    assert found == pytest.approx(error)
    assert degrees == 6


@pytest.mark.parametrize("steps", [EVEN, DOUBLED], ids=["even", "doubled"])
@pytest.mark.parametrize("shape", ["flat", "rising", "learning"])
def test_smooth_curves_are_flagged_as_often_as_said(steps: list[int], shape: str) -> None:
    rng = np.random.default_rng(1)
    curves, drops, shifts = 150, 0, 0
    for seed in range(curves):
        found = changes(steps, smooth(steps, shape) + rng.normal(0, 0.005, len(steps)), seed=seed)
        drops += sum(one.kind == "drop" for one in found)
        shifts += any(one.kind == "shift" for one in found)
    assert drops / (curves * (len(steps) - 5)) <= 0.015
    assert shifts / curves <= HINDSIGHT + 3 * np.sqrt(HINDSIGHT * (1 - HINDSIGHT) / curves)


@pytest.mark.parametrize("count", [10, 30])
def test_one_sound_checkpoint_in_a_hundred_is_flagged_on_arrival(count: int) -> None:
    rng = np.random.default_rng(1)
    x, curves = np.log1p(EVEN[:count]), 20_000 // count
    drops = sum(len(_arrivals(x, rng.normal(0.5, 0.005, count))[0]) for _ in range(curves))
    assert 0.007 <= drops / (curves * (count - 5)) <= 0.012


def test_a_single_broken_checkpoint_is_found_at_its_step() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for seed in range(50):
        values = smooth(EVEN, "learning") + rng.normal(0, 0.005, len(EVEN))
        values[18] -= 0.05
        at = [one for one in changes(EVEN, values, seed=seed) if one.step == one.last == EVEN[18]]
        found += any(one.kind == "drop" and 0.025 < one.size < 0.075 for one in at)
    assert found >= 47


def test_a_level_that_drops_for_good_is_found_at_its_step() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for seed in range(50):
        values = smooth(EVEN, "learning") + rng.normal(0, 0.005, len(EVEN))
        values[18:] -= 0.03
        found += any(one.step == EVEN[18] for one in changes(EVEN, values, seed=seed))
    assert found >= 45


def test_after_three_low_ones_the_low_level_is_the_new_one() -> None:
    rng = np.random.default_rng(4)
    values = smooth(EVEN, "flat") + rng.normal(0, 0.002, len(EVEN))
    values[15:] -= 0.1
    drops = [one for one in changes(EVEN, values) if one.kind == "drop"]
    assert [(one.step, one.last) for one in drops] == [(EVEN[15], EVEN[17])]


def test_a_rise_is_no_change_point() -> None:
    rng = np.random.default_rng(5)
    values = smooth(EVEN, "flat") + rng.normal(0, 0.002, len(EVEN))
    values[15:] += 0.1
    assert not any(one.step in EVEN[14:18] for one in changes(EVEN, values))


@pytest.mark.parametrize("count", range(8))
def test_few_checkpoints_and_equal_scores_flag_nothing(count: int) -> None:
    assert changes(EVEN[:count], [0.5] * count) == ()


def test_less_than_a_twentieth_of_a_point_is_no_noise_and_no_drop() -> None:
    assert changes(EVEN[:10], [0.5] * 9 + [0.4995]) == ()
    assert [one.step for one in changes(EVEN[:10], [0.5] * 9 + [0.49])] == [EVEN[9]]
