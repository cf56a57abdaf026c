"""The verdict on a candidate, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.failures import shortened
from harness.regress.outcome import MeanOutcome, Overall, TaskOutcome
from harness.regress.policy import EXIT_CODES, Policy
from harness.regress.report.words import delta_text, p_text, signed


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The verdict, what decided it in sentences, and the exit code that the policy gives it."""

    verdict: Overall
    because: tuple[str, ...]
    exit_code: int


def conclude(tasks: Sequence[TaskOutcome], means: Sequence[MeanOutcome], policy: Policy) -> Conclusion:
    """Put the verdicts of tasks and means together.

    The candidate has `regressed` if a task that must not did, or if the interval of a suite's mean
    lies below its margin. Else a suite of which something is missing is `inconclusive`. Else it is
    what the means are: `inconclusive` if one of them is, `improved` if one of them is, `equivalent`
    otherwise.
    """
    lost = [*_regressions(tasks), *_fallen(means)]
    if lost:
        return Conclusion(verdict="regressed", because=tuple(lost), exit_code=1)
    open_ones = [*_incomplete(tasks, policy), *_undecided(means)]
    if open_ones:
        code = EXIT_CODES[policy.inconclusive]
        return Conclusion(verdict="inconclusive", because=tuple(open_ones), exit_code=code)
    improved = any(mean.verdict == "improved" for mean in means)
    return Conclusion(
        verdict="improved" if improved else "equivalent",
        because=tuple(_held(mean) for mean in means),
        exit_code=0,
    )


def _regressions(tasks: Sequence[TaskOutcome]) -> list[str]:
    found = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    found.sort(key=lambda one: one.delta or 0.0)
    return [f"{one.task} regressed: {delta_text(one)} points, p {p_text(one)}." for one in found]


def _fallen(means: Sequence[MeanOutcome]) -> list[str]:
    return [
        f"The mean of {one.suite} regressed: {delta_text(one)} points, wholly below {signed(-one.margin)}."
        for one in means
        if one.verdict == "regressed"
    ]


def _incomplete(tasks: Sequence[TaskOutcome], policy: Policy) -> list[str]:
    gone = [one.task for one in tasks if one.verdict == "missing"]
    untold = [one.task for one in tasks if one.verdict == "not testable"]
    found = [f"{len(gone)} of {len(tasks)} tasks lack a score: {shortened(gone)}."] if gone else []
    if untold and policy.not_testable == "inconclusive":
        found.append(f"{len(untold)} of {len(tasks)} tasks cannot be tested: {shortened(untold)}.")
    return found


def _undecided(means: Sequence[MeanOutcome]) -> list[str]:
    return [_open(one) for one in means if one.verdict == "inconclusive"]


def _open(one: MeanOutcome) -> str:
    if one.delta is None:
        return f"No task of {one.suite} could be tested."
    margin = 100 * one.margin
    return (
        f"The mean of {one.suite} is open: {delta_text(one)} points, neither within ±{margin:.2f} "
        "nor clear of it."
    )


def _held(one: MeanOutcome) -> str:
    where = "wholly above 0" if one.verdict == "improved" else f"within ±{100 * one.margin:.2f}"
    return f"The mean of {one.suite} is {_adjective(one)}: {delta_text(one)} points, {where}."


def _adjective(one: MeanOutcome) -> str:
    return "better" if one.verdict == "improved" else "equivalent"
