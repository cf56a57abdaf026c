"""How a user names an executor: `local`, `ray[:ADDRESS]`, `slurm[:SETTING=VALUE,...]`."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, fields
from typing import Any

from harness.errors import UsageError, nearest, unknown

LOCAL = "local"
RAY = "ray"
SLURM = "slurm"


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """Where Ray is, and how many workers may be asked for.

    Attributes:
        address: HOST:PORT of a cluster, or "auto" for the one of this machine; empty to start one here.
        workers: The most workers at once. Where it is given, a cluster that can grow is asked for the nodes
            of so many; else its present nodes are used.
    """

    address: str = ""
    workers: int | None = None

    @staticmethod
    def parse(text: str) -> RaySettings:
        """The settings in a text.

        >>> RaySettings.parse("10.0.0.1:6379,workers=8")
        RaySettings(address='10.0.0.1:6379', workers=8)

        Raises:
            UsageError: There is no such setting, or it cannot have this value.
        """
        text = f"{RAY}:{text}" if text.startswith("//") else text  # --executor ray://HOST:PORT
        parts = [part.strip() for part in text.split(",") if part.strip()]
        address = parts.pop(0) if parts and "=" not in parts[0] else ""
        given = _pairs(RAY, parts)
        for name in given:
            if name != "workers":
                raise unknown("setting of ray", name, ("workers",), then="Type ray:ADDRESS,workers=N.")
        return RaySettings(
            address=address, workers=_whole_number(RAY, "workers", given["workers"]) if given else None
        )


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
        minutes: The time limit of a worker, which is queued anew while there is work.
        workers: Workers at once, at most.
        idle: Seconds after which a worker without a job ends.
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
    idle: float = 60.0
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
            UsageError: There is no such setting, or it cannot have this value.
        """
        found: dict[str, Any] = {}
        for pair in filter(None, (part.strip() for part in re.split(r"(?<!\\),", text))):
            name, _, value = (part.strip().replace("\\,", ",") for part in pair.partition("="))
            if name in found:
                raise UsageError(
                    f"The setting {name} of {SLURM} is given twice.", hint="Leave one of them out."
                )
            found[name] = value if name.startswith(_OTHER) else _value(name, value)
        others = {name: found.pop(name) for name in [*found] if name.startswith(_OTHER)}
        sbatch = tuple((name.removeprefix(_OTHER), value) for name, value in others.items())
        return SlurmSettings(**found, sbatch=sbatch)


_OTHER = "sbatch."
"""The start of the name of a setting that is any option of sbatch."""

_LEAST = {"gpus": 0, "cpus": 1, "memory": 0, "minutes": 5, "workers": 1, "idle": 0, "nice": 0}
"""The smallest value of each setting that is a number."""


def _value(name: str, text: str) -> str | int | float:
    usual = {one.name: one.default for one in fields(SlurmSettings) if one.name != "sbatch"}
    if name not in usual:
        close = nearest(name, usual)
        near = f"Did you mean {' or '.join(close)}? " if close else ""
        has = ", ".join(f"{known}={value}" for known, value in usual.items())
        raise UsageError(
            f"{SLURM} has no setting {name!r}.",
            hint=f"{near}It has: {has}; any option of sbatch is sbatch.NAME=VALUE.",
        )
    if name not in _LEAST:
        return text
    kind, words = (int, "a whole number") if isinstance(usual[name], int) else (float, "a number")
    with contextlib.suppress(ValueError, OverflowError):
        if _LEAST[name] <= (number := kind(text)) < 2**31:
            return number
    raise UsageError(
        f"The setting {name} of {SLURM} cannot be {text!r}.", hint=f"It is {words}, {_LEAST[name]} or more."
    )


def _pairs(kind: str, parts: list[str]) -> dict[str, str]:
    """Settings of an executor, typed as NAME=VALUE each.

    Raises:
        UsageError: One has no value, or is given twice.
    """
    found: dict[str, str] = {}
    for part in parts:
        name, _, value = (text.strip() for text in part.partition("="))
        if not value:
            raise UsageError(f"{part!r} is no setting of {kind}.", hint="Type NAME=VALUE (docs/cluster.md).")
        if name in found:
            raise UsageError(f"The setting {name} of {kind} is given twice.", hint="Leave one of them out.")
        found[name] = value
    return found


def _whole_number(kind: str, name: str, value: str) -> int:
    """The value of a setting that is a whole number, 1 or more.

    Raises:
        UsageError: It is none.
    """
    if not (value.isascii() and value.isdigit() and int(value)):
        raise UsageError(
            f"The setting {name} of {kind} cannot be {value!r}.", hint="It is a whole number, 1 or more."
        )
    return int(value)


def executor_settings(text: str) -> RaySettings | SlurmSettings | None:
    """The executor that a user names; None for this machine.

    Raises:
        UsageError: There is no such executor or setting.
    """
    kind, colon, rest = text.strip().partition(":")
    if kind == RAY:
        return RaySettings.parse(rest)
    if kind == SLURM:
        return SlurmSettings.parse(rest)
    if kind == LOCAL and not colon:
        return None
    then = "Type local, ray, ray:HOST:PORT, or slurm:partition=NAME,gpus=1."
    raise unknown("executor", text, (LOCAL, RAY, SLURM), then=then)
