"""The mean over a suite's columns: what counts once, what is independent, and what is not."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from statistics import mean, variance

import numpy as np
import pytest

from fakes import task
from harness.checks.decide import _bounds
from harness.checks.difference import Difference, Part, mean_difference
from harness.types import Column, Suite


def suite(**columns: tuple[str, ...]) -> Suite:
    made = [
        Column(name=name, type="STS", tasks=tuple(task(one) for one in tasks))
        for name, tasks in columns.items()
    ]
    return Suite(name="s", title="s", columns=tuple(made))


def difference(mine: tuple[float, ...], theirs: tuple[float, ...], error: float = 0.01) -> Difference:
    return Difference(mine=mine, theirs=theirs, units=100, examples=Part(variance=error**2, freedom=99))


def test_a_column_of_several_tasks_counts_once() -> None:
    found = {
        "a": difference((0.5,), (0.4,), 0.01),
        "b": difference((0.6,), (0.6,), 0.02),
        "c": difference((0.8,), (0.6,), 0.03),
    }
    made = mean_difference(suite(one=("a",), two=("b", "c")), found)
    assert made is not None
    assert (made.candidate, made.baseline) == pytest.approx(((0.5 + 0.7) / 2, (0.4 + 0.6) / 2))
    assert made.delta == pytest.approx(0.1)
    assert made.examples.variance == pytest.approx((0.01 / 2) ** 2 + (0.02 / 4) ** 2 + (0.03 / 4) ** 2)
    assert (made.columns, made.wanted) == (("one", "two"), 2)
    assert made.seeds is None


def test_a_task_of_two_columns_counts_in_both() -> None:
    found = {"a": difference((0.5,), (0.4,), 0.01), "b": difference((0.6,), (0.6,), 0.02)}
    made = mean_difference(suite(one=("a",), two=("a", "b")), found)
    assert made is not None
    assert made.candidate == pytest.approx((0.5 + (0.5 + 0.6) / 2) / 2)
    assert made.examples.variance == pytest.approx((0.75 * 0.01) ** 2 + (0.25 * 0.02) ** 2)


def test_a_column_of_which_a_task_is_missing_is_left_out_and_it_shows() -> None:
    made = mean_difference(
        suite(one=("a",), two=("b", "c")),
        {"a": difference((0.5,), (0.4,))} | {"b": difference((0.5,), (0.1,))},
    )
    assert made is not None
    assert (made.columns, made.wanted) == (("one",), 2)
    assert made.delta == pytest.approx(0.1)
    assert mean_difference(suite(one=("a",), two=()), {}) is None


def test_seeds_that_move_all_tasks_together_widen_the_interval() -> None:
    """One training gives a model for all tasks: what it does to one it does to the others."""
    ups, downs = (0.52, 0.50, 0.48), (0.48, 0.50, 0.52)
    columns = suite(one=("a",), two=("b",))
    together = mean_difference(columns, {"a": difference(ups, ups, 0.001), "b": difference(ups, ups, 0.001)})
    against = mean_difference(columns, {"a": difference(ups, ups, 0.001), "b": difference(downs, ups, 0.001)})
    assert together is not None
    assert against is not None
    assert together.mine == pytest.approx(ups)
    assert against.mine == pytest.approx((0.5, 0.5, 0.5))
    alone = difference(ups, ups).seeds
    assert together.seeds is not None
    assert alone is not None
    assert together.seeds.variance == pytest.approx(alone.variance)
    assert against.seeds is not None
    assert against.seeds.variance == pytest.approx(variance(ups) / 3)
    wide, narrow = (np.diff(_bounds(one, 0.05))[0] for one in (together, against))
    assert wide > narrow


def test_of_runs_that_belong_together_the_differences_count() -> None:
    mine, theirs = (0.52, 0.50, 0.48), (0.51, 0.49, 0.48)
    one = replace(difference(mine, theirs), paired=True)
    made = mean_difference(suite(one=("a",)), {"a": one})
    assert made is not None
    assert made.seeds is not None
    assert made.seeds.variance == pytest.approx(variance([0.01, 0.01, 0.0]) / 3)


def test_a_task_with_one_run_shifts_the_mean_of_every_run() -> None:
    found = {"a": difference((0.5, 0.6), (0.4, 0.6)), "b": difference((0.7,), (0.8,))}
    made = mean_difference(suite(one=("a",), two=("b",)), found)
    assert made is not None
    assert made.mine == pytest.approx((0.6, 0.65))
    assert made.theirs == pytest.approx((0.6, 0.7))
    assert made.seeds is not None
    expected = variance([0.6, 0.65]) / 2 + variance([0.6, 0.7]) / 2
    assert made.seeds.variance == pytest.approx(expected)


def test_other_numbers_of_runs_add_up_as_independent_parts() -> None:
    found = {
        "a": difference((0.5, 0.6), (0.4, 0.6)),
        "b": difference((0.7, 0.8, 0.9), (0.8, 0.7, 0.7)),
    }
    made = mean_difference(suite(one=("a",), two=("b",)), found)
    assert made is not None
    assert made.candidate == pytest.approx(mean([0.55, 0.8]))
    parts = [found[name].seeds for name in "ab"]
    assert made.seeds is not None
    assert made.seeds.variance == pytest.approx(sum(part.variance / 4 for part in parts if part))


def test_the_interval_of_a_mean_holds_the_truth_as_often_as_it_says() -> None:
    """20 tasks, 3 and 5 runs, a shift of each training that all its tasks share."""
    rng, trials, missed = np.random.default_rng(0), 1500, 0
    names = [f"T{at}" for at in range(20)]
    columns = suite(**{name: (name,) for name in names})
    for _ in range(trials):
        shifts = [rng.normal(0, 0.01, size=(runs, 1)) for runs in (3, 5)]
        own = [shift + rng.normal(0, 0.005, size=(len(shift), 20)) for shift in shifts]
        units = rng.normal(0, 0.01, size=20)
        found = {
            name: difference(tuple((own[0][:, at] + units[at]).tolist()), tuple(own[1][:, at].tolist()))
            for at, name in enumerate(names)
        }
        made = mean_difference(columns, found)
        assert made is not None
        low, high = _bounds(made, 0.05)
        missed += not low <= 0 <= high
    assert missed / trials < 0.1 + 4 * sqrt(0.09 / trials)


def test_the_same_records_are_the_same_mean() -> None:
    one = replace(difference((0.5,), (0.5,)), same=True)
    for other in (True, False):
        made = mean_difference(suite(one=("a",), two=("b",)), {"a": one, "b": replace(one, same=other)})
        assert made is not None
        assert made.same == other
