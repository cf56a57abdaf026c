"""The execution of a request: preparation, the number of worker processes, the run, and its report."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.core.arguments import NamedPlaces, Names, Places, check_fields, check_value
from harness.core.encoding import Encoding, Settings
from harness.core.errors import UsageError, require_package
from harness.core.keys import digest
from harness.core.provenance import PACKAGES, count_cores, end_repetition
from harness.core.types import Artifact
from harness.data.locate import DataMissing, find_hub_fault
from harness.driver.estimate import add_expected_seconds, weight_bytes
from harness.driver.execute import Driver, Listeners
from harness.driver.report.run import Report
from harness.driver.tracking import Tracking
from harness.encoder.resolved_encoding import require_runnable
from harness.executors.executor import Executor, Failure, Listener, OpenExecutor, RaySettings, SlurmSettings
from harness.executors.local import LIBRARIES, CpuWorkers, LocalExecutor, Subprocess, check_devices, has_guard
from harness.executors.node import WorkerSettings
from harness.executors.run_log import DeviceUse
from harness.jobs.context import WorkerLimits
from harness.jobs.jobs import Encode, Job, ScoreJob
from harness.jobs.recipe import TaskRecipe
from harness.jobs.training_jobs import Choose, Train
from harness.plan.model_objects import is_own_encoder, resolve_encoder, save_objects
from harness.plan.plan import ConfiguredModel, Plan
from harness.plan.request import Choices, PreparedRun, Request
from harness.plan.resolved_request import ResolvedRequest
from harness.results.cost.encoding import (
    PROCESS,
    SHARE,
    compute_run_capacity,
    estimate_job_memory,
    estimate_scoring_memory,
)
from harness.search.plaid import require_library
from harness.storage.remote_and_leases import Remote
from harness.storage.store import Store
from harness.training.model_store import ModelStore


def run_evaluation(
    model: Any,
    suite: str | Sequence[str],
    *,
    name: str | None = None,
    settings: Settings | None = None,
    listeners: Listeners | None = None,
    **request: Any,
) -> Report:
    """Evaluate models on suites; `harness.run` documents the arguments."""
    full_request = Request(
        models=(),
        suites=check_value("suites", suite, Places),
        settings=check_fields(settings or Settings(), Settings, "settings"),
    ).replace_fields(request, of="harness.run")
    with full_request.limit_network():
        # A misspelt suite is refused before an object's weights are written.
        full_request.open_suites()
        name, starts = check_value("name", name, str | None), tuple[ConfiguredModel, ...]()
        if is_own_encoder(model):
            starts, model = (resolve_encoder(model, name, full_request),), name
        model, request = save_objects(model, name, request)
        models, names = check_value("models", model, NamedPlaces), request.get("names", {})
        prepared, _ = avoid_hub(prepare(replace(full_request, models=models, names=names), starts=starts))
        require_data(prepared)
        return execute(prepared, listeners)


def prepare(
    request: Request, *, training: bool = False, starts: tuple[ConfiguredModel, ...] = ()
) -> PreparedRun:
    """The resolved request with its plan; nothing is encoded. It ends a worker that runs a script again.

    Args:
        request: As the user gave it.
        training: Whether models are trained and nothing is evaluated.
        starts: Models, perhaps still to be trained, in the place of those that the request names.

    Raises:
        UsageError: A name, a setting or a record cannot be used.
    """
    end_repetition()
    if request.lengths and not training:
        return _prepare_lengths(request)
    remote = request.validate_fields().open_remote()
    # New models are tried on another core while the plan is made.
    with ExitStack() as trials:
        resolved_request = ResolvedRequest.resolve_request(
            request, training=training, remote=remote, starts=starts, trials=trials
        )
        return _plan_request(resolved_request, remote)


def _plan_request(resolved_request: ResolvedRequest, remote: Remote | None) -> PreparedRun:
    request = resolved_request.request
    store = Store(resolved_request.results, remote)
    plan = Plan.make(
        resolved_request.subjects,
        resolved_request.suites,
        store=store,
        settings=resolved_request.data,
        seed=request.settings.seed,
        force=request.force,
        gate=request.gate,
        purpose=request.purpose,
        recipe=resolved_request.recipe,
        is_evaluated=resolved_request.is_evaluated,
        machine=resolved_request.machine,
    )
    prepared = PreparedRun(
        request=request,
        asked=resolved_request.asked,
        subjects=resolved_request.subjects,
        suites=resolved_request.suites,
        plan=plan,
        store=store,
        cache=resolved_request.cache,
        recipe=resolved_request.recipe,
        stages=resolved_request.stages,
    )
    _require_runnable_dtype(prepared)
    if any(cell.is_indexed for cell in plan.open):
        require_package("fast_plaid", extra="colbert", purpose="--index plaid")
    return _expect_seconds(prepared)


def _expect_seconds(prepared: PreparedRun) -> PreparedRun:
    """The run with the expected seconds of its jobs and of its whole."""
    return replace(prepared, plan=add_expected_seconds(prepared)) if prepared.plan.jobs else prepared


def _prepare_lengths(request: Request) -> PreparedRun:
    """The runs at every length of a request as one."""
    if request.settings.max_length is not None:
        raise UsageError("--lengths and --max-length both give a length.", hint="Leave one of them out.")
    if request.sweep:
        raise UsageError(
            "--lengths and --sweep: each length would have a sweep of its own.",
            hint="Sweep first, then type --lengths with the chosen model's folder as --model.",
        )
    settings = [replace(request.settings, max_length=length) for length in request.validate_fields().lengths]
    try:
        runs = [_label_jobs(prepare(replace(request, settings=one, lengths=()))) for one in settings]
    except UsageError as error:
        # The option that was typed.
        texts = (error.message, error.hint or "")
        message, hint = (text.replace("--max-length", "--lengths") for text in texts)
        raise UsageError(message, hint=hint or None) from error
    joined = join_prepared_runs(request, runs)
    # One model after the other, each at every length.
    order = [model.artifact.key for model in runs[0].subjects]
    subjects = sorted(joined.subjects, key=lambda model: order.index(model.artifact.key))
    return replace(joined, subjects=tuple(subjects), stages=runs[0].stages)


def _label_jobs(run: PreparedRun) -> PreparedRun:
    """A run whose jobs on a task say its length."""
    length = run.request.settings.max_length
    jobs = [
        replace(job, label=f"{job.label}, {length} tokens") if job.kind in ("encode", "score") else job
        for job in run.plan.jobs
    ]
    return replace(run, plan=replace(run.plan, jobs=tuple(jobs)))


def join_prepared_runs(base: Request, runs: Sequence[PreparedRun]) -> PreparedRun:
    """Several runs as one, in which each training, encoding and score is once.

    Args:
        base: The request of all of them.
        runs: The prepared runs, at least one.
    """
    plans = [run.plan for run in runs]
    plan = Plan(
        cells=tuple({cell.key: cell for one in plans for cell in one.cells}.values()),
        jobs=tuple({job.key: job for one in plans for job in one.jobs}.values()),
        keys={pair: key for one in plans for pair, key in one.keys.items()},
        known=frozenset().union(*(one.known for one in plans)),
        anew=frozenset().union(*(one.anew for one in plans)),
        trainings=tuple({m.artifact.key: m for one in plans for m in one.trainings}.values()),
        trials=tuple({trial.key: trial for one in plans for trial in one.trials}.values()),
    )
    request = replace(base, suites=tuple(dict.fromkeys(name for run in runs for name in run.request.suites)))
    first = next((run for run in runs if run.recipe), runs[0])
    joined = replace(
        first,
        request=request,
        subjects=tuple(dict.fromkeys(model for run in runs for model in run.subjects)),
        suites=tuple({suite.name: suite for run in runs for suite in run.suites}.values()),
        plan=plan,
        stages=(),
    )
    return _expect_seconds(joined)


def _require_runnable_dtype(prepared: PreparedRun) -> None:
    """Refuse a dtype that no device of this machine runs, before anything is loaded."""
    half = any(
        isinstance(cell.encoding, Encoding) and cell.encoding.dtype == "float16" and cell.recipe_plan is None
        for cell in prepared.plan.open
    )
    if half and prepared.request.cluster is None:
        for device in prepared.devices:
            require_runnable("float16", device)


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The outcome of a training: the model's folder, or the reason why there is none."""

    model: ConfiguredModel
    folder: Path | None
    was_there: bool = False
    failure: Failure | None = None


def train_models(
    model: str | Sequence[str] | Mapping[str, str],
    recipe: str,
    *,
    listeners: Listeners | None = None,
    **request: Any,
) -> tuple[TrainedModel, ...]:
    """Make models with a recipe; `harness.train` documents the arguments."""
    models, recipes = check_value("models", model, NamedPlaces), check_value("recipe", recipe, Names)
    full_request = Request(models=models, suites=(), recipe=recipes).replace_fields(
        request, of="harness.train"
    )
    with full_request.limit_network():
        return execute_training(prepare(full_request, training=True), listeners)


def execute_training(prepared: PreparedRun, listeners: Listeners | None = None) -> tuple[TrainedModel, ...]:
    """Train the models of a prepared request that are not there, and give all of them."""
    failures = find_failures(prepared, run_trainings(prepared, listeners))
    trained_models = []
    for model in prepared.plan.trainings:
        assert model.training is not None
        failure = failures.get(model.artifact.key)
        stored_model = ModelStore(prepared.store.root).find(model.artifact.key, prepared.cache)
        if stored_model is None and failure is None:
            failure = Failure(kind="stopped", message="It was not reached.")
        folder = stored_model[0] if stored_model is not None else None
        was_there = model.training.done
        trained_models.append(TrainedModel(model=model, folder=folder, was_there=was_there, failure=failure))
    return tuple(trained_models)


def run_trainings(prepared: PreparedRun, listeners: Listeners | None = None) -> Driver:
    """Run the trainings of a prepared request; returns the driver that ran them."""
    _send_missing(prepared)
    with ExitStack() as opened:
        tracking = _open_tracking(prepared, opened)
        running = _build_driver(prepared, tracking.extend_listeners(listeners) if tracking else listeners)
        if prepared.plan.jobs:
            running.run_trainings()
    return running


def _open_tracking(prepared: PreparedRun, opened: ExitStack) -> Tracking | None:
    """The trackers of a run, closed with `opened`; None where none are asked for."""
    names = prepared.request.track
    return opened.enter_context(Tracking(names, prepared.store.root)) if names else None


def find_failures(prepared: PreparedRun, driver: Driver) -> dict[str, Failure]:
    """Why trainings of a prepared request have made no model, by the key of the model."""
    trials = {trial.key: trial for trial in prepared.plan.trials}
    failures: dict[str, Failure] = {}
    for model in prepared.plan.trainings:
        jobs = model.training.plan_jobs(trials, gate=prepared.request.gate) if model.training else ()
        keys = {job.key for job in jobs}
        first = next((key for key in driver.failures if key in keys), None)
        if first is not None:
            failures[model.artifact.key] = driver.failures[first]
    return failures


def require_data(prepared: PreparedRun, *, whole: bool = False, fault: str = "") -> None:
    """Refuse a run of a single task whose data cannot be read; of several tasks, the others run.

    Args:
        prepared: The run.
        whole: Whether a run of several tasks is refused, too, if the data of one is missing.
        fault: Why the hub was not asked, the beginning of the message.

    Raises:
        UsageError: The message names the task and what is wrong.
    """
    cells = prepared.plan.cells
    problems = [(cell.task.name, cell.problem) for cell in cells if cell.problem is not None]
    lost = [(task, problem) for task, problem in problems if whole and isinstance(problem, DataMissing)]
    if lost or (len({cell.task.name for cell in cells}) == 1 and len(problems) == len(cells)):
        task, problem = (lost or problems)[0]
        message = problem.message if problem.message.startswith(task) else f"{task}: {problem.message}"
        hint = prepared.insert_suites(problem.hint or "") or None
        raise UsageError(f"{fault}. {message}" if fault else message, hint=hint)


def prepare_whole(request: Request) -> tuple[PreparedRun, str]:
    """A run that has the data of all its tasks, and why the hub is not asked for it, as of `avoid_hub`.

    Raises:
        UsageError: The data of a task is missing, or the request cannot be carried out.
    """
    prepared, fault = avoid_hub(prepare(request))
    require_data(prepared, whole=True, fault=fault)
    return prepared, fault


def avoid_hub(prepared: PreparedRun) -> tuple[PreparedRun, str]:
    """The run as with `offline` where it needs data of a hub that cannot be reached, and why; else as it is.

    The libraries would ask anew for every file of every task, unless they know that they are offline.
    """
    cells = () if os.environ.get("HF_HUB_OFFLINE") else prepared.plan.open
    is_asked = any(cell.located and cell.located.origin == "hub" for cell in cells)
    fault = find_hub_fault() if is_asked else ""
    starts = tuple(model for model in prepared.asked if model.is_object)
    request = replace(prepared.request, offline=True)
    return (prepare(request, starts=starts), fault) if fault else (prepared, "")


def execute(prepared: PreparedRun, listeners: Listeners | None = None) -> Report:
    """Run a prepared request and return its report."""
    prepared = make_choices(prepared, functools.partial(run_trainings, listeners=listeners))
    _send_missing(prepared)
    choices = prepared.choices
    with ExitStack() as opened:
        tracking = _open_tracking(prepared, opened)
        running = _build_driver(prepared, tracking.extend_listeners(listeners) if tracking else listeners)
        results = running.run(choices.failures if choices else {})
        efforts: list[Driver | Choices] = [choices, running] if choices else [running]
        report = Report(
            prepared=prepared,
            results=results,
            texts_encoded=sum(one.texts_encoded for one in efforts),
            tokens_encoded=sum(one.tokens_encoded for one in efforts),
            vectors_dropped=running.vectors_dropped,
            seconds=sum(one.seconds for one in efforts),
            uses=_add_device_uses(use for one in efforts for use in one.uses),
        )
        if tracking:
            tracking.log_scores(report)
    return report


def make_choices(prepared: PreparedRun, train: Callable[[PreparedRun], Driver]) -> PreparedRun:
    """The run planned again after `train` has made the choices on which its evaluation depends, if any.

    A model of a sweep that has chosen none keeps its place in the plan, and nothing of it is run.
    """
    plan = prepared.plan.choices
    if prepared.choices is not None or not plan.jobs:
        return prepared
    choosing = _expect_seconds(replace(prepared, plan=plan))
    driver = train(choosing)
    choices = Choices(
        failures=find_failures(choosing, driver),
        seconds=driver.seconds,
        uses=driver.uses,
        texts_encoded=driver.texts_encoded,
        tokens_encoded=driver.tokens_encoded,
    )
    again = prepare(prepared.request)
    vain = {job.key for job in again.plan.choices.jobs if job.kind != "select"}
    # A backbone may also be loaded for scores of its own.
    vain -= {
        name for job in again.plan.jobs if job.key not in vain and job.kind != "select" for name in job.inputs
    }
    jobs = tuple(job for job in again.plan.jobs if job.key not in vain)
    return _expect_seconds(replace(again, plan=replace(again.plan, jobs=jobs), choices=choices))


def _send_missing(prepared: PreparedRun) -> None:
    """Send what a run that was killed, or had no remote, has left of the request's models."""
    store = prepared.store
    if store.shared is None or store.remote is None:
        return
    store.shared.send_missing()
    models = ModelStore(store.root, store.remote)
    for model in prepared.plan.trainings:
        if model.training is not None and model.training.done:
            models.send(model.artifact.key, prepared.cache)


def _build_driver(prepared: PreparedRun, listeners: Listeners | None) -> Driver:
    request = prepared.request
    plan, open_executor = _choose_executor(prepared)
    spent = 0.0 if prepared.choices is None else prepared.choices.seconds
    return Driver(
        plan,
        store=prepared.store,
        cache=prepared.cache,
        open_executor=open_executor,
        listeners=listeners,
        fail_fast=request.fail_fast,
        again=request.force,
        budget=None if request.budget is None else max(0.0, request.budget - spent),
        drop_vectors=request.drop_vectors,
    )


def _choose_executor(prepared: PreparedRun) -> tuple[Plan, OpenExecutor]:
    """The plan with the resources of its jobs, and the executor for them.

    Raises:
        UsageError: There is no such device or cluster.
    """
    settings = prepared.request.cluster
    if settings is None or not _open_jobs(prepared.plan):
        return _prepare_local_run(prepared)
    if isinstance(settings, RaySettings):
        return _prepare_ray_run(prepared, settings)
    return _prepare_slurm_run(prepared, settings)


def _prepare_local_run(prepared: PreparedRun) -> tuple[Plan, OpenExecutor]:
    request, plan = prepared.request, prepared.plan
    if any(cell.is_indexed for cell in plan.open):
        require_library(prepared.devices)
    devices: tuple[str, ...] = ("cpu",)
    places = _WorkerPlan(devices=devices, threads=request.threads)
    if any(job.kind != "rank" for job in plan.jobs):
        devices = check_devices(prepared.devices)
        places = _plan_workers(
            devices,
            _open_jobs(plan),
            prepared.recipe,
            cache=prepared.cache,
            weights=max(weight_bytes(one) for one in prepared.subjects),
            asked=request.workers,
            threads=request.threads,
        )
    limits = replace(_build_worker_limits(prepared), threads=places.threads)
    most = len(set(places.devices))
    cpu_workers = _plan_cpu_workers(places.devices, _open_jobs(plan), request.threads)

    def open_local(listener: Listener) -> Executor:
        return LocalExecutor(
            places.devices,
            cache=prepared.cache,
            listener=listener,
            limits=limits,
            offline=request.offline,
            cpu_workers=cpu_workers,
        )

    return _assign_devices(_split_encodings(plan, len(devices)), most, most), open_local


CPU_THREADS, CPU_WORKERS = 2, 8
"""The fewest threads of a CPU worker where none are asked for, and the most CPU workers for each device."""

PART_TEXTS = 100_000
"""The fewest texts of a part of an encoding, since each part collects the texts of the task anew."""


def _plan_cpu_workers(devices: Sequence[str], jobs: Sequence[Job], threads: int | None) -> CpuWorkers | None:
    """The CPU workers beside devices, as cores and memory allow; none where the CPU is one of the devices."""
    works = [job.work for job in jobs if job.resources.begins_on_cpu]
    # A script without a guard may use one process.
    if "cpu" in devices or not works or not has_guard(strict=True):
        return None
    import psutil

    room = psutil.virtual_memory().available * SHARE
    scores = [work for work in works if isinstance(work, ScoreJob)]
    need = max((estimate_scoring_memory(work.task.size) for work in scores), default=PROCESS)
    fit = compute_run_capacity(room, need)
    cores = max(0, count_cores() - len(devices))
    most = CPU_WORKERS * len(set(devices))
    count = min(len(works), fit, cores // (threads or CPU_THREADS), most)
    scoring = {work.task.source.scoring.partition(" ")[0] for work in scores}
    # Of a package, whose module may have another name.
    modules = (name for name in PACKAGES if name in scoring and importlib.util.find_spec(name))
    threads = threads or max(CPU_THREADS, cores // max(1, count))
    return CpuWorkers(count=count, threads=threads, libraries=(*LIBRARIES, *modules))


def _split_encodings(plan: Plan, devices: int) -> Plan:
    """The plan with the encoding of a large corpus in parts, which the devices take at the same time."""
    if devices < 2:
        return plan
    parts = {job.key: _split_encoding(job, devices) for job in plan.jobs}
    keys = {key: [part.key for part in split] for key, split in parts.items()}
    jobs = [
        replace(job, inputs=tuple(name for key in job.inputs for name in keys.get(key, [key])))
        for split in parts.values()
        for job in split
    ]
    return replace(plan, jobs=tuple(jobs))


def _split_encoding(job: Job, devices: int) -> list[Job]:
    """The jobs that encode a part each, the first of them with the key of the whole; else the job itself."""
    work = job.work
    if not isinstance(work, Encode) or (count := min(devices, (work.task.size.texts or 0) // PART_TEXTS)) < 2:
        return [job]
    job = job.replace_resources(seconds=job.resources.seconds and job.resources.seconds / count)
    return [
        replace(
            job,
            key=digest({"job": job.key, "part": number}) if number else job.key,
            label=f"{job.label}, part {number + 1} of {count}",
            work=replace(work, part=(number, count)),
        )
        for number in range(count)
    ]


def _prepare_ray_run(prepared: PreparedRun, settings: RaySettings) -> tuple[Plan, OpenExecutor]:
    from harness.executors.ray import RayExecutor

    request = prepared.request
    # Made here: workers on other machines look for the folder.
    prepared.store.prepare(prepared.plan.artifacts)
    executor = RayExecutor(
        settings,
        worker=_build_worker_settings(prepared),
        kind="".join(request.devices),
    )
    plan = _assign_memory(_assign_devices(prepared.plan, *executor.count_devices()), prepared, executor.kind)
    runs = [job for job in _open_jobs(plan) if job.kind == "finetune"]
    probe = prepared.recipe.build_probe_job(runs) if prepared.recipe is not None and len(runs) > 1 else None
    share = None if request.workers is None else 1 / request.workers
    return plan, functools.partial(executor.prepare_jobs, jobs=_open_jobs(plan), share=share, probe=probe)


def _prepare_slurm_run(prepared: PreparedRun, settings: SlurmSettings) -> tuple[Plan, OpenExecutor]:
    from harness.executors.slurm_driver import SlurmExecutor

    # Made here: workers on other machines look for the folder.
    prepared.store.prepare(prepared.plan.artifacts)
    if prepared.request.devices == ("cuda",) and not settings.gpus:
        raise UsageError(
            "--devices cuda needs a GPU, and the workers have none.", hint="Type gpus=1 or more."
        )
    on_cpu = prepared.request.devices == ("cpu",) or not settings.gpus
    kind: Literal["cpu", "cuda"] = "cpu" if on_cpu else "cuda"
    most = settings.gpus if kind == "cuda" else 1
    plan = _assign_memory(_assign_devices(prepared.plan, most * settings.workers, most), prepared, kind)
    worker = _build_worker_settings(prepared)
    worker = replace(worker, limits=replace(worker.limits, threads=worker.limits.threads or settings.cpus))

    def open_slurm(listener: Listener) -> Executor:
        executor = SlurmExecutor(
            settings, worker=worker, folder=prepared.store.root, listener=listener, kind=kind
        )
        executor.check_jobs(_open_jobs(plan))
        return executor

    return plan, open_slurm


def _open_jobs(plan: Plan) -> list[Job]:
    return [job for job in plan.jobs if job.key not in plan.known]


def _build_worker_limits(prepared: PreparedRun) -> WorkerLimits:
    request, remote = prepared.request, prepared.store.remote
    return WorkerLimits(
        threads=request.threads,
        batch_tokens=request.batch_tokens,
        keep_vectors=request.keep_vectors,
        remote=None if remote is None else remote.url,
        logs_steps=bool(request.track),
    )


def _build_worker_settings(prepared: PreparedRun) -> WorkerSettings:
    """What every worker of a cluster is given; folders have their whole names there."""
    return WorkerSettings(
        cache=prepared.cache.resolve(),
        folders=(prepared.store.root.resolve(),),
        limits=_build_worker_limits(prepared),
        offline=prepared.request.offline,
    )


def _assign_memory(plan: Plan, prepared: PreparedRun, kind: str) -> Plan:
    """The plan with the main memory that its jobs take, by the size of their models' weights."""
    weights = {one.artifact.key: weight_bytes(one) for one in (*prepared.asked, *prepared.subjects)}

    def estimate_memory(job: Job) -> int:
        trains = job.kind in ("train", "finetune") and kind == "cpu"
        return estimate_job_memory(weights.get(job.model, 0), trains=trains)

    jobs = [
        job.replace_resources(memory=estimate_memory(job)) if job.resources.needs_device else job
        for job in plan.jobs
    ]
    return replace(plan, jobs=tuple(jobs))


def _assign_devices(plan: Plan, devices: int, together: int) -> Plan:
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
    works = [job.work for job in plan.jobs]
    starts |= {work.artifact.key: work.members[0] for work in works if isinstance(work, Choose)}
    return replace(plan, jobs=tuple(_assign_job_devices(job, most, starts) for job in plan.jobs))


def _assign_job_devices(job: Job, most: int, starts: Mapping[str, Artifact]) -> Job:
    """The job with its devices; a backbone that is still to be trained is as large as its own."""
    if not isinstance(job.work, Train):
        return job
    spec = job.work.spec
    backbone = spec.backbone
    # In a chain the backbone is made by an earlier training, so its own backbone is asked.
    while not backbone.folder.is_dir() and backbone.key in starts:
        backbone = starts[backbone.key]
    return job.replace_resources(devices=spec.recipe.devices(most, backbone))


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
        fit = _estimate_run_capacity(devices, runs, recipe, cache=cache, weights=weights, threads=threads)
        count = min(count, fit)
    on_cpu = all(device == "cpu" for device in devices)
    # Several processes with all cores each would wait for one another.
    spread = max(1, count_cores() // count) if on_cpu and count > 1 else None
    return _WorkerPlan(devices=tuple(d for d in devices for _ in range(count)), threads=threads or spread)


def _estimate_run_capacity(
    devices: Sequence[str],
    runs: Sequence[Job],
    recipe: TaskRecipe,
    *,
    cache: Path,
    weights: int,
    threads: int | None,
) -> int:
    free_cores = max(1, count_cores() // (threads or 1) // len(devices))
    if devices[0] == "cpu":
        import psutil

        room = psutil.virtual_memory().available * SHARE
        return min(free_cores, compute_run_capacity(room, estimate_job_memory(weights, trains=True)))
    # Each run launches its passes from one thread and their gradients from another.
    launching = free_cores // 2
    if not devices[0].startswith("cuda") or launching < 2:
        return 1
    measured = _measure_run_memory(devices[0], runs, recipe, cache)
    return 1 if measured is None else min(launching, compute_run_capacity(measured[0] * SHARE, measured[1]))


def _measure_run_memory(
    device: str, runs: Sequence[Job], recipe: TaskRecipe, cache: Path
) -> tuple[float, float] | None:
    """The free memory of a GPU and the memory of one run, in bytes, from a few steps in a new process."""
    job = recipe.build_probe_job(runs)
    if job is None:
        return None
    worker = Subprocess(device=device, cache=cache, listener=lambda _key, _event: None, limits=WorkerLimits())
    try:
        worker.start(job, {}, (device,))
        finished = None
        while finished is None:
            finished = worker.poll_worker(0.5)
    finally:
        worker.close_worker()
    if finished.failure is not None:
        return None
    import torch

    free = float(torch.cuda.mem_get_info(device)[0])
    return free, float(json.loads(finished.output["memory"])["peak_bytes"])


def _add_device_uses(uses: Iterable[DeviceUse]) -> tuple[DeviceUse, ...]:
    """The sum of the uses of each device."""
    seconds: dict[tuple[str, str], float] = {}
    for use in uses:
        seconds[use.node, use.device] = seconds.get((use.node, use.device), 0.0) + use.seconds
    return tuple(DeviceUse(node=node, device=device, seconds=s) for (node, device), s in seconds.items())
