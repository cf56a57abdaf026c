"""The workers that run jobs: in this process, or in one process for each device, with the same interface."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing as mp
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import UnpicklingError
from typing import Protocol

from harness.context import Event, JobContext, WorkerLimits
from harness.errors import HarnessError, UsageError
from harness.jobs import Job
from harness.training import PATIENCE

LIBRARIES = ("torch", "transformers", "datasets")
"""The libraries that every worker process imports when it starts."""

NAME = "harness-worker"
"""The name of every worker process."""

UNGUARDED = 113
"""The exit code of a worker process that found itself repeating its user's script."""

LAST_CHECKPOINT = PATIENCE + 10
"""Seconds that a process has to end a training, which writes a checkpoint before."""

Inputs = Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The reason why a job failed, in a form that can be sent between processes.

    `fault` is an error that the user can act on: a full disk stops the run, a bad row fails one task.
    """

    kind: str
    message: str
    hint: str | None = None
    traceback: str = ""
    fault: HarnessError | None = None

    @staticmethod
    def of(problem: HarnessError) -> Failure:
        """An error found while planning, as the failure of a job."""
        return Failure(kind=type(problem).__name__, message=problem.message, hint=problem.hint, fault=problem)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a job: its output, or its failure."""

    key: str
    output: Mapping[str, bytes] = field(default_factory=dict)
    failure: Failure | None = None


Listener = Callable[[str, Event], None]
"""A callback with a job's key and an event."""


class Worker(Protocol):
    """A worker, which runs one job at a time."""

    device: str

    @property
    def free(self) -> bool:
        """Whether a job can be started."""
        ...

    def start(self, job: Job, inputs: Inputs, devices: tuple[str, ...]) -> None:
        """Begin a job, which may use these devices."""
        ...

    def forget(self) -> None:
        """Give back the memory of the loaded model; no job is running."""
        ...

    def poll(self, seconds: float) -> Finished | None:
        """Pass on the events of the running job; returns its end, if it came within `seconds`."""
        ...

    def close(self) -> None:
        """Stop, even if a job is running."""
        ...


def _run_job(job: Job, inputs: Inputs, devices: tuple[str, ...], context: JobContext) -> Finished:
    """Run a job to its end; an error becomes a Failure."""
    context.inputs, context.devices = inputs, devices
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
    """A worker in this process."""

    def __init__(
        self,
        *,
        device: str,
        cache: Path,
        listener: Listener,
        limits: WorkerLimits,
    ) -> None:
        self.device = device
        self._listener = listener
        self._current = ""
        self._finished: Finished | None = None
        self._context = JobContext(device=device, cache=cache, emit=self._tell, limits=limits)

    @property
    def free(self) -> bool:
        """Whether the last result was fetched: a job is over when `start` returns."""
        return self._finished is None

    def start(self, job: Job, inputs: Inputs, devices: tuple[str, ...]) -> None:
        self._current = job.key
        self._finished = _run_job(job, inputs, devices, self._context)

    def forget(self) -> None:
        self._context.forget()

    def poll(self, seconds: float) -> Finished | None:
        finished, self._finished = self._finished, None
        return finished

    def close(self) -> None:
        """Do nothing, since no job is left running."""

    def _tell(self, event: Event) -> None:
        self._listener(self._current, event)


class Subprocess:
    """A worker in a process of its own, bound to one device."""

    def __init__(
        self,
        *,
        device: str,
        cache: Path,
        listener: Listener,
        limits: WorkerLimits,
    ) -> None:
        self.device = device
        self._listener = listener
        self._current = ""
        self._settings = (device, cache, limits)
        self._patience = 5.0
        self._spawn()

    @property
    def free(self) -> bool:
        """Whether no job is running."""
        return not self._current

    def start(self, job: Job, inputs: Inputs, devices: tuple[str, ...]) -> None:
        """Send a job to the process."""
        self._current, self._patience = job.key, LAST_CHECKPOINT if job.kind == "train" else 5.0
        try:
            self._line.send((job, dict(inputs), devices))
        except OSError:  # the process died while it was idle
            self._exit_code()
            self._spawn()
            self._line.send((job, dict(inputs), devices))

    def forget(self) -> None:
        """Have the process give back the memory of its model."""
        with contextlib.suppress(OSError):  # the process died while it was idle
            self._line.send(None)

    def poll(self, seconds: float) -> Finished | None:
        """Pass on events; returns the end of the running job, if it came within `seconds`."""
        try:
            while self._line.poll(seconds):
                report = self._line.recv()
                if isinstance(report, Finished):
                    self._current = ""
                    return report
                self._listener(self._current, report)
        except (EOFError, OSError, UnpicklingError):  # the process ended, perhaps during a report
            return self._died()
        return None

    def close(self) -> None:
        """End the process."""
        self._line.close()  # an idle process then ends by itself
        if not self._current:
            self._process.join(timeout=5)
        self._process.terminate()
        self._process.join(timeout=self._patience)
        self._process.kill()
        self._process.join()

    def _died(self) -> Finished:
        code = self._exit_code()
        key, self._current = self._current, ""
        guess = " (out of memory?)" if code == -signal.SIGKILL else ""
        message = f"The process for {self.device} ended with code {code}{guess}."
        self._spawn()
        return Finished(key=key, failure=Failure(kind="WorkerDied", message=message))

    def _exit_code(self) -> int | None:
        self._process.join()
        if self._process.exitcode == UNGUARDED:
            raise _unguarded(str(getattr(sys.modules["__main__"], "__file__", "the script"))) from None
        return self._process.exitcode

    def _spawn(self) -> None:
        _require_guard()
        context = mp.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(*self._settings, theirs), name=NAME, daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process closes the pipe


def _require_guard() -> None:
    """Refuse a script without a main guard: each worker process imports it, which would run it again."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    try:
        guarded = script is None or "__name__" in Path(script).read_text(encoding="utf-8")
    except (OSError, ValueError):  # no Python source: a program, an archive
        return
    if not guarded:
        raise _unguarded(str(script))


def _unguarded(script: str) -> UsageError:
    return UsageError(
        f"{script} has no main guard: each worker process imports it, and would run it again.",
        hint='Put its calls below `if __name__ == "__main__":`, or ask for one process: '
        "one device and workers=1.",
    )


def end_repetition() -> None:
    """End this process if it is a worker that runs its user's script again; its driver says why."""
    if mp.current_process().name == NAME:
        os._exit(UNGUARDED)  # silently: whatever the script has written is written twice


def open_workers(
    devices: Sequence[str],
    *,
    cache: Path,
    listener: Listener,
    limits: WorkerLimits,
) -> list[Worker]:
    """A worker for each device; a single device has its worker in this process."""
    kind = _InProcess if len(devices) == 1 else Subprocess
    return [kind(device=d, cache=cache, listener=listener, limits=limits) for d in devices]


def _serve(device: str, cache: Path, limits: WorkerLimits, line: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to stop
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit()
    )  # so that what it shares with the driver is cleaned up
    for library in LIBRARIES:
        importlib.import_module(library)
    context = JobContext(device=device, cache=cache, emit=line.send, limits=limits)
    while True:
        try:
            message = line.recv()
        except EOFError:  # the driver is gone
            return
        if message is None:
            context.forget()
            continue
        job, inputs, devices = message
        line.send(_run_job(job, inputs, devices, context))
