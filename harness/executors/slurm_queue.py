"""A queue of jobs in a folder that drivers and workers on several machines share, and the worker, no server.

A job is a file for as long as a driver wants it done. A worker that runs it has a claim beside it, which it
wins by making a file that must not exist, so no rename has to be atomic; and who reads a claim back sees
whose it is. The end of a job lies there until the driver has stored it. Nothing is decided by a wall clock:
a worker is judged by what it writes. The folder has:

    jobs/KEY     a job and its inputs, while it is wanted
    running/KEY  the claim of the worker that runs it, or has run it
    done/KEY     its end
    workers/ID   the messages of a worker, a line of JSON each
    arrays/ID    the workers that a scheduler was asked for
    durations/   the seconds of the longest job of a task, of a kind, and of all
    drivers/     the leases of the drivers that use the queue
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.core import files
from harness.core.errors import StoreError
from harness.core.identity import digest
from harness.executors.executor import Failure, Finished, Inputs
from harness.executors.local import host_name
from harness.executors.node import NodeWorker, WorkerSettings, missing_devices, visible_devices
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.results.cost.duration import LIKELY
from harness.results.cost.remaining import LongestDurations
from harness.storage.leases import Leases

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

REQUEUED = "requeued"
"""The end of a worker that comes back."""

FULL = "out of room:"
"""The start of the end of a worker that could not write to the queue."""

GRACE = 2.0
"""Seconds in which a running job may still end when its worker has to stop."""

LEAST = 60.0
"""Seconds below which no further job is begun, whatever it is."""

LOOKS = 20
"""Jobs that are too long for the time left until a worker looks for no shorter one."""

WHOLE = 0.95
"""The part of a worker's time in which a job must have run to count as too long for any worker."""

_PARTS = ("jobs", "running", "done", "workers", "arrays", "durations", "drivers")

MessageKind = Literal["start", "beat", "event", "refusal", "end"]


@dataclass(frozen=True, kw_only=True)
class WorkerMessage:
    """What a worker says: its start (`text` is the machine), that it lives, a job's event, or its end.

    `life` is new with each start of a worker. A `refusal` says why its machine cannot run jobs, an `end` why
    it ends: "idle", "time", "stopped", "requeued", or what went wrong.
    """

    kind: MessageKind
    text: str = ""
    life: str = ""
    devices: str = ""
    key: str = ""
    event: Event | None = None

    def to_line(self) -> str:
        """The message as a line, which begins with a line feed: it ends one that was cut off."""
        said = {name: value for name, value in asdict(self).items() if value and name != "event"}
        if self.event is not None:
            usual = Event(kind=self.event.kind)
            names = [one.name for one in fields(Event) if one.name not in ("space", "content")]
            changed = {name: getattr(self.event, name) for name in names}
            said["event"] = {n: v for n, v in changed.items() if n == "kind" or v != getattr(usual, n)}
        return f"\n{json.dumps(said)}\n"

    @staticmethod
    def of_line(line: str) -> WorkerMessage | None:
        """The message of a line; None for one that was cut off."""
        try:
            said: dict[str, Any] = json.loads(line)
            event = said.pop("event", None)
            return WorkerMessage(**said, event=None if event is None else Event(**event))
        except (ValueError, TypeError):
            return None


class WorkerLog:
    """The messages of one worker, to which only it adds; any driver reads what is new to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0

    def add(self, message: WorkerMessage) -> None:
        """Add a message; on a full disk, or where the queue was removed, it is lost."""
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(message.to_line())

    def read(self) -> Iterator[WorkerMessage]:
        """The messages that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._size)
                added = file.read()
        except OSError:
            return
        whole = added[: added.rfind(b"\n") + 1]
        self._size += len(whole)
        for line in filter(None, whole.decode("utf-8", errors="replace").split("\n")):
            if (message := WorkerMessage.of_line(line)) is not None:
                yield message


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim of a worker on a job, in one of the worker's lives."""

    worker: str
    life: str


class JobQueue:
    """The jobs of one lane in a shared folder.

    Attributes:
        folder: The folder, which all machines see under one name.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def prepare(self) -> None:
        """Make the folders.

        Raises:
            StoreError: They cannot be made or written.
        """
        for part in _PARTS:
            files.writable(self.folder / part)

    # What drivers do

    def add(self, job: Job, inputs: Inputs) -> None:
        """Want a job done; one that is there already stays as it is.

        Raises:
            StoreError: It cannot be written.
        """
        files.write_once(self.folder / "jobs" / job.key, pickle.dumps((job, dict(inputs))))

    def drop(self, key: str) -> None:
        """Want a job no longer; its worker stops it."""
        self._unlink("jobs", key)

    def remove(self, key: str) -> None:
        """Forget a job, its claim and its end, in the order in which no worker takes it up again."""
        for part in ("jobs", "running", "done"):
            self._unlink(part, key)

    def wanted(self) -> set[str]:
        """The keys of the jobs that some driver wants, done or not."""
        return set(self._names("jobs"))

    def done(self) -> set[str]:
        """The keys of the jobs that ended."""
        return set(self._names("done"))

    def end_of(self, key: str) -> Finished | None:
        """The end of a job; None where there is none that can be read (yet)."""
        try:
            found = pickle.loads((self.folder / "done" / key).read_bytes())
        except OSError:
            return None
        except Exception as error:  # of classes that are not here, or damaged
            return Finished(key=key, failure=_unreadable(error, "What a worker wrote"))
        assert isinstance(found, Finished)
        return found

    def claims(self) -> dict[str, Claim]:
        """The claims on jobs, by key."""
        found = ((key, self._claim(key)) for key in self._names("running"))
        return {key: claim for key, claim in found if claim is not None}

    def logs(self) -> set[str]:
        """The workers that have said something."""
        return set(self._names("workers"))

    def add_array(self, tasks: list[str]) -> None:
        """Note workers that a scheduler was asked for, so that another driver knows of them."""
        files.write_once(self.folder / "arrays" / tasks[0], json.dumps(tasks).encode())

    def array_tasks(self) -> list[str]:
        """The workers that a scheduler was asked for, by any driver."""
        found: list[str] = []
        for name in self._names("arrays"):
            with contextlib.suppress(OSError, ValueError):
                found += json.loads((self.folder / "arrays" / name).read_bytes())
        return found

    def drivers(self) -> Leases:
        """The leases of drivers, for one of which a driver claims its own name."""
        return Leases(self.folder / "drivers")

    def is_used(self) -> bool:
        """Whether a living driver uses the queue."""
        return any(not Leases.lapsed(path) for path in (self.folder / "drivers").glob("*.json"))

    def clear(self, keep: set[str]) -> None:
        """Remove everything but the ends of some jobs."""
        kept = keep & self.done()
        for part in _PARTS:
            if not (part == "done" and kept):
                shutil.rmtree(self.folder / part, ignore_errors=True)
        for key in self.done() - kept:
            self._unlink("done", key)
        if not kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    # What workers do

    def log(self, worker: str) -> WorkerLog:
        """The messages of a worker."""
        return WorkerLog(self.folder / "workers" / worker)

    def free(self) -> list[str]:
        """The keys of jobs that nobody has taken, in the order in which they came."""
        keys = self.wanted() - set(self._names("running")) - self.done()
        return sorted(keys, key=self._since)

    def take(self, key: str, claim: Claim) -> tuple[Job, Inputs] | Failure | None:
        """Claim a job: its content, why it cannot be read here, or None where another was faster.

        A job whose end is there, or that is no longer wanted, is left alone: a driver removes a job before
        its end.

        Raises:
            StoreError: The claim cannot be written.
        """
        content = json.dumps(asdict(claim)).encode()
        if not files.write_once(self.folder / "running" / key, content) or not self.is_held(key, claim):
            return None
        if (self.folder / "done" / key).exists():  # a driver is removing it
            self.release(key, claim)
            return None
        try:
            job, inputs = pickle.loads((self.folder / "jobs" / key).read_bytes())
        except OSError:
            self.release(key, claim)
            return None
        except Exception as error:  # whatever its classes raise: a module that is not here
            return _unreadable(error, "The job")
        return job, inputs

    def is_held(self, key: str, claim: Claim) -> bool:
        """Whether a claim is still that of the job."""
        return self._claim(key) == claim

    def is_wanted(self, key: str) -> bool:
        """Whether a driver wants a job."""
        return (self.folder / "jobs" / key).exists()

    def finish(self, finished: Finished, claim: Claim) -> None:
        """Leave the end of a job, unless another worker has taken it meanwhile.

        Raises:
            StoreError: It cannot be written.
        """
        if self.is_held(finished.key, claim):
            files.write_once(self.folder / "done" / finished.key, pickle.dumps(finished))

    def release(self, key: str, claim: Claim) -> None:
        """Give a job back, which another may take then."""
        if self.is_held(key, claim):
            self._unlink("running", key)

    def release_former(self, now: Claim) -> None:
        """Give back what a worker held in former lives, and has not done."""
        for key, claim in self.claims().items():
            if claim.worker == now.worker and claim.life != now.life and key not in self.done():
                self.release(key, claim)

    def note_duration(self, job: Job, seconds: float) -> None:
        """Note that a job took so many seconds, or at least so many."""
        LongestDurations(self.folder / "durations").note(_alike(job), seconds)

    def estimate(self, job: Job) -> float:
        """The seconds that a job may take: of the longest of its task, else of its plan, else of others."""
        planned = LIKELY * (job.resources.seconds or 0.0)
        return LongestDurations(self.folder / "durations").expect(_alike(job), planned)

    def _names(self, part: str) -> list[str]:
        try:
            names = [path.name for path in (self.folder / part).iterdir()]
        except OSError:
            return []
        return [name for name in names if not name.startswith(".")]

    def _claim(self, key: str) -> Claim | None:
        try:
            return Claim(**json.loads((self.folder / "running" / key).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _since(self, key: str) -> float:
        try:
            return (self.folder / "jobs" / key).stat().st_mtime
        except OSError:
            return 0.0

    def _unlink(self, part: str, key: str) -> None:
        with contextlib.suppress(OSError):
            (self.folder / part / key).unlink()


def _alike(job: Job) -> tuple[str, ...]:
    """The names of the groups of jobs that a job is alike with, the narrowest first."""
    task = "" if job.place is None else digest([job.kind, job.place.task])[:16]
    return (*filter(None, [task]), job.kind, "all")


def new_life() -> str:
    """A name that no other start of a worker has."""
    return secrets.token_hex(8)


def _unreadable(error: Exception, what: str) -> Failure:
    return Failure(
        kind=type(error).__name__,
        message=f"{what} cannot be read here: {error}.",
        traceback=traceback.format_exc(),
    )


WEEK = 7 * 24 * 3600.0


def sweep(folder: Path, age: float = WEEK) -> None:
    """Remove queues of earlier versions or runs in which nothing has changed for so many seconds.

    Only times that the shared file system has set are compared.
    """
    probe = folder / f".probe.{new_life()}"
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return
    for queue in folder.iterdir():
        with contextlib.suppress(OSError):
            if now - max(path.stat().st_mtime for path in (queue, *queue.rglob("*"))) > age:
                shutil.rmtree(queue, ignore_errors=True)


# The worker, on a machine of the cluster


@dataclass(kw_only=True)
class QueueWorker:
    """The function that submitit runs on a machine of the cluster: it takes jobs from a queue.

    Attributes:
        settings: What its processes are given.
        queue: The folder of the queue.
        kind: Whether its jobs run on GPUs.
        gpus: The GPUs that it was promised.
        seconds: Its time.
        idle: The seconds after which it ends without a job.
        beat: The seconds between two messages that it lives.
        warning: The seconds before the end of its time at which it is told.
    """

    settings: WorkerSettings
    queue: Path
    kind: Literal["cpu", "cuda"]
    gpus: int
    seconds: float
    idle: float
    beat: float
    warning: float
    _loop: _Loop | None = field(default=None, init=False, repr=False)

    def __call__(self) -> str:
        """Work until there is no time or nothing to do; gives the reason of the end."""
        import submitit

        loop = self._loop = _Loop(self, submitit.JobEnvironment().job_id)
        if os.environ.get("SUBMITIT_EXECUTOR") == "slurm":  # submitit lets it pass; scancel sends it
            signal.signal(signal.SIGTERM, lambda *_: loop.stop())
        loop.start()
        try:
            while loop.is_alive():
                loop.join(1.0)
        finally:
            loop.stop()
            loop.join()
        return loop.outcome

    def checkpoint(self) -> DelayedSubmission:
        """Stop the running job and give it back; the same worker is queued anew."""
        from submitit.helpers import DelayedSubmission

        if self._loop is not None:
            self._loop.stop(REQUEUED)
            self._loop.join()
        return DelayedSubmission(replace(self))


class _Loop(threading.Thread):
    """The loop of a worker, apart from the thread that hears signals."""

    def __init__(self, task: QueueWorker, worker: str) -> None:
        super().__init__(name="jobs", daemon=True)
        self.outcome = ""
        self._task = task
        self._claim = Claim(worker=worker, life=new_life())
        self._queue = JobQueue(task.queue)
        self._log = self._queue.log(worker)
        self._began = time.monotonic()
        self._said = self._next_look = self._began
        self._taken = 0
        self._too_long: set[str] = set()
        self._stopping = ""
        self._devices = ("cpu",) if task.kind == "cpu" else visible_devices()
        self._process: NodeWorker | None = None

    def stop(self, reason: str = "stopped") -> None:
        """End soon; a plain attribute, since a signal may come while any lock is held."""
        self._stopping = reason

    def run(self) -> None:
        devices = f"{len(self._devices)} GPUs" if self._task.kind == "cuda" else "CPU"
        self._say(WorkerMessage(kind="start", text=host_name(), life=self._claim.life, devices=devices))
        if reason := self._refusal():
            self._say(WorkerMessage(kind="refusal", text=reason))
            self.outcome = reason
            return
        try:
            self._queue.release_former(self._claim)
            self.outcome = self._work()
        except StoreError as error:
            self.outcome = f"{FULL} {error.message}"
        except Exception as error:  # such as a queue that was removed
            self.outcome = f"{type(error).__name__}: {error}"
        self._say(WorkerMessage(kind="end", text=self._stopping or self.outcome))

    def _refusal(self) -> str:
        needed = max(1, self._task.gpus) if self._task.kind == "cuda" else 0
        return missing_devices(needed) or self._task.settings.refusal()

    def _work(self) -> str:
        busy = time.monotonic()
        try:
            while not self._stopping and not self._is_late():
                if self._next():
                    busy = time.monotonic()
                elif self._too_long:
                    return "time"
                elif time.monotonic() - busy >= self._task.idle:
                    return "idle"
                else:
                    self._rest(0.5)
            return "time"
        finally:
            if self._process is not None:
                self._process.close()

    @property
    def _left(self) -> float:
        """The seconds until this worker is told to end."""
        return self._task.seconds - self._task.warning - (time.monotonic() - self._began)

    def _is_late(self) -> bool:
        """Whether the time left is too short for any other job; the first one has its chance."""
        return self._taken > 0 and self._left < LEAST

    def _next(self) -> bool:
        """Take a job that may end in the time left, and run it; whether there was one."""
        for key in self._queue.free():
            if key in self._too_long:
                continue
            taken = self._queue.take(key, self._claim)
            if isinstance(taken, Failure):
                self._queue.finish(Finished(key=key, failure=taken), self._claim)
                return True
            if taken is None:
                continue
            if self._taken == 0 or self._queue.estimate(taken[0]) <= self._left:
                self._taken += 1
                self._run(*taken)
                return True
            self._queue.release(key, self._claim)
            self._too_long.add(key)
            if len(self._too_long) >= LOOKS:
                break
        return False

    def _run(self, job: Job, inputs: Inputs) -> None:
        began = time.monotonic()
        if self._process is None:
            self._process = NodeWorker(self._task.settings, self._devices)
        process = self._process
        process.start(job, inputs)
        finished = self._listen(job.key, lambda: bool(self._stopping) or self._is_unwanted(job.key))
        if finished is None and self._stopping:
            finished = self._listen(job.key, _after(GRACE))
        if finished is not None and self._was_killed(finished):
            finished = None
        if finished is None or finished.failure is None:
            self._queue.note_duration(job, time.monotonic() - began)
        if finished is not None:
            self._finish(finished)
            return
        too_long = bool(self._stopping) and self._is_too_long(job, process)
        if self._stopping:
            process.close()
            self._process = None
        else:
            process.cancel()
        if too_long:
            self._finish(Finished(key=job.key, failure=_out_of_time(job, self._task)))
        else:
            self._queue.release(job.key, self._claim)

    def _is_too_long(self, job: Job, process: NodeWorker) -> bool:
        """Whether a job had the whole time of this worker, and begins anew in the next one.

        A training has a checkpoint, and an encoding its vectors.
        """
        whole = self._task.seconds - self._task.warning
        anew = job.kind != "train" and not process.kept
        return anew and self._taken == 1 and self._left <= (1 - WHOLE) * whole

    def _finish(self, finished: Finished) -> None:
        try:
            self._queue.finish(finished, self._claim)
        except StoreError as error:  # there may be room for a few words
            failed = Finished(key=finished.key, failure=Failure.of(error))
            self._queue.finish(failed, self._claim)

    def _is_unwanted(self, key: str) -> bool:
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + 1.0
        return not self._queue.is_wanted(key)

    def _listen(self, key: str, ends: Callable[[], bool]) -> Finished | None:
        """Pass on the events of the running job until it ends, or there is a reason to stop it."""
        assert self._process is not None
        while True:
            report = self._process.poll(0.2)
            for name, event in report.events:
                self._say(WorkerMessage(kind="event", key=name, event=event))
            if report.ended:
                return report.ended[0]
            self._rest(0)
            if ends():
                return None

    def _was_killed(self, finished: Finished) -> bool:
        """Whether the process of a job ended because this worker is to stop: the signal may reach both."""
        if finished.failure is None or finished.failure.kind != "WorkerDied":
            return False
        over = _after(GRACE)
        while not self._stopping and not over():
            time.sleep(0.1)
        return bool(self._stopping)

    def _rest(self, seconds: float) -> None:
        if time.monotonic() - self._said >= self._task.beat:
            self._say(WorkerMessage(kind="beat"))
        over = _after(seconds)
        while not self._stopping and not over():
            time.sleep(0.1)

    def _say(self, message: WorkerMessage) -> None:
        self._said = time.monotonic()
        self._log.add(message)


def _out_of_time(job: Job, task: QueueWorker) -> Failure:
    minutes = f"{task.seconds / 60:g} minutes"
    return Failure(
        kind="OutOfTime",
        message=f"{job.label} did not end in the {minutes} of a worker, and would begin anew in the next.",
        hint="Give workers more time: --executor slurm:minutes=N.",
    )


def _after(seconds: float) -> Callable[[], bool]:
    """A function that says whether so many seconds are over."""
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends
