"""How a user names an executor: `local`, `ray[:ADDRESS]`, `slurm[:SETTING=VALUE,...]`."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import UsageError, unknown

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
        parts = [part.strip() for part in text.split(",") if part.strip()]
        address = parts.pop(0) if parts and "=" not in parts[0] else ""
        given = setting_pairs(RAY, parts)
        for name in given:
            if name != "workers":
                raise unknown("setting of ray", name, ("workers",), then="Type ray:ADDRESS,workers=N.")
        return RaySettings(
            address=address, workers=whole_number(RAY, "workers", given["workers"]) if given else None
        )


def setting_pairs(kind: str, parts: list[str]) -> dict[str, str]:
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


def whole_number(kind: str, name: str, value: str) -> int:
    """The value of a setting that is a whole number, 1 or more.

    Raises:
        UsageError: It is none.
    """
    if not (value.isascii() and value.isdigit() and int(value)):
        raise UsageError(
            f"The setting {name} of {kind} cannot be {value!r}.", hint="It is a whole number, 1 or more."
        )
    return int(value)


def executor_settings(text: str) -> RaySettings | None:
    """The executor that a user names; None for this machine.

    Raises:
        UsageError: There is no such executor or setting.
    """
    kind, colon, rest = text.strip().partition(":")
    if kind == RAY:
        return RaySettings.parse(rest)
    if kind == LOCAL and not colon:
        return None
    then = "Type local, ray, ray:HOST:PORT, or slurm:partition=NAME,gpus=1."
    raise unknown("executor", text, (LOCAL, RAY, SLURM), then=then)
