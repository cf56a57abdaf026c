"""From records to verdicts, and from verdicts to what decides a whole check."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import mean, stdev, variance
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fakes import task
from harness import stats
from harness.checks.baselines import BaselineModel
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
    _student_quantile,
    _TaskVerdict,
    conclude,
    decide,
)
from harness.checks.difference import Difference, MeanDifference, Part
from harness.checks.outcome import VERDICTS, MeanOutcome, Overall, TaskOutcome, Verdict
from harness.checks.policy import CORRECTIONS, DEFAULT, Correction, Policy
from harness.checks.record_units import ScoredRecord
from harness.checks.sides import CheckSide, Comparison
from harness.checks.units import Stratum, Units
from harness.errors import UsageError
from harness.types import Column, Suite

RNG = np.random.default_rng(5)
LEVEL = RNG.random(200)


def record(model: str, shift: float, seed: int = 0) -> ScoredRecord:
    values = LEVEL + shift + RNG.normal(0, 0.02, size=200)
    stratum = Stratum(measures=("mean",), examples="same", gold=np.zeros(0), predicted=values[None, None, :])
    units = Units(metric="m", unit="queries", strata=(stratum,))
    return ScoredRecord(
        key=f"{model}-{seed}",
        task={},
        model={"artifact": model},
        identity={},
        provenance={},
        score=float(values.mean()),
        units=units,
    )


def side(held: Mapping[str, Sequence[ScoredRecord]]) -> CheckSide:
    models = dict.fromkeys(str(one.model["artifact"]) for ones in held.values() for one in ones)
    runs = tuple(BaselineModel(model=m, source=m, artifact=m, folder=m, keys={}) for m in models)
    scored = {name: tuple(ones) for name, ones in held.items()}
    return CheckSide(runs=runs, home=Path(), scored=scored, missing=dict.fromkeys(held, 0))


def sides(mine: Sequence[ScoredRecord], theirs: Sequence[ScoredRecord]) -> Comparison:
    return Comparison(candidate=side({"T": mine}), baseline=side({"T": theirs}), failures={})


SUITE = Suite(name="one", title="", columns=(Column(name="T", type="any", tasks=(task("T"),)),))


def found(both: Comparison) -> Difference:
    one = both.differences(SUITE.tasks)["T"]
    assert isinstance(one, Difference)
    return one


def test_the_seeds_of_repeats_are_no_runs_of_their_own() -> None:
    shifts = {"a": 0.0, "b": 0.03, "c": -0.03}
    theirs = [record(model, shift, seed) for model, shift in shifts.items() for seed in (1, 2)]
    mine = [record("x", 0.0, seed) for seed in (1, 2)]
    one = found(sides(mine, theirs))
    means = [np.mean([r.score for r in theirs if r.model["artifact"] == m]) for m in shifts]
    assert (len(one.mine), len(one.theirs)) == (1, 3)
    assert one.noise == pytest.approx(stdev(means))
    assert one.seeds is not None
    own = stdev(means) ** 2 - one.noise_in_units[1]
    assert 0 < one.noise_in_units[1] < 0.01 * stdev(means) ** 2
    assert one.seeds.variance == pytest.approx(own * (1 + 1 / 3))
    assert one.seeds.freedom == 2


def test_the_seeds_of_two_models_belong_together_two_by_two() -> None:
    one = found(sides([record("x", 0.0, s) for s in (1, 2, 3)], [record("a", 0.0, s) for s in (1, 2, 3)]))
    assert one.paired
    assert (len(one.mine), len(one.theirs)) == (3, 3)


def test_two_repeats_are_too_few_for_a_measured_margin() -> None:
    policy = replace(DEFAULT, margin="measured")
    two = sides([record("x", 0.0)], [record("a", 0.0), record("b", 0.01)])
    with pytest.raises(UsageError, match="has 2 runs of T: it takes 3"):
        decide(two, [SUITE], policy, "base")
    three = sides([record("x", 0.0)], [record("a", 0.0), record("b", 0.01), record("c", -0.01)])
    assert decide(three, [SUITE], policy, "base").tasks[0].margin > 0.01


def test_the_mean_of_a_single_task_has_its_margin() -> None:
    mean = decide(sides([record("x", 0.0)], [record("a", 0.0)]), [SUITE], DEFAULT, "base").means[0]
    assert mean.margin == pytest.approx(0.01)


def test_tasks_and_means_share_alpha() -> None:
    """With a second task the p-value of the first is twice for Holm and twice for the tasks' half."""
    policy = replace(DEFAULT, margin=0.0, mean_margin=0.0)
    mine, theirs = [record("x", -0.0026)], [record("a", 0.0)]
    alone = decide(sides(mine, theirs), [SUITE], policy, "base")
    two = replace(SUITE, columns=(*SUITE.columns, Column(name="U", type="any", tasks=(task("U"),))))
    both = Comparison(
        candidate=side({"T": mine, "U": [record("x", 0.0)]}),
        baseline=side({"T": theirs, "U": [record("a", 0.0)]}),
        failures={},
    )
    together = decide(both, [two], policy, "base")
    one, other = alone.tasks[0].p_regressed, together.tasks[0].p_regressed
    assert one is not None
    assert other == pytest.approx(4 * one)


def test_a_mean_whose_interval_lies_below_its_margin_regressed() -> None:
    two = replace(SUITE, columns=(*SUITE.columns, Column(name="U", type="any", tasks=(task("U"),))))
    for shift, expected in ((-0.02, "regressed"), (0.0, "equivalent"), (0.02, "improved")):
        both = Comparison(
            candidate=side({name: [record("x", shift)] for name in "TU"}),
            baseline=side({name: [record("a", 0.0)] for name in "TU"}),
            failures={},
        )
        mean = decide(both, [two], DEFAULT, "base").means[0]
        assert mean.verdict == expected
        assert mean.high is not None
        assert (mean.high < -mean.margin) == (expected == "regressed")


# Verdicts: correction, equivalence, their order, measured margins, and what would settle one


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


# The mean over a suite's columns: what counts once, what is independent, and what is not


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
    made = MeanDifference.over_suite(suite(one=("a",), two=("b", "c")), found)
    assert made is not None
    assert (made.candidate, made.baseline) == pytest.approx(((0.5 + 0.7) / 2, (0.4 + 0.6) / 2))
    assert made.delta == pytest.approx(0.1)
    assert made.examples.variance == pytest.approx((0.01 / 2) ** 2 + (0.02 / 4) ** 2 + (0.03 / 4) ** 2)
    assert (made.columns, made.wanted) == (("one", "two"), 2)
    assert made.seeds is None


def test_a_task_of_two_columns_counts_in_both() -> None:
    found = {"a": difference((0.5,), (0.4,), 0.01), "b": difference((0.6,), (0.6,), 0.02)}
    made = MeanDifference.over_suite(suite(one=("a",), two=("a", "b")), found)
    assert made is not None
    assert made.candidate == pytest.approx((0.5 + (0.5 + 0.6) / 2) / 2)
    assert made.examples.variance == pytest.approx((0.75 * 0.01) ** 2 + (0.25 * 0.02) ** 2)


def of_splits(model: str, dev: float, test: float) -> ScoredRecord:
    """A score that is the mean of two splits."""
    both = [record(model, shift) for shift in (dev, test)]
    strata = [
        replace(one.units.strata[0], split=split, share=0.5)
        for split, one in zip(("dev", "test"), both, strict=True)
        if one.units is not None
    ]
    units = Units(metric="m", unit="queries", strata=tuple(strata))
    return replace(both[0], units=units, score=float(units.scores().mean()))


@pytest.mark.parametrize("apart", ["", "development"])
def test_a_part_of_a_task_counts_by_itself_and_not_where_it_is_shown_only(apart: str) -> None:
    """Better on dev, as good on test."""
    names = {"dev": apart, "test": ""}
    columns = [
        Column(
            name=f"T ({split})", type="any", shown_only=why,
            tasks=(replace(task("T"), splits=(split,), subsets=("",)),),
        )
        for split, why in names.items()
    ]  # fmt: skip
    parted = Suite(name="p", title="", columns=tuple(columns))
    mine, theirs = of_splits("x", 0.3, 0.0), of_splits("a", 0.0, 0.0)
    made = decide(sides([mine], [theirs]), [parted], DEFAULT, "base")
    (one,), (of_mean,) = made.tasks, made.means
    expected = 0.0 if apart else 0.15
    assert one.delta == pytest.approx(expected, abs=0.01)
    assert of_mean.delta == pytest.approx(expected, abs=0.01)
    assert one.units == (200 if apart else 400)
    assert (of_mean.there, of_mean.wanted) == ((1, 1) if apart else (2, 2))
    tested = sides([mine], [theirs]).part_differences(parted)
    assert [round(one.delta, 1) for one in tested.values()] == [0.3, 0.0]


def test_a_column_of_which_a_task_is_missing_is_left_out_and_it_shows() -> None:
    made = MeanDifference.over_suite(
        suite(one=("a",), two=("b", "c")),
        {"a": difference((0.5,), (0.4,))} | {"b": difference((0.5,), (0.1,))},
    )
    assert made is not None
    assert (made.columns, made.wanted) == (("one",), 2)
    assert made.delta == pytest.approx(0.1)
    assert MeanDifference.over_suite(suite(one=("a",), two=()), {}) is None


def test_seeds_that_move_all_tasks_together_widen_the_interval() -> None:
    """One training gives a model for all tasks: what it does to one it does to the others."""
    ups, downs = (0.52, 0.50, 0.48), (0.48, 0.50, 0.52)
    columns = suite(one=("a",), two=("b",))
    together = MeanDifference.over_suite(
        columns, {"a": difference(ups, ups, 0.001), "b": difference(ups, ups, 0.001)}
    )
    against = MeanDifference.over_suite(
        columns, {"a": difference(ups, ups, 0.001), "b": difference(downs, ups, 0.001)}
    )
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
    made = MeanDifference.over_suite(suite(one=("a",)), {"a": one})
    assert made is not None
    assert made.seeds is not None
    assert made.seeds.variance == pytest.approx(variance([0.01, 0.01, 0.0]) / 3)


def test_a_task_with_one_run_shifts_the_mean_of_every_run() -> None:
    found = {"a": difference((0.5, 0.6), (0.4, 0.6)), "b": difference((0.7,), (0.8,))}
    made = MeanDifference.over_suite(suite(one=("a",), two=("b",)), found)
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
    made = MeanDifference.over_suite(suite(one=("a",), two=("b",)), found)
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
        made = MeanDifference.over_suite(columns, found)
        assert made is not None
        low, high = _bounds(made, 0.05)
        missed += not low <= 0 <= high
    assert missed / trials < 0.1 + 4 * sqrt(0.09 / trials)


def test_the_same_records_are_the_same_mean() -> None:
    one = replace(difference((0.5,), (0.5,)), same=True)
    for other in (True, False):
        made = MeanDifference.over_suite(
            suite(one=("a",), two=("b",)), {"a": one, "b": replace(one, same=other)}
        )
        assert made is not None
        assert made.same == other


# What decides a whole check: never a silent pass


def judged_task(verdict: Verdict, name: str = "T", *, must: bool = True) -> TaskOutcome:
    return TaskOutcome(
        task=name,
        type="STS",
        metric="m",
        verdict=verdict,
        must_not_regress=must,
        delta=-0.02,
        low=-0.03,
        high=-0.01,
        p_regressed=0.01,
    )


def judged_mean(verdict: Overall, suite: str = "s") -> MeanOutcome:
    return MeanOutcome(
        suite=suite,
        verdict=verdict,
        candidate=0.5,
        baseline=0.5,
        delta=0.0,
        low=-0.01,
        high=0.01,
        margin=0.005,
    )


def ends(tasks: list[TaskOutcome], means: list[MeanOutcome], policy: Policy = DEFAULT) -> tuple[str, int]:
    found = conclude(tasks, means, policy)
    assert found.because
    return found.verdict, found.exit_code


@pytest.mark.parametrize(
    ("verdicts", "means", "expected"),
    [
        (("equivalent", "improved", "inconclusive"), ("equivalent",), ("equivalent", 0)),
        (("equivalent",), ("improved",), ("improved", 0)),
        (("equivalent",), ("equivalent", "improved"), ("improved", 0)),
        (("equivalent",), ("inconclusive",), ("inconclusive", 3)),
        (("equivalent",), ("improved", "inconclusive"), ("inconclusive", 3)),
        (("equivalent", "missing"), ("improved",), ("inconclusive", 3)),
        (("equivalent", "not testable"), ("improved",), ("inconclusive", 3)),
        (("improved", "regressed"), ("improved",), ("regressed", 1)),
        (("regressed", "missing"), ("inconclusive",), ("regressed", 1)),
        (("equivalent", "missing"), ("regressed",), ("regressed", 1)),
        (("equivalent",), ("regressed", "improved"), ("regressed", 1)),
    ],
)
def test_the_verdict_of_a_check(
    verdicts: tuple[Verdict, ...], means: tuple[Overall, ...], expected: tuple[str, int]
) -> None:
    tasks = [judged_task(one, f"T{at}") for at, one in enumerate(verdicts)]
    assert ends(tasks, [judged_mean(one) for one in means]) == expected


@pytest.mark.parametrize(("how", "code"), [("exit-3", 3), ("fail", 1), ("pass", 0)])
def test_the_policy_says_what_nothing_decided_ends_with(how: str, code: int) -> None:
    policy = replace(DEFAULT, inconclusive=how)  # type: ignore[arg-type]
    assert ends([judged_task("inconclusive")], [judged_mean("inconclusive")], policy) == (
        "inconclusive",
        code,
    )
    assert ends([judged_task("regressed")], [judged_mean("equivalent")], policy) == ("regressed", 1)
    assert ends([judged_task("equivalent")], [judged_mean("equivalent")], policy) == ("equivalent", 0)


@pytest.mark.parametrize("how", ["exit-3", "fail", "pass"])
@pytest.mark.parametrize(("missing", "code"), [("exit-3", 3), ("fail", 1)])
def test_a_missing_score_never_passes(how: str, missing: str, code: int) -> None:
    policy = replace(DEFAULT, inconclusive=how, missing=missing)  # type: ignore[arg-type]
    assert ends([judged_task("missing")], [judged_mean("equivalent")], policy) == ("inconclusive", code)
    nothing = replace(judged_mean("inconclusive"), delta=None)
    assert ends([], [nothing], policy) == ("inconclusive", code)


def test_a_task_that_may_regress_does_not_decide() -> None:
    assert ends([judged_task("regressed", must=False)], [judged_mean("equivalent")]) == ("equivalent", 0)


def test_tasks_that_cannot_be_tested_may_be_left_out_but_missing_ones_may_not() -> None:
    policy = replace(DEFAULT, not_testable="ignore")
    assert ends([judged_task("not testable")], [judged_mean("equivalent")], policy)[0] == "equivalent"
    assert ends([judged_task("missing")], [judged_mean("equivalent")], policy)[0] == "inconclusive"


def test_where_nothing_could_be_tested_nothing_is_said() -> None:
    nothing = MeanOutcome(suite="s", verdict="inconclusive", wanted=3)
    policy = replace(DEFAULT, not_testable="ignore")
    found = conclude([judged_task("not testable")], [nothing], policy)
    assert (found.verdict, found.because) == ("inconclusive", ("No task of s could be tested.",))


def test_the_worst_is_told_first() -> None:
    tasks = [
        replace(judged_task("regressed", name), delta=delta) for name, delta in (("A", -0.01), ("B", -0.05))
    ]
    assert [one.partition(" ")[0] for one in conclude(tasks, [], DEFAULT).because] == ["B", "A"]


def test_every_verdict_has_a_place_in_the_order() -> None:
    assert sorted(VERDICTS) == sorted(set(VERDICTS))
    assert len(VERDICTS) == 6


# Student's t against SciPy's


FREEDOMS = (1, 1.5, 2, 3, 9, 9.7, 30, 199, 1378, 20_000, 3e5)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.0025, 0.05, 0.3, 0.5, 0.8, 0.95, 0.999, 1 - 1e-6])
def test_quantiles_are_those_of_scipy(share: float, freedom: float) -> None:
    expected = scipy.stats.t.ppf(share, freedom)
    assert _student_quantile(share, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-8)
    symmetric = Part(variance=4.0, freedom=freedom)
    assert symmetric.reach(share) == pytest.approx(2 * expected, rel=1e-8, abs=1e-8)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert _student_quantile(0.975, stats.LARGE) == pytest.approx(scipy.stats.t.ppf(0.975, 1e7), rel=1e-6)
