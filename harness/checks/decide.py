"""Verdicts of a check by one question, non-inferiority: is the candidate worse by more than the margin?

A task or a mean passes if the lower bound of its difference lies above -margin (one-sided at alpha). Else it
has regressed if the upper bound lies below 0 and the estimate below half of the margin, and is inconclusive
otherwise. Means are the primary endpoints; tasks are secondary, with Bonferroni's bound for red over those
that must not regress, and Benjamini and Hochberg's procedure for the list of suspects (both in
`significance.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.checks.difference import LEAST_RUNS, Compared, Difference, MeanDifference
from harness.checks.outcome import MeanOutcome, Overall, PartLoss, Power, Sensitivity, TaskOutcome
from harness.checks.policy import AUTO, MEAN_POINTS, RED, TASK_POINTS, Policy
from harness.checks.sides import CheckSide, Comparison, mean_score, select_tested
from harness.checks.significance import (
    SharedLevel,
    assign_task_levels,
    compute_bound_p,
    compute_confidence_interval,
    compute_loss_p,
    find_discoveries,
)
from harness.core.types import Suite, Task

POWER, GREEN = 0.8, 0.975
"""The power of a detectable loss and of the counts that settle a line. With 3.6 standard errors as its margin
an equal model passes with a probability of 0.975."""

COUNTED = 30
"""Fewest units by which the number of units that would settle a line is told."""

ENOUGH = 0.8
"""A suite is said not to see its margin if an equal model passes with a lower probability."""

PRACTICAL = 20
"""The largest factor of further examples that is named; beyond it the text says "more than"."""

POINT = 0.01
"""A point, the unit of a policy, as a share of 1."""

Outcome = TypeVar("Outcome", TaskOutcome, MeanOutcome)


def estimate_baseline_power(
    side: CheckSide, suites: Sequence[Suite], policy: Policy, *, trainings: int = 1
) -> Power:
    """What a check against a baseline can see, from the baseline's own examples and runs.

    Args:
        side: The baseline's records.
        suites: The suites of the check.
        policy: Margins and levels.
        trainings: The number of a candidate's models, where the baseline has several.
    """
    equal = side.estimate_null_differences(suites, policy.changed, trainings)
    # The levels are those of evaluate_comparison, before it is known which tasks can be tested.
    names = dict.fromkeys(task.name for suite in suites for task in suite.tasks)
    red = policy.task_alpha / max(sum(map(policy.forbids, names)), 1), RED / len(suites)
    # The mean of a suite of one task is that task's score: both lines have one level, and say the same.
    alone = {suite.tasks[0].name for suite in suites if len(suite.tasks) == 1}
    repeated = len(side.artifacts) > 1
    tasks = {
        task: _compute_sensitivity(equal.get(task), policy, red[task in alone], task=task, repeated=repeated)
        for task in names
    }
    means = {}
    for suite in suites:
        difference = MeanDifference.aggregate_suite(suite, equal)
        mean = _compute_sensitivity(difference, policy, red[1], repeated=repeated)
        means[suite.name] = tasks[suite.tasks[0].name] if len(suite.tasks) == 1 else mean
    return Power(tasks=tasks, means=means)


def _compute_sensitivity(
    equal: Compared | None, policy: Policy, red: float, *, task: str = "", repeated: bool
) -> Sensitivity:
    """The margin of a task or mean, with its power by the uncertainty of an equal model's difference."""
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
    automatic = -below + _compute_effect_size(0.5, GREEN) * math.sqrt(part.variance)
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
        counted=equal.examples.variance > 0 and equal.examples.freedom >= COUNTED - 1,
        passing=part.even.share_below(line.margin + below),
    )


def _choose_margin(automatic: float, least: float, baseline: float, policy: Policy) -> float:
    """The margin "auto", from the default one to `most_margin`."""
    # A margin above the score would let anything pass.
    return min(max(least * POINT, min(automatic, baseline)), policy.most_margin * POINT)


def _compute_effect_size(level: float, power: float) -> float:
    """The effect, in standard errors, that a one-sided test at a level finds with this power."""
    from scipy.special import ndtri

    return float(ndtri(1 - level) + ndtri(power))


@dataclass(frozen=True, kw_only=True)
class _Decisions:
    """The outcomes of every task and of every suite's mean, in the order of the suites."""

    tasks: tuple[TaskOutcome, ...]
    means: tuple[MeanOutcome, ...]


def evaluate_comparison(
    sides: Comparison, suites: Sequence[Suite], policy: Policy, power: Power
) -> _Decisions:
    """Test every task and every suite's mean.

    Args:
        sides: The records of both sides.
        suites: The suites of the check.
        policy: Levels, and the tasks that must not regress.
        power: The margin of each task and mean.
    """
    tasks = list({task.name: task for suite in suites for task in suite.tasks}.values())
    averages = sides.select_averages(suites)
    differences = averages.compute_differences(tasks)
    tested = select_tested(differences)
    levels = assign_task_levels(tested, suites, policy)
    fallen, risen = (find_discoveries(tested, policy.alpha, gain=gain) for gain in (False, True))
    lost = _find_lost_parts(averages, tasks, policy)
    outcomes = []
    for task in tasks:
        limit = power.tasks[task.name]
        outcome = _build_task_outcome(averages, task, limit, policy)
        homes = [suite.name for suite in suites if any(one.name == task.name for one in suite.tasks)]
        outcome = replace(outcome, suites=tuple(homes))
        difference = differences.get(task.name)
        if difference is None:
            outcome = replace(outcome, reason=averages.explain_missing_score(task.name))
        elif isinstance(difference, str):
            delta = (outcome.candidate or 0) - (outcome.baseline or 0)
            outcome = replace(outcome, verdict="not testable", reason=difference, delta=delta)
        else:
            outcome = _evaluate_task(outcome, averages, difference, limit, levels[task.name], policy)
            # Of a hundred tasks of an equal model a few look better: only gains within the discovery rate are
            # called so.
            if outcome.verdict == "improved" and task.name not in risen:
                outcome = replace(outcome, verdict="passed")
            suspect = task.name in fallen and outcome.verdict != "regressed"
            outcome = replace(outcome, suspect=suspect, lost=tuple(lost.get(task.name, ())))
        outcomes.append(outcome)
    means = []
    for suite in suites:
        mean = MeanDifference.aggregate_suite(suite, tested | sides.compute_part_differences(suite))
        level = SharedLevel(alpha=RED, tests=len(suites))
        of_mean = _evaluate_mean(suite, mean, power.means[suite.name], level, policy)
        alone = [one for one in outcomes if [one.task] == [task.name for task in suite.tasks]]
        if alone and mean is not None:
            verdict = "regressed" if alone[0].verdict == "regressed" else of_mean.verdict
            of_mean = replace(of_mean, verdict=verdict, p=alone[0].p)
        if of_mean.to_settle:
            settle = _describe_remedies(suite, of_mean, power.means[suite.name], policy)
            of_mean = replace(of_mean, to_settle=settle)
        means.append(of_mean)
    return _Decisions(tasks=tuple(outcomes), means=tuple(means))


def evaluate_chain(
    sides: Comparison, suites: Sequence[Suite], policy: Policy, power: Power, baselines: int
) -> tuple[MeanOutcome, ...]:
    """Test each suite's mean against the anchor of a chain; suites without a tested column are left out.

    The k-th baseline after the anchor spends a share 1 / (k (k + 1)) of the level, so that all checks of a
    chain together have the level 2 RED.

    Args:
        sides: The records of the candidate, and of the anchor as the baseline.
        suites: The suites of the check.
        policy: Levels and the budget.
        power: The margins of the check.
        baselines: The number of baselines since the anchor.
    """
    tasks = list({task.name: task for suite in suites for task in suite.tasks}.values())
    tested = select_tested(sides.select_averages(suites).compute_differences(tasks))
    level, means = SharedLevel(alpha=2 * RED / (baselines * (baselines + 1)), tests=len(suites)), []
    for suite in suites:
        limit, budget = power.means[suite.name], policy.chain_margin
        if budget != "mean_margin":
            limit = Sensitivity(margin=budget * POINT, source="policy")
        mean = MeanDifference.aggregate_suite(suite, tested | sides.compute_part_differences(suite))
        outcome = _evaluate_mean(suite, mean, replace(limit, detectable=None), level, policy)
        # Red is what has used up the budget, and not half of it: each step was judged by itself before.
        if outcome.verdict == "regressed" and (outcome.delta or 0.0) >= -outcome.margin:
            outcome = replace(outcome, verdict="inconclusive")
        means += [replace(outcome, to_settle="")] if outcome.delta is not None else []
    return tuple(means)


def _find_lost_parts(sides: Comparison, tasks: Sequence[Task], policy: Policy) -> dict[str, list[PartLoss]]:
    """By task its splits and subsets that are lower, over those of all tasks; the largest loss first."""
    tested = {
        (task.name, *cell): one
        for task in tasks
        for cell, one in sides.compute_subset_differences(task.name).items()
    }
    lost: dict[str, list[PartLoss]] = {}
    for name, split, subset in find_discoveries(tested, policy.alpha, gain=False):
        difference = tested[name, split, subset]
        several = len({place for task, place, _ in tested if task == name}) > 1
        low, high = compute_confidence_interval(difference, policy.alpha)
        part = PartLoss(
            part=f"{subset} ({split})" if several else subset,
            candidate=difference.candidate, baseline=difference.baseline, delta=difference.delta,
            low=low, high=high, p=compute_loss_p(difference), units=difference.units,
            collapsed=difference.delta < -policy.collapse * POINT,
        )  # fmt: skip
        lost.setdefault(name, []).append(part)
    return {name: sorted(parts, key=lambda part: (part.delta, part.part)) for name, parts in lost.items()}


def _build_task_outcome(sides: Comparison, task: Task, limit: Sensitivity, policy: Policy) -> TaskOutcome:
    """The outcome of a task before any test: its margin, and the scores that exist."""
    mine, theirs = sides.candidate.scored[task.name], sides.baseline.scored[task.name]
    return TaskOutcome(
        task=task.name, type=task.type, metric=task.metric, verdict="missing",
        must_not_regress=policy.forbids(task.name), margin=limit.margin, margin_source=limit.source,
        candidate=mean_score(mine), baseline=mean_score(theirs), runs=(len(mine), len(theirs)),
        candidate_keys=tuple(one.key for one in mine), baseline_keys=tuple(one.key for one in theirs),
    )  # fmt: skip


def _evaluate_task(
    untested: TaskOutcome,
    sides: Comparison,
    difference: Difference,
    limit: Sensitivity,
    level: SharedLevel,
    policy: Policy,
) -> TaskOutcome:
    """The outcome of a tested task."""
    units = sides.candidate.scored[untested.task][0].units
    unit, metric = (units.unit, units.metric) if units is not None else ("", untested.metric)
    outcome = replace(
        _apply_test(untested, difference, limit, level, policy.alpha, unit), metric=metric, unit=unit,
        units=difference.units, runs=(len(difference.mine), len(difference.theirs)), noise=difference.noise,
    )  # fmt: skip
    if difference.same:
        record = untested.candidate_keys == untested.baseline_keys
        reason = "one and the same record" if record else "the same outputs on every example"
        return replace(outcome, reason=reason)
    if difference.delta > -policy.collapse * POINT or compute_confidence_interval(difference, RED)[1] >= 0:
        return outcome
    # To be named, a fall must be sure by itself; to be red, also after the correction for the number of
    # tasks.
    if compute_confidence_interval(difference, level.each)[1] >= 0:
        return replace(outcome, collapsed=True)
    p = min(1.0, compute_loss_p(difference) * level.tests)
    return replace(outcome, collapsed=True, verdict="regressed", p=p, to_settle="")


def _evaluate_mean(
    suite: Suite, mean: MeanDifference | None, limit: Sensitivity, level: SharedLevel, policy: Policy
) -> MeanOutcome:
    """The outcome of a suite's mean."""
    untested = MeanOutcome(
        suite=suite.name, verdict="inconclusive", margin=limit.margin, wanted=len(suite.columns),
        left_out=len(suite.left_out),
    )  # fmt: skip
    if mean is None:
        return untested
    outcome = _apply_test(untested, mean, limit, level, policy.alpha, "examples")
    return replace(outcome, there=len(mean.columns), wanted=mean.wanted)


def _apply_test(
    untested: Outcome, compared: Compared, limit: Sensitivity, level: SharedLevel, alpha: float, unit: str
) -> Outcome:
    """An outcome with the numbers and the verdict of its test."""
    low = compute_confidence_interval(compared, alpha)[0]
    high = compute_confidence_interval(compared, level.each)[1]
    verdict = _compute_verdict(compared, limit.margin, low, high)
    p = compute_bound_p(compared, -limit.margin)
    if verdict == "regressed":
        p = compute_loss_p(compared) * level.tests
    return replace(
        untested, verdict=verdict, candidate=compared.candidate, baseline=compared.baseline,
        delta=compared.delta, low=low, high=high, p=None if compared.same else min(1.0, p),
        margin=limit.margin, margin_source=limit.source, detectable=limit.detectable,
        error=math.sqrt(compared.total.variance),
        to_settle="" if verdict != "inconclusive"
        else _describe_sample_size(compared, limit.margin, alpha, level.each, unit),
    )  # fmt: skip


def _compute_verdict(compared: Compared, margin: float, low: float, high: float) -> Overall:
    if compared.same:
        return "same"
    if low > -margin:
        return "improved" if low > 0 else "passed"
    return "regressed" if high < 0 and compared.delta < -margin / 2 else "inconclusive"


def _describe_sample_size(compared: Compared, margin: float, alpha: float, red: float, unit: str) -> str:
    """The units or seeds that would settle a verdict in 80 % of checks, if the observed difference is true.

    If more than half of the margin was lost, it is the number that shows a regression, else the number that
    shows a loss smaller than the margin.
    """
    lost = compared.delta < -margin / 2
    distance, level = (-compared.delta, red) if lost else (margin + compared.delta, alpha)
    target_variance = (distance / _compute_effect_size(level, POWER)) ** 2
    by_seeds, by_units = compared.seeds.variance if compared.seeds else 0.0, compared.examples.variance
    # The harmonic mean: with so many runs of each side the variance from runs is the same.
    seeds = 2 / (1 / len(compared.mine) + 1 / len(compared.theirs))
    counted = compared.examples.freedom >= COUNTED - 1
    units = by_units / (target_variance - by_seeds) if counted and target_variance > by_seeds else 0.0
    runs = seeds * by_seeds / (target_variance - by_units) if target_variance > by_units else 0.0
    options = []
    if units > 1:
        times = f"about {units:.1f}" if units <= PRACTICAL else f"more than {PRACTICAL}"
        options.append(f"{times} times as many {unit} to {'show this loss' if lost else 'pass'}")
    if runs > seeds:
        needed = math.ceil(runs)
        sides = {"the candidate": compared.mine, "the baseline": compared.theirs}
        short = [side for side, values in sides.items() if len(values) < needed]
        options.append(f"about {needed:,} seeds of {short[0] if len(short) == 1 else 'each'} in all")
    return " or ".join(options) or (f"more seeds and more {unit}" if compared.seeds else f"more {unit}")


def _describe_remedies(suite: Suite, mean: MeanOutcome, limit: Sensitivity, policy: Policy) -> str:
    """What would settle an inconclusive mean: the tasks that are at hand, and the margin "auto"."""
    if mean.verdict == "regressed":
        return ""
    left = f"some of the {mean.left_out:,} tasks" if mean.left_out > 1 else "the task"
    remedy = f"add {left} left out, e.g. by --tasks" if mean.left_out else "a larger suite"
    # Tasks are more examples, and no more seeds.
    text = re.sub("examples( to .*?)?(?= or |$)", rf"\g<0> ({remedy})", mean.to_settle)
    least = TASK_POINTS if len(suite.tasks) == 1 else MEAN_POINTS
    wider = _choose_margin(limit.automatic or 0.0, least, mean.baseline or 0.0, policy)
    # A margin that most equal models pass is not widened because this one did not.
    if limit.passing is None or limit.passing >= ENOUGH or wider <= limit.margin:
        return text
    return (
        f"{text}, or --margin auto, which allows {100 * wider:.2f}; with {mean.margin_text} an equal model "
        f"passes in {100 * limit.passing:.0f} % of checks"
    )
