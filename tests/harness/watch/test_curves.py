"""Curves made by hand, and those of `benchmarks/simulate_curves.py` in a twentieth of its trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import simulate_curves

from harness.core.errors import UsageError
from harness.watch.curves import SeedCurve, compare_runs, compute_log_budget, estimate_difference

BUDGETS = [1.0, 2.0, 4.0, 8.0]


def draw(
    run: str, seed: str, scores: Sequence[float], budgets: Sequence[float] = BUDGETS, diverged: str = ""
) -> SeedCurve:
    x, y = np.array(budgets), np.array(scores)
    return SeedCurve(run=run, seed=seed, budgets=x, scores=y, diverged=diverged)


def pair(lift: float = 0.0, other: str = "b") -> list[SeedCurve]:
    """Two seeds, a thousandth apart."""
    return [
        draw(other, str(n), [0.1 + lift, 0.2 + lift, 0.3 + lift + n / 1000, 0.4 + lift]) for n in range(2)
    ]


def test_intervals_are_those_of_scipy() -> None:
    from scipy import stats

    a, b = np.array([0.1, 0.2, 0.4]), np.array([0.3, 0.5, 0.6, 0.9])
    # Student's is the wider one if the side with fewer seeds has less noise.
    student = stats.ttest_ind(a, b, equal_var=True).confidence_interval()
    got = estimate_difference(a, b)
    assert (got.low, got.high) == pytest.approx(tuple(student))
    wide = estimate_difference(3 * a, b)
    welch, student = (
        stats.ttest_ind(3 * a, b, equal_var=equal).confidence_interval() for equal in (False, True)
    )
    # Welch's degrees of freedom of 1938 are more than those of 1947, which scipy has.
    assert welch.low < (wide.low or 0) < student.low
    own = stats.ttest_1samp(a, 0).confidence_interval()
    alone = estimate_difference(a)
    assert (alone.low, alone.high) == pytest.approx(tuple(own))
    assert estimate_difference(a[:1], b) == replace(got, value=a[0] - b.mean(), low=None, high=None)


def test_a_score_is_reached_on_the_monotone_curve_between_points() -> None:
    assert compute_log_budget(draw("a", "1", [0.1, 0.2, 0.3, 0.4]), 0.25) == pytest.approx(np.log(2) * 1.5)
    # The lucky second point does not reach 0.35: with the third it is 0.3.
    assert compute_log_budget(draw("a", "1", [0.1, 0.4, 0.2, 0.4]), 0.35) == pytest.approx(np.log(2) * 2.5)
    assert compute_log_budget(draw("a", "1", [0.1, 0.2, 0.3, 0.4]), 0.5) == np.inf
    assert compute_log_budget(draw("a", "1", [0.2, 0.3, 0.4], [2, 4, 8]), 0.15) == -np.inf


def test_the_usual_score_to_reach_is_that_of_the_monotone_curves() -> None:
    # Falling curves are flat when they are made monotone, at their means: 20.5 and 20.2.
    falling = [draw("a", "1", [20.83, 20.6, 20.4, 20.17]), draw("a", "2", [20.5, 20.3, 20.1, 19.9])]
    compared = compare_runs(falling)
    assert compared.score == pytest.approx(20.5 - 0.9 * 0.3)
    (reach,) = compared.reaches
    assert (reach.reached, reach.early, reach.seeds) == (1, 1, 2)
    # A lucky second point: 10, 25, 25, 25, of which nine tenths are at 23.5.
    lucky = [draw("a", str(n), [10 + n, 35 + n, 20 + n, 20 + n]) for n in range(2)]
    compared = compare_runs(lucky)
    assert compared.score == pytest.approx(11 + 0.9 * (25 - 11))
    assert compared.reaches[0].reached == 2


def test_a_point_before_any_training_is_left_out() -> None:
    started = [draw(c.run, c.seed, [0.05, *c.scores], [0, *c.budgets]) for c in [*pair(0.1, "a"), *pair()]]
    assert compare_runs(started) == compare_runs([*pair(0.1, "a"), *pair()])
    units = [*started, draw("c", "1", [0.05, 0.1], [0, 3600])]
    with pytest.raises(UsageError, match="c/1 begins at 3,600, and a/0 ends at 8: no budget"):
        compare_runs(units)


def test_a_seed_that_diverged_at_once_reaches_nothing_and_moves_no_score() -> None:
    curves = [*pair(0.1, "a"), *pair()]
    lost = [draw("b", "3", [0.1], [1], diverged="as stated"), draw("c", "1", [], [], diverged="as stated")]
    whole, compared = compare_runs(curves, 0.25), compare_runs([*curves, *lost], 0.25)
    assert (compared.scores, compared.budgets) == (whole.scores, whole.budgets)
    assert [(one.run, one.reached, one.seeds) for one in compared.reaches] == [
        ("a", 2, 2), ("b", 2, 3), ("c", 0, 1)
    ]  # fmt: skip
    assert compared.pairs[0].speedup is None
    with pytest.raises(UsageError, match="Every seed has diverged at once"):
        compare_runs(lost)


def test_a_run_that_is_better_at_every_budget_is_called_so_and_one_seed_says_nothing() -> None:
    curves = [*pair(0.1, "a"), *pair()]
    (compared,) = compare_runs(curves, 0.25).pairs
    assert (compared.verdict, compared.better, compared.lower) == ("better", tuple(BUDGETS), ())
    assert compared.speedup is not None
    assert compared.speedup.value == pytest.approx(2, rel=0.02)
    (mirrored,) = compare_runs(curves[::-1], 0.25).pairs
    assert (mirrored.verdict, mirrored.lower) == ("lower", tuple(BUDGETS))
    (single,) = compare_runs(curves[1:], 0.25).pairs
    assert (single.verdict, single.better, single.speedup and single.speedup.low) == ("nothing", (), None)


def test_the_level_is_shared_by_all_pairs() -> None:
    runs = [
        draw(run, str(n), [start + lift + n / 50 for start in (0.1, 0.3)], [1, 2])
        for run, lift in (("a", 0.06), ("b", 0.0))
        for n in range(3)
    ]
    # t = 3.67 with 4 degrees of freedom: p = 0.02.
    assert compare_runs(runs).pairs[0].verdict == "better"
    others = [draw(run, str(n), [0.9 + n / 50, 1.2 + n / 50], [1, 2]) for run in "cd" for n in range(3)]
    assert compare_runs([*runs, *others]).pairs[0].verdict == "not told apart"


def test_a_score_that_a_seed_does_not_reach_has_no_interval() -> None:
    curves = [*pair(0.1, "a"), *pair(), draw("b", "3", [0.1, 0.15, 0.2, 0.2])]
    compared = compare_runs(curves, 0.25)
    assert [(one.reached, one.seeds, one.budget is None) for one in compared.reaches] == [
        (2, 2, False),
        (2, 3, True),
    ]
    assert compared.pairs[0].speedup is None
    early = compare_runs(curves, 0.15).reaches[0]
    assert (early.early, early.budget) == (2, None)


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ([draw("a", "1", [1, 2, 3], [1, 3, 2])], "In a/1 3 is followed by 2: the budget of a run only grows"),
        ([draw("a", "1", [1, 2, 3], [1, 3, 3])], "In a/1 3 stands twice"),
        ([*pair(), replace(pair()[0], seed="9")], "b/0 and b/9 have the same scores"),
        (
            [*pair(), draw("a", "1", [1, 2], [3600, 7200])],
            "a/1 begins at 3,600, and b/0 ends at 8: no budget",
        ),
    ],
)
def test_curves_that_cannot_be_compared_are_refused(curves: list[SeedCurve], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare_runs(curves)


def test_the_budgets_are_shared_points_else_some_between() -> None:
    assert compare_runs([*pair(), draw("a", "1", [1, 2, 3, 4, 5], [0.5, 1, 2, 4, 8])]).budgets == tuple(
        BUDGETS
    )
    between = compare_runs([*pair(), draw("a", "1", [1, 2, 3], [1.5, 3, 6])]).budgets
    assert len(between) == 8
    assert between[::7] == pytest.approx((1.5, 6))


def test_planted_speedups_are_held_and_equal_runs_seldom_called_better() -> None:
    trials = 50
    lines = [
        (speedup, simulate_curves.measure_line(shape, grid, speedup, trials, seed=1))
        for shape in simulate_curves.SHAPES
        for grid in simulate_curves.GRIDS
        for speedup in simulate_curves.SPEEDUPS
    ]
    held = np.mean([line["held"] for _, line in lines])
    called = np.mean([line["called"] for speedup, line in lines if speedup == 1])
    # Three standard deviations around the bars: 600 comparisons, and 200.
    assert 0.92 - 3 * np.sqrt(0.92 * 0.08 / 600) <= held <= 0.97 + 3 * np.sqrt(0.97 * 0.03 / 600)
    assert called <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert all(abs(line["median"] / speedup - 1) < 0.1 for speedup, line in lines)
