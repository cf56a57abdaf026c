"""What data a selection of tasks needs, and what of it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.data.folder import read_manifest, visible_files
from harness.data.locate import DataMissing, DataSettings, Located, Origin, locate
from harness.errors import DataError
from harness.types import Data, Task

State = Literal["verified", "cached", "unverified", "changed", "remote", "missing"]
"""How a data set stands.

- verified: in the data root, every file as the manifest of the pinned revision has it;
- cached: in the hub's cache, at the pinned revision;
- unverified: in the data root without a manifest; results name it by its content;
- changed: in the data root, but not what was pulled;
- remote: not here; loaded from the hub when it is needed;
- missing: not here, and offline.
"""


@dataclass(frozen=True, kw_only=True)
class Need:
    """One data set at a pinned revision, and what uses it.

    `tasks` and `subsets` are names, in the order in which they first came up.
    """

    path: str
    revision: str
    tasks: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()

    @property
    def data(self) -> Data:
        """The data set as a task pins it."""
        return Data(path=self.path, revision=self.revision)


@dataclass(frozen=True, kw_only=True)
class Status:
    """What there is of a needed data set on this machine.

    `size` counts the bytes on disk (None where nothing is); `data` is what results would name.
    """

    need: Need
    state: State
    where: Origin | None = None
    folder: Path | None = None
    size: int | None = None
    data: Data | None = None


def needs(tasks: Sequence[Task]) -> tuple[Need, ...]:
    """The hub data sets behind `tasks`, each revision once, in the order they first come up."""
    grouped: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        if task.data.path:
            grouped.setdefault((task.data.path, task.data.revision), []).append(task)
    return tuple(
        Need(
            path=path,
            revision=revision,
            tasks=tuple(dict.fromkeys(task.name for task in users)),
            subsets=tuple(dict.fromkeys(subset for task in users for subset in task.subsets)),
        )
        for (path, revision), users in grouped.items()
    )


def found(root: Path) -> tuple[Need, ...]:
    """The data sets that lie in a data root, sorted, at the revision their manifest names."""
    folders = [f for f in sorted(root.glob("*/*")) if f.is_dir() and not _hidden(f, root)]
    return tuple(_found(folder, root) for folder in folders if visible_files(folder))


def status(need: Need, settings: DataSettings) -> Status:
    """How a data set stands on this machine; the hub is not asked."""
    try:
        located = locate(need.data, settings, subsets=need.subsets)
    except DataMissing:
        return Status(need=need, state="missing")
    if located.folder is None:
        return Status(need=need, state="remote", where=located.origin, data=located.data)
    return Status(
        need=need,
        state=_state(need, located, located.folder),
        where=located.origin,
        folder=located.folder,
        size=sum(path.stat().st_size for path in visible_files(located.folder).values()),
        data=located.data,
    )


def _state(need: Need, located: Located, folder: Path) -> State:
    if located.origin == "hub-cache":
        return "cached"
    if located.data == need.data:
        return "verified"
    try:
        return "changed" if read_manifest(folder) else "unverified"
    except DataError:
        return "changed"


def _found(folder: Path, root: Path) -> Need:
    try:
        manifest = read_manifest(folder)
    except DataError:
        manifest = None
    path = folder.relative_to(root).as_posix().partition("@")[0]
    return Need(path=path, revision=manifest.revision if manifest else "")


def _hidden(folder: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in folder.relative_to(root).parts)
