"""The state of runs, read from their logs: what runs where, what waits, what failed, its cost, the time left.

A driver is alive while its heartbeat is replaced. The heartbeat's age is measured by the clock of its file
system, with a file that the reader writes there; a reader that may not write looks twice. Clocks of two
machines are never compared.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from harness.core import files
from harness.core.documents import Document, DocumentKind, read_limited
from harness.core.errors import RecordError
from harness.executors.run_log import (
    EVENTS,
    EVERY,
    HEADER,
    HEADERS,
    HEARTBEAT,
    HEARTBEATS,
    Closing,
    DeviceUse,
    Heartbeat,
    LoggedJob,
    Node,
    RunHeader,
    RunningJob,
    iter_log_lines,
)
from harness.results.cost.duration import APART, TimeRange, Work, time_left

SILENT = 60.0
"""The age of a heartbeat, in seconds, after which a driver on another machine counts as dead."""

SILENT_HERE = 600.0
"""The same where a process of its number lives on this machine, which may be another one by now."""

_WINDOW = 600.0
"""The last seconds whose busy workers say how many there will be."""

RunState = Literal["running", "finished", "failed", "stopped", "dead"]
"""`dead` is a run whose driver was killed; what it had finished is kept."""

_AttemptState = Literal["running", "done", "failed", "lost", "retried", "moved", "shared", "skipped"]


@dataclass(frozen=True, kw_only=True)
class _Attempt:
    """One try of a job on a node; it begins and ends at these seconds of the run."""

    job: int
    how: _AttemptState
    begun: float
    ended: float
    node: str = ""
    devices: tuple[str, ...] = ()
    cause: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The hours for which devices were busy, each counted once whatever runs beside each other on it.

    Attributes:
        device_hours: Of GPUs and other accelerators.
        cpu_hours: Of workers without one.
        lost_device_hours: Of attempts that a node took with it, or that were made again; not in the others.
        lost_cpu_hours: The same of workers without a device.
    """

    device_hours: float = 0.0
    cpu_hours: float = 0.0
    lost_device_hours: float = 0.0
    lost_cpu_hours: float = 0.0


@dataclass(frozen=True, kw_only=True)
class JobUnderWay:
    """A running job: what it is, where it runs, for how many seconds, and how far it is."""

    kind: str
    label: str
    key: str
    node: str
    devices: tuple[str, ...]
    seconds: float
    step: str
    done: int
    total: int
    unit: str


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Jobs that wait for the same: how many of each kind, and for what.

    Attributes:
        counts: kind → number of waiting jobs.
        reason: "worker" (they are ready), "elsewhere" (another process has claimed the work), or "jobs".
        behind: kind → number of the jobs under way, or ready, for which they wait.
        label: What they wait for where it is a single job.
    """

    counts: Mapping[str, int]
    reason: Literal["worker", "elsewhere", "jobs"]
    behind: Mapping[str, int]
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class _Trouble:
    """Jobs that failed, or attempts that were lost, for one reason.

    Attributes:
        how: "failed", "lost" (with a node; made again) or "retried" (failed, and made again).
        cause: The reason.
        hint: What to do about it, or empty.
        labels: The jobs.
    """

    how: Literal["failed", "lost", "retried"]
    cause: str
    hint: str
    labels: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run.

    Attributes:
        name: The name of its log's folder.
        state: Whether it runs, or how it ended.
        host, pid: The machine and the process of its driver.
        started: When it began, in UTC by the clock of its machine.
        executor: Where jobs run, in words.
        command: The command line.
        seconds: How long it has run, up to its last heartbeat.
        age: The seconds since its last heartbeat; None where that cannot be measured.
        counts: kind → state → number of jobs; the states are known (done before the run), waiting, running,
            done, failed, skipped, shared.
        running: Jobs under way, the longest first; of a dead run those that were.
        waits: What waits for what.
        troubles: Failures, then lost and repeated attempts.
        nodes: The nodes of a cluster.
        uses: How long devices have encoded or trained.
        cost: What it has cost so far.
        left: The time left; None where nothing is known, or the run is over.
        reason: What ended the run before its jobs did; empty where nothing has.
    """

    name: str
    state: RunState
    host: str
    pid: int
    started: str
    executor: str
    command: str
    seconds: float
    age: float | None
    counts: Mapping[str, Mapping[str, int]]
    running: tuple[JobUnderWay, ...]
    waits: tuple[Wait, ...]
    troubles: tuple[_Trouble, ...]
    nodes: tuple[Node, ...]
    uses: tuple[DeviceUse, ...]
    cost: Cost
    left: TimeRange | None
    reason: str = ""

    def count(self, *states: str) -> int:
        """The number of jobs in some states."""
        return sum(of_kind.get(state, 0) for of_kind in self.counts.values() for state in states)

    def to_json(self) -> dict[str, Any]:
        """The state as plain values (docs/json.md)."""
        parts = {"nodes": self.nodes, "uses": self.uses}
        dumped = {name: [part.model_dump(mode="json") for part in some] for name, some in parts.items()}
        return {**asdict(replace(self, nodes=(), uses=())), **dumped}


def read_runs(
    folder: Path, *, over: int | None = None, pause: Callable[[float], None] = time.sleep
) -> list[RunStatus]:
    """The runs that have a log in a folder, newest first.

    Args:
        folder: The folder of all logs, `<results>/runs`.
        over: How many of the runs that are over are read, the newest ones; None for all.
        pause: Waits for some seconds; used only where the folder cannot be written and a driver on another
            machine may be alive.

    Raises:
        NewerSchemaError: A log was written by a newer version.
        RecordError: A log is damaged.
    """
    beats = [
        beat for beat in map(_Beat.read_heartbeat, sorted(folder.glob("*"), reverse=True)) if beat is not None
    ]
    now = _read_file_system_time(folder) if beats else None
    ended = [beat for beat in beats if beat.is_over(now)]
    # Heartbeats are small: they say which of the large logs need not be read.
    skipped = [] if over is None else ended[over:]
    logs = [
        log
        for log in map(_Log.read_run_log, (beat for beat in beats if beat not in skipped))
        if log is not None
    ]
    beating = _watch_heartbeats(logs, pause) if now is None else {}
    statuses = [log.build_run_status(now, beating.get(log.folder)) for log in logs]
    last = [run for run in statuses if run.state != "running"][:over]
    return [run for run in statuses if run.state == "running" or run in last]


def _read_file_system_time(folder: Path) -> float | None:
    """The present time by the clock of a folder's file system; None where nothing can be written."""
    probe = folder / f".probe.{files.get_host_name()}-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:
        return None
    return now


def _watch_heartbeats(logs: Sequence[_Log], pause: Callable[[float], None]) -> dict[Path, bool]:
    """Whether the heartbeats of runs that have not ended go on while they are watched."""
    open_ = [log for log in logs if not log.heartbeat.ended and not log.header.process_is_gone]
    if open_:
        # Two heartbeats fall into this time, even if one is late.
        pause(2.5 * EVERY)
    later = {log.folder: _Beat.read_heartbeat(log.folder) for log in open_}
    return {
        log.folder: (again := later[log.folder]) is not None and again.heartbeat.beat != log.heartbeat.beat
        for log in open_
    }


@dataclass(frozen=True)
class _Beat:
    """The heartbeat of a run, and when it was written by the clock of its file system."""

    folder: Path
    heartbeat: Heartbeat
    written: float

    @staticmethod
    def read_heartbeat(folder: Path) -> _Beat | None:
        """The heartbeat in a folder; None where there is none."""
        try:
            # Opened, because a network file system shows what other machines wrote on opening.
            with (folder / HEARTBEAT).open("rb") as file:
                written, text = os.fstat(file.fileno()).st_mtime, file.read(HEARTBEATS.limit + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _Beat(folder, _parse_log_document(HEARTBEATS, text, folder / HEARTBEAT), written)

    def is_over(self, now: float | None) -> bool:
        """Whether the run is certainly over, wherever its driver was."""
        # The longer bound: where the driver was is in the header, which is not read yet.
        return bool(self.heartbeat.ended) or (now is not None and now - self.written > SILENT_HERE)


def _parse_log_document(kind: DocumentKind[Document], text: bytes, path: Path) -> Document:
    try:
        return kind.parse(text, where=path)
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}.", hint=kind.hint) from error


@dataclass(frozen=True)
class _Log:
    """The log of a run as it lies on disk."""

    folder: Path
    header: RunHeader
    heartbeat: Heartbeat
    written: float
    attempts: tuple[_Attempt, ...]

    @staticmethod
    def read_run_log(beat: _Beat) -> _Log | None:
        """The log with a heartbeat; None where it was removed meanwhile."""
        folder, heartbeat = beat.folder, beat.heartbeat
        try:
            head = read_limited(folder / HEADER, HEADERS.limit)
            lines = [line for line in iter_log_lines(folder / EVENTS) if line is not None]
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise RecordError(f"{folder / HEADER} is damaged: {error}.", hint=HEADERS.hint) from error
        header = _parse_log_document(HEADERS, head, folder / HEADER)
        attempts = tuple(_parse_attempts(lines, len(header.jobs), heartbeat))
        return _Log(folder, header, heartbeat, beat.written, attempts)

    @property
    def jobs(self) -> tuple[LoggedJob, ...]:
        return self.header.jobs

    @cached_property
    def seconds(self) -> float:
        """How long the run has gone on, up to the last that is known of it."""
        return max([self.heartbeat.seconds, *(one.ended for one in self.attempts)])

    @cached_property
    def states(self) -> list[str]:
        """The state of each job."""
        job_states = ["known" if job.known else "waiting" for job in self.jobs]
        for attempt in self.attempts:
            job_states[attempt.job] = "waiting" if attempt.how in ("lost", "retried") else attempt.how
        return job_states

    def build_run_status(self, now: float | None, beating: bool | None) -> RunStatus:
        age = None if now is None else max(0.0, now - self.written)
        state = self._infer_run_state(age, beating)
        header = self.header
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for job, job_state in zip(self.jobs, self.states, strict=True):
            counts[job.kind][job_state] += 1
        return RunStatus(
            name=self.folder.name,
            state=state,
            host=header.host,
            pid=header.pid,
            started=header.started,
            executor=header.executor,
            command=header.command,
            seconds=self.seconds,
            age=age,
            counts={kind: dict(found) for kind, found in counts.items()},
            running=tuple(self._iter_running_jobs()),
            waits=tuple(self._iter_waits()) if state == "running" else (),
            troubles=tuple(self._iter_troubles()),
            nodes=self.heartbeat.nodes,
            uses=self.heartbeat.uses,
            cost=_compute_device_cost(self.attempts),
            left=self._estimate_remaining() if state == "running" else None,
            reason=self.heartbeat.reason,
        )

    def _infer_run_state(self, age: float | None, beating: bool | None) -> RunState:
        if self.heartbeat.ended:
            ended: Closing = self.heartbeat.ended
            return ended
        silent = not beating if age is None else age > (SILENT_HERE if self.header.is_here else SILENT)
        return "dead" if self.header.process_is_gone or silent else "running"

    def _iter_running_jobs(self) -> Iterator[JobUnderWay]:
        progress_by_job = {one.job: one for one in self.heartbeat.running}
        for attempt in sorted(self.attempts, key=lambda one: one.begun):
            if attempt.how == "running":
                job = self.jobs[attempt.job]
                progress = progress_by_job.get(attempt.job, RunningJob(job=attempt.job, since=attempt.begun))
                yield JobUnderWay(
                    kind=job.kind,
                    label=job.label,
                    key=job.key,
                    node=attempt.node,
                    devices=attempt.devices,
                    seconds=round(attempt.ended - attempt.begun, 3),
                    **progress.model_dump(include={"step", "done", "total", "unit"}),
                )

    def _iter_waits(self) -> Iterator[Wait]:
        """Waiting jobs, grouped by the kinds of the jobs that must end before all others."""
        elsewhere = set(self.heartbeat.elsewhere)
        groups: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        roots = self._find_root_jobs()
        for number, root_numbers in roots.items():
            if root_numbers != {number}:
                groups["jobs", tuple(sorted({self.jobs[one].kind for one in root_numbers}))].append(number)
            elif self.states[number] == "waiting":
                groups["elsewhere" if number in elsewhere else "worker", ()].append(number)
        for reason in ("worker", "elsewhere", "jobs"):
            for (why, kinds), numbers in groups.items():
                if why == reason:
                    behind = sorted(set[int]().union(*(roots[one] for one in numbers))) if kinds else []
                    yield Wait(
                        counts=self._count_job_kinds(numbers),
                        reason=reason,
                        behind=self._count_job_kinds(behind),
                        label=self.jobs[behind[0]].label if len(behind) == 1 else "",
                    )

    def _find_root_jobs(self) -> dict[int, frozenset[int]]:
        """Of each open job those that must end before it and wait for none themselves; else itself."""
        roots: dict[int, frozenset[int]] = {}
        # A stack: chains of jobs may be longer than Python's limit of recursion.
        pending = [number for number, state in enumerate(self.states) if state in ("waiting", "running")]
        open_ = set(pending)
        while pending:
            number = pending[-1]
            inputs = [one for one in self.jobs[number].inputs if one in open_]
            missing = [one for one in inputs if one not in roots]
            if missing:
                pending += missing
                continue
            pending.pop()
            roots[number] = frozenset().union(*(roots[one] for one in inputs)) or frozenset({number})
        return roots

    def _count_job_kinds(self, numbers: Sequence[int]) -> dict[str, int]:
        return dict(Counter(self.jobs[number].kind for number in numbers))

    def _iter_troubles(self) -> Iterator[_Trouble]:
        for how in ("failed", "lost", "retried"):
            groups: dict[tuple[str, str], list[str]] = defaultdict(list)
            for attempt in self.attempts:
                # Without a cause it was taken back before it began, at the end of a budget.
                if attempt.how == how and (attempt.cause or how != "retried"):
                    groups[attempt.cause, attempt.hint].append(self.jobs[attempt.job].label)
            for (cause, hint), labels in groups.items():
                yield _Trouble(how=how, cause=cause, hint=hint, labels=tuple(labels))

    def _estimate_remaining(self) -> TimeRange | None:
        """The time left; None where nothing runs, as the open jobs wait for who knows how long."""
        if not self.heartbeat.running and any(state == "waiting" for state in self.states):
            return None
        last = {one.job: one for one in self.attempts}
        progress = {one.job: one for one in self.heartbeat.running}
        work = [
            self._build_job_work(number, last.get(number), progress.get(number))
            for number, job in enumerate(self.jobs)
            if not job.known
        ]
        again = [
            Work(key="", groups=(), begun=one.begun, ended=one.ended, typical=False)
            for one in self.attempts
            if one is not last[one.job] or one.how in ("lost", "retried")
        ]
        return time_left([*work, *again], self.seconds, window=_WINDOW)

    def _build_job_work(self, number: int, last: _Attempt | None, progress: RunningJob | None) -> Work:
        job = self.jobs[number]
        widest: tuple[Hashable, ...] = () if job.kind in APART and job.seconds else (None,)
        work = Work(
            key=job.key,
            groups=((job.kind, job.task, job.artifact), (job.kind, job.task), job.kind, *widest),
            inputs=tuple(self.jobs[one].key for one in job.inputs),
            width=max(1, job.devices),
            expected=job.seconds or None,
        )
        if last is None or self.states[number] == "waiting":
            return work
        work = replace(work, begun=last.begun, width=max(1, job.devices and len(last.devices)))
        if last.how == "running":
            return replace(
                work, whole=None if progress is None else _estimate_job_seconds(progress, last, self.seconds)
            )
        return replace(work, ended=last.ended, typical=last.how == "done")


def _estimate_job_seconds(progress: RunningJob, attempt: _Attempt, now: float) -> float | None:
    """The expected seconds of a running job, by the steps or documents that are done."""
    if not progress.done or not progress.total or progress.step == "encoding queries":
        return None
    loaded = progress.announced - attempt.begun
    return loaded + (now - progress.announced) * max(1.0, progress.total / progress.done)


def _parse_attempts(lines: Sequence[bytes], jobs: int, heartbeat: Heartbeat) -> Iterator[_Attempt]:
    """The attempts by the lines of a log; half lines are left out, what has no end runs still."""
    begun: dict[int, tuple[float, dict[str, Any]]] = {}
    now = heartbeat.seconds
    for line in lines:
        try:
            entry = json.loads(line)
            moment, number, event = float(entry["at"]), int(entry["job"]), str(entry["event"])
        except (ValueError, TypeError, LookupError):
            continue
        if not 0 <= number < jobs:
            continue
        # The last line may be newer than the heartbeat.
        now = max(now, moment)
        if event == "started":
            # A job that goes on elsewhere, such as a score that needs its model.
            if number in begun:
                since, place = begun[number]
                yield _build_attempt(number, "moved", since, moment, place)
            begun[number] = (moment, entry)
        elif event in get_args(_AttemptState):
            # A job may end without a beginning, such as one that is skipped.
            since, place = begun.pop(number, (moment, {}))
            yield _build_attempt(number, event, since, moment, {**place, **entry})
    for number, (since, place) in begun.items():
        yield _build_attempt(number, "running", since, now, place)


def _build_attempt(job: int, how: str, begun: float, ended: float, facts: Mapping[str, Any]) -> _Attempt:
    return _Attempt(
        job=job,
        how=how,  # type: ignore[arg-type]
        begun=begun,
        ended=ended,
        node=str(facts.get("node", "")),
        devices=tuple(map(str, facts.get("devices", ()))),
        cause=str(facts.get("cause", "")),
        hint=str(facts.get("hint", "")),
    )


def _compute_device_cost(attempts: Sequence[_Attempt]) -> Cost:
    """The hours of attempts; those that share a device at one time share that time."""
    hours: dict[tuple[bool, bool], float] = defaultdict(float)
    shared: dict[tuple[str, str], list[_Attempt]] = defaultdict(list)
    for attempt in attempts:
        devices = [device for device in attempt.devices if not device.startswith("cpu")]
        for device in devices:
            shared[attempt.node, device].append(attempt)
        if not devices:
            hours[_is_lost(attempt), False] += attempt.ended - attempt.begun
    for device_attempts in shared.values():
        for is_lost, seconds in _split(device_attempts):
            hours[is_lost, True] += seconds
    return Cost(
        device_hours=hours[False, True] / 3600,
        cpu_hours=hours[False, False] / 3600,
        lost_device_hours=hours[True, True] / 3600,
        lost_cpu_hours=hours[True, False] / 3600,
    )


def _is_lost(attempt: _Attempt) -> bool:
    return attempt.how in ("lost", "retried")


def _split(attempts: Sequence[_Attempt]) -> Iterator[tuple[bool, float]]:
    """The busy seconds of one device, in parts for lost attempts and for the others, by how many share it."""
    changes = [(one.begun, 1, _is_lost(one)) for one in attempts]
    changes += [(one.ended, -1, _is_lost(one)) for one in attempts]
    busy, before = {False: 0, True: 0}, 0.0
    # At one moment ends (-1) come before beginnings (1), so that neighbours do not overlap.
    for moment, step, is_lost in sorted(changes):
        count = sum(busy.values())
        for kind, number in busy.items():
            if number:
                yield kind, (moment - before) * number / count
        busy[is_lost] += step
        before = moment
