"""Checking a pulled data set, file by file, against its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.data.folder import MANIFEST, FileEntry, Manifest, read_manifest, visible_files
from harness.data.locate import other_revision, places, root_folder, unreadable
from harness.data.needs import Need
from harness.errors import DataError
from harness.filehash import sha256_file

ProblemKind = Literal["missing", "size", "sha256", "revision", "manifest", "unproven", "extra"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is not as it was pulled; `file` is empty where the whole folder is meant.

    "unproven" (no manifest) and "extra" (a file that was not pulled) are worth knowing and not
    wrong: results then name the data set by its content instead of its revision.
    """

    kind: ProblemKind
    message: str
    file: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the data set needs to be pulled again."""
        return self.kind not in ("unproven", "extra")


def verify(need: Need, root: Path) -> tuple[Problem, ...]:
    """What differs between a data set in the data root and what was pulled.

    Every file is read, so damage that leaves size and times as they were is found too.

    Raises:
        DataError: The data root does not exist, or something in it cannot be read.
    """
    folder = root_folder(need.path, need.revision, root)
    if folder is None:
        return (_absent(need, root),)
    try:
        manifest = read_manifest(folder)
    except DataError as error:
        return (Problem(kind="manifest", file=MANIFEST, message=error.message),)
    if manifest is None:
        return (
            Problem(kind="unproven", message=f"{need.path} has no manifest: not pulled by this program."),
        )
    try:
        return (*_revision(need, manifest), *_files(manifest, visible_files(folder)))
    except OSError as error:
        raise unreadable(folder, error) from error


def _absent(need: Need, root: Path) -> Problem:
    held = other_revision(places(need.path, need.revision, root)[0], need.revision)
    if held:
        message = f"{need.path} is there at {held}, wanted is {need.revision}."
        return Problem(kind="revision", message=message)
    return Problem(kind="missing", message=f"{need.path} is not in {root}.")


def _revision(need: Need, manifest: Manifest) -> Iterator[Problem]:
    wanted = (need.path, need.revision or manifest.revision)
    if (manifest.repo, manifest.revision) != wanted:
        message = f"holds {manifest.repo} at {manifest.revision}, wanted is {wanted[0]} at {wanted[1]}."
        yield Problem(kind="revision", message=message)


def _files(manifest: Manifest, present: dict[str, Path]) -> Iterator[Problem]:
    for name, entry in manifest.files.items():
        if name not in present:
            yield Problem(kind="missing", file=name, message=f"{name} is missing.")
        else:
            yield from _file(name, entry, present[name])
    for name in present.keys() - manifest.files.keys():
        yield Problem(kind="extra", file=name, message=f"{name} was not pulled.")


def _file(name: str, entry: FileEntry, path: Path) -> Iterator[Problem]:
    size = path.stat().st_size
    if size != entry.size:
        message = f"{name} has {size} bytes instead of {entry.size}."
        yield Problem(kind="size", file=name, message=message)
    elif (sha256 := sha256_file(path)) != entry.sha256:
        message = f"{name} has sha256 {sha256[:12]}… instead of {entry.sha256[:12]}…"
        yield Problem(kind="sha256", file=name, message=message)
