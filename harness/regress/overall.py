"""The verdict on a candidate, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.failures import shortened
from harness.regress.outcome import MeanOutcome, Overall, TaskOutcome
from harness.regress.policy import EXIT_CODES, Policy
from harness.regress.report.words import delta_text, margin_text, p_text, signed


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
