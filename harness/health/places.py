"""Folders and the hub: the data root, the cache, the results, room on the disk."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import files
from harness.data import DataSettings, found, human_size, status
from harness.errors import HarnessError
from harness.health.check import Check

LITTLE = 5_000_000_000
"""Bytes of free disk below which a run on large suites may not end."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things are to be."""

    data: Path | None
    cache: Path
    results: Path


def check_places(chosen: Places, *, online: bool) -> Iterator[Check]:
    """The data root, cache and results folders, free disk, and the hub if it may be asked."""
    yield data_root(chosen)
    yield folder("cache", chosen.cache, sized=True)
    yield folder("results", chosen.results, sized=False)
    homes = (_existing(chosen.cache), _existing(chosen.results))
    yield from map(room, {home.stat().st_dev: home for home in homes}.values())
    yield hub() if online else Check(name="hub", detail="not asked (--online does)")


def data_root(chosen: Places) -> Check:
    """What lies in the data root, and whether it is what was pulled."""
    root = chosen.data
    pull = "harness data pull --suite SUITE --data"
    if root is None:
        detail = "none (HARNESS_DATA or --data): data sets come from the hub's cache or the hub"
        return Check(name="data root", detail=detail)
    if not os.path.isdir(root):
        return Check(
            name="data root", state="missing", detail=f"{root} is not a folder", fix=f"{pull} {root}"
        )
    try:
        settings = DataSettings(root=root, offline=True, cache=chosen.cache)
        states = Counter(status(need, settings).state for need in found(root))
    except (HarnessError, OSError) as error:
        detail = str(error).splitlines()[0]
        return Check(name="data root", state="missing", detail=detail, fix=f"chmod -R a+rX {root}")
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "empty"
    detail = f"{root}: {states.total()} data sets ({told})"
    if states["changed"]:
        fix = f"harness data verify --data {root}; {pull} {root}"
        return Check(name="data root", state="warning", detail=detail, fix=fix)
    return Check(name="data root", detail=detail)


def folder(name: str, path: Path, *, sized: bool) -> Check:
    """Whether a folder can be written, or made; nothing is left behind."""
    size = f", {human_size(_size(path))}" if sized and os.path.isdir(path) else ""
    variable = f"HARNESS_{name.upper()}"
    try:
        if os.path.exists(path):
            files.writable(path)
        elif not os.access(_existing(path), os.W_OK | os.X_OK):
            raise HarnessError(f"{path} cannot be made: permission denied.")
    except HarnessError as error:
        return Check(
            name=name, state="missing", detail=error.message, fix=f"export {variable}=DIR (or --{name} DIR)"
        )
    made = "" if os.path.exists(path) else " (made when needed)"
    return Check(name=name, detail=f"{path.absolute()}{made}{size}")


def room(home: Path) -> Check:
    """Free disk where a folder is."""
    free = shutil.disk_usage(home).free
    detail = f"{human_size(free)} free at {home}"
    if free < LITTLE:
        return Check(name="disk", state="warning", detail=detail, fix=f"du -xh {home} | sort -h | tail")
    return Check(name="disk", detail=detail)


def hub() -> Check:
    """Whether the hub answers."""
    import httpx
    from huggingface_hub import constants, get_session

    try:
        code = get_session().head(constants.ENDPOINT, timeout=5).status_code
    except (httpx.HTTPError, OSError, HarnessError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        detail = f"{constants.ENDPOINT} cannot be reached: {reason}"
        fix = "harness data pull --suite SUITE --data DIR (on a connected machine)"
        return Check(name="hub", state="warning", detail=detail, fix=fix)
    return Check(name="hub", detail=f"{constants.ENDPOINT} answers (HTTP {code})")


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if os.path.exists(place))


def _size(path: Path) -> int:
    total = 0
    for here, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(here, name)).st_size
            except OSError:  # gone meanwhile
                continue
    return total
