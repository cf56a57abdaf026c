"""Differences against analytic standard errors, a bootstrap of indices, and enumeration by hand."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import comb
from statistics import stdev

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from scipy.stats import poisson
from simulate_check import units

from harness.checks.decide import _p_improved, _p_regressed
from harness.checks.difference import (
    ALIKE,
    DRAWS_AT_ONCE,
    FEW,
    Difference,
    Part,
    _blocks,
    _run_part,
    _together,
)
from harness.checks.units import Units
from harness.metrics import Floats

DRAWS = 4000


def compared(one: Units, other: Units, *, draws: int = DRAWS, paired: bool = False) -> Difference:
    return Difference.between(one, other, paired=paired, rng=np.random.default_rng(7), draws=draws)


def means(*runs: Floats) -> Units:
    return units("mean", np.stack(runs)[:, None, :])


@pytest.mark.parametrize("count", [12, 150, 1000])
def test_the_error_of_a_mean_is_the_paired_one(count: int) -> None:
    rng = np.random.default_rng(count)
    theirs = rng.random(count)
    mine = theirs + rng.normal(0.02, 0.1, count)
    found = compared(means(mine), means(theirs), draws=20_000)
    assert found.delta == pytest.approx((mine - theirs).mean())
    analytic = (mine - theirs).var(ddof=1) / count
    assert found.examples.variance == pytest.approx(analytic, rel=0.06)
    assert found.examples.freedom == count - 1
    assert (found.seeds, found.noise, found.units) == (None, None, count)


def test_the_p_value_of_a_mean_is_nearly_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.random(400)
    mine = theirs + rng.normal(-0.01, 0.1, 400)
    found = compared(means(mine), means(theirs), draws=40_000)
    test = scipy.stats.ttest_rel(mine, theirs, alternative="less")
    assert _p_regressed(found, 0.0) == pytest.approx(test.pvalue, rel=0.05)
    assert _p_improved(found) == pytest.approx(1 - test.pvalue, rel=0.05)


def spearman(gold: Floats, predicted: Floats) -> float:
    return float(scipy.stats.spearmanr(gold, predicted).statistic)


BY_HAND: dict[str, Callable[[Floats, Floats], float]] = {
    "spearman": spearman,
    "mcc": lambda g, p: float(sklearn.metrics.matthews_corrcoef(g, p)),
    "f1": lambda g, p: float(sklearn.metrics.f1_score(g, p, zero_division=0)),
    "macro_f1": lambda g, p: float(sklearn.metrics.f1_score(g, p, average="macro", zero_division=0)),
    "average_precision": lambda g, p: float(sklearn.metrics.average_precision_score(g, p)),
}


@pytest.mark.parametrize("count", [60, 250])
@pytest.mark.parametrize("name", BY_HAND)
def test_the_error_of_other_metrics_is_that_of_a_bootstrap_of_indices(name: str, count: int) -> None:
    rng = np.random.default_rng(count)
    numbers = name in ("spearman", "average_precision")
    gold = rng.normal(size=count) if name == "spearman" else rng.integers(0, 2, count).astype(float)

    def model(share: float) -> Floats:
        if numbers:
            return np.asarray((gold + share * rng.normal(size=count)).round(1))
        return np.where(rng.random(count) < 0.9 - share / 4, gold, 1 - gold)

    mine, theirs = model(0.7), model(1.0)
    found = compared(*(units(name, one[None, None], gold) for one in (mine, theirs)))
    score = BY_HAND[name]
    assert found.delta == pytest.approx(score(gold, mine) - score(gold, theirs))
    rows = rng.integers(0, count, size=(500, count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        deltas = [score(gold[at], mine[at]) - score(gold[at], theirs[at]) for at in rows]
    spread = stdev(deltas) * np.sqrt(count / (count - 1))
    assert np.sqrt(found.examples.variance) == pytest.approx(spread, rel=0.15)


def test_probes_of_a_text_are_drawn_together() -> None:
    """Ten probes that say the same are worth one: the error is that of their mean."""
    rng = np.random.default_rng(0)
    mine, theirs = (rng.random((1, 1, 500)) < share for share in (0.8, 0.7))
    once = compared(units("mean", mine.astype(float)), units("mean", theirs.astype(float)))
    tenfold = compared(
        *(units("mean", np.repeat(one.astype(float), 10, axis=1)) for one in (mine, theirs)),
    )
    assert tenfold.examples == once.examples
    assert tenfold.delta == pytest.approx(once.delta)


def test_strata_are_drawn_on_their_own_and_weigh_as_their_shares() -> None:
    rng = np.random.default_rng(0)
    sizes, shares = (30, 400), (0.5, 0.5)
    pairs = [(rng.random(size), rng.random(size)) for size in sizes]

    def model(at: int) -> Units:
        strata = [
            replace(means(pair[at]).strata[0], share=share) for pair, share in zip(pairs, shares, strict=True)
        ]
        return Units(metric="m", unit="u", strata=tuple(strata))

    found = compared(model(0), model(1), draws=20_000)
    parts = [0.25 * (a - b).var(ddof=1) / size for (a, b), size in zip(pairs, sizes, strict=True)]
    assert found.delta == pytest.approx(np.mean([(a - b).mean() for a, b in pairs]))
    assert found.examples.variance == pytest.approx(sum(parts), rel=0.06)
    freedom = sum(parts) ** 2 / sum(p**2 / (n - 1) for p, n in zip(parts, sizes, strict=True))
    assert found.examples.freedom == pytest.approx(freedom, rel=0.1)


# Runs


def test_runs_that_are_not_paired_are_those_of_welch() -> None:
    mine, theirs = [0.51, 0.55, 0.50], [0.52, 0.60, 0.47, 0.49, 0.58]
    part = _run_part(mine, theirs, paired=False)
    test = scipy.stats.ttest_ind(mine, theirs, equal_var=False)
    assert part is not None
    assert part.freedom == pytest.approx(test.df)
    delta = np.mean(mine) - np.mean(theirs)
    assert delta / np.sqrt(part.variance) == pytest.approx(test.statistic)


def test_paired_runs_are_those_of_the_paired_test() -> None:
    mine, theirs = [0.51, 0.55, 0.50], [0.50, 0.53, 0.51]
    part = _run_part(mine, theirs, paired=True)
    test = scipy.stats.ttest_rel(mine, theirs)
    assert part is not None
    assert part.freedom == test.df == 2
    assert (np.mean(mine) - np.mean(theirs)) / np.sqrt(part.variance) == pytest.approx(test.statistic)


def test_a_single_run_is_as_uncertain_as_those_of_the_other_side() -> None:
    theirs = [0.5, 0.6, 0.7]
    for mine, others in (([0.4], theirs), (theirs, [0.4])):
        part = _run_part(mine, others, paired=False)
        assert part is not None
        assert part.variance == pytest.approx(0.01 * (1 + 1 / 3))
        assert part.freedom == 2
    assert _run_part([0.4], [0.5], paired=False) is None


def test_runs_without_spread_add_nothing() -> None:
    assert _run_part([0.5, 0.5], [0.5, 0.5], paired=False) == Part(variance=0.0, freedom=pytest.approx(1e7))
    assert _run_part([0.6, 0.5], [0.5, 0.4], paired=True) == Part(variance=pytest.approx(0), freedom=1)


def test_parts_add_up_with_the_freedom_of_welch_and_satterthwaite() -> None:
    found = _together([Part(variance=2.0, freedom=10), Part(variance=1.0, freedom=2)])
    assert found == Part(variance=3.0, freedom=pytest.approx(9 / (4 / 10 + 1 / 2)))
    assert _together([Part(variance=2.0, freedom=5), Part(variance=0.0, freedom=1)]).freedom == pytest.approx(
        5
    )


def test_runs_are_a_level_above_the_units() -> None:
    """What a seed adds to all scores at once is in the runs' part alone, whatever the units say."""
    rng = np.random.default_rng(0)
    hard = rng.random(2000)
    shifts = (0.05, -0.03, 0.01), (0.0, 0.02, -0.04)
    mine, theirs = (means(*(hard + s for s in side)) for side in shifts)
    found = compared(mine, theirs)
    expected = _run_part(
        [hard.mean() + s for s in shifts[0]], [hard.mean() + s for s in shifts[1]], paired=False
    )
    assert found.examples.variance < 1e-8
    assert found.seeds is not None
    assert expected is not None
    assert found.seeds.variance == pytest.approx(expected.variance)
    assert found.total.variance == pytest.approx(found.examples.variance + expected.variance)
    assert found.noise == pytest.approx(stdev(shifts[1]))


# Chance counted out


@pytest.mark.parametrize(("worse", "better"), [(1, 0), (5, 0), (7, 2), (4, 4), (10, 1)])
def test_answers_right_or_wrong_are_the_sign_test(worse: int, better: int) -> None:
    theirs = np.array([1.0] * worse + [0.0] * better + [1.0] * 15)
    mine = np.array([0.0] * worse + [1.0] * better + [1.0] * 15)
    found = compared(means(mine), means(theirs), draws=1000)
    count = worse + better
    low = sum(comb(count, k) for k in range(better + 1)) / 2**count
    high = sum(comb(count, k) for k in range(better, count + 1)) / 2**count
    assert found.exact == pytest.approx((low, high))
    assert _p_regressed(found, 0.0) >= low
    assert _p_improved(found) >= high


@pytest.mark.parametrize("seed", range(12))
def test_scores_that_are_no_whole_numbers_are_exchanged_exactly(seed: int) -> None:
    """Equal sums of nDCG values count as equal, whatever order they were added in."""
    rng = np.random.default_rng(seed)
    count, differing = int(rng.integers(12, 150)), int(rng.integers(2, 10))
    levels = 1 / np.log2(np.arange(2, 12))
    theirs = rng.choice(levels, count)
    mine = theirs.copy()
    mine[:differing] = rng.choice(levels, differing)
    found = compared(means(mine), means(theirs), draws=1000)
    deltas = (mine - theirs)[mine != theirs]
    sums = np.array(list(itertools.product([1, -1], repeat=len(deltas)))) @ deltas
    low = (sums <= deltas.sum() + 1e-9).mean()
    high = (sums >= deltas.sum() - 1e-9).mean()
    assert found.exact == pytest.approx((low, high), abs=1e-12)
    assert min(found.exact or (0,)) >= 0.5 ** len(deltas)


@pytest.mark.parametrize("name", ["f1", "spearman", "macro_f1"])
def test_all_exchanges_of_few_units_are_those_of_scipy(name: str) -> None:
    rng = np.random.default_rng(3)
    gold = rng.integers(0, 2, 8).astype(float) if name != "spearman" else rng.normal(size=8)
    mine, theirs = (
        gold + rng.normal(size=8) if name == "spearman" else np.where(rng.random(8) < 0.5, gold, 1 - gold)
        for _ in range(2)
    )
    found = compared(*(units(name, one[None, None], gold) for one in (mine, theirs)), draws=1000)

    def statistic(one: Floats, other: Floats) -> float:
        return BY_HAND[name](gold, one) - BY_HAND[name](gold, other)

    for alternative, p in zip(("less", "greater"), found.exact or (), strict=True):
        exact = scipy.stats.permutation_test(
            (mine, theirs),
            statistic,
            permutation_type="samples",
            n_resamples=np.inf,
            alternative=alternative,
        )
        assert p == pytest.approx(exact.pvalue)


def test_where_there_are_too_many_exchanges_a_sample_is_drawn() -> None:
    theirs = np.ones(100)
    mine = theirs.copy()
    mine[:30] = 0.0
    mine[30:40] = 2.0
    found = compared(means(mine), means(theirs), draws=9999)
    low = sum(comb(40, k) for k in range(11)) / 2**40
    assert found.exact is not None
    assert 1 / 10_000 <= found.exact[0] <= low + 10 / 10_000
    assert found.exact[1] == pytest.approx(1, abs=0.01)


def test_chance_is_counted_out_only_of_few_units_and_single_runs() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.random(ALIKE), rng.random(ALIKE)
    assert compared(means(one), means(other), draws=1000).exact is None
    assert compared(means(one[1:]), means(other[1:]), draws=1000).exact is not None
    assert compared(means(one[1:], one[1:]), means(other[1:]), draws=1000).exact is None
    assert compared(means(one[1:]), means(one[1:]), draws=1000).exact is None


# Alike


@pytest.mark.parametrize("count", [2, 10, 2000])
@pytest.mark.parametrize("name", ["mean", "spearman"])
def test_that_no_unit_differs_does_not_make_it_certain(name: str, count: int) -> None:
    values = np.random.default_rng(0).random(count)
    one = units(name, values[None, None], None if name == "mean" else np.arange(count, dtype=float))
    found = compared(one, one, draws=1000)
    assert found.delta == 0
    assert np.sqrt(found.examples.variance) == pytest.approx(1 / (count + 2))


@pytest.mark.parametrize("count", [2, 3, 10])
def test_that_all_units_differ_by_the_same_does_not_make_it_certain(count: int) -> None:
    """All answers right on one side and wrong on the other, in two strata, which are not counted out."""
    stratum = replace(means(np.ones(count)).strata[0], share=0.5)
    right = Units(metric="m", unit="u", strata=(stratum, stratum))
    wrong = Units(metric="m", unit="u", strata=(replace(stratum, predicted=0 * stratum.predicted),) * 2)
    found = compared(wrong, right, draws=1000)
    assert found.delta == -1
    assert found.examples.variance == pytest.approx(0.5 / (count + 2) ** 2)
    assert _p_regressed(found, 0.0) > 0


def test_similarities_that_rank_alike_are_not_certain_of_few_pairs() -> None:
    gold = np.array([1.0, 2.0])
    one, other = (units("spearman", gold[None, None] * factor, gold) for factor in (1, 2))
    found = compared(one, other, draws=1000)
    assert found.delta == 0
    assert found.examples.variance == pytest.approx(1 / 16)


def test_one_record_on_both_sides_is_certain() -> None:
    found = Difference(
        mine=(0.5,), theirs=(0.5,), units=10, examples=Part(variance=0.0, freedom=1), same=True
    )
    assert found.seeds is None
    assert (_p_regressed(found, 0.0), _p_improved(found)) == (1.0, 1.0)


def test_the_same_seed_gives_the_same_numbers() -> None:
    rng = np.random.default_rng(0)
    one, other = means(rng.random(300)), means(rng.random(300))
    assert compared(one, other, draws=1000) == compared(one, other, draws=1000)


# Resamples: their moments are those of drawing with replacement, or of its limit


def resampled(units: int, count: int, seed: int = 0) -> np.ndarray:
    return np.concatenate(list(_blocks(units, count, np.random.default_rng(seed)))).astype(np.float64)


@pytest.mark.parametrize("units", [1, 2, 7, FEW - 1, FEW, 1000, 200_000])
@pytest.mark.parametrize("count", [1, 3, 7])
def test_there_are_as_many_as_asked_for_in_blocks_that_are_not_too_large(units: int, count: int) -> None:
    found = list(_blocks(units, count, np.random.default_rng(0)))
    assert sum(len(block) for block in found) == count
    assert all(block.shape[1] == units and block.dtype == np.float32 for block in found)
    assert all(len(block) == 1 or block.size <= DRAWS_AT_ONCE for block in found)
    assert all((block >= 0).all() and (block == block.round()).all() for block in found)


@pytest.mark.parametrize("units", [2, 5, FEW - 1])
def test_of_few_as_many_are_drawn_as_there_are(units: int) -> None:
    assert set(resampled(units, 500).sum(axis=1)) == {units}


def test_three_units_are_drawn_with_the_probabilities_of_the_multinomial() -> None:
    count = 60_000
    seen = Counter(map(tuple, resampled(3, count).astype(int).tolist()))
    exact = Counter(tuple(np.bincount(one, minlength=3).tolist()) for one in product(range(3), repeat=3))
    assert seen.keys() == exact.keys()
    for one, times in exact.items():
        chance = times / 27
        assert abs(seen[one] / count - chance) < 5 * np.sqrt(chance / count)


@pytest.mark.parametrize("units", [FEW, 1000])
def test_of_many_each_is_drawn_once_on_average_with_variance_one(units: int) -> None:
    found = resampled(units, 8000)
    size = found.size
    assert found.mean() == pytest.approx(1, abs=5 / np.sqrt(size))
    assert found.var() == pytest.approx(1, abs=5 * np.sqrt(3 / size))
    for count in range(6):
        chance = poisson.pmf(count, 1)
        assert (found == count).mean() == pytest.approx(chance, abs=5 * np.sqrt(chance / size) + 1e-5)


@pytest.mark.parametrize(("units", "expected"), [(50, -1 / 49), (FEW, 0.0)])
def test_units_are_independent_but_for_their_sum(units: int, expected: float) -> None:
    count = 20_000
    related = np.corrcoef(resampled(units, count).T)
    apart = related[~np.eye(units, dtype=bool)]
    assert apart.mean() == pytest.approx(expected, abs=5 / np.sqrt(count * units * (units - 1) / 2))
    assert np.abs(apart - expected).max() < 6 / np.sqrt(count)


def test_rows_are_independent() -> None:
    found = resampled(FEW, 20_000)
    first, second = found[:-1].ravel(), found[1:].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(first.size)


def test_chance_comes_from_the_generator_alone() -> None:
    for size in (20, 500):
        assert (resampled(size, 100, seed=3) == resampled(size, 100, seed=3)).all()
        assert (resampled(size, 100, seed=3) != resampled(size, 100, seed=4)).any()
