"""From the records of both sides to what is said of every task and suite."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.errors import UsageError
from harness.regress.collect import Side
from harness.regress.difference import Difference, Part, difference
from harness.regress.outcome import MeanOutcome, Overall, TaskOutcome
from harness.regress.policy import MEASURED, Policy
from harness.regress.scored import Scored
from harness.regress.suite_mean import MeanDifference, mean_difference
from harness.regress.units import Units, alike, joined
from harness.regress.verdicts import Judged, Limits, bounds, equivalent, judge, learnt_margin
from harness.types import Suite, Task

POINT = 0.01
"""A point, as policies have it, as a share of 1."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both sides, and why records are not there.

    Attributes:
        candidate: The candidate's records.
        baseline: The baseline's.
        failures: By task: why a record of the candidate or of the baseline is missing.
    """

    candidate: Side
    baseline: Side
    failures: Mapping[str, str]


def differences(sides: Sides, tasks: Sequence[Task], policy: Policy) -> dict[str, Difference | str]:
    """By task how much the sides differ; in its place why that cannot be told."""
    return {
        task.name: _difference(sides, task.name, policy) for task in tasks if not missing(sides, task.name)
    }


def missing(sides: Sides, task: str) -> str:
    """Why a task has no score on one of the sides; empty if it has on both."""
    for name, one in (("candidate", sides.candidate), ("baseline", sides.baseline)):
        if one.missing[task] or any(scored.score is None for scored in one.scored[task]):
            reason = sides.failures.get(task, "")
            return f"the {name} has no score" + (f": {reason}" if reason else "")
    return ""


def _difference(sides: Sides, task: str, policy: Policy) -> Difference | str:
    mine, theirs = sides.candidate.scored[task], sides.baseline.scored[task]
    if {one.key: one.score for one in mine} == {one.key: one.score for one in theirs}:
        scores = [float(one.score or 0) for one in mine]
        units = mine[0].units
        return Difference(
            mine=tuple(scores),
            theirs=tuple(scores),
            units=units.count if units else 0,
            examples=Part(variance=0.0, freedom=1),
            same=True,
        )
    for name, ones in (("candidate", mine), ("baseline", theirs)):
        problem = next((one.problem for one in ones if one.units is None), "")
        if problem:
            return f"the {name}: {problem}"
    return _tested(_units(mine), _units(theirs), sides, task, policy)


def _tested(
    mine: Sequence[Units], theirs: Sequence[Units], sides: Sides, task: str, policy: Policy
) -> Difference | str:
    try:
        one, other = joined(mine), joined(theirs)
    except ValueError as error:
        return str(error)
    if not alike(one, other):
        return "the two sides were measured on different examples"
    if min(stratum.count for stratum in one.strata) < 2:
        return f"there is a single one of its {one.unit}"
    rng = np.random.default_rng([policy.seed, zlib.crc32(task.encode())])
    paired = sides.candidate.paired and sides.baseline.paired and len(mine) == len(theirs) > 1
    return difference(one, other, paired=paired, rng=rng, draws=policy.draws)


def _units(ones: Sequence[Scored]) -> list[Units]:
    return [one.units for one in ones if one.units is not None]


def limits(found: Mapping[str, Difference], policy: Policy, *, baseline: str) -> dict[str, Limits]:
    """What the policy says of each task, measured margins filled in; shares of 1.

    Raises:
        UsageError: A margin is to be measured, and the baseline has a single run.
    """
    return {task: _limits(task, one, policy, baseline) for task, one in found.items()}


def _limits(task: str, one: Difference, policy: Policy, baseline: str) -> Limits:
    margin, drop = policy.margin_of(task), policy.max_drop_of(task) * POINT
    if margin != MEASURED:
        return Limits(margin=margin * POINT, max_drop=drop)
    learnt = learnt_margin(one, policy.alpha)
    if learnt is None and not one.same:
        raise single_run(task, baseline)
    return Limits(margin=max(learnt or 0.0, policy.least_margin * POINT), max_drop=drop, measured=True)


def single_run(task: str, baseline: str) -> UsageError:
    """The error for a margin that is to be measured of one run."""
    return UsageError(
        f'margin is "measured", but the baseline {baseline} has a single run of {task}.',
        hint="Set one with repeated runs: `harness baseline set NAME --model A --model B --model C`, "
        "models of the same training with other seeds; or --seeds 3; or give margin in points.",
    )


def tasks_said(
    sides: Sides, tasks: Sequence[Task], found: Mapping[str, Difference | str], policy: Policy, baseline: str
) -> list[TaskOutcome]:
    """What is said of every task, in the order of the suites.

    Raises:
        UsageError: A margin is to be measured, and the baseline has a single run.
    """
    tested = {task: one for task, one in found.items() if isinstance(one, Difference)}
    limited = limits(tested, policy, baseline=baseline)
    judged = judge(
        tested,
        limited,
        alpha=policy.alpha,
        correction=policy.correction,
        units={task: _unit(sides, task) for task in tested},
    )
    return [
        _said(sides, task, found.get(task.name), policy, limited.get(task.name), judged.get(task.name))
        for task in tasks
    ]


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
        candidate=_score(mine),
        baseline=_score(theirs),
        runs=(len(mine), len(theirs)),
        candidate_keys=tuple(one.key for one in mine),
        baseline_keys=tuple(one.key for one in theirs),
    )


def _score(ones: Sequence[Scored]) -> float | None:
    known = [one.score for one in ones if one.score is not None]
    return sum(known) / len(known) if known and len(known) == len(ones) else None


def _unit(sides: Sides, task: str) -> str:
    units = sides.candidate.scored[task][0].units
    return units.unit if units else ""


def _metric(sides: Sides, task: Task) -> str:
    units = sides.candidate.scored[task.name][0].units
    return units.metric if units else task.metric


def mean_said(
    suite: Suite, found: Mapping[str, Difference | str], policy: Policy, baseline: str
) -> MeanOutcome:
    """What is said of a suite's mean.

    Raises:
        UsageError: Its margin is to be measured, and the baseline has a single run.
    """
    tested = {task: one for task, one in found.items() if isinstance(one, Difference)}
    mean = mean_difference(suite, tested)
    if mean is None:
        return MeanOutcome(suite=suite.name, verdict="inconclusive", wanted=len(suite.columns))
    limit = _mean_limit(mean, policy, suite, baseline)
    low, high = bounds(mean, policy.alpha)
    return MeanOutcome(
        suite=suite.name,
        verdict=_mean_verdict(mean, limit, policy.alpha, low, high),
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
    if policy.mean_margin != MEASURED:
        return Limits(margin=policy.mean_margin * POINT)
    learnt = learnt_margin(mean, policy.alpha)
    if learnt is None and not mean.same:
        raise single_run(f"the mean of {suite.name}", baseline)
    return Limits(margin=max(learnt or 0.0, policy.least_margin * POINT), measured=True)


def _mean_verdict(mean: MeanDifference, limit: Limits, alpha: float, low: float, high: float) -> Overall:
    """Regressed if the interval lies below the margin, improved if it lies above nothing."""
    if equivalent(mean, limit, alpha):
        return "equivalent"
    if high < -limit.margin:
        return "regressed"
    return "improved" if low > 0 else "inconclusive"
