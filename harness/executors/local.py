"""The executor of one machine and its devices: jobs run in this process, or in processes of their own.

Beside devices other than the CPU there may be CPU workers: processes that collect texts and score, while the
workers of the devices encode. What needs the model there is handed on to one of those.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import multiprocessing as mp
import os
import re
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import UnpicklingError

from harness.core.errors import UsageError
from harness.core.provenance import (
    UNGUARDED,
    WORKER_NAME,
    forbid_network,
    hold_collector,
    set_variable,
    shorten_exit,
)
from harness.executors.executor import Cause, Failure, Finished, Inputs, Listener, fail_job
from harness.executors.run_log import Node
from harness.jobs.context import DeviceNeeded, Event, JobContext, WorkerLimits
from harness.jobs.jobs import Job
from harness.training.training import PATIENCE


def check_devices(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The same devices, after a check that this machine has each of them.

    Raises:
        UsageError: This machine lacks one of them.
    """
    import torch

    device_names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        device_names.append("mps")
    for name in devices:
        # "cuda" without a number is the first GPU.
        if name not in device_names and f"{name}:0" not in device_names:
            raise UsageError(
                f"This machine has no device {name!r}.", hint=f"There is: {', '.join(device_names)}."
            )
    return devices


def choose_device(name: str) -> str:
    """The device that a user named, or where the name is empty a GPU, or else the CPU.

    Raises:
        UsageError: This machine has no such device, or several are named.
    """
    if "," in name:
        raise UsageError(
            f"--devices is {name!r}: this command works on one device.", hint="Name one of them."
        )
    return check_devices((name,))[0] if name else default_devices()[0]


def default_devices() -> tuple[str, ...]:
    """Every GPU of this machine, or the CPU."""
    import torch

    if torch.cuda.is_available():
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu",)


LIBRARIES = ("torch", "transformers", "datasets")
"""The libraries that every worker process imports when it starts."""

LAST_CHECKPOINT = PATIENCE + 10
"""Seconds that a process has to end a training, which writes a checkpoint before."""


AHEAD = 4
"""The encodings for each device whose texts are collected ahead, or about to be."""


class _InProcess:
    """A worker in this process, whose job runs when its end is asked for."""

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
        self._next: tuple[Job, Inputs, tuple[str, ...]] | None = None
        self._context = JobContext(device=device, cache=cache, emit=self._tell, limits=limits)

    @property
    def waits_on(self) -> None:
        """The connection on which news of the running job come: none, as it is over at once."""

    @property
    def free(self) -> bool:
        """Whether no job waits to be run."""
        return self._next is None

    def start(self, job: Job, inputs: Inputs, devices: tuple[str, ...]) -> None:
        """Begin a job, which may use these devices."""
        self._next = (job, inputs, devices)

    def forget(self) -> None:
        """Give back the memory of the loaded model; no job is running."""
        self._context.forget()

    def poll_worker(self, seconds: float) -> Finished | None:
        """Run the job to its end."""
        if self._next is None:
            return None
        try:
            return run_job(*self._next, self._context)
        finally:
            self._next = None

    def reset_worker(self) -> None:
        """Stop the running job, and be free."""
        self._next = None

    def close_worker(self) -> None:
        """Do nothing, since no job is left running."""

    def _tell(self, event: Event) -> None:
        assert self._next is not None
        self._listener(self._next[0].key, event)


class Subprocess:
    """A worker in a process of its own, bound to one device.

    The process imports `libraries` when it starts; with `offline` the network is forbidden to it, and without
    `has_device` it loads no model.
    """

    def __init__(
        self,
        *,
        device: str,
        cache: Path,
        listener: Listener,
        limits: WorkerLimits,
        libraries: Sequence[str] = LIBRARIES,
        offline: bool = False,
        has_device: bool = True,
    ) -> None:
        self.device = device
        self._listener = listener
        self._current = ""
        self._has_device = has_device
        self._settings = (device, cache, limits, tuple(libraries), offline, has_device)
        self._patience = 5.0
        self._spawn()

    @property
    def waits_on(self) -> Connection:
        """The pipe to the process."""
        return self._line

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

    def poll_worker(self, seconds: float) -> Finished | None:
        """Pass on events; returns the end of the running job, if it came within `seconds`."""
        try:
            while self._line.poll(seconds):
                report = self._line.recv()
                if isinstance(report, Finished):
                    self._current = ""
                    return report
                self._listener(self._current, report)
        except (EOFError, OSError, UnpicklingError):  # the process ended, perhaps during a report
            return self._fail_dead_process()
        return None

    def reset_worker(self) -> None:
        """End the process, and start another."""
        self.close_worker()
        self._current = ""
        self._spawn()

    def terminate_process(self) -> None:
        """Ask the process to end, without waiting for that."""
        self._process.terminate()

    def close_worker(self) -> None:
        """End the process."""
        self._line.close()  # an idle process then ends by itself
        if not self._current:
            self._process.join(timeout=5)
        # SIGTERM first, on which a training writes a checkpoint; SIGKILL for a process that does not react.
        self._process.terminate()
        self._process.join(timeout=self._patience)
        self._process.kill()
        self._process.join()

    def _fail_dead_process(self) -> Finished:
        code = self._exit_code()
        key, self._current = self._current, ""
        # The kernel's out-of-memory killer sends SIGKILL; the process itself cannot say so any more.
        guess = " (out of memory?)" if code == -signal.SIGKILL else ""
        message = f"The process for {self.device} ended with code {code}{guess}."
        self._spawn()
        killed: Cause = "memory" if self._has_device else "worker"
        cause: Cause = killed if guess else "job"
        return Finished(key=key, failure=Failure(kind="WorkerDied", message=message, cause=cause))

    def _exit_code(self) -> int | None:
        self._process.join()
        if self._process.exitcode == UNGUARDED:
            raise _build_guard_error() from None
        return self._process.exitcode

    def _spawn(self) -> None:
        if not has_guard():
            raise _build_guard_error()
        # CUDA cannot be used in a forked process, and threads of libraries do not survive a fork.
        context = mp.get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(*self._settings, theirs), name=WORKER_NAME, daemon=True
        )
        with contextlib.ExitStack() as undo:
            if not self._has_device:
                # Read when libraries are loaded, which the user's script may do before `_serve` begins:
                # processes with all cores each would wait for one another, and code that scores would use a
                # GPU that it finds.
                set_variable(undo, "OMP_NUM_THREADS", str(self._settings[2].threads))
                set_variable(undo, "CUDA_VISIBLE_DEVICES", "")
            self._process.start()
        theirs.close()  # so that the end of the process closes the pipe


_Worker = _InProcess | Subprocess


def has_guard(*, strict: bool = False) -> bool:
    """Whether the user's script has a main guard: each worker process imports it, and would run it again.

    Any mention of the name counts, so that unusual guards pass; what passes without one is caught by
    `end_repetition`. With `strict` only the usual form counts, and no script at all.
    """
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", None)
    # A script from standard input has this for its file, which a worker process would look for in vain.
    if script == "<stdin>":
        del main.__file__
        script = None
    try:
        pattern = r"^if\s+__name__\s*==" if strict else "__name__"
        return script is None or bool(re.search(pattern, Path(script).read_text(encoding="utf-8"), re.M))
    except (OSError, ValueError):  # no Python source: a program, an archive
        return not strict


def _build_guard_error() -> UsageError:
    script = getattr(sys.modules["__main__"], "__file__", "the script")
    return UsageError(
        f"{script} has no main guard: each worker process imports it, and would run it again.",
        hint='Put its calls below `if __name__ == "__main__":`, or ask for one process: '
        "one device and workers=1.",
    )


def _serve(
    device: str,
    cache: Path,
    limits: WorkerLimits,
    libraries: Sequence[str],
    offline: bool,
    has_device: bool,
    line: Connection,
) -> None:
    codes: list[int] = []
    shorten_exit(codes)
    for number in (signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # the driver, or a scheduler's worker, decides when to stop

    def exit_worker(*_: object) -> None:
        # So that what it shares with the driver is cleaned up.
        codes.append(0)
        sys.exit()

    signal.signal(signal.SIGTERM, exit_worker)
    _end_with_parent()
    with hold_collector():
        for library in libraries:
            importlib.import_module(library)
    # They stay to the end: each search for garbage would look through them.
    gc.freeze()
    if offline:
        forbid_network()
    context = JobContext(device=device, cache=cache, emit=line.send, limits=limits, has_device=has_device)
    # Without a model to load nothing else sets them, and the user's script may have asked for others.
    if not has_device and "torch" in sys.modules:
        context.set_threads()
    while True:
        try:
            message = line.recv()
        except EOFError:  # the driver is gone
            break
        if message is None:
            context.forget()
            continue
        job, inputs, devices = message
        finished = run_job(job, inputs, devices, context)
        try:
            line.send(finished)
        except BrokenPipeError:  # the driver is gone, and its user has been told
            break
    codes.append(0)


def _end_with_parent() -> None:
    """End when the process that started this one is gone, in the middle of a job as well.

    A training is asked to stop first, so that it writes a checkpoint.
    """
    parent = mp.parent_process()
    assert parent is not None

    def wait() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(LAST_CHECKPOINT)
        # sys.exit would end this thread only.
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


@dataclass(frozen=True, kw_only=True)
class CpuWorkers:
    """The processes beside devices: how many, the threads of each, the libraries that they import first."""

    count: int = 0
    threads: int = 1
    libraries: Sequence[str] = LIBRARIES


class LocalExecutor:
    """Workers of this machine: a single one runs in this process, several in one process each.

    Such a process imports `libraries` when it starts, and with `offline` the network is forbidden to it.
    There may be CPU workers beside those of the devices, which have processes of their own then.

    Attributes:
        name: The devices, for the user.
    """

    def __init__(
        self,
        devices: Sequence[str],
        *,
        cache: Path,
        listener: Listener,
        limits: WorkerLimits,
        libraries: Sequence[str] = LIBRARIES,
        offline: bool = False,
        cpu_workers: CpuWorkers | None = None,
    ) -> None:
        spawn = functools.partial(Subprocess, cache=cache, listener=listener, offline=offline)
        beside = cpu_workers or CpuWorkers()
        self.name = f"local: {','.join(dict.fromkeys(devices))}"
        self._devices = tuple(dict.fromkeys(devices))
        # First, so that they import libraries while this process goes on.
        self._cpu_workers = [
            spawn(
                device="cpu",
                limits=replace(limits, threads=beside.threads),
                libraries=beside.libraries,
                has_device=False,
            )
            for _ in range(beside.count)
        ]
        self._workers: list[_Worker] = (
            [_InProcess(device=devices[0], cache=cache, listener=listener, limits=limits)]
            if len(devices) == 1 and not self._cpu_workers
            else [spawn(device=device, limits=limits, libraries=libraries) for device in devices]
        )
        self.nodes: tuple[Node, ...] = ()
        self._listener = listener
        self._running: dict[str, tuple[_Worker, Job, Inputs]] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        # The jobs that wait for a CPU worker, and those that wait for a device.
        self._ready: deque[tuple[Job, Inputs]] = deque()
        self._waiting: deque[tuple[Job, Inputs]] = deque()

    def has_room(self, job: Job) -> bool:
        """Whether a worker is free for a job, and no other waits for devices: while one does, it takes them.

        Encodings have room behind any number of scores: without one in sight a device takes another model.
        """
        prepared = [job for worker, job, _ in self._running.values() if worker in self._cpu_workers]
        coming = sum(job.kind == "encode" for job in (*prepared, *(job for job, _ in self._ready)))
        if self._is_for_cpu(job) and job.kind == "encode":
            return coming + len(self._waiting) < AHEAD * len(self._workers)
        if self._is_for_cpu(job):
            return len(self._ready) < len(self._cpu_workers)
        # Encodings that are to be prepared come first: another job would load another model before them.
        return len(self._list_free_workers()) > coming and not self._waiting

    def submit(self, job: Job, inputs: Inputs) -> None:
        """Begin a job on a free worker, or once as many devices are idle as it needs for itself."""
        (self._ready if self._is_for_cpu(job) else self._waiting).append((job, inputs))
        self._begin_waiting()

    def _is_for_cpu(self, job: Job) -> bool:
        return bool(self._cpu_workers) and job.resources.begins_on_cpu

    def _begin_waiting(self) -> None:
        for worker in self._cpu_workers:
            if self._ready and worker.free:
                self._begin(*self._ready.popleft(), worker, ())
        while self._waiting and (choice := self._choose_worker(self._waiting[0][0])) is not None:
            self._begin(*self._waiting.popleft(), *choice)

    def _begin(self, job: Job, inputs: Inputs, worker: _Worker, devices: tuple[str, ...]) -> None:
        self._running[job.key] = (worker, job, inputs)
        if job.resources.devices:
            self._held[job.key] = devices
            # The job has these devices for itself: models that other workers left there take memory.
            for other in self._workers:
                if other.device in devices and other is not worker:
                    other.forget()
        # An encoding without a device is only being prepared, and has not begun.
        if devices or job.kind != "encode":
            self._listener(job.key, Event(kind="placed", text=socket.gethostname(), devices=devices))
        worker.start(job, inputs, devices)

    def poll_jobs(self, seconds: float) -> list[Finished]:
        """Pass on events; gives the jobs that ended. It waits for `seconds` if none has."""
        # Nothing can end; without the pause the driver would turn in circles.
        if not self._running:
            time.sleep(seconds)
        workers = [worker for worker, _, _ in self._running.values()]
        # A worker in this process has no line: its job runs in poll_worker, so there is nothing to wait for.
        if lines := [worker.waits_on for worker in workers if worker.waits_on is not None]:
            connection.wait(lines, seconds)
        ended = []
        for worker in workers:
            finished = worker.poll_worker(0)
            if finished is None:
                continue
            self._held.pop(finished.key, None)
            _, _, inputs = self._running.pop(finished.key)
            if finished.rest is None:
                ended.append(finished)
            else:
                self._waiting.append((finished.rest, inputs))
        self._begin_waiting()
        return ended

    def cancel_job(self, key: str) -> None:
        """End the process of a job, and begin another in its place."""
        for queue in (self._ready, self._waiting):
            for entry in [entry for entry in queue if entry[0].key == key]:
                queue.remove(entry)
                return
        worker, _, _ = self._running.pop(key)
        self._held.pop(key, None)
        worker.reset_worker()

    def close_executor(self) -> None:
        """Stop every worker, even if jobs are running."""
        # Also while they import libraries, which an idle process would do to the end.
        for process in self._cpu_workers:
            process.terminate_process()
        workers = (*self._cpu_workers, *self._workers)
        # All at once: each may take seconds to end.
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(lambda worker: worker.close_worker(), workers))

    def _list_free_workers(self) -> list[_Worker]:
        """The workers without a job whose devices no job has for itself."""
        held = {device for devices in self._held.values() for device in devices}
        return [worker for worker in self._workers if worker.free and worker.device not in held]

    def _choose_worker(self, job: Job) -> tuple[_Worker, tuple[str, ...]] | None:
        """The worker and the devices for a job; None while there are too few."""
        free, needed = self._list_free_workers(), job.resources.devices
        if not free:
            return None
        worker = free[0]
        if not needed:
            return worker, (worker.device,)
        busy = {other.device for other in self._workers if other not in free}
        idle = [device for device in self._devices if device not in busy]
        if worker.device not in idle or len(idle) < needed:
            return None
        others = [device for device in idle if device != worker.device]
        return worker, (worker.device, *others[: needed - 1])


def run_job(job: Job, inputs: Inputs, devices: tuple[str, ...], context: JobContext) -> Finished:
    """Run a job to its end in this process; an error becomes a Failure.

    Args:
        job: The job.
        inputs: The outputs of the jobs that it needs.
        devices: The devices that it may use.
        context: The context of this process, with the loaded model.
    """
    context.start_job(inputs, devices, halvings=job.halvings)
    try:
        return Finished(key=job.key, output=job.work.run(context))
    except DeviceNeeded as need:
        return Finished(key=job.key, rest=replace(job, work=need.work or job.work))
    # Not BaseException: SystemExit, by which a worker is stopped, must end the process.
    except Exception as error:
        return fail_job(job.key, error)
