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
    lost = _describe_regressions(tasks, means)
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
    gone = _describe_missing_scores(tasks)
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


def _describe_missing_scores(tasks: Sequence[TaskOutcome]) -> list[str]:
    """A sentence for each reason for which tasks lack a score."""
    lacking: dict[str, list[str]] = {}
    for task in tasks:
        if task.verdict == "missing":
            lacking.setdefault(task.reason.removeprefix("the candidate has no score: "), []).append(task.task)
    return [
        f"{len(names)} of {len(tasks)} tasks lack a score: "
        f"{': '.join(filter(None, (shorten_names(names), why)))}."
        for why, names in lacking.items()
    ]


def _describe_regressions(tasks: Sequence[TaskOutcome], means: Sequence[MeanOutcome]) -> list[str]:
    """Sentences on tasks and means that regressed; of a suite of one task, on the task alone."""
    lost = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    lost.sort(key=lambda one: (not one.collapsed, one.delta or 0.0))
    counts = Counter(suite for one in tasks for suite in one.suites)
    red = {suite for one in lost for suite in one.suites if counts[suite] == 1}
    others = [
        one for one in means if one.verdict == "regressed" and not (one.wanted == 1 and one.suite in red)
    ]
    return [
        f"{one.task} collapsed: it {one.fall_text}." if one.collapsed else _describe_loss(one.task, one)
        for one in lost
    ] + [_describe_loss(_format_mean_name(one), one) for one in others]


def _describe_loss(name: str, line: TaskOutcome | MeanOutcome) -> str:
    """Why a loss is red; it may be below the margin, so both limits are named."""
    return (
        f"{name} {line.fall_text}; red: the loss is sure, may reach {_format_loss(line)} where "
        f"{line.margin_text} is allowed, and is above half of that."
    )


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


def _format_loss(line: TaskOutcome | MeanOutcome) -> str:
    return f"{max(-100 * (line.low or 0.0), 0.0):.2f}"


def _format_mean_name(mean: MeanOutcome) -> str:
    """The name of a mean, e.g. "The mean of 2 of 3 tasks of mteb"; of a single task, its suite."""
    if mean.wanted == 1:
        return mean.suite
    part = "" if mean.there == mean.wanted else f"{mean.there} of {mean.wanted} tasks of "
    return f"The mean of {part}{mean.suite}"
