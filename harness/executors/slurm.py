"""The executor of a Slurm cluster, through submitit: workers take jobs from a queue in the results folder.

Slurm decides when and where a worker runs, and submitit speaks with it. What is here asks for one array of
workers for each wave of jobs that take the same room, and watches what the workers write. Each takes jobs
until its time is nearly up or there is nothing to do. On the signal before a preemption or the end of its
time it stops its job, which a training answers with a checkpoint, gives it back, and is queued anew.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core import files
from harness.core.errors import HarnessError, StoreError, UsageError
from harness.core.identity import digest
from harness.executors.executor import SLURM as NAME
from harness.executors.executor import Cause, Failure, Finished, Inputs, Listener, Seat, SlurmSettings
from harness.executors.local import LAST_CHECKPOINT
from harness.executors.node import WorkerSettings, refused
from harness.executors.run_log import Node
from harness.executors.slurm_queue import Claim, JobQueue, WorkerLog, WorkerMessage, new_life, sweep
from harness.executors.slurm_worker import FULL, REQUEUED, QueueWorker
from harness.jobs.jobs import Job

if TYPE_CHECKING:
    from submitit import AutoExecutor
    from submitit import Job as Task

_COMMANDS = ("sbatch", "srun", "sacct", "scancel", "scontrol")
"""The commands of Slurm that are called, here or by workers."""

_AHEAD = 4
"""The jobs in the queue for each worker, at most."""

_MUTE = 4
"""Workers that may end without a word until the run is given up."""

_NO_FAULT = ("CANCELLED", "NODE_FAIL", "PREEMPTED")
"""States of workers that have not failed by themselves."""

_FAREWELL = 15.0
"""Seconds in which workers say that they end after they were cancelled."""


@dataclass(frozen=True, kw_only=True)
class SlurmTimes:
    """Seconds between two looks at something, and of patience.

    Attributes:
        look: Between two looks at the queue.
        beat: Between two messages of a worker that it lives.
        lost: Of a worker's silence until it is given up; above the time of a last checkpoint, in which it
            says nothing, and of what a shared file system keeps from others.
        states: Between two calls of sacct, which tells of all workers.
        wave: Between two calls of sbatch for jobs of one lane.
        refusal: Of sbatch's refusing more workers while there are none, after it has given some.
        warning: Before the end of a worker's time, at which it is told: enough for a training's last
            checkpoint.
    """

    look: float = 0.5
    beat: float = 5.0
    lost: float = 240.0
    states: float = 30.0
    wave: float = 10.0
    refusal: float = 600.0
    warning: int = 120


# The workers of a lane, as the driver sees them


@dataclass
class _WorkerView:
    """What a driver knows of one worker.

    Attributes:
        log: Its messages.
        heard: When the last one came.
        task: Its task in Slurm, None if another driver asked for it and has not said so.
        state: Slurm's last word on it, when it is over.
        skip: Whether its messages so far are those of an earlier run.
    """

    log: WorkerLog
    heard: float
    task: Task[str] | None = None
    life: str = ""
    host: str = ""
    devices: str = ""
    end: str = ""
    state: str = ""
    queued: bool = True
    skip: bool = False

    def is_live(self, patience: float) -> bool:
        """Whether it runs or is queued, as far as is known."""
        if self.state or self.end:
            return False
        return self.is_asked_for or time.monotonic() - self.heard < patience

    @property
    def is_asked_for(self) -> bool:
        """Whether it waits for its machine."""
        return self.queued and self.task is not None and not self.state

    def loss(self, claim: Claim, patience: float) -> str:
        """Why a job that it has claimed is lost; empty where it is not."""
        where = f"worker {claim.worker}{' on ' + self.host if self.host else ''}"
        if self.state:
            return f"The {where} is gone ({self.state})."
        if self.end and self.life == claim.life:
            return f"The {where} has ended ({self.end})."
        if time.monotonic() - self.heard > patience:
            return f"The {where} was silent for {patience:.0f} s."
        return ""


class _Lane:
    """Workers with the same resources, and the queue of their jobs.

    Attributes:
        wanted: The jobs that this driver waits for, by key.
        workers: All workers of the queue, also those of other drivers.
    """

    def __init__(
        self,
        queue: JobQueue,
        *,
        worker: QueueWorker,
        submit: AutoExecutor,
        listener: Listener,
        times: SlurmTimes,
    ) -> None:
        queue.prepare()
        self.queue = queue
        self.wanted: dict[str, tuple[Job, Inputs]] = {}
        self.workers: dict[str, _WorkerView] = {}
        self._worker, self._submit, self._listener, self._times = worker, submit, listener, times
        self._cancelled: set[str] = set()
        self._next: dict[str, float] = {}
        self._refused_since: float | None = None
        self._mute: list[_WorkerView] = []
        self._leases = queue.drivers()
        self._leases.claim(new_life())
        self._adopt()
        for name in queue.logs():
            self._view(name).skip = True

    @property
    def live(self) -> int:
        """The workers that run or are queued."""
        return sum(view.is_live(self._times.lost) for view in self.workers.values())

    def add(self, job: Job, inputs: Inputs) -> None:
        """Want a job done."""
        self._cancelled.discard(job.key)
        self.queue.add(job, inputs)
        self.wanted[job.key] = (job, inputs)

    def cancel(self, key: str) -> None:
        """Want a job no longer."""
        del self.wanted[key]
        self._cancelled.add(key)
        self.queue.drop(key)

    def look(self) -> list[Finished]:
        """Pass on what workers said; gives the jobs that ended.

        Raises:
            UsageError: A worker refuses to work, or workers end before they say a word.
        """
        done = self.queue.done()
        ended = [end for key in self.wanted if key in done and (end := self.queue.end_of(key))]
        self._hear()
        if self._is_due("claims", 1.0):
            self._restore()
            ended += self._lost({end.key for end in ended})
        if self._is_due("states", self._times.states):
            self._adopt()
            self._ask_states()
        for end in ended:
            del self.wanted[end.key]
        for key in self._cancelled & done:
            self.queue.remove(key)
        return ended

    def ask(self, most: int) -> None:
        """Ask Slurm for one array of as many workers as there are jobs without one, `most` at once.

        Raises:
            UsageError: Slurm refuses.
            StoreError: The disk is full.
        """
        count = min(len(self.wanted) - self.live, most)
        if count <= 0 or not self._is_due("wave", self._times.wave):
            return
        try:
            with _clean_environment():
                tasks = self._submit.submit_array([self._worker] * count)
        except OSError as error:
            raise files.write_error(self.queue.folder, error) from error
        except RuntimeError as error:  # submitit's errors
            self._refuse(str(error))
            return
        self._refused_since = None
        for task in tasks:
            self._view(task.job_id).task = task
        self.queue.add_array([task.job_id for task in tasks])
        if self._submit.cluster != NAME:
            for task in tasks:
                task.results()  # it runs here and now

    def close(self, keep: set[str]) -> None:
        """Leave; the last driver of a queue cancels its workers and removes it but for some jobs' ends."""
        self._leases.close()
        if self.queue.is_used():
            return
        self._adopt()
        if self._cancel_tasks():
            self._wait(lambda: not any(self._speaks(view) for view in self.workers.values()), _FAREWELL)
        self.queue.clear(keep)

    def stop_jobs(self, seconds: float) -> None:
        """Have workers stop the jobs of this driver, a training with a checkpoint; waits for that."""
        for key in self.wanted:
            self.queue.drop(key)
        self._wait(lambda: not self._held(), seconds)

    def _held(self) -> list[str]:
        """The jobs of this driver that living workers still run."""
        done = self.queue.done()
        claims = {key: claim for key, claim in self.queue.claims().items() if key in self.wanted}
        return [
            key
            for key, claim in claims.items()
            if key not in done and not self._view(claim.worker).loss(claim, self._times.lost)
        ]

    def _speaks(self, view: _WorkerView) -> bool:
        return bool(view.life) and not view.queued and view.is_live(self._times.lost)

    def _wait(self, over: Callable[[], bool], seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not over() and time.monotonic() < ends:
            time.sleep(self._times.look)
            with contextlib.suppress(HarnessError):
                self._hear()

    def _is_due(self, what: str, seconds: float) -> bool:
        """Whether something is to be done again, so many seconds after the last time."""
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + seconds
        return True

    def _view(self, worker: str) -> _WorkerView:
        if worker not in self.workers:
            self.workers[worker] = _WorkerView(log=self.queue.log(worker), heard=time.monotonic())
        return self.workers[worker]

    def _hear(self) -> None:
        """Read what workers have said."""
        for name in self.queue.logs():
            view = self._view(name)
            for message in view.log.read():
                view.heard = time.monotonic()
                self._take(view, message)
            view.skip = False

    def _take(self, view: _WorkerView, message: WorkerMessage) -> None:
        if message.kind == "start":
            view.life, view.host, view.devices = message.life, message.text, message.devices
            view.end, view.state, view.queued = "", "", False
            self._mute.clear()
        elif message.kind == "event" and message.event is not None:
            if message.key in self.wanted and not view.skip:
                self._listener(message.key, message.event)
        elif message.kind == "end" and message.text == REQUEUED:
            view.queued = True
        elif message.kind in ("end", "refusal"):
            view.end = message.text
            if message.kind == "refusal" and not view.skip:
                raise refused(message.text)
            if message.text.startswith(FULL) and not view.skip:
                raise StoreError(f"A worker on {view.host}: {message.text.removeprefix(FULL).strip()}")

    def _restore(self) -> None:
        """Put back jobs that another driver of the same queue has removed."""
        missing = self.wanted.keys() - self.queue.wanted()
        if missing:
            self.queue.prepare()
        for key in missing - self.queue.done() if missing else ():
            self.queue.add(*self.wanted[key])

    def _lost(self, ended: set[str]) -> list[Finished]:
        """The jobs whose worker is gone."""
        found = []
        for key, claim in self.queue.claims().items():
            view = self._view(claim.worker)
            reason = view.loss(claim, self._times.lost) if key in self.wanted.keys() - ended else ""
            if reason and key not in self.queue.done():
                files.writable(self.queue.folder)  # where it is not, the worker could not say so
                self.queue.remove(key)
                cause: Cause = "memory" if view.state.startswith("OUT_OF_ME") else "node"
                found.append(
                    Finished(key=key, failure=Failure(kind="WorkerLost", message=reason, cause=cause))
                )
        return found

    def _adopt(self) -> None:
        """Learn of the workers that other drivers have asked for, or an earlier one."""
        if self._submit.cluster != NAME:
            return
        from submitit import SlurmJob

        for name in self.queue.array_tasks():
            if self._view(name).task is None:
                self._view(name).task = SlurmJob(folder=self._submit.folder, job_id=name)

    def _ask_states(self) -> None:
        """Ask Slurm for the workers that are over; one call of sacct tells of all."""
        open_ones = [view for view in self.workers.values() if view.task is not None and not view.state]
        tasks = [view.task for view in open_ones if view.task is not None]
        if self._submit.cluster != NAME or not tasks:
            return
        tasks[0].get_info(mode="force")
        self._hear()
        for view, task in zip(open_ones, tasks, strict=True):
            if task.watcher.is_done(task.job_id, mode="cache"):
                view.state = task.watcher.get_state(task.job_id, mode="cache")
                if not view.life and not view.state.startswith(_NO_FAULT):
                    self._mute.append(view)
        self._require_words()

    def _require_words(self) -> None:
        """Give up where workers, one after the other, end before they can say anything."""
        if len(self._mute) >= _MUTE:
            last = self._mute[-1]
            assert last.task is not None
            raise UsageError(
                f"Workers of Slurm end before they say a word, the last as {last.state}. {_tail(last.task)}",
                hint=f"Every machine of the partition must see {self.queue.folder.parent.parent} under this "
                "name and have the same Python; what a worker needs before it starts is setup=LINE.",
            )

    def _refuse(self, reason: str) -> None:
        """Raise the refusal of Slurm; one of more workers, which may pass, not before some time."""
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        if not self.workers or (not self.live and now - self._refused_since > self._times.refusal):
            raise _refused_by_slurm(reason)

    def _cancel_tasks(self) -> bool:
        """Cancel all workers in one call; whether there were any."""
        views = [
            view for view in self.workers.values() if not view.state or view.state.startswith("NODE_FAIL")
        ]
        tasks = [view.task.job_id for view in views if view.task is not None]
        if tasks and self._submit.cluster == NAME:
            arrays = sorted({task.split("_")[0] for task in tasks})
            subprocess.run(["scancel", *arrays], check=False, capture_output=True)
        return bool(tasks) and self._submit.cluster == NAME


class SlurmExecutor:
    """Workers of a Slurm cluster that take jobs from a queue in the results folder.

    Attributes:
        name: The workers, for the user.

    Args:
        settings: What to ask of Slurm.
        worker: What the workers' processes are given.
        folder: The results folder, which all machines see under one name.
        listener: Where events of jobs go.
        kind: Whether jobs run on GPUs.
        cluster: Submitit's name of the cluster; "debug" runs one worker at a time in this process.
        times: How often things are looked at.

    Raises:
        UsageError: Submitit is not installed, there is no Slurm here, or it keeps no accounts.
        StoreError: The queue cannot be written.
    """

    def __init__(
        self,
        settings: SlurmSettings,
        *,
        worker: WorkerSettings,
        folder: Path,
        listener: Listener,
        kind: Literal["cpu", "cuda"],
        cluster: Literal["slurm", "debug"] = "slurm",
        times: SlurmTimes | None = None,
    ) -> None:
        _require_submitit()
        if cluster == NAME:
            _require_slurm()
        self._settings, self._worker, self._kind, self._cluster = settings, worker, kind, cluster
        self._folder, self._listener = folder.absolute() / "queue", listener
        self._times = times or SlurmTimes()
        self._lanes: dict[str, _Lane] = {}
        self._ended: deque[tuple[_Lane, Finished]] = deque()
        self._returned: tuple[_Lane, str] | None = None
        self._most = settings.workers if cluster == NAME else 1
        self.name = f"{NAME}: {_words(settings, self._most, kind)}"
        files.writable(self._folder)
        sweep(self._folder)

    def check(self, jobs: Iterable[Job]) -> None:
        """Refuse jobs for which Slurm has no machine, before anything starts.

        Raises:
            UsageError: A job needs more than its worker would have, or Slurm refuses such workers.
        """
        every = list(jobs)
        for job in every:
            self._require_fit(job)
        for gpus in sorted({self._gpus(job) for job in every}) if self._cluster == NAME else ():
            self._test(gpus)

    def lane(self, job: Job) -> str:
        """The lane of a job: the GPUs of its worker."""
        return str(self._gpus(job))

    def expect(self, lane: str, count: int) -> None:
        """Do nothing: workers are asked for by the jobs in the queue."""

    def running(self) -> tuple[str, ...]:
        """None: a job that is in the queue already is found when it is submitted."""
        return ()

    def has_room(self, job: Job) -> bool:
        """Whether there are few jobs in the queue yet."""
        lane = self._lanes.get(self.lane(job))
        return lane is None or len(lane.wanted) < _AHEAD * self._settings.workers

    def submit(self, job: Job, inputs: Inputs) -> Seat:
        """Put a job into the queue, or wait for the one that an earlier driver has put there."""
        self._acknowledge()
        name = self.lane(job)
        if name not in self._lanes:
            self._lanes[name] = self._open(self._gpus(job))
        self._lanes[name].add(job, inputs)
        gpus = self._gpus(job)
        return Seat(node=NAME, devices=("GPU",) * gpus or ("cpu",))

    def poll(self, seconds: float) -> list[Finished]:
        """Pass on events, and ask for workers; gives one job that ended, after `seconds` at the latest.

        The end of a job stays in the queue until the next call, by which the driver has stored it.

        Raises:
            UsageError: A worker refuses to work, or Slurm to give any.
            StoreError: The queue cannot be written.
        """
        self._acknowledge()
        ends = time.monotonic() + seconds
        while not self._ended:
            for lane in [*self._lanes.values()]:
                self._ended += ((lane, finished) for finished in lane.look())
                self._ask(lane)
            left = ends - time.monotonic()
            if left <= 0 or self._ended:
                break
            time.sleep(min(self._times.look, left))
        if not self._ended:
            return []
        lane, finished = self._ended.popleft()
        self._returned = (lane, finished.key)
        return [finished]

    def cancel(self, key: str) -> None:
        """Have a job's worker stop it, whose end is not told any more; a training writes a checkpoint."""
        for lane in self._lanes.values():
            if key in lane.wanted:
                lane.cancel(key)
        for one in [one for one in self._ended if one[1].key == key]:
            one[0].queue.remove(key)
            self._ended.remove(one)

    def nodes(self) -> tuple[Node, ...]:
        """The machines with workers, and the workers that were asked for."""
        every = [(lane, view) for lane in self._lanes.values() for view in lane.workers.values()]
        live = [one for one in every if one[1].is_live(self._times.lost)]
        waiting = sum(view.is_asked_for for _, view in live)
        hosts: dict[str, list[tuple[_Lane, _WorkerView]]] = {}
        for one in live:
            if not one[1].is_asked_for:
                hosts.setdefault(one[1].host, []).append(one)
        found = [self._node(host, views) for host, views in sorted(hosts.items())]
        return (*found, *([Node(name=NAME, state="asked for", workers=waiting)] if waiting else []))

    def close(self) -> None:
        """Stop running jobs, a training with a checkpoint, and leave nothing in Slurm's queue."""
        self._acknowledge()
        keep = {finished.key for _, finished in self._ended}
        try:
            for lane in self._lanes.values():
                keep |= lane.wanted.keys()
                lane.stop_jobs(LAST_CHECKPOINT + 20)
        finally:
            for lane in self._lanes.values():
                lane.close(keep)
            with contextlib.suppress(OSError):
                self._folder.rmdir()  # where nothing is left in it

    def _acknowledge(self) -> None:
        """Remove what the driver has stored since the last call."""
        if self._returned is not None:
            lane, key = self._returned
            lane.queue.remove(key)
            self._returned = None

    def _ask(self, lane: _Lane) -> None:
        """Ask for workers of a lane, which has one at least where others have taken all."""
        free = self._most - sum(other.live for other in self._lanes.values())
        lane.ask(max(free, int(not lane.live)))

    def _node(self, host: str, workers: Sequence[tuple[_Lane, _WorkerView]]) -> Node:
        lives = {view.life for _, view in workers}
        claims = [claim for lane in {lane for lane, _ in workers} for claim in lane.queue.claims().values()]
        devices = sorted({view.devices for _, view in workers})
        busy = len({claim.life for claim in claims} & lives)
        return Node(name=host, devices=tuple(devices), workers=len(workers), busy=busy)

    def _gpus(self, job: Job) -> int:
        return max(self._settings.gpus, job.resources.devices) if self._kind == "cuda" else 0

    def _require_fit(self, job: Job) -> None:
        memory, needed = self._settings.memory, (job.resources.memory or 0) / 1e9
        if memory and needed > memory:
            raise UsageError(
                f"{job.label} needs {needed:.1f} GB of memory, and a worker has {memory:g}.",
                hint=f"Ask for more: memory={int(needed) + 1}.",
            )
        if self._kind == "cpu" and job.resources.devices > 1:
            raise UsageError(
                f"{job.label} needs {job.resources.devices} devices, and a worker without GPUs has one.",
                hint="Give it one device, or run on GPUs.",
            )

    def _test(self, gpus: int) -> None:
        """Have Slurm say whether there is a machine for such workers."""
        given = {key.replace("_", "-"): value for key, value in self._options(gpus).items()}
        flags = [f"--{key}" if value is True else f"--{key}={value}" for key, value in given.items()]
        with _clean_environment():
            done = _run(["sbatch", "--test-only", *flags, "--wrap=true"])
        if done.returncode:
            raise _refused_by_slurm(done.stderr)

    def _options(self, gpus: int) -> dict[str, str | int | bool]:
        """The options of sbatch for workers of so many GPUs."""
        one = self._settings
        given: dict[str, str | int | bool] = {
            "time": one.minutes,
            "cpus_per_task": one.cpus,
            "gpus_per_node": gpus,
            "mem": f"{int(1024 * one.memory)}MB" if one.memory else 0,
            **{name: getattr(one, name) for name in ("partition", "account", "qos", "comment", "nice")},
        }
        others = {name: value or True for name, value in one.sbatch}
        if {"gres", "gpus", "gpus-per-task"} & others.keys():  # a cluster that wants them named otherwise
            del given["gpus_per_node"]
        return {**{name: value for name, value in given.items() if value}, **others}

    def _open(self, gpus: int) -> _Lane:
        one, worker = self._settings, self._worker
        resources = {"kind": self._kind, "gpus": gpus, "cpus": one.cpus, "memory": one.memory}
        process = {"cache": str(worker.cache), "limits": asdict(worker.limits), "offline": worker.offline}
        process |= {"libraries": worker.libraries}
        name = digest({**resources, **process, "environment": dict(worker.environment)})[:16]
        task = QueueWorker(
            settings=worker,
            queue=self._folder / name,
            kind=self._kind,
            gpus=gpus,
            seconds=60.0 * one.minutes,
            idle=one.idle if self._cluster == NAME else 0.0,
            beat=self._times.beat,
            warning=self._times.warning,
        )
        submit = self._submitit(task.queue / "logs", gpus)
        return _Lane(
            JobQueue(task.queue), worker=task, submit=submit, listener=self._listener, times=self._times
        )

    def _submitit(self, logs: Path, gpus: int) -> AutoExecutor:
        """Submitit's executor for workers of so many GPUs."""
        from submitit import AutoExecutor

        if self._cluster != NAME:
            return AutoExecutor(folder=logs, cluster=self._cluster)
        found = AutoExecutor(folder=logs, cluster=NAME, slurm_max_num_timeout=1_000_000)
        options = self._options(gpus)
        names = ("time", "cpus_per_task", "gpus_per_node", "mem", "partition", "account", "qos", "comment")
        own = {f"slurm_{name}": options.pop(name) for name in names if name in options}
        found.update_parameters(
            name="harness",
            slurm_signal_delay_s=self._times.warning,
            slurm_array_parallelism=self._settings.workers,
            slurm_srun_args=[
                f"--cpus-per-task={self._settings.cpus}"
            ],  # Slurm 22.05 and newer do not pass it on
            slurm_setup=[self._settings.setup] if self._settings.setup else None,
            slurm_additional_parameters={key.replace("_", "-"): value for key, value in options.items()},
            **own,
        )
        return found


def _words(settings: SlurmSettings, workers: int, kind: str) -> str:
    where = f"partition {settings.partition}" if settings.partition else "the default partition"
    count, unit = (settings.gpus, "GPU") if kind == "cuda" else (settings.cpus, "CPU")
    return f"{where}, {_plural(workers, 'worker')} of {_plural(count, unit)}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


# Slurm and submitit


def _require_submitit() -> None:
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--executor {NAME} needs submitit, which is not installed.",
            hint="`pip install 'encoder-harness[slurm]'` installs it.",
        ) from error


def _require_slurm() -> None:
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"There is no Slurm in reach: not on the PATH: {', '.join(missing)}.",
            hint="Run this on a login node of the cluster, or leave out --executor to use this machine.",
        )
    done = _run(["sacct", "--noheader", "--jobs=1", "--format=JobID"])
    if done.returncode:
        raise UsageError(
            f"sacct, which says what became of workers, does not answer: {done.stderr.strip()}",
            hint="Slurm's accounting must be on (AccountingStorageType); ask who runs the cluster.",
        )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} did not answer in two minutes.")


def _clean_environment() -> contextlib.AbstractContextManager[None]:
    """No variables of Slurm, which a worker would inherit from the job that a driver runs in."""
    from submitit.helpers import clean_env

    return clean_env()


def _refused_by_slurm(reason: str) -> UsageError:
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    plain = " ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines)
    return UsageError(
        f"Slurm refuses to queue workers: {plain}",
        hint="`sinfo` lists partitions, `sacctmgr show assoc user=$USER` accounts and qualities of service; "
        f"they are settings: --executor {NAME}:partition=NAME,account=NAME.",
    )


def _tail(task: Task[str]) -> str:
    """The last lines that a worker has printed."""
    with contextlib.suppress(OSError):
        text = "".join(filter(None, (task.stdout(), task.stderr())))
        if lines := [line for line in text.splitlines() if line.strip()]:
            return f"It said: {' / '.join(lines[-3:])}"
    return f"It left no output in {task.paths.folder}."
