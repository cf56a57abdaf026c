"""Devices as torch knows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.errors import UsageError

DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
"""How a device is spelled."""


def require_spelled(devices: Sequence[str]) -> None:
    """Refuse what is no device's name; torch is not asked.

    Raises:
        UsageError: There is such a one.
    """
    for name in devices:
        if not DEVICE.fullmatch(name):
            raise UsageError(
                f"{name!r} is no device.", hint="Type cpu, cuda, cuda:0, mps, or several with commas."
            )


def check_devices(devices: tuple[str, ...]) -> tuple[str, ...]:
    """The same devices, if torch knows each of them and this machine has it.

    Raises:
        UsageError: There is no such device.
    """
    import torch

    there = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        there.append("mps")
    for name in devices:
        if name not in there and f"{name}:0" not in there:
            raise UsageError(f"This machine has no device {name!r}.", hint=f"There is: {', '.join(there)}.")
    return devices


def default_devices() -> tuple[str, ...]:
    """Every GPU there is, else the CPU."""
    import torch

    if torch.cuda.is_available():
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return ("cpu",)
