"""A task of a Slurm array on its node: it runs jobs, stops before a preemption, and is queued again.

The driver's side is harness.executors.slurm_driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.core import files
from harness.core.errors import StoreError
from harness.executors.executor import SLURM, Failure, Finished, fail_job
from harness.executors.node import NodeWorker, WorkerSettings, explain_missing_devices, list_visible_devices
from harness.jobs.context import Event
from harness.jobs.jobs import Job

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

WHOLE = 0.95
"""The part of a task's time in which a job must have run to count as too long for any task."""


@dataclass(kw_only=True)
class JobGroup:
    """The task of a Slurm array, which submitit runs and may queue again: jobs of one model, one by one.

    The end of each job is a file in the driver's folder (see `slurm_driver.py`). On the signal before a
    preemption or the end of its time it stops its job, which a training answers with a checkpoint.

    Attributes:
        name: The name of its log.
        folder: The driver's folder.
        jobs: Each job with its inputs, pickled, by key.
        settings: What its processes are given.
        kind: Whether its jobs run on GPUs.
        gpus: The GPUs that it was promised.
        minutes: Its time.
        warning: The seconds before the end of its time at which it is told.
    """

    name: str
    folder: Path
    jobs: dict[str, bytes]
    settings: WorkerSettings
    kind: Literal["cpu", "cuda"]
    gpus: int
    minutes: float
    warning: float
    _worker: NodeWorker | None = field(default=None, init=False, repr=False)
    _current: Job | None = field(default=None, init=False, repr=False)
    _ended: int = field(default=0, init=False, repr=False)
    _began: float = field(default=0.0, init=False, repr=False)
    _requeued: bool = field(default=False, init=False, repr=False)

    def __call__(self) -> str:
        """Run the jobs that have not ended; returns the reason of the end."""
        self._began = time.monotonic()
        if os.environ.get("SUBMITIT_EXECUTOR") == SLURM:  # submitit lets it pass; scancel sends it
            signal.signal(signal.SIGTERM, _exit)
        devices = ("cpu",) if self.kind == "cpu" else list_visible_devices()
        shown = f"{len(devices)} GPUs" if self.kind == "cuda" else "CPU"
        self._say("start", text=socket.gethostname(), devices=shown)
        needed = max(1, self.gpus) if self.kind == "cuda" else 0
        if reason := explain_missing_devices(needed) or self.settings.explain_refusal():
            self._say("refusal", text=reason)
            return reason
        try:
            self._worker = NodeWorker(self.settings, devices)
            for key, content in self.jobs.items():
                if not (self.folder / "done" / key).exists() and not self._is_stopped(key):
                    self._run_job(key, content)
        except StoreError as error:
            self._say("full", text=error.message)
        finally:
            if self._worker is not None:
                self._worker.close_worker()
            self._say("requeued" if self._requeued else "end")
        return "done"

    def checkpoint(self) -> DelayedSubmission:
        """Stop the running job; submitit queues the task again, which goes on with the jobs that are left."""
        from submitit.helpers import DelayedSubmission

        self._requeued = True
        if self._worker is not None:
            if self._current is not None and self._is_too_long(self._current):
                label, time_limit = self._current.label, f"{self.minutes:g} minutes of a worker"
                failure = Failure(
                    kind="OutOfTime",
                    message=f"{label} did not end in the {time_limit}, and would start over in the next one.",
                    hint="Give workers more time: --executor slurm:minutes=N.",
                )
                self._finish(Finished(key=self._current.key, failure=failure))
            self._worker.close_worker()
        # A copy without the fields of this process: submitit pickles it, and a worker cannot be pickled.
        return DelayedSubmission(replace(self))

    def _is_too_long(self, job: Job) -> bool:
        """Whether a job had the whole time of this task, and would start over in every further one.

        A training goes on from its checkpoint, and an encoding with its vectors.
        """
        assert self._worker is not None
        goes_on = job.kind == "train" or self._worker.kept
        usable_seconds = 60.0 * self.minutes - self.warning
        return not goes_on and not self._ended and time.monotonic() - self._began >= WHOLE * usable_seconds

    def _run_job(self, key: str, content: bytes) -> None:
        assert self._worker is not None
        try:
            job, inputs = pickle.loads(content)
        except Exception as error:  # of classes that are not on this machine
            self._finish(fail_job(key, error))
            return
        self._current = job
        self._say("event", key=key, event=Event(kind="placed", text=socket.gethostname()))
        self._worker.start(job, inputs)
        next_look = time.monotonic()
        while True:
            events, finished = self._worker.poll_updates(0.2)
            for name, event in events:
                self._say("event", key=name, event=event)
            # The end is written only after the events before it, so that the driver sees them in order.
            if finished is not None:
                self._current = None
                self._finish(finished)
                return
            if time.monotonic() > next_look:
                next_look = time.monotonic() + 1.0
                if self._is_stopped(key):
                    self._worker.stop_job()
                    return

    def _is_stopped(self, key: str) -> bool:
        stop = self.folder / "stop"
        return not stop.exists() or (stop / "all").exists() or (stop / f"{self.name}-{key}").exists()

    def _finish(self, finished: Finished) -> None:
        """Write the end of a job; if its output does not fit on the disk, the failure that says so."""
        self._ended += 1
        path = self.folder / "done" / finished.key
        # Nobody waits for it where the driver has removed its folder, which would be made again.
        if not path.parent.exists():
            return
        try:
            files.write_once(path, pickle.dumps(finished))
        except StoreError as error:
            files.write_once(
                path, pickle.dumps(Finished(key=finished.key, failure=Failure.from_error(error)))
            )

    def _say(self, kind: str, *, key: str = "", event: Event | None = None, **texts: str) -> None:
        """Add a line to the log; on a full disk, or where the folder was removed, it is lost."""
        entry: dict[str, Any] = {"kind": kind, **({"key": key} if key else {}), **texts}
        if event is not None:
            usual = Event(kind=event.kind)
            names = [item.name for item in fields(Event) if item.name not in ("space", "content")]
            values = {name: getattr(event, name) for name in names}
            entry["event"] = {n: v for n, v in values.items() if n == "kind" or v != getattr(usual, n)}
        # Closed after each line: on NFS other machines see a file's new content only after a close.
        with contextlib.suppress(OSError), (self.folder / "log" / self.name).open("a") as file:
            file.write(f"\n{json.dumps(entry)}\n")  # the line feed before it ends a line that was cut off


def read_end(path: Path) -> Finished:
    """The end of a job in its file; a file that cannot be unpickled here gives a failure."""
    try:
        finished: Finished = pickle.loads(path.read_bytes())
    except Exception as error:
        return fail_job(path.name, error)
    return finished


def _exit(*_: object) -> None:
    # Not os._exit: the `finally` of the running call closes the worker and says that the task ended.
    raise SystemExit(1)
