"""Verdicts on tasks, means and the candidate: tests, corrections, equivalence, and the policy's decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import stdev

from harness import stats
from harness.checks.difference import Compared, Difference, MeanDifference, Part
from harness.checks.outcome import MeanOutcome, Overall, TaskOutcome, Verdict
from harness.checks.policy import EXIT_CODES, MEASURED, Correction, Margin, Policy
from harness.checks.sides import Comparison, mean_score
from harness.errors import UsageError, shortened
from harness.scores import delta_text
from harness.stats import LARGE
from harness.types import Suite, Task

POWER = 0.8
"""The power of the counts that would settle a task, if the true difference is the observed one."""


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """Margin and allowed drop, shares of 1; `measured` if the margin is the baseline's own spread."""

    margin: float
    max_drop: float = 0.0
    measured: bool = False


@dataclass(frozen=True, kw_only=True)
class _TaskVerdict:
    """The verdict of a tested task, with bounds one-sided at alpha and corrected p-values."""

    verdict: Verdict
    low: float
    high: float
    p_regressed: float
    p_improved: float
    to_settle: str = ""


def _judge(
    differences: Mapping[str, Difference],
    limits: Mapping[str, _Limits],
    *,
    alpha: float,
    correction: Correction,
    units: Mapping[str, str],
    share: float = 1.0,
) -> dict[str, _TaskVerdict]:
    """The verdict of each tested task.

    A task is `equivalent` if two one-sided tests at alpha put the difference within the margin (Schuirmann,
    1987); else `regressed` if it is lower than by the allowed drop, or `improved` if it is higher, by a
    one-sided test at alpha after correction over the tasks; else `inconclusive`. So alpha is the chance that
    any task of a candidate as good as the baseline is called regressed (Holm), or the share of false
    regressions among those called so (Benjamini and Hochberg).
    """
    names = list(differences)
    p_low = _corrected([_p_regressed(differences[n], limits[n].max_drop) for n in names], correction)
    p_high = _corrected([_p_improved(differences[n]) for n in names], correction)
    found = {}
    for name, *both in zip(names, p_low, p_high, strict=True):
        lower, higher = (min(1.0, p / share) for p in both)
        one, limit = differences[name], limits[name]
        low, high = _bounds(one, alpha)
        verdict = _verdict(one, limit, lower, higher, alpha)
        hint = (
            _settle(one, limit, alpha, units[name], math.ceil(len(names) / share))
            if verdict == "inconclusive"
            else ""
        )
        found[name] = _TaskVerdict(
            verdict=verdict, low=low, high=high, p_regressed=lower, p_improved=higher, to_settle=hint
        )
    return found


def _verdict(one: Difference, limit: _Limits, lower: float, higher: float, alpha: float) -> Verdict:
    if limit.measured and lower <= alpha:  # a margin measured on few runs may be wide
        return "regressed"
    if _equivalent(one, limit, alpha):
        return "equivalent"
    if lower <= alpha:
        return "regressed"
    return "improved" if higher <= alpha else "inconclusive"


def _equivalent(one: Compared, limit: _Limits, alpha: float) -> bool:
    """Whether the difference lies within the margin; a measured margin contains the runs' spread already."""
    part = one.examples if limit.measured else one.total
    low, high = around(one.delta, part, alpha)
    return one.same or (-limit.margin <= low and high <= limit.margin)


def _bounds(one: Compared, alpha: float) -> tuple[float, float]:
    """The lower and upper bound of a difference, each one-sided at alpha."""
    return around(one.delta, one.total, alpha)


def around(delta: float, part: Part, alpha: float) -> tuple[float, float]:
    """The bounds of a difference, each one-sided at alpha."""
    return delta + part.reach(alpha), delta + part.reach(1 - alpha)


def _p_regressed(one: Compared, max_drop: float) -> float:
    """p-value of "not lower than by `max_drop`"."""
    return 1.0 if one.same else 1 - one.total.share_below(-one.delta - max_drop)


def _p_improved(one: Compared) -> float:
    """p-value of "not higher"."""
    return 1.0 if one.same else one.total.share_below(-one.delta)


def paired_test(one: Difference, alpha: float = 0.05) -> tuple[float, float, float]:
    """The two-sided p-value of "no difference", and the bounds of its 1 - alpha interval."""
    p = 2 * min(_p_regressed(one, 0.0), _p_improved(one))
    return (min(1.0, p), *around(one.delta, one.total, alpha / 2))


def _corrected(p: Sequence[float], correction: Correction) -> list[float]:
    """p-values after correction for their number (Holm, 1979; Benjamini and Hochberg, 1995).

    >>> _corrected([0.01, 0.04, 0.03], "holm")
    [0.03, 0.06, 0.06]
    >>> _corrected([0.01, 0.04, 0.03], "benjamini-hochberg")
    [0.03, 0.04, 0.04]
    """
    count, found = len(p), [0.0] * len(p)
    order = sorted(range(count), key=lambda at: p[at])
    if correction == "none":
        return list(p)
    if correction == "holm":
        highest = 0.0
        for rank, at in enumerate(order):
            highest = max(highest, min(1.0, (count - rank) * p[at]))
            found[at] = highest
        return found
    lowest = 1.0
    for rank, at in reversed(list(enumerate(order))):
        lowest = min(lowest, p[at] * count / (rank + 1))
        found[at] = lowest
    return found


def _measured_margin(one: Compared, alpha: float) -> float | None:
    """One-sided prediction bound for as many new baseline runs as the candidate has; None for one run."""
    if len(one.theirs) == 1:
        return None
    spread = stdev(one.theirs) * math.sqrt(1 / len(one.mine) + 1 / len(one.theirs))
    return _student_quantile(1 - alpha, len(one.theirs) - 1) * spread


def _settle(one: Difference, limit: _Limits, alpha: float, unit: str, tasks: int = 1) -> str:
    """The number of units or seeds that would settle a task if the true difference is the observed one."""
    wanted = max(
        _wanted(max(-one.delta - limit.max_drop, one.delta), alpha / tasks),
        _wanted(limit.margin - abs(one.delta), alpha, sides=2),
    )
    by_seeds = one.seeds.variance if one.seeds and not limit.measured else 0.0
    by_units = one.examples.variance
    seeds = max(len(one.mine), len(one.theirs))
    found = [
        f"about {_rounded(count):,} {what}"
        for count, there, what in (
            (_needed(one.units * by_units, wanted - by_seeds), one.units, unit),
            (_needed(seeds * by_seeds, wanted - by_units), seeds, "seeds of each"),
        )
        if count is not None and count > there
    ]
    more = f"more seeds and more {unit}" if one.seeds else f"more {unit}"
    return " or ".join(found) or more


def _wanted(distance: float, alpha: float, sides: int = 1) -> float:
    """The variance at which a test detects a difference that far from a bound, or from two (`sides`)."""
    power = 1 - (1 - POWER) / sides
    reach = _student_quantile(1 - alpha, stats.LARGE) + _student_quantile(power, stats.LARGE)
    return (max(distance, 0.0) / reach) ** 2


def _needed(of_one: float, wanted: float) -> int | None:
    """The number of units or seeds for a variance; None where no number suffices."""
    return math.ceil(of_one / wanted) if wanted > 0 else None


def _rounded(count: int) -> int:
    """A count rounded up to two significant digits.

    >>> _rounded(1234)
    1300
    """
    unit = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // unit) * unit


OF_MEANS = 0.5
"""The share of alpha for the means of suites; the tasks have the rest."""

LEAST_RUNS = 3
"""Fewest baseline runs for a measured margin: the spread of two is next to unknown."""

POINT = 0.01
"""A point, the unit of a policy, as a share of 1."""


def _all_limits(found: Mapping[str, Difference], policy: Policy, *, baseline: str) -> dict[str, _Limits]:
    """The limits of each task in shares of 1, measured margins included."""
    return {task: _limits(task, one, policy, baseline) for task, one in found.items()}


def _limits(task: str, one: Difference, policy: Policy, baseline: str) -> _Limits:
    margin, drop = policy.margin_of(task), policy.max_drop_of(task) * POINT
    if margin != MEASURED:
        return _Limits(margin=margin * POINT, max_drop=drop)
    learnt = _measured_margin(one, policy.alpha)
    if not one.same and len(one.theirs) < LEAST_RUNS:
        raise _too_few_runs(task, baseline, len(one.theirs))
    return _Limits(margin=max(learnt or 0.0, policy.least_margin * POINT), max_drop=drop, measured=True)


def _too_few_runs(task: str, baseline: str, runs: int) -> UsageError:
    """The error for a measured margin with too few baseline runs."""
    many = "a single run" if runs == 1 else f"{runs} runs"
    return UsageError(
        f'margin is "measured", but the baseline {baseline} has {many} of {task}: '
        f"it takes {LEAST_RUNS}, and 5 are better.",
        hint="Set one with repeated runs: `harness baseline set NAME --model A --model B --model C`, "
        "models of the same training with other seeds (of a recipe --seeds 3 does it); or give margin "
        "in points.",
    )


@dataclass(frozen=True, kw_only=True)
class _Decisions:
    """The outcomes of every task and of every suite's mean, in the order of the suites."""

    tasks: tuple[TaskOutcome, ...]
    means: tuple[MeanOutcome, ...]


def decide(sides: Comparison, suites: Sequence[Suite], policy: Policy, baseline: str) -> _Decisions:
    """Test every task and every suite's mean.

    Args:
        sides: The records of both sides.
        suites: The suites of the check.
        policy: The policy.
        baseline: The baseline's name, for messages.

    Raises:
        UsageError: A margin is to be measured, and the baseline has too few runs.
    """
    tasks = list({task.name: task for suite in suites for task in suite.tasks}.values())
    parts = {suite.name: sides.part_differences(suite) for suite in suites}
    sides = sides.of_averages(suites)
    found = sides.differences(tasks)
    tested = {task: one for task, one in found.items() if isinstance(one, Difference)}
    limited = _all_limits(tested, policy, baseline=baseline)
    means = {suite.name: MeanDifference.over_suite(suite, tested | parts[suite.name]) for suite in suites}
    bars = {
        suite.name: _mean_limit(mean, policy, suite, baseline)
        for suite in suites
        for mean in [means[suite.name]]
        if mean is not None
    }
    several = sum(len(suite.tasks) > 1 for suite in suites)
    judged = _judge(
        tested,
        limited,
        alpha=policy.alpha,
        correction=policy.correction,
        units={task: _unit(sides, task) for task in tested},
        share=1 - OF_MEANS if several else 1.0,
    )
    return _Decisions(
        tasks=tuple(
            _decide_task(
                sides, task, found.get(task.name), policy, limited.get(task.name), judged.get(task.name)
            )
            for task in tasks
        ),
        means=tuple(
            _decide_mean(
                suite, means[suite.name], policy, bars.get(suite.name), _level(suite, several, policy)
            )
            for suite in suites
        ),
    )


def _level(suite: Suite, several: int, policy: Policy) -> float:
    """The level at which a suite's mean is tested: its part of alpha, or alpha for a single task."""
    return policy.alpha * OF_MEANS / several if len(suite.tasks) > 1 else policy.alpha


def _decide_task(
    sides: Comparison,
    task: Task,
    one: Difference | str | None,
    policy: Policy,
    limit: _Limits | None,
    judged: _TaskVerdict | None,
) -> TaskOutcome:
    said = _untested_outcome(sides, task, policy)
    if not isinstance(one, Difference) or limit is None or judged is None:
        if one is None:
            return replace(said, reason=sides.missing_reason(task.name))
        both = said.candidate is not None and said.baseline is not None
        delta = (said.candidate or 0) - (said.baseline or 0) if both else None
        return replace(said, verdict="not testable", reason=str(one), delta=delta)
    return replace(
        said,
        verdict=judged.verdict,
        reason=_same_text(said) if one.same else "",
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


def _same_text(one: TaskOutcome) -> str:
    if one.candidate_keys == one.baseline_keys:
        return "one and the same record"
    return "the same outputs on every example"


def _untested_outcome(sides: Comparison, task: Task, policy: Policy) -> TaskOutcome:
    """The outcome of a task before any test: its scores, as far as they are there."""
    mine, theirs = sides.candidate.scored[task.name], sides.baseline.scored[task.name]
    return TaskOutcome(
        task=task.name,
        type=task.type,
        metric=task.metric,
        verdict="missing",
        must_not_regress=policy.forbids(task.name),
        candidate=mean_score(mine),
        baseline=mean_score(theirs),
        runs=(len(mine), len(theirs)),
        candidate_keys=tuple(one.key for one in mine),
        baseline_keys=tuple(one.key for one in theirs),
    )


def _unit(sides: Comparison, task: str) -> str:
    units = sides.candidate.scored[task][0].units
    return units.unit if units else ""


def _metric(sides: Comparison, task: Task) -> str:
    units = sides.candidate.scored[task.name][0].units
    return units.metric if units else task.metric


def _decide_mean(
    suite: Suite, mean: MeanDifference | None, policy: Policy, limit: _Limits | None, level: float
) -> MeanOutcome:
    """The outcome of a suite's mean."""
    if mean is None or limit is None:
        known = _mean_margin(suite, policy)
        margin = 0.0 if known == MEASURED else known * POINT
        return MeanOutcome(suite=suite.name, verdict="inconclusive", margin=margin, wanted=len(suite.columns))
    low, high = _bounds(mean, level)
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


def _mean_limit(mean: MeanDifference, policy: Policy, suite: Suite, baseline: str) -> _Limits:
    margin = _mean_margin(suite, policy)
    if margin != MEASURED:
        return _Limits(margin=margin * POINT)
    learnt = _measured_margin(mean, policy.alpha)
    if not mean.same and len(mean.theirs) < LEAST_RUNS:
        raise _too_few_runs(f"the mean of {suite.name}", baseline, len(mean.theirs))
    return _Limits(margin=max(learnt or 0.0, policy.least_margin * POINT), measured=True)


def _mean_margin(suite: Suite, policy: Policy) -> Margin:
    """The margin of a suite's mean; for a suite of a single task, the task's margin."""
    return policy.margin_of(suite.tasks[0].name) if len(suite.tasks) == 1 else policy.mean_margin


def _mean_verdict(mean: MeanDifference, limit: _Limits, level: float) -> Overall:
    """The verdict of a mean, by its interval: below the margin, within it, above 0, or none of these."""
    low, high = _bounds(mean, level)
    if limit.measured and high < -limit.margin:
        return "regressed"
    if _equivalent(mean, limit, level):
        return "equivalent"
    if high < -limit.margin:
        return "regressed"
    return "improved" if low > 0 else "inconclusive"


@dataclass(frozen=True, kw_only=True)
class _Conclusion:
    """The overall verdict, the sentences that explain it, and the policy's exit code."""

    verdict: Overall
    because: tuple[str, ...]
    exit_code: int


def conclude(tasks: Sequence[TaskOutcome], means: Sequence[MeanOutcome], policy: Policy) -> _Conclusion:
    """Combine the verdicts of tasks and means.

    The candidate has `regressed` if a task that must not regress did, or a suite's mean did. Otherwise a
    check with missing scores, tasks that cannot be tested or undecided means is `inconclusive`; with a
    missing score or an untested mean it never passes. Otherwise it is `improved` if any mean is, else
    `equivalent`.
    """
    lost = [*_regressions(tasks), *_fallen(means)]
    if lost:
        return _Conclusion(verdict="regressed", because=tuple(lost), exit_code=1)
    gone = [*_missing(tasks), *_untested(means)]
    open_ones = [*_not_testable(tasks, policy), *_undecided(means)]
    if gone or open_ones:
        codes = {EXIT_CODES[policy.missing]} if gone else set()
        codes |= {EXIT_CODES[policy.inconclusive]} if open_ones else set()
        code = next(one for one in (1, 3, 0) if one in codes)
        return _Conclusion(verdict="inconclusive", because=(*gone, *open_ones), exit_code=code)
    improved = any(mean.verdict == "improved" for mean in means)
    return _Conclusion(
        verdict="improved" if improved else "equivalent",
        because=tuple(_mean_sentence(mean) for mean in means),
        exit_code=0,
    )


def _regressions(tasks: Sequence[TaskOutcome]) -> list[str]:
    found = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    found.sort(key=lambda one: one.delta or 0.0)
    return [
        f"{one.task} regressed: {one.delta_text} points, p {one.p_text}; not shown to be within "
        f"{one.margin_text}."
        for one in found
    ]


def _fallen(means: Sequence[MeanOutcome]) -> list[str]:
    return [
        f"{_named(one)} regressed: {one.delta_text} points, wholly below {delta_text(-one.margin)}."
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
        f"{_named(one)} is open: {one.delta_text} points, neither within {one.margin_text} nor clear of it."
        for one in means
        if one.verdict == "inconclusive" and one.delta is not None
    ]


def _mean_sentence(one: MeanOutcome) -> str:
    where = "wholly above 0" if one.verdict == "improved" else f"within {one.margin_text}"
    verdict = "better" if one.verdict == "improved" else "equivalent"
    return f"{_named(one)} is {verdict}: {one.delta_text} points, {where}."


def _named(one: MeanOutcome) -> str:
    """The name of a mean, e.g. "The mean of mteb", with a note on missing columns."""
    part = "" if one.there == one.wanted else f" (only {one.there} of its {one.wanted} columns)"
    return f"The mean of {one.suite}{part}"


def _student_quantile(share: float, freedom: float) -> float:
    """The value below which a share of Student's t distribution lies.

    >>> round(_student_quantile(0.95, 5), 3)
    2.015
    """
    from scipy.special import stdtrit

    return float(stdtrit(min(freedom, LARGE), share))
