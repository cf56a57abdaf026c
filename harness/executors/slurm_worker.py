"""The worker that Slurm runs on a machine of the cluster: it takes jobs from a queue, and is requeued."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from harness.core.errors import StoreError
from harness.executors.executor import Failure, Finished, Inputs
from harness.executors.local import host_name
from harness.executors.node import NodeWorker, WorkerSettings, missing_devices, visible_devices
from harness.executors.slurm_queue import Claim, JobQueue, WorkerMessage, new_life
from harness.jobs.jobs import Job

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
