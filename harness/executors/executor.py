"""The interface of executors, and the forms in which jobs end: what the driver knows of any of them.

An executor runs jobs and writes no record. The handle of a submitted job is its key, so that a driver which
comes back finds by it what still runs. Jobs that take the same room are of one lane: where the first of them
has to wait, so have the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from harness.core.errors import HarnessError
from harness.executors.run_log import Node
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import Job

Inputs = Mapping[str, Mapping[str, bytes]]
"""The outputs of earlier jobs, by the job's key and the output's name."""

Listener = Callable[[str, Event], None]
"""A callback with a job's key and an event."""

Cause = Literal["job", "memory", "node"]
"""Why a job failed: by itself, for lack of memory, or because the machine under it was lost."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The reason why a job failed, in a form that can be sent between processes.

    `fault` is an error that the user can act on: a full disk stops the run, a bad row fails one task. Only
    what was not the job's own fault (`cause`) is tried again.
    """

    kind: str
    message: str
    hint: str | None = None
    traceback: str = ""
    fault: HarnessError | None = None
    cause: Cause = "job"

    @staticmethod
    def of(problem: HarnessError) -> Failure:
        """An error found while planning, as the failure of a job."""
        return Failure(kind=type(problem).__name__, message=problem.message, hint=problem.hint, fault=problem)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a job: its output, or its failure."""

    key: str
    output: Mapping[str, bytes] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a job runs: the machine's name, and the devices of the worker."""

    node: str
    devices: tuple[str, ...]


class Executor(Protocol):
    """A place where jobs run.

    Attributes:
        name: The executor in words, e.g. "local: cuda:0,cuda:1".
    """

    name: str

    def lane(self, job: Job) -> str:
        """The lane of a job: jobs of one lane take the same room."""
        ...

    def expect(self, lane: str, count: int) -> None:
        """Be told how many jobs of a lane could begin now."""
        ...

    def running(self) -> Sequence[str]:
        """The keys of jobs that a driver which is gone has left running, or with outputs that nobody read."""
        ...

    def has_room(self, job: Job) -> bool:
        """Whether a job can begin now; where not, the executor may begin to make room."""
        ...

    def submit(self, job: Job, inputs: Inputs) -> Seat:
        """Begin a job that has room, or find it where it runs already."""
        ...

    def poll(self, seconds: float) -> Sequence[Finished]:
        """Pass on the events of running jobs; gives those that ended. It waits for `seconds` if none has."""
        ...

    def cancel(self, key: str) -> None:
        """Stop a job, whose end is not told any more; a training writes a checkpoint before."""
        ...

    def nodes(self) -> Sequence[Node]:
        """The machines of the executor; none of one machine alone."""
        ...

    def close(self) -> None:
        """Stop everything, even if jobs are running."""
        ...


OpenExecutor = Callable[[Listener], Executor]
"""A function that opens an executor whose events go to a listener."""


def run_job(job: Job, inputs: Inputs, devices: tuple[str, ...], context: JobContext) -> Finished:
    """Run a job to its end in this process; an error becomes a Failure."""
    context.begin(inputs, devices, halvings=job.halvings)
    try:
        return Finished(key=job.key, output=job.work.run(context))
    except Exception as error:
        return failed(job.key, error)


def failed(key: str, error: Exception) -> Finished:
    """The end of a job by an error that is being handled."""
    own = error if isinstance(error, HarnessError) else None
    name = type(error).__name__
    failure = Failure(
        kind=name,
        message=(str(error) or name) if own is None else own.message,
        hint=None if own is None else own.hint,
        traceback=traceback.format_exc(),
        fault=own,
        cause="memory" if isinstance(error, MemoryError) else "job",
    )
    return Finished(key=key, failure=failure)
