from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.metrics

from harness.results.bootstrap import Interval, Predictions


def drawn(rng: np.random.Generator, *, examples: int, seeds: int, seed_noise: float) -> Predictions:
    """Right and wrong answers with an expected accuracy of 0.8.

    An example is easy or hard for every seed, and a seed is better or worse at all of them.
    """
    easy = rng.random(examples) < 0.75
    chance = np.where(easy, 0.95, 0.35) + rng.normal(0, seed_noise, size=(seeds, 1))
    right = rng.random((seeds, examples)) < chance
    return Predictions(gold=np.ones(examples), predicted=right.astype(float))


def example_noise(examples: int, seeds: int) -> float:
    """Standard deviation of the mean accuracy from the draw of examples and answers alone."""
    between = 0.75 * 0.25 * 0.6**2
    within = 0.75 * 0.95 * 0.05 + 0.25 * 0.35 * 0.65
    return float(np.sqrt((between + within / seeds) / examples))


def coverage(*, seed_noise: float, trials: int, examples: int = 300, seeds: int = 5) -> float:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(trials):
        one = [drawn(rng, examples=examples, seeds=seeds, seed_noise=seed_noise)]
        drawn_scores = Predictions.draw_replicates(one, ["accuracy"], rng=rng)["all"]
        found = Interval.from_replicates(
            float(Predictions.compute_seed_scores(one, ["accuracy"]).mean()), drawn_scores
        )
        held += found.low <= 0.8 <= found.high
    return held / trials


@pytest.mark.slow
def test_the_interval_covers_the_truth() -> None:
    """500 draws; the mean over five seeds has at most a third of the examples' noise from the seeds."""
    noise = example_noise(300, 5) / 3 * np.sqrt(5)
    assert 0.93 <= coverage(seed_noise=noise, trials=500) <= 0.97


@pytest.mark.slow
def test_few_seeds_that_differ_much_are_covered_less(capsys: pytest.CaptureFixture[str]) -> None:
    """Five numbers say little of where the next would fall: a bootstrap knows too few of them."""
    found = coverage(seed_noise=0.06, trials=200)
    with capsys.disabled():
        print(f"\ncoverage of a 95 % interval where seeds dominate: {100 * found:.1f} %")
    assert 0.7 < found < 0.95


def test_answers_that_seeds_give_at_random_make_it_wide() -> None:
    """Their noise is drawn twice, with the seeds and with the examples."""
    rng = np.random.default_rng(0)
    one = [
        Predictions(gold=np.ones(500), predicted=(rng.random((5, 500)) < 0.8).astype(float))
        for _ in range(20)
    ]
    found = np.mean([Predictions.draw_replicates([each], ["accuracy"], rng=rng)["all"].std() for each in one])
    assert found > 1.4 * np.sqrt(0.8 * 0.2 / 500 / 5)


def test_examples_are_drawn_once_for_all_seeds() -> None:
    """Seeds that agree leave the noise of the examples whole; drawing for each would divide it by five."""
    rng = np.random.default_rng(0)
    right = (rng.random(400) < 0.8).astype(float)
    agreed = Predictions(gold=np.ones(400), predicted=np.tile(right, (5, 1)))
    spread = Predictions.draw_replicates([agreed], ["accuracy"], rng=rng, draws=4000)["all"].std()
    assert spread == pytest.approx(right.std() / 20, rel=0.05)


def test_one_seed_a_replicate_is_wider() -> None:
    rng = np.random.default_rng(0)
    one = [drawn(rng, examples=2000, seeds=5, seed_noise=0.05)]
    spreads = [found.std() for found in Predictions.draw_replicates(one, ["accuracy"], rng=rng).values()]
    assert spreads[1] > 1.8 * spreads[0]


def test_a_score_is_the_mean_over_metrics_and_sets() -> None:
    rng = np.random.default_rng(1)
    sets = [
        Predictions(
            gold=rng.integers(0, 2, size).astype(float),
            predicted=rng.integers(0, 2, (3, size)).astype(float),
        )
        for size in (50, 80)
    ]
    by_hand = [
        np.mean(
            [
                metric(s.gold, s.predicted[seed])
                for s in sets
                for metric in (sklearn.metrics.accuracy_score, sklearn.metrics.f1_score)
            ]
        )
        for seed in range(3)
    ]
    assert Predictions.compute_seed_scores(sets, ["accuracy", "f1"]).tolist() == pytest.approx(by_hand)
    found = Predictions.draw_replicates(sets, ["accuracy", "f1"], rng=rng, draws=3000)["all"]
    assert found.mean() == pytest.approx(np.mean(by_hand), abs=0.02)


def test_large_sets_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    one = [drawn(np.random.default_rng(0), examples=100, seeds=3, seed_noise=0.05)]
    whole = Predictions.draw_replicates(one, ["accuracy"], rng=np.random.default_rng(3), draws=50)["all"]
    monkeypatch.setattr("harness.results.bootstrap.AT_ONCE", 700)
    parts = Predictions.draw_replicates(one, ["accuracy"], rng=np.random.default_rng(3), draws=50)["all"]
    assert parts.tolist() == whole.tolist()


def test_the_average_of_independent_tasks_is_surer_than_its_tasks() -> None:
    rng = np.random.default_rng(0)
    tasks = {n: [drawn(rng, examples=300, seeds=5, seed_noise=0.005)] for n in "abcdefgh"}
    points = {
        n: float(Predictions.compute_seed_scores(sets, ["accuracy"]).mean()) for n, sets in tasks.items()
    }
    found = {n: Predictions.draw_replicates(sets, ["accuracy"], rng=rng)["all"] for n, sets in tasks.items()}
    right = Interval.estimate_average(points, found)
    printed = Interval.mean_of_bounds([Interval.from_replicates(points[n], found[n]) for n in tasks])
    assert right.point == pytest.approx(printed.point) == pytest.approx(np.mean([*points.values()]))
    assert (printed.high - printed.low) / (right.high - right.low) == pytest.approx(np.sqrt(8), rel=0.15)


@pytest.mark.shared
def test_the_printed_interval_of_an_average_is_the_mean_of_bounds(shared: Path) -> None:
    """Every row of OptiBERT's table 3 that has intervals."""
    rows: dict[str, dict[str, Any]] = defaultdict(dict)
    with (shared.parent / "reported" / "optibert.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["suite"] == "GLUE dev" and row["table"] == "3" and row["ci_low"]:
                found = Interval(
                    point=float(row["value"]), low=float(row["ci_low"]), high=float(row["ci_high"])
                )
                rows[f"{row['model']} {row['recipe_or_setting']}"][row["task_or_metric"]] = found
    assert len(rows) >= 3
    for tasks in rows.values():
        printed = tasks.pop("Avg.")
        assert len(tasks) == 8
        ours = Interval.mean_of_bounds([*tasks.values()])
        assert (ours.low, ours.high) == pytest.approx((printed.low, printed.high), abs=0.06)
        assert ours.point == pytest.approx(printed.point, abs=0.06)
