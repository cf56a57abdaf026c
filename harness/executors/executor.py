"""The interface of executors, how a user names one, and the forms in which jobs end.

Executors are named `local`, `ray[:ADDRESS]` or `slurm[:SETTING=VALUE,...]`.

An executor runs jobs and writes no record; the handle of a submitted job is its key.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

from harness.core.errors import HarnessError, UsageError, ask_for_names, explain_unknown
from harness.executors.run_log import Node
from harness.jobs.context import Event
from harness.jobs.jobs import Job

Inputs = Mapping[str, Mapping[str, bytes]]
"""The outputs of earlier jobs, by the job's key and the output's name."""

Listener = Callable[[str, Event], None]
"""A callback with a job's key and an event."""

Cause = Literal["job", "memory", "worker", "node"]
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

    @property
    def reason(self) -> str:
        """The message, behind the kind of an error that is not the harness's own."""
        return self.message if self.fault is not None or self.hint else f"{self.kind}: {self.message}"

    @staticmethod
    def from_error(problem: HarnessError) -> Failure:
        """An error found while planning, as the failure of a job."""
        return Failure(kind=type(problem).__name__, message=problem.message, hint=problem.hint, fault=problem)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a job: its output, its failure, or the job as it goes on where a device is (`rest`)."""

    key: str
    output: Mapping[str, bytes] = field(default_factory=dict)
    failure: Failure | None = None
    rest: Job | None = None


class Executor(Protocol):
    """A place where jobs run. Where a job runs comes as an event of kind `placed`.

    Attributes:
        name: The executor in words, e.g. "local: cuda:0,cuda:1".
    """

    name: str

    @property
    def nodes(self) -> Sequence[Node]:
        """The machines, as they are now; none for one machine alone."""
        ...

    def has_room(self, job: Job) -> bool:
        """Whether a job may be submitted now."""
        ...

    def submit(self, job: Job, inputs: Inputs) -> None:
        """Take a job, which begins as soon as what it needs is free."""
        ...

    def poll_jobs(self, seconds: float) -> Sequence[Finished]:
        """Pass on the events of running jobs; gives those that ended. It waits for `seconds` if none has."""
        ...

    def cancel_job(self, key: str) -> None:
        """Stop a job, whose end is not reported; a training writes a checkpoint before."""
        ...

    def close_executor(self) -> None:
        """Stop everything, even if jobs are running; a training writes a checkpoint before."""
        ...


OpenExecutor = Callable[[Listener], Executor]
"""A function that opens an executor whose events go to a listener."""


def fail_job(key: str, error: Exception) -> Finished:
    """The end of a job by an error that is being handled."""
    # Only the harness's own errors are sent as they are: others may not be unpickled in another process.
    if isinstance(error, HarnessError):
        failure = replace(Failure.from_error(error), traceback=traceback.format_exc())
    else:
        name, trace = type(error).__name__, traceback.format_exc()
        cause: Cause = "memory" if isinstance(error, MemoryError) else "job"
        failure = Failure(kind=name, message=str(error) or name, traceback=trace, cause=cause)
    return Finished(key=key, failure=failure)


LOCAL, RAY, SLURM = "local", "ray", "slurm"


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Where Ray is, and how many workers may be asked for.

    Attributes:
        address: HOST:PORT of a cluster, or "auto" for the one of this machine; empty to start one here.
        workers: The most workers at once. Where it is given, a cluster that can grow makes room for so many;
            else its present nodes are used.
    """

    address: str = ""
    workers: int | None = None

    @staticmethod
    def parse(text: str) -> RaySettings:
        """The settings in a text.

        >>> RaySettings.parse("10.0.0.1:6379,workers=8")
        RaySettings(address='10.0.0.1:6379', workers=8)

        Raises:
            UsageError: A setting is unknown, or cannot have its value.
        """
        # In --executor ray://HOST:PORT the scheme has been taken for the executor's name.
        text = f"{RAY}:{text}" if text.startswith("//") else text
        parts = [part.strip() for part in text.split(",") if part.strip()]
        address = parts.pop(0) if parts and "=" not in parts[0] else ""
        return RaySettings(address=address, **_read_values(RAY, RaySettings, parts))


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """What a user asks of Slurm: `partition=gpu,gpus=1,minutes=240,sbatch.constraint=a100`.

    Attributes:
        partition: The partition; Slurm's default where empty, as with the next two.
        account: The account that is charged.
        qos: The quality of service.
        gpus: GPUs of a worker, more only for jobs that need them; none on the CPU.
        cpus: CPU cores of a worker.
        memory: Gigabytes of main memory of a worker; 0 for Slurm's default.
        minutes: The time limit of a worker, which is queued again until its jobs are done.
        workers: Workers at once, at most.
        setup: A line of shell before a worker starts, e.g. `module load cuda`.
        nice: How far to stand behind other work.
        comment: A comment for accounting.
        sbatch: Any other options of sbatch, by name, typed as `sbatch.NAME=VALUE`.
    """

    partition: str = ""
    account: str = ""
    qos: str = ""
    gpus: int = 1
    cpus: int = 4
    memory: float = 0.0
    minutes: int = 60
    workers: int = 8
    setup: str = ""
    nice: int = 0
    comment: str = ""
    sbatch: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def parse(text: str) -> SlurmSettings:
        r"""The settings that a user types, with a comma between two, `\,` for one in a value.

        >>> SlurmSettings.parse("partition=gpu,minutes=240").minutes
        240

        Raises:
            UsageError: A setting is unknown, or cannot have its value.
        """
        # Options of sbatch hold commas themselves, e.g. --exclude=a,b.
        parts = [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", text) if part.strip()]
        values = _read_values(SLURM, SlurmSettings, parts)
        others = [name for name in values if name.startswith(_OTHER)]
        sbatch = tuple((name.removeprefix(_OTHER), values.pop(name)) for name in others)
        return SlurmSettings(**values, sbatch=sbatch)


_OTHER = "sbatch."
"""The start of the name of a setting that is any option of sbatch."""


_LEAST = {"gpus": 0, "cpus": 1, "memory": 0, "minutes": 5, "workers": 1, "nice": 0}
"""The smallest value of each setting that is a number."""

_REMOVED = {"idle": "a worker ends when its jobs are done"}
"""What holds in place of settings of earlier versions."""


def _read_values(
    kind: str, settings: type[RaySettings | SlurmSettings], parts: Sequence[str]
) -> dict[str, Any]:
    """The settings of an executor, typed as NAME=VALUE each.

    Raises:
        UsageError: A setting is unknown, is given twice, or cannot have its value.
    """
    usual = {item.name: item.default for item in fields(settings) if item.name not in ("address", "sbatch")}
    values: dict[str, Any] = {}
    for part in parts:
        name, _, value = (text.strip() for text in part.partition("="))
        if name in values:
            raise UsageError(f"The setting {name} of {kind} is given twice.", hint="Leave one of them out.")
        if name in _LEAST and name in usual:
            of, least = float if isinstance(usual[name], float) else int, _LEAST[name]
            # Below 2**31, which also refuses "inf"; "nan" fails every comparison.
            with contextlib.suppress(ValueError, OverflowError):
                if least <= (number := of(value)) < 2**31:
                    values[name] = number
            if name not in values:
                raise UsageError(
                    f"The setting {name} of {kind} cannot be {value!r}.",
                    hint=f"It is {'a whole number' if of is int else 'a number'}, {least} or more.",
                )
        elif name in usual or (kind == SLURM and name.startswith(_OTHER)):
            values[name] = value
        else:
            if kind == SLURM and name in _REMOVED:
                removed = f"The setting {name} of {SLURM} was removed: {_REMOVED[name]}."
                raise UsageError(removed, hint="Leave it out.")
            has = ", ".join(key if default is None else f"{key}={default}" for key, default in usual.items())
            forms = {SLURM: "any option of sbatch is sbatch.NAME=VALUE", RAY: "type ray:ADDRESS,workers=N"}
            hint = f"{ask_for_names(name, usual)}It has: {has}; {forms[kind]}."
            raise UsageError(f"{kind} has no setting {name!r}.", hint=hint)
    return values


def parse_executor(text: str) -> RaySettings | SlurmSettings | None:
    """The executor that a user names; None for this machine.

    Raises:
        UsageError: The executor or a setting is unknown.
    """
    kind, colon, rest = text.strip().partition(":")
    if kind == RAY:
        return RaySettings.parse(rest)
    if kind == SLURM:
        return SlurmSettings.parse(rest)
    if kind == LOCAL and not colon:
        return None
    then = "Type local, ray, ray:HOST:PORT, or slurm:partition=NAME,gpus=1."
    raise explain_unknown("executor", text, (LOCAL, RAY, SLURM), then=then)
