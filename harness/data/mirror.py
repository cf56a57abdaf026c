"""Local copies of hub data sets: those that tasks need, their state, pulling, and verification."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.core.errors import DataError
from harness.core.files import hash_file
from harness.core.terminal import shorten_names
from harness.core.types import Data, TableSource, Task
from harness.data.folder import MANIFEST, README, FileEntry, Manifest, Need, list_visible_files
from harness.data.locate import (
    DataMissing,
    DataSettings,
    Origin,
    Unavailable,
    explain_hub_error,
    explain_unreadable_folder,
    fetch_remote_size,
    find_other_revision,
    find_root_folder,
    format_size,
    list_candidate_folders,
    locate_data,
    select_file_patterns,
)
from harness.data.training.sets import TrainingData

State = Literal["verified", "cached", "unverified", "changed", "remote", "missing"]
"""The state of a data set: "verified" (in the data root, every file as in the manifest of the pinned
revision), "cached" (in the hub's cache at the pinned revision), "unverified" (in the data root without a
manifest; results name it by its content), "changed" (in the data root, but changed since the pull), "remote"
(on the hub only, loaded when needed), or "missing" (not on this machine, and offline)."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of a data set here: its bytes on disk (None without files), and its identity in results."""

    need: Need
    state: State
    where: Origin | None = None
    folder: Path | None = None
    size: int | None = None
    data: Data | None = None

    @staticmethod
    def resolve_status(need: Need, settings: DataSettings) -> Status:
        """The state of a data set on this machine; the hub is not asked."""
        try:
            located = locate_data(need.data, settings, subsets=need.subsets)
        except DataMissing:
            return Status(need=need, state="missing")
        if located.folder is None:
            return Status(need=need, state="remote", where=located.origin, data=located.data)
        state: State = "changed"
        if located.origin == "hub-cache":
            state = "cached"
        elif located.data == need.data:
            state = "verified"
        else:
            with suppress(DataError):
                state = "changed" if Manifest.read_manifest(located.folder) else "unverified"
        return Status(
            need=need,
            state=state,
            where=located.origin,
            folder=located.folder,
            size=sum(path.stat().st_size for path in list_visible_files(located.folder).values()),
            data=located.data,
        )


def needs(
    tasks: Sequence[Task], recipes: Mapping[str, Sequence[TrainingData]] | None = None
) -> tuple[Need, ...]:
    """The hub data sets of `tasks` and of recipes by name, each revision once, in the order of first use."""
    data_needs = [_build_task_need(task) for task in tasks]
    data_needs += [_build_recipe_need(name, data) for name, sets in (recipes or {}).items() for data in sets]
    grouped: dict[tuple[str, str], list[Need]] = {}
    for need in data_needs:
        if need.path:
            grouped.setdefault((need.path, need.revision), []).append(need)
    return tuple(map(_merge_needs, grouped.values()))


def _build_task_need(task: Task) -> Need:
    tables = task.source.list_data_tables(task) if isinstance(task.source, TableSource) else ()
    return Need(
        path=task.data.path,
        revision=task.data.revision,
        tasks=(task.name,),
        subsets=task.subsets,
        configs=tuple(table.config for table in tables),
    )


def _build_recipe_need(name: str, data: TrainingData) -> Need:
    return Need(
        path=data.path,
        revision=data.revision,
        tasks=(name,),
        subsets=data.configs,
        configs=() if data.file else tuple((config,) for config in data.configs),
        files=(data.file,) if data.file else (),
    )


def _merge_needs(needs: Sequence[Need]) -> Need:
    """The need of several users of a data set."""
    needs_all = any(not (need.configs or need.files) for need in needs)

    def collect_field(name: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(value for need in needs for value in getattr(need, name)))

    return replace(
        needs[0],
        tasks=collect_field("tasks"),
        subsets=collect_field("subsets"),
        configs=() if needs_all else collect_field("configs"),
        files=() if needs_all else collect_field("files"),
    )


Progress = Callable[[str], None]
"""A callback with one line at each step of a pull."""


def pull(need: Need, root: Path, *, progress: Progress = lambda _line: None) -> Literal["pulled", "kept"]:
    """Fetch a data set at its pinned revision into `<root>/<org>/<name>/`, or `<name>@<revision>` if taken.

    Only the files of the configurations that are read are fetched, where its README names them; what an
    earlier pull has fetched stays. Files go to a hidden folder, which gets its final name when all files are
    there and hashed; an interrupted pull continues there. A verified data set is left as it is; a pulled one
    that has changed is replaced.

    Args:
        need: The data set, its revision, and the configurations and files that are read.
        root: The data root.
        progress: Gets one line at each step.

    Returns:
        "kept" for a verified data set, else "pulled".

    Raises:
        DataError: The hub refuses or cannot be reached, the disk is full or may not be written, or a folder
            that no pull made is in the way.
    """
    with explain_hub_error(need, root), _hold_pull_lock(need, root) as target:
        if target.exists():
            # A file that somebody added beside the pulled ones is no reason to fetch them again.
            wrong = [problem for problem in verify(need, root) if problem.kind != "extra"]
            if not wrong:
                return "kept"
            ours = (target / MANIFEST).exists() or not list_visible_files(target)
            if target.is_symlink() or not ours:
                raise DataError(
                    f"{target} was not pulled by this program, so it is not replaced.",
                    hint="Move it away and pull again, or choose another folder with --data DIR.",
                )
        partial, patterns = _download(need, target, progress)
        progress(f"hashing {need.path}")
        entries = {
            name: FileEntry(size=path.stat().st_size, sha256=hash_file(path))
            for name, path in list_visible_files(partial).items()
        }
        manifest = Manifest(repo=need.path, revision=need.revision, files=entries, patterns=patterns)
        (partial / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        _put_in_place(partial, target)
    return "pulled"


def _download(need: Need, target: Path, progress: Progress) -> tuple[Path, tuple[str, ...]]:
    """The folder of the fetched files, and the patterns by which they were chosen."""
    from huggingface_hub import snapshot_download

    # With the revision in its name, so that a pull never continues with files of another revision.
    partial = target.parent / f".{target.name}.{need.revision[:12]}.partial"
    patterns = _fetch_patterns(need, partial)
    if patterns:
        patterns = tuple(dict.fromkeys([*patterns, *_link_earlier(target, partial)]))
    _check_room(need, partial, patterns)
    progress(f"fetching {need.path} at {need.revision[:12]}")
    # snapshot_download skips files of local_dir that are as on the hub, by its notes in local_dir/.cache or
    # by their SHA-256: so an interrupted pull continues, and linked files are not fetched.
    snapshot_download(
        need.path,
        repo_type="dataset",
        revision=need.revision,
        local_dir=partial,
        allow_patterns=[*patterns] or None,
    )
    if not list_visible_files(partial):
        raise DataError(f"The data set {need.path} at revision {need.revision} holds no files.")
    return partial, patterns


def _fetch_patterns(need: Need, partial: Path) -> tuple[str, ...]:
    """The patterns of the files to fetch, by the README, which is fetched first; none for all."""
    from huggingface_hub import snapshot_download

    if not (need.configs or need.files):
        return ()
    snapshot_download(
        need.path, repo_type="dataset", revision=need.revision, local_dir=partial, allow_patterns=[README]
    )
    return select_file_patterns(need, partial)


def _link_earlier(target: Path, partial: Path) -> tuple[str, ...]:
    """Take over the undamaged files of an earlier pull of other parts; gives the patterns of that pull."""
    manifest = Manifest.read_intact_manifest(target)
    if manifest is None:
        return ()
    for name, entry in manifest.files.items():
        file, place = target / name, partial / name
        if file.is_file() and not place.exists() and not [*_verify_pulled_file(name, entry, file)]:
            place.parent.mkdir(parents=True, exist_ok=True)
            # A hard link needs no room and no time; some file systems have none.
            try:
                os.link(file, place)
            except OSError:
                shutil.copyfile(file, place)
    return manifest.patterns


def _check_room(need: Need, partial: Path, patterns: Sequence[str]) -> None:
    """Refuse a pull that does not fit on the disk, unless the hub does not tell the size."""
    try:
        size = fetch_remote_size(need, patterns=patterns)
    except Unavailable:
        raise
    except DataError:
        return
    free = shutil.disk_usage(partial.parent).free
    # What lies in `partial` already, linked or fetched, needs no further room.
    fetched = sum(f.stat().st_size for f in partial.rglob("*") if f.is_file())
    if size - fetched > free:
        raise DataError(
            f"{need.path} has {format_size(size)}, and {partial.parent} has {format_size(free)} free.",
            hint="Free some room, or choose another folder with --data DIR.",
        )


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename a finished folder to its final name, replacing an older folder."""
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    # rename(2) cannot replace a folder with files, so the old one is moved aside first. After a kill
    # between the two renames the next pull continues from `partial`.
    aside = target.parent / f".{target.name}.old"
    shutil.rmtree(aside, ignore_errors=True)
    if target.exists():
        target.rename(aside)
    partial.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _hold_pull_lock(need: Need, root: Path) -> Iterator[Path]:
    """The folder of a pull: the usual one, or one beside it if that holds another revision.

    A second pull of the same data set waits for this one.
    """
    from filelock import FileLock

    root.expanduser().mkdir(parents=True, exist_ok=True)
    usual, beside = list_candidate_folders(need.path, need.revision, root)
    target = usual if find_other_revision(usual, need.revision) is None else beside
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, which is renamed while the lock is held.
    with FileLock(target.parent / f".{target.name}.lock"):
        yield target


ProblemKind = Literal["missing", "size", "sha256", "revision", "manifest", "unproven", "extra"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A difference from the pulled data set; `file` is empty if it concerns the folder.

    "unproven" (no manifest) and "extra" (a new file) are no errors: results then name the data by its
    content.
    """

    kind: ProblemKind
    message: str
    file: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the data set must be pulled again."""
        return self.kind not in ("unproven", "extra")


def verify(need: Need, root: Path) -> tuple[Problem, ...]:
    """The differences between a data set in the data root and its manifest; every file is read.

    Raises:
        DataError: The data root does not exist, or a file in it cannot be read.
    """
    folder = find_root_folder(need.path, need.revision, root)
    if folder is None:
        usual = list_candidate_folders(need.path, need.revision, root)[0]
        if held := find_other_revision(usual, need.revision):
            message = f"{need.path} is at revision {held}; needed is {need.revision}."
            return (Problem(kind="revision", message=message),)
        return (Problem(kind="missing", message=f"{need.path} is not in {root}."),)
    try:
        manifest = Manifest.read_manifest(folder)
    except DataError as error:
        return (Problem(kind="manifest", file=MANIFEST, message=error.message),)
    if manifest is None:
        return (
            Problem(kind="unproven", message=f"{need.path} has no manifest: not pulled by this program."),
        )
    with explain_unreadable_folder(folder):
        return tuple(_iter_differences(need, manifest, folder))


def _iter_differences(need: Need, manifest: Manifest, folder: Path) -> Iterator[Problem]:
    # Without a pinned revision any revision of the right data set will do.
    repo, revision = need.path, need.revision or manifest.revision
    if (manifest.repo, manifest.revision) != (repo, revision):
        message = f"holds {manifest.repo} at {manifest.revision}; needed is {repo} at {revision}."
        yield Problem(kind="revision", message=message)
    patterns = select_file_patterns(need, folder)
    # What an earlier pull, for other users, did not fetch.
    if need.tasks and manifest.patterns and not (patterns and {*patterns} <= {*manifest.patterns}):
        lacking = [pattern for pattern in patterns if pattern not in manifest.patterns] or ["the rest"]
        yield Problem(kind="missing", message=f"{need.path} was pulled without {shorten_names(lacking)}.")
    present = list_visible_files(folder)
    for name, entry in manifest.files.items():
        if name not in present:
            yield Problem(kind="missing", file=name, message=f"{name} is missing.")
        else:
            yield from _verify_pulled_file(name, entry, present[name])
    for name in present.keys() - manifest.files.keys():
        yield Problem(kind="extra", file=name, message=f"{name} was not pulled.")


def _verify_pulled_file(name: str, entry: FileEntry, path: Path) -> Iterator[Problem]:
    size = path.stat().st_size
    if size != entry.size:
        message = f"{name} has {size} bytes instead of {entry.size}."
        yield Problem(kind="size", file=name, message=message)
    elif (sha256 := hash_file(path)) != entry.sha256:
        message = f"{name} has sha256 {sha256[:12]}… instead of {entry.sha256[:12]}…"
        yield Problem(kind="sha256", file=name, message=message)
