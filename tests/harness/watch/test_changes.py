from __future__ import annotations

import numpy as np
import pytest
import watch_alarms
from scipy import stats

from harness.results.score_differences import Difference, MeanDifference
from harness.watch.changes import ALARMS, HINDSIGHT, compute_look_level, detect_drops, look_at
from harness.watch.state import Look, Watch, WatchEntry

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
    steps = EVEN[:9]
    x = np.log1p(steps) - np.log1p(steps[8])
    y = 2 * x + rng.normal(size=9)
    y[8] -= 9
    fit = stats.linregress(x[:8], y[:8])
    residual = np.sqrt(((y - fit.intercept - fit.slope * x)[:8] ** 2).sum() / 6)
    error = np.sqrt(residual**2 + fit.intercept_stderr**2)
    (found,) = detect_drops(steps, y)
    assert (found.step, found.kind) == (steps[8], "drop")
    assert found.size == pytest.approx(fit.intercept - y[8])
    assert found.p == pytest.approx(stats.t.cdf(-found.size / error, 6))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [EVEN, DOUBLED], ids=["even", "doubled"])
@pytest.mark.parametrize("shape", ["flat", "rising", "learning"])
def test_smooth_curves_are_flagged_as_often_as_said(steps: list[int], shape: str) -> None:
    rng = np.random.default_rng(1)
    curves, drops, shifts = 150, 0, 0
    for seed in range(curves):
        found = detect_drops(steps, smooth(steps, shape) + rng.normal(0, 0.005, len(steps)), seed=seed)
        drops += sum(one.kind == "drop" for one in found)
        shifts += any(one.kind == "shift" for one in found)
    assert drops / (curves * (len(steps) - 5)) <= 0.015
    assert shifts / curves <= HINDSIGHT + 3 * np.sqrt(HINDSIGHT * (1 - HINDSIGHT) / curves)


@pytest.mark.slow
@pytest.mark.parametrize("count", [10, 30])
def test_one_sound_checkpoint_in_a_hundred_is_flagged_on_arrival(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.watch.changes.DRAWS", 1)  # nothing is found with hindsight
    rng = np.random.default_rng(1)
    curves = 20_000 // count
    drops = sum(len(detect_drops(EVEN[:count], rng.normal(0.5, 0.005, count))) for _ in range(curves))
    assert 0.007 <= drops / (curves * (count - 5)) <= 0.012


def test_a_single_broken_checkpoint_is_found_at_its_step() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for seed in range(50):
        values = smooth(EVEN, "learning") + rng.normal(0, 0.005, len(EVEN))
        values[18] -= 0.05
        at = [one for one in detect_drops(EVEN, values, seed=seed) if one.step == one.last == EVEN[18]]
        found += any(one.kind == "drop" and 0.025 < one.size < 0.075 for one in at)
    assert found >= 47


def test_a_level_that_drops_for_good_is_found_at_its_step() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for seed in range(50):
        values = smooth(EVEN, "learning") + rng.normal(0, 0.005, len(EVEN))
        values[18:] -= 0.03
        found += any(one.step == EVEN[18] for one in detect_drops(EVEN, values, seed=seed))
    assert found >= 45


def test_after_three_low_ones_the_low_level_is_the_new_one() -> None:
    rng = np.random.default_rng(4)
    values = smooth(EVEN, "flat") + rng.normal(0, 0.002, len(EVEN))
    values[15:] -= 0.1
    drops = [one for one in detect_drops(EVEN, values) if one.kind == "drop"]
    assert [(one.step, one.last) for one in drops] == [(EVEN[15], EVEN[17])]


def test_a_rise_is_no_change_point() -> None:
    rng = np.random.default_rng(5)
    values = smooth(EVEN, "flat") + rng.normal(0, 0.002, len(EVEN))
    values[15:] += 0.1
    assert not any(one.step in EVEN[14:18] for one in detect_drops(EVEN, values))


@pytest.mark.parametrize("count", range(8))
def test_few_checkpoints_and_equal_scores_flag_nothing(count: int) -> None:
    assert detect_drops(EVEN[:count], [0.5] * count) == ()


def test_less_than_a_twentieth_of_a_point_is_no_noise_and_no_drop() -> None:
    assert detect_drops(EVEN[:10], [0.5] * 9 + [0.4995]) == ()
    assert [one.step for one in detect_drops(EVEN[:10], [0.5] * 9 + [0.49])] == [EVEN[9]]


# Looks


def mean_of(scores: np.ndarray) -> MeanDifference:
    """The difference of two checkpoints on one task, of scores (2, examples)."""
    suite = watch_alarms.Examples(tasks=1, each=len(scores[0]), changed=1, right=0, wrong=0).suite()
    one, other = (watch_alarms._units("t0", side) for side in scores)
    mean = MeanDifference.aggregate_suite(suite, {"t0": Difference.compare_units(one, other)})
    assert mean is not None
    return mean


def test_a_look_is_students_paired_test_at_its_own_level() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(0.5, 0.1, (2, 400))
    scores[0] -= 0.015
    mean = mean_of(scores)
    expected = stats.ttest_rel(scores[0], scores[1], alternative="less").pvalue
    for number in (1, 2, 3, 30):
        look = look_at(mean, number=number, reference=7)
        assert look.p == pytest.approx(expected, rel=0.1)
        assert look.level == ALARMS / (number * (number + 1))
        assert look.verdict == ("lower" if look.p < look.level else "not lower")
        assert look.low < look.delta < look.high
        assert (look.high < 0) == (look.verdict == "lower")
    assert {look_at(mean, number=n, reference=7).verdict for n in (1, 30)} == {"lower", "not lower"}
    assert sum(map(compute_look_level, range(1, 10_000))) == pytest.approx(ALARMS, rel=1e-3)


def test_equal_outputs_are_no_look() -> None:
    mean = MeanDifference(**{**vars(mean_of(np.full((2, 9), 0.5))), "same": True})
    look = look_at(mean, number=4, reference=7)
    assert (look.number, look.level, look.p, look.verdict) == (0, 0.0, 1.0, "same")


@pytest.mark.parametrize(
    ("verdicts", "references"),
    [
        ("", [None]),
        ("....", [None, 0, 1, 2, 3]),
        ("..L.", [None, 0, 1, 1, 3]),
        ("..LLLL", [None, 0, 1, 1, 1, 4, 4]),
    ],
)
def test_what_is_lower_is_no_reference_until_three_in_a_row(
    verdicts: str, references: list[int | None]
) -> None:
    fields = {"number": 1, "reference": 0, "delta": 0, "low": 0, "high": 0, "p": 0, "level": 0}
    looks = {"L": "lower", ".": "not lower"}
    entries = [
        WatchEntry(
            step=step,
            name=f"step{step}",
            state="done",
            mean=0.5,
            look=Look(**fields, verdict=looks[one], columns=1, wanted=1),  # type: ignore[arg-type]
        )
        for step, one in enumerate(verdicts)
    ]
    watch = Watch(name="w", source="/run", suite="s", request={}, checkpoints=tuple(entries))
    found = [watch.find_reference(step) for step in range(len(verdicts) + 1)]
    assert [None if one is None else one.step for one in found] == references


@pytest.mark.slow
def test_equal_checkpoints_are_called_lower_in_few_watches() -> None:
    """One in twenty watches, however many looks."""
    rng, watches = np.random.default_rng(6), 150
    examples = watch_alarms.Examples(tasks=2, each=100, changed=0.3, right=0.3, wrong=0.3)
    found = sum(
        bool(watch_alarms.looks(examples, examples.checkpoints(25, rng)).lower) for _ in range(watches)
    )
    assert 1 <= found <= watches * ALARMS + 3 * np.sqrt(watches * ALARMS * (1 - ALARMS))


def test_a_checkpoint_that_lost_much_is_called_lower_and_the_next_is_not() -> None:
    rng = np.random.default_rng(7)
    examples = watch_alarms.Examples(tasks=3, each=200, changed=0.15, right=0.3, wrong=0.3)
    found = 0
    for _ in range(20):
        scores = examples.checkpoints(12, rng)
        scores[10] *= 0.8
        found += [one.step for one in watch_alarms.looks(examples, scores).lower] == [10]
    assert found >= 18
