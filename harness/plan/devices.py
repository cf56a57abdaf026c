"""The devices of a request: their spelling, and those of this machine."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.core.errors import UsageError
from harness.core.provenance import count_cores
from harness.executors.executor import parse_executor

_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
"""The spelling of a device."""


def require_spelled(devices: Sequence[str]) -> None:
    """Refuse names that are not spelled like a device, without importing torch."""
    # By spelling alone: a typing error is refused before torch is imported, which takes seconds.
    for name in devices:
        if not _DEVICE.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a device.", hint="Type cpu, cuda, cuda:0, mps, or several with commas."
            )


def require_room(devices: Sequence[str], executor: str, threads: int | None) -> None:
    """Refuse an unknown executor, numbered devices of a cluster, and far more threads than cores here.

    Args:
        devices: As the user typed them.
        executor: Where jobs run; only "local" computes with the cores of this machine.
        threads: CPU threads of each process; None for torch's choice.

    Raises:
        UsageError: One of them cannot be used.
    """
    if parse_executor(executor) is None:
        if threads is not None and threads > 2 * count_cores():
            raise UsageError(
                f"--threads is {threads}, more than twice the {count_cores()} cores of this machine.",
                hint=f"Type {count_cores()} or fewer: more threads than cores make each step slower.",
            )
    elif tuple(devices) not in ((), ("cpu",), ("cuda",)):
        raise UsageError(
            f"--devices {','.join(devices)} with --executor {executor}: a cluster gives its workers devices.",
            hint="Type --devices cpu or --devices cuda, or leave it out.",
        )


def check_devices(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The same devices, after a check that this machine has each of them.

    Raises:
        UsageError: This machine lacks one of them.
    """
    import torch

    device_names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        device_names.append("mps")
    for name in devices:
        # "cuda" without a number is the first GPU.
        if name not in device_names and f"{name}:0" not in device_names:
            raise UsageError(
                f"This machine has no device {name!r}.", hint=f"There is: {', '.join(device_names)}."
            )
    return devices


def choose_device(name: str) -> str:
    """The device that a user named, or where the name is empty a GPU, or else the CPU.

    Raises:
        UsageError: This machine has no such device, or several are named.
    """
    if "," in name:
        raise UsageError(
            f"--devices is {name!r}: this command works on one device.", hint="Name one of them."
        )
    return check_devices((name,))[0] if name else default_devices()[0]


def default_devices() -> tuple[str, ...]:
    """Every GPU of this machine, or the CPU."""
    import torch

    if torch.cuda.is_available():
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu",)
