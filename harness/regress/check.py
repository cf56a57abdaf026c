"""The check of a candidate against a baseline: run what is missing, compare, decide, write it down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import paths
from harness.errors import UsageError
from harness.failures import shortened
from harness.identity import digest
from harness.opened import Opened
from harness.regress import decide, history
from harness.regress.baseline import Baseline, Run
from harness.regress.collect import Asked, Side, ask, side
from harness.regress.decide import Sides
from harness.regress.outcome import Check, Party, TaskOutcome
from harness.regress.overall import conclude
from harness.regress.policy import DEFAULT, Policy
from harness.regress.same import other_conditions, require_alike

if TYPE_CHECKING:
    from harness.api import Report
    from harness.request import Request
    from harness.types import Suite, Task

CarryOut = Callable[["Request"], "Report"]
"""Runs a request and gives its report."""


@dataclass(frozen=True, kw_only=True)
class Standard:
    """What a candidate is held against.

    Attributes:
        name: What a user typed.
        baseline: A baseline that was set; None for a model.
        results: The results folder of the baseline's records, where it is another one.
    """

    name: str
    baseline: Baseline | None = None
    results: Path | None = None


def check(
    candidate: str,
    standard: Standard,
    request: Request,
    *,
    seeds: int = 1,
    policy: Policy = DEFAULT,
    carry_out: CarryOut,
) -> Check:
    """Hold a candidate against a baseline.

    Args:
        candidate: A catalog name, `org/name[@revision]` or a folder.
        standard: What it is held against.
        request: Suites and settings; its models do not count.
        seeds: With how many seeds what is drawn by chance is evaluated, or trained.
        policy: What is asked of the candidate.
        carry_out: Called where records are missing.

    Raises:
        UsageError: The request cannot be carried out, or the two were not evaluated alike.
        StoreError: The results folder cannot be written.
    """
    budget = policy.budget_minutes * 60 or None
    asked = _asked(candidate, standard, replace(request, budget=budget), seeds)
    sides = _both(asked, standard, carry_out)
    made = _compared(asked[0].opened, sides, standard, policy)
    history.keep(asked[0].opened.results, made)
    return made


def _asked(candidate: str, standard: Standard, request: Request, seeds: int) -> tuple[Asked, ...]:
    """What is wanted of the candidate, and of the baseline if it is a model."""
    models = (candidate,) if standard.baseline is not None else (candidate, standard.name)
    return tuple(ask(request, model, seeds) for model in models)


def _both(asked: Sequence[Asked], standard: Standard, carry_out: CarryOut) -> Sides:
    sides = _sides(asked, standard, {})
    if sides.candidate.complete and (standard.baseline is not None or sides.baseline.complete):
        return sides
    failures: dict[str, str] = {}
    began = time.monotonic()
    for one in asked:
        for request in one.requests:
            left = None if request.budget is None else max(request.budget - (time.monotonic() - began), 0.0)
            report = carry_out(replace(request, budget=left))
            failures |= dict(_failures(report))
    return _sides(asked, standard, failures)


def _failures(report: Report) -> Iterator[tuple[str, str]]:
    for result in report.failures:
        told = "the time was up" if result.how == "stopped" else "it failed"
        yield result.cell.task.name, result.failure.message if result.failure else told


def _sides(asked: Sequence[Asked], standard: Standard, failures: dict[str, str]) -> Sides:
    found = asked[0].opened
    other = standard.baseline
    runs = other.runs if other is not None else (asked[1].run,)
    home = standard.results or found.results
    return Sides(
        candidate=side([asked[0].run], found, found.results),
        baseline=side(runs, found, home),
        failures=failures,
    )


def _compared(found: Opened, sides: Sides, standard: Standard, policy: Policy) -> Check:
    started = time.monotonic()
    tasks = _tasks(found.suites)
    pairs = {
        task.name: (sides.candidate.scored[task.name][0], sides.baseline.scored[task.name][0])
        for task in tasks
        if sides.candidate.scored[task.name] and sides.baseline.scored[task.name]
    }
    allowed = require_alike(pairs, policy.allow_differences, standard.name)
    differences = decide.differences(sides, tasks, policy)
    said = [
        replace(one, suites=tuple(s.name for s in found.suites if one.task in {t.name for t in s.tasks}))
        for one in decide.tasks_said(sides, tasks, differences, policy, standard.name)
    ]
    means = tuple(
        replace(
            decide.mean_said(suite, differences, policy, standard.name), predicted=_predicted(suite, said)
        )
        for suite in found.suites
    )
    end = conclude(said, means, policy)
    candidate = _party(sides.candidate, "", None)
    baseline = _party(sides.baseline, standard.name, standard.baseline)
    return Check(
        id=_id(said, policy, found, candidate, baseline),
        when=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        candidate=candidate,
        baseline=baseline,
        suites=tuple(suite.name for suite in found.suites),
        recipe=found.request.recipe,
        policy=policy.to_json(),
        overall=end.verdict,
        because=end.because,
        exit_code=end.exit_code,
        tasks=tuple(said),
        means=means,
        warnings=(*allowed, *other_conditions(pairs), *_single_runs(said), *_narrowed(found)),
        seconds=round(time.monotonic() - started, 3),
    )


def _tasks(suites: Sequence[Suite]) -> list[Task]:
    """Every task of every suite, each once."""
    return list({task.name: task for suite in suites for task in suite.tasks}.values())


def _predicted(suite: Suite, said: Sequence[TaskOutcome]) -> dict[str, Any]:
    """What a proxy says of the benchmark that it stands for."""
    if suite.predictor is None:
        return {}
    found: dict[str, Any] = {}
    for side_name in ("candidate", "baseline"):
        scores = {one.task: getattr(one, side_name) for one in said}
        told = suite.predictor.predict({t: v for t, v in scores.items() if v is not None})
        if told is None:
            return {}
        found |= {
            "target": told.target,
            side_name: told.value,
            f"{side_name}_low": told.low,
            f"{side_name}_high": told.high,
        }
    return found


def _single_runs(said: Sequence[TaskOutcome]) -> list[str]:
    """That the spread of trainings is not known, where a recipe trained once on each side."""
    found = [one.task for one in said if one.unit == "examples" and one.runs == (1, 1)]
    if not found:
        return []
    return ["Each side was trained once, so what another seed would give is not known (--seeds 3)."]


def _narrowed(found: Opened) -> list[str]:
    """What of a suite was not asked for: its mean is then not the suite's own."""
    return [
        f"{len(suite.left_out)} of {len(suite.columns)} columns of {suite.name} were left out by the "
        f"options: {shortened(suite.left_out)}."
        for suite in found.suites
        if suite.left_out
    ]


def _party(one: Side, typed: str, baseline: Baseline | None) -> Party:
    first: Run = one.runs[0]
    return Party(
        name=first.model,
        source=typed or first.source,
        artifacts=tuple(dict.fromkeys(run.artifact for run in one.runs)),
        revision=first.revision,
        baseline=baseline.name if baseline is not None else "",
    )


def _id(said: Sequence[TaskOutcome], policy: Policy, found: Opened, one: Party, other: Party) -> str:
    compared = [[t.task, list(t.candidate_keys), list(t.baseline_keys), t.verdict] for t in said]
    return digest(
        {
            "tasks": compared,
            "policy": policy.to_json(),
            "suites": list(found.request.suites),
            "candidate": list(one.artifacts),
            "baseline": [other.baseline, *other.artifacts],
        }
    )[:12]


def standard_of(text: str, results: Path | None) -> Standard:
    """What a user typed after --baseline: a file, the name of a baseline, else a model."""
    from harness.regress import baseline as baselines

    path, home = paths.expanded(text), paths.results_folder(results)
    if path.suffix == ".json":
        if not path.is_file():
            raise UsageError(
                f"There is no file {text}.", hint="`harness baseline list` shows the baselines that are set."
            )
        beside = path.parent.parent
        own = beside if (beside / "records").is_dir() else None
        return Standard(name=text, baseline=baselines.read_file(path), results=own)
    if text in baselines.names(home):
        return Standard(name=text, baseline=baselines.read(home, text))
    return Standard(name=text)
