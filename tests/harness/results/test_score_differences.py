"""Differences against analytic standard errors, a bootstrap of indices, and the truth of simulations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import stdev, variance

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
from simulate_changes import draw_accuracy, draw_ndcg, draw_precision, draw_spearman

from fakes import task
from harness.core.types import Column, Suite
from harness.results.score_differences import (
    Difference,
    MeanDifference,
    Part,
    Uncertainty,
)
from harness.results.units import GROUPS, Stratum, Units
from harness.results.weighted_metrics import Floats

compared = Difference.compare_units


def units(measure: str, predicted: Floats, gold: Floats | None = None) -> Units:
    """Units of (runs, probes, units)."""
    stratum = Stratum(
        measures=(measure,), examples="", gold=np.zeros(0) if gold is None else gold, predicted=predicted
    )
    return Units(metric=measure, unit="units", strata=(stratum,))


def means(*runs: Floats) -> Units:
    return units("mean", np.stack(runs)[:, None, :])


@pytest.mark.parametrize("count", [12, 150, 1000])
def test_the_error_of_a_mean_is_the_paired_one(count: int) -> None:
    rng = np.random.default_rng(count)
    theirs = rng.random(count)
    mine = theirs + rng.normal(0.02, 0.1, count)
    found = compared(means(mine), means(theirs))
    assert found.delta == pytest.approx((mine - theirs).mean())
    analytic = (mine - theirs).var(ddof=1) / count
    assert found.examples.variance == pytest.approx(analytic)
    assert found.examples.freedom == pytest.approx(count - 1, rel=0.25)
    assert (found.seeds, found.noise, found.units) == (None, None, count)


def test_the_p_value_of_a_mean_is_nearly_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.random(400)
    mine = theirs + rng.normal(-0.01, 0.1, 400)
    found = compared(means(mine), means(theirs))
    test = scipy.stats.ttest_rel(mine, theirs, alternative="less")
    assert found.compute_loss_p() == pytest.approx(test.pvalue, rel=0.05)
    assert found.compute_bound_p(0.0) == pytest.approx(1 - test.pvalue, rel=0.05)


def spearman(gold: Floats, predicted: Floats) -> float:
    return float(scipy.stats.spearmanr(gold, predicted).statistic)


BY_HAND: dict[str, Callable[[Floats, Floats], float]] = {
    "spearman": spearman,
    "mcc": lambda g, p: float(sklearn.metrics.matthews_corrcoef(g, p)),
    "f1": lambda g, p: float(sklearn.metrics.f1_score(g, p, zero_division=0)),
    "macro_f1": lambda g, p: float(sklearn.metrics.f1_score(g, p, average="macro", zero_division=0)),
    "average_precision": lambda g, p: float(sklearn.metrics.average_precision_score(g, p)),
}


@pytest.mark.parametrize("count", [60, GROUPS + 400])
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
    rows = rng.integers(0, count, size=(250, count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        deltas = [score(gold[at], mine[at]) - score(gold[at], theirs[at]) for at in rows]
    spread = stdev(deltas) * np.sqrt(count / (count - 1))
    assert np.sqrt(found.examples.variance) == pytest.approx(spread, rel=0.2)


def test_the_interval_of_a_score_is_students_for_a_mean_and_the_jackknifes_for_a_correlation() -> None:
    """By scipy: t's interval of a mean, its jackknife by leaving out, and the bounds by Fisher's z."""
    rng = np.random.default_rng(5)
    shares = (rng.random(150) < 0.8).astype(float)
    interval = scipy.stats.t.interval(0.95, 149, loc=shares.mean(), scale=scipy.stats.sem(shares))
    half = units("mean", shares[None, None]).estimate_half_width()
    assert half == pytest.approx((interval[1] - interval[0]) / 2)
    gold = rng.normal(size=150)
    predicted = gold + rng.normal(size=150)
    left_out = [
        scipy.stats.spearmanr(np.delete(gold, at), np.delete(predicted, at)).statistic for at in range(150)
    ]
    error = np.sqrt(149 / 150 * np.sum((left_out - np.mean(left_out)) ** 2))
    half = units("spearman", predicted[None, None], gold).estimate_half_width()
    assert half == pytest.approx(scipy.stats.t.ppf(0.975, 149) * error)
    fisher = scipy.stats.pearsonr(gold, predicted).confidence_interval(0.95)
    assert half == pytest.approx((fisher.high - fisher.low) / 2, rel=0.25)


def test_units_that_are_alike_or_alone_have_no_interval() -> None:
    assert units("mean", np.ones((1, 1, 9))).estimate_half_width() is None
    assert units("mean", np.ones((1, 1, 1))).estimate_half_width() is None


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
            replace(means(pair[at]).strata[0], share=share, examples=str(len(pair[0])))
            for pair, share in zip(pairs, shares, strict=True)
        ]
        return Units(metric="m", unit="u", strata=tuple(strata))

    found = compared(model(0), model(1))
    parts = [0.25 * (a - b).var(ddof=1) / size for (a, b), size in zip(pairs, sizes, strict=True)]
    assert found.delta == pytest.approx(np.mean([(a - b).mean() for a, b in pairs]))
    assert found.examples.variance == pytest.approx(sum(parts))
    freedom = sum(parts) ** 2 / sum(p**2 / (n - 1) for p, n in zip(parts, sizes, strict=True))
    assert found.examples.freedom == pytest.approx(freedom, rel=0.1)


# Runs


def runs_part(mine: Sequence[float], theirs: Sequence[float], *, paired: bool = False) -> Part:
    part = Part.estimate_run_part(mine, theirs, paired=paired)
    assert part is not None
    return part


@pytest.mark.parametrize(("times", "wider"), [(1, "Student"), (3, "Welch")])
def test_of_unlike_numbers_of_runs_the_wider_test_counts(times: float, wider: str) -> None:
    """Student's of both sides, and Welch's with more degrees of freedom than his of 1947, SciPy's."""
    mine, theirs = [0.51, 0.55, 0.50], [0.52, 0.60, 0.47, 0.49, 0.58]
    mine = [times * score for score in mine]
    part = runs_part(mine, theirs)
    test = scipy.stats.ttest_ind(mine, theirs, equal_var=wider == "Student")
    delta = np.mean(mine) - np.mean(theirs)
    assert delta / np.sqrt(part.variance) == pytest.approx(test.statistic)
    assert part.freedom == 6 if wider == "Student" else test.df < part.freedom < 6


def test_paired_runs_are_those_of_the_paired_test() -> None:
    mine, theirs = [0.51, 0.55, 0.50], [0.50, 0.53, 0.51]
    part = runs_part(mine, theirs, paired=True)
    test = scipy.stats.ttest_rel(mine, theirs)
    assert part.freedom == test.df == 2
    assert (np.mean(mine) - np.mean(theirs)) / np.sqrt(part.variance) == pytest.approx(test.statistic)


def test_a_single_run_is_as_uncertain_as_those_of_the_other_side() -> None:
    theirs = [0.5, 0.6, 0.7]
    for mine, others in (([0.4], theirs), (theirs, [0.4])):
        part = runs_part(mine, others)
        assert part.variance == pytest.approx(0.01 * (1 + 1 / 3))
        assert part.freedom == 2
    assert Part.estimate_run_part([0.4], [0.5], paired=False) is None


def test_runs_without_spread_add_nothing() -> None:
    assert Part.estimate_run_part([0.5, 0.5], [0.5, 0.5], paired=False) == Part(variance=0.0, freedom=2)
    assert Part.estimate_run_part([0.6, 0.5], [0.5, 0.4], paired=True) == Part(
        variance=pytest.approx(0), freedom=1
    )


def test_parts_add_up_with_the_freedom_of_welch_and_satterthwaite() -> None:
    found = Part.sum([Part(variance=2.0, freedom=10), Part(variance=1.0, freedom=2)])
    assert found == Part(variance=3.0, freedom=pytest.approx(9 / (4 / 10 + 1 / 2)))
    assert Part.sum([Part(variance=2.0, freedom=5), Part(variance=0.0, freedom=1)]).freedom == pytest.approx(
        5
    )


def test_runs_are_a_level_above_the_units() -> None:
    """What a seed adds to all scores at once is in the runs' part alone, whatever the units say."""
    rng = np.random.default_rng(0)
    hard = rng.random(2000)
    shifts = (0.05, -0.03, 0.01), (0.0, 0.02, -0.04)
    mine, theirs = (means(*(hard + s for s in side)) for side in shifts)
    found = compared(mine, theirs)
    expected = runs_part([hard.mean() + s for s in shifts[0]], [hard.mean() + s for s in shifts[1]])
    assert found.examples.variance < 1e-8
    assert found.seeds is not None
    assert found.seeds.variance == pytest.approx(expected.variance)
    assert found.total.variance == pytest.approx(found.examples.variance + expected.variance)
    assert found.noise == pytest.approx(stdev(shifts[1]))


def test_what_runs_do_on_single_units_counts_once() -> None:
    """Runs that answer single units at random have no spread of their own beyond that of their units."""
    rng = np.random.default_rng(0)
    trials = [compared(*(means(*rng.normal(0.5, 0.3, size=(5, 400))) for _ in range(2))) for _ in range(300)]
    true = variance([one.delta for one in trials])
    claimed = np.mean([one.total.variance for one in trials])
    assert true == pytest.approx(2 * 0.3**2 / 5 / 400, rel=0.2)
    assert claimed == pytest.approx(true, rel=0.4)
    assert np.mean([runs_part(one.mine, one.theirs).variance for one in trials]) > 0.8 * true


def test_runs_alike_by_chance_are_as_uncertain_as_so_few_runs() -> None:
    """What single runs do on single units is in the spread of runs, and leaves the part of the units."""
    rng = np.random.default_rng(1)
    found = compared(*(means(*rng.normal(0.5, 0.3, size=(3, 400))) for _ in range(2)))
    expected = 2 * 0.3**2 / 3 / 400
    assert found.noise_in_units == pytest.approx(expected, rel=0.1)
    assert found.seeds == runs_part(found.mine, found.theirs)
    assert 0 < found.seeds.variance < 0.6 * expected
    assert found.examples.variance < 0.3 * expected
    columns = (Column(name="A", type="t", tasks=(task("A"),)),)
    mean = MeanDifference.aggregate_suite(Suite(name="s", title="", columns=columns), {"A": found})
    assert mean is not None
    assert (mean.seeds, mean.examples) == (found.seeds, found.examples)


# The same units in several places


def test_the_same_units_in_two_subsets_count_once() -> None:
    rng = np.random.default_rng(0)
    mine, theirs = rng.random(200), rng.random(200)

    def model(values: Floats, second: str) -> Units:
        first = replace(means(values).strata[0], share=0.5, examples="a")
        return Units(metric="m", unit="u", strata=(first, replace(first, examples=second)))

    translated = compared(model(mine, "a"), model(theirs, "a"))
    apart = compared(model(mine, "b"), model(theirs, "b"))
    assert translated.examples.variance == pytest.approx(
        compared(means(mine), means(theirs)).examples.variance
    )
    assert apart.examples.variance == pytest.approx(translated.examples.variance / 2)


def test_the_same_units_in_two_tasks_of_a_mean_count_once() -> None:
    rng = np.random.default_rng(0)
    mine, theirs = rng.random(200), rng.random(200)
    one = compared(means(mine), means(theirs))
    suite = Suite(
        name="s", title="", columns=tuple(Column(name=n, type="t", tasks=(task(n),)) for n in ("A", "B"))
    )
    both = MeanDifference.aggregate_suite(suite, {"A": one, "B": one})
    assert both is not None
    assert both.examples.variance == pytest.approx(one.examples.variance)


# Copies


def named(one: Units, names: Sequence[int], *, examples: str = "") -> Units:
    stratum = replace(one.strata[0], names=np.array(names, dtype=np.uint64), examples=examples)
    return replace(one, strata=(stratum,))


@pytest.mark.parametrize("name", ["mean", "spearman", "average_precision", "weighted_f1"])
@pytest.mark.parametrize("times", [30, 80])
def test_twenty_units_many_times_over_are_twenty(name: str, times: int) -> None:
    """As many copies as no jackknife leaves out one by one (GROUPS) are no more than the units."""
    rng = np.random.default_rng(0)
    gold = rng.normal(size=20).round(1) if name == "spearman" else np.repeat([0.0, 1.0], 10)
    sides = [gold + noise * rng.normal(size=20) for noise in (0.9, 0.7)]
    sides = [one.round() for one in sides] if name == "weighted_f1" else sides
    few = [units(name, one[None, None], gold) for one in sides]
    many = [units(name, np.tile(one, times)[None, None], np.tile(gold, times)) for one in sides]
    once, copied, unknown = (
        compared(*few),
        compared(*(named(x, [*range(20)] * times) for x in many)),
        compared(*many),
    )
    assert (once.units, copied.units, unknown.units) == (20, 20, 20 * times)
    assert copied.delta == pytest.approx(once.delta, abs=1e-6)
    assert copied.examples.variance == pytest.approx(once.examples.variance, rel=0.05)
    assert copied.examples.freedom == pytest.approx(once.examples.freedom, rel=0.1)
    assert unknown.examples.variance < 2 * once.examples.variance / times


def test_units_are_copies_where_both_models_say_so() -> None:
    rng = np.random.default_rng(0)
    mine, theirs = means(rng.random(4)), means(rng.random(4))
    assert compared(named(mine, [7, 7, 8, 9]), named(theirs, [5, 5, 6, 6])).units == 3
    assert compared(named(mine, [7, 7, 8, 9]), theirs).units == 4


def test_a_text_of_two_splits_or_tasks_is_one_unit() -> None:
    """Half of the texts are in both: what these add is added up, of the others it is independent."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 400))
    values[1, :200] = values[0, 200:]
    ones = [
        compared(
            named(means(own), range(at, at + 400), examples=str(at)),
            named(means(own * 0), range(at, at + 400), examples=str(at)),
        )
        for own, at in zip(values, (0, 200), strict=True)
    ]
    columns = tuple(Column(name=n, type="t", tasks=(task(n),)) for n in ("A", "B"))
    both = MeanDifference.aggregate_suite(
        Suite(name="s", title="", columns=columns), dict(zip("AB", ones, strict=True))
    )
    assert both is not None
    # The mean of 400 values of variance 1, of which 200 count twice: (200 · 4 + 400) / 800².
    assert both.examples.variance == pytest.approx(1200 / 800**2, rel=0.1)


def test_runs_of_a_task_with_the_same_outputs_may_be_fewer() -> None:
    """Three runs of A beside one record of B on both sides, and beside two of them."""
    runs = Difference(
        mine=(0.6, 0.7, 0.8), theirs=(0.5, 0.6, 0.7), units=9, examples=Part(variance=0, freedom=1)
    )
    columns = tuple(Column(name=n, type="t", tasks=(task(n),)) for n in "AB")
    for same in ((0.4,), (0.3, 0.5)):
        other = replace(runs, mine=same, theirs=same, same=True)
        both = MeanDifference.aggregate_suite(
            Suite(name="s", title="", columns=columns), {"A": runs, "B": other}
        )
        assert both is not None
        assert both.mine == pytest.approx((0.5, 0.55, 0.6))
        assert both.theirs == pytest.approx((0.45, 0.5, 0.55))


# Ties


@pytest.mark.parametrize("count", [2, 10, 2000])
@pytest.mark.parametrize("name", ["mean", "spearman"])
def test_that_no_unit_differs_does_not_make_it_certain(name: str, count: int) -> None:
    """The bound is near that of Jeffreys for none of n: 1.92 / n."""
    values = np.random.default_rng(0).random(count)
    one = units(name, values[None, None], None if name == "mean" else np.arange(count, dtype=float))
    found = compared(one, one)
    assert found.delta == 0
    assert np.sqrt(found.examples.variance) == pytest.approx(1 / count)
    if count > 2:
        assert 1.6 < count * found.total.compute_bound_offset(0.95) < 2.0


@pytest.mark.parametrize("lost", [8, 20, 60])
def test_of_losses_of_one_size_the_bounds_are_those_of_a_count(lost: int) -> None:
    theirs = np.ones(1000)
    mine = theirs.copy()
    mine[:lost] = 0
    found = compared(means(mine), means(theirs))
    low, high = (
        found.delta + found.total.compute_bound_offset(0.05),
        found.delta + found.total.compute_bound_offset(0.95),
    )
    assert 1000 * -low == pytest.approx(scipy.stats.gamma.ppf(0.95, lost + 0.5), rel=0.15)
    jeffreys, normal = scipy.stats.gamma.ppf(0.05, lost + 0.5), lost - 1.645 * np.sqrt(lost)
    assert 1000 * -high == pytest.approx(
        min(jeffreys, normal), rel=0.25, abs=0.6
    )  # never nearer for its skewness


def ndcg(rng: np.random.Generator) -> Floats:
    levels = np.append(1 / np.log2(np.arange(2, 12)), 0.0)
    before, after = rng.choice(levels, (2, 150))
    return np.where(rng.random(150) < 0.15, after - before, 0.0)


def flips(rng: np.random.Generator) -> Floats:
    return rng.choice([-1.0, 0.0, 1.0], 300, p=[0.04, 0.94, 0.02])


def rare_losses(rng: np.random.Generator) -> Floats:
    return np.where(rng.random(600) < 0.02, -rng.uniform(0.5, 1, 600), 0.0)


@pytest.mark.parametrize(
    ("drawn", "truth"),
    [(ndcg, 0.0), (flips, -0.02), (rare_losses, -0.015), (lambda rng: rng.normal(0, 0.1, 12), 0.0)],
    ids=["nDCG with ties", "rare flips", "rare losses", "twelve units"],
)
def test_bounds_hold_the_truth_as_often_as_they_say(
    drawn: Callable[[np.random.Generator], Floats], truth: float
) -> None:
    rng, misses = np.random.default_rng(1), np.zeros(2)
    for _ in range(600):
        values = drawn(rng)
        found = compared(means(values), means(np.zeros(len(values))))
        misses += (
            found.delta + found.total.compute_bound_offset(0.05) > truth,
            found.delta + found.total.compute_bound_offset(0.95) < truth,
        )
    assert misses / 600 == pytest.approx([0.05, 0.05], abs=0.035), misses / 600


def test_the_share_below_a_bound_is_the_share_of_the_bound() -> None:
    parts = (Part(variance=0.04, freedom=7), Part(variance=0.04, freedom=50, third=-0.004))
    for chosen in (parts[:1], parts[1:], parts):
        found = Uncertainty(parts=chosen)
        for share in (0.001, 0.05, 0.6, 0.975):
            assert found.share_below(found.compute_bound_offset(share)) == pytest.approx(share, abs=1e-6)


def test_bounds_of_two_parts_are_those_of_each_at_a_right_angle() -> None:
    """Far out, five runs among many units give bounds of five runs: Student's t by SciPy, and hypot."""
    units, runs = Part(variance=0.0001, freedom=1e6), Part(variance=0.0004, freedom=4)
    both = Uncertainty(parts=(units, runs))
    for share in (0.0004, 0.05, 0.975):
        z, t = scipy.stats.norm.ppf(share), scipy.stats.t.ppf(share, 4)
        expected = np.sign(share - 0.5) * np.hypot(0.01 * z, 0.02 * t)
        assert both.compute_bound_offset(share) == pytest.approx(expected, rel=1e-4)
    assert both.variance == pytest.approx(0.0005)


def test_far_bounds_of_few_runs_hold_the_truth_as_often_as_they_say() -> None:
    """Two models of five runs, in 400,000 trials: beyond the bounds of 1 in 1,000 lie no more truths."""
    rng, trials, level = np.random.default_rng(3), 400_000, 0.001
    runs = rng.normal(0, 0.02, size=(2, 5, trials))
    delta = runs.mean(axis=1)[0] - runs.mean(axis=1)[1] + rng.normal(0, 0.005, trials)
    of_runs = runs.var(axis=1, ddof=1).sum(axis=0) / 5
    reach = np.hypot(
        0.005 * scipy.stats.norm.ppf(1 - level), np.sqrt(of_runs) * scipy.stats.t.ppf(1 - level, 8)
    )
    at = rng.integers(trials, size=20)
    for one in at:
        mine, theirs = runs[0, :, one].tolist(), runs[1, :, one].tolist()
        part = runs_part(mine, theirs)
        both = Uncertainty(parts=(Part(variance=0.005**2, freedom=1e9), part))
        assert both.compute_bound_offset(1 - level) == pytest.approx(reach[one], rel=1e-4)
    assert float((delta > reach).mean()) < level + 4 * np.sqrt(level / trials)


def test_one_record_on_both_sides_is_certain() -> None:
    found = Difference(
        mine=(0.5,), theirs=(0.5,), units=10, examples=Part(variance=0.0, freedom=1), same=True
    )
    assert found.seeds is None
    assert found.compute_two_sided_test() == (1.0, 0.0, 0.0)


def test_nothing_that_differs_is_no_loss() -> None:
    """A correlation of equal ranks has no variance: it is neither lower nor a discovery."""
    flat = Difference(mine=(0.5,), theirs=(0.5,), units=10, examples=Part(variance=0.0, freedom=1))
    assert (flat.compute_loss_p(), flat.compute_bound_p(0.0), flat.compute_two_sided_test()[0]) == (
        1.0,
        1.0,
        1.0,
    )
    assert replace(flat, mine=(0.49,)).compute_loss_p() == 0.0


def _units(measure: str, gold: Sequence[float], predicted: Sequence[Sequence[float]]) -> Units:
    """A task with a subset for each prediction; all have the same gold and the same ids."""
    strata = tuple(
        Stratum(measures=(measure,), share=1 / len(predicted), examples="e", gold=np.array(gold),
                predicted=np.array(values)[None, None])
        for values in predicted
    )  # fmt: skip
    return Units(metric="m", unit="pairs", strata=strata)


POSITIVES = [1.0] * 3 + [0.0] * 597
MIXED = [*np.linspace(0, 1, 600)]


@pytest.mark.parametrize(
    ("measure", "gold", "predicted", "deciding"),
    [
        ("spearman", [1.0, 2.0], [1.0, 2.0], 2),
        ("spearman", MIXED, MIXED, 600),
        ("average_precision", POSITIVES, POSITIVES, 3),  # at the end, which three positives decide
        ("average_precision", POSITIVES, MIXED, 600),  # the same order, but not at the end
        ("weighted_f1", MIXED, MIXED, 600),
    ],
)
def test_units_that_make_no_difference_might_have_differed(
    measure: str, gold: list[float], predicted: list[float], deciding: int
) -> None:
    """The same order on both sides proves no more than that few of the units would differ."""
    scale = 1.0 if measure == "weighted_f1" else 2.0
    one = Difference.compare_units(
        _units(measure, gold, [predicted]), _units(measure, gold, [[scale * value for value in predicted]])
    )
    assert one.delta == 0.0
    assert one.total.variance == pytest.approx(1 / deciding**2)
    low, high = one.compute_interval(0.05)
    assert low < 0 < high


@pytest.mark.parametrize("measure", ["mean", "spearman", "average_precision"])
def test_a_unit_that_differs_by_little_makes_no_bound_nearer_than_none_that_differs(measure: str) -> None:
    """One of twenty differs by next to nothing, as where two neighbours change places."""
    theirs = np.linspace(0, 1, 20)
    gold = theirs if measure == "spearman" else (np.arange(20) % 3 == 1).astype(float)
    mine = theirs.copy()
    mine[7] += 1e-6 if measure == "mean" else 0.06
    none, few = (
        compared(*(units(measure, one[None, None], gold) for one in pair)).total.compute_bound_offset(0.05)
        for pair in ((theirs, theirs), (mine, theirs))
    )
    assert few <= 0.6 * none < 0


def test_a_positive_alone_that_rises_a_place_is_no_sure_gain() -> None:
    gold = np.array([1.0] + [0.0] * 19)
    second, first = np.linspace(0.9, 0, 20), np.linspace(0.9, 0, 20)
    second[0] = 0.84
    found = compared(*(units("average_precision", one[None, None], gold) for one in (first, second)))
    assert found.delta == 0.5
    assert found.compute_interval(0.05)[0] < 0


def test_two_pairs_in_the_reverse_order_are_bounded_by_more_than_nothing() -> None:
    found = compared(
        *(
            units("spearman", np.array(own)[None, None], np.array([1.0, 2.0]))
            for own in ([2.0, 1.0], [1.0, 2.0])
        )
    )
    low, high = found.compute_interval(0.05)
    assert found.delta == pytest.approx(-2)
    assert low < -2.5 < -1.5 < high


def test_a_subset_at_its_end_counts_beside_another_with_the_same_ids() -> None:
    other = list(np.random.default_rng(4).random(600))
    ends, mixed = _units("spearman", MIXED, [MIXED, other]), _units("spearman", MIXED, [MIXED, MIXED[::-1]])
    (part,) = Difference.compare_units(ends, mixed).rest
    assert part.variance == pytest.approx((0.5 / 600) ** 2)


def test_a_baseline_at_its_end_has_an_error() -> None:
    one = Difference.estimate_null_difference(_units("spearman", MIXED, [MIXED]), changed=0.15)
    assert one.total.variance == pytest.approx(1 / 600**2)


@pytest.mark.parametrize("draw", [draw_ndcg, draw_accuracy, draw_spearman, draw_precision])
def test_the_bound_of_few_changed_answers_is_foretold(draw: Callable[..., tuple[Units, Units]]) -> None:
    """What an equal model is expected to be bounded by is what those that change 2 % of answers are."""
    rng, bounds = np.random.default_rng(1), []
    for _ in range(40):
        mine, theirs = draw(rng, 0.02, 0.0)
        both = compared(mine, theirs), Difference.estimate_null_difference(theirs, changed=0.02)
        bounds.append([one.total.compute_bound_offset(0.05) for one in both])
    found, foretold = np.mean(bounds, axis=0)
    assert foretold == pytest.approx(found, rel=0.2)


@pytest.mark.parametrize(("right", "count"), [(0.98, 200), (0.95, 100), (0.9, 100), (0.8, 500)])
def test_the_bound_of_rare_mistakes_is_foretold(right: float, count: int) -> None:
    """Of few answers that change, hardly one is a mistake; yet that one tells how far the bound is."""
    rng, bounds = np.random.default_rng(0), []
    while len(bounds) < 60:
        first, second = (rng.random((2, count)) < right).astype(float)
        second = np.where(rng.random(count) < 0.15, second, first)
        if first.all() or (first == second).all():
            continue
        one = compared(means(second), means(first))
        equal = Difference.estimate_null_difference(means(first), changed=0.15)
        bounds.append([each.total.compute_bound_offset(0.05) for each in (one, equal)])
    found, foretold = np.mean(bounds, axis=0)
    assert foretold == pytest.approx(found, rel=0.2)
