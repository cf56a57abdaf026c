"""The machine a process runs on: processor, cores it may use, driver of the GPUs."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

_DRIVER = re.compile(r"Kernel Module\D*?(?:x86_64|aarch64)?\s+(\d+(?:\.\d+)+)")


@cache
def cpu_model() -> str:
    """The processor's model, as its maker calls it."""
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"


@cache
def cpu_flags() -> frozenset[str]:
    """What the processor can do, in the kernel's words (`avx512_bf16`); empty if not told."""
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Cores this process may use: its affinity, or fewer where a container limits its time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(limit) for limit in _limits(groups, own))]))


@cache
def nvidia_driver() -> str | None:
    """The version of NVIDIA's driver, None if there is none."""
    for line in _lines(Path("/proc/driver/nvidia/version")):
        if match := _DRIVER.search(line):
            return match[1]
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(told.split()), None)


def _limits(groups: Path, own: Path) -> Iterator[float]:
    """The processor time, in cores, that each control group around this process may use."""
    for line in _lines(own):
        _, controllers, place = line.split(":", 2)
        if not controllers:
            yield from _limits_in(groups, place, "cpu.max")
        elif "cpu" in controllers.split(","):
            yield from _limits_in(groups / "cpu", place, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _limits_in(tree: Path, place: str, *names: str) -> Iterator[float]:
    inside = PurePosixPath(place.lstrip("/"))
    for group in (inside, *inside.parents):
        words = [word for name in names for line in _lines(tree / group / name) for word in line.split()]
        if len(words) == 2 and words[0] not in ("max", "-1") and float(words[1]) > 0:
            yield float(words[0]) / float(words[1])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
