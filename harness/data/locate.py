"""Finding a data set: a data root first, then the hub's cache, then the hub itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.data.folder import identify, read_manifest, visible_files
from harness.data.hub import absent_subsets, gaps, snapshot
from harness.errors import DataError
from harness.types import Data

Origin = Literal["root", "hub-cache", "hub", "built"]
"""A data root, the hub's cache on this machine, the hub, or data that is built or local."""


class DataMissing(DataError):
    """A data set that is not on this machine and may not be fetched."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where data sets may be looked for.

    `root` is a folder of data sets in hub layout (`<org>/<name>/`), `cache` this program's own
    cache folder. Offline, the hub is never asked.
    """

    root: Path | None = None
    offline: bool = False
    cache: Path


@dataclass(frozen=True, kw_only=True)
class Located:
    """A data set that was found: what it is, the folder to read it from, where that came from.

    `folder` is None where the task loads by itself: built data, and the hub at `data.revision`.
    """

    data: Data
    folder: Path | None
    origin: Origin


def locate_data(data: Data, settings: DataSettings, *, subsets: Sequence[str] = ()) -> Located:
    """Find a data set and say what it is, in the hub's cache where it is not at hand.

    Args:
        data: The data set as the task pins it.
        settings: Where to look.
        subsets: The subsets that will be read; a part of the hub's cache that holds them is
            then enough. Without them the whole data set must be there.

    Raises:
        DataMissing: The data root has only some of the subsets; or offline, and neither the data
            root nor the hub's cache holds it.
        DataError: The data root does not exist or cannot be read.
    """
    near = locate_local(data, settings, subsets=subsets)
    if near is not None:
        return near
    held = snapshot(data.path, data.revision)
    lacking = gaps(held, data, subsets) if held else ()
    if held and not lacking:
        return Located(data=data, folder=held, origin="hub-cache")
    if settings.offline:
        raise _missing(data, settings, lacking)
    return Located(data=data, folder=None, origin="hub")


def locate_local(data: Data, settings: DataSettings, *, subsets: Sequence[str] = ()) -> Located | None:
    """What a data set is that is built, or lies in the data root; None where it is what the task pins.

    Raises:
        DataMissing: The data root has only some of the subsets.
        DataError: The data root does not exist or cannot be read.
    """
    if not data.path:
        return Located(data=data, folder=None, origin="built")
    folder = root_folder(data.path, data.revision, settings.root)
    if folder is None:
        return None
    _require(subsets, folder, data)
    return Located(data=_identified(data, folder, settings.cache), folder=folder, origin="root")


def _require(subsets: Sequence[str], folder: Path, data: Data) -> None:
    """Refuse a folder that says it has some of the subsets and not the others."""
    absent = absent_subsets(folder, subsets)
    if absent:
        some = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
        raise DataMissing(
            f"The data root has {data.path} without {some}.",
            hint="Ask for what is there with --languages, or pull the whole of it: "
            "harness data pull --suite SUITE --data DIR",
        )


def root_folder(path: str, revision: str, root: Path | None) -> Path | None:
    """The folder of a data set in a data root, None if there is none with files in it.

    It is `<org>/<name>`, or `<org>/<name>@<revision>` beside it (12 digits) where the first holds
    another revision. A folder of unknown origin counts as what is wanted.

    Raises:
        DataError: The data root is not a folder, or the data set's folder cannot be listed.
    """
    if root is None:
        return None
    for folder in places(path, revision, root):
        try:
            if folder.is_dir() and visible_files(folder) and other_revision(folder, revision) is None:
                return folder
        except OSError as error:
            raise unreadable(folder, error) from error
    return None


def places(path: str, revision: str, root: Path) -> tuple[Path, ...]:
    """Where in a data root a revision of a data set may lie, the usual place first.

    Raises:
        DataError: The data root is not a folder.
    """
    if not root.expanduser().is_dir():
        raise DataError(
            f"The data root {root} is not a folder.",
            hint="Name one with --data DIR, or make one: harness data pull --suite SUITE --data DIR",
        )
    usual = root.expanduser().absolute() / path
    return (usual, usual.with_name(f"{usual.name}@{revision[:12]}")) if revision else (usual,)


def other_revision(folder: Path, revision: str) -> str | None:
    """The revision that a folder's manifest names, if it is another than the one wanted."""
    try:
        manifest = read_manifest(folder)
    except DataError:
        return None
    return manifest.revision if manifest and revision and manifest.revision != revision else None


def unreadable(folder: Path, error: OSError) -> DataError:
    """The error for a data set's folder that cannot be read."""
    return DataError(
        f"Cannot read {error.filename or folder}: {error.strerror or error}.",
        hint="Give this user the right to read the data root, or name another with --data DIR.",
    )


def _identified(data: Data, folder: Path, cache: Path) -> Data:
    try:
        return identify(data, folder, cache)
    except OSError as error:
        raise unreadable(folder, error) from error


def _held(data: Data, root: Path | None) -> str | None:
    return other_revision(places(data.path, data.revision, root)[0], data.revision) if root else None


def _missing(data: Data, settings: DataSettings, lacking: Sequence[str]) -> DataMissing:
    where = "the hub's cache" if settings.root is None else f"{settings.root} or the hub's cache"
    state = f"is not in {where}"
    held = _held(data, settings.root)
    if held:
        state += f" (the data root has it at {held})"
    if lacking:
        state = f"is only in part in the hub's cache (no {', '.join(lacking[:3])})"
    return DataMissing(
        f"Offline, and the data set {data.path} at revision {data.revision} {state}.",
        hint="On a connected machine: harness data pull --suite SUITE --data DIR; "
        "then name that folder here with --data DIR.",
    )
