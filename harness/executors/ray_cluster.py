"""A Ray cluster: how a driver joins it, and what runs on its nodes, an actor with a worker and a task."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UsageError
from harness.core.provenance import cores
from harness.data.locate import human_size
from harness.executors.executor import Finished, Inputs, RaySettings, failed, run_job
from harness.executors.local import host_name
from harness.executors.node import (
    News,
    NodeWorker,
    WorkerSettings,
    merged,
    missing_devices,
    other_environment,
    visible_devices,
)
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import Job

IDLE_ORPHAN = 60.0
"""Seconds without a driver after which an actor without work ends."""

DEMAND = 10.0
"""Seconds for which it counts that jobs of a driver wait."""

ORPHANED = 4.0
"""Seconds without a question of its driver after which an actor counts as left by it."""

KEPT = 3600.0
"""Seconds for which an actor without a driver keeps the output of jobs that have ended."""


@dataclass(frozen=True)
class Shape:
    """What an actor takes: GPUs or a part of one, cores, bytes of memory; `group` reserves them first."""

    gpus: float
    cpus: int
    memory: int
    group: bool = False

    def __str__(self) -> str:
        gpus = [f"{self.gpus:g} GPU{'s' * (self.gpus > 1)}"] if self.gpus else []
        memory = [human_size(self.memory)] if self.memory else []
        return ", ".join([*gpus, f"{self.cpus} core{'s' * (self.cpus > 1)}", *memory])

    @property
    def resources(self) -> dict[str, float]:
        """In Ray's words."""
        every = {"GPU": self.gpus, "CPU": float(self.cpus), "memory": float(self.memory)}
        return {name: value for name, value in every.items() if value}

    def count_in(self, free: Mapping[str, float]) -> int:
        """How many of it there is room for."""
        return int(min(free.get(name, 0.0) / value + 1e-9 for name, value in self.resources.items()))


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The first answer of an actor.

    Attributes:
        node: The id of its node.
        host: The name of its machine.
        devices: The devices that it was given, as the machine numbers them.
        refusal: Why it cannot work; empty if it can.
        shape: What it takes.
    """

    node: str
    host: str
    devices: tuple[str, ...]
    refusal: str
    shape: Shape


class RayWorker:
    """The actor: it runs the jobs that it was sent in turn, and keeps outputs until the driver has them.

    Its jobs run in a process of its own, which one thread alone deals with.
    """

    def __init__(
        self,
        driver: str,
        environment: Mapping[str, str],
        settings: bytes,
        kind: str,
        devices: int,
        shape: Shape,
    ) -> None:
        self._driver, self._shape = driver, shape
        self._changed = threading.Condition()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._running = ""
        self._cancelled = False
        self._events: list[tuple[str, Event]] = []
        self._ended: dict[str, Finished] = {}
        self._heard = time.monotonic()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._refusal = missing_devices(1 if kind == "cuda" else 0)
        opened = _opened(environment, settings)
        if isinstance(opened, str):
            self._refusal = opened
        elif not self._refusal:
            _hide_main_script()
            places = ("cpu",) * devices if kind == "cpu" else visible_devices()
            worker = NodeWorker(opened, places)
            self._thread = threading.Thread(target=self._serve, args=(worker,), name="jobs", daemon=True)
            self._thread.start()

    def hello(self) -> Hello:
        """Where it is, and why it cannot work."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if self._shape.gpus else ["cpu"]
        devices = tuple(name if name == "cpu" else f"GPU {name}" for name in given)
        refusal, shape = self._refusal, self._shape
        return Hello(node=node, host=host_name(), devices=devices, refusal=refusal, shape=shape)

    def run(self, key: str, content: bytes) -> None:
        """Take a job with its inputs, pickled.

        Raises:
            RuntimeError: This machine has failed, and takes no more.
        """
        with self._changed:
            if self._refusal:
                raise RuntimeError(self._refusal)
            self._heard = time.monotonic()
            self._queue.append((key, content))
            self._changed.notify_all()

    def take_over(self, driver: str) -> tuple[list[str], list[str]] | None:
        """Serve another driver if the present one is gone; None while it may live.

        Gives the keys of the jobs whose outputs it keeps, and of those that it has to do.
        """
        with self._changed:
            if time.monotonic() - self._heard < ORPHANED:
                return None
            self._driver, self._heard = driver, time.monotonic()
            return [*self._ended], [*filter(None, [self._running]), *(key for key, _ in self._queue)]

    def report(
        self, driver: str, stored: Sequence[str], held: Collection[str], seconds: float
    ) -> News | None:
        """The news since the last report, as soon as there are any, after `seconds` at the latest.

        Outputs of jobs that are `stored` are dropped; those that the driver only `held` are not sent again.
        None for a driver whose actor another one has taken over.
        """
        with self._changed:
            if driver != self._driver:
                return None
            self._heard = time.monotonic()
            for key in stored:
                self._ended.pop(key, None)
            self._changed.wait_for(lambda: self._events or self._ended.keys() - held or self._closed, seconds)
            events, self._events = merged(self._events), []
            return News(events=events, ended=tuple(self._ended[key] for key in self._ended.keys() - held))

    def cancel(self, key: str) -> None:
        """Stop a job."""
        with self._changed:
            self._queue = deque(pair for pair in self._queue if pair[0] != key)
            self._cancelled = self._cancelled or self._running == key
            self._changed.notify_all()

    def stop(self) -> None:
        """End the process, in the middle of a job as well; a training writes a checkpoint before."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _serve(self, worker: NodeWorker) -> None:
        try:
            while not self._closed:
                self._step(worker)
            worker.close()
        except Exception as error:
            self._fail_all(error)

    def _step(self, worker: NodeWorker) -> None:
        with self._changed:
            if worker.free:
                self._begin_next(worker)
            elif self._cancelled:
                worker.cancel()
                self._running, self._cancelled = "", False
        if not worker.free:
            self._keep(worker.poll(0.5))

    def _fail_all(self, error: Exception) -> None:
        """End every job with an error of this machine, such as a full disk, and take no more."""
        with self._changed:
            keys = [*filter(None, [self._running]), *(key for key, _ in self._queue)]
            self._ended |= {key: failed(key, error) for key in keys}
            self._queue.clear()
            self._refusal = f"{host_name()}: {error}"
            self._changed.notify_all()

    def _begin_next(self, worker: NodeWorker) -> None:
        """Begin the next job; wait a second where there is none."""
        self._running, self._cancelled = "", False
        if not self._queue:
            self._changed.wait_for(lambda: self._queue or self._closed, 1.0)
            self._end_without_driver(worker)
        if self._queue and not self._closed:
            self._running, content = self._queue.popleft()
            try:
                job, inputs = pickle.loads(content)
            except Exception as error:  # its classes are not on this machine
                self._ended[self._running] = failed(self._running, error)
                self._changed.notify_all()
            else:
                worker.start(job, inputs)

    def _keep(self, news: News) -> None:
        if not (news.events or news.ended):
            return
        with self._changed:
            self._events = [*merged([*self._events, *news.events])]
            self._ended |= {one.key: one for one in news.ended}
            self._changed.notify_all()

    def _end_without_driver(self, worker: NodeWorker) -> None:
        """End the actor where no driver was heard for long and nothing runs."""
        alone = time.monotonic() - self._heard
        if not self._queue and alone > (KEPT if self._ended else IDLE_ORPHAN):
            worker.close()
            _leave_group()
            os._exit(0)


def _opened(environment: Mapping[str, str], settings: bytes) -> WorkerSettings | str:
    """The settings of a worker, in whose directory this process is then, or why it cannot work here.

    In another environment they might not even be read.
    """
    if other := other_environment(environment):
        return other
    own: WorkerSettings = pickle.loads(settings)
    own.enter()
    return own.refusal() or own


def _hide_main_script() -> None:
    """Keep Ray's own script out of the processes of jobs, which its import would slow down."""
    sys.modules["__main__"].__file__ = None


def _leave_group() -> None:
    """Give back the devices that were reserved for this actor."""
    from ray.util import get_current_placement_group, remove_placement_group

    group = get_current_placement_group()
    if group is not None:
        remove_placement_group(group)


class Demand:
    """The actor of a cluster to which drivers tell what waits: a higher priority goes first."""

    def __init__(self, *, ends: bool) -> None:
        self._drivers: dict[str, tuple[int, int, float]] = {}
        self._heard = time.monotonic()
        if ends:  # its process, when no driver has been heard for a while
            threading.Thread(target=self._end_without_drivers, name="end", daemon=True).start()

    def tell(self, driver: str, priority: int, waiting: int) -> bool:
        """Say how many jobs of a driver wait; gives whether one of a higher priority has any."""
        now = self._heard = time.monotonic()
        self._drivers[driver] = (priority, waiting, now)
        return any(
            higher > priority and count and now - heard < DEMAND
            for higher, count, heard in self._drivers.values()
        )

    def _end_without_drivers(self) -> None:
        while time.monotonic() - self._heard < IDLE_ORPHAN:
            time.sleep(1.0)
        os._exit(0)


def run_at_once(environment: Mapping[str, str], settings: bytes, job: Job, inputs: Inputs) -> Any:
    """The task: run a job of a moment; gives its events and its end, or why this machine cannot."""
    own = _opened(environment, settings)
    if isinstance(own, str):
        return own
    events: list[tuple[str, Event]] = []
    context = JobContext(
        device="cpu", cache=own.cache, emit=lambda event: events.append((job.key, event)), limits=own.limits
    )
    finished = run_job(job, inputs, ("cpu",), context)
    return News(events=merged(events), ended=(finished,))


class ClusterDemand:
    """What waits on the cluster, as this driver asks the actor for it every few seconds."""

    def __init__(self, ray: Any, priority: int) -> None:
        self._ray, self._priority = ray, priority
        self._driver = secrets.token_hex(6)
        self._answer: Any = None
        self._behind, self._due = False, 0.0

    def is_behind(self, waiting: int) -> bool:
        """Whether jobs of a driver of a higher priority wait; told that so many of this one do."""
        now = time.monotonic()
        if self._answer is None and now > self._due:
            options = {"name": "demand", "namespace": "harness", "lifetime": "detached", "num_cpus": 0}
            actor = self._ray.remote(Demand).options(**options, get_if_exists=True).remote(ends=True)
            self._answer = actor.tell.remote(self._driver, self._priority, waiting)
            self._due = now + DEMAND / 5
        if self._answer is not None and self._ray.wait([self._answer], timeout=0)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):  # it ends without drivers
                self._behind = self._ray.get(self._answer)
            self._answer = None
        return self._behind


def connect(settings: RaySettings, namespace: str) -> bool:
    """Join a cluster or start one; whether that was done here.

    Raises:
        UsageError: There is none, or it is of another version.
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
    options: dict[str, Any] = {"address": settings.address or "local", "namespace": namespace}
    if not settings.address:
        options |= {"num_cpus": cores(), "include_dashboard": False}
    _silence(ray)
    try:
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        if settings.address in ("", "auto"):
            raise _no_cluster(settings.address, str(error)) from error
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


def _silence(ray: Any) -> None:
    """Keep what raylets say out of standard output, where Ray prints it: lost workers are noted by us."""
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
        raise UsageError(f"{address!r} is no address of a Ray cluster.", hint="Type HOST:PORT, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, reason: str) -> UsageError:
    where = "on this machine" if address == "auto" else f"at {address}"
    return UsageError(
        f"No Ray cluster answers {where}: {reason.rstrip('.')}.",
        hint="Start one with ray start --head, type its HOST:PORT (6379 is the usual port), or leave the "
        "address out to start one for this run.",
    )


def node_name(node: Mapping[str, Any]) -> str:
    """The name of a node, as Ray lists it, for the user."""
    return str(node["NodeManagerHostname"] or node["NodeName"])


def devices_text(resources: Mapping[str, float]) -> str:
    """What a node has, in words, e.g. "8 GPUs, 64 cores, 500.0 GB"."""
    gpus = int(resources.get("GPU", 0))
    first = [f"{gpus} GPU{'s' * (gpus > 1)}"] if gpus else []
    count = int(resources.get("CPU", 0))
    memory = human_size(int(resources.get("memory", 0)))
    return ", ".join([*first, f"{count} core{'s' * (count != 1)}", memory])
