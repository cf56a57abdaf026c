"""The log of a run in its results folder, from which `harness status` says what runs where.

`<results>/runs/<start>-<host>-<process>-<id>/` holds `run.json` (who, and the jobs), `jobs.jsonl` (a line for
each event of a job) and `status.json` (the heartbeat: what runs now, and how far it is). Times are seconds
since the run's start, by its own clock. A thread replaces the heartbeat every two seconds, so that it goes on
while a job keeps the driver busy. The log serves people: where it cannot be written, the run goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from harness.core import files
from harness.core.documents import CACHE_LIMIT, DocumentKind, DocumentPart, append_digest
from harness.core.errors import HarnessError
from harness.jobs.context import Event
from harness.jobs.jobs import Job, JobKind

EVERY = 2.0
"""Seconds between two heartbeats."""

KEEP = 50
"""The number of ended runs whose logs are kept."""

LONGEST = 400
"""The characters of a cause of failure that the log keeps."""

LISTED = 8
"""The most devices whose use is told one by one."""

_DAY = 86_400.0
"""The age of a heartbeat after which a run on another machine is certainly over."""

HEADER, EVENTS, HEARTBEAT = "run.json", "jobs.jsonl", "status.json"
"""The files of a log."""

Ending = Literal["done", "failed", "skipped", "shared", "retried"]
"""The end of a job, or of an attempt: `shared` is work that another process has done, `retried` is to be
done again."""

Closing = Literal["finished", "failed", "stopped"]
"""The end of a run."""


class LoggedJob(DocumentPart):
    """A job of a run: what it is, the places in the list of the jobs it needs, and the devices of its own."""

    kind: JobKind
    label: str
    key: str
    inputs: tuple[int, ...] = ()
    artifact: str = ""
    task: str = ""
    devices: int = 0
    known: bool = False
    seconds: float = 0.0
    """What the plan expects it to take; 0 where that is not known."""


class RunHeader(DocumentPart):
    """The head of a log: whose run it is, when it began in UTC by its machine's clock, and its jobs."""

    schema_version: int = Field(default=3, alias="schema")
    host: str
    pid: int
    started: str
    executor: str
    command: str
    jobs: tuple[LoggedJob, ...]

    @property
    def is_here(self) -> bool:
        """Whether the run was started on this machine."""
        return self.host == socket.gethostname()

    @property
    def process_is_gone(self) -> bool:
        """Whether the run was started on this machine and its process has ended."""
        # Imported here, as names of models and keys of scores are found without it.
        import psutil

        return self.is_here and not psutil.pid_exists(self.pid)


class Node(DocumentPart):
    """A machine of a cluster: its devices, how many workers it has, and how many of them are busy."""

    name: str
    state: Literal["alive", "asked for", "lost"] = "alive"
    devices: tuple[str, ...] = ()
    workers: int = 0
    busy: int = 0
    reason: str = ""
    """Why it is lost, or has not started yet."""

    @property
    def size(self) -> int:
        """The number of its workers: one for each device if nothing else is said."""
        return self.workers or len(self.devices)


class RunningJob(DocumentPart):
    """A job under way: its place in the list of jobs, where it runs and since when, and how far it is.

    `announced` is when its present step began; `done` of `total` texts or steps (`unit`) are finished.
    """

    job: int
    node: str = ""
    devices: tuple[str, ...] = ()
    since: float
    step: str = ""
    announced: float = 0.0
    done: int = 0
    total: int = 0
    unit: str = ""


class DeviceUse(DocumentPart):
    """The seconds in which workers of a device encoded or trained, each counted once whatever runs beside."""

    node: str
    device: str
    seconds: float = 0.0


class Heartbeat(DocumentPart):
    """The state of a run: a counter that grows while it lives, jobs by kind and state, and what runs where.

    `ended` is empty until the run ends, `reason` is what ended it before its jobs did. `elsewhere` are the
    jobs whose work another process has claimed, `uses` how long devices have encoded or trained.
    """

    schema_version: int = Field(default=3, alias="schema")
    beat: int
    seconds: float
    ended: Closing | Literal[""] = ""
    reason: str = ""
    counts: Mapping[str, Mapping[str, int]] = {}
    running: tuple[RunningJob, ...] = ()
    elsewhere: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()
    uses: tuple[DeviceUse, ...] = ()


_HINT = "Remove the run's folder: it is a log, and no score depends on it."
HEADERS = DocumentKind(
    name="head of a run's log",
    type=RunHeader,
    hint=_HINT,
    schema=3,
    # Schema 2 added the expected seconds of a job, schema 3 the digest.
    migrations={1: lambda head: head, 2: lambda head: head},
    digest_since=3,
    limit=CACHE_LIMIT,
)
HEARTBEATS = DocumentKind(
    name="heartbeat of a run",
    type=Heartbeat,
    hint=_HINT,
    schema=3,
    # Schema 2 added the digest, schema 3 the use of devices.
    migrations={1: lambda heartbeat: heartbeat, 2: lambda heartbeat: heartbeat},
    digest_since=2,
)


def format_count(count: float, word: str) -> str:
    """A number with its noun.

    >>> format_count(0, "core"), format_count(0.5, "GPU"), format_count(2, "worker")
    ('0 cores', '0.5 GPU', '2 workers')
    """
    ending = "" if 0 < count <= 1 else "s"
    return f"{count:g} {word}{ending}"


def format_node_counts(nodes: Sequence[Node]) -> str:
    """The number of nodes and workers; empty without nodes.

    >>> format_node_counts([Node(name="a", workers=4), Node(name="b", state="asked for")])
    '1 node, 4 workers, 1 asked for'
    """
    if not nodes:
        return ""
    alive = [node for node in nodes if node.state == "alive"]
    workers = sum(node.size for node in alive)
    parts = [format_count(len(alive), "node"), format_count(workers, "worker")]
    for state in ("asked for", "lost"):
        count = sum(node.state == state for node in nodes)
        parts += [f"{count} {state}"] if count else []
    return ", ".join(parts)


def format_device_uses(uses: Sequence[DeviceUse], seconds: float) -> str:
    """The share of a run's seconds in which devices encoded or trained: of each, or of many their mean.

    >>> uses = [DeviceUse(node="a", device=f"cuda:{number}", seconds=3.0 * number) for number in range(10)]
    >>> format_device_uses(uses[1:3], 12.0), format_device_uses(uses, 30.0)
    ('cuda:1 25 %, cuda:2 50 %', 'mean of 10 devices 45 %')
    """
    shares = [100 * use.seconds / seconds if seconds else 0.0 for use in uses]
    if len(uses) > LISTED:
        return f"mean of {len(uses)} devices {sum(shares) / len(uses):.0f} %"
    several = len({use.node for use in uses}) > 1
    names = [f"{use.node} {use.device}" if several else use.device for use in uses]
    return ", ".join(f"{name} {share:.0f} %" for name, share in zip(names, shares, strict=True))


_SIDES = {"query": "encoding queries", "document": "encoding documents", "": "encoding texts"}


class RunLog:
    """The log of one run, written by its driver; safe to be called from any thread.

    Args:
        folder: The folder of all logs, `<results>/runs`.
        jobs: The jobs of the plan.
        known: The keys of those that were done before.
        executor: Where jobs run, in words, e.g. "local: cuda:0,cuda:1".
        command: The command line; empty for that of this process.
        clock: Seconds; only differences count.
        every: Seconds between two heartbeats.

    Raises:
        StoreError: The folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        jobs: Sequence[Job],
        known: Collection[str] = (),
        executor: str = "",
        command: str = "",
        clock: Callable[[], float] = time.monotonic,
        every: float = EVERY,
    ) -> None:
        self._clock, self._start = clock, clock()
        self._numbers = {job.key: number for number, job in enumerate(jobs)}
        self._kinds = [job.kind for job in jobs]
        self._states = ["known" if job.key in known else "waiting" for job in jobs]
        # Kept up to date by `_move`: to count 100,000 jobs for each heartbeat would take too long.
        self._counts = Counter(zip(self._kinds, self._states, strict=True))
        self._running: dict[int, RunningJob] = {}
        self._elsewhere: set[int] = set()
        self._nodes: tuple[Node, ...] = ()
        self._uses: dict[tuple[str, str], DeviceUse] = {}
        self._used_until: dict[tuple[str, str], float] = {}
        self._beat, self._ended, self._reason = 0, "", ""
        self._lock, self._writing, self._stop = threading.Lock(), threading.Lock(), threading.Event()
        start = datetime.now(tz=UTC).strftime("%Y%m%dT%H%M%SZ")
        name = f"{start}-{files.get_host_name()}-{os.getpid()}-{secrets.token_hex(2)}"
        self.folder = folder / name
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise files.write_error(self.folder, error) from error
        header = _build_run_header(jobs, known, executor=executor, command=command)
        files.write_once(self.folder / HEADER, append_digest(_replace_surrogates(header)).encode())
        self._file = os.open(self.folder / EVENTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._unsynced, self._half = False, False
        self._write_heartbeat()
        # The time of a file just written is the file server's clock, which may differ from this machine's.
        _prune(folder, keep=KEEP, now=_read_write_time(self.folder / HEARTBEAT))

        def send_heartbeats() -> None:
            while not self._stop.wait(every):
                self._write_heartbeat()

        self._thread = threading.Thread(target=send_heartbeats, name="run log", daemon=True)
        self._thread.start()

    def note_submission(self, job: Job) -> None:
        """Note that a job was handed to the executor; it counts as running from now on."""
        with self._lock:
            number = self._numbers[job.key]
            self._move(number, "running")
            self._running[number] = RunningJob(job=number, since=self._read_clock())

    def note_event(self, job: Job, event: Event) -> None:
        """Note how far a running job is."""
        number = self._numbers[job.key]
        with self._lock:
            running = self._running.get(number)
            if running is not None:
                self._running[number] = running.model_copy(update=self._apply_job_event(running, event))

    def _apply_job_event(self, running: RunningJob, event: Event) -> dict[str, Any]:
        """What an event changes of a running job; the lock is held."""
        if event.kind in ("encoded", "trained"):
            self._add_use(running, event.seconds)
        match event.kind:
            case "placed":
                node, devices, now = event.text, event.devices, self._read_clock()
                self._append(now, running.job, "started", node=node, devices=list(devices))
                for device in devices:
                    self._uses.setdefault((node, device), DeviceUse(node=node, device=device))
                return {"node": node, "devices": devices, "since": now}
            case "encoded" | "ranked":
                return {"done": running.done + (event.tokens if running.unit == "tokens" else event.texts)}
            case "trained":
                return {"done": running.done + event.steps}
            case "stage":
                return self._build_step_update(event.text)
            case "encoding":
                total, unit = (event.tokens, "tokens") if event.tokens else (event.texts, "texts")
                return self._build_step_update(_SIDES[event.text], total, unit)
            case "ranking":
                return self._build_step_update(event.text, event.texts, "texts")
            case "training":
                return self._build_step_update("training", event.steps, "steps")
        return {}

    def _add_use(self, running: RunningJob, seconds: float) -> None:
        """Add the seconds up to now for which a job used its devices, without those that were counted."""
        now = self._read_clock()
        for place in ((running.node, device) for device in running.devices):
            use, since = self._uses[place], max(self._used_until.get(place, 0.0), now - seconds)
            self._uses[place] = use.model_copy(update={"seconds": round(use.seconds + now - since, 3)})
            self._used_until[place] = now

    def _build_step_update(self, step: str, total: int = 0, unit: str = "") -> dict[str, Any]:
        """What changes with a job's next step."""
        return {"step": step, "announced": self._read_clock(), "done": 0, "total": total, "unit": unit}

    def note_job_end(self, job: Job, how: Ending, *, cause: str = "", hint: str | None = None) -> None:
        """Note the end of a job, of an attempt that is made again ("retried"), or of a job that never ran.

        Args:
            job: The job.
            how: Its end.
            cause: Why it failed or was skipped; cut after LONGEST characters.
            hint: What the user can do about it.
        """
        state = "waiting" if how == "retried" else how
        self._end(job, state, how, cause=_shorten_cause(cause), hint=_shorten_cause(hint or ""))

    def note_job_loss(self, job: Job, reason: str) -> None:
        """Note that a running job was lost with its node, and waits again."""
        self._end(job, "waiting", "lost", cause=_shorten_cause(reason))

    def note_foreign_claim(self, job: Job) -> None:
        """Note that a waiting job waits for the work of another process."""
        with self._lock:
            self._elsewhere.add(self._numbers[job.key])

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        """How long devices have encoded or trained so far."""
        return tuple(self._uses.values())

    @property
    def seconds(self) -> float:
        """How long the run has gone on."""
        return self._read_clock()

    def update_nodes(self, nodes: Sequence[Node]) -> None:
        """Note the nodes of the cluster as they are now."""
        with self._lock:
            self._nodes = tuple(nodes)

    def close_run_log(self, how: Closing, reason: str = "") -> None:
        """Write the last heartbeat, with what ended the run before its jobs did."""
        if self._ended:
            return
        self._ended, self._reason = how, reason
        self._stop.set()
        # So that no older heartbeat replaces the last one; a hanging disk must not hang the run.
        self._thread.join(timeout=10)
        self._write_heartbeat()
        os.close(self._file)

    def _read_clock(self) -> float:
        return round(self._clock() - self._start, 3)

    def _end(self, job: Job, state: str, event: str, **facts: str) -> None:
        with self._lock:
            number, now = self._numbers[job.key], self._read_clock()
            running = self._running.pop(number, None)
            self._move(number, state)
            seconds = {} if running is None else {"seconds": round(now - running.since, 3)}
            self._append(now, number, event, **seconds, **facts)

    def _move(self, number: int, state: str) -> None:
        kind = self._kinds[number]
        self._counts[kind, self._states[number]] -= 1
        self._counts[kind, state] += 1
        self._states[number] = state
        self._elsewhere.discard(number)

    def _append(self, now: float, number: int, event: str, **facts: Any) -> None:
        """Add a line in one write; after half a line (a full disk) the next one begins a new line."""
        entry = {"at": now, "job": number, "event": event, **{k: v for k, v in facts.items() if v}}
        # Names of files may hold bytes that are not UTF-8 (lone surrogates), which encode() refuses.
        line = files.append_check(json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace")) + b"\n"
        line = b"\n" + line if self._half else line
        # True until the write is known to be whole: it may also end in an error.
        self._half = True
        with contextlib.suppress(OSError):
            self._half = os.write(self._file, line) < len(line)
            self._unsynced = True

    def _write_heartbeat(self) -> None:
        """Replace the heartbeat, and let other machines see the lines so far."""
        with self._lock:
            # Copied under the lock, written without it: a slow disk must not hold up the driver. A line
            # that is added meanwhile sets `_unsynced` again.
            heartbeat, unsynced = self._build_heartbeat(), self._unsynced
            self._unsynced = False
        if unsynced:
            with contextlib.suppress(OSError):
                os.fsync(self._file)
        # The thread may still be writing when close_run_log has waited ten seconds for it.
        with self._writing, contextlib.suppress(OSError):
            temporary = self.folder / f"{HEARTBEAT}.new"
            temporary.write_text(append_digest(_replace_surrogates(heartbeat)), encoding="utf-8")
            temporary.replace(self.folder / HEARTBEAT)

    def _build_heartbeat(self) -> dict[str, Any]:
        self._beat += 1
        counts: dict[str, dict[str, int]] = {}
        for (kind, state), count in self._counts.items():
            if count:
                counts.setdefault(kind, {})[state] = count
        return {
            "schema": HEARTBEATS.schema,
            "beat": self._beat,
            "seconds": self._read_clock(),
            "ended": self._ended,
            "reason": self._reason,
            "counts": counts,
            "running": [job.model_dump() for job in self._running.values()],
            "elsewhere": sorted(self._elsewhere),
            "nodes": [node.model_dump(exclude_defaults=True) for node in self._nodes],
            "uses": [use.model_dump() for use in self._uses.values()],
        }


def iter_log_lines(path: Path) -> Iterator[bytes | None]:
    """The lines of a log's events without their checks; None for one that has changed since.

    Raises:
        OSError: The file cannot be read.
    """
    for line in path.read_bytes().splitlines():
        # Earlier versions wrote no checks, and the last line may be cut off.
        yield files.strip_check(line) if b"\t" in line else line


def _replace_surrogates(content: Mapping[str, Any]) -> dict[str, Any]:
    """JSON content that can be written: names of files may hold bytes that are not UTF-8."""
    plain: dict[str, Any] = json.loads(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
    return plain


def _build_run_header(
    jobs: Sequence[Job], known: Collection[str], *, executor: str, command: str
) -> dict[str, Any]:
    numbers = {job.key: number for number, job in enumerate(jobs)}
    places = {job.key: job.place for job in jobs if job.place is not None}
    entries = []
    for job in jobs:
        place = job.place or places.get(job.claim or "")
        entry = {
            "inputs": [numbers[key] for key in job.inputs if key in numbers],
            "artifact": "" if place is None else place.artifact,
            "task": "" if place is None else place.task,
            "devices": job.resources.devices,
            "known": job.key in known,
            "seconds": round(job.resources.seconds or 0.0, 3),
        }
        facts = {name: value for name, value in entry.items() if value}
        entries.append({"kind": job.kind, "label": job.label, "key": job.key, **facts})
    return {
        "schema": HEADERS.schema,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": datetime.now(tz=UTC).isoformat(timespec="seconds"),
        "executor": executor,
        "command": command or _format_command_line(sys.argv),
        "jobs": entries,
    }


def _format_command_line(words: Sequence[str]) -> str:
    """A command line as it can be typed again, whatever the path of the program was.

    >>> _format_command_line(["/opt/env/bin/harness", "run", "--prompt", "query=a b"])
    "harness run --prompt 'query=a b'"
    """
    return shlex.join([Path(words[0]).name.replace("__main__.py", "harness"), *words[1:]])


def _shorten_cause(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def _read_write_time(path: Path) -> float:
    """When a file was written, by the clock of its file system; 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _prune(folder: Path, *, keep: int, now: float) -> None:
    """Remove the logs of runs that are over, but for the last ones.

    Args:
        folder: The folder of all logs.
        keep: How many ended runs stay.
        now: The present time by the clock of the file system.
    """
    runs = sorted((path for path in folder.glob("*") if path.is_dir()), reverse=True)
    over = [path for path in runs[keep:] if _is_over(path, now)]
    for path in over:
        shutil.rmtree(path, ignore_errors=True)


def _is_over(folder: Path, now: float) -> bool:
    """Whether a run has ended, or its driver is certainly dead; what a newer version wrote may go on."""
    # A missing heartbeat counts as very old. So that a log that has just been made is not removed, the folder
    # must be as old.
    if now - _read_write_time(folder / HEARTBEAT) > _DAY:
        return now - _read_write_time(folder) > _DAY
    # Whether the process of another machine lives cannot be asked; there only the age decides.
    try:
        ended = HEARTBEATS.read_document_file(folder / HEARTBEAT).ended
        return bool(ended) or HEADERS.read_document_file(folder / HEADER).process_is_gone
    except HarnessError:
        return False
