"""In this process or one per device; how many fit.

Where jobs run: in this process, or one process for each device. Both speak the same way.

How many processes train at once on a device: as many as its memory and the cores allow.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing as mp
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import UnpicklingError
from typing import Protocol

from harness.context import Event, JobContext
from harness.errors import HarnessError
from harness.jobs import Job
from harness.provenance import cores
from harness.recipe import Recipe

LIBRARIES = ("torch", "transformers", "datasets")
"""What every worker process needs: imported while others are already at work."""

Inputs = Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a job failed, in a form that travels between processes.

    `fault` is the error itself where it is one the user can act on, so that a full disk stops
    the run and a bad row fails one task.
    """

    kind: str
    message: str
    hint: str | None = None
    traceback: str = ""
    fault: HarnessError | None = None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a job: what it made, or why it failed."""

    key: str
    output: Mapping[str, bytes] = field(default_factory=dict)
    failure: Failure | None = None


Listener = Callable[[str, Event], None]
"""Called with a job's key and what it tells."""


class Worker(Protocol):
    """One place where one job at a time runs."""

    device: str

    @property
    def free(self) -> bool:
        """Whether a job can be started."""
        ...

    def start(self, job: Job, inputs: Inputs) -> None:
        """Begin a job."""
        ...

    def poll(self, seconds: float) -> Finished | None:
        """Pass on what running jobs tell; the end of one, if it came within `seconds`."""
        ...

    def close(self) -> None:
        """Stop, whatever is running."""
        ...


def _run_job(job: Job, inputs: Inputs, context: JobContext) -> Finished:
    """Run a job to its end; an error becomes a Failure."""
    context.inputs = inputs
    try:
        return Finished(key=job.key, output=job.work.run(context))
    except HarnessError as error:
        failure = Failure(
            kind=type(error).__name__,
            message=error.message,
            hint=error.hint,
            traceback=traceback.format_exc(),
            fault=error,
        )
    except Exception as error:
        name = type(error).__name__
        failure = Failure(kind=name, message=str(error) or name, traceback=traceback.format_exc())
    return Finished(key=job.key, failure=failure)


class _InProcess:
    """Runs jobs in this process."""

    def __init__(self, *, device: str, cache: Path, listener: Listener, threads: int | None = None) -> None:
        self.device = device
        self._listener = listener
        self._current = ""
        self._finished: Finished | None = None
        self._desk = JobContext(device=device, cache=cache, emit=self._tell, threads=threads)

    @property
    def free(self) -> bool:
        """Always: a job is over when `start` returns."""
        return self._finished is None

    def start(self, job: Job, inputs: Inputs) -> None:
        """Run a job to its end."""
        self._current = job.key
        self._finished = _run_job(job, inputs, self._desk)

    def poll(self, seconds: float) -> Finished | None:
        """The end of the job that was started."""
        finished, self._finished = self._finished, None
        return finished

    def close(self) -> None:
        """Nothing is left running."""

    def _tell(self, event: Event) -> None:
        self._listener(self._current, event)


class _Subprocess:
    """Runs jobs in a process of its own, bound to one device."""

    def __init__(self, *, device: str, cache: Path, listener: Listener, threads: int | None = None) -> None:
        self.device = device
        self._listener = listener
        self._current = ""
        self._settings = (device, str(cache), threads)
        self._spawn()

    @property
    def free(self) -> bool:
        """Whether no job is running there."""
        return not self._current

    def start(self, job: Job, inputs: Inputs) -> None:
        """Send a job over."""
        self._current = job.key
        try:
            self._line.send((job, dict(inputs)))
        except OSError:  # it died while it had nothing to do
            self._spawn()
            self._line.send((job, dict(inputs)))

    def poll(self, seconds: float) -> Finished | None:
        """Pass on what came back; the end of the running job if it is among it."""
        try:
            while self._line.poll(seconds):
                report = self._line.recv()
                if isinstance(report, Finished):
                    self._current = ""
                    return report
                self._listener(self._current, report)
        except (EOFError, OSError, UnpicklingError):  # it ended, perhaps in the middle of a report
            return self._died()
        return None

    def close(self) -> None:
        """End the process."""
        self._line.close()  # one that has nothing to do ends by itself
        if not self._current:
            self._process.join(timeout=5)
        self._process.terminate()
        self._process.join()

    def _died(self) -> Finished:
        self._process.join()
        key, self._current = self._current, ""
        code = self._process.exitcode
        guess = " (out of memory?)" if code == -signal.SIGKILL else ""
        message = f"The process for {self.device} ended with code {code}{guess}."
        self._spawn()
        return Finished(key=key, failure=Failure(kind="WorkerDied", message=message))

    def _spawn(self) -> None:
        context = mp.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(*self._settings, theirs), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the line


def open_workers(
    devices: Sequence[str], *, cache: Path, listener: Listener, threads: int | None = None
) -> list[Worker]:
    """One worker for each device: a single one works in this process."""
    if len(devices) == 1:
        return [_InProcess(device=devices[0], cache=cache, listener=listener, threads=threads)]
    return [_Subprocess(device=d, cache=cache, listener=listener, threads=threads) for d in devices]


def _serve(device: str, cache: str, threads: int | None, line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to stop
    for library in LIBRARIES:
        importlib.import_module(library)
    context = JobContext(device=device, cache=Path(cache), emit=line.send, threads=threads)
    while True:
        try:
            job, inputs = line.recv()
        except EOFError:  # the driver is gone
            return
        line.send(_run_job(job, inputs, context))


SHARE = 0.9
"""Of a device's free memory, how much may be used."""

PER_WEIGHT = 6
"""Memory of a run on a CPU, in its weights: these, their gradients, two moments, and what is on the way."""

PROCESS = 2_500_000_000
"""Bytes that a process takes apart from that: its libraries, and what passes through the layers."""


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """Where processes run: a device for each, and the threads of every one."""

    devices: tuple[str, ...]
    threads: int | None


def plan_workers(
    devices: Sequence[str],
    jobs: Sequence[Job],
    recipe: Recipe | None,
    *,
    cache: Path,
    weights: int,
    asked: int | None = None,
    threads: int | None = None,
) -> WorkerPlan:
    """The processes for a plan.

    On a CPU several runs with few threads each take less time than one after the other with all of
    them: small products leave threads waiting.

    Args:
        devices: One process each, unless there are runs to train.
        jobs: That are still to be done.
        recipe: Which measures the memory of a run on a GPU.
        cache: For what that prepares.
        weights: Bytes of the largest backbone.
        asked: Processes for each device, where a user says so.
        threads: Of each process, where a user says so.
    """
    runs = [job for job in jobs if job.kind == "train"]
    if not runs or recipe is None:
        return WorkerPlan(devices=tuple(devices), threads=threads)
    each = -(-len(runs) // len(devices))
    count = asked or min(each, _fitting(devices, runs, recipe, cache=cache, weights=weights, threads=threads))
    on_cpu = all(device == "cpu" for device in devices)
    spread = max(1, cores() // count) if on_cpu and count > 1 else None
    return WorkerPlan(devices=tuple(d for d in devices for _ in range(count)), threads=threads or spread)


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
    """How many fit into the room there is, at least one.

    >>> fit(80e9, 12e9, most=16), fit(80e9, 12e9, most=4), fit(8e9, 12e9, most=4)
    (6, 4, 1)
    """
    return max(1, min(most, int(room // need)))


def _measured(device: str, runs: Sequence[Job], recipe: Recipe, cache: Path) -> tuple[float, float] | None:
    """The free memory of a GPU and what one run takes, from a few steps in a process of its own."""
    job = recipe.probe(runs)
    if job is None:
        return None
    worker = _Subprocess(device=device, cache=cache, listener=lambda _key, _event: None)
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
