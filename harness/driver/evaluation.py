"""The execution of a request: preparation, the number of worker processes, the run, and its report."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.core.arguments import checked, checked_fields
from harness.core.encoding import Encoding, Ranking, Settings
from harness.core.errors import UsageError, shortened
from harness.core.provenance import cores
from harness.core.types import Artifact
from harness.data.locate import human_size
from harness.driver.execute import Driver, Listeners
from harness.driver.report.run import Report
from harness.encoder.folder.modules import weight_files
from harness.encoder.folder.pooling import vector_size
from harness.executors.executor import SHARE, Executor, Failure, Listener, OpenExecutor, runs_that_fit
from harness.executors.local import LocalExecutor, Subprocess, end_repetition
from harness.executors.node import WorkerSettings
from harness.executors.settings import RaySettings, SlurmSettings, executor_settings
from harness.jobs.context import WorkerLimits
from harness.jobs.jobs import Job
from harness.jobs.recipe import TaskRecipe
from harness.jobs.training_jobs import Train
from harness.plan.plan import ConfiguredModel, Plan, PlannedScore
from harness.plan.request import PreparedRun, Request, ResolvedRequest, check_devices
from harness.search.plaid import index_bytes, require_library, sample_size
from harness.storage.store import Store
from harness.training.model_store import ModelStore


def run(
    model: str | Sequence[str],
    suite: str | Sequence[str],
    *,
    settings: Settings | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Report:
    """Evaluate models on suites; `harness.run` documents the arguments."""
    asked = Request(
        models=checked("models", model),
        suites=checked("suites", suite),
        settings=checked_fields(settings or Settings(), Settings, "settings"),
    ).changed(request, of="harness.run")
    with asked.network():
        prepared = prepare(asked)
        require_data(prepared)
        return execute(prepared, listeners)


def prepare(request: Request, *, training: bool = False) -> PreparedRun:
    """The resolved request with its plan; nothing is encoded. It ends a worker that runs a script again.

    Args:
        request: As the user gave it.
        training: Whether models are trained and nothing is evaluated.

    Raises:
        UsageError: A name, a setting or a record cannot be used.
    """
    end_repetition()
    remote = request.checked().open_remote()
    found = ResolvedRequest.of(request, training=training, remote=remote)
    request = found.request
    store = Store(found.results, remote)
    plan = Plan.make(
        found.subjects,
        found.suites,
        store=store,
        settings=found.data,
        seed=request.settings.seed,
        force=request.force,
        gate=request.gate,
        purpose=request.purpose,
        recipe=found.recipe,
        is_evaluated=found.is_evaluated,
    )
    return PreparedRun(
        request=request,
        asked=found.asked,
        subjects=found.subjects,
        suites=found.suites,
        plan=plan,
        store=store,
        cache=found.cache,
        recipe=found.recipe,
        stages=found.stages,
    )


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The outcome of a training: the model's folder, or the reason why there is none."""

    model: ConfiguredModel
    folder: Path | None
    was_there: bool = False
    failure: Failure | None = None


def train(
    model: str | Sequence[str], recipe: str, *, listeners: Listeners | None = None, **request: Any
) -> tuple[TrainedModel, ...]:
    """Make models with a recipe; `harness.train` documents the arguments."""
    asked = Request(models=checked("models", model), suites=(), recipe=checked("recipe", recipe)).changed(
        request, of="harness.train"
    )
    with asked.network():
        return carry_out_training(prepare(asked, training=True), listeners)


def carry_out_training(prepared: PreparedRun, listeners: Listeners | None = None) -> tuple[TrainedModel, ...]:
    """Train the models of a prepared request that are not there, and give all of them."""
    failures: Mapping[str, Failure] = {}
    trials = {trial.key: trial for trial in prepared.plan.trials}
    _send_missing(prepared)
    if prepared.plan.jobs:
        failures = _driver(prepared, listeners).train()
    found = []
    for one in prepared.plan.trainings:
        assert one.training is not None
        own = {job.key for job in one.training.jobs(trials, gate=prepared.request.gate)}
        failure = next((failures[key] for key in failures if key in own), None)
        there = ModelStore(prepared.store.root).find(one.artifact.key, prepared.cache)
        if there is None and failure is None:
            failure = Failure(kind="stopped", message="It was not reached.")
        folder = there[0] if there is not None else None
        was_there = one.training.done
        found.append(TrainedModel(model=one, folder=folder, was_there=was_there, failure=failure))
    return tuple(found)


def require_data(prepared: PreparedRun) -> None:
    """Refuse a run of a single task whose data cannot be read; of several tasks, the others run.

    Raises:
        UsageError: The message names the task and what is wrong.
    """
    cells = prepared.plan.cells
    problems = [cell.problem for cell in cells if cell.problem is not None]
    if len({cell.task.name for cell in cells}) == 1 and len(problems) == len(cells):
        task, message = cells[0].task.name, problems[0].message
        raise UsageError(
            message if message.startswith(task) else f"{task}: {message}",
            hint=prepared.with_suites(problems[0].hint or "") or None,
        )


def execute(prepared: PreparedRun, listeners: Listeners | None = None) -> Report:
    """Run a prepared request and return its report."""
    _send_missing(prepared)
    running = _driver(prepared, listeners)
    results = running.run()
    return Report(
        prepared=prepared,
        results=results,
        texts_encoded=running.texts_encoded,
        tokens_encoded=running.tokens_encoded,
        vectors_dropped=running.vectors_dropped,
    )


def _send_missing(prepared: PreparedRun) -> None:
    """Send what a run that was killed, or had no remote, has left of the request's models."""
    store = prepared.store
    if store.shared is None or store.remote is None:
        return
    store.shared.send_missing()
    models = ModelStore(store.root, store.remote)
    for one in prepared.plan.trainings:
        if one.training is not None and one.training.done:
            models.send(one.artifact.key, prepared.cache)


@dataclass(frozen=True, kw_only=True)
class DiskNeed:
    """The disk that a run's vectors and indexes take at most, in bytes, and what is free in the cache.

    `texts` are those of the open scores, of all models; texts that tasks share or that are cached count, too.
    `unknown` are the tasks whose sizes, or whose models' dimensions, are not known, `passing` those whose
    vectors are not kept: only their indexes count. `is_float32` is whether vectors of any model are kept in
    float32.
    """

    texts: int
    bytes: int
    free: int
    indexes: int = 0
    unknown: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()
    is_float32: bool = True

    @property
    def is_large(self) -> bool:
        """Whether the need is worth a line: a gigabyte or more, more than is free, or indexes."""
        return self.bytes >= min(10**9, self.free) or self.indexes > 0

    @property
    def text(self) -> str:
        """A sentence on the need, with a warning where it does not fit."""
        what = f"vectors of up to {self.texts:,} texts" if self.texts else "indexes"
        told = f"{what} take about {human_size(self.bytes)} of disk"
        told += f", {human_size(self.indexes)} of it in indexes" if self.indexes and self.texts else ""
        more = f", without {shortened(self.unknown)}, whose size is not known" if self.unknown else ""
        more += f", the vectors of {shortened(self.passing)} are not kept" if self.passing else ""
        if self.bytes <= self.free:
            return f"{told}{more}; {human_size(self.free)} are free"
        return (
            f"WARNING: {told}{more}, and only {human_size(self.free)} are free in the cache. "
            f"{'--vectors float16 takes half of it, ' * self.is_float32}--drop-vectors that of one model "
            "at a time, --cache DIR another disk"
        )

    @staticmethod
    def of(prepared: PreparedRun) -> DiskNeed | None:
        """The need of a prepared run; None where no vectors are made, or nothing is known."""
        trials = [cell for cell in prepared.plan.trials if cell.record is None]
        open_ = [*trials, *(cell for cell in prepared.plan.open if cell.recipe_plan is None)]
        keep = prepared.request.keep_vectors
        passing = {cell.key: cell.task.name for cell in open_ if passes(cell, keep)}
        sizes = {cell.key: 0 if cell.key in passing else _vector_bytes(cell) for cell in open_}
        models: dict[str, int] = {}
        for cell in open_:
            key = cell.subject.artifact.key
            models[key] = models.get(key, 0) + (sizes[cell.key] or 0)
        indexes = sum(size_of_index(cell, keep) for cell in open_)
        if not any(models.values()) and not passing:
            return None
        unknown = dict.fromkeys(cell.task.name for cell in open_ if sizes[cell.key] is None)
        return DiskNeed(
            texts=sum(cell.task.size.texts or 0 for cell in open_ if sizes[cell.key]),
            bytes=indexes + (max(models.values()) if prepared.request.drop_vectors else sum(models.values())),
            indexes=indexes,
            free=_free_disk(prepared.cache),
            unknown=tuple(unknown),
            passing=tuple(dict.fromkeys(passing.values())),
            is_float32=any(_has_float32(cell) for cell in open_ if sizes[cell.key]),
        )


def _has_float32(cell: PlannedScore) -> bool:
    encoding = cell.subject.encoding
    return isinstance(encoding, Encoding) and encoding.vectors == "float32"


KEY_BYTES = 16
"""Bytes of a text's hash beside its vector."""

OFFSET_BYTES = 8
"""Bytes of a text's place in its shard, where each token has a vector."""


def _vector_bytes(cell: PlannedScore) -> int | None:
    """The bytes of a score's vectors, None where they are not known."""
    encoding = cell.subject.encoding
    if isinstance(encoding, Ranking):
        return 0
    late, size = encoding.late_interaction, cell.task.size
    folder = cell.subject.on_disk.artifact.folder
    dimension = vector_size(folder, encoding.pooling) if late is None else late.dimension or None
    if dimension is None or size.texts is None:
        return None
    each = dimension * (2 if encoding.vectors == "float16" else 4)
    if encoding.late_interaction is None:
        return size.texts * (each + KEY_BYTES)
    tokens = size.most_tokens(encoding.on(cell.task).max_length)
    return tokens * each + size.texts * (KEY_BYTES + OFFSET_BYTES)


def passes(cell: PlannedScore, keep: float) -> bool:
    """Whether the vectors of a score's documents are not kept, by the gigabytes that are, and by its size."""
    return cell.is_indexed and (_vector_bytes(cell) or 0) > keep * 1e9


def size_of_index(cell: PlannedScore, keep: float) -> int:
    """The bytes of a score's index, about; 0 without one, or where the task's size is not known.

    While one is made whose vectors are not kept, those of a sample are beside its first half.
    """
    encoding, size = cell.encoding, cell.task.size
    if isinstance(encoding, Ranking) or encoding.index is None or encoding.late_interaction is None:
        return 0
    tokens = size.most_tokens(encoding.max_length)
    whole = index_bytes(tokens, encoding.late_interaction.dimension, encoding.index)
    if not passes(cell, keep) or not size.texts:
        return whole
    sample = (_vector_bytes(cell) or 0) * sample_size(size.texts) // size.texts
    return max(whole, whole // 2 + sample)


def _free_disk(folder: Path) -> int:
    """The free bytes of the disk on which a folder lies or will lie."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def _driver(prepared: PreparedRun, listeners: Listeners | None) -> Driver:
    request = prepared.request
    plan, open_executor = _with_executor(prepared)
    return Driver(
        plan,
        store=prepared.store,
        cache=prepared.cache,
        open_executor=open_executor,
        listeners=listeners,
        fail_fast=request.fail_fast,
        again=request.force,
        budget=request.budget,
        drop_vectors=request.drop_vectors,
    )


def _with_executor(prepared: PreparedRun) -> tuple[Plan, OpenExecutor]:
    """The plan with the resources of its jobs, and the executor for them.

    Raises:
        UsageError: There is no such device or cluster.
    """
    settings = executor_settings(prepared.request.executor)
    if settings is None or not _open_jobs(prepared.plan):
        return _on_this_machine(prepared)
    if isinstance(settings, RaySettings):
        return _on_ray(prepared, settings)
    return _on_slurm(prepared, settings)


def _on_this_machine(prepared: PreparedRun) -> tuple[Plan, OpenExecutor]:
    request, plan = prepared.request, prepared.plan
    if any(cell.is_indexed for cell in plan.open):
        require_library(prepared.devices)
    places = _WorkerPlan(devices=("cpu",), threads=request.threads)
    if any(job.kind != "rank" for job in plan.jobs):
        places = _plan_workers(
            check_devices(prepared.devices),
            _open_jobs(plan),
            prepared.recipe,
            cache=prepared.cache,
            weights=max(_weight_bytes(one) for one in prepared.subjects),
            asked=request.workers,
            threads=request.threads,
        )
    limits = replace(_limits(prepared), threads=places.threads)
    most = len(set(places.devices))

    def opened(listener: Listener) -> Executor:
        return LocalExecutor(places.devices, cache=prepared.cache, listener=listener, limits=limits)

    return _with_devices(plan, most, most), opened


def _on_ray(prepared: PreparedRun, settings: RaySettings) -> tuple[Plan, OpenExecutor]:
    from harness.executors.ray import RayExecutor

    request = prepared.request
    prepared.store.prepare()  # so that workers see the folder
    executor = RayExecutor(
        settings,
        worker=_worker_settings(prepared),
        results=prepared.store.root,
        kind="".join(request.devices),
    )
    plan = _with_memory(_with_devices(prepared.plan, *executor.most_devices()), prepared, executor.kind)
    runs = [job for job in _open_jobs(plan) if job.kind == "finetune"]
    probe = prepared.recipe.probe(runs) if prepared.recipe is not None and len(runs) > 1 else None
    share = None if request.workers is None else 1 / request.workers
    return plan, functools.partial(
        executor.begin, jobs=_open_jobs(plan), share=share, probe=probe, priority=request.priority
    )


def _on_slurm(prepared: PreparedRun, settings: SlurmSettings) -> tuple[Plan, OpenExecutor]:
    from harness.executors.slurm import SlurmExecutor

    prepared.store.prepare()  # so that workers see the folder
    if prepared.request.devices == ("cuda",) and not settings.gpus:
        raise UsageError("--devices cuda with workers that have no GPU.", hint="Type gpus=1 or more.")
    on_cpu = prepared.request.devices == ("cpu",) or not settings.gpus
    kind: Literal["cpu", "cuda"] = "cpu" if on_cpu else "cuda"
    most = settings.gpus if kind == "cuda" else 1
    plan = _with_memory(_with_devices(prepared.plan, most * settings.workers, most), prepared, kind)
    worker = _worker_settings(prepared)
    worker = replace(worker, limits=replace(worker.limits, threads=worker.limits.threads or settings.cpus))

    def opened(listener: Listener) -> Executor:
        executor = SlurmExecutor(
            settings, worker=worker, folder=prepared.store.root, listener=listener, kind=kind
        )
        executor.check(_open_jobs(plan))
        return executor

    return plan, opened


def _open_jobs(plan: Plan) -> list[Job]:
    return [job for job in plan.jobs if job.key not in plan.known]


def _limits(prepared: PreparedRun) -> WorkerLimits:
    request, remote = prepared.request, prepared.store.remote
    return WorkerLimits(
        threads=request.threads,
        batch_tokens=request.batch_tokens,
        keep_vectors=request.keep_vectors,
        remote=None if remote is None else remote.url,
    )


def _worker_settings(prepared: PreparedRun) -> WorkerSettings:
    """What every worker of a cluster is given; folders have their whole names there."""
    return WorkerSettings(
        cache=prepared.cache.resolve(),
        folders=(prepared.store.root.resolve(),),
        limits=_limits(prepared),
        offline=prepared.request.offline,
    )


def _with_memory(plan: Plan, prepared: PreparedRun, kind: str) -> Plan:
    """The plan with the main memory that its jobs take, by the size of their models' weights."""
    weights = {one.artifact.key: _weight_bytes(one) for one in (*prepared.asked, *prepared.subjects)}

    def memory(job: Job) -> int:
        trains = job.kind in ("train", "finetune") and kind == "cpu"
        return PROCESS + weights.get(job.model, 0) * (PER_WEIGHT if trains else PER_LOADED)

    jobs = [
        replace(job, resources=replace(job.resources, memory=memory(job)))
        if job.resources.needs_device
        else job
        for job in plan.jobs
    ]
    return replace(plan, jobs=tuple(jobs))


def _weight_bytes(one: ConfiguredModel) -> int:
    if one.ranks:
        return 0
    return sum(path.stat().st_size for path in weight_files(one.on_disk.artifact.folder))


def _with_devices(plan: Plan, devices: int, together: int) -> Plan:
    """The plan with the devices shared out among its trainings, no more to each than its recipe can use.

    Of all the `devices` a training can have those that are `together` on one machine.
    """
    trainings = sum(job.kind == "train" for job in plan.jobs)
    if not trainings:
        return plan
    most = max(1, min(together, devices // trainings))
    starts = {
        job.work.artifact.key: job.work.spec.backbone for job in plan.jobs if isinstance(job.work, Train)
    }
    return replace(plan, jobs=tuple(_job_with_devices(job, most, starts) for job in plan.jobs))


def _job_with_devices(job: Job, most: int, starts: Mapping[str, Artifact]) -> Job:
    """The job with its devices; a backbone that is still to be trained is as large as its own."""
    if not isinstance(job.work, Train):
        return job
    spec = job.work.spec
    backbone = spec.backbone
    while not backbone.folder.is_dir() and backbone.key in starts:
        backbone = starts[backbone.key]
    return replace(job, resources=replace(job.resources, devices=spec.recipe.devices(most, backbone)))


PER_WEIGHT = 6
"""A CPU run's memory in units of its weights: weights, gradients, two moments, and temporary values."""

PER_LOADED = 2
"""The memory of a worker that encodes, in units of its model's weights."""

PROCESS = 2_500_000_000
"""Further bytes of a process: its libraries and activations."""


@dataclass(frozen=True, kw_only=True)
class _WorkerPlan:
    """The worker processes: a device for each, and the threads of every process."""

    devices: tuple[str, ...]
    threads: int | None


def _plan_workers(
    devices: Sequence[str],
    jobs: Sequence[Job],
    recipe: TaskRecipe | None,
    *,
    cache: Path,
    weights: int,
    asked: int | None = None,
    threads: int | None = None,
) -> _WorkerPlan:
    """The worker processes for a plan; on a CPU, several runs with few threads each take less time in all."""
    runs = [job for job in jobs if job.kind == "finetune"]
    if not runs or recipe is None:
        return _WorkerPlan(devices=tuple(devices), threads=threads)
    each = -(-len(runs) // len(devices))
    count = asked or each
    if count > 1 and not asked:
        fit = _fitting(devices, runs, recipe, cache=cache, weights=weights, threads=threads)
        count = min(count, fit)
    on_cpu = all(device == "cpu" for device in devices)
    spread = max(1, cores() // count) if on_cpu and count > 1 else None
    return _WorkerPlan(devices=tuple(d for d in devices for _ in range(count)), threads=threads or spread)


def _fitting(
    devices: Sequence[str],
    runs: Sequence[Job],
    recipe: TaskRecipe,
    *,
    cache: Path,
    weights: int,
    threads: int | None,
) -> int:
    free_cores = max(1, cores() // (threads or 1) // len(devices))
    if devices[0] == "cpu":
        import psutil

        room = psutil.virtual_memory().available * SHARE
        return min(free_cores, runs_that_fit(room, PER_WEIGHT * weights + PROCESS))
    if not devices[0].startswith("cuda") or free_cores == 1:
        return 1
    measured = _measured(devices[0], runs, recipe, cache)
    return 1 if measured is None else min(free_cores, runs_that_fit(measured[0] * SHARE, measured[1]))


def _measured(
    device: str, runs: Sequence[Job], recipe: TaskRecipe, cache: Path
) -> tuple[float, float] | None:
    """The free memory of a GPU and the memory of one run, in bytes, from a few steps in a new process."""
    job = recipe.probe(runs)
    if job is None:
        return None
    worker = Subprocess(device=device, cache=cache, listener=lambda _key, _event: None, limits=WorkerLimits())
    try:
        worker.start(job, {}, (device,))
        finished = None
        while finished is None:
            finished = worker.poll(0.5)
    finally:
        worker.close()
    if finished.failure is not None:
        return None
    return _free(device), float(json.loads(finished.output["memory"])["peak_bytes"])


def _free(device: str) -> float:
    import torch

    return float(torch.cuda.mem_get_info(device)[0])
