"""What a CI service counts: a testcase for each task, each mean and the overall verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from harness.regress.report import words
from harness.report_text import score_text

if TYPE_CHECKING:
    from harness.regress.outcome import Check, MeanOutcome, Overall, TaskOutcome, Verdict

Result = Literal["", "failure", "error", "skipped"]

OVERALL = "check"
"""The testsuite of the overall verdict, and of tasks that no suite claims."""

OF_TASKS: Mapping[Verdict, Result] = {
    "regressed": "failure",
    "missing": "error",
    "inconclusive": "skipped",
    "not testable": "skipped",
}
OF_MEANS: Mapping[Overall, Result] = {"regressed": "failure", "inconclusive": "skipped"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One testcase.

    Attributes:
        name: Of the task, or what it is the verdict of.
        result: What became of it; empty for a pass.
        verdict: In the words of the check.
        message: One line.
        details: Several lines.
        seconds: What it took.
    """

    name: str
    result: Result
    verdict: str
    message: str
    details: str
    seconds: float = 0.0


def cases(check: Check) -> dict[str, list[Case]]:
    """The cases of each testsuite, the overall verdict last; a task of two suites is in the first."""
    found: dict[str, list[Case]] = {name: [] for name in check.suites}
    last: dict[str, list[Case]] = {OVERALL: found.pop(OVERALL, [])}
    every = found | last
    for task in check.tasks:
        home = next((name for name in task.suites if name in every), OVERALL)
        every[home].append(of_task(task))
    for mean in check.means:
        every.get(mean.suite, every[OVERALL]).append(of_mean(mean))
    every[OVERALL].append(of_check(check))
    return every


def of_task(task: TaskOutcome) -> Case:
    """A task: a regression that the policy lets through is skipped, not failed."""
    allowed = task.verdict == "regressed" and not task.must_not_regress
    facts = (
        f"delta {words.delta_text(task)}" if task.delta is not None else "",
        f"p {words.p_text(task)}" if task.p_regressed is not None else "",
        words.why(task),
    )
    return Case(
        name=task.task,
        result="skipped" if allowed else OF_TASKS.get(task.verdict, ""),
        verdict=task.verdict,
        message=f"{words.verdict_text(task)}: {', '.join(fact for fact in facts if fact)}",
        details=_details(task),
    )


def _details(task: TaskOutcome) -> str:
    facts = {
        "metric": task.metric,
        "baseline": score_text(task.baseline),
        "candidate": score_text(task.candidate),
        "delta": words.delta_text(task),
        "margin": f"±{100 * task.margin:.2f}",
        "p": words.p_text(task),
        "units": words.units_text(task),
        "seeds": words.seeds_text(task),
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def of_mean(mean: MeanOutcome) -> Case:
    """The mean of a suite."""
    return Case(
        name=f"mean of {mean.suite}",
        result=OF_MEANS.get(mean.verdict, ""),
        verdict=mean.verdict,
        message=f"{mean.verdict}: {words.mean_text(mean)}",
        details="\n".join(filter(None, (words.mean_text(mean), words.predicted_text(mean)))),
    )


def of_check(check: Check) -> Case:
    """The overall verdict, which fails if the exit code does."""
    passed: Result = "skipped" if check.overall == "inconclusive" else ""
    return Case(
        name="overall verdict",
        result="failure" if check.exit_code else passed,
        verdict=check.overall,
        message=" ".join((f"{check.overall}:", *check.because)),
        details="\n".join((*check.because, words.counts_text(check), words.exit_text(check))),
        seconds=check.seconds,
    )
