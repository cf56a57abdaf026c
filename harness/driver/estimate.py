"""What a prepared run will cost: its planned scores and trainings in the words of harness.results.cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, reduce
from math import prod
from operator import add
from pathlib import Path
from typing import Any

from harness.core.encoding import Encoding
from harness.core.sources import describe_assumptions
from harness.core.types import MeasuredSource
from harness.encoder.folder.files import read_tensor_headers
from harness.encoder.folder.modules_and_pooling import infer_vector_size, weight_files
from harness.executors.local import check_devices
from harness.jobs.context import JobContext, WorkerLimits
from harness.jobs.recipe import Estimate
from harness.jobs.training_jobs import Train
from harness.plan.plan import ConfiguredModel, Plan, PlannedScore
from harness.plan.request import PreparedRun
from harness.results.cost.compute import TrainingCost, estimate_run_time, expect_training
from harness.results.cost.duration import LIKELY, PastScores, TimeRange, estimate_non_embedding
from harness.results.cost.encoding import SCORING, DiskNeed, PastWork, PlannedWork, ScoreCost
from harness.results.index import RecordIndex
from harness.training.model_store import ModelStore

LATEST_MODELS = 500
"""The models that got a task last, whose records say what work costs: a folder may hold 100 times as many."""


@dataclass(frozen=True, kw_only=True)
class PlanCost:
    """The expected cost of a run.

    Attributes:
        scores: Of each planned score, those of a sweep first.
        trainings: Of each planned training.
        disk: What vectors and indexes take; None where none are made or nothing is known.
        time: Of the whole run with its start and the check of its models, over the parts that are known.
        unknown: The number of scores and trainings to be made whose time is not known.
    """

    scores: tuple[ScoreCost, ...]
    trainings: tuple[TrainingCost, ...]
    disk: DiskNeed | None
    time: TimeRange
    unknown: int

    def to_json(self) -> dict[str, Any]:
        """The cost as plain values (docs/json.md)."""
        return {
            "schema": 1,
            "trainings": [asdict(training) for training in self.trainings],
            "plan": [asdict(score) for score in self.scores],
            "time": {**asdict(self.time), "unknown": self.unknown},
            "disk": self.disk and asdict(self.disk),
        }

    @staticmethod
    def estimate_plan(prepared: PreparedRun) -> PlanCost:
        """The cost of a run; runs of tasks with labels are measured by a few of their steps."""
        past, plan = _collect_past_work(prepared), prepared.plan
        runs, labels = _share_out(plan.open, _estimate_runs(prepared)), plan.trial_labels
        trials = [
            # Members of a sweep share a name, so they are shown with their value.
            replace(past.estimate_score_cost(_build_planned_work(trial)), model=labels[trial.key])
            for trial in plan.trials
        ]
        finals = [
            _estimate_score(score, past)
            if score.recipe_plan is None
            else _estimate_runs_cost(score, runs.get(score.key, []), workers=len(plan.jobs))
            for score in plan.cells
        ]
        # A label compares a model with all others: once for each, as there may be hundreds of tasks.
        names = {one: prepared.format_model_label(one) for one in {score.subject for score in plan.cells}}
        finals = [
            replace(cost, model=names[score.subject]) for cost, score in zip(finals, plan.cells, strict=True)
        ]
        trainings, scores = _estimate_trainings(prepared, past), [*trials, *finals]
        times = [cost.time for cost in scores if cost.state == "to do"]
        times += [training.time_left for training in trainings]
        checks = [past.check_time(job.model) for job in plan.jobs if job.kind == "resolve"]
        known_times = [time for time in times if time is not None]
        # No more work goes on at once than there are pieces of it.
        lanes = min(len(prepared.request.devices or ("",)), max(1, len(known_times)))
        work = reduce(add, [*checks, *known_times], TimeRange()).split_time(lanes)
        return PlanCost(
            scores=tuple(scores),
            trainings=tuple(trainings),
            disk=estimate_disk_need(prepared),
            time=past.start_time + work if times else TimeRange(),
            unknown=len(times) - len(known_times),
        )


def _collect_past_work(prepared: PreparedRun, *, with_records: bool = True) -> PastWork:
    """What the records in the results folder and the speeds in the cache of a run say of the cost of work."""
    index = None
    if with_records:
        store, keys = prepared.store, {one.artifact.slug.rpartition("-")[2] for one in prepared.subjects}
        planned = {folder.name for key in keys for folder in store.list_record_folders(key)}
        index = RecordIndex(store.root, prepared.cache, latest=LATEST_MODELS, always=planned)
    return PastWork.collect_past_work(
        index.past_scores if index else PastScores.from_scores(),
        index.list_past_rankings() if index else (),
        prepared.cache,
        prepared.request.devices,
        alone=len(prepared.plan.cells) == len(prepared.subjects),
        keep=prepared.request.keep_vectors,
    )


def _build_planned_work(score: PlannedScore) -> PlannedWork:
    """A planned score from vectors or from a ranking, in plain values."""
    subject, encoding = score.subject, score.encoding
    width = None
    if isinstance(encoding, Encoding):
        late, folder = encoding.late_interaction, subject.on_disk.artifact.folder
        width = infer_vector_size(folder, encoding.pooling) if late is None else late.dimension or None
    return PlannedWork(
        name=subject.artifact.name,
        task=score.task.name,
        key=score.key,
        state=_describe_score_state(score),
        purpose=score.purpose,
        error=score.problem.message if score.problem else None,
        model=subject.artifact.key,
        type=score.task.type,
        identity=score.identity,
        encoding=encoding,
        size=score.task.limited_size,
        parameters=_count_parameters(subject),
        width=width,
    )


def _estimate_score(score: PlannedScore, past: PastWork) -> ScoreCost:
    """The cost of a score from vectors or from a ranking, or of a measurement by the speed of its model."""
    work, source = _build_planned_work(score), score.task.source
    cost = past.estimate_score_cost(work)
    if not isinstance(source, MeasuredSource) or not work.is_open or not isinstance(work.encoding, Encoding):
        return cost
    parameters = estimate_non_embedding(work.parameters, work.width)
    tokens = source.estimate_tokens(score.task)
    rate = past.estimate_token_rate(work.model, parameters, work.encoding.dtype)
    if rate is None or tokens is None:
        return cost
    cost = replace(cost, tokens=tokens, flops=2.0 * parameters * tokens)
    # Speeds are those of short texts: attention over long ones takes more.
    return cost.add_time(TimeRange.from_seconds(tokens / rate.tokens, max(LIKELY, rate.factor)), rate.source)


def _describe_score_state(score: PlannedScore) -> str:
    """Whether a planned score is to be made, is there, or cannot be."""
    if score.problem:
        return "cannot run"
    return "to do" if score.record is None else "done"


def weight_bytes(model: ConfiguredModel) -> int:
    """The bytes of a model's weights, or of those that its training starts from."""
    if model.ranks or model.is_object:
        return 0
    return sum(path.stat().st_size for path in weight_files(model.on_disk.artifact.folder))


def _count_parameters(model: ConfiguredModel) -> int:
    """The parameters of a model's files, or of those that its training starts from."""
    return 0 if model.ranks or model.is_object else _count_stored_parameters(model.on_disk.artifact.folder)


@cache
def _count_stored_parameters(folder: Path) -> int:
    count = 0
    for path in weight_files(folder):
        # Each file by itself: towers have tensors of the same names.
        tensors = read_tensor_headers([path])
        # A pickle that says nothing before it is loaded: as if in float32, 4 bytes a parameter.
        count += path.stat().st_size // 4 if tensors is None else sum(prod(t.shape) for t in tensors.values())
    return count


def estimate_disk_need(prepared: PreparedRun) -> DiskNeed | None:
    """The disk that the open scores of a run take; None where that is not known, or nothing."""
    request, plan = prepared.request, prepared.plan
    trials = [trial for trial in plan.trials if trial.record is None]
    encoded = [one for one in (*trials, *plan.open) if one.task.output not in ("label", "measured")]
    works = [_build_planned_work(one) for one in encoded]
    return DiskNeed.estimate_disk_need(
        works, prepared.cache, keep=request.keep_vectors, drop=request.drop_vectors
    )


def _estimate_runs(prepared: PreparedRun) -> dict[str, Estimate]:
    """The estimated cost of each missing run by key, from a few steps of it."""
    plan = prepared.plan
    jobs = [job for job in plan.jobs if job.kind == "finetune" and job.key not in plan.known]
    if not jobs or prepared.recipe is None:
        return {}
    context = JobContext(
        device=check_devices(prepared.devices)[0],
        cache=prepared.cache,
        emit=lambda _event: None,
        limits=WorkerLimits(threads=prepared.request.threads),
    )
    return {
        job.key: replace(run, notes=tuple(f"{job.place.task}: {note}" for note in run.notes))
        for job, run in zip(jobs, prepared.recipe.estimate(jobs, context), strict=True)
        if run is not None and job.place is not None
    }


def _share_out(scores: Sequence[PlannedScore], runs: dict[str, Estimate]) -> dict[str, list[Estimate]]:
    """Each run once: with the score of its own task, else with the first score that needs it."""
    shared: dict[str, list[Estimate]] = {}
    for same_task in (True, False):
        for score in scores:
            for job in score.recipe_plan.jobs if score.recipe_plan else ():
                if job.key in runs and (not same_task or (job.place and job.place.task == score.task.name)):
                    shared.setdefault(score.key, []).append(runs.pop(job.key))
    return shared


def _estimate_runs_cost(score: PlannedScore, runs: Sequence[Estimate], *, workers: int) -> ScoreCost:
    """The cost of a score that a recipe trains for, by the runs that it has to make."""
    plan = score.recipe_plan
    notes = [f"{score.task.name}: {note}" for note in plan.notes] if plan and runs else []
    problem = score.problem.message if score.problem else next(filter(None, (r.problem for r in runs)), None)
    cost = ScoreCost(
        model=score.subject.artifact.name,
        task=score.task.name,
        key=score.key,
        state="cannot run" if problem else _describe_score_state(score),
        error=problem,
        texts=None,
        tokens=None,
        flops=None if problem else sum(run.flops for run in runs),
        seconds=None,
        runs=len(runs),
        steps=None if problem else sum(run.steps for run in runs),
        notes=tuple(dict.fromkeys([*notes, *(note for run in runs for note in run.notes)])),
    )
    time = None if problem else estimate_run_time(sum(run.seconds for run in runs), workers)
    return cost.add_time(time, "twenty steps on this machine" if runs else "")


def _estimate_trainings(prepared: PreparedRun, past: PastWork | None = None) -> list[TrainingCost]:
    """The planned trainings of a run, the members of a sweep among them."""
    past, costs = past or _collect_past_work(prepared), []
    for model in prepared.plan.trainings:
        assert model.training is not None
        sweep = model.training.sweep
        if sweep is None or model.training.done:
            costs.append(_estimate_training(model, prepared, past))
            continue
        costs += [
            replace(_estimate_training(member, prepared, past), model=sweep.format_member_label(member))
            for member in sweep.members
        ]
        choice = _estimate_training(model, prepared, past)
        choice = replace(choice, state="to choose", steps=0, texts=0)
        costs.append(replace(choice, seconds=0.0, low=0.0, high=0.0, source=""))
    return costs


def _estimate_training(model: ConfiguredModel, prepared: PreparedRun, past: PastWork) -> TrainingCost:
    """The cost of the training of a model."""
    assert model.training is not None
    assert model.lineage is not None
    store, plan, work = ModelStore(prepared.store.root), model.training.model, model.training.job.work
    begun = {one.key: one.done for one in store.list_unfinished_models()}
    state = "to go on" if model.artifact.key in begun else "to do"
    if model.training.diverged:
        state = "diverged"
    elif model.training.done:
        state = "there"
    data = work.spec.data if isinstance(work, Train) else ()
    width = infer_vector_size(model.on_disk.artifact.folder, "mean")
    expected = expect_training(
        model.lineage,
        plan.texts,
        data,
        [stored.document for stored in store.list_stored_models() if stored.document],
        past,
        parameters=estimate_non_embedding(_count_parameters(model), width),
    )
    if state in ("there", "diverged"):
        # Nothing is left to train.
        expected = (TimeRange(), "")
    return TrainingCost(
        model=prepared.format_model_name(model),
        key=model.artifact.key,
        folder=str(model.artifact.folder),
        recipe=model.lineage.text,
        seed=model.lineage.seed,
        parent=model.training.backbone.artifact.name,
        state=state,
        steps=plan.steps,
        texts=plan.texts,
        done=begun.get(model.artifact.key, 0),
        operations=model.lineage.settings.get("budget"),
        **(asdict(expected[0]) if expected else {"seconds": None}),
        source=expected[1] if expected else "",
        data=tuple(f"{part.name} ({part.rows:,} rows)" if part.rows else part.name for part in data),
        notes=(
            *(f"{part.name}: {part.read_as}" for part in data if part.read_as),
            *(note for part in data for note in part.notes),
            *describe_assumptions(model.lineage.assumed),
            *plan.notes,
        ),
    )


def add_expected_seconds(prepared: PreparedRun) -> Plan:
    """The plan whose jobs have their expected seconds, by the speeds in the cache; no record is read for it.

    Of a score with an encoding the encoding has all of its time but the scoring.
    """
    plan = prepared.plan
    if all(job.kind in ("finetune", "select") for job in plan.jobs):
        return plan
    past = _collect_past_work(prepared, with_records=False)
    costs = {one.key: _estimate_score(one, past) for one in (*plan.open, *plan.trials) if not one.recipe_plan}
    trainings = {one.key: one.time_left for one in _estimate_trainings(prepared, past)}
    encoded = {job.claim for job in plan.jobs if job.kind == "encode"}
    times: dict[str, TimeRange] = {}
    for job in plan.jobs:
        time = costs[job.claim].time if job.claim in costs else trainings.get(job.model)
        if job.kind == "resolve":
            time = past.check_time(job.model)
        elif job.kind == "score" and job.claim in encoded:
            time = TimeRange.from_seconds(SCORING)
        if time is not None and job.kind not in ("finetune", "select"):
            times[job.key] = time
    seconds = {key: time.seconds for key, time in times.items()}
    jobs = [job.replace_resources(seconds=seconds.get(job.key, job.resources.seconds)) for job in plan.jobs]
    # Without those that take a moment, as a choice does.
    working = [job.key for job in jobs if job.resources.needs_device and job.key not in plan.known]
    time_range = None
    if working and times.keys() >= {*working}:
        lanes = min(len(prepared.request.devices or ("",)), len(working))
        time_range = reduce(add, [times[key] for key in working]).split_time(lanes)
    return replace(plan, jobs=tuple(jobs), time=time_range)
