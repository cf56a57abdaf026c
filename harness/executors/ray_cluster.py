"""A Ray cluster: how a driver joins it, and what runs on its nodes, an actor with a worker and a task."""

from __future__ import annotations

import os
import pickle
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.provenance import count_cores
from harness.data.locate import format_size
from harness.executors.executor import Finished, Inputs, RaySettings, fail_job, run_job
from harness.executors.local import read_host_name
from harness.executors.node import (
    NodeWorker,
    WorkerSettings,
    compare_environment,
    explain_missing_devices,
    list_visible_devices,
    merge_events,
)
from harness.executors.run_log import format_count
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import Job

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
            self._worker = NodeWorker(opened, ("cpu",) * devices if kind == "cpu" else list_visible_devices())

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

    def _run_job(self, worker: NodeWorker, job: Job, inputs: Inputs) -> Answer:
        worker.start(job, inputs)
        while not self._stopping.is_set():
            report = worker.poll_updates(0.2)
            if report.ended:
                return [*self.take_events(), *report.events], report.ended[0]
            with self._lock:
                self._events = [*merge_events([*self._events, *report.events])]
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
    if other := compare_environment(environment):
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


def join_cluster(settings: RaySettings) -> bool:
    """Join a cluster or start one; whether that was done here.

    Raises:
        UsageError: No cluster answers, or it has another version of Ray or Python.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--executor ray needs Ray, which is not installed here.",
            hint="Type pip install 'encoder-harness[ray]', here and on every node.",
        ) from error
    if ray.is_initialized():
        return False
    _require_answer(settings.address)
    options: dict[str, Any] = {"address": settings.address or "local"}
    if not settings.address:
        options |= {"num_cpus": count_cores(), "include_dashboard": False}
    _hide_raylet_output(ray)
    try:
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        if settings.address in ("", "auto"):
            raise _build_cluster_error(settings.address, str(error)) from error
        raise UsageError(
            f"{settings.address} answers, and this machine cannot join it as a Ray cluster: "
            f"{str(error).rstrip('.')}.",
            hint="Where ~/.ray/auth_token is, Ray asks for it: set RAY_AUTH_MODE=token, with one file on all "
            "machines, or type ray:auto on a node (docs/cluster.md).",
        ) from error
    except ray.exceptions.AuthenticationError as error:
        raise UsageError(
            f"The Ray cluster at {settings.address} asks for a token that this machine does not give.",
            hint="Set RAY_AUTH_MODE=token, with one ~/.ray/auth_token on every machine (docs/cluster.md).",
        ) from error
    except RuntimeError as error:
        # Ray raises a plain RuntimeError here; only its text ("Version" or "version") tells the cause.
        if "ersion" not in str(error):
            text = " ".join(str(error).split())
            raise UsageError(
                f"Ray at {settings.address or 'this machine'} cannot be joined: {text}",
                hint="The driver must run on a node of the cluster (docs/cluster.md).",
            ) from error
        raise UsageError(
            f"The Ray cluster at {settings.address} is of another version. {' '.join(str(error).split())}",
            hint="Install the same Ray and Python here and there (requirements/cluster.txt).",
        ) from error
    return True


def _hide_raylet_output(ray: Any) -> None:
    """Keep what raylets say out of standard output, where Ray prints it: lost workers are noted by us."""
    # A private name of Ray: a version that lacks it is left as it is.
    worker: Any = getattr(ray._private, "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_options: None


def _require_answer(address: str) -> None:
    """Refuse an address that nobody answers, at which Ray itself would wait for minutes."""
    if address in ("", "auto"):
        return
    if "://" in address:
        raise UsageError(
            f"{address} is the address of a Ray client; the driver must run on a node of the cluster.",
            hint="Run it there with --executor ray:auto, e.g. by ray job submit --address … -- harness run …",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is not the address of a Ray cluster.", hint="Type HOST:PORT, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise _build_cluster_error(address, str(error)) from error


def _build_cluster_error(address: str, reason: str) -> UsageError:
    where = "on this machine" if address == "auto" else f"at {address}"
    return UsageError(
        f"No Ray cluster answers {where}: {reason.rstrip('.')}.",
        hint="Start one with ray start --head, type its HOST:PORT (6379 is the usual port), or leave the "
        "address out to start one for this run.",
    )


def format_node_name(node: Mapping[str, Any]) -> str:
    """The name of a node, as Ray lists it, for the user."""
    return str(node["NodeManagerHostname"] or node["NodeName"])


def describe_devices(resources: Mapping[str, float]) -> str:
    """What a node has, in words, e.g. "8 GPUs, 64 cores, 500.0 GB"."""
    gpus = int(resources.get("GPU", 0))
    first = [format_count(gpus, "GPU")] if gpus else []
    cores = format_count(int(resources.get("CPU", 0)), "core")
    memory = format_size(int(resources.get("memory", 0)))
    return ", ".join([*first, cores, memory])
