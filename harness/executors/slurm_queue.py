"""A queue of jobs in a folder that drivers and workers on several machines share, without a server.

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
import pickle
import secrets
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from harness.core import files
from harness.core.identity import digest
from harness.executors.executor import Failure, Finished, Inputs
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.results.cost.duration import LIKELY
from harness.results.cost.remaining import LongestDurations
from harness.storage.leases import SUFFIX, Leases, has_dead_holder

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
        return any(not has_dead_holder(path) for path in (self.folder / "drivers").glob(f"*{SUFFIX}"))

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
