"""The executor of a Slurm cluster: submitit's job arrays, one array task for a group of jobs of one model.

submitit submits, requeues and cancels, and Slurm decides when and where a task runs. A task runs its jobs one
after the other and leaves the end of each in a folder, from which the driver takes it; only the driver writes
records. On the signal before a preemption or the end of its time a task stops its job, which a training
answers with a checkpoint, and submitit queues it again with the jobs that are left (see `slurm_worker.py`).
Jobs that become ready later are a new array. The folder of a driver is
`RESULTS/queue/<digest of the settings>-<id>/`:

    arrays/ID    the tasks of an array and the keys of their jobs, for a driver that comes after a killed one
    done/KEY     the end of a job, until the driver has stored it
    log/GROUP    what a group of jobs says, a line of JSON each
    stop/NAME    a job of a group that is to stop, or not to begin again, or `all`
    submitit/    submitit's own files
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import secrets
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.core import files
from harness.core.errors import HarnessError, StoreError, UsageError, require_package
from harness.core.keys import digest
from harness.core.types import build_artifact_slug
from harness.executors.executor import SLURM as NAME
from harness.executors.executor import Failure, Finished, Inputs, Listener, SlurmSettings
from harness.executors.local import LAST_CHECKPOINT
from harness.executors.node import WorkerSettings, build_refusal_error
from harness.executors.run_log import Node, format_count
from harness.executors.slurm_worker import JobGroup, read_end
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.storage.record import RECORDS
from harness.storage.remote_and_leases import Leases
from harness.storage.store import Store

if TYPE_CHECKING:
    from submitit import AutoExecutor
    from submitit import Job as Task

_COMMANDS = ("sbatch", "srun", "sacct", "scancel", "scontrol")
"""The commands of Slurm that are called, here or by submitit."""

MOST = 1000
"""Jobs that the driver hands over before some have ended."""

_MUTE = 4
"""Tasks that may end without having reported anything before the run is given up."""

_NO_FAULT = ("CANCELLED", "NODE_FAIL", "PREEMPTED", "COMPLETED")
"""States of tasks that have not failed by themselves."""

WEEK = 7 * 24 * 3600.0
"""The age after which the folder of a driver that is gone is removed; a living one renews its lease in it."""

_FAREWELL = 5.0
"""Seconds in which tasks without a training end after they were told to."""


@dataclass(frozen=True, kw_only=True)
class SlurmTimes:
    """Seconds between two looks at something.

    Attributes:
        look: Between two looks at the folder.
        states: Between two calls of sacct, which tells of all tasks, and two looks for a dead driver's.
        wave: Between two calls of sbatch while tasks are at work, so that an array has many jobs.
        refusal: For which sbatch may refuse tasks while none is at work, if it has accepted some before.
        warning: Between the warning to a task and the end of its time: enough for a last checkpoint.
    """

    look: float = 0.5
    states: float = 30.0
    wave: float = 10.0
    refusal: float = 600.0
    warning: int = 120


@dataclass(kw_only=True)
class _GroupView:
    """What the driver knows of a task of an array: its unfinished jobs, and what its log has said."""

    folder: Path
    group: str
    keys: set[str]
    task: Task[str]
    size: int = 0
    host: str = ""
    devices: str = ""
    started: bool = False
    spoke: bool = False
    ended: bool = False
    last: str = ""
    state: str = ""

    @property
    def is_live(self) -> bool:
        return bool(self.keys) and not self.state and not self.ended

    def note(self, said: Mapping[str, Any]) -> None:
        """Note what a line of its log says of the task itself."""
        match said["kind"]:
            case "start":
                self.host, self.devices = said["text"], said["devices"]
                self.started, self.spoke, self.ended = True, True, False
            case "requeued":
                self.started = False
            case "end" | "refusal":
                self.ended = True

    def read_log_entries(self) -> Iterator[dict[str, Any]]:
        """The lines that came since the last call."""
        try:
            with (self.folder / "log" / self.group).open("rb") as file:
                file.seek(self.size)
                added = file.read()
        except OSError:
            return
        # On a shared file system the end of the last line may come later; it is read with the next ones.
        complete_lines = added[: added.rfind(b"\n") + 1]
        self.size += len(complete_lines)
        for line in filter(None, complete_lines.decode("utf-8", errors="replace").split("\n")):
            with contextlib.suppress(ValueError):
                yield json.loads(line)


class SlurmExecutor:
    """Job arrays of a Slurm cluster.

    Attributes:
        name: The workers, for the user.

    Args:
        settings: What to ask of Slurm.
        worker: What the processes of tasks are given.
        folder: The results folder, which all machines see under one name.
        listener: Where events of jobs go.
        kind: Whether jobs run on GPUs.
        cluster: Submitit's name of the cluster; "debug" runs one task at a time in this process.
        times: How often things are looked at.

    Raises:
        UsageError: Submitit is not installed, Slurm is not found, or its accounting is off.
        StoreError: The folder cannot be written.
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
        require_package("submitit", extra="slurm", purpose=f"--executor {NAME}")
        if cluster == NAME:
            _require_slurm()
        self._settings, self._worker, self._kind, self._cluster = settings, worker, kind, cluster
        self._listener, self._times = listener, times or SlurmTimes()
        self._most = settings.workers if cluster == NAME else 1
        where = f"partition {settings.partition}" if settings.partition else "the default partition"
        size = format_count(settings.gpus, "GPU") if kind == "cuda" else format_count(settings.cpus, "CPU")
        self.name = f"{NAME}: {where}, {format_count(self._most, 'worker')} of {size}"
        self._queue = folder.absolute() / "queue"
        # All that a task is given but its jobs: tasks of a dead driver with the same values are taken over.
        process = {"cache": str(worker.cache), "limits": asdict(worker.limits), "offline": worker.offline}
        process |= {"libraries": worker.libraries, "environment": dict(worker.environment), "kind": kind}
        self._alike = digest(process)[:16]
        self._folder = self._queue / f"{self._alike}-{secrets.token_hex(4)}"
        self._wanted: dict[str, Job] = {}
        self._waiting: dict[str, tuple[Job, bytes]] = {}
        self._views: list[_GroupView] = []
        self._mute: list[_GroupView] = []
        self._stored: list[Path] = []
        self._next: dict[str, float] = {}
        self._refused_since: float | None = None
        self._accepted = False
        self._leases: dict[Path, Leases] = {}
        self._rivals: dict[Path, Leases] = {}
        for part in ("arrays", "done", "log", "stop", "submitit"):
            files.require_writable(self._folder / part)
        self._claim(self._folder)
        for other in self._queue.iterdir():
            with contextlib.suppress(OSError):
                # A living driver renews a file in its folder all the time (its lease).
                changed = [path.stat().st_mtime for path in (other, *other.glob("*"))]
                if time.time() - max(changed) > WEEK:
                    shutil.rmtree(other, ignore_errors=True)

    def check_jobs(self, jobs: Iterable[Job]) -> None:
        """Refuse jobs for which Slurm has no machine, before anything starts.

        Raises:
            UsageError: A job needs more than its worker would have, or Slurm refuses such workers.
        """
        every = list(jobs)
        for job in every:
            self._require_fit(job)
        for gpus in sorted({self._count_gpus(job) for job in every}) if self._cluster == NAME else ():
            # --test-only asks the scheduler whether there is a machine for such workers, and queues nothing.
            options = {n.replace("_", "-"): value for n, value in self._build_sbatch_options(gpus).items()}
            flags = [f"--{n}" if value is True else f"--{n}={value}" for n, value in options.items()]
            with _clean_environment():
                done = _run_slurm_command(["sbatch", "--test-only", *flags, "--wrap=true"])
            if done.returncode:
                raise _build_slurm_error(done.stderr)

    @property
    def nodes(self) -> Sequence[Node]:
        """The machines with tasks, and the tasks that wait for one."""
        hosts: dict[str, list[_GroupView]] = defaultdict(list)
        for view in self._views:
            if view.is_live:
                hosts[view.host if view.started else ""].append(view)
        waiting = len(hosts.pop("", []))
        busy_nodes = [
            Node(
                name=host,
                devices=tuple({view.devices for view in views}),
                workers=len(views),
                busy=len(views),
            )
            for host, views in sorted(hosts.items())
        ]
        return (*busy_nodes, *([Node(name=NAME, state="asked for", workers=waiting)] if waiting else []))

    def has_room(self, job: Job) -> bool:
        """Whether the driver has handed over few jobs yet, whatever the job is."""
        return len(self._wanted) < MOST

    def submit(self, job: Job, inputs: Inputs) -> None:
        """Take a job for the next array, or wait for it where an earlier driver has left it."""
        self._remove_stored()  # among them an earlier end of this job, which is tried again
        self._acquire_orphan_tasks()
        self._wanted[job.key] = job
        # A job that a task of an earlier driver runs, or whose end lies in a folder, is not queued twice.
        is_running = any(job.key in view.keys and view.is_live for view in self._views)
        if not is_running and not any((folder / "done" / job.key).exists() for folder in self._leases):
            self._waiting[job.key] = (job, pickle.dumps((job, dict(inputs))))

    def poll_jobs(self, seconds: float) -> list[Finished]:
        """Submit what waits and pass on events; gives the jobs that ended, after `seconds` at the latest.

        The end of a job stays in its folder until the next call, by which the driver has stored it.

        Raises:
            UsageError: A task refuses to work, or Slurm to take any.
            StoreError: The folder cannot be written.
        """
        self._remove_stored()
        ends = time.monotonic() + seconds
        while True:
            self._submit_waiting()
            self._read_task_logs()
            ended = [*self._collect(), *self._look_at_states()]
            left = ends - time.monotonic()
            if ended or left <= 0:
                return ended
            time.sleep(min(self._times.look, left))

    def cancel_job(self, key: str) -> None:
        """Tell a job's task to stop it; its end is not reported. A training writes a checkpoint."""
        self._waiting.pop(key, None)
        self._forget(key)

    def close_executor(self) -> None:
        """Stop running jobs, a training with a checkpoint, and leave nothing in Slurm's queue."""
        self._remove_stored()
        trains = any(job.kind == "train" for job in self._wanted.values())
        for folder in self._leases:
            with contextlib.suppress(OSError):
                (folder / "stop" / "all").touch()
        # scancel leaves a task KillWait seconds (30 by default), so tasks are asked first, by a file.
        ends = time.monotonic() + (LAST_CHECKPOINT + 20 if trains else _FAREWELL)
        while any(view.started and view.is_live for view in self._views) and time.monotonic() < ends:
            time.sleep(self._times.look)
            with contextlib.suppress(HarnessError):
                self._read_task_logs()
        # Task ids are ARRAY_NUMBER; the number of the array cancels all of its tasks.
        arrays = {view.task.job_id.split("_")[0] for view in self._views if not view.state}
        if arrays and self._cluster == NAME:
            _run_slurm_command(["scancel", *sorted(arrays)])
        for folder, leases in self._leases.items():
            leases.release_leases()
            if any((folder / "done").glob("[!.]*")):  # ends that nobody has stored wait for the next driver
                for part in ("arrays", "log", "stop", "submitit"):
                    shutil.rmtree(folder / part, ignore_errors=True)
            else:
                # Renamed first: a task that is just ending may add a file while others are removed.
                removed = folder.with_name(f".{folder.name}")
                try:
                    folder.rename(removed)
                except OSError:
                    removed = folder
                shutil.rmtree(removed, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._queue.rmdir()  # where nothing is left in it

    # What earlier drivers have left

    def _claim(self, folder: Path) -> bool:
        """Take a driver's folder, unless its driver lives, as far as was seen so far."""
        leases = self._rivals.setdefault(folder, Leases(folder))
        if leases.claim("driver"):
            self._leases[folder] = self._rivals.pop(folder)
        return folder in self._leases

    def _acquire_orphan_tasks(self) -> None:
        """Take over the tasks and ends of drivers with the same settings that are gone."""
        if not self._is_due("adopt", self._times.look if self._rivals else self._times.states):
            return
        from submitit import SlurmJob

        self._rivals = {folder: leases for folder, leases in self._rivals.items() if folder.exists()}
        for folder in self._queue.glob(f"{self._alike}-*"):
            if folder not in self._leases and self._claim(folder):
                for path in (folder / "done").glob("[!.]*"):
                    end = read_end(path)
                    # What failed is tried again, and nobody wants what its driver has stored.
                    if end.failure is not None or self._has_record(end):
                        path.unlink(missing_ok=True)
                for path in (folder / "arrays").glob("*"):
                    for task, (group, keys) in json.loads(path.read_bytes()).items():
                        job = SlurmJob[str](folder=folder / "submitit", job_id=task)
                        view = _GroupView(folder=folder, group=group, keys={*keys}, task=job)
                        for entry in view.read_log_entries():  # its events so far are those of another run
                            view.note(entry)
                        self._views.append(view)
                        for key in keys:
                            self._waiting.pop(key, None)

    def _has_record(self, end: Finished) -> bool:
        """Whether the record of an end is stored, and not one that it is to replace."""
        if "record" not in end.output:
            return False
        # An end of another version, or a record that cannot be read.
        with contextlib.suppress(HarnessError, ValueError):
            record, store = RECORDS.parse(end.output["record"].decode(), where=end.key), self._queue.parent
            slug = build_artifact_slug(record.model.name, record.model.artifact)
            stored = Store.read_record(Store(store).locate_record(slug, record.task.name, end.key))
            return (
                stored is not None
                and stored.purpose in ("final", record.purpose)
                and stored.model.weights == record.model.weights
                and stored.provenance.get("written", "") >= record.provenance.get("written", "")
            )
        return False

    # Arrays

    def _submit_waiting(self) -> None:
        """Ask Slurm for one array of each number of GPUs with the jobs that wait, as far as workers are free.

        Raises:
            UsageError: Slurm refuses.
            StoreError: The disk is full.
        """
        free = self._most - sum(view.is_live for view in self._views)
        if not self._waiting or free <= 0:
            return
        # While tasks are at work, jobs are gathered for some seconds: a few large arrays are easier on
        # Slurm than many small ones.
        busy = free < self._most or self._refused_since is not None
        if busy and time.monotonic() < self._next.get("wave", 0.0):
            return
        self._next["wave"] = time.monotonic() + self._times.wave
        by_gpus: dict[int, list[Job]] = defaultdict(list)
        for job, _ in self._waiting.values():
            by_gpus[self._count_gpus(job)].append(job)
        for gpus, jobs in by_gpus.items():
            groups = [
                JobGroup(
                    name=secrets.token_hex(6),
                    folder=self._folder,
                    jobs={job.key: self._waiting[job.key][1] for job in part},
                    settings=self._worker,
                    kind=self._kind,
                    gpus=gpus,
                    minutes=self._settings.minutes,
                    warning=self._times.warning,
                )
                for part in _split_jobs(jobs, max(1, free))[: max(0, free)]
            ]
            free -= len(groups)
            for start in range(0, len(groups), most := _read_array_limit()):
                self._submit_array(groups[start : start + most], gpus)

    def _submit_array(self, groups: list[JobGroup], gpus: int) -> None:
        submit = self._create_task_executor(gpus)
        try:
            with _clean_environment():
                tasks = submit.submit_array(groups)
        except OSError as error:
            raise files.write_error(self._folder, error) from error
        except RuntimeError as error:  # submitit's errors
            self._refuse(str(error))
            return
        self._refused_since, self._accepted = None, True
        pairs = list(zip(tasks, groups, strict=True))
        noted = {task.job_id: (group.name, [*group.jobs]) for task, group in pairs}
        # A driver that is killed just before this line leaves tasks that no other can watch; their ends are
        # found all the same, as they lie in done/.
        files.write_once(self._folder / "arrays" / tasks[0].job_id, json.dumps(noted).encode())
        for task, group in pairs:
            view = _GroupView(folder=self._folder, group=group.name, keys={*group.jobs}, task=task)
            self._views.append(view)
            for key in group.jobs:
                del self._waiting[key]
            if self._cluster != NAME:
                task.results()  # it runs here and now

    def _refuse(self, reason: str) -> None:
        """Raise the refusal of Slurm, at once if it has accepted no task yet, else only after some time.

        A limit on tasks that wait or run (of a user, say) passes when some have ended.

        Raises:
            UsageError: Slurm refuses.
        """
        now = time.monotonic()
        self._refused_since = self._refused_since or now
        live = any(view.is_live for view in self._views)
        if not self._accepted or (not live and now - self._refused_since > self._times.refusal):
            raise _build_slurm_error(reason)

    # What tasks say, and what Slurm says of them

    def _read_task_logs(self) -> None:
        """Read what tasks have said.

        Raises:
            UsageError: A task refuses to work.
            StoreError: A task has no room for its output.
        """
        sizes: dict[tuple[Path, str], int] = {}
        for folder in self._leases:
            with contextlib.suppress(FileNotFoundError):  # a folder with ends only
                sizes |= {(folder, log.name): log.stat().st_size for log in os.scandir(folder / "log")}
        for view in self._views:
            # Only logs that have grown are opened: there may be hundreds, on a network file system.
            has_grown = sizes.get((view.folder, view.group), 0) > view.size
            for entry in view.read_log_entries() if has_grown else ():
                view.note(entry)
                match entry["kind"]:
                    case "start":
                        self._mute.clear()
                    case "event" if entry["key"] in self._wanted:
                        self._listener(entry["key"], Event(**entry["event"]))
                    case "refusal":
                        raise build_refusal_error(entry["text"])
                    case "full":
                        raise StoreError(f"A worker on {view.host}: {entry['text']}")

    def _collect(self) -> Iterator[Finished]:
        """The ends of jobs that are wanted."""
        for folder in self._leases:
            with contextlib.suppress(OSError):
                for name in os.listdir(folder / "done"):
                    if name in self._wanted:
                        self._forget(name)
                        self._stored.append(folder / "done" / name)
                        yield read_end(folder / "done" / name)

    def _forget(self, key: str) -> None:
        self._wanted.pop(key, None)
        for view in self._views:
            if key in view.keys:
                view.keys.discard(key)
                # A task that is queued again has all its jobs, and must not begin this one anew.
                with contextlib.suppress(OSError):
                    (view.folder / "stop" / f"{view.group}-{key}").touch()

    def _remove_stored(self) -> None:
        """Remove the ends that the driver has stored since the last call."""
        for path in self._stored:
            path.unlink(missing_ok=True)
        self._stored = []

    def _look_at_states(self) -> Iterator[Finished]:
        """The jobs that their task left unfinished when it ended; one call of sacct covers all tasks."""
        # sacct asks one database for the whole cluster, so it is called seldom.
        if self._cluster != NAME or not self._is_due("states", self._times.states):
            return
        self._acquire_orphan_tasks()
        # One look later whatever a task wrote last is seen on a shared file system, too.
        for view in [view for view in self._views if view.state]:
            self._views.remove(view)
            if not view.spoke and view.keys and not view.state.startswith(_NO_FAULT):
                self._mute.append(view)
                # Given up where several tasks in a row end before they report anything.
                if len(self._mute) >= _MUTE:
                    raise UsageError(
                        "Slurm workers end before they report anything; the last one's state is "
                        f"{view.state}. {_read_task_tail(view.task)}",
                        hint=f"Every machine of the partition must see {self._queue.parent} under this name "
                        "and have the same Python. Shell commands that a worker needs first, e.g. module "
                        "load: setup=LINE.",
                    )
            yield from (self._fail_lost_job(view, key) for key in [*view.keys] if key in self._wanted)
        if self._views:
            # submitit's watcher is shared by all tasks: this one call of sacct refreshes every one of them.
            self._views[0].task.get_info(mode="force")
        for view in self._views:
            watcher, name = view.task.watcher, view.task.job_id
            state = watcher.get_state(name, mode="cache")
            # A preempted task is queued again in a moment, or never: then it is PREEMPTED at two looks.
            gone = state.startswith("PREEMPTED") and view.last == state
            view.last = state
            if gone or (not state.startswith("PREEMPTED") and watcher.is_done(name, mode="cache")):
                view.state = state

    def _fail_lost_job(self, view: _GroupView, key: str) -> Finished:
        self._forget(key)
        files.require_writable(view.folder)  # where it is not, the task could not say so
        where = f" on {view.host}" if view.host else ""
        message = f"The worker {view.task.job_id}{where} is gone ({view.state})."
        # sacct cuts states to ten characters: OUT_OF_ME+.
        memory = view.state.startswith("OUT_OF_ME")
        failure = Failure(kind="WorkerLost", message=message, cause="memory" if memory else "node")
        return Finished(key=key, failure=failure)

    def _is_due(self, what: str, seconds: float) -> bool:
        """Whether `seconds` have passed since this was last due; if so, it counts from now on."""
        now = time.monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + seconds
        return True

    def _count_gpus(self, job: Job) -> int:
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

    def _build_sbatch_options(self, gpus: int) -> dict[str, str | int | bool]:
        """The options of sbatch for workers of so many GPUs."""
        settings = self._settings
        options: dict[str, str | int | bool] = {
            "time": settings.minutes,
            "cpus_per_task": settings.cpus,
            "gpus_per_node": gpus,
            "mem": f"{int(1024 * settings.memory)}MB" if settings.memory else 0,
            **{name: getattr(settings, name) for name in ("partition", "account", "qos", "comment", "nice")},
            "requeue": True,
        }
        others = {name: value or True for name, value in settings.sbatch}
        if {"gres", "gpus", "gpus-per-task"} & others.keys():  # a cluster that wants them named otherwise
            del options["gpus_per_node"]
        return {**{name: value for name, value in options.items() if value}, **others}

    def _create_task_executor(self, gpus: int) -> AutoExecutor:
        """Submitit's executor for tasks of so many GPUs."""
        from submitit import AutoExecutor

        logs = self._folder / "submitit"
        if self._cluster != NAME:
            return AutoExecutor(folder=logs, cluster=self._cluster)
        # submitit gives up a task after three timeouts, and a training may need more. A job that would never
        # end is found by JobGroup.checkpoint.
        executor = AutoExecutor(folder=logs, cluster=NAME, slurm_max_num_timeout=1_000_000)
        options = self._build_sbatch_options(gpus)
        names = ("time", "cpus_per_task", "gpus_per_node", "mem", "partition", "account", "qos", "comment")
        slurm_options = {f"slurm_{name}": options.pop(name) for name in names if name in options}
        executor.update_parameters(
            name="harness",
            slurm_signal_delay_s=self._times.warning,
            slurm_array_parallelism=self._settings.workers,
            # Since Slurm 22.05 srun does not take it over from sbatch (SLURM_CPUS_PER_TASK is ignored).
            slurm_srun_args=[f"--cpus-per-task={self._settings.cpus}"],
            slurm_setup=[self._settings.setup] if self._settings.setup else None,
            slurm_additional_parameters={key.replace("_", "-"): value for key, value in options.items()},
            **slurm_options,
        )
        return executor


def _split_jobs(jobs: Sequence[Job], tasks: int) -> list[list[Job]]:
    """Jobs in parts of one model each: as many as there are tasks, and one for each model at least.

    Long jobs are dealt out first, so that parts take about the same time.
    """
    by_model: dict[str, list[Job]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: -(job.resources.seconds or 0.0)):
        by_model[job.model].append(job)
    # Whole models first: a second task for one loads its weights once more.
    each = max(1, tasks // len(by_model))
    return [part for same in by_model.values() for start in range(each) if (part := same[start::each])]


def _read_array_limit() -> int:
    """The tasks that an array may have."""
    done = _run_slurm_command(["scontrol", "show", "config"]) if shutil.which("scontrol") else None
    size_match = re.search(r"MaxArraySize\s*=\s*(\d+)", done.stdout if done else "")
    # MaxArraySize is one more than the largest index of a task (slurm.conf(5)).
    return max(1, int(size_match[1]) - 1) if size_match else 1000


# Slurm and submitit


def _require_slurm() -> None:
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"Slurm was not found: {', '.join(missing)} not on the PATH.",
            hint="Run this on a login node of the cluster, or leave out --executor to use this machine.",
        )
    # Any job id will do: this only asks whether the accounting database answers.
    done = _run_slurm_command(["sacct", "--noheader", "--jobs=1", "--format=JobID"])
    if done.returncode:
        raise UsageError(
            f"sacct, which tells how workers ended, does not answer: {done.stderr.strip()}",
            hint="Slurm's accounting must be on (AccountingStorageType); ask the cluster's administrators.",
        )


def _run_slurm_command(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} did not answer in two minutes.")


def _clean_environment() -> contextlib.AbstractContextManager[None]:
    """A context without Slurm's variables, which workers would inherit if the driver runs in a job itself."""
    from submitit.helpers import clean_env

    return clean_env()


def _build_slurm_error(reason: str) -> UsageError:
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    plain = " ".join(line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines)
    return UsageError(
        f"Slurm refuses to queue workers: {plain}",
        hint="`sinfo` lists partitions, `sacctmgr show assoc user=$USER` accounts and qualities of service; "
        f"they are settings: --executor {NAME}:partition=NAME,account=NAME.",
    )


def _read_task_tail(task: Task[str]) -> str:
    """The last lines that a worker has printed."""
    with contextlib.suppress(OSError):
        text = "".join(filter(None, (task.stdout(), task.stderr())))
        if lines := [line for line in text.splitlines() if line.strip()]:
            return f"It said: {' / '.join(lines[-3:])}"
    return f"It left no output in {task.paths.folder}."
