"""The executor of a Ray cluster: a pool of actors for jobs that work on a device, and tasks for the others.

An actor keeps a process with a loaded model, as a worker of this machine does. Ray places actors and repeats
tasks; which idle actor gets which job is decided here, by the model that it has loaded. Actors end with their
driver.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness.core.errors import StoreError, UsageError
from harness.core.provenance import count_cores
from harness.executors.executor import Cause, Failure, Finished, Inputs, Listener, RaySettings, fail_job
from harness.executors.local import LAST_CHECKPOINT
from harness.executors.node import (
    Answer,
    RayWorker,
    Shape,
    WorkerInfo,
    WorkerSettings,
    build_refusal_error,
    run_at_once,
)
from harness.executors.run_log import Node
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.results.cost.encoding import SHARE, compute_run_capacity

AHEAD = 16
"""The jobs that wait here for an actor, beside one for each that the cluster has room for."""

LOOK = 1.0
"""Seconds between two looks at the events of a running job, and at the cluster."""

SURVIVALS = 8
"""How often Ray restarts an actor, and repeats a task, whose node was lost."""

SPARE = 2.0
"""Seconds without a job after which an actor is stopped, so that others get its cores and GPUs."""

_LEFT = (1, 4)
"""Ray's numbers for nodes that have left by themselves, or were not needed any more."""

GIB = 2**30


@dataclass(kw_only=True)
class _Actor:
    """An actor as the driver knows it.

    Attributes:
        handle: Ray's handle.
        shape: What it takes.
        fits: Whether the cluster had room for it when it was requested.
        hello: Its first answer, with its node; None until it has started.
        call: The pending answer: its first one, or the end of its job.
        events: The answer with the events of its job.
        job: Its job; None while it has none.
        model: The key of the model that it has loaded.
        used: When it had work last.
    """

    handle: Any
    shape: Shape
    fits: bool
    call: Any
    hello: WorkerInfo | None = None
    events: Any = None
    job: Job | None = None
    model: str = ""
    used: float = field(default_factory=time.monotonic)


class RayExecutor:
    """The executor of a Ray cluster.

    Attributes:
        name: Where the cluster is, for the user.
        kind: The devices of its workers, "cpu" or "cuda".
    """

    def __init__(self, settings: RaySettings, *, worker: WorkerSettings, kind: str = "") -> None:
        """Connect to a cluster, or start one.

        Args:
            settings: Where it is.
            worker: What every worker is given.
            kind: "cpu" or "cuda"; empty for GPUs where the cluster has any.

        Raises:
            UsageError: No cluster answers, or it has another version of Ray or Python.
        """
        self._settings = settings
        self._started = _join_cluster(settings)
        import ray

        self._ray = ray
        self.kind = kind or ("cuda" if ray.cluster_resources().get("GPU") else "cpu")
        threads = worker.limits.threads or (1 if self.kind == "cpu" else None)
        self._threads = threads or 1
        worker = replace(worker, limits=replace(worker.limits, threads=threads))
        self._sent = (dict(worker.environment), pickle.dumps(worker))
        # No core of their own: actors may hold all of them.
        self._task = ray.remote(run_at_once).options(num_cpus=0, max_retries=SURVIVALS)
        self._listener: Listener = lambda _key, _event: None
        self._actors: list[_Actor] = []
        self._waiting: dict[str, tuple[Job, Inputs]] = {}
        self._tasks: dict[Any, Job] = {}
        self._share = 1.0
        self._probe: Job | None = None
        self._next_look = 0.0
        self._names: dict[str, str] = {}
        self._nodes: list[Node] = []
        self._room = 1
        self.name = f"ray: {settings.address or 'on this machine'}"

    def count_devices(self) -> tuple[int, int]:
        """The devices of the cluster, and the most that one node has."""
        name = "GPU" if self.kind == "cuda" else "CPU"
        counts = [int(node["Resources"].get(name, 0)) for node in self._list_alive_nodes()]
        each = 1 if self.kind == "cuda" else self._threads
        return sum(counts) // each, max(counts, default=0) // each

    def prepare_jobs(
        self,
        listener: Listener,
        jobs: Sequence[Job],
        *,
        share: float | None = None,
        probe: Job | None = None,
    ) -> RayExecutor:
        """Make ready for jobs.

        Args:
            listener: Gets the events of jobs.
            jobs: The jobs of the run.
            share: The part of a GPU that a training run of a task takes; None to measure it.
            probe: The job that measures the memory of one.

        Raises:
            UsageError: No node has what a job needs.
        """
        self._listener = listener
        self._share = share or 1.0
        self._require_nodes(jobs)
        self._room = self._settings.workers or self.count_devices()[0]
        if self.kind == "cuda" and share is None and probe is not None:
            self._probe = probe
            self._waiting[probe.key] = (probe, {})
        return self

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes of the cluster, those that were lost, and the workers that were asked for."""
        return self._nodes

    def has_room(self, job: Job) -> bool:
        """Whether few jobs wait for an actor, whatever the job is."""
        return len(self._waiting) + len(self._tasks) < self._room + AHEAD

    def submit(self, job: Job, inputs: Inputs) -> None:
        """Take a job, which begins when an actor of its shape is idle, or at once if it needs no device."""
        if job.resources.needs_device:
            self._waiting[job.key] = (job, inputs)
        else:
            self._tasks[self._task.remote(*self._sent, pickle.dumps((job, inputs)))] = job

    def poll_jobs(self, seconds: float) -> list[Finished]:
        """Pass on events; gives the jobs that ended, after `seconds` at the latest.

        Raises:
            UsageError: A machine refuses to work.
            StoreError: The cluster is gone.
        """
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK
            self._look()
        self._assign()
        calls = {actor.call: actor for actor in self._actors if actor.call is not None}
        waited = [*calls, *self._tasks]
        if not waited:
            time.sleep(seconds)
            return []
        ready_refs, _ = self._ray.wait(waited, timeout=seconds)
        # The first wait returns with one answer; this one takes all others that are ready as well.
        if ready_refs:
            ready_refs, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        ends = [
            end
            for ref in ready_refs
            for end in (self._end_task(ref) if ref in self._tasks else self._answer(calls[ref]))
        ]
        return [end for end in ends if not self._is_probe(end)]

    def cancel_job(self, key: str) -> None:
        """Stop a job; a training writes a checkpoint before."""
        self._waiting.pop(key, None)
        for ref in [ref for ref, job in self._tasks.items() if job.key == key]:
            del self._tasks[ref]
            self._ray.cancel(ref)
        for actor in [a for a in self._actors if a.job is not None and a.job.key == key]:
            # ray.kill, in _drop, ends the process at once: a training has to write its checkpoint before.
            self._stop([actor])
            self._drop(actor)

    def close_executor(self) -> None:
        """Stop every actor, even if jobs are running, and leave the cluster."""
        self._stop([actor for actor in self._actors if actor.job is not None])
        for actor in [*self._actors]:
            self._drop(actor)
        # A connection that the caller had made stays open.
        if self._started:
            self._ray.shutdown()

    def _stop(self, actors: Sequence[_Actor]) -> None:
        """Stop the running jobs of actors, a training with a checkpoint."""
        trains = any(actor.job is not None and actor.job.kind == "train" for actor in actors)
        with contextlib.suppress(Exception):  # the cluster may be gone
            stops = [actor.handle.stop.remote() for actor in actors]
            if stops:
                self._ray.wait(stops, num_returns=len(stops), timeout=LAST_CHECKPOINT if trains else 5)

    # The cluster

    def _list_alive_nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _require_alive(self) -> list[dict[str, Any]]:
        """All nodes; StoreError where none of the cluster is alive: Ray itself would wait for ever."""
        nodes: list[dict[str, Any]] = self._ray.nodes()
        if not any(node["Alive"] for node in nodes):
            raise StoreError(
                "The Ray cluster is gone: none of its nodes answers.",
                hint="What was finished is kept; the same command goes on from there.",
            )
        return nodes

    def _look(self) -> None:
        """Ask for the events of running jobs, and look at the nodes."""
        for actor in self._actors:
            if actor.job is not None and actor.hello is not None:
                self._receive_events(actor)
        nodes = self._require_alive()
        alive_nodes = {node["NodeID"]: node for node in nodes if node["Alive"]}
        # Nodes that an autoscaler took away are not reported as lost.
        left = {node["NodeID"] for node in nodes if node.get("DeathReason") in _LEFT}
        self._names |= {key: _format_node_name(node) for key, node in alive_nodes.items()}
        self._names = {key: name for key, name in self._names.items() if key not in left}
        workers, busy = Counter[str](), Counter[str]()
        for actor in self._actors:
            if actor.hello is not None:
                workers[actor.hello.node] += 1
                busy[actor.hello.node] += actor.job is not None
        self._nodes = [
            Node(
                name=name,
                state="alive" if key in alive_nodes else "lost",
                devices=(_describe_devices(alive_nodes[key]["Resources"]),) if key in alive_nodes else (),
                workers=workers[key],
                busy=busy[key],
            )
            for key, name in self._names.items()
        ]
        pending_shapes = Counter(str(actor.shape) for actor in self._actors if actor.hello is None)
        self._nodes += [
            Node(name=name, state="asked for", workers=count) for name, count in pending_shapes.items()
        ]

    def _compute_shape(self, job: Job) -> Shape:
        devices = max(1, job.resources.devices)
        # Rounded up to whole GiB: jobs of about the same need then have one shape, and share actors.
        memory = -(-(job.resources.memory or 0) // GIB) * GIB
        gpus = 0.0
        if self.kind == "cuda" and job.kind != "rank":
            gpus = float(devices)
            if job.kind == "finetune" and job is not self._probe:
                gpus = self._share
        return Shape(gpus, devices * self._threads, memory)

    def _require_nodes(self, jobs: Sequence[Job]) -> None:
        """Refuse what no node can run, before anything begins; a cluster that grows is not known."""
        # A cluster that grows may add a node of another kind.
        if self._settings.address and self._settings.workers is not None:
            return
        nodes = self._list_alive_nodes()
        shapes = {self._compute_shape(job): job for job in jobs if job.resources.needs_device}
        for shape, job in shapes.items():
            if not any(shape.count_in(node["Resources"]) for node in nodes):
                node_summary = "; ".join(
                    f"{_format_node_name(node)}: {_describe_devices(node['Resources'])}" for node in nodes
                )
                self.close_executor()
                raise UsageError(
                    f"{job.label} needs {shape} on one node, and no node of the cluster has that. "
                    f"Its nodes: {node_summary}.",
                    hint="Add a node that has it, or take less: --threads, --devices cpu, a smaller model. "
                    "For a cluster that grows by itself say how far: --executor ray:ADDRESS,workers=N.",
                )

    # Actors

    def _assign(self) -> None:
        """Give waiting jobs to idle actors, ask for more actors, and give back those without jobs."""
        for actor in [a for a in self._actors if a.hello is not None and a.job is None]:
            job = self._choose_next_job(actor)
            if job is not None:
                self._send(actor, job)
            # An idle actor keeps cores and GPUs from jobs of other shapes, so it goes while any job waits.
            elif (
                time.monotonic() - actor.used > SPARE
                or self._find_cramped_actor() is not None
                or self._waiting
            ):
                self._drop(actor)
        lacking: dict[Shape, int] = Counter(self._compute_shape(job) for job in self._open_jobs())
        for shape, count in lacking.items():
            idle = sum(actor.shape == shape and actor.job is None for actor in self._actors)
            self._ask_for(shape, count - idle)

    def _open_jobs(self) -> list[Job]:
        """The waiting jobs, without runs whose share of a GPU is still being measured."""
        every = [job for job, _ in self._waiting.values()]
        return [job for job in every if self._probe is None or job is self._probe or job.kind != "finetune"]

    def _find_cramped_actor(self) -> _Actor | None:
        """An actor for which there was no room, and which waits for others to end."""
        return next((actor for actor in self._actors if actor.hello is None and not actor.fits), None)

    def _choose_next_job(self, actor: _Actor) -> Job | None:
        """The job for an idle actor, one of its loaded model if there is one.

        None where a job of another shape came before all of its own, and waits for room.
        """
        waiting = self._open_jobs()
        mine = [job for job in waiting if self._compute_shape(job) == actor.shape]
        cramped = self._find_cramped_actor()
        first = next((job for job in waiting if cramped and self._compute_shape(job) == cramped.shape), None)
        # Else the small jobs that come later would keep a large one waiting until the end of the run.
        if first is not None and mine and waiting.index(first) < waiting.index(mine[0]):
            return None
        return next((job for job in mine if job.model == actor.model), mine[0] if mine else None)

    def _send(self, actor: _Actor, job: Job) -> None:
        assert actor.hello is not None
        content = pickle.dumps(self._waiting.pop(job.key))
        actor.job, actor.model, actor.used = job, job.model, time.monotonic()
        # A job whose actor is lost is tried again by the driver, on a new one.
        actor.call, actor.events = actor.handle.run.options(max_task_retries=0).remote(content), None
        if job is not self._probe:
            place = Event(kind="placed", text=actor.hello.host, devices=actor.hello.devices)
            self._listener(job.key, place)

    def _ask_for(self, shape: Shape, count: int) -> None:
        """Create as many actors as there is room for; at most one of each shape waits for room."""
        mine = [actor for actor in self._actors if actor.shape == shape]
        if count <= 0 or any(actor.hello is None and not actor.fits for actor in mine):
            return
        pending = sum(actor.hello is None for actor in mine)
        if self._settings.workers is not None:
            room = self._settings.workers - len(self._actors)
        else:
            room = shape.count_in(self._ray.available_resources()) - pending
        for _ in range(min(count, room)):
            self._make(shape, fits=True)
        # A request without room makes an autoscaler add a node; on other clusters it waits in Ray's queue.
        if room <= 0 and not mine and (self._settings.workers is None or not self._actors):
            self._make(shape, fits=False)

    def _make(self, shape: Shape, *, fits: bool) -> None:
        options = {"num_cpus": shape.cpus, "num_gpus": shape.gpus, "memory": shape.memory or None}
        # One call for the job, two beside it. An actor whose node is lost while it starts is restarted.
        more = {"max_concurrency": 3, "max_restarts": SURVIVALS, "max_task_retries": SURVIVALS}
        devices = shape.cpus // self._threads
        handle = (
            self._ray.remote(RayWorker)
            .options(**options, **more)
            .remote(*self._sent, self.kind if shape.gpus else "cpu", devices, shape)
        )
        self._actors.append(
            _Actor(handle=handle, shape=shape, fits=fits, call=handle.describe_worker.remote())
        )

    def _drop(self, actor: _Actor) -> None:
        self._actors.remove(actor)
        with contextlib.suppress(Exception):  # it is gone, or the cluster is
            self._ray.kill(actor.handle)

    # Answers

    def _answer(self, actor: _Actor) -> list[Finished]:
        """Take an actor's answer: its first one, or the end of its job, which is returned."""
        errors, call = self._ray.exceptions, actor.call
        actor.call = None
        job, actor.job = actor.job, None
        actor.used = time.monotonic()
        try:
            answer = self._ray.get(call)
        # Raised by the call itself. It is a RayError, too, and those mean a lost actor: this comes first.
        except errors.RayTaskError as error:
            return [fail_job(job.key, error)] if job is not None else self._drop_lost_actor(actor, job, error)
        except errors.RayError as error:
            return self._drop_lost_actor(actor, job, error)
        if isinstance(answer, WorkerInfo):
            if answer.refusal:
                raise build_refusal_error(answer.refusal)
            actor.hello = answer
            return []
        if actor.events is not None:  # those that were asked for last
            with contextlib.suppress(errors.RayError):
                self._pass_on(self._ray.get(actor.events))
            actor.events = None
        return self._end_of(answer)

    def _pass_on(self, events: Sequence[tuple[str, Event]]) -> None:
        """Pass on the events of jobs, but for the measuring run."""
        for key, event in events:
            if self._probe is None or key != self._probe.key:
                self._listener(key, event)

    def _end_of(self, answer: Answer | str) -> list[Finished]:
        """The end of a job, whose last events are passed on; a machine that cannot work ends the run."""
        if isinstance(answer, str):
            raise build_refusal_error(answer)
        events, finished = answer
        self._pass_on(events)
        return [finished]

    def _receive_events(self, actor: _Actor) -> None:
        """Pass on the events of a running job that have come, and ask for more."""
        if actor.events is not None and self._ray.wait([actor.events], timeout=0)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):  # its end will say so
                self._pass_on(self._ray.get(actor.events))
            actor.events = None
        # One question at a time: of three calls at once one runs the job, and one is left for `stop`.
        if actor.events is None:
            actor.events = actor.handle.take_events.remote()

    def _drop_lost_actor(self, actor: _Actor, job: Job | None, error: Exception) -> list[Finished]:
        """The job of an actor that Ray has given up.

        Raises:
            UsageError: The actor was never there.
        """
        self._drop(actor)
        if actor.hello is None:
            self._require_alive()
            # The last line of what Ray says is the reason.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = lines[-1] if lines else "nothing"
            raise build_refusal_error(f"No worker starts on the cluster. The last one said: {reason}")
        if job is None:
            return []
        if isinstance(error, self._ray.exceptions.OutOfMemoryError):
            return [_fail_lost_job(job, f"{actor.hello.host} ran out of memory.", error, cause="memory")]
        return [_fail_lost_job(job, f"The worker on {actor.hello.host} was lost.", error)]

    def _end_task(self, ref: Any) -> list[Finished]:
        job, errors = self._tasks.pop(ref), self._ray.exceptions
        try:
            answer = self._ray.get(ref)
        except errors.RayTaskError as error:
            return [fail_job(job.key, error)]
        except errors.RayError as error:
            return [_fail_lost_job(job, "The node that ran it was lost.", error)]
        return self._end_of(answer)

    def _is_probe(self, finished: Finished) -> bool:
        """Whether the end is that of the measuring run, which gives the share of a GPU of the others."""
        if self._probe is None or finished.key != self._probe.key:
            return False
        self._share = _share_of_gpu(json.loads(finished.output.get("memory", b"{}")))
        self._probe = None
        return True


def _fail_lost_job(job: Job, message: str, error: Exception, *, cause: Cause = "node") -> Finished:
    failure = Failure(kind="WorkerLost", message=message, cause=cause, traceback=str(error))
    return Finished(key=job.key, failure=failure)


def _share_of_gpu(measured: Mapping[str, float | None]) -> float:
    """The part of a GPU that a training run takes, by the most memory that one was measured to take.

    >>> _share_of_gpu({"peak_bytes": 9e9, "device_bytes": 80e9}), _share_of_gpu({"peak_bytes": None})
    (0.125, 1.0)
    """
    peak, device_bytes = measured.get("peak_bytes"), measured.get("device_bytes")
    if not peak or not device_bytes:
        return 1.0
    # Ray counts resources in ten-thousandths; a share that is rounded up would let one run less fit.
    return math.floor(10_000 / compute_run_capacity(device_bytes * SHARE, peak)) / 10_000


# Joining a cluster


def _join_cluster(settings: RaySettings) -> bool:
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


def _format_node_name(node: Mapping[str, Any]) -> str:
    """The name of a node, as Ray lists it, for the user."""
    return str(node["NodeManagerHostname"] or node["NodeName"])


def _describe_devices(resources: Mapping[str, float]) -> str:
    """What a node has, in words, e.g. "8 GPUs, 64 cores, 500.0 GB"."""
    gpus, cpus, memory = (int(resources.get(name, 0)) for name in ("GPU", "CPU", "memory"))
    return str(Shape(gpus, cpus, memory))
