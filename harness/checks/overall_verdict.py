"""How a check ends: the verdicts of its tasks and means as one, the sentences that say why, the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.checks.outcome import Chain, MeanOutcome, Overall, TaskOutcome
from harness.checks.policy import EXIT_CODES, Policy
from harness.core.terminal import shorten_names
from harness.results.scores import format_delta

Tasks = Sequence[TaskOutcome]
Means = Sequence[MeanOutcome]

UNCHECKED = "is not checked: none of its tasks is in --tasks."
ABSENT = "the baseline's model "
"""The end of a warning on a suite, and the start of a port's reason: reports look for them."""


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """The overall verdict, the sentences that explain it, and the policy's exit code."""

    verdict: Overall
    because: tuple[str, ...]
    exit_code: int


def find_single_tasks(tasks: Tasks, means: Means) -> dict[str, TaskOutcome]:
    """By suite the task that is alone in its mean, and says the same; one column may have several tasks."""
    single = [mean.suite for mean in means if mean.delta is not None and mean.there <= 1]
    homes = {suite: [task for task in tasks if suite in task.suites] for suite in single}
    return {suite: ones[0] for suite, ones in homes.items() if len(ones) == 1}


def merge_verdicts(
    tasks: Tasks, means: Means, policy: Policy, chain: Chain | None = None, note: str = ""
) -> Conclusion:
    """Combine the verdicts of tasks and means.

    The candidate has `regressed` if a task that must not regress did, a suite's mean did, also since the
    anchor of a chain, or, if the policy says so, a part of such a task collapsed. Otherwise a check with
    missing scores, tasks that cannot be tested or undecided means is `inconclusive`; with a missing score or
    an untested mean it never passes. Otherwise it is `improved` if every mean is, or the same, `same` if
    every task is, else it has `passed`: a task that is inconclusive does not hold it back. A `note` is in
    place of the sentences on means that single trainings leave open.
    """
    alone = find_single_tasks(tasks, means)
    lost = _describe_regressions(tasks, means, alone, policy)
    if policy.parts == "fail":
        lost += [text for one in tasks if one.must_not_regress for text in describe_collapsed_parts(one)]
    lost += describe_chain_regressions(chain, means)
    if lost:
        return Conclusion(verdict="regressed", because=tuple(lost), exit_code=1)
    untested = [f"No task of {mean.suite} could be tested." for mean in means if mean.delta is None]
    gone = _describe_missing_scores(tasks) or untested
    names = [task.task for task in tasks if task.verdict == "not testable"]
    unclear = f"{len(names)} of {len(tasks)} tasks cannot be tested: {shorten_names(names)}."
    undecided = [unclear] if names and policy.not_testable != "ignore" else []
    open_means = [one for one in means if one.verdict == "inconclusive" and one.delta is not None]
    noted = [one for one in open_means if note and one.needs_trainings]
    undecided += [note] if noted else []
    undecided += [_describe_mean(one, alone) for one in open_means if one not in noted]
    if gone or undecided:
        causes = ((policy.missing, gone), (policy.inconclusive, undecided))
        # The gravest of the exit codes: fail, then inconclusive, then pass.
        code = min((EXIT_CODES[setting] for setting, texts in causes if texts), key=(1, 3, 0).index)
        return Conclusion(verdict="inconclusive", because=(*gone, *undecided), exit_code=code)
    because = tuple(_describe_mean(one, alone) for one in means)
    because += tuple(_describe_lower_baselines(chain, means)) if chain else ()
    verdict: Overall = "same" if all(task.verdict == "same" for task in tasks) else "passed"
    if {"improved"} <= {mean.verdict for mean in means} <= {"improved", "same"}:
        verdict = "improved"
    return Conclusion(verdict=verdict, because=because, exit_code=0)


def _describe_missing_scores(tasks: Tasks) -> list[str]:
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


def _describe_regressions(
    tasks: Tasks, means: Means, alone: Mapping[str, TaskOutcome], policy: Policy
) -> list[str]:
    """Sentences on tasks and means that regressed; of a suite of one task, on the task alone."""
    lost = [one for one in tasks if one.verdict == "regressed" and one.must_not_regress]
    lost.sort(key=lambda one: (not one.collapsed, one.delta or 0.0))
    lines: dict[str, TaskOutcome | MeanOutcome] = {one.task: one for one in lost}
    fallen = [one for one in means if one.verdict == "regressed"]
    lines |= {_format_mean_name(one, alone): alone.get(one.suite) or one for one in fallen}
    return [f"{name}: {_describe_loss(line, policy)}." for name, line in lines.items()]


def _describe_loss(line: TaskOutcome | MeanOutcome, policy: Policy) -> str:
    """A loss that is red, and by which rule."""
    loss = f"{format_delta(line.delta)} points, surely lower"
    if isinstance(line, TaskOutcome) and line.collapsed:
        return f"{loss}: a collapse. A loss of more than {policy.collapse:g} is red whatever the margin"
    if (line.delta or 0.0) < -line.margin:
        return f"{loss}; a loss of {line.margin_text} is allowed"
    why = "Red, since all three hold: the loss is sure, over half of what is allowed, perhaps all of it"
    return f"{_describe_worst(line)} {why}"


def _describe_worst(line: TaskOutcome | MeanOutcome) -> str:
    """A difference with its lower end and the margin, in the signs of the table."""
    low = format_delta(line.low)
    return f"{format_delta(line.delta)} points, at worst {low}; a loss of {line.margin_text} is allowed."


def describe_collapsed_parts(task: TaskOutcome) -> list[str]:
    """A sentence on the parts of a task that collapsed; none where none did."""
    parts = [
        f"{one.part} of {task.task} ({one.units:,} {task.unit}): {one.delta_text} points, a collapse"
        for one in task.lost
        if one.collapsed
    ]
    return [f"{shorten_names(parts, between='; ')}."] if parts else []


def describe_chain_regressions(chain: Chain | None, means: Means) -> list[str]:
    """Sentences on means that surely fell since the anchor, with the difference from the baseline."""
    steps = {one.suite: f" Against the baseline alone: {format_delta(one.delta)}." for one in means}
    return [
        f"Against {describe_anchor(chain)}: {_format_mean_name(m, {})} {format_delta(m.delta)} points, "
        f"surely lower. Red by itself: {m.margin_text} may be lost since then.{steps.get(m.suite, '')}"
        for m in (chain.means if chain else ())
        if chain and m.verdict == "regressed"
    ]


def _describe_lower_baselines(chain: Chain, means: Means) -> Iterator[str]:
    """Sentences on baselines that lie below the anchor by more than a chain may lose."""
    for since, step in ((a, b) for a in chain.means for b in means if a.suite == b.suite):
        lower = (since.delta or 0.0) - (step.delta or 0.0)
        # Both differences are of the same candidate where they are of the same tasks.
        if since.there == step.there and lower < -since.margin and since.verdict != "regressed":
            yield (
                f"On {since.suite} the baseline itself is at {format_delta(lower)} points against "
                f"{describe_anchor(chain)}; the candidate is at {format_delta(since.delta)}."
            )


def describe_anchor(chain: Chain) -> str:
    """The anchor, e.g. "v1, the anchor of this chain (set as release on 2026-01-31)"."""
    model = f"{chain.model}, " if chain.model else ""
    return f"{model}the anchor of this chain (set as {chain.anchor} on {chain.when[:10]})"


def _describe_mean(mean: MeanOutcome, alone: Mapping[str, TaskOutcome]) -> str:
    name = _format_mean_name(mean, alone)
    if mean.verdict == "same":
        return f"{name} is the same: both sides gave the same outputs."
    if mean.verdict == "improved":
        return f"{name}: {format_delta(mean.delta)} points, at least {format_delta(mean.low)}."
    return f"{name}: {_describe_worst(mean)}"


def _format_mean_name(mean: MeanOutcome, alone: Mapping[str, TaskOutcome]) -> str:
    """The name of a mean, e.g. "Mean of mteb (2 of 3 tasks)"; of a single task, its own."""
    if mean.suite in alone:
        return alone[mean.suite].task
    if mean.wanted == 1:
        return mean.suite
    part = "" if mean.there == mean.wanted else f" ({mean.there} of {mean.wanted} tasks)"
    return f"Mean of {mean.suite}{part}"
