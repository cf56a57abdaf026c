"""The parts of a check beside its verdicts: who, what was predicted, what should be known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from harness.failures import shortened
from harness.identity import digest
from harness.opened import Opened
from harness.regress.baseline import Baseline
from harness.regress.collect import Side
from harness.regress.outcome import Party, TaskOutcome
from harness.regress.policy import Policy
from harness.regress.same import other_conditions
from harness.regress.sides import Sides, score_of
from harness.regress.standard import Standard
from harness.types import Suite


def party(one: Side, typed: str, baseline: Baseline | None) -> Party:
    """One side of a check."""
    first = one.runs[0]
    return Party(
        name=first.model,
        source=typed or first.source,
        artifacts=tuple(dict.fromkeys(run.artifact for run in one.runs)),
        revision=first.revision,
        baseline=baseline.name if baseline is not None else "",
    )


def name_of(tasks: Sequence[TaskOutcome], policy: Policy, found: Opened, parties: tuple[Party, Party]) -> str:
    """What a check is called: the same for the same records under the same policy."""
    compared = [[t.task, list(t.candidate_keys), list(t.baseline_keys), t.verdict, t.delta] for t in tasks]
    return digest(
        {
            "tasks": compared,
            "policy": policy.to_json(),
            "suites": list(found.request.suites),
            "candidate": list(parties[0].artifacts),
            "baseline": [parties[1].baseline, *parties[1].artifacts],
        }
    )[:12]


def in_suites(tasks: Sequence[TaskOutcome], suites: Sequence[Suite]) -> Iterator[TaskOutcome]:
    """Tasks with the names of the suites that have them."""
    for one in tasks:
        names = (suite.name for suite in suites if one.task in {task.name for task in suite.tasks})
        yield replace(one, suites=tuple(names))


def dropped(standard: Standard, found: Opened) -> Iterator[TaskOutcome]:
    """Tasks that a baseline has, and its suites no longer; none where others were asked for."""
    asked = found.request
    other = standard.baseline
    narrowed = asked.options.tasks or asked.options.languages or asked.options.splits
    if other is None or narrowed or asked.suites != other.suites or other.asked.get("tasks"):
        return
    here = {task.name for suite in found.suites for task in suite.tasks}
    pinned = {task: keys for run in other.runs for task, keys in run.keys.items()}
    for task, keys in pinned.items():
        if task not in here:
            yield TaskOutcome(
                task=task,
                type="",
                metric="",
                verdict="missing",
                reason="the baseline has it, and the suite no longer does",
                baseline_keys=keys,
            )


def predicted(suite: Suite, sides: Sides) -> dict[str, Any]:
    """What a proxy says of the benchmark that it stands for, from main scores; {} if one is missing."""
    found: dict[str, Any] = {}
    for name, one in (("candidate", sides.candidate), ("baseline", sides.baseline)):
        scores = {task: score_of(ones) for task, ones in one.scored.items()}
        known = {task: score for task, score in scores.items() if score is not None}
        told = suite.predictor.predict(known) if suite.predictor is not None else None
        if told is None:
            return {}
        bounds = {f"{name}_low": told.low, f"{name}_high": told.high}
        found |= {"target": told.target, name: told.value, **bounds}
    return found


def warnings(tasks: Sequence[TaskOutcome], sides: Sides, found: Opened) -> Iterator[str]:
    """What does not decide but should be known."""
    pairs = {
        task: (mine[0].provenance, sides.baseline.scored[task][0].provenance)
        for task, mine in sides.candidate.scored.items()
        if mine and sides.baseline.scored[task]
    }
    yield from other_conditions(pairs)
    if any(one.unit == "examples" and one.runs == (1, 1) for one in tasks):
        yield "Each side was trained once, so what another seed would give is not known (--seeds 3)."
    for suite in found.suites:
        if suite.left_out:
            yield (
                f"{len(suite.left_out)} of {len(suite.columns)} columns of {suite.name} were left out by "
                f"the options: {shortened(suite.left_out)}."
            )
        if suite.predictor is not None and not predicted(suite, sides):
            yield f"Nothing is predicted of {suite.predictor.target}: a task of {suite.name} is not there."
