"""How a check ends: the verdicts of its tasks and means as one, the sentences that say why, the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.checks.outcome import Chain, MeanOutcome, Overall, TaskOutcome
from harness.checks.policy import EXIT_CODES, Policy
from harness.core.errors import shorten_names
from harness.results.scores import format_delta


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The overall verdict, the sentences that explain it, and the policy's exit code."""

    verdict: Overall
    because: tuple[str, ...]
    exit_code: int


def merge_verdicts(
    tasks: Sequence[TaskOutcome], means: Sequence[MeanOutcome], policy: Policy, chain: Chain | None = None
) -> Conclusion:
    """Combine the verdicts of tasks and means.

    The candidate has `regressed` if a task that must not regress did, a suite's mean did, also since the
    anchor of a chain, or, if the policy says so, a part of such a task collapsed. Otherwise a check with
    missing scores, tasks that cannot be tested or undecided means is `inconclusive`; with a missing score or
    an untested mean it never passes. Otherwise it is `improved` if every mean is, or the same, `same` if
    every task is, else it has `passed`: a task that is inconclusive does not hold it back.
    """
    lost = [*_describe_task_regressions(tasks), *_describe_mean_regressions(means, tasks)]
    if policy.parts == "fail":
        lost += [
            f"{part.part} of {one.task} collapsed: {part.delta_text} points."
            for one in tasks
            for part in one.lost
            if one.must_not_regress and part.collapsed
        ]
    lost += describe_chain_regressions(chain)
    if lost:
        return Conclusion(verdict="regressed", because=tuple(lost), exit_code=1)
    lacking = [one.task for one in tasks if one.verdict == "missing"]
    gone = []
    if lacking:
        gone.append(f"{len(lacking)} of {len(tasks)} tasks lack a score: {shorten_names(lacking)}.")
    gone += [f"No task of {mean.suite} could be tested." for mean in means if mean.delta is None]
    undecided = _describe_untestable_tasks(tasks, policy)
    open_means = [one for one in means if one.verdict == "inconclusive" and one.delta is not None]
    undecided += map(_describe_mean, open_means)
    if gone or undecided:
        codes = {EXIT_CODES[policy.missing]} if gone else set()
        codes |= {EXIT_CODES[policy.inconclusive]} if undecided else set()
        # The gravest of the exit codes: fail, then inconclusive, then pass.
        code = next(one for one in (1, 3, 0) if one in codes)
        return Conclusion(verdict="inconclusive", because=(*gone, *undecided), exit_code=code)
    verdict: Overall = "same" if all(task.verdict == "same" for task in tasks) else "passed"
    if {"improved"} <= {mean.verdict for mean in means} <= {"improved", "same"}:
        verdict = "improved"
    return Conclusion(verdict=verdict, because=tuple(map(_describe_mean, means)), exit_code=0)


def _describe_task_regressions(tasks: Sequence[TaskOutcome]) -> list[str]:
    regressions = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    regressions.sort(key=lambda one: (not one.collapsed, one.delta or 0.0))
    words = {True: "collapsed", False: "regressed"}
    return [
        f"{one.task} {words[one.collapsed]}: {one.delta_text} points, p {one.p_text}"
        f"{'' if one.collapsed else f'; red, as the loss is sure and above {50 * one.margin:.2f}'}."
        for one in regressions
    ]


def _describe_mean_regressions(means: Sequence[MeanOutcome], tasks: Sequence[TaskOutcome]) -> list[str]:
    """Sentences on means that regressed, except means of a single task that has a sentence already."""
    # A suite of one task would else be listed twice, by its task and by its mean.
    counts = Counter(suite for one in tasks for suite in one.suites)
    lost = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    red = {suite for one in lost for suite in one.suites if counts[suite] == 1}
    return [
        f"{_format_mean_name(one)} regressed: {format_delta(one.delta)} points; it is surely lower, "
        f"perhaps by {_format_loss(one)}; red, as the loss is above {50 * one.margin:.2f}."
        for one in means
        if one.verdict == "regressed" and not (one.wanted == 1 and one.suite in red)
    ]


def describe_chain_regressions(chain: Chain | None) -> list[str]:
    """Sentences on means that surely fell since the anchor; none without a chain."""
    if chain is None:
        return []
    return [
        f"{_format_mean_name(one)} is surely lower, by about {-100 * (one.delta or 0.0):.2f} points, "
        f"since {chain.anchor} of {chain.when[:10]}, over {chain.baselines + 1} steps; "
        f"{one.margin_text} in all are allowed."
        for one in chain.means
        if one.verdict == "regressed"
    ]


def _describe_untestable_tasks(tasks: Sequence[TaskOutcome], policy: Policy) -> list[str]:
    names = [one.task for one in tasks if one.verdict == "not testable"]
    if not names or policy.not_testable == "ignore":
        return []
    return [f"{len(names)} of {len(tasks)} tasks cannot be tested: {shorten_names(names)}."]


def _describe_mean(mean: MeanOutcome) -> str:
    if mean.verdict == "same":
        return f"{_format_mean_name(mean)} is the same: both sides gave the same outputs."
    if mean.verdict == "improved":
        return f"{_format_mean_name(mean)} is higher: {mean.delta_text} points."
    verdict = "is inconclusive" if mean.verdict == "inconclusive" else "passed"
    return (
        f"{_format_mean_name(mean)} {verdict}: {format_delta(mean.delta)} points, at most "
        f"{_format_loss(mean)} lower, where {mean.margin_text} is allowed."
    )


def _format_loss(mean: MeanOutcome) -> str:
    return f"{max(-100 * (mean.low or 0.0), 0.0):.2f}"


def _format_mean_name(mean: MeanOutcome) -> str:
    """The name of a mean, e.g. "The mean of 2 of 3 columns of mteb"; of a single task, its suite."""
    if mean.wanted == 1:
        return mean.suite
    part = "" if mean.there == mean.wanted else f"{mean.there} of {mean.wanted} columns of "
    return f"The mean of {part}{mean.suite}"
