"""The check of a candidate against a baseline, and the setting of a baseline: run, compare, decide, write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.checks import questions
from harness.checks.advice import explain_unseen_margins
from harness.checks.baselines import Baseline, Reference, find_anchor, require_new_name, write_baseline
from harness.checks.outcome import (
    AskedQuestion,
    Chain,
    Check,
    CheckedModel,
    MeanOutcome,
    Power,
    Question,
    TaskOutcome,
)
from harness.checks.overall_verdict import UNCHECKED, merge_verdicts
from harness.checks.policy import DEFAULT, Policy
from harness.checks.sides import CarryOut, CheckRequest, CheckSide, Comparison, mean_score
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_chain, evaluate_comparison
from harness.core import files
from harness.core.arguments import Folder, Place, Places, Seeds, check_value
from harness.core.errors import HarnessError, RecordError, UsageError, explain_unknown, find_similar_names
from harness.core.keys import digest
from harness.core.terminal import shorten_names
from harness.core.types import Suite
from harness.driver import evaluation
from harness.plan.model_objects import save_objects
from harness.plan.plan import ConfiguredModel
from harness.plan.request import Request
from harness.plan.resolved_request import ResolvedRequest
from harness.results.differences import find_provenance_differences, require_alike
from harness.results.scores import NamedModel, distinguish_names


def run_check(
    candidate: str,
    reference: Reference,
    request: Request,
    *,
    seeds: int = 1,
    policy: Policy = DEFAULT,
    question: Question | None = None,
    carry_out: CarryOut,
    announce: Callable[[str], None] = lambda _sentence: None,
) -> Check:
    """Compare a candidate with a baseline.

    Args:
        candidate: A catalog name, `org/name[@revision]` or a folder.
        reference: What the candidate is compared with.
        request: Suites and settings; its models are ignored.
        seeds: The number of seeds of random draws and of a recipe's trainings.
        policy: Margins, levels, and the tasks that must not regress.
        question: The question of the check; None for "replace".
        carry_out: Runs a request where records are missing.
        announce: Is told of suites that cannot see their margin, before anything is measured.

    Raises:
        UsageError: The request cannot be carried out, or the two sides are not evaluated alike.
        StoreError: The results folder cannot be written.
    """
    began = time.monotonic()
    full, request = request.suites, _drop_empty_suites(request)
    request = replace(request, budget=policy.budget_minutes * 60 or request.budget)
    models = (candidate,) if reference.baseline is not None else (candidate, reference.name)
    requests = [CheckRequest.plan_requests(request, model, seeds) for model in models]
    resolved = requests[0].opened
    if question == "port":
        # A port may run in another precision; its outputs tell.
        policy = policy.accept_names(("dtype", "vectors"))[0]
    warnings = [f"{name} {UNCHECKED}" for name in full if name not in request.suites]
    warnings += _check_policy_names(policy, resolved.suites)
    if question is None and reference.baseline is None:
        warnings += filter(None, [questions.suggest_question(*map(_get_first_model, requests))])
    sides = _read_comparison(requests, reference, {})
    warnings += _require_same_conditions(requests, sides, reference, policy)
    outputs = None
    if question == "port":
        ported = [_get_first_model(one) for one in requests]
        outputs = questions.compare_outputs(ported, resolved, reference.baseline)
    # A baseline that was set is never measured here: its records are pinned by key, and a new one would not
    # be what was pinned.
    if not sides.candidate.complete or (reference.baseline is None and not sides.baseline.complete):
        # Told before hours of measuring, while the user can still change the margin or the suite. A port has
        # no margin.
        if question != "port":
            baseline, trainings = sides.baseline, sides.candidate.trainings
            power = estimate_baseline_power(baseline, resolved.suites, policy, trainings)
            for sentence in explain_unseen_margins(power.means):
                announce(sentence)
        sides = _read_comparison(requests, reference, _measure_missing_scores(requests, carry_out))
    purpose = AskedQuestion(name=question or "replace", source="default" if question is None else "typed")
    result = _build_check(requests[0], reference, sides, policy, purpose, outputs, warnings)
    result = replace(result, seconds=round(time.monotonic() - began, 3))
    result.write(resolved.results)
    return result


def _drop_empty_suites(request: Request) -> Request:
    """The request without the suites of which --tasks leaves no task."""
    if not request.options.tasks:
        return request
    try:
        opened = request.open_suites()
    except UsageError as error:
        hint = f"A check takes tasks that its baseline has. {error.hint or ''}"
        raise UsageError(error.message, hint=hint.strip()) from error
    suites = zip(request.suites, opened, strict=True)
    return replace(request, suites=tuple(name for name, suite in suites if suite.tasks))


def _get_first_model(request: CheckRequest) -> ConfiguredModel:
    """The model of a request, of a recipe what it makes first."""
    return (request.opened.trained or request.opened.asked)[0]


def _require_same_conditions(
    requests: Sequence[CheckRequest], sides: Comparison, reference: Reference, policy: Policy
) -> list[str]:
    """Refuse sides that are not evaluated alike; returns sentences on the differences that are allowed."""
    first, allowed, baseline = requests[0], policy.allow_differences, reference.baseline
    typed = bool(first.requests[0].settings.prompts)
    if baseline is not None:
        _require_records(sides.baseline, reference)
        typed = typed or bool(baseline.options.get("prompts"))
    theirs = (requests[1] if baseline is None else sides.baseline).identities
    try:
        return require_alike(first.identities, theirs, allowed, reference.name, own_prompts=not typed)
    except UsageError:
        # Missing data has the revision of the suite, and would be said to differ.
        evaluation.prepare_whole(first.requests[0])
        raise


def _require_records(baseline: CheckSide, reference: Reference) -> None:
    """Refuse a baseline without any of its records."""
    if any(baseline.scored.values()) or not any(run.keys for run in baseline.runs):
        return
    own_tasks = {task for run in baseline.runs for task in run.keys}
    if reference.baseline is not None and own_tasks.isdisjoint(baseline.scored):
        raise UsageError(
            f"The baseline {reference.name} has no score of {shorten_names([*baseline.scored])}: it was set "
            f"for {' and '.join(reference.baseline.suites)}.",
            hint="Leave out --suite and --tasks to use its own, or set one for these: harness baseline set.",
        )
    raise UsageError(
        f"None of the records of the baseline {reference.name} is in {baseline.home / 'records'}.",
        hint=f"Export it where they are (harness baseline export {reference.name} FILE.zip) and give "
        "--baseline FILE.zip; or name the results folder that has them with --results.",
    )


def _measure_missing_scores(
    requests: Sequence[CheckRequest], carry_out: CarryOut
) -> dict[tuple[str, str], str]:
    """Run the missing scores; returns the reasons of failures by artifact and task."""
    failures: dict[tuple[str, str], str] = {}
    began = time.monotonic()
    for model in requests:
        for request in model.requests:
            # The budget is that of the whole check: each request gets what those before it have left.
            left = None if request.budget is None else max(request.budget - (time.monotonic() - began), 0.0)
            lacking = carry_out(replace(request, budget=left))
            failures |= {(run.artifact, task): why for run in model.runs for task, why in lacking.items()}
    return failures


def _read_comparison(
    requests: Sequence[CheckRequest], reference: Reference, failures: Mapping[tuple[str, str], str]
) -> Comparison:
    resolved, baseline = requests[0].opened, reference.baseline
    runs = baseline.runs if baseline is not None else requests[1].runs
    return Comparison(
        candidate=CheckSide.read_side(requests[0].runs, resolved, resolved.results),
        baseline=CheckSide.read_side(runs, resolved, reference.results or resolved.results),
        failures=failures,
    )


def _build_check(
    request: CheckRequest,
    reference: Reference,
    sides: Comparison,
    policy: Policy,
    question: AskedQuestion,
    outputs: questions.PortComparison | None,
    warnings: Sequence[str],
) -> Check:
    """The check of what was measured, with remarks that do not decide; `outputs` are those of a port."""
    resolved = request.opened
    power = estimate_baseline_power(sides.baseline, resolved.suites, policy, sides.candidate.trainings)
    chain, gone = _compare_with_anchor(reference, request, sides.candidate, policy, power)
    tasks, means = evaluate_comparison(sides, resolved.suites, policy, power)
    tasks = (*tasks, *_iter_missing_outcomes(reference, resolved))
    means = tuple(
        replace(mean, predicted=_predict_benchmark(suite, sides))
        for suite, mean in zip(resolved.suites, means, strict=True)
    )
    if outputs is not None:
        tasks, means, end = questions.judge_port(tasks, means, outputs, policy, chain)
    else:
        note = None
        if question.name == "retrain":
            names = [mean.suite for mean in means]
            deviations = questions.find_seed_deviations(_get_first_model(request), names)
            tasks, means, note = questions.judge_retraining(tasks, means, sides, deviations)
        # What single trainings leave open they leave open since the anchor, too.
        end = merge_verdicts(tasks, means, policy, chain if note is None else None, note or "")
    remarks = [*gone, *_iter_check_warnings(means, sides, resolved)]
    if any(one.startswith("encoding.dtype ") for one in warnings):
        remarks = [one for one in remarks if not one.startswith("dtype_as_run ")]
    candidate, theirs = _describe_sides((sides.candidate, sides.baseline))
    name = reference.baseline.name if reference.baseline is not None else ""
    check = Check(
        id="", when=datetime.now(tz=UTC).isoformat(timespec="seconds"), candidate=candidate,
        baseline=replace(theirs, source=reference.name, baseline=name),
        suites=tuple(suite.name for suite in resolved.suites), recipe=", ".join(resolved.request.recipe),
        policy=policy.to_json(), overall=end.verdict, because=end.because, exit_code=end.exit_code,
        tasks=tasks, means=means, chain=chain,
        warnings=tuple(dict.fromkeys((*warnings, *remarks))), question=question,
    )  # fmt: skip
    # An equal check at another time has the same id.
    return replace(check, id=digest({**check.to_json(), "when": ""})[:12])


def _compare_with_anchor(
    reference: Reference, request: CheckRequest, candidate: CheckSide, policy: Policy, power: Power
) -> tuple[Chain | None, list[str]]:
    """The candidate against the anchor of a baseline, and sentences on what cannot be compared."""
    anchor, resolved = None if reference.baseline is None else reference.baseline.anchor, request.opened
    if anchor is None:
        return None, []
    label, sentences = f"the anchor {anchor.name} of {anchor.when[:10]}", list[str]()
    try:
        side = CheckSide.read_side(anchor.runs, resolved, reference.results or resolved.results)
        if gone := [task for task, count in side.missing.items() if count]:
            sentences.append(
                f"Of {label} {len(gone)} of {len(side.missing)} tasks have no records: what was lost on them "
                f"since then is not seen ({shorten_names(gone)})."
            )
        sentences += require_alike(
            request.identities, side.identities, policy.allow_differences, label, own_prompts=True
        )
    except (RecordError, UsageError) as error:
        return None, [*sentences, f"What was lost since {label} is not seen: {error.message}"]
    sides = Comparison(candidate=candidate, baseline=side, failures={})
    means, deltas = evaluate_chain(sides, resolved.suites, policy, power, anchor.baselines)
    chain = Chain(
        anchor=anchor.name, when=anchor.when, baselines=anchor.baselines, means=means,
        model=anchor.runs[0].model, artifacts=side.artifacts, deltas=deltas,
    )  # fmt: skip
    return (chain if means else None), sentences


def _describe_sides(sides: Sequence[CheckSide]) -> list[CheckedModel]:
    """The first model of each side, by the name that it has in a table of both."""
    named, dtypes = [], []
    for side in sides:
        run, records = side.runs[0], (one for ones in side.scored.values() for one in ones)
        record = next((one for one in records if one.model["artifact"] == run.artifact), None)
        about, identity = (record.model, record.identity) if record is not None else ({}, {})
        place = {"folder": about.get("folder"), "revision": run.revision, "group": None}
        named.append(NamedModel.from_fields(run.model, about.get("source", ""), run.artifact, **place))
        dtypes.append((identity.get("encoding") or {}).get("dtype"))
    names = distinguish_names(named)
    # The same model in two precisions, as a port may be, has one name.
    several = len({*names.values()}) < len({*filter(None, dtypes)})
    return [
        CheckedModel(
            name=names[one.key, one.name] + (f" in {dtype}" if several else ""), artifacts=side.artifacts,
            source=side.runs[0].source, revision=side.runs[0].revision,
        )
        for side, one, dtype in zip(sides, named, dtypes, strict=True)
    ]  # fmt: skip


def _iter_missing_outcomes(reference: Reference, resolved: ResolvedRequest) -> Iterator[TaskOutcome]:
    """Missing outcomes for tasks of a baseline that its own, unchanged suites no longer have."""
    request, baseline = resolved.request, reference.baseline
    options = request.options
    # A user who narrows or changes the suites means to leave tasks out.
    narrowed = options.tasks or options.languages or options.subsets or options.splits
    if baseline is None or narrowed or request.suites != baseline.suites or baseline.options.get("tasks"):
        return
    here = {task.name for suite in resolved.suites for task in suite.tasks}
    pinned = {task: keys for run in baseline.runs for task, keys in run.keys.items()}
    for task, keys in pinned.items():
        if task not in here:
            reason = "the baseline has it, and the suite no longer does"
            yield TaskOutcome(
                task=task, type="", metric="", verdict="missing", reason=reason, baseline_keys=keys
            )


def _predict_benchmark(suite: Suite, sides: Comparison) -> dict[str, Any]:
    """A proxy's prediction of its benchmark for both sides, from main scores; {} if a score is missing."""
    predictions: dict[str, Any] = {}
    for name, side in (("candidate", sides.candidate), ("baseline", sides.baseline)):
        means = {task: mean_score(ones) for task, ones in side.scored.items()}
        scores = {task: score for task, score in means.items() if score is not None}
        prediction = suite.predictor.predict(scores) if suite.predictor is not None else None
        if prediction is None:
            return {}
        bounds = {f"{name}_low": prediction.low, f"{name}_high": prediction.high}
        predictions |= {"target": prediction.target, name: prediction.value, **bounds}
    return predictions


def _iter_check_warnings(
    means: Sequence[MeanOutcome], sides: Comparison, resolved: ResolvedRequest
) -> Iterator[str]:
    """Remarks that do not decide: other conditions, what is left out, no prediction."""
    pairs = {
        task: (mine[0].provenance, sides.baseline.scored[task][0].provenance)
        for task, mine in sides.candidate.scored.items()
        if mine and sides.baseline.scored[task]
    }
    yield from find_provenance_differences(pairs)
    undecided = any(one.other_needs for one in means)
    for suite, mean in zip(resolved.suites, means, strict=True):
        if suite.left_out and undecided:
            yield f"Left out of {suite.name} by the options: {shorten_names(suite.left_out)}."
        if suite.predictor is not None and not mean.predicted:
            yield f"{suite.predictor.target} is not predicted: a task of {suite.name} has no score."


def check_candidate(
    candidate: Any,
    baseline: Any,
    suite: str | Sequence[str] = (),
    *,
    name: str | None = None,
    seeds: int | None = None,
    policy: Policy | Path | str | None = None,
    question: Question | None = None,
    listeners: Any = None,
    **request: Any,
) -> Check:
    """Compare a candidate with a baseline; `harness.check` documents the arguments."""
    if isinstance(candidate, list | tuple | Mapping) or isinstance(baseline, list | tuple | Mapping):
        raise UsageError(
            "A check compares one model with one baseline.",
            hint="Give each as a name, a path or a model in memory.",
        )
    (candidate, baseline), request = save_objects([candidate, baseline], [name, None], request)
    candidate, baseline = check_value("candidate", candidate, Place), check_value("baseline", baseline, Place)
    suites = check_value("suites", suite, Places)
    seeds = None if seeds is None else check_value("seeds", seeds, Seeds)
    limits, allowed = Policy.of(policy).accept_names(request.get("allow"))
    places = [check_value(name, request.get(name), Folder | None) for name in ("results", "cache")]
    reference = Reference.resolve(baseline, *places)
    if reference.baseline is not None:
        suites, seeds = suites or reference.baseline.suites, seeds or reference.baseline.seeds
    if not suites:
        raise UsageError(
            f"{baseline} is a model, not a baseline: a suite is needed.", hint='Use e.g. suite="nanobeir".'
        )
    run = Request(models=(), suites=suites)
    if reference.baseline is not None:
        run = replace(Request.parse_options((), suites, reference.baseline.options), results=None)
    run = run.replace_fields(request | {"allow": allowed}, of="harness.check")

    with run.limit_network():
        return run_check(
            candidate, reference, run, seeds=seeds or 1, policy=limits,
            carry_out=lambda one: evaluation.execute(evaluation.prepare_whole(one)[0], listeners).lacking,
            question=check_value("question", question, Question | None),
        )  # fmt: skip


def set_baseline(
    name: str,
    request: Request,
    *,
    seeds: int,
    options: Mapping[str, Any],
    again: bool,
    anchor: str | None = None,
    carry_out: CarryOut,
) -> Baseline:
    """Run the missing scores of a request's models and pin the keys of all scores under a name.

    What a check against them can see is measured and kept with them.

    Args:
        name: The name of the baseline.
        request: Its first model is the baseline, the others are repeats of it.
        seeds: The number of seeds of random draws and of a recipe's trainings.
        options: The options of the evaluation, by name.
        again: Whether to replace a baseline of this name.
        anchor: The baseline that begins its chain; None for that of the replaced one.
        carry_out: Runs a request where records are missing.

    Raises:
        UsageError: The request cannot be carried out, or there is a baseline of this name.
        HarnessError: A score is missing after the run; nothing was pinned.
    """
    results = files.resolve_results_folder(request.results)
    # Before anything is measured, not hours later.
    require_new_name(results, name, replace=again)
    every = [CheckRequest.plan_requests(replace(request, models=()), one, seeds) for one in request.models]
    _require_repeats(every)
    runs = [run for check_request in every for run in check_request.runs]
    first = find_anchor(results, name, runs, anchor)
    lacking = [one for one in every if not CheckSide.read_side(one.runs, one.opened, results).complete]
    lost = {task: reason for (_, task), reason in _measure_missing_scores(lacking, carry_out).items()}
    if lost:
        reasons = "; ".join(f"{task}: {reason.rstrip('.')}" for task, reason in list(lost.items())[:3])
        raise HarnessError(
            f"The baseline {name} was not set: {len(lost)} tasks have no score "
            f"({shorten_names(list(lost))}).",
            hint=f"{reasons}. Choose other tasks with --tasks, or correct this; finished scores are kept.",
        )
    side = CheckSide.read_side(runs, every[0].opened, results)
    # One model that a recipe trains with several seeds: a candidate will be trained as often. Repeats that
    # were given as models are compared with a single candidate.
    trainings = side.trainings if len(every) == 1 else 1
    baseline = Baseline(
        name=name, when=datetime.now(tz=UTC).isoformat(timespec="seconds"), suites=request.suites,
        seeds=seeds, options=options, runs=tuple(runs),
        power=estimate_baseline_power(side, every[0].opened.suites, DEFAULT, trainings=trainings),
        anchor=first,
    )  # fmt: skip
    write_baseline(results, baseline, replace=again)
    return baseline


def _require_repeats(every: Sequence[CheckRequest]) -> None:
    """Refuse repeats that are the same model twice, or that are not evaluated alike."""
    first, *others = every
    artifacts = {run.artifact for run in first.runs}
    for repeat in others:
        source = repeat.runs[0].source
        if artifacts & {run.artifact for run in repeat.runs}:
            raise UsageError(
                f"The model {source} is given twice: another model has the same weights.",
                hint="Repeats are models of the same training with other seeds.",
            )
        artifacts |= {run.artifact for run in repeat.runs}
        require_alike(repeat.identities, first.identities, (), first.runs[0].source)


def _check_policy_names(policy: Policy, suites: Sequence[Suite]) -> list[str]:
    """Refuse a policy with misspelt names or without effect; returns warnings on what applies to nothing."""
    tasks = list(dict.fromkeys(task.name for suite in suites for task in suite.tasks))
    patterns = [one for one in policy.must_not_regress if not any(fnmatchcase(t, one) for t in tasks)]
    strange = [*(one for one in policy.tasks if one not in tasks), *patterns]
    for name in strange:
        if find_similar_names(name, tasks):
            raise explain_unknown("task of this check", name, tasks, then="Correct the name in the policy.")
    if policy.must_not_regress and len(patterns) == len(policy.must_not_regress):
        listed = ", ".join(policy.must_not_regress)
        raise UsageError(
            f"must_not_regress names no task of this check: {listed}.",
            hint='Name some of its tasks, or use must_not_regress = ["*"]; [] lets every task regress.',
        )
    warnings = [f"The policy names {name}, which is not a task of this check." for name in strange]
    alone = all(len(suite.tasks) == 1 for suite in suites)
    if alone and policy.states("mean_margin") and not policy.states("margin"):
        warnings.append(
            "mean_margin of the policy applies to no suite of this check: a suite of one task takes margin."
        )
    return warnings
