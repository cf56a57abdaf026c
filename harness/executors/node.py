"""A worker on another machine: its settings, the process that runs jobs, and the actor of Ray around it.

The driver's versions travel with the settings, and a worker of other versions refuses. Vectors are written
where they are made; everything else goes back to the driver, the only one that writes records.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import pickle
import platform
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement

from harness.core import files
from harness.core.errors import HarnessError, UsageError
from harness.core.provenance import DISTRIBUTION, find_package_version
from harness.data.locate import format_size
from harness.executors.executor import Finished, Inputs, fail_job
from harness.executors.local import LIBRARIES, Subprocess, run_job
from harness.executors.run_log import format_count
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Job
from harness.storage.remote_and_leases import Remote

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
    requirements = (Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ())
    # Only what every installation has: the extras of machines may differ, but for the one that searches.
    libraries = {r.name for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})}
    versions = {name: find_package_version(name) or "not there" for name in sorted({*libraries, "pylate"})}
    return {"Python": ".".join(platform.python_version_tuple()[:2]), **versions, SOURCE: _hash_source()}


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
    return f"{socket.gethostname()} has another environment than the driver: {'; '.join(differences)}."


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
        here = socket.gethostname()
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
        last_key, last = merged_events[-1] if merged_events else ("", event)
        if merged_events and last_key == key and last.kind == event.kind and event.kind in _COUNTS:
            names = ("texts", "tokens", "steps", "seconds")
            added = {name: getattr(last, name) + getattr(event, name) for name in names}
            merged_events[-1] = (key, replace(last, **added, log=[*last.log, *event.log]))
        else:
            merged_events.append((key, event))
    return tuple(merged_events)


class NodeWorker:
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


def list_visible_devices() -> tuple[str, ...]:
    """The GPUs that a scheduler has given to this process, in torch's words; none if it has none."""
    # torch numbers the visible GPUs from 0 on, whatever their names are here (numbers, or UUIDs).
    visible_names = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = len([name for name in visible_names.split(",") if name.strip()])
    return tuple(f"cuda:{number}" for number in range(count))


def explain_missing_devices(needed: int) -> str:
    """Why this process cannot work on so many GPUs, as a sentence; empty where it can."""
    visible_names = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    count = len(list_visible_devices())
    if count >= needed:
        return ""
    few = f"{count} of {needed} GPUs"
    return f"{socket.gethostname()} gave a worker {few} (CUDA_VISIBLE_DEVICES={visible_names})."


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
        self._worker: NodeWorker | None = None
        self._stopping, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        opened = _open_worker_settings(environment, settings)
        self._refusal = explain_missing_devices(1 if kind == "cuda" else 0)
        if isinstance(opened, str):
            self._refusal = opened
        elif not self._refusal:
            sys.modules["__main__"].__file__ = None  # or the process of jobs imports Ray's own script
            places = ("cpu",) * devices if kind == "cpu" else list_visible_devices()
            self._worker = NodeWorker(opened, places)

    def describe_worker(self) -> WorkerInfo:
        """Where it is, and why it cannot work."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        device_numbers = (
            os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if self._shape.gpus else ["cpu"]
        )
        devices = tuple(name if name == "cpu" else f"GPU {name}" for name in device_numbers)
        return WorkerInfo(node=node, host=socket.gethostname(), devices=devices, refusal=self._refusal)

    def run(self, content: bytes) -> Answer | str:
        """Run a pickled job with its inputs; gives the last events and its end, or why it cannot."""
        if self._worker is None:
            return self._refusal
        self._idle.clear()
        try:
            return self._run_job(self._worker, *pickle.loads(content))
        finally:
            self._idle.set()

    def _run_job(self, worker: NodeWorker, job: Job, inputs: Inputs) -> Answer:
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
