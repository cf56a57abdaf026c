"""Verdicts: correction, equivalence, their order, measured margins, and what would settle one."""

from __future__ import annotations

import re
from math import sqrt
from statistics import stdev
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.decide import (
    _bounds,
    _corrected,
    _equivalent,
    _judge,
    _Limits,
    _measured_margin,
    _p_improved,
    _p_regressed,
    _settle,
    _TaskVerdict,
)
from harness.checks.difference import Difference, Part
from harness.checks.policy import CORRECTIONS, Correction

NAMED = re.compile(r"about ([\d,]+) (\w+)")


def judged(*differences: Any, **how: Any) -> dict[str, _TaskVerdict]:
    return _judge(*differences, **how)


def made(delta: float, error: float, *, units: int = 100, **more: object) -> Difference:
    part = Part(variance=error**2, freedom=units - 1)
    return Difference(**{"mine": (0.5 + delta,), "theirs": (0.5,), "units": units, "examples": part, **more})  # type: ignore[arg-type]


def verdict(one: Difference, limit: _Limits, correction: Correction = "holm", alpha: float = 0.05) -> str:
    found = judged({"T": one}, {"T": limit}, alpha=alpha, correction=correction, units={"T": "queries"})
    return found["T"].verdict


# Correction


def test_holm_by_hand() -> None:
    assert _corrected([0.01, 0.04, 0.03, 0.005], "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert _corrected([0.9, 0.8], "holm") == [1.0, 1.0]


shares = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(shares)
def test_benjamini_and_hochberg_are_those_of_scipy(p: list[float]) -> None:
    found = _corrected(p, "benjamini-hochberg")
    assert found == pytest.approx(scipy.stats.false_discovery_control(p, method="bh"))


@given(shares, st.floats(0.001, 0.5))
def test_holm_rejects_as_its_steps_do(p: list[float], alpha: float) -> None:
    """The smallest is held against alpha / m, the next against alpha / (m - 1), until one is above."""
    rejected = set[int]()
    for rank, at in enumerate(sorted(range(len(p)), key=lambda at: p[at])):
        if p[at] * (len(p) - rank) > alpha:
            break
        rejected.add(at)
    assert {at for at, value in enumerate(_corrected(p, "holm")) if value <= alpha} == rejected


@given(shares)
def test_no_correction_is_between_nothing_and_one(p: list[float]) -> None:
    for correction in CORRECTIONS:
        found = _corrected(p, correction)
        assert all(before <= after + 1e-12 <= 1 + 1e-12 for before, after in zip(p, found, strict=True))
    assert _corrected(p, "none") == p
    assert _corrected([], "holm") == []


# Tests and bounds


def test_bounds_and_p_values_by_hand() -> None:
    one = made(-0.02, 0.01, units=21)
    reach = scipy.stats.t.ppf(0.95, 20) * 0.01
    assert _bounds(one, 0.05) == pytest.approx((-0.02 - reach, -0.02 + reach))
    assert _p_regressed(one, 0.0) == pytest.approx(scipy.stats.t.cdf(-2, 20))
    assert _p_regressed(one, 0.015) == pytest.approx(scipy.stats.t.cdf(-0.5, 20))
    assert _p_improved(one) == pytest.approx(scipy.stats.t.cdf(2, 20))


@pytest.mark.parametrize("delta", [-0.009, -0.004, 0.0, 0.003])
@pytest.mark.parametrize("error", [0.001, 0.003, 0.005])
def test_equivalence_is_two_one_sided_tests(delta: float, error: float) -> None:
    one, margin = made(delta, error, units=30), 0.01
    lower = scipy.stats.t.sf((delta + margin) / error, 29)
    upper = scipy.stats.t.cdf((delta - margin) / error, 29)
    assert _equivalent(one, _Limits(margin=margin), 0.05) == (max(lower, upper) < 0.05)


def test_the_exact_p_value_counts_where_it_is_larger() -> None:
    one = made(-0.1, 0.01, units=5, exact=(0.125, 1.0))
    assert _p_regressed(one, 0.0) == 0.125
    assert _p_improved(one) == 1.0
    assert verdict(one, _Limits(margin=0.01)) == "inconclusive"


# The order of verdicts


@pytest.mark.parametrize(
    ("delta", "error", "margin", "drop", "expected"),
    [
        (-0.005, 0.001, 0.01, 0.0, "equivalent"),  # lower beyond doubt, and within the margin
        (0.005, 0.001, 0.01, 0.0, "equivalent"),
        (-0.02, 0.001, 0.01, 0.0, "regressed"),
        (0.02, 0.001, 0.01, 0.0, "improved"),
        (-0.02, 0.02, 0.01, 0.0, "inconclusive"),
        (0.0, 0.02, 0.01, 0.0, "inconclusive"),
        (-0.009, 0.001, 0.005, 0.0, "regressed"),
        (-0.009, 0.001, 0.0095, 0.009, "inconclusive"),  # may drop so far, and is not within the margin
        (-0.02, 0.001, 0.01, 0.01, "regressed"),
        (0.0, 0.001, 0.0, 0.0, "inconclusive"),
    ],
)
def test_the_order_of_verdicts(delta: float, error: float, margin: float, drop: float, expected: str) -> None:
    assert verdict(made(delta, error), _Limits(margin=margin, max_drop=drop)) == expected


def test_one_record_is_equivalent_whatever_the_margin() -> None:
    one = made(0.0, 0.0, same=True)
    assert verdict(one, _Limits(margin=0.0)) == "equivalent"


def test_a_drop_of_one_among_many_must_be_clearer() -> None:
    found = {f"T{at}": made(0.0, 0.02) for at in range(19)} | {"low": made(-0.02, 0.01)}
    limits = dict.fromkeys(found, _Limits(margin=0.001))
    told = {
        correction: judged(found, limits, alpha=0.05, correction=correction, units=dict.fromkeys(found, "u"))
        for correction in CORRECTIONS
    }
    assert {c: one["low"].verdict for c, one in told.items()} == {
        "holm": "inconclusive",
        "benjamini-hochberg": "inconclusive",
        "none": "regressed",
    }
    assert told["holm"]["low"].p_regressed == pytest.approx(20 * told["none"]["low"].p_regressed)


def test_no_tasks_have_no_verdicts() -> None:
    assert judged({}, {}, alpha=0.05, correction="holm", units={}) == {}


# Measured margins


def test_a_measured_margin_is_that_of_a_prediction() -> None:
    theirs = (0.50, 0.52, 0.49, 0.53)
    one = made(0.0, 0.001, mine=(0.51,), theirs=theirs)
    expected = scipy.stats.t.ppf(0.95, 3) * stdev(theirs) * sqrt(1 + 1 / 4)
    assert _measured_margin(one, 0.05) == pytest.approx(expected)
    both = made(0.0, 0.001, mine=(0.51, 0.5), theirs=theirs)
    assert _measured_margin(both, 0.05) == pytest.approx(expected / sqrt(1 + 1 / 4) * sqrt(1 / 2 + 1 / 4))
    assert _measured_margin(made(0.0, 0.001), 0.05) is None


def test_another_run_of_the_baseline_lies_within_its_measured_margin() -> None:
    """Of many made-up baselines, 5 of 100 further runs lie below it: that is what it says."""
    rng = np.random.default_rng(0)
    trials, below = 6000, 0
    for _ in range(trials):
        theirs = tuple(rng.normal(0.5, 0.01, 3).tolist())
        one = Difference(
            mine=(float(rng.normal(0.5, 0.01)),),
            theirs=theirs,
            units=1,
            examples=Part(variance=0.0, freedom=1),
        )
        below += one.delta < -(_measured_margin(one, 0.05) or 0)
    assert below / trials == pytest.approx(0.05, abs=4 * sqrt(0.05 * 0.95 / trials))


def test_what_runs_add_counts_once_where_the_margin_is_measured() -> None:
    one = made(0.0, 0.001, mine=(0.51,), theirs=(0.48, 0.5, 0.52))
    margin = _measured_margin(one, 0.05) or 0.0
    assert _equivalent(one, _Limits(margin=margin, measured=True), 0.05)
    assert not _equivalent(one, _Limits(margin=margin), 0.05)


# What would settle it


def named(hint: str) -> dict[str, int]:
    return {what: int(count.replace(",", "")) for count, what in NAMED.findall(hint)}


@pytest.mark.parametrize(
    ("delta", "margin", "drop", "tasks"),
    [
        (-0.02, 0.0, 0.0, 1),
        (0.015, 0.0, 0.0, 1),
        (-0.02, 0.001, 0.0, 8),
        (0.0, 0.02, 0.0, 1),
        (-0.005, 0.02, 0.0, 1),
        (-0.004, 0.02, 0.01, 1),
        (0.001, 0.02, 0.02, 1),
    ],
)
def test_the_number_of_units_that_is_named_settles_it_four_times_of_five(
    delta: float, margin: float, drop: float, tasks: int
) -> None:
    """If the true difference is what was seen, the candidate is measured anew with that many."""
    spread, limit, trials = 0.3, _Limits(margin=margin, max_drop=drop), 400
    seen = made(delta, spread / 10, units=100)
    count = named(_settle(seen, limit, 0.05, "queries", tasks))["queries"]
    error = spread / sqrt(count)
    others = {f"other {number}": made(0.0, 0.01) for number in range(tasks - 1)}
    limits = dict.fromkeys(["T", *others], limit)
    settled = 0
    for drawn in np.random.default_rng(0).normal(delta, error, trials):
        found = {"T": made(float(drawn), error, units=count), **others}
        told = judged(found, limits, alpha=0.05, correction="holm", units=dict.fromkeys(found, "queries"))
        settled += told["T"].verdict != "inconclusive"
    assert settled / trials > 0.8 - 4 * sqrt(0.16 / trials)
    if margin == 0:
        assert settled / trials < 0.8 + 4 * sqrt(0.16 / trials)


def test_seeds_are_named_where_runs_are_what_is_uncertain() -> None:
    mine, theirs = (0.45, 0.47, 0.52), (0.50, 0.55, 0.48)
    one = made(0.0, 0.0001, mine=mine, theirs=theirs)
    found = named(_settle(one, _Limits(margin=0.0), 0.05, "queries"))
    assert found.keys() == {"seeds"}
    variance = 3 * (one.seeds.variance if one.seeds else 0)
    reach = scipy.stats.norm.ppf(0.95) + scipy.stats.norm.ppf(0.8)
    assert found["seeds"] == pytest.approx(variance * (reach / one.delta) ** 2, rel=0.12)


def test_where_no_number_would_do_none_is_named() -> None:
    assert _settle(made(0.0, 0.01), _Limits(margin=0.0), 0.05, "draws") == "more draws"
    seeds = made(0.0, 0.01, mine=(0.5, 0.5), theirs=(0.4, 0.6))
    assert _settle(seeds, _Limits(margin=0.0), 0.05, "texts") == "more seeds and more texts"


def test_only_what_is_inconclusive_says_what_would_settle_it() -> None:
    found = judged(
        {"a": made(0.0, 0.001), "b": made(-0.02, 0.02)},
        {"a": _Limits(margin=0.01), "b": _Limits(margin=0.01)},
        alpha=0.05,
        correction="holm",
        units={"a": "pairs", "b": "pairs"},
    )
    assert found["a"].to_settle == ""
    assert "pairs" in found["b"].to_settle
