"""What to do after a check, in sentences and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from harness.checks.outcome import VERDICTS, Check, MarginSource, Sensitivity, TaskOutcome, Verdict
from harness.checks.overall_verdict import ABSENT, UNCHECKED, describe_chain_regressions, find_single_tasks
from harness.checks.task_verdicts import ENOUGH, GREEN, LATER, PRACTICAL
from harness.core.terminal import NAMES_SHOWN, shorten_names
from harness.results.score_differences import LEAST_RUNS
from harness.results.scores import format_delta, score_text
from harness.results.units import TRAINED

COUNTED: tuple[Verdict, ...] = ("passed", "same")
"""Verdicts of tasks that are only counted in a report."""

SOURCES: Mapping[MarginSource, str] = {
    "default": "the default",
    "policy": "set with --margin or in the policy",
    "runs": "chosen by the tool from the baseline's repeated trainings",
    "checks": "chosen by the tool from earlier checks",
    "stated": "chosen by the tool from the number of examples",
}
"""The source of a margin, in words."""


def describe_next_steps(check: Check, *, results: Path | None = None) -> list[str]:
    """What to do: a sentence, then others and commands; `results` where the folder is not the default."""
    fallen = [
        one
        for one in sort_outcomes(check.tasks)
        if one.verdict == "regressed" or one.collapsed or any(part.collapsed for part in one.lost)
    ]
    sure = {mean.suite for mean in check.means if mean.verdict == "regressed"}
    alone = [t.task for suite, t in find_single_tasks(check.tasks, check.means).items() if suite in sure]
    lost = [one for one in fallen if one.must_not_regress or one.task in alone]
    subject = "recipe" if check.question.name == "retrain" else "candidate"
    if check.overall == "regressed":
        return [f"Reject the {subject}.", *_explain_regression(check, lost, results)]
    if check.overall == "inconclusive":
        return [*_explain_missing_evidence(check)]
    if lost:
        command = _build_compare_command(check, check.baseline.artifacts, lost[0], results)
        steps = ["But look at what collapsed before you accept it.", "Compare scores and settings:", command]
        if not lost[0].collapsed:
            steps.append('A part is red only with parts = "fail" in the file of --policy (see --explain).')
        return steps
    allowed = f": the policy lets {shorten_names([one.task for one in fallen])} regress" if fallen else ""
    unchecked = "; ".join(one.rstrip(".") for one in check.warnings if one.endswith(UNCHECKED))
    return [f"Accept the {subject}{allowed}{', but ' if unchecked else ''}{unchecked}."]


def _explain_regression(check: Check, lost: Sequence[TaskOutcome], results: Path | None) -> Iterator[str]:
    """The task to look at first, or the largest losses, with the command that shows them."""
    red = sorted(lost, key=lambda one: one.verdict != "regressed")
    deltas: Mapping[str, float] = {t.task: t.delta or 0.0 for t in check.tasks if t.low is not None}
    chain, artifacts, since = check.chain, check.baseline.artifacts, ""
    slow = bool(describe_chain_regressions(chain, check.means))
    if chain and slow and not red and all(mean.verdict != "regressed" for mean in check.means):
        # The loss is against the anchor, and so are those of tasks.
        deltas, artifacts, since = chain.deltas, chain.artifacts, "since the anchor "
    losses = sorted((delta, name) for name, delta in deltas.items() if delta < 0)
    most = ", ".join(f"{name} {format_delta(delta)}" for delta, name in losses[:3])
    summary = f"The mean is red, and no single task{f'; {since}most was lost on ' if most else ''}{most}"
    if check.question.name == "port" and not slow:
        # The reason names the stage to look at; the command shows what it does to a score.
        summary = f"Correct what differs. To see what it did to {red[0].task if red else 'scores'}"
    elif red:
        summary = f"Look at {red[0].task} first"
    command = _build_compare_command(check, artifacts, red[0] if red else None, results)
    beside = len({*artifacts, *check.candidate.artifacts}) > 2 and command.startswith("harness compare")
    yield f"{summary}{' (the command compares the first training of each side)' if beside else ''}:"
    yield command


def _build_compare_command(
    check: Check, artifacts: Sequence[str], task: TaskOutcome | None, results: Path | None
) -> str:
    """The command that compares both models by their keys, since several may have one name.

    It shows the candidate where there is nothing to compare: the records of the baseline are in a file, or
    both sides are one model under two settings, or a former version did not write the anchor's model.
    """
    candidate, baseline = (next(iter(one), "")[:12] for one in (check.candidate.artifacts, artifacts))
    of_file = check.baseline.baseline and check.baseline.source != check.baseline.baseline
    words = ["harness", "compare", baseline, candidate, *(["--task", task.task] if task else [])]
    if of_file or baseline in ("", candidate):
        words = ["harness", "show", candidate]
    return shlex.join([*words, *(["--results", str(results)] if results is not None else [])])


def _explain_missing_evidence(check: Check) -> Iterator[str]:
    """What would decide an inconclusive check, by its causes."""
    lacking = check.of("missing")
    text = "Do not accept the candidate yet." if check.exit_code else "The policy lets it pass undecided."
    yield "Nothing is decided." if lacking else text
    mine = [one for one in lacking if one.baseline is not None]
    if mine:
        yield "Correct what the reason names, and run the check again: it measures what is missing."
    name = shlex.quote(check.baseline.baseline or "NAME")
    if len(mine) < len(lacking):
        yield f"The baseline lacks scores: set it again (harness baseline set {name} --replace ...)."
    ignored = check.policy.get("not_testable") == "ignore"
    if check.of("not testable") and (not ignored or any(mean.delta is None for mean in check.means)):
        yield f"Measure again what is not testable{'' if ignored else ', or ignore it in the policy'}."
    # Else a port's score follows from its vectors, and is not in doubt.
    if check.question.name == "port" and any(not one.learner for one in check.of("inconclusive")):
        for place in re.findall(f"{ABSENT}(.+?) (?:cannot|has changed since)", " ".join(check.because)):
            yield f"Restore {place} as it was, and run the check again."
            yield "Or set the baseline again, with a model that is there:"
            yield f"harness baseline set {name} --replace --model MODEL ..."
        yield "If other outputs are acceptable: this check again, with --question replace."
    if any(mean.needs_trainings for mean in check.means):
        trained = any(one.unit == TRAINED for one in check.tasks)
        yield f"Train the baseline {LEAST_RUNS} times in all, with other seeds, and set them as one baseline:"
        models = f"MODEL --recipe RECIPE --seeds {LEAST_RUNS}" if trained else "A --model B --model C"
        yield f"harness baseline set NAME --model {models}"
        yield "Check the same candidate against it. To compare these two models alone: --question replace."
    for mean in (one for one in check.means if one.other_needs):
        first, *later = mean.other_needs.split(f". {LATER}")
        suite = f" {mean.suite}" if len(check.means) > 1 else ""
        yield f"To decide{suite} in 80 % of such checks: {first}."
        yield from (f"{LATER}{text}." for text in later)


def explain_unseen_margins(means: Mapping[str, Sensitivity]) -> list[str]:
    """What the suite detects whose margin an equal model would fail most often, and others that are weak."""
    passing = {suite: mean.passing for suite, mean in means.items() if mean.passing is not None}
    weak = sorted((share, suite) for suite, share in passing.items() if share < ENOUGH)
    if not weak:
        return []
    (share, suite), *others = weak
    mean, more, offer = means[suite], "More examples (of a recipe also trainings) help", ""
    smallest = "above its score" if mean.detectable is None else f"{100 * mean.detectable:.2f}"
    if mean.margin and mean.counted:
        # A standard error falls with the root of the number of examples.
        times = ((mean.automatic or 0.0) / mean.margin) ** 2
        count = f"About {times:.1f}" if times <= PRACTICAL else f"More than {PRACTICAL}"
        more = f"{count} times as many examples (a larger suite) let it pass in {100 * GREEN:g} %"
    if mean.source in ("default", "policy"):
        offer = " Or --margin auto: the tool chooses a wider margin, up to most_margin (3 points by default)."
    alike = f" Much the same holds for {shorten_names([name for _, name in others])}." if others else ""
    return [
        f"{suite} is too weak for its margin of {100 * mean.margin:.2f} points: an equal model passes in "
        f"{100 * share:.0f} % of checks. The smallest loss seen in 80 % of checks is {smallest}. "
        f"{more}.{offer}{alike}"
    ]


def describe_suspects(check: Check, said: Sequence[str] = (), *, most: int = NAMES_SHOWN) -> list[str]:
    """Tasks that passed and are lower, by the false-discovery rate, and lower parts, but those `said`."""
    is_above = check.overall in ("passed", "improved") and check.question.name != "port"
    alone = find_single_tasks(check.tasks, check.means).values() if is_above else ()
    lower = [one for one in sorted(check.tasks, key=lambda task: task.delta or 0.0) if one.suspect]
    tasks = [one for one in lower if one.verdict in COUNTED and one not in alone]
    if check.question.name == "port":
        tasks = [one for one in tasks if (one.high or 0.0) < 0]
    losses = [f"{t.task} {t.delta_text}, margin {t.margin_text}" for t in tasks]
    texts = [f"Lower, but passed: {shorten_names(losses, most, between='; ')}."] if tasks else []
    parts = [
        (part.delta or 0.0, task.task, part)
        for task in check.tasks
        for part in task.lost
        if not any(one.startswith(f"{part.part} of {task.task} (") for one in "; ".join(said).split("; "))
    ]
    losses = [
        f"{part.part} of {name} {score_text(part.baseline)} → {score_text(part.candidate)}: {part.delta_text}"
        for _, name, part in sorted(parts, key=lambda one: one[:2])
    ]
    where = shorten_names(losses, most, between="; ")
    return [*texts, f"Where it lost: {where}."] if where else texts


def sort_outcomes(tasks: Iterable[TaskOutcome]) -> list[TaskOutcome]:
    """The tasks that collapsed, then the others by verdict; the largest difference first."""
    return sorted(tasks, key=lambda t: (not t.collapsed, VERDICTS.index(t.verdict), -abs(t.delta or 0.0)))
