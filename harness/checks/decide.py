"""What the policy makes of it.

From the records of both sides to what is said of every task and suite.

The verdict on a candidate, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from harness.checks.difference import Difference, MeanDifference, mean_difference
from harness.checks.outcome import MeanOutcome, Overall, TaskOutcome
from harness.checks.policy import EXIT_CODES, MEASURED, Margin, Policy
from harness.checks.report import delta_text, margin_text, p_text, signed
from harness.checks.sides import Sides, differences, missing, score_of
from harness.checks.verdicts import Judged, Limits, bounds, equivalent, judge, learnt_margin
from harness.errors import UsageError, shortened
from harness.types import Suite, Task

OF_MEANS = 0.5
"""The part of alpha that the means of suites have; the tasks have the rest."""

LEAST_RUNS = 3
"""Of which a margin can be measured: the spread of two is next to unknown."""

POINT = 0.01
"""A point, as policies have it, as a share of 1."""


def limits(found: Mapping[str, Difference], policy: Policy, *, baseline: str) -> dict[str, Limits]:
    """What the policy says of each task, measured margins filled in; shares of 1.

    Raises:
        UsageError: A margin is to be measured, and the baseline has too few runs.
    """
    return {task: _limits(task, one, policy, baseline) for task, one in found.items()}


def _limits(task: str, one: Difference, policy: Policy, baseline: str) -> Limits:
    margin, drop = policy.margin_of(task), policy.max_drop_of(task) * POINT
    if margin != MEASURED:
        return Limits(margin=margin * POINT, max_drop=drop)
    learnt = learnt_margin(one, policy.alpha)
    if not one.same and len(one.theirs) < LEAST_RUNS:
        raise too_few_runs(task, baseline, len(one.theirs))
    return Limits(margin=max(learnt or 0.0, policy.least_margin * POINT), max_drop=drop, measured=True)


def too_few_runs(task: str, baseline: str, runs: int) -> UsageError:
    """The error for a margin that is to be measured of one or two runs."""
    many = "a single run" if runs == 1 else f"{runs} runs"
    return UsageError(
        f'margin is "measured", but the baseline {baseline} has {many} of {task}: '
        f"it takes {LEAST_RUNS}, and 5 are better.",
        hint="Set one with repeated runs: `harness baseline set NAME --model A --model B --model C`, "
        "models of the same training with other seeds (of a recipe --seeds 3 does it); or give margin "
        "in points.",
    )


@dataclass(frozen=True, kw_only=True)
class Said:
    """What is said of every task and of every suite's mean, in the order of the suites."""

    tasks: tuple[TaskOutcome, ...]
    means: tuple[MeanOutcome, ...]


def said(sides: Sides, suites: Sequence[Suite], policy: Policy, baseline: str) -> Said:
    """Test every task and mean, and say what came of it.

    Args:
        sides: The records of both sides.
        suites: What they were asked for.
        policy: What is asked of the candidate.
        baseline: Its name, for messages.

    Raises:
        UsageError: A margin is to be measured, and the baseline has too few runs.
    """
    tasks = list({task.name: task for suite in suites for task in suite.tasks}.values())
    found = differences(sides, tasks, policy)
    tested = {task: one for task, one in found.items() if isinstance(one, Difference)}
    limited = limits(tested, policy, baseline=baseline)
    means = {suite.name: mean_difference(suite, tested) for suite in suites}
    bars = {
        suite.name: _mean_limit(mean, policy, suite, baseline)
        for suite in suites
        for mean in [means[suite.name]]
        if mean is not None
    }
    several = sum(len(suite.tasks) > 1 for suite in suites)
    judged = judge(
        tested,
        limited,
        alpha=policy.alpha,
        correction=policy.correction,
        units={task: _unit(sides, task) for task in tested},
        share=1 - OF_MEANS if several else 1.0,
    )
    return Said(
        tasks=tuple(
            _said(sides, task, found.get(task.name), policy, limited.get(task.name), judged.get(task.name))
            for task in tasks
        ),
        means=tuple(
            _mean_said(suite, means[suite.name], policy, bars.get(suite.name), _level(suite, several, policy))
            for suite in suites
        ),
    )


def _level(suite: Suite, several: int, policy: Policy) -> float:
    """The part of alpha that the mean of a suite is tested at; that of a single task says no more than it."""
    return policy.alpha * OF_MEANS / several if len(suite.tasks) > 1 else policy.alpha


def _said(
    sides: Sides,
    task: Task,
    one: Difference | str | None,
    policy: Policy,
    limit: Limits | None,
    judged: Judged | None,
) -> TaskOutcome:
    said = _plain(sides, task, policy)
    if not isinstance(one, Difference) or limit is None or judged is None:
        if one is None:
            return replace(said, reason=missing(sides, task.name))
        both = said.candidate is not None and said.baseline is not None
        delta = (said.candidate or 0) - (said.baseline or 0) if both else None
        return replace(said, verdict="not testable", reason=str(one), delta=delta)
    return replace(
        said,
        verdict=judged.verdict,
        reason="one and the same record" if one.same else "",
        metric=_metric(sides, task),
        candidate=one.candidate,
        baseline=one.baseline,
        delta=one.delta,
        low=judged.low,
        high=judged.high,
        p_regressed=judged.p_regressed,
        p_improved=judged.p_improved,
        margin=limit.margin,
        max_drop=limit.max_drop,
        unit=_unit(sides, task.name),
        units=one.units,
        runs=(len(one.mine), len(one.theirs)),
        noise=one.noise,
        to_settle=judged.to_settle,
    )


def _plain(sides: Sides, task: Task, policy: Policy) -> TaskOutcome:
    """A task as it is before anything is tested: its scores, as far as they are there."""
    mine, theirs = sides.candidate.scored[task.name], sides.baseline.scored[task.name]
    return TaskOutcome(
        task=task.name,
        type=task.type,
        metric=task.metric,
        verdict="missing",
        must_not_regress=policy.forbids(task.name),
        candidate=score_of(mine),
        baseline=score_of(theirs),
        runs=(len(mine), len(theirs)),
        candidate_keys=tuple(one.key for one in mine),
        baseline_keys=tuple(one.key for one in theirs),
    )


def _unit(sides: Sides, task: str) -> str:
    units = sides.candidate.scored[task][0].units
    return units.unit if units else ""


def _metric(sides: Sides, task: Task) -> str:
    units = sides.candidate.scored[task.name][0].units
    return units.metric if units else task.metric


def _mean_said(
    suite: Suite, mean: MeanDifference | None, policy: Policy, limit: Limits | None, level: float
) -> MeanOutcome:
    """What is said of a suite's mean."""
    if mean is None or limit is None:
        known = _mean_margin(suite, policy)
        margin = 0.0 if known == MEASURED else known * POINT
        return MeanOutcome(suite=suite.name, verdict="inconclusive", margin=margin, wanted=len(suite.columns))
    low, high = bounds(mean, level)
    return MeanOutcome(
        suite=suite.name,
        verdict=_mean_verdict(mean, limit, level),
        candidate=mean.candidate,
        baseline=mean.baseline,
        delta=mean.delta,
        low=low,
        high=high,
        margin=limit.margin,
        there=len(mean.columns),
        wanted=mean.wanted,
    )


def _mean_limit(mean: MeanDifference, policy: Policy, suite: Suite, baseline: str) -> Limits:
    margin = _mean_margin(suite, policy)
    if margin != MEASURED:
        return Limits(margin=margin * POINT)
    learnt = learnt_margin(mean, policy.alpha)
    if not mean.same and len(mean.theirs) < LEAST_RUNS:
        raise too_few_runs(f"the mean of {suite.name}", baseline, len(mean.theirs))
    return Limits(margin=max(learnt or 0.0, policy.least_margin * POINT), measured=True)


def _mean_margin(suite: Suite, policy: Policy) -> Margin:
    """The mean of a single task is that task: it has the task's margin."""
    return policy.margin_of(suite.tasks[0].name) if len(suite.tasks) == 1 else policy.mean_margin


def _mean_verdict(mean: MeanDifference, limit: Limits, level: float) -> Overall:
    """Regressed if the interval lies below the margin, improved if it lies above nothing."""
    low, high = bounds(mean, level)
    if limit.measured and high < -limit.margin:
        return "regressed"
    if equivalent(mean, limit, level):
        return "equivalent"
    if high < -limit.margin:
        return "regressed"
    return "improved" if low > 0 else "inconclusive"


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The verdict, what decided it in sentences, and the exit code that the policy gives it."""

    verdict: Overall
    because: tuple[str, ...]
    exit_code: int


def conclude(tasks: Sequence[TaskOutcome], means: Sequence[MeanOutcome], policy: Policy) -> Conclusion:
    """Put the verdicts of tasks and means together.

    The candidate has `regressed` if a task that must not did, or if a suite's mean did. Else a check in
    which a score is missing, or nothing was tested, is `inconclusive` and never passes. Else it is what
    the means are: `inconclusive` if one of them is, `improved` if one of them is, `equivalent` otherwise.
    """
    lost = [*_regressions(tasks), *_fallen(means)]
    if lost:
        return Conclusion(verdict="regressed", because=tuple(lost), exit_code=1)
    gone = [*_missing(tasks), *_untested(means)]
    open_ones = [*_not_testable(tasks, policy), *_undecided(means)]
    if gone or open_ones:
        codes = {EXIT_CODES[policy.missing]} if gone else set()
        codes |= {EXIT_CODES[policy.inconclusive]} if open_ones else set()
        code = next(one for one in (1, 3, 0) if one in codes)
        return Conclusion(verdict="inconclusive", because=(*gone, *open_ones), exit_code=code)
    improved = any(mean.verdict == "improved" for mean in means)
    return Conclusion(
        verdict="improved" if improved else "equivalent",
        because=tuple(_held(mean) for mean in means),
        exit_code=0,
    )


def _regressions(tasks: Sequence[TaskOutcome]) -> list[str]:
    found = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    found.sort(key=lambda one: one.delta or 0.0)
    return [
        f"{one.task} regressed: {delta_text(one)} points, p {p_text(one)}; not shown to be within "
        f"{margin_text(one)}."
        for one in found
    ]


def _fallen(means: Sequence[MeanOutcome]) -> list[str]:
    return [
        f"{named(one)} regressed: {delta_text(one)} points, wholly below {signed(-one.margin)}."
        for one in means
        if one.verdict == "regressed"
    ]


def _missing(tasks: Sequence[TaskOutcome]) -> list[str]:
    gone = [one.task for one in tasks if one.verdict == "missing"]
    return [f"{len(gone)} of {len(tasks)} tasks lack a score: {shortened(gone)}."] if gone else []


def _untested(means: Sequence[MeanOutcome]) -> list[str]:
    return [f"No task of {one.suite} could be tested." for one in means if one.delta is None]


def _not_testable(tasks: Sequence[TaskOutcome], policy: Policy) -> list[str]:
    untold = [one.task for one in tasks if one.verdict == "not testable"]
    if not untold or policy.not_testable == "ignore":
        return []
    return [f"{len(untold)} of {len(tasks)} tasks cannot be tested: {shortened(untold)}."]


def _undecided(means: Sequence[MeanOutcome]) -> list[str]:
    return [
        f"{named(one)} is open: {delta_text(one)} points, neither within {margin_text(one)} nor clear of it."
        for one in means
        if one.verdict == "inconclusive" and one.delta is not None
    ]


def _held(one: MeanOutcome) -> str:
    where = "wholly above 0" if one.verdict == "improved" else f"within {margin_text(one)}"
    verdict = "better" if one.verdict == "improved" else "equivalent"
    return f"{named(one)} is {verdict}: {delta_text(one)} points, {where}."


def named(one: MeanOutcome) -> str:
    """Which mean it is, e.g. "The mean of mteb", or of which part of it."""
    part = "" if one.there == one.wanted else f" (only {one.there} of its {one.wanted} columns)"
    return f"The mean of {one.suite}{part}"
