"""The executor of a Ray cluster: actors that run jobs one after the other, and tasks for those of a moment.

An actor keeps a process with a loaded model, as a worker of this machine does. Those of a cluster outlive the
driver for a while: one that comes back finds by its key what still runs, and what has ended meanwhile. Ray
places actors and reserves the devices of a training together; which job goes to which idle actor is decided
here, by the model that it has loaded.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import pickle
import secrets
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.executors.executor import (
    Cause,
    Failure,
    Finished,
    Inputs,
    Listener,
    RaySettings,
    Seat,
    failed,
)
from harness.executors.local import LAST_CHECKPOINT
from harness.executors.node import News, WorkerSettings, refused
from harness.executors.ray_cluster import (
    ORPHANED,
    ClusterDemand,
    Hello,
    RayWorker,
    Shape,
    connect,
    devices_text,
    node_name,
    run_at_once,
)
from harness.executors.run_log import Node
from harness.jobs.jobs import Job
from harness.results.cost.memory import SHARE, runs_that_fit

LISTEN = 1.0
"""Seconds after which an actor answers although there is nothing new."""

SHORT = 0.5
"""The mean seconds of jobs below which several are sent to an actor at once."""

DEPTH = 8
"""The number of short jobs that are sent to an actor at once."""

TASKS = 8
"""Jobs of a moment that are with Ray at once."""

UNREACHABLE = 120.0
"""Seconds after which an actor that cannot be reached counts as lost."""

STARTS = 6
"""Actors that may end one after the other before they are there, until the run is given up."""

EVICTION = 2.0
"""Seconds without work after which an actor gives way to one of another shape."""

_LEFT = (1, 4)
"""Ray's numbers for nodes that have left by themselves, or were not needed any more."""

GIB = 2**30


@dataclass(kw_only=True)
class _Actor:
    """An actor as the driver knows it.

    Attributes:
        handle: Ray's handle.
        shape: What it takes.
        group: The reservation of its devices.
        node, host, devices: Where it is; empty until it is there.
        call: The answer that is waited for.
        jobs: Its jobs by key, and when each was sent.
        found: The keys of jobs that another driver has sent, and nobody has asked for yet.
        held: The keys of outputs that have come and are not stored.
        stored: Those that are stored, of which it does not know yet.
        model: The key of the model that it has loaded.
        used: When it had work last.
        unreachable: Since when it cannot be reached.
    """

    handle: Any
    shape: Shape
    group: Any = None
    node: str = ""
    host: str = ""
    devices: tuple[str, ...] = ()
    call: Any = None
    found: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    stored: list[str] = field(default_factory=list)
    jobs: dict[str, tuple[Job, float]] = field(default_factory=dict)
    model: str = ""
    used: float = field(default_factory=time.monotonic)
    unreachable: float | None = None

    @property
    def load(self) -> int:
        """The jobs that it has to do."""
        return len((self.jobs.keys() | self.found) - self.held)

    @property
    def ready(self) -> bool:
        return bool(self.node)


class RayExecutor:
    """The executor of a Ray cluster.

    Attributes:
        name: Where the cluster is, for the user.
        kind: The devices of its workers, "cpu" or "cuda".
    """

    def __init__(
        self, settings: RaySettings, *, worker: WorkerSettings, results: Path, kind: str = ""
    ) -> None:
        """Connect to a cluster, or start one.

        Args:
            settings: Where it is.
            worker: What every worker is given.
            results: The results folder, whose drivers find each other's jobs.
            kind: "cpu" or "cuda"; empty for GPUs where the cluster has any.

        Raises:
            UsageError: No cluster is there, or it is of another version.
        """
        self._settings = settings
        alike = f"{results.resolve()} {worker} {kind}"  # a driver takes over workers that are as its own
        namespace = f"harness-{hashlib.sha256(alike.encode()).hexdigest()[:12]}"
        self._started = connect(settings, namespace)
        import ray

        self._ray, self._namespace = ray, namespace
        self._driver = secrets.token_hex(6)
        self.kind = kind or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")
        threads = worker.limits.threads or (1 if self.kind == "cpu" else None)
        self._threads = threads or 1
        worker = replace(worker, limits=replace(worker.limits, threads=threads))
        self._sent = (dict(worker.environment), pickle.dumps(worker))
        self._listener: Listener = lambda _key, _event: None
        self._actors: list[_Actor] = []
        self._orphans: dict[str, _Actor] = {}
        self._early: dict[str, Finished] = {}
        self._given: list[tuple[_Actor, str]] = []
        self._tasks: dict[Any, Job] = {}
        self._share = 1.0
        self._probe: Job | None = None
        self._measures: _Actor | None = None
        self._expected: dict[str, int] = {}
        self._asked: dict[Shape, int] = {}
        self._sends: dict[Any, _Actor] = {}
        self._starts = 0
        self._demand: ClusterDemand | None = None
        self._seconds: dict[str, float] = {}
        self._seen: dict[str, str] = {}
        self._free: tuple[float, Mapping[str, float]] = (0.0, {})
        self.name = f"ray: {settings.address or 'on this machine'}"

    def most_devices(self) -> tuple[int, int]:
        """The devices of the cluster, and the most that one node has."""
        name = "GPU" if self.kind == "cuda" else "CPU"
        counts = [int(node["Resources"].get(name, 0)) for node in self._ray.nodes() if node["Alive"]]
        each = 1 if self.kind == "cuda" else self._threads
        return sum(counts) // each, max(counts, default=0) // each

    def begin(
        self,
        listener: Listener,
        jobs: Sequence[Job],
        *,
        share: float | None = None,
        probe: Job | None = None,
        priority: int = 0,
    ) -> RayExecutor:
        """Make ready for jobs, and look for what a driver that is gone has left running.

        Args:
            listener: Gets the events of jobs.
            jobs: The jobs of the run.
            share: The part of a GPU that a training run of a task takes; None to measure it.
            probe: The job that measures the memory of one.
            priority: The driver of a higher one goes first on this cluster.

        Raises:
            UsageError: No node has what a job needs.
        """
        self._listener = listener
        self._share = share or 1.0
        self._probe = probe if self.kind == "cuda" and share is None else None
        self._require_nodes(jobs)
        self._demand = ClusterDemand(self._ray, priority) if self._settings.address else None
        self._find_orphans({job.key for job in jobs})
        return self

    # Room

    def lane(self, job: Job) -> str:
        """Jobs of the same shape are of one lane; that of training runs of tasks may be measured later."""
        if not job.resources.needs_device:
            return "at once"
        return f"runs, {self._shape(job).cpus}" if job.kind == "finetune" else str(self._shape(job))

    def expect(self, lane: str, count: int) -> None:
        """Be told how many jobs of a lane could begin."""
        self._expected[lane] = count

    def running(self) -> Sequence[str]:
        """The keys of jobs that a driver which is gone has left running, or whose outputs nobody has read."""
        return [*self._orphans]

    def has_room(self, job: Job) -> bool:
        """Whether an idle actor is there; where not, one is made if the cluster has room."""
        if not job.resources.needs_device:
            return len(self._tasks) < TASKS
        if job.key in self._orphans:
            return True
        if self._gives_way() or (job.kind == "finetune" and self._is_measuring()):
            return False
        if self._idle(job) is not None:
            return True
        self._grow(self._shape(job), self._expected.get(self.lane(job), 1))
        return False

    def submit(self, job: Job, inputs: Inputs) -> Seat:
        """Send a job to an actor, or find it on one where it runs already."""
        if not job.resources.needs_device:
            self._tasks[self._task.remote(*self._sent, job, inputs)] = job
            return Seat(node="", devices=("cpu",))
        actor = self._orphans.pop(job.key, None)
        if actor is not None:
            actor.found.discard(job.key)
        else:
            actor = self._idle(job)
            assert actor is not None
            self._send(actor, job, inputs)
        actor.jobs[job.key] = (job, time.monotonic())
        actor.model, actor.used = job.model, time.monotonic()
        return Seat(node=actor.host, devices=actor.devices)

    def poll(self, seconds: float) -> list[Finished]:
        """Pass on events; gives the jobs that ended, after `seconds` at the latest."""
        for actor, key in self._given:
            actor.held.discard(key)
            actor.stored.append(key)
        self._given = []
        early = self._claimed_early()
        if early:
            return early
        for actor in self._actors:
            if actor.call is None:
                actor.call = self._ask(actor)
        calls = {actor.call: actor for actor in self._actors}
        waited = [*calls, *self._tasks, *self._sends]
        if not waited:
            time.sleep(seconds)
            return []
        there, _ = self._ray.wait(waited, timeout=seconds)
        if there:
            there, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        return [one for ref in there for one in self._answer(ref, calls)]

    def _answer(self, ref: Any, calls: Mapping[Any, _Actor]) -> list[Finished]:
        """The jobs that have ended by what has come."""
        if ref in self._tasks:
            return self._end_task(ref)
        if ref in self._sends:
            return self._check_sent(self._sends.pop(ref), ref)
        actor = calls.get(ref)  # none, or gone, where another answer has just told that it is lost
        return self._news(actor) if actor is not None and actor in self._actors else []

    def _send(self, actor: _Actor, job: Job, inputs: Inputs) -> None:
        self._sends[actor.handle.run.remote(job.key, pickle.dumps((job, inputs)))] = actor

    def _check_sent(self, actor: _Actor, ref: Any) -> list[Finished]:
        """Lose an actor that a job did not reach."""
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return self._lose(actor, error) if actor in self._actors else []
        return []

    def _ask(self, actor: _Actor) -> Any:
        """Ask an actor for its news, or where it is."""
        if not actor.ready:
            return actor.handle.hello.remote()
        stored, actor.stored = actor.stored, []
        return actor.handle.report.remote(self._driver, stored, {*actor.held}, LISTEN)

    def _claimed_early(self) -> list[Finished]:
        """The ends that came before their jobs were asked for, which has happened now."""
        there = [key for key in self._early if key not in self._orphans]
        for key in there:
            actor = next(one for one in self._actors if key in one.jobs)
            del actor.jobs[key]
            self._given.append((actor, key))
        return [self._early.pop(key) for key in there]

    def cancel(self, key: str) -> None:
        """Stop a job; a training writes a checkpoint before."""
        for actor in self._actors:
            if actor.jobs.pop(key, None):
                actor.handle.cancel.remote(key)
        for ref in [ref for ref, job in self._tasks.items() if job.key == key]:
            del self._tasks[ref]
            self._ray.cancel(ref)

    def nodes(self) -> list[Node]:
        """The nodes of the cluster, those that were lost meanwhile, and the workers that were asked for."""
        nodes = self._ray.nodes()
        there = {node["NodeID"]: node for node in nodes if node["Alive"]}
        left = {node["NodeID"] for node in nodes if node.get("DeathReason") in _LEFT}
        self._seen |= {key: node_name(node) for key, node in there.items()}
        self._seen = {key: name for key, name in self._seen.items() if key not in left}
        found = []
        for key, name in self._seen.items():
            mine = [actor for actor in self._actors if actor.node == key]
            found.append(
                Node(
                    name=name,
                    state="alive" if key in there else "lost",
                    devices=(devices_text(there[key]["Resources"]),) if key in there else (),
                    workers=len(mine),
                    busy=sum(actor.load > 0 for actor in mine),
                )
            )
        asked = Counter(str(actor.shape) for actor in self._actors if not actor.ready)
        return [
            *found,
            *(Node(name=name, state="asked for", workers=count) for name, count in asked.items()),
        ]

    def close(self) -> None:
        """Stop every actor, even if jobs are running, and leave the cluster."""
        busy = [actor for actor in self._actors if actor.jobs]
        trains = any(job.kind == "train" for actor in busy for job, _ in actor.jobs.values())
        with contextlib.suppress(Exception):  # the cluster may be gone
            stops = [actor.handle.stop.remote() for actor in busy]
            if stops:
                self._ray.wait(stops, num_returns=len(stops), timeout=LAST_CHECKPOINT if trains else 5)
        for actor in [*self._actors]:
            self._drop(actor)
        with contextlib.suppress(Exception):
            self._ask_for({})
        self._leave()

    def _gives_way(self) -> bool:
        """Whether jobs of a higher priority wait on the cluster, for which idle actors then end."""
        if self._demand is None or not self._demand.is_behind(sum(self._expected.values())):
            return False
        for actor in [one for one in self._actors if not one.load and not one.held]:
            self._drop(actor)
        return True

    # Shapes and nodes

    def _shape(self, job: Job) -> Shape:
        devices = max(1, job.resources.devices)
        memory = -(-(job.resources.memory or 0) // GIB) * GIB
        gpus = 0.0
        if self.kind == "cuda" and job.kind != "rank":
            gpus = self._share if job.kind == "finetune" else float(devices)
        cpus = self._threads * devices
        return Shape(gpus, cpus, memory, group=devices > 1)

    def _require_nodes(self, jobs: Iterable[Job]) -> None:
        """Refuse jobs that no node can run, before anything begins; a cluster that grows is not known."""
        if self._settings.address and self._settings.workers is not None:
            return
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        shapes = {self._shape(job): job for job in jobs if job.resources.needs_device}
        for shape, job in shapes.items():
            if not any(shape.count_in(node["Resources"]) for node in nodes):
                there = "; ".join(f"{node_name(node)}: {devices_text(node['Resources'])}" for node in nodes)
                self._leave()
                raise UsageError(
                    f"{job.label} needs {shape} on one node, and no node of the cluster has that. "
                    f"There is: {there}.",
                    hint="Add a node that has it, or take less: --threads, --devices cpu, a smaller model. "
                    "For a cluster that grows by itself say how far: --executor ray:ADDRESS,workers=N.",
                )

    def _leave(self) -> None:
        if self._started:
            self._ray.shutdown()

    def _available(self) -> Mapping[str, float]:
        """The free resources of the cluster, looked up once a second."""
        now = time.monotonic()
        if now - self._free[0] > 1.0:
            self._free = (now, self._ray.available_resources())
        return self._free[1]

    # Actors

    def _idle(self, job: Job) -> _Actor | None:
        """The actor for a job: one with the job's model if there is one, else that longest without work."""
        shape, drained = self._shape(job), self._drained_node()
        depth = DEPTH if self._seconds.get(self.lane(job), math.inf) < SHORT else 1
        others = [one for one in self._actors if one.ready and one is not self._measures]
        found = [one for one in others if one.shape == shape and one.load < depth]
        found = [one for one in found if shape.group or one.node != drained]
        return min(found, key=lambda actor: (actor.load, actor.model != job.model, actor.used), default=None)

    def _drained_node(self) -> str:
        """The node on which nothing new begins while a training waits for several devices; mostly none.

        It is the one of those that can hold the training with the fewest busy actors.
        """
        waiting = next((one.shape for one in self._actors if one.shape.group and not one.ready), None)
        if waiting is None:
            return ""
        nodes = [node for node in self._ray.nodes() if node["Alive"] and waiting.count_in(node["Resources"])]
        busy = Counter(actor.node for actor in self._actors if actor.load)
        return str(min((node["NodeID"] for node in nodes), key=lambda key: (busy[key], key), default=""))

    def _grow(self, shape: Shape, expected: int) -> None:
        """Make as many actors as there are jobs for them, and as the cluster has room for.

        A group is reserved in any case: Ray gives it the devices of a node as they become free.
        """
        mine = [actor for actor in self._actors if actor.shape == shape]
        pending = sum(not actor.ready for actor in mine)
        wanted = expected - pending
        if self._settings.workers is not None:
            wanted = min(wanted, self._settings.workers - len(self._actors))
            self._ask_for({**self._asked, shape: min(self._settings.workers, len(mine) + max(0, wanted))})
        fits = shape.count_in(self._available()) - pending
        if shape.group and not pending:
            fits = max(1, fits)
        elif any(actor.shape.group and not actor.ready for actor in self._actors):
            fits = 0
        for _ in range(min(wanted, fits)):
            self._actors.append(self._make(shape))
            self._free = (0.0, {})
        if (expected > pending and min(wanted, fits) <= 0) or shape.group:
            self._evict(shape)

    def _make(self, shape: Shape) -> _Actor:
        ray = self._ray
        name, lasting = f"worker-{secrets.token_hex(6)}", "detached" if self._settings.address else None
        group_name = f"{self._namespace}-{name}"
        options: dict[str, Any] = {"name": name, "namespace": self._namespace, "lifetime": lasting}
        options |= {"num_cpus": shape.cpus, "num_gpus": shape.gpus, "max_concurrency": 4}
        group = None
        if shape.memory:
            options["memory"] = shape.memory
        if shape.group:
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            group = ray.util.placement_group(
                [shape.resources], strategy="STRICT_PACK", lifetime=lasting, name=group_name
            )
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=0
            )
        devices = shape.cpus // self._threads
        handle = (
            ray.remote(RayWorker)
            .options(**{key: value for key, value in options.items() if value is not None})
            .remote(self._driver, *self._sent, self.kind if shape.gpus else "cpu", devices, shape)
        )
        return _Actor(handle=handle, shape=shape, group=group)

    def _evict(self, shape: Shape) -> None:
        """Make room for a shape by ending an actor of another one that has had no work for a while.

        On the node that a training waits for they end at once.
        """
        others = [one for one in self._actors if one.ready and not one.load and not one.held]
        drained = self._drained_node() if shape.group else ""
        idle = [
            actor
            for actor in others
            if actor.shape != shape and (actor.node == drained or time.monotonic() - actor.used > EVICTION)
        ]
        if idle:
            self._drop(min(idle, key=lambda actor: actor.used))
            self._free = (0.0, {})

    def _is_measuring(self) -> bool:
        """Whether the memory of a training run is still being measured, on a whole GPU; this begins it."""
        if self._probe is None:
            return False
        if self._measures is None:
            whole = Shape(1.0, self._threads, 0)
            actor = next((one for one in self._actors if one.ready and one.shape == whole), None)
            if actor is None:
                self._grow(whole, 1)
            elif not actor.load:
                self._send(actor, self._probe, {})
                self._measures = actor
        return True

    def _measured(self, ended: Sequence[Finished]) -> None:
        """Take the share of a GPU from what a run was measured to need."""
        for one in ended:
            if self._probe is not None and one.key == self._probe.key:
                self._share = _share_of_gpu(json.loads(one.output.get("memory", b"{}")))
                self._probe = self._measures = None

    def _drop(self, actor: _Actor, *, kill: bool = True) -> None:
        """End an actor, or leave it to its other driver."""
        self._actors.remove(actor)
        self._sends = {ref: one for ref, one in self._sends.items() if one is not actor}
        if not kill:
            return
        with contextlib.suppress(Exception):  # it is gone, or the cluster is
            self._ray.kill(actor.handle)
        if actor.group is not None:
            with contextlib.suppress(Exception):
                self._ray.util.remove_placement_group(actor.group)

    def _ask_for(self, counts: dict[Shape, int]) -> None:
        """Have a cluster that grows make room for so many workers of each shape."""
        if self._settings.workers is None or counts == self._asked:
            return
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=[shape.resources for shape, count in counts.items() for _ in range(count)])
        self._asked = counts

    def _find_orphans(self, wanted: Container[str]) -> None:
        """Take over the actors of a driver that is gone, by the keys of their jobs.

        A living driver is heard all the time; whether one is gone shows after a few seconds.
        """
        if not self._settings.address:
            return
        ends = time.monotonic() + ORPHANED + LISTEN
        open_ = {*self._ray.util.list_named_actors()}
        while open_ and time.monotonic() < ends:
            open_ = {name for name in open_ if not self._take_over(name, wanted)}
            time.sleep(0.5 if open_ else 0)

    def _take_over(self, name: str, wanted: Container[str]) -> bool:
        """Take over an actor if its driver is gone; whether it needs no further look."""
        try:
            handle = self._ray.get_actor(name)
            keys = self._ray.get(handle.take_over.remote(self._driver), timeout=10)
            hello = self._ray.get(handle.hello.remote(), timeout=10)
        except (self._ray.exceptions.RayError, TimeoutError, ValueError):
            return True  # it has just ended
        if keys is None:
            return False
        ended, open_ = keys
        actor = _Actor(handle=handle, shape=hello.shape, node=hello.node, host=hello.host)
        actor.devices, actor.found = hello.devices, {*ended, *open_}
        if hello.shape.group:
            with contextlib.suppress(ValueError):  # its devices are not reserved any more
                actor.group = self._ray.util.get_placement_group(f"{self._namespace}-{name}")
        asked = any(key in wanted for key in actor.found)
        if open_ and not asked:  # it works for another command, which may come back
            return True
        self._actors.append(actor)
        if ended and not asked:
            self._drop(actor)
        self._orphans |= dict.fromkeys(actor.found if asked else (), actor)
        return True

    # News

    def _news(self, actor: _Actor) -> list[Finished]:
        """The ended jobs of an actor whose answer is there."""
        errors = self._ray.exceptions
        call, actor.call = actor.call, None
        try:
            answer = self._ray.get(call)
        except errors.ActorUnavailableError as error:
            actor.unreachable = actor.unreachable or time.monotonic()
            return self._lose(actor, error) if time.monotonic() - actor.unreachable > UNREACHABLE else []
        except errors.RayError as error:
            return self._lose(actor, error)
        actor.unreachable = None
        if answer is None:  # another driver has taken it over, as this one was silent for long
            return self._lose(actor, RuntimeError("another driver has taken it over"), kill=False)
        if isinstance(answer, Hello):
            return self._meet(actor, answer)
        return self._read(answer, actor)

    def _meet(self, actor: _Actor, hello: Hello) -> list[Finished]:
        if hello.refusal:
            raise refused(hello.refusal)
        self._starts = 0
        actor.node, actor.host, actor.devices = hello.node, hello.host, hello.devices
        actor.used = time.monotonic()
        return []

    def _read(self, news: News, actor: _Actor) -> list[Finished]:
        for key, event in news.events:
            if key in actor.jobs:
                self._listener(key, event)
        for one in news.ended:
            actor.held.add(one.key)
            actor.used = time.monotonic()
        ended = [one for one in news.ended if one.key in actor.jobs]
        self._early |= {one.key: one for one in news.ended if one.key in self._orphans}
        for one in ended:
            job, since = actor.jobs.pop(one.key)
            lane, seconds = self.lane(job), actor.used - since
            self._seconds[lane] = 0.9 * self._seconds.get(lane, seconds) + 0.1 * seconds
        unknown = [one.key for one in news.ended if one not in ended and one.key not in self._orphans]
        self._given += [(actor, key) for key in (*(one.key for one in ended), *unknown)]
        if actor is self._measures:
            self._measured(news.ended)
        return ended

    def _lose(self, actor: _Actor, error: Exception, *, kill: bool = True) -> list[Finished]:
        """The jobs of an actor that is gone, each as failed for a reason that is not its own.

        Raises:
            UsageError: Several actors were gone before they were there.
        """
        # Ray cancels an actor that waits for its start when its node or driver goes: other ones may start.
        self._starts += not actor.ready and "cancelled before it started" not in str(error)
        if self._starts >= STARTS:
            raise refused(f"No worker starts on the cluster. The last one said: {_last_line(error)}")
        memory = isinstance(error, self._ray.exceptions.OutOfMemoryError) or "OOM" in str(error)
        cause: Cause = "memory" if memory else "node"
        where = actor.host or "A node"
        message = f"{where} ran out of memory." if memory else f"The worker on {where} was lost."
        self._drop(actor, kill=kill)
        if actor is self._measures:
            self._probe = self._measures = None
        for key in [key for key, one in self._orphans.items() if one is actor]:
            del self._orphans[key]
            self._early.pop(key, None)
        self._given = [(one, key) for one, key in self._given if one is not actor]
        failure = Failure(kind="WorkerLost", message=message, cause=cause, traceback=str(error))
        return [Finished(key=key, failure=failure) for key in actor.jobs]

    @functools.cached_property
    def _task(self) -> Any:
        # no core of their own: idle actors may hold all of them
        return self._ray.remote(run_at_once).options(num_cpus=0, max_retries=0)

    def _end_task(self, ref: Any) -> list[Finished]:
        job = self._tasks.pop(ref)
        errors = self._ray.exceptions
        try:
            news = self._ray.get(ref)
        except errors.RayTaskError as error:
            return [failed(job.key, error)]
        except errors.RayError as error:
            message, text = "The node that ran it was lost.", str(error)
            failure = Failure(kind="WorkerLost", message=message, cause="node", traceback=text)
            return [Finished(key=job.key, failure=failure)]
        if isinstance(news, str):
            raise refused(news)
        for key, event in news.events:
            self._listener(key, event)
        return [*news.ended]


def _share_of_gpu(measured: Mapping[str, float | None]) -> float:
    """The part of a GPU that a training run takes, by the most memory that one was measured to take.

    >>> _share_of_gpu({"peak_bytes": 9e9, "device_bytes": 80e9}), _share_of_gpu({"peak_bytes": None})
    (0.125, 1.0)
    """
    peak, whole = measured.get("peak_bytes"), measured.get("device_bytes")
    if not peak or not whole:
        return 1.0
    return math.floor(10_000 / runs_that_fit(whole * SHARE, peak)) / 10_000


def _last_line(error: Exception) -> str:
    """The last line of what Ray says, which is the reason."""
    return next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "nothing")
