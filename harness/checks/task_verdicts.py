"""Verdicts of a check by one question, non-inferiority: is the candidate worse by more than the margin?

A task or a mean passes if the lower bound of its difference lies above -margin (one-sided at alpha). Else it
has regressed if the upper bound lies below 0 and the estimate below half of the margin, and is inconclusive
otherwise. Means are the primary endpoints; tasks are secondary, with Bonferroni's bound for red over those
that must not regress, and Benjamini and Hochberg's procedure for the list of suspects.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from harness.checks.outcome import MeanOutcome, Overall, PartLoss, Power, Sensitivity, TaskOutcome
from harness.checks.policy import AUTO, MEAN_POINTS, RED, TASK_POINTS, Policy
from harness.checks.sides import CheckSide, Comparison, mean_score, select_tested
from harness.core.types import Suite, Task
from harness.plan import catalog
from harness.results.score_differences import LEAST_RUNS, Compared, Difference, MeanDifference

POWER, GREEN = 0.8, 0.975
"""The power of a detectable loss and of the counts that settle a line. With 3.6 standard errors as its margin
an equal model passes with a probability of 0.975."""

COUNTED = 30
"""Fewest units by which the number of units that would settle a line is told."""

ENOUGH = 0.8
"""A suite is said not to see its margin if an equal model passes with a lower probability."""

PRACTICAL, LATER = 20, "For later checks: "
"""The largest factor of further examples that is named ("more than" beyond it); begins a later remedy."""

POINT = 0.01
"""A point, the unit of a policy, as a share of 1."""

Outcome = TypeVar("Outcome", TaskOutcome, MeanOutcome)
Name = TypeVar("Name", str, tuple[str, str, str])


class _Levels(NamedTuple):
    """The level of passing, that at which one of so many tests calls a regression, and their number."""

    passing: float
    red: float
    tests: int


def _assign_levels(
    differing: Collection[str], suites: Sequence[Suite], policy: Policy
) -> tuple[dict[str, _Levels], _Levels]:
    """The levels of each task, those of a mean if it is alone in its suite, and of each mean.

    Tasks that are not among the `differing`, or that may regress, cannot be red: they take no share.
    """
    names = dict.fromkeys(task.name for suite in suites for task in suite.tasks)
    alone = {suite.tasks[0].name for suite in suites if len(suite.tasks) == 1}
    several = [name for name in names if name in differing and name not in alone and policy.forbids(name)]
    # Bonferroni: tests that share a level of red have equal parts of it.
    mean, tests = _Levels(policy.alpha, RED / len(suites), len(suites)), max(len(several), 1)
    task = _Levels(policy.alpha, policy.task_alpha / tests, tests)
    return {name: mean if name in alone else task for name in names}, mean


def _find_discoveries(tested: Mapping[Name, Difference], alpha: float, *, gain: bool) -> set[Name]:
    """Tasks or parts that are lower, or higher, at a false discovery rate (Benjamini and Hochberg, 1995)."""
    p = {
        name: one.compute_bound_p(0.0) if gain else one.compute_loss_p()
        for name, one in tested.items()
        if not one.same
    }
    order = sorted(p, key=lambda name: p[name])
    last = max((at for at, name in enumerate(order, 1) if p[name] <= alpha * at / len(order)), default=0)
    return set(order[:last])


def estimate_baseline_power(
    side: CheckSide, suites: Sequence[Suite], policy: Policy, trainings: int = 1
) -> Power:
    """What a check against a baseline can see, from the examples and runs of the baseline's `side`.

    `trainings` is the number of a candidate's models, where the baseline has several.
    """
    equal = side.estimate_null_differences(suites, policy.changed, trainings)
    (levels, of_mean), repeated = _assign_levels(equal, suites, policy), len(side.artifacts) > 1
    tasks = {
        task: _compute_sensitivity(equal.get(task), policy, own.red, task=task, repeated=repeated)
        for task, own in levels.items()
    }
    means = {}
    for suite in suites:
        mean = MeanDifference.aggregate_suite(suite, equal)
        line = _compute_sensitivity(mean, policy, of_mean.red, repeated=repeated)
        # The mean of a suite of one task is that task's score: both lines say the same.
        means[suite.name] = line if len(suite.tasks) > 1 else tasks[suite.tasks[0].name]
    return Power(tasks=tasks, means=means)


def _compute_sensitivity(
    equal: Compared | None, policy: Policy, red: float, *, task: str = "", repeated: bool
) -> Sensitivity:
    """The margin of a task or mean, with its power by the uncertainty of an equal model's difference."""
    from scipy.special import ndtri

    margin, least = (policy.margin_of(task), TASK_POINTS) if task else (policy.mean_margin, MEAN_POINTS)
    stated = policy.states("margin" if task else "mean_margin", task)
    start = (least if margin == AUTO else margin) * POINT
    line = Sensitivity(margin=start, source="policy" if stated else "default")
    if equal is None or equal.total.variance <= 0:
        return line
    part, alpha = equal.total, policy.alpha
    # An equal model's lower bound is above -margin in 97.5 % of checks if the margin is the offset of that
    # bound and 1.96 standard errors: 3.6 in all at alpha 0.05. Where few runs tell the error it is in fewer
    # (90 % by three), as a margin by their own quantile would be twice as wide.
    below = part.compute_bound_offset(alpha)
    automatic = -below + float(ndtri(GREEN)) * math.sqrt(part.variance)
    if margin == AUTO:
        share = _choose_margin(automatic, least, equal.baseline, policy)
        runs = repeated and len(equal.theirs) >= LEAST_RUNS
        line = replace(line, margin=share, source="runs" if runs else "stated")
    # A loss is red where its upper bound is below 0, its estimate below half of the margin, and its lower
    # bound not above -margin. The estimate must reach the farthest of the three, and POWER's offset more to
    # do so in 80 % of checks.
    farthest = max(part.even.compute_bound_offset(1 - red), line.margin / 2, line.margin + below)
    detectable = farthest + part.even.compute_bound_offset(POWER)
    return replace(
        line,
        automatic=automatic,
        detectable=detectable if detectable <= equal.baseline else None,
        # More examples leave what trainings add as it is.
        counted=equal.seeds is None and equal.examples.freedom >= COUNTED - 1,
        passing=part.even.share_below(line.margin + below),
    )


def _choose_margin(automatic: float, least: float, baseline: float, policy: Policy) -> float:
    """The margin "auto", from the default one to `most_margin`."""
    # A margin above the score would let anything pass.
    return min(max(least * POINT, min(automatic, baseline)), policy.most_margin * POINT)


def evaluate_comparison(
    sides: Comparison, suites: Sequence[Suite], policy: Policy, power: Power
) -> tuple[tuple[TaskOutcome, ...], tuple[MeanOutcome, ...]]:
    """The outcomes of every task and of every suite's mean, in the order of the suites.

    `power` has the margin of each task and mean.
    """
    tasks = list({task.name: task for suite in suites for task in suite.tasks}.values())
    averages = sides.select_averages(suites)
    differences = averages.compute_differences(tasks)
    tested = select_tested(differences)
    levels, of_mean = _assign_levels([n for n, one in tested.items() if not one.same], suites, policy)
    fallen, risen = (_find_discoveries(tested, policy.alpha, gain=gain) for gain in (False, True))
    lost, outcomes = _find_lost_parts(averages, tasks, policy), []
    for task in tasks:
        name, limit, difference = task.name, power.tasks[task.name], differences[task.name]
        mine, theirs = averages.candidate.scored[name], averages.baseline.scored[name]
        outcome = TaskOutcome(
            task=name, type=task.type, metric=task.metric, verdict="missing",
            suites=tuple(suite.name for suite in suites if any(one.name == name for one in suite.tasks)),
            must_not_regress=policy.forbids(name), margin=limit.margin, margin_source=limit.source,
            candidate=mean_score(mine), baseline=mean_score(theirs), runs=(len(mine), len(theirs)),
            candidate_keys=tuple(one.key for one in mine), baseline_keys=tuple(one.key for one in theirs),
        )  # fmt: skip
        if reason := averages.explain_missing_score(name):
            outcome = replace(outcome, reason=reason)
        elif isinstance(difference, str):
            delta = (outcome.candidate or 0) - (outcome.baseline or 0)
            outcome = replace(outcome, verdict="not testable", reason=difference, delta=delta)
        else:
            if units := mine[0].units:
                outcome = replace(outcome, unit=units.unit, metric=units.metric)
            outcome = _evaluate_task(outcome, difference, limit, levels[name], policy)
            # Of a hundred tasks of an equal model a few look better: only gains within the discovery rate are
            # called so.
            if outcome.verdict == "improved" and name not in risen:
                outcome = replace(outcome, verdict="passed")
            suspect = name in fallen and outcome.verdict != "regressed"
            outcome = replace(outcome, suspect=suspect, lost=tuple(lost.get(name, ())))
        outcomes.append(outcome)
    means = _evaluate_means(sides, suites, tested, power, of_mean, policy)
    for place, suite in enumerate(suites):
        alone = [one for one in outcomes if [one.task] == [task.name for task in suite.tasks]]
        if alone and means[place].delta is not None:
            means[place] = replace(means[place], p=alone[0].p)
            if alone[0].verdict == "regressed":
                means[place] = replace(means[place], verdict="regressed", to_settle="")
    return tuple(outcomes), tuple(means)


def evaluate_chain(
    sides: Comparison, suites: Sequence[Suite], policy: Policy, power: Power, baselines: int
) -> tuple[tuple[MeanOutcome, ...], dict[str, float]]:
    """Test each suite's mean against the anchor of a chain, and the difference of each tested task.

    Suites without a tested column are left out.

    The k-th baseline after the anchor spends a share 1 / (k (k + 1)) of the level, so that all checks of a
    chain together have the level 2 RED. The baseline of `sides` is the anchor, `power` has the margins of the
    check, and `baselines` is the number of baselines since the anchor.
    """
    tasks = list({task.name: task for suite in suites for task in suite.tasks}.values())
    tested = select_tested(sides.select_averages(suites).compute_differences(tasks))
    spent, budget = 2 * RED / (baselines * (baselines + 1)), policy.chain_margin
    limits = {name: replace(limit, detectable=None) for name, limit in power.means.items()}
    if budget != "mean_margin":
        limits = dict.fromkeys(limits, Sensitivity(margin=budget * POINT, source="policy"))
    levels = _Levels(policy.alpha, spent / len(suites), len(suites))
    means = _evaluate_means(sides, suites, tested, replace(power, means=limits), levels, policy)
    # Red is what has used up the budget, and not half of it: each step was judged by itself before.
    allowed = [one.verdict == "regressed" and (one.delta or 0.0) >= -one.margin for one in means]
    judged = tuple(
        replace(one, to_settle="", verdict="inconclusive" if within else one.verdict)
        for one, within in zip(means, allowed, strict=True)
        if one.delta is not None
    )
    return judged, {name: one.delta for name, one in tested.items()}


def _find_lost_parts(sides: Comparison, tasks: Sequence[Task], policy: Policy) -> dict[str, list[PartLoss]]:
    """By task its splits and subsets that are lower, over those of all tasks; the largest loss first."""
    tested = {
        (task.name, *cell): one
        for task in tasks
        for cell, one in sides.compute_subset_differences(task.name).items()
    }
    lost: dict[str, list[PartLoss]] = {}
    for name, split, subset in _find_discoveries(tested, policy.alpha, gain=False):
        difference = tested[name, split, subset]
        several = len({place for task, place, _ in tested if task == name}) > 1
        low, high = difference.compute_interval(policy.alpha)
        if several:
            # "default" is the subset of a task that has none.
            subset = split if subset == "default" else f"{subset} ({split})"
        part = PartLoss(
            part=subset, candidate=difference.candidate, baseline=difference.baseline,
            delta=difference.delta, low=low, high=high, p=difference.compute_loss_p(),
            units=difference.units, collapsed=difference.delta < -policy.collapse * POINT,
        )  # fmt: skip
        lost.setdefault(name, []).append(part)
    return {name: sorted(parts, key=lambda part: (part.delta, part.part)) for name, parts in lost.items()}


def _evaluate_task(
    untested: TaskOutcome, difference: Difference, limit: Sensitivity, levels: _Levels, policy: Policy
) -> TaskOutcome:
    """The outcome of a tested task."""
    outcome = replace(
        _apply_test(untested, difference, limit, levels, untested.unit), units=difference.units,
        runs=(len(difference.mine), len(difference.theirs)), noise=difference.noise,
    )  # fmt: skip
    if difference.same:
        record = untested.candidate_keys == untested.baseline_keys
        reason = "one and the same record" if record else "the same outputs on every example"
        return replace(outcome, reason=reason)
    # To be named, a fall must be sure by itself; to be red, also after the correction for the number of
    # tasks.
    fell = difference.delta <= -policy.collapse * POINT and difference.compute_interval(RED)[1] < 0
    if not fell or difference.compute_interval(levels.red)[1] >= 0:
        return replace(outcome, collapsed=fell)
    p = min(1.0, difference.compute_loss_p() * levels.tests)
    return replace(outcome, collapsed=True, verdict="regressed", p=p, to_settle="")


def _evaluate_means(
    sides: Comparison,
    suites: Sequence[Suite],
    tested: Mapping[str, Difference],
    power: Power,
    levels: _Levels,
    policy: Policy,
) -> list[MeanOutcome]:
    """The outcome of each suite's mean over its tested tasks."""
    means = []
    for suite in suites:
        limit, left_out = power.means[suite.name], len(suite.left_out)
        outcome = MeanOutcome(
            suite=suite.name, verdict="inconclusive", margin=limit.margin, wanted=len(suite.columns),
            left_out=left_out,
        )  # fmt: skip
        differences = {**tested, **sides.compute_part_differences(suite)}
        if mean := MeanDifference.aggregate_suite(suite, differences):
            left = f"some of the {left_out:,} tasks" if left_out > 1 else "the task"
            single, family = len(suite.tasks) == 1, catalog.SUITES.find_entry(suite.name.rpartition(":")[0])
            larger = f", e.g. {family.name}" if single and family and family.alone else ""
            # Tasks are more examples, and no more seeds.
            remedy = f" (add {left} left out, e.g. by --tasks)" if left_out else f" (a larger suite{larger})"
            outcome = _apply_test(outcome, mean, limit, levels, "examples", remedy)
            if outcome.to_settle:
                least, most = TASK_POINTS if single else MEAN_POINTS, outcome.baseline or 0.0
                wider, passing = _choose_margin(limit.automatic or 0.0, least, most, policy), limit.passing
                # A margin that most equal models pass is not widened because this one did not.
                if passing is not None and passing < ENOUGH and wider > limit.margin:
                    offer = f". {LATER}--margin auto, which allows {100 * wider:.2f}; at "
                    offer += (
                        f"{outcome.margin_text} even equal models pass only {100 * passing:.0f} % of checks"
                    )
                    outcome = replace(outcome, to_settle=outcome.to_settle + offer)
            outcome = replace(outcome, there=len(mean.columns), wanted=mean.wanted)
        means.append(outcome)
    return means


def _apply_test(
    untested: Outcome, compared: Compared, limit: Sensitivity, levels: _Levels, unit: str, remedy: str = ""
) -> Outcome:
    """An outcome with the numbers and the verdict of its test."""
    low, high = compared.compute_interval(levels.passing)[0], compared.compute_interval(levels.red)[1]
    verdict: Overall = "inconclusive"
    p = compared.compute_bound_p(-limit.margin)
    if compared.same:
        verdict = "same"
    elif low > -limit.margin:
        verdict = "improved" if low > 0 else "passed"
    elif high < 0 and compared.delta < -limit.margin / 2:
        verdict, p = "regressed", compared.compute_loss_p() * levels.tests
    return replace(
        untested, verdict=verdict, candidate=compared.candidate, baseline=compared.baseline,
        delta=compared.delta, low=low, high=high, p=None if compared.same else min(1.0, p),
        margin=limit.margin, margin_source=limit.source, detectable=limit.detectable,
        error=math.sqrt(compared.total.variance),
        to_settle="" if verdict != "inconclusive"
        else _describe_sample_size(compared, limit.margin, levels, unit, remedy),
    )  # fmt: skip


def _describe_sample_size(compared: Compared, margin: float, levels: _Levels, unit: str, remedy: str) -> str:
    """The units or seeds that would settle a verdict in 80 % of checks, if the observed difference is true.

    If more than half of the margin was lost, it is the number that shows a regression, else the number that
    shows a loss smaller than the margin.
    """
    from scipy.special import ndtri

    lost = compared.delta < -margin / 2
    distance, level = margin + compared.delta, levels.passing
    if lost:
        distance, level = -compared.delta, levels.red
    target_variance = (distance / float(ndtri(1 - level) + ndtri(POWER))) ** 2
    by_seeds, by_units = compared.seeds.variance if compared.seeds else 0.0, compared.examples.variance
    # The harmonic mean: with so many runs of each side the variance from runs is the same.
    seeds = 2 / (1 / len(compared.mine) + 1 / len(compared.theirs))
    counted = compared.examples.freedom >= COUNTED - 1
    units = by_units / (target_variance - by_seeds) if counted and target_variance > by_seeds else 0.0
    runs = seeds * by_seeds / (target_variance - by_units) if target_variance > by_units else 0.0
    options = []
    if units > 1:
        times = f"about {units:.1f}" if units <= PRACTICAL else f"more than {PRACTICAL}"
        options.append(f"{times} times as many {unit}{' to show this loss' if lost else ''}{remedy}")
    if runs > seeds:
        needed = math.ceil(runs)
        sides = {"the candidate": compared.mine, "the baseline": compared.theirs}
        short = [side for side, values in sides.items() if len(values) < needed]
        options.append(f"about {needed:,} seeds of {short[0] if len(short) == 1 else 'each'} in all")
    more = f"more {unit}{remedy}"
    return " or ".join(options) or (f"more seeds and {more}" if compared.seeds else more)
