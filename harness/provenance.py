"""What happened to run a job: versions, device, cores, memory. Never part of an identity.

Nothing here imports torch: what it knows is asked only where it is imported already.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from harness.checkout import checkout
from harness.machine import cores, cpu_model, nvidia_driver

__version__ = "0.1.0"
"""Version of the harness."""

PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "mteb",
    "datasets",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
)
"""The libraries whose version may move a score."""


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """The device a job ran on."""

    kind: str
    """`cpu`, `cuda`, `mps`: the device string without its number."""
    name: str
    """The processor's or the GPU's model, as its maker calls it."""
    memory_bytes: int | None = None
    """Memory of the GPU."""
    capability: str | None = None
    """CUDA compute capability, e.g. "9.0"."""
    driver: str | None = None
    """Version of the GPU's driver."""
    cuda: str | None = None
    """The CUDA (or ROCm) version torch was built for."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where and with what a job ran; it names no host, user or folder."""

    harness: str
    """Version of this program."""
    commit: str | None
    """Commit of the checkout this program runs from, None if it runs from no checkout."""
    dirty: bool | None
    """Whether that checkout has changes that are not committed."""
    python: str
    platform: str
    """Operating system and machine type, e.g. "Linux x86_64"."""
    packages: Mapping[str, str]
    """Versions of `PACKAGES`; one that is not installed is left out."""
    device: DeviceFacts
    cpu: str
    """Model of the processor."""
    cores: int
    """Cores this process may use (affinity and container limits counted)."""
    threads: int
    """Threads torch computes with, or would."""
    started: str
    """When the work began, or else this process: UTC, ISO 8601."""
    written: str
    """When this was written down: UTC, ISO 8601."""


def collect(
    *, device: str = "cpu", threads: int | None = None, started: datetime | None = None
) -> Provenance:
    """Where and with what this process runs.

    Args:
        device: The device in use, as torch names it (`cpu`, `cuda:0`).
        threads: Threads asked for; None asks torch, if it is imported.
        started: When the work began; None for the start of this process.
    """
    import psutil

    code = checkout()
    begun = started or datetime.fromtimestamp(psutil.Process().create_time(), tz=UTC)
    return Provenance(
        harness=__version__,
        commit=code.commit if code else None,
        dirty=code.dirty if code else None,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=package_versions(),
        device=_device(device),
        cpu=cpu_model(),
        cores=cores(),
        threads=threads or _threads(),
        started=_iso(begun),
        written=_iso(datetime.now(tz=UTC)),
    )


def snapshot(
    *, device: str = "cpu", threads: int | None = None, started: datetime | None = None
) -> dict[str, Any]:
    """`collect` as the dictionary that is written into a record (fields: `Provenance`)."""
    return asdict(collect(device=device, threads=threads, started=started))


def device_facts(device: str) -> dict[str, Any]:
    """What a device is (fields: `DeviceFacts`), as a dictionary."""
    return {name: value for name, value in asdict(_device(device)).items() if value is not None}


def peak_memory() -> dict[str, int]:
    """The most memory used so far, in bytes: `host` of this process, `device` on its GPUs.

    `device` is there only once CUDA is in use.
    """
    peak = {"host": _peak_resident()}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        devices = range(torch.cuda.device_count())
        peak["device"] = sum(int(torch.cuda.max_memory_allocated(number)) for number in devices)
    return peak


def version(package: str) -> str | None:
    """The installed version of a package, None if it is not installed; imports nothing."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def package_versions() -> dict[str, str]:
    """The versions of `PACKAGES` that are installed."""
    versions = {name: version(name) for name in PACKAGES}
    return {name: found for name, found in versions.items() if found}


def _device(device: str) -> DeviceFacts:
    kind = device.partition(":")[0]
    torch = sys.modules.get("torch")
    if kind != "cuda" or torch is None or not torch.cuda.is_available():
        return DeviceFacts(kind=kind, name=cpu_model() if kind == "cpu" else platform.machine())
    return _gpu(device)


@cache
def _gpu(device: str) -> DeviceFacts:
    torch = sys.modules["torch"]
    facts = torch.cuda.get_device_properties(device)
    return DeviceFacts(
        kind="cuda",
        name=facts.name,
        memory_bytes=facts.total_memory,
        capability=f"{facts.major}.{facts.minor}",
        driver=nvidia_driver(),
        cuda=torch.version.cuda or torch.version.hip,
    )


def _threads() -> int:
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) else cores()


def _peak_resident() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
