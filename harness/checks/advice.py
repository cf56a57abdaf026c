"""What to do after a check, in sentences and commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.checks.decide import PRACTICAL
from harness.checks.difference import LEAST_RUNS
from harness.checks.outcome import VERDICTS, Check, MarginSource, Sensitivity, TaskOutcome
from harness.results.scores import format_delta, score_text

SHOWN = 6
"""Most names or sentences in a list, unless every one is wanted."""

ENOUGH = 0.8
"""A suite is said not to see its margin if an equal model passes with a lower probability."""

SOURCES: Mapping[MarginSource, str] = {
    "default": "the default",
    "policy": "yours",
    "runs": "chosen by the tool from the baseline's repeated trainings",
    "checks": "chosen by the tool from earlier checks",
    "stated": "chosen by the tool from the number of examples",
}
"""The source of a margin, in words."""

TRAININGS = "3 or more trainings"
"""What would settle a line of a retraining with one training a side."""

OTHER_MODEL = "Not the same model"
PORT_STEPS = {
    "tokens differ": "Compare the two tokenizers (tokenizer.json, lowercasing, special tokens).",
    "tokens are equal": "The tokenizer is right. Look at what follows it: weights, pooling, normalization, "
    "precision.",
}
"""The start of the reason of a red port, and what to do by what follows it."""


def describe_next_steps(check: Check, *, results: Path | None = None) -> str:
    """What to do after a check: a sentence, then others and commands to type, each on a line of its own.

    Args:
        check: The check.
        results: The results folder, where it is not the default one.
    """
    fallen = [
        one
        for one in sort_outcomes(check.tasks)
        if one.verdict == "regressed" or one.collapsed or any(part.collapsed for part in one.lost)
    ]
    lost = [one for one in fallen if one.must_not_regress]
    if check.overall == "regressed":
        return "\n".join(_explain_regression(check, lost, results))
    if check.overall == "inconclusive":
        return "\n".join(_explain_missing_evidence(check))
    if lost:
        command = _build_compare_command(check, lost[0], results)
        where = next((f"{part.part} of " for part in lost[0].lost if part.collapsed), "")
        return f"Before you accept it, look at {where}{lost[0].task}.\n{command}"
    if fallen:
        return f"Accept the candidate: the policy lets {join_names([one.task for one in fallen])} regress."
    return "Accept the candidate."


def _explain_regression(check: Check, lost: Sequence[TaskOutcome], results: Path | None) -> Iterator[str]:
    """The task to look at first, or the largest losses, with the command that shows them."""
    red = sorted(lost, key=lambda one: one.verdict != "regressed")
    losses = [one for one in sorted(check.tasks, key=get_task_delta) if one.low is not None]
    most = ", ".join(f"{one.task} {format_delta(one.delta)}" for one in losses[:3] if get_task_delta(one) < 0)
    summary = f"No task regressed by itself{'; most was lost on ' if most else ''}{most}:"
    yield "Reject the candidate."
    because = "\n".join(check.because)
    if step := next((PORT_STEPS[one] for one in PORT_STEPS if f"{OTHER_MODEL}: {one}" in because), ""):
        yield step
    else:
        yield f"Look at {red[0].task} first:" if red else summary
        yield _build_compare_command(check, red[0] if red else None, results)


def _build_compare_command(check: Check, task: TaskOutcome | None, results: Path | None) -> str:
    """The command that compares both models by their keys, since several may have one name.

    It shows the candidate where there is nothing to compare: the records of the baseline are in a file, or
    both sides are one model under two settings.
    """
    candidate, baseline = (one.artifacts[0][:12] for one in (check.candidate, check.baseline))
    of_file = check.baseline.baseline and check.baseline.source != check.baseline.baseline
    words = ["harness", "compare", baseline, candidate, *(["--task", task.task] if task else [])]
    if of_file or candidate == baseline:
        words = ["harness", "show", candidate]
    return shlex.join([*words, *(["--results", str(results)] if results is not None else [])])


def _explain_missing_evidence(check: Check) -> Iterator[str]:
    """What would decide an inconclusive check, by its causes."""
    lacking = check.of("missing")
    if not lacking:
        yield "Do not accept the candidate yet." if check.exit_code else "The policy lets it pass undecided."
    if mine := [one.reason for one in lacking if one.baseline is not None]:
        spent = all("the budget was used up" in reason for reason in mine)
        step = "Run the check again, or raise budget_minutes." if spent else ""
        yield step or "Correct this and run the check again; finished scores stay."
    if len(mine) < len(lacking):
        name = shlex.quote(check.baseline.baseline or "NAME")
        yield f"The baseline lacks scores: set it again (harness baseline set {name} --replace ...)."
    ignored = check.policy.get("not_testable") == "ignore"
    if check.of("not testable") and (not ignored or any(mean.delta is None for mean in check.means)):
        yield f"Measure again what is not testable{'' if ignored else ', or ignore it in the policy'}."
    if any(mean.to_settle == TRAININGS for mean in check.means):
        how = "(repeat --model at harness baseline set), or --seeds 3 with a recipe"
        yield f"To decide: a baseline of {TRAININGS} {how}."
    for mean in check.means:
        if mean.to_settle not in ("", TRAININGS):
            yield f"To decide {mean.suite}: {mean.to_settle}."


def explain_unseen_margins(means: Mapping[str, Sensitivity], *, models: int) -> list[str]:
    """What suites can see that an equal model would often fail: of the worst, and the others' names."""
    texts = {suite: _explain_unseen_margin(suite, mean, models=models) for suite, mean in means.items()}
    weak = {suite: text for suite, text in texts.items() if text}
    if not weak:
        return []
    worst = min(weak, key=lambda suite: means[suite].passing or 0.0)
    others = [suite for suite in weak if suite != worst]
    return [weak[worst] + (f" Much the same holds for {join_names(others)}." if others else "")]


def _explain_unseen_margin(suite: str, sensitivity: Sensitivity, *, models: int) -> str:
    """What a suite can see, if an equal model would often fail its margin; empty for any other."""
    automatic, passing = sensitivity.automatic, sensitivity.passing
    if automatic is None or passing is None or passing >= ENOUGH:
        return ""
    seen = f"the smallest loss seen in 80 % of checks is {100 * (sensitivity.detectable or 0.0):.2f}"
    if sensitivity.detectable is None:
        seen = "no loss is seen in 80 % of checks"
    more = "more examples"
    if sensitivity.margin and sensitivity.counted:
        # A standard error falls with the root of the number of examples.
        times = (automatic / sensitivity.margin) ** 2
        count = f"about {times:.1f}" if times <= PRACTICAL else f"more than {PRACTICAL}"
        more = f"{count} times as many examples"
    offer = ""
    if sensitivity.source in ("default", "policy"):
        offer = " --margin auto lets the tool choose a wider margin, up to most_margin of the policy."
    return (
        f"{suite} cannot see its margin of {100 * sensitivity.margin:.2f} points well: an equal model passes "
        f"in {passing:.0%} of checks, and {seen}. For an equal model to pass in most checks: a suite with "
        f"{more}{'' if models >= LEAST_RUNS else f', or a baseline of {TRAININGS}'}.{offer}"
    )


def list_lost_parts(check: Check) -> list[str]:
    """Each split or subset, as a language, on which the candidate is lower: the largest losses first."""
    parts = [(part.delta or 0.0, task.task, part) for task in check.tasks for part in task.lost]
    return [
        f"{part.part} of {name} {score_text(part.baseline)} → {score_text(part.candidate)}: {part.delta_text}"
        for _, name, part in sorted(parts, key=lambda one: one[:2])
    ]


def get_task_delta(task: TaskOutcome) -> float:
    """The difference of a task; 0 where it has none."""
    return task.delta or 0.0


def sort_outcomes(tasks: Iterable[TaskOutcome]) -> list[TaskOutcome]:
    """The tasks that collapsed, then the others by verdict; the largest difference first."""
    return sorted(
        tasks, key=lambda one: (not one.collapsed, VERDICTS.index(one.verdict), -abs(get_task_delta(one)))
    )


def join_names(names: Sequence[str], *, every: bool = False, between: str = ", ") -> str:
    """Names in a line, and how many more there are; all of them if every one is wanted."""
    shown = names if every else names[:SHOWN]
    return between.join(shown) + (f" and {len(names) - len(shown):,} more" if len(shown) < len(names) else "")
