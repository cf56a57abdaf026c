"""The check of a candidate against a baseline: run missing scores, compare, decide, write the result."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness import evaluation, files
from harness.arguments import checked
from harness.checks import decide
from harness.checks import policy as policies
from harness.checks.baselines import Baseline, Reference
from harness.checks.decide import conclude
from harness.checks.outcome import CHECKS, Check, Party, TaskOutcome, check_files
from harness.checks.policy import DEFAULT, Policy
from harness.checks.sides import CarryOut, CheckRequest, CheckSide, Comparison, mean_score
from harness.differences import provenance_differences, require_alike
from harness.errors import RecordError, UsageError, nearest, shortened, unknown
from harness.execute import Listeners
from harness.identity import digest
from harness.report import Report
from harness.request import Request, ResolvedRequest
from harness.types import Suite, Task


def run_check(
    candidate: str,
    standard: Reference,
    request: Request,
    *,
    seeds: int = 1,
    policy: Policy = DEFAULT,
    carry_out: CarryOut,
) -> Check:
    """Compare a candidate with a baseline.

    Args:
        candidate: A catalog name, `org/name[@revision]` or a folder.
        standard: The Reference that the candidate is held against.
        request: Suites and settings; its models are ignored.
        seeds: The number of seeds of random draws and of a recipe's trainings.
        policy: Margins, levels, and the tasks that must not regress.
        carry_out: Runs a request where records are missing.

    Raises:
        UsageError: The request cannot be carried out, or the two sides are not evaluated alike.
        StoreError: The results folder cannot be written.
    """
    budget = policy.budget_minutes * 60 or None
    asked = _requests(candidate, standard, replace(request, budget=budget), seeds)
    told = _fitting(policy, [task.name for task in _tasks(asked[0].opened.suites)])
    sides = _comparison(asked, standard, {})
    told += _require_same_conditions(asked, sides, standard, policy)
    if not sides.candidate.complete or (standard.baseline is None and not sides.baseline.complete):
        sides = _comparison(asked, standard, _measured(asked, carry_out))
    made = _decided(asked[0].opened, sides, standard, policy, told)
    _keep_check(asked[0].opened.results, made)
    return made


def _requests(candidate: str, standard: Reference, request: Request, seeds: int) -> tuple[CheckRequest, ...]:
    """The requests for the candidate, and for the baseline if it is a model."""
    models = (candidate,) if standard.baseline is not None else (candidate, standard.name)
    return tuple(CheckRequest.of(request, model, seeds) for model in models)


def _require_same_conditions(
    asked: Sequence[CheckRequest], sides: Comparison, standard: Reference, policy: Policy
) -> list[str]:
    """Refuse sides that are not evaluated alike, before anything runs; gives the allowed differences."""
    if standard.baseline is None:
        theirs = asked[1].identities
    else:
        _require_records(sides.baseline, standard)
        theirs = {t: tuple(one.identity for one in ones) for t, ones in sides.baseline.scored.items()}
    mine = asked[0].identities
    return require_alike(mine, theirs, policy.allow_differences, standard.name)


def _require_records(baseline: CheckSide, standard: Reference) -> None:
    """Refuse a baseline without any of its records."""
    if any(baseline.scored.values()) or not any(run.keys for run in baseline.runs):
        return
    raise UsageError(
        f"None of the records of the baseline {standard.name} is in {baseline.home / 'records'}.",
        hint="Copy them there, name the results folder that has them with --results, or set the baseline "
        "anew with harness baseline set.",
    )


def _measured(asked: Sequence[CheckRequest], carry_out: CarryOut) -> dict[tuple[str, str], str]:
    """Run the missing scores; gives the reasons of failures by artifact and task."""
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


def _comparison(
    asked: Sequence[CheckRequest], standard: Reference, failures: Mapping[tuple[str, str], str]
) -> Comparison:
    found = asked[0].opened
    other = standard.baseline
    runs = other.runs if other is not None else (asked[1].run,)
    return Comparison(
        candidate=CheckSide.read([asked[0].run], found, found.results),
        baseline=CheckSide.read(runs, found, standard.results or found.results),
        failures=failures,
    )


def _decided(
    found: ResolvedRequest, sides: Comparison, standard: Reference, policy: Policy, told: Sequence[str]
) -> Check:
    started = time.monotonic()
    said = decide.decide(sides, found.suites, policy, standard.name)
    tasks = (*_in_suites(said.tasks, found.suites), *_dropped(standard, found))
    means = tuple(
        replace(mean, predicted=_predicted(suite, sides))
        for suite, mean in zip(found.suites, said.means, strict=True)
    )
    end = conclude(tasks, means, policy)
    parties = _party(sides.candidate, "", None), _party(sides.baseline, standard.name, standard.baseline)
    return Check(
        id=_name_of(tasks, policy, found, parties),
        when=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        candidate=parties[0],
        baseline=parties[1],
        suites=tuple(suite.name for suite in found.suites),
        recipe=", ".join(found.request.recipe),
        policy=policy.to_json(),
        overall=end.verdict,
        because=end.because,
        exit_code=end.exit_code,
        tasks=tasks,
        means=means,
        warnings=(*told, *_warnings(tasks, sides, found)),
        seconds=round(time.monotonic() - started, 3),
    )


def _tasks(suites: Sequence[Suite]) -> list[Task]:
    """Every task of every suite, each once."""
    return list({task.name: task for suite in suites for task in suite.tasks}.values())


def _party(one: CheckSide, typed: str, baseline: Baseline | None) -> Party:
    """The description of one side of a check."""
    first = one.runs[0]
    return Party(
        name=first.model,
        source=typed or first.source,
        artifacts=tuple(dict.fromkeys(run.artifact for run in one.runs)),
        revision=first.revision,
        baseline=baseline.name if baseline is not None else "",
    )


def _name_of(
    tasks: Sequence[TaskOutcome], policy: Policy, found: ResolvedRequest, parties: tuple[Party, Party]
) -> str:
    """The id of a check: the same for the same records under the same policy."""
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


def _in_suites(tasks: Sequence[TaskOutcome], suites: Sequence[Suite]) -> Iterator[TaskOutcome]:
    """The outcomes with the names of the suites that have their task."""
    for one in tasks:
        names = (suite.name for suite in suites if one.task in {task.name for task in suite.tasks})
        yield replace(one, suites=tuple(names))


def _dropped(standard: Reference, found: ResolvedRequest) -> Iterator[TaskOutcome]:
    """Missing outcomes for tasks of a baseline that its own, unchanged suites no longer have."""
    asked = found.request
    other = standard.baseline
    options = asked.options
    narrowed = options.tasks or options.languages or options.subsets or options.splits
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


def _predicted(suite: Suite, sides: Comparison) -> dict[str, Any]:
    """A proxy's prediction of its benchmark for both sides, from main scores; {} if a score is missing."""
    found: dict[str, Any] = {}
    for name, one in (("candidate", sides.candidate), ("baseline", sides.baseline)):
        scores = {task: mean_score(ones) for task, ones in one.scored.items()}
        known = {task: score for task, score in scores.items() if score is not None}
        told = suite.predictor.predict(known) if suite.predictor is not None else None
        if told is None:
            return {}
        bounds = {f"{name}_low": told.low, f"{name}_high": told.high}
        found |= {"target": told.target, name: told.value, **bounds}
    return found


def _warnings(tasks: Sequence[TaskOutcome], sides: Comparison, found: ResolvedRequest) -> Iterator[str]:
    """Remarks that do not decide: other conditions, single trainings, left-out columns, no prediction."""
    pairs = {
        task: (mine[0].provenance, sides.baseline.scored[task][0].provenance)
        for task, mine in sides.candidate.scored.items()
        if mine and sides.baseline.scored[task]
    }
    yield from provenance_differences(pairs)
    if any(one.unit == "examples" and one.runs == (1, 1) for one in tasks):
        yield "Each side was trained once, so what another seed would give is not known (--seeds 3)."
    for suite in found.suites:
        if suite.left_out:
            yield (
                f"{len(suite.left_out)} of {len(suite.columns)} columns of {suite.name} were left out by "
                f"the options: {shortened(suite.left_out)}."
            )
        if suite.predictor is not None and not _predicted(suite, sides):
            yield f"Nothing is predicted of {suite.predictor.target}: a task of {suite.name} is not there."


def check(
    candidate: str,
    baseline: str,
    suite: str | Sequence[str] = (),
    *,
    seeds: int | None = None,
    policy: Policy | Path | str | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Check:
    """Compare a candidate with a baseline; `harness.check` documents the arguments."""
    candidate, baseline = checked("model", candidate), checked("baseline", baseline)
    suites = checked("suites", suite)
    seeds = None if seeds is None else checked("seeds", seeds)
    limits = policies.Policy.of(policy)
    standard = Reference.resolve(baseline, checked("results", request.get("results")))
    set_one = standard.baseline
    if set_one is not None:
        suites, seeds = suites or set_one.suites, seeds or set_one.seeds
    if not suites:
        raise UsageError(
            f"{baseline} is no baseline that was set: which suite?", hint='Say suite="nanobeir".'
        )
    asked = _request(suites, set_one).changed(request, of="harness.check")
    with asked.network():
        return run_check(
            candidate,
            standard,
            asked,
            seeds=seeds or 1,
            policy=limits,
            carry_out=lambda one: evaluation.execute(evaluation.prepare(one), listeners),
        )


def _request(suites: tuple[str, ...], baseline: Baseline | None) -> Request:
    """The request with a baseline's options, or with the defaults."""
    if baseline is None:
        return Request(models=(), suites=suites)
    return replace(Request.of_options((), suites, baseline.asked), results=None)


def _keep_check(results: Path, check: Check) -> Path:
    """Write a check to `<results>/checks/<time>-<id>.json` unless an equal one is there; gives its path."""
    for former in check_files(results, check.id):
        with contextlib.suppress(RecordError, ValueError):
            found = CHECKS.kind.read(former)
            if replace(found, when=check.when, seconds=check.seconds).to_json() == check.to_json():
                return former
    stamp = check.when.replace(":", "").replace("-", "").partition(".")[0].partition("+")[0]
    path = CHECKS.path(results, f"{stamp}-{check.id}")
    files.replace(path, (json.dumps(check.to_json(), indent=1) + "\n").encode())
    return path


def _fitting(policy: Policy, tasks: Sequence[str]) -> list[str]:
    """Refuse a policy with misspelt names or without effect; gives warnings on names of other suites."""
    patterns = [one for one in policy.must_not_regress if not any(fnmatchcase(t, one) for t in tasks)]
    strange = [*(one for one in policy.tasks if one not in tasks), *patterns]
    for name in strange:
        if nearest(name, tasks):
            raise unknown("task of this check", name, tasks, then="Mend the name in the policy.")
    if policy.must_not_regress and len(patterns) == len(policy.must_not_regress):
        listed = ", ".join(policy.must_not_regress)
        raise UsageError(
            f"must_not_regress names no task of this check: {listed}.",
            hint='Name some of its tasks, or say must_not_regress = ["*"]; [] lets every task regress.',
        )
    return [f"The policy names {name}, which is no task of this check." for name in strange]
