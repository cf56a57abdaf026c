"""The check of a candidate against a baseline: run what is missing, compare, decide, write it down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from harness.api import Report
from harness.errors import UsageError
from harness.opened import Opened
from harness.regress import decide, history
from harness.regress.collect import Asked, Side, ask, side
from harness.regress.composed import dropped, in_suites, name_of, party, predicted, warnings
from harness.regress.outcome import Check
from harness.regress.overall import conclude
from harness.regress.policy import DEFAULT, Policy
from harness.regress.policy_names import fitting
from harness.regress.same import paired, require_alike
from harness.regress.sides import Sides
from harness.regress.standard import Standard
from harness.request import Request
from harness.types import Suite, Task


CarryOut = Callable[[Request], Report]
"""Runs a request and gives its report."""


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
    told = fitting(policy, [task.name for task in _tasks(asked[0].opened.suites)])
    sides = _sides(asked, standard, {})
    told += _alike(asked, sides, standard, policy)
    if not sides.candidate.complete or (standard.baseline is None and not sides.baseline.complete):
        sides = _sides(asked, standard, _measured(asked, carry_out))
    made = _compared(asked[0].opened, sides, standard, policy, told)
    history.keep(asked[0].opened.results, made)
    return made


def _asked(candidate: str, standard: Standard, request: Request, seeds: int) -> tuple[Asked, ...]:
    """What is wanted of the candidate, and of the baseline if it is a model."""
    models = (candidate,) if standard.baseline is not None else (candidate, standard.name)
    return tuple(ask(request, model, seeds) for model in models)


def _alike(asked: Sequence[Asked], sides: Sides, standard: Standard, policy: Policy) -> list[str]:
    """Refuse what is not evaluated alike, before anything is measured; what the policy allows, in words."""
    if standard.baseline is None:
        theirs = asked[1].identities
    else:
        _require_records(sides.baseline, standard)
        theirs = {t: tuple(one.identity for one in ones) for t, ones in sides.baseline.scored.items()}
    mine = asked[0].identities
    pairs = {task: paired(mine[task], theirs.get(task, ())) for task in mine}
    return require_alike(pairs, policy.allow_differences, standard.name)


def _require_records(baseline: Side, standard: Standard) -> None:
    """Refuse a baseline none of whose records is there.

    Raises:
        UsageError: With where they were looked for.
    """
    if any(baseline.scored.values()) or not any(run.keys for run in baseline.runs):
        return
    raise UsageError(
        f"None of the records of the baseline {standard.name} is in {baseline.home / 'records'}.",
        hint="Copy them there, name the results folder that has them with --results, or set the baseline "
        "anew with harness baseline set.",
    )


def _measured(asked: Sequence[Asked], carry_out: CarryOut) -> dict[tuple[str, str], str]:
    """Run what is missing; by model and task, why there is no score all the same."""
    failures: dict[tuple[str, str], str] = {}
    began = time.monotonic()
    for one in asked:
        for request in one.requests:
            left = None if request.budget is None else max(request.budget - (time.monotonic() - began), 0.0)
            report = carry_out(replace(request, budget=left))
            failures |= {(one.run.artifact, task): reason for task, reason in _failures(report)}
    return failures


def _failures(report: Report) -> Iterator[tuple[str, str]]:
    for result in report.failures:
        told = "the budget (budget_minutes) was used up" if result.how == "stopped" else "it failed"
        yield result.cell.task.name, result.failure.message if result.failure else told


def _sides(asked: Sequence[Asked], standard: Standard, failures: Mapping[tuple[str, str], str]) -> Sides:
    found = asked[0].opened
    other = standard.baseline
    runs = other.runs if other is not None else (asked[1].run,)
    return Sides(
        candidate=side([asked[0].run], found, found.results),
        baseline=side(runs, found, standard.results or found.results),
        failures=failures,
    )


def _compared(found: Opened, sides: Sides, standard: Standard, policy: Policy, told: Sequence[str]) -> Check:
    started = time.monotonic()
    said = decide.said(sides, found.suites, policy, standard.name)
    tasks = (*in_suites(said.tasks, found.suites), *dropped(standard, found))
    means = tuple(
        replace(mean, predicted=predicted(suite, sides))
        for suite, mean in zip(found.suites, said.means, strict=True)
    )
    end = conclude(tasks, means, policy)
    parties = party(sides.candidate, "", None), party(sides.baseline, standard.name, standard.baseline)
    return Check(
        id=name_of(tasks, policy, found, parties),
        when=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        candidate=parties[0],
        baseline=parties[1],
        suites=tuple(suite.name for suite in found.suites),
        recipe=found.request.recipe,
        policy=policy.to_json(),
        overall=end.verdict,
        because=end.because,
        exit_code=end.exit_code,
        tasks=tasks,
        means=means,
        warnings=(*told, *warnings(tasks, sides, found)),
        seconds=round(time.monotonic() - started, 3),
    )


def _tasks(suites: Sequence[Suite]) -> list[Task]:
    """Every task of every suite, each once."""
    return list({task.name: task for suite in suites for task in suite.tasks}.values())
