"""A worker on another machine: its settings, the process that runs jobs, and how Slurm and Ray start it.

The driver's versions travel with the settings, and a worker of other versions refuses. Vectors are written
where they are made; everything else goes back to the driver, the only one that writes records.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pickle
import platform
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import Requirement

from harness.core import files
from harness.core.errors import HarnessError, StoreError, UsageError
from harness.data.locate import format_size
from harness.executors.executor import SLURM, Failure, Finished, Inputs, fail_job, run_job
from harness.executors.local import LIBRARIES, Subprocess, read_host_name
from harness.executors.run_log import format_count
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Job
from harness.storage.remote import Remote

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

PROJECT = "encoder-harness"
PACKAGES = ("harness", "finetune", "suites")
"""The packages whose source must be the same on every machine."""

SOURCE = "source of this project"


@cache
def collect_environment() -> Mapping[str, str]:
    """Everything here that must be the same on all machines of a run: versions, and our own source.

    Returns:
        Python's version (3.x), the version of each library that the project names, and the start of the
        SHA-256 of the project's Python files.
    """
    requirements = (Requirement(text) for text in importlib.metadata.requires(PROJECT) or ())
    # Only what every installation has: the extras of machines may differ, but for the one that searches.
    libraries = {r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})}
    versions = {name: _read_package_version(name) for name in sorted({*libraries, "pylate"})}
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **versions, SOURCE: _hash_source()}


def _read_package_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not there"


def _hash_source() -> str:
    # The version alone is not enough: two commits of one version can give different scores.
    source_hash = hashlib.sha256()
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        root = Path(spec.submodule_search_locations[0])
        for path in sorted(root.rglob("*.py")):
            source_hash.update(f"{package}/{path.relative_to(root)}\n".encode())
            source_hash.update(path.read_bytes())
    return source_hash.hexdigest()[:12]


def _compare_environment(driver: Mapping[str, str]) -> str:
    """What differs here from the driver's environment, as a sentence; empty where nothing does."""
    mine = collect_environment()
    names = [*driver, *(name for name in mine if name not in driver)]
    differences = [
        f"{name} {mine.get(name, 'not there')} instead of {driver.get(name, 'not there')}"
        for name in names
        if mine.get(name) != driver.get(name)
    ]
    if not differences:
        return ""
    return f"{read_host_name()} has another environment than the driver: {'; '.join(differences)}."


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker on another machine is given when it starts.

    Attributes:
        cache: The cache folder, which exists or can be created.
        folders: Folders that must exist and be writable on its machine, e.g. the results folder.
        limits: What it may use.
        environment: The driver's environment.
        libraries: The libraries that its process imports when it starts.
        offline: Whether the network is forbidden to its process.
        directory: The driver's working directory, where relative names begin; it is entered where it exists.
    """

    cache: Path
    folders: tuple[Path, ...] = ()
    limits: WorkerLimits = field(default_factory=WorkerLimits)
    environment: Mapping[str, str] = field(default_factory=collect_environment)
    libraries: tuple[str, ...] = LIBRARIES
    offline: bool = False
    directory: Path = field(default_factory=Path.cwd)

    def enter(self) -> None:
        """Enter the driver's working directory, where this machine has it."""
        with contextlib.suppress(OSError):
            os.chdir(self.directory)

    def explain_refusal(self) -> str:
        """Why this machine cannot run jobs for the driver; empty where it can."""
        here = read_host_name()
        if other := _compare_environment(self.environment):
            return other
        for folder in self.folders:
            # With object storage the folders need not be shared; each machine makes its own.
            if not folder.is_dir() and self.limits.remote is None:
                return f"{here} does not see {folder}."
        try:
            for folder in (self.cache, *self.folders):
                files.require_writable(folder)
        except HarnessError as error:
            return f"{here}: {error.message}"
        return ""


def build_refusal_error(reason: str) -> UsageError:
    """The error of a run whose workers cannot work."""
    return UsageError(
        reason,
        hint="Every machine needs the same installation (requirements/cluster.txt, the same commit), and "
        "must see and be able to write the results folder and the cache (docs/cluster.md).",
    )


_COUNTS = ("encoded", "ranked", "trained")
"""The kinds of events that can be added up."""


def merge_events(events: Sequence[tuple[str, Event]]) -> tuple[tuple[str, Event], ...]:
    """Events with counts that follow each other as one."""
    # Every batch is an event, and each event would be a message, or a line in a file, on its way here.
    merged_events: list[tuple[str, Event]] = []
    for key, event in events:
        last = merged_events[-1] if merged_events else None
        if last and last[0] == key and last[1].kind == event.kind and event.kind in _COUNTS:
            last_event = last[1]
            added = {
                name: getattr(last_event, name) + getattr(event, name)
                for name in ("texts", "tokens", "steps")
            }
            merged_events[-1] = (
                key,
                replace(
                    last_event,
                    **added,
                    seconds=last_event.seconds + event.seconds,
                    log=[*last_event.log, *event.log],
                ),
            )
        else:
            merged_events.append((key, event))
    return tuple(merged_events)


class _NodeWorker:
    """A worker process for jobs that come from a driver on another machine, one job at a time.

    Attributes:
        kept: Whether the job has left vectors in the cache, from which it goes on if it is started again.
    """

    def __init__(self, settings: WorkerSettings, devices: tuple[str, ...]) -> None:
        self._settings = settings
        self._devices = devices
        self.kept = False
        self._events: list[tuple[str, Event]] = []
        self._unsent: Finished | None = None
        remote = settings.limits.remote
        self._remote = None if remote is None else Remote(remote)
        self._process = Subprocess(
            device=devices[0],
            cache=settings.cache,
            listener=self._receive_event,
            limits=settings.limits,
            libraries=settings.libraries,
            offline=settings.offline,
        )

    @property
    def free(self) -> bool:
        """Whether no job is running."""
        return self._process.free and self._unsent is None

    def start(self, job: Job, inputs: Inputs) -> None:
        """Begin a job on as many devices as it needs; one that cannot be sent to the process has failed."""
        try:
            self.kept = False
            self._process.start(job, inputs, self._devices[: max(1, job.resources.devices)])
        except Exception as error:
            # The process has been marked as busy with this job; only a new one is free again.
            self.stop_job()
            self._unsent = fail_job(job.key, error)

    def poll_updates(self, seconds: float) -> tuple[Sequence[tuple[str, Event]], Finished | None]:
        """The events of the running job in order, and its end, after `seconds` at the latest."""
        finished, self._unsent = self._unsent, None
        if not self._process.free:
            finished = self._process.poll_worker(seconds)
        events, self._events = merge_events(self._events), []
        return events, finished

    def stop_job(self) -> None:
        """Stop the running job; a training writes a checkpoint before."""
        self._process.reset_worker()

    def close_worker(self) -> None:
        """End the process, even if a job is running."""
        self._process.close_worker()

    def _receive_event(self, key: str, event: Event) -> None:
        if event.kind == "vectors":
            event.write_shard(self._settings.cache, self._remote)
            self.kept = True
            return
        self._events.append((key, event))


def _list_visible_devices() -> tuple[str, ...]:
    """The GPUs that a scheduler has given to this process, in torch's words; none if it has none."""
    # torch numbers the visible GPUs from 0 on, whatever their names are here (numbers, or UUIDs).
    visible_names = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = len([name for name in visible_names.split(",") if name.strip()])
    return tuple(f"cuda:{number}" for number in range(count))


def _explain_missing_devices(needed: int) -> str:
    """Why this process cannot work on so many GPUs, as a sentence; empty where it can."""
    visible_names = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = len(_list_visible_devices())
    if count >= needed:
        return ""
    few = f"{count} of {needed} GPUs"
    return f"{read_host_name()} gave a worker {few} (CUDA_VISIBLE_DEVICES={visible_names})."


# A task of Slurm's arrays

WHOLE = 0.95
"""The part of a task's time in which a job must have run to count as too long for any task."""


@dataclass(kw_only=True)
class JobGroup:
    """The task of a Slurm array, which submitit runs and may queue again: jobs of one model, one by one.

    The end of each job is a file in the driver's folder (harness.executors.slurm). On the signal before a
    preemption or the end of its time it stops its job, which a training answers with a checkpoint.

    Attributes:
        name: The name of its log.
        folder: The driver's folder.
        jobs: Each job with its inputs, pickled, by key.
        settings: What its processes are given.
        kind: Whether its jobs run on GPUs.
        gpus: The GPUs that it was promised.
        minutes: Its time.
        warning: The seconds before the end of its time at which it is told.
    """

    name: str
    folder: Path
    jobs: dict[str, bytes]
    settings: WorkerSettings
    kind: Literal["cpu", "cuda"]
    gpus: int
    minutes: float
    warning: float
    _worker: _NodeWorker | None = field(default=None, init=False, repr=False)
    _current: Job | None = field(default=None, init=False, repr=False)
    _ended: int = field(default=0, init=False, repr=False)
    _began: float = field(default=0.0, init=False, repr=False)
    _requeued: bool = field(default=False, init=False, repr=False)

    def __call__(self) -> str:
        """Run the jobs that have not ended; returns the reason of the end."""
        self._began = time.monotonic()
        if os.environ.get("SUBMITIT_EXECUTOR") == SLURM:  # submitit lets it pass; scancel sends it
            signal.signal(signal.SIGTERM, _exit)
        devices = ("cpu",) if self.kind == "cpu" else _list_visible_devices()
        shown = f"{len(devices)} GPUs" if self.kind == "cuda" else "CPU"
        self._say("start", text=read_host_name(), devices=shown)
        needed = max(1, self.gpus) if self.kind == "cuda" else 0
        if reason := _explain_missing_devices(needed) or self.settings.explain_refusal():
            self._say("refusal", text=reason)
            return reason
        try:
            self._worker = _NodeWorker(self.settings, devices)
            for key, content in self.jobs.items():
                if not (self.folder / "done" / key).exists() and not self._is_stopped(key):
                    self._run_job(key, content)
        except StoreError as error:
            self._say("full", text=error.message)
        finally:
            if self._worker is not None:
                self._worker.close_worker()
            self._say("requeued" if self._requeued else "end")
        return "done"

    def checkpoint(self) -> DelayedSubmission:
        """Stop the running job; submitit queues the task again, which goes on with the jobs that are left."""
        from submitit.helpers import DelayedSubmission

        self._requeued = True
        if self._worker is not None:
            if self._current is not None and self._is_too_long(self._current):
                self._finish(
                    Finished(
                        key=self._current.key, failure=_build_timeout_failure(self._current, self.minutes)
                    )
                )
            self._worker.close_worker()
        # A copy without the fields of this process: submitit pickles it, and a worker cannot be pickled.
        return DelayedSubmission(replace(self))

    def _is_too_long(self, job: Job) -> bool:
        """Whether a job had the whole time of this task, and would start over in every further one.

        A training goes on from its checkpoint, and an encoding with its vectors.
        """
        assert self._worker is not None
        goes_on = job.kind == "train" or self._worker.kept
        usable_seconds = 60.0 * self.minutes - self.warning
        return not goes_on and not self._ended and time.monotonic() - self._began >= WHOLE * usable_seconds

    def _run_job(self, key: str, content: bytes) -> None:
        assert self._worker is not None
        try:
            job, inputs = pickle.loads(content)
        except Exception as error:  # of classes that are not on this machine
            self._finish(fail_job(key, error))
            return
        self._current = job
        self._say("event", key=key, event=Event(kind="placed", text=read_host_name()))
        self._worker.start(job, inputs)
        next_look = time.monotonic()
        while True:
            events, finished = self._worker.poll_updates(0.2)
            for name, event in events:
                self._say("event", key=name, event=event)
            # The end is written only after the events before it, so that the driver sees them in order.
            if finished is not None:
                self._current = None
                self._finish(finished)
                return
            if time.monotonic() > next_look:
                next_look = time.monotonic() + 1.0
                if self._is_stopped(key):
                    self._worker.stop_job()
                    return

    def _is_stopped(self, key: str) -> bool:
        stop = self.folder / "stop"
        return not stop.exists() or (stop / "all").exists() or (stop / f"{self.name}-{key}").exists()

    def _finish(self, finished: Finished) -> None:
        """Write the end of a job; if its output does not fit on the disk, the failure that says so."""
        self._ended += 1
        path = self.folder / "done" / finished.key
        # Nobody waits for it where the driver has removed its folder, which would be made again.
        if not path.parent.exists():
            return
        try:
            files.write_once(path, pickle.dumps(finished))
        except StoreError as error:
            files.write_once(
                path, pickle.dumps(Finished(key=finished.key, failure=Failure.from_error(error)))
            )

    def _say(self, kind: str, *, key: str = "", event: Event | None = None, **texts: str) -> None:
        """Add a line to the log; on a full disk, or where the folder was removed, it is lost."""
        entry: dict[str, Any] = {"kind": kind, **({"key": key} if key else {}), **texts}
        if event is not None:
            usual = Event(kind=event.kind)
            names = [item.name for item in fields(Event) if item.name not in ("space", "content")]
            values = {name: getattr(event, name) for name in names}
            entry["event"] = {n: v for n, v in values.items() if n == "kind" or v != getattr(usual, n)}
        # Closed after each line: on NFS other machines see a file's new content only after a close.
        with contextlib.suppress(OSError), (self.folder / "log" / self.name).open("a") as file:
            file.write(f"\n{json.dumps(entry)}\n")  # the line feed before it ends a line that was cut off


def read_end(path: Path) -> Finished:
    """The end of a job in its file; a file that cannot be unpickled here gives a failure."""
    try:
        finished: Finished = pickle.loads(path.read_bytes())
    except Exception as error:
        return fail_job(path.name, error)
    return finished


def _exit(*_: object) -> None:
    # Not os._exit: the `finally` of the running call closes the worker and says that the task ended.
    raise SystemExit(1)


def _build_timeout_failure(job: Job, minutes: float) -> Failure:
    return Failure(
        kind="OutOfTime",
        message=f"{job.label} did not end in the {minutes:g} minutes of a worker, and would start over "
        "in the next one.",
        hint="Give workers more time: --executor slurm:minutes=N.",
    )


# An actor and a task of Ray

Answer = tuple[list[tuple[str, Event]], Finished]
"""The events of a job by its key, and its end."""


@dataclass(frozen=True)
class Shape:
    """What an actor takes on one node: GPUs or a part of one, cores, bytes of memory."""

    gpus: float
    cpus: int
    memory: int

    def __str__(self) -> str:
        gpus = [format_count(self.gpus, "GPU")] if self.gpus else []
        memory = [format_size(self.memory)] if self.memory else []
        return ", ".join([*gpus, format_count(self.cpus, "core"), *memory])

    def count_in(self, free: Mapping[str, float]) -> int:
        """How many of it there is room for."""
        every = {"GPU": self.gpus, "CPU": self.cpus, "memory": self.memory}
        # Shares are fractions: 0.3 / 0.1 is 2.99… in floating point, and must count as 3.
        return int(min(free.get(name, 0.0) / value + 1e-9 for name, value in every.items() if value))


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """The first answer of an actor.

    Attributes:
        node: The id of its node.
        host: The name of its machine.
        devices: The devices that it was given, as the machine numbers them.
        refusal: Why it cannot work; empty if it can.
    """

    node: str
    host: str
    devices: tuple[str, ...]
    refusal: str


class RayWorker:
    """The actor: it runs one job at a time, in a process of its own."""

    def __init__(
        self, environment: Mapping[str, str], settings: bytes, kind: str, devices: int, shape: Shape
    ) -> None:
        self._shape = shape
        self._lock = threading.Lock()
        self._events: list[tuple[str, Event]] = []
        self._worker: _NodeWorker | None = None
        self._stopping, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        opened = _open_worker_settings(environment, settings)
        self._refusal = _explain_missing_devices(1 if kind == "cuda" else 0)
        if isinstance(opened, str):
            self._refusal = opened
        elif not self._refusal:
            sys.modules["__main__"].__file__ = None  # or the process of jobs imports Ray's own script
            places = ("cpu",) * devices if kind == "cpu" else _list_visible_devices()
            self._worker = _NodeWorker(opened, places)

    def describe_worker(self) -> WorkerInfo:
        """Where it is, and why it cannot work."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        device_numbers = (
            os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if self._shape.gpus else ["cpu"]
        )
        devices = tuple(name if name == "cpu" else f"GPU {name}" for name in device_numbers)
        return WorkerInfo(node=node, host=read_host_name(), devices=devices, refusal=self._refusal)

    def run(self, content: bytes) -> Answer | str:
        """Run a pickled job with its inputs; gives the last events and its end, or why it cannot."""
        if self._worker is None:
            return self._refusal
        self._idle.clear()
        try:
            return self._run_job(self._worker, *pickle.loads(content))
        finally:
            self._idle.set()

    def _run_job(self, worker: _NodeWorker, job: Job, inputs: Inputs) -> Answer:
        worker.start(job, inputs)
        while not self._stopping.is_set():
            events, finished = worker.poll_updates(0.2)
            if finished is not None:
                return [*self.take_events(), *events], finished
            with self._lock:
                self._events = [*merge_events([*self._events, *events])]
        # The loop ended because of `stop`; closing the process is what makes a training write its checkpoint.
        worker.close_worker()
        return [], fail_job(job.key, RuntimeError("stopped"))

    def take_events(self) -> list[tuple[str, Event]]:
        """The events since the last call."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def stop(self) -> None:
        """End the running job and its process; a training writes a checkpoint before."""
        self._stopping.set()
        # The answer comes when the checkpoint is written: the driver kills this process after it.
        self._idle.wait()


def _open_worker_settings(environment: Mapping[str, str], settings: bytes) -> WorkerSettings | str:
    """The settings of a worker, in whose directory this process is then, or why it cannot work here.

    In another environment they might not even be read.
    """
    # First, as unpickling runs code of this installation.
    if other := _compare_environment(environment):
        return other
    worker_settings: WorkerSettings = pickle.loads(settings)
    worker_settings.enter()
    return worker_settings.explain_refusal() or worker_settings


def run_at_once(environment: Mapping[str, str], settings: bytes, content: bytes) -> Answer | str:
    """Run a short job that needs no device, as a task of Ray.

    Args:
        environment: The driver's environment (`collect_environment`).
        settings: The pickled WorkerSettings.
        content: The pickled job with its inputs.

    Returns:
        The job's events and its end, or why this machine cannot run it.
    """
    worker_settings = _open_worker_settings(environment, settings)
    if isinstance(worker_settings, str):
        return worker_settings
    job, inputs = pickle.loads(content)
    events: list[tuple[str, Event]] = []
    context = JobContext(
        device="cpu",
        cache=worker_settings.cache,
        emit=lambda event: events.append((job.key, event)),
        limits=worker_settings.limits,
    )
    finished = run_job(job, inputs, ("cpu",), context)
    return [*merge_events(events)], finished
