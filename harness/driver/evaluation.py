"""The execution of a request: preparation, the number of worker processes, the run, and its report."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.core.arguments import Names, Places, checked, checked_fields
from harness.core.encoding import Settings
from harness.core.errors import UsageError
from harness.core.provenance import cores
from harness.core.types import Artifact
from harness.driver.estimate import weight_bytes, with_expected_seconds
from harness.driver.execute import Driver, Listeners
from harness.driver.report.run import Report
from harness.executors.executor import (
    Executor,
    Failure,
    Listener,
    OpenExecutor,
    RaySettings,
    SlurmSettings,
    executor_settings,
)
from harness.executors.local import LocalExecutor, Subprocess, end_repetition
from harness.executors.node import WorkerSettings
from harness.jobs.context import WorkerLimits
from harness.jobs.jobs import Job
from harness.jobs.recipe import TaskRecipe
from harness.jobs.training_jobs import Train
from harness.plan.devices import check_devices
from harness.plan.plan import ConfiguredModel, Plan
from harness.plan.request import PreparedRun, Request
from harness.plan.resolved_request import ResolvedRequest
from harness.results.cost.memory import SHARE, memory_of_job, runs_that_fit
from harness.search.plaid import require_library
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
        models=checked("models", model, Places),
        suites=checked("suites", suite, Places),
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
    prepared = PreparedRun(
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
    return replace(prepared, plan=with_expected_seconds(prepared))


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
    models, recipes = checked("models", model, Places), checked("recipe", recipe, Names)
    asked = Request(models=models, suites=(), recipe=recipes).changed(request, of="harness.train")
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
            weights=max(weight_bytes(one) for one in prepared.subjects),
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
        kind="".join(request.devices),
    )
    plan = _with_memory(_with_devices(prepared.plan, *executor.most_devices()), prepared, executor.kind)
    runs = [job for job in _open_jobs(plan) if job.kind == "finetune"]
    probe = prepared.recipe.probe(runs) if prepared.recipe is not None and len(runs) > 1 else None
    share = None if request.workers is None else 1 / request.workers
    return plan, functools.partial(executor.begin, jobs=_open_jobs(plan), share=share, probe=probe)


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
    weights = {one.artifact.key: weight_bytes(one) for one in (*prepared.asked, *prepared.subjects)}

    def memory(job: Job) -> int:
        trains = job.kind in ("train", "finetune") and kind == "cpu"
        return memory_of_job(weights.get(job.model, 0), trains=trains)

    jobs = [
        job.change_resources(memory=memory(job)) if job.resources.needs_device else job for job in plan.jobs
    ]
    return replace(plan, jobs=tuple(jobs))


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
    return job.change_resources(devices=spec.recipe.devices(most, backbone))


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
        return min(free_cores, runs_that_fit(room, memory_of_job(weights, trains=True)))
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
