"""The execution of a request: preparation, the number of worker processes, the run, and its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.arguments import checked, checked_fields
from harness.encoder.model_files import weight_files
from harness.errors import UsageError
from harness.execute import Driver, Listeners
from harness.jobs import Job
from harness.plan import Plan
from harness.provenance import cores
from harness.recipe import Recipe
from harness.report import Report
from harness.request import PreparedRun, Request, ResolvedRequest, check_devices
from harness.store import Store
from harness.types import Settings
from harness.workers import Subprocess, end_repetition


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


def prepare(request: Request) -> PreparedRun:
    """The resolved request with its plan; nothing is encoded. It ends a worker that runs a script again.

    Raises:
        UsageError: A name, a setting or a record cannot be used.
    """
    end_repetition()
    found = ResolvedRequest.of(request)
    request = found.request
    store = Store(found.results)
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
    )


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
    request = prepared.request
    plan = prepared.plan
    places = _WorkerPlan(devices=("cpu",), threads=request.threads)
    if plan.jobs:
        places = _plan_workers(
            check_devices(prepared.devices),
            [job for job in plan.jobs if job.key not in plan.known],
            prepared.recipe,
            cache=prepared.cache,
            weights=max(_weight_bytes(one.artifact.folder) for one in prepared.subjects),
            asked=request.workers,
            threads=request.threads,
        )
    running = Driver(
        plan,
        store=prepared.store,
        cache=prepared.cache,
        devices=places.devices,
        listeners=listeners,
        fail_fast=request.fail_fast,
        again=request.force,
        threads=places.threads,
        budget=request.budget,
    )
    results = running.run()
    return Report(
        prepared=prepared,
        results=results,
        texts_encoded=running.texts_encoded,
        tokens_encoded=running.tokens_encoded,
    )


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in weight_files(folder))


SHARE = 0.9
"""The share of a device's free memory that may be used."""

PER_WEIGHT = 6
"""A CPU run's memory in units of its weights: weights, gradients, two moments, and temporary values."""

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
    recipe: Recipe | None,
    *,
    cache: Path,
    weights: int,
    asked: int | None = None,
    threads: int | None = None,
) -> _WorkerPlan:
    """The worker processes for a plan; on a CPU, several runs with few threads each take less time in all."""
    runs = [job for job in jobs if job.kind == "train"]
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
    recipe: Recipe,
    *,
    cache: Path,
    weights: int,
    threads: int | None,
) -> int:
    free_cores = max(1, cores() // (threads or 1) // len(devices))
    if devices[0] == "cpu":
        import psutil

        room = psutil.virtual_memory().available * SHARE
        return _fit(room, PER_WEIGHT * weights + PROCESS, most=free_cores)
    if not devices[0].startswith("cuda") or free_cores == 1:
        return 1
    measured = _measured(devices[0], runs, recipe, cache)
    return 1 if measured is None else _fit(measured[0] * SHARE, measured[1], most=free_cores)


def _fit(room: float, need: float, *, most: int) -> int:
    """The number of runs that fit into the memory, at least one.

    >>> _fit(80e9, 12e9, most=16), _fit(80e9, 12e9, most=4), _fit(8e9, 12e9, most=4)
    (6, 4, 1)
    """
    return max(1, min(most, int(room // need)))


def _measured(device: str, runs: Sequence[Job], recipe: Recipe, cache: Path) -> tuple[float, float] | None:
    """The free memory of a GPU and the memory of one run, in bytes, from a few steps in a new process."""
    job = recipe.probe(runs)
    if job is None:
        return None
    worker = Subprocess(device=device, cache=cache, listener=lambda _key, _event: None)
    try:
        worker.start(job, {})
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
