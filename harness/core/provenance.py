"""Provenance: the versions, device, processor, memory and git checkout with which a job ran.

It is never part of an identity. Nothing here imports torch; its facts are read only where it is already
imported. Also what a process needs that uses heavy libraries: a fast start and end, and no network.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from harness.core.errors import DataError


@contextmanager
def hold_collector() -> Iterator[None]:
    """Keep the garbage collector off imports.

    They make many objects and no garbage, which it would search again and again for a fifth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def shorten_exit(codes: list[int]) -> None:
    """At the end of this process, end it with the code in `codes`, without Python's own finalization.

    That takes more than a second with torch and mteb, and frees what ends with the process anyway. Threads
    end before, and what `atexit` was given later than here. Without a code the process ends as usual.
    """
    atexit.register(_end_process, codes)


def _end_process(codes: list[int]) -> None:
    if codes:
        for stream in (sys.stdout, sys.stderr):
            # A stream may be None, closed, or a pipe whose reader has gone.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(codes[-1])


_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Environment variables that the hub's libraries read on import, here and in child processes."""

_OFFLINE_CONSTANTS = (
    ("huggingface_hub.constants", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_DATASETS_OFFLINE"),
    ("transformers.utils.hub", "_is_offline_mode"),
)
"""The constants in which those libraries store these variables, so that a late call still counts."""


def forbid_network(*, sockets: bool = True) -> ExitStack:
    """Block network access by Python code, except loopback; the hub's libraries go to offline mode.

    Without `sockets` nothing but those libraries is held back: the driver of a cluster has to reach it.
    """
    undo = ExitStack()
    for variable in _OFFLINE_VARIABLES:
        set_variable(undo, variable, "1")
    for module, name in _OFFLINE_CONSTANTS:
        if hasattr(sys.modules.get(module), name):
            _swap(undo, sys.modules[module], name, True)
    if not sockets:
        return undo
    # Names and addresses: a library may resolve a name first, or connect to an address that it knows.
    import socket

    for method in ("connect", "connect_ex", "sendto"):
        _swap(undo, socket.socket, method, _guard(getattr(socket.socket, method), _find_socket_host))
    for function in ("getaddrinfo", "gethostbyname"):
        _swap(undo, socket, function, _guard(getattr(socket, function), lambda host, *_, **__: host))
    return undo


def set_variable(undo: ExitStack, name: str, value: str) -> None:
    """Set an environment variable, until the stack is closed.

    Args:
        undo: The stack.
        name: The variable.
        value: Its value.
    """
    before = os.environ.get(name)
    if before is None:
        undo.callback(os.environ.pop, name, None)
    else:
        undo.callback(os.environ.__setitem__, name, before)
    os.environ[name] = value


def _guard(function: Callable[..., Any], find_host: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which refuses a host of its arguments that is another machine; None is this one."""

    def call_locally(*args: Any, **kwargs: Any) -> Any:
        _refuse(find_host(*args, **kwargs))
        return function(*args, **kwargs)

    return call_locally


def _find_socket_host(self: Any, *args: Any) -> Any:
    import socket

    # The last argument: sendto has the bytes, and perhaps flags, before the address.
    address = args[-1]
    # Sockets of other families, such as AF_UNIX, stay on this machine.
    is_remote = self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple)
    return address[0] if is_remote else None


def _refuse(host: Any) -> None:
    name = host.decode(errors="replace") if isinstance(host, bytes) else str(host or "localhost")
    if not _is_local(name):
        raise DataError(
            f"Offline, and something tried to reach {name}.",
            hint="What is not on this machine must be pulled first, or leave out --offline.",
        )


def _is_local(name: str) -> bool:
    import ipaddress

    if name == "localhost":
        return True
    try:
        # Behind % comes the interface of a link-local IPv6 address.
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    # ::ffff:127.0.0.1 is the loopback as a socket for both versions writes it; only IPv6 has the property.
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def _swap(undo: ExitStack, target: object, name: str, value: object) -> None:
    """Set an attribute until `undo` is closed."""
    undo.callback(setattr, target, name, getattr(target, name))
    setattr(target, name, value)


WORKER_NAME = "harness-worker"
"""The name of every worker process."""

UNGUARDED = 113
"""The exit code of a worker process that found itself repeating its user's script."""


def end_repetition() -> None:
    """End this process if it is a worker that runs its user's script again; its driver says why."""
    import multiprocessing  # slow to import, like socket above

    if multiprocessing.current_process().name == WORKER_NAME:
        os._exit(UNGUARDED)  # silently: whatever the script has written is written twice


# "Kernel Module  535.104.05" or, of the open driver, "Open Kernel Module for x86_64  570.86.15": the digits
# of x86_64 are no version.
_DRIVER = re.compile(r"Kernel Module\D*?(?:x86_64|aarch64)?\s+(\d+(?:\.\d+)+)")


@cache
def read_cpu_model() -> str:
    """The processor's model, in its maker's words."""
    return _read_cpu_field("model name") or platform.processor() or platform.machine() or "unknown"


def _read_cpu_field(*names: str) -> str:
    """The first value that the kernel gives of the processor under one of these names; empty if none."""
    fields = (line.partition(":") for line in _read_system_lines(Path("/proc/cpuinfo")))
    return next((value.strip() for name, _, value in fields if name.strip() in names and value.strip()), "")


def count_cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The cores that this process may use: its affinity, or fewer where a container limits its time."""
    # os.cpu_count() is the whole machine's number, also in a container or a Slurm job that may use two cores.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *(int(limit) for limit in _iter_cpu_limits(groups, own))]))


def measure_free_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The bytes that this process may still take: those of the machine, or of a container (cgroup v2)."""
    import psutil

    rooms = [psutil.virtual_memory().available]
    for line in _read_system_lines(own):
        if line.startswith("0::"):
            rooms += _iter_group_rooms(groups, line.removeprefix("0::/"))
    return max(0, min(rooms))


@cache
def read_nvidia_driver() -> str | None:
    """The version of NVIDIA's driver, None if there is none."""
    for line in _read_system_lines(Path("/proc/driver/nvidia/version")):
        if match := _DRIVER.search(line):
            return match[1]
    output = _run_command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return next(iter((output or "").split()), None)


def _iter_cpu_limits(groups: Path, own: Path) -> Iterator[float]:
    """The processor time, in cores, that each control group around this process may use."""
    for line in _read_system_lines(own):
        # cgroup v2 has the line "0::PATH", without controllers; v1 has a line for each (man 7 cgroups).
        _, controllers, place = line.split(":", 2)
        if not controllers:
            yield from _iter_group_limits(groups, place, "cpu.max")
        elif "cpu" in controllers.split(","):
            yield from _iter_group_limits(groups / "cpu", place, "cpu.cfs_quota_us", "cpu.cfs_period_us")


def _iter_group_rooms(tree: Path, place: str) -> Iterator[int]:
    """The free bytes of a control group and of those above it that have a limit."""
    for group in (PurePosixPath(place), *PurePosixPath(place).parents):
        limit, used = (
            "".join(_read_system_lines(tree / group / f"memory.{name}")) for name in ("max", "current")
        )
        if limit.isdigit() and used.isdigit():
            stat = map(str.split, _read_system_lines(tree / group / "memory.stat"))
            # The kernel gives up what it holds of files as soon as a process asks for memory.
            files = sum(int(number) for name, number in stat if name in ("active_file", "inactive_file"))
            yield int(limit) - int(used) + files


def _iter_group_limits(tree: Path, place: str, *names: str) -> Iterator[float]:
    inside = PurePosixPath(place.lstrip("/"))
    # A limit of a group above holds as well, and one further down may not be visible from inside a container.
    for group in (inside, *inside.parents):
        words = [
            word
            for name in names
            for line in _read_system_lines(tree / group / name)
            for word in line.split()
        ]
        # Quota and period in microseconds: in one file of v2 ("max": no limit), in two of v1 (-1).
        if len(words) == 2 and words[0] not in ("max", "-1") and float(words[1]) > 0:
            yield float(words[0]) / float(words[1])


def _read_system_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


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
"""The libraries whose version may change a score."""


def collect_provenance(
    *, device: str = "cpu", threads: int | None = None, started: datetime | None = None
) -> dict[str, Any]:
    """The provenance as the dictionary that a record holds, without names of hosts, users or folders.

    Args:
        device: The torch device of the job, e.g. "cuda:0".
        threads: CPU threads of torch; None for those that it uses now.
        started: The start of the job; None for that of the process.

    Returns:
        Versions of this program and the installed `PACKAGES`; the commit of the program's checkout, and
        whether that has changes that are not committed (`dirty`), None without a checkout; the device, the
        processor and the cores that this process may use; the threads that torch computes with, or would; and
        when the work began and when this was written, in UTC by ISO 8601.
    """
    import psutil

    code = find_checkout()
    begun = started or datetime.fromtimestamp(psutil.Process().create_time(), tz=UTC)
    return {
        "harness": find_version(),
        "commit": code.commit if code else None,
        "dirty": code.dirty if code else None,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": dict(_list_package_versions()),
        "device": _describe_device(device),
        "cpu": read_cpu_model(),
        "cores": count_cores(),
        "threads": threads or _count_threads(),
        "started": _format_utc(begun),
        "written": _format_utc(datetime.now(tz=UTC)),
    }


def describe_machine(device: str) -> dict[str, Any]:
    """What the speed of a model depends on beside its settings; of a GPU once torch is imported."""
    names = ("torch", "transformers", "flash-attn")
    return {
        "device": {**_describe_device(device), "power_limit": _read_power_limit(device)},
        "cpu": read_cpu_model(),
        "cores": count_cores(),
        "threads": _count_threads(),
        "packages": {name: version for name in names if (version := find_package_version(name))},
    }


def read_gpu_uuid(device: str) -> str:
    """The name of a GPU for NVIDIA's tools; empty for another device, and before torch is imported."""
    torch = sys.modules.get("torch")
    if torch is None or not device.startswith("cuda"):
        return ""
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


@cache
def _read_power_limit(device: str) -> str | None:
    """The power limit of a GPU of NVIDIA, such as "700.00 W"; None where nothing tells it."""
    uuid = read_gpu_uuid(device)
    if not uuid:
        return None
    return _run_command("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader", f"--id={uuid}")


def measure_peak_memory() -> dict[str, int]:
    """The peak memory in bytes: `host` of this process, and `device` on its GPUs once CUDA is in use."""
    peak = {"host": _read_peak_resident()}
    # Only if the job has imported torch itself: the import takes seconds, and CUDA memory on the GPU.
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        devices = range(torch.cuda.device_count())
        peak["device"] = sum(int(torch.cuda.max_memory_allocated(number)) for number in devices)
    return peak


def find_package_version(package: str) -> str | None:
    """The installed version of a package, None without one; the package is not imported."""
    # Imported here, so that `harness --help` stays fast.
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


DISTRIBUTION = "encoder-harness"
"""The name of this program's package."""


@cache
def find_version() -> str:
    """The version of the harness as it was installed, by the tags of git (pyproject.toml)."""
    return find_package_version(DISTRIBUTION) or "0+unknown"


@cache
def _list_package_versions() -> Mapping[str, str]:
    return {name: version for name in PACKAGES if (version := find_package_version(name))}


def _describe_device(device: str) -> dict[str, Any]:
    """The kind of a device, its maker's name for it, and of a GPU once torch is imported its other facts.

    Those are the bytes of memory, the compute capability, the driver, and the CUDA (or ROCm) of torch.
    """
    kind, torch = device.partition(":")[0], sys.modules.get("torch")
    if kind == "cuda" and torch is not None and torch.cuda.is_available():
        return dict(_describe_gpu(device))
    name = read_cpu_model() if kind == "cpu" else platform.machine()
    return {"kind": kind, "name": name, **dict.fromkeys(("memory_bytes", "capability", "driver", "cuda"))}


@cache
def _describe_gpu(device: str) -> Mapping[str, Any]:
    torch = sys.modules["torch"]
    facts = torch.cuda.get_device_properties(device)
    return {
        "kind": "cuda",
        "name": facts.name,
        "memory_bytes": facts.total_memory,
        "capability": f"{facts.major}.{facts.minor}",
        "driver": read_nvidia_driver(),
        "cuda": torch.version.cuda or torch.version.hip,
    }


def _count_threads() -> int:
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    omp_threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(omp_threads) if omp_threads.isdigit() and int(omp_threads) else count_cores()


def _read_peak_resident() -> int:
    try:
        # VmHWM counts this process alone, in kB. ru_maxrss survives exec(), so that a worker would report the
        # peak of the process that started it; its unit is bytes on macOS and kB elsewhere.
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _format_utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True)
class _Checkout:
    """A commit, and whether files differ from it (new files that git does not ignore count)."""

    commit: str
    dirty: bool


@cache
def find_checkout(folder: Path = Path(__file__).parent) -> _Checkout | None:
    """The checkout that `folder` is part of, None without one; git must know a file in `folder`.

    So an installation inside another checkout, such as a virtual environment, is not part of it.
    """
    if not _run_git(folder, "ls-files", "."):
        return None
    commit = _run_git(folder, "rev-parse", "--verify", "HEAD")
    changes = _run_git(folder, "status", "--porcelain")
    if not commit or changes is None:
        return None
    return _Checkout(commit=commit, dirty=bool(changes))


def find_file_commit(path: Path) -> str:
    """The last commit that changed a file; empty where git does not know it."""
    return _run_git(path.parent, "log", "-1", "--format=%H", "--", path.name) or ""


def _run_git(folder: Path, *arguments: str) -> str | None:
    # Without the option `git status` locks the index, and a user's own git command at that moment fails.
    return _run_command("git", "--no-optional-locks", "-C", str(folder), *arguments)


def _run_command(*command: str) -> str | None:
    """The output of a program, None if it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@cache
def read_cpu_flags() -> frozenset[str]:
    """The processor's features in the kernel's words (`avx512_bf16`); empty if unknown."""
    return frozenset(_read_cpu_field("flags", "Features").split())
