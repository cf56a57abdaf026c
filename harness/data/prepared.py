"""Prepared data sets in the cache: folders of the datasets library, complete or prepared again.

A folder is named by the content of its data. When a preparation has ended, a manifest lists every file
with its size and SHA-256. Before its use a folder is compared with the manifest; one that differs, or that
has files of a preparation that never ended, is emptied, and the library prepares its data again. All users of
a folder hold a shared lock, so that none empties it while another reads it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import StoreError, warn
from harness.core.keys import digest

MANIFEST = ".prepared.json"
LOCK = ".prepared.lock"

_Listed = Mapping[str, tuple[int, str]]
"""Size and SHA-256 of files, by their path inside the folder."""


@dataclass(frozen=True, kw_only=True)
class PreparedProblem:
    """A file of a prepared data set and what is wrong with it; `lost` where its preparation never ended."""

    path: Path
    reason: str
    lost: bool = False


@contextmanager
def open_prepared_data(content: str, cache: Path) -> Iterator[Path]:
    """The folder of a data set, in which the datasets library of this process caches until the context ends.

    Args:
        content: The hash of the data.
        cache: The cache folder.

    Raises:
        StoreError: The folder cannot be written, or its disk is full.
    """
    folder = cache / "datasets" / re.sub(r"[^\w.-]", "_", content.rpartition(":")[2])[:16]
    with _hold_whole_folder(folder, cache), _configure_library_cache(folder), explain_disk_full(folder):
        yield folder
        # Only after a success: what a failed preparation wrote stays unlisted, and the next user removes it.
        _extend_manifest(folder, cache)


@contextmanager
def open_cache_file(
    identity: Sequence[Any], name: str, cache: Path, write: Callable[[Path], None]
) -> Iterator[Path]:
    """A file in the cache, written first if it does not exist; it is complete or absent.

    Args:
        identity: Everything that its content depends on.
        name: Its name.
        cache: The cache folder.
        write: Writes it to the path that it is given.

    Raises:
        StoreError: It cannot be written, or its disk is full.
    """
    with open_prepared_data(digest(identity), cache) as folder:
        file = folder / name
        if not file.is_file():
            staged = files.generate_temporary_path(file)
            # Renamed when it is complete: a killed process leaves a temporary file, never half of this one.
            try:
                write(staged)
                staged.replace(file)
            finally:
                staged.unlink(missing_ok=True)
        yield file


@contextmanager
def explain_disk_full(folder: Path | None = None) -> Iterator[None]:
    """Turn the errors of a full disk, wherever they were raised, into one that names the folder.

    Args:
        folder: The folder in the cache that data is prepared in; None for the datasets library's own.

    Raises:
        StoreError: The disk is full.
    """
    try:
        yield
    except StoreError:  # names its own folder
        raise
    except Exception as error:
        if not _is_full(error):
            raise
        import datasets.config

        choice = "--cache DIR" if folder else "HF_HOME=DIR"
        raise StoreError(
            f"Cannot prepare data in {folder or datasets.config.HF_DATASETS_CACHE}: the disk is full.",
            hint=f"What was finished before is kept. Free some room, or choose another folder ({choice}), "
            "and run the same command again.",
        ) from error


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the progress bars of the datasets library."""
    import datasets

    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            datasets.enable_progress_bars()


def find_prepared_problems(folder: Path, cache: Path | None) -> list[PreparedProblem]:
    """What is wrong with a folder of prepared data; files that another process may be writing are not judged.

    With `cache` the hash of a file is computed once for its size, times and inode.
    """
    try:
        with _lock(folder) as lock:
            return _find_folder_problems(
                folder, cache, alone=_acquire_lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            )
    except StoreError:
        return _find_folder_problems(folder, cache, alone=False)


def remove_prepared(folder: Path) -> bool:
    """Empty a folder of prepared data; False if another process uses it.

    Raises:
        OSError: A file cannot be removed.
        StoreError: The folder cannot be written.
    """
    with _lock(folder) as lock:
        alone = _acquire_lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if alone:
            _clear_prepared_folder(folder)
        return alone


@contextmanager
def _hold_whole_folder(folder: Path, cache: Path) -> Iterator[None]:
    """Hold the shared lock on a folder, after a damaged one has been emptied."""
    with _lock(folder) as lock:
        # Exclusive first: only a process that is alone can tell a left-over file from one being written.
        alone = _acquire_lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not alone:
            # Shared while it is in use: others read and add files, and none can empty it.
            _acquire_lock(lock, fcntl.LOCK_SH)
        if _find_folder_problems(folder, cache, alone=alone):
            # flock gives up the shared lock before it takes the exclusive one (flock(2)): two that convert
            # do not block each other, and the other may have repaired the folder, so it is checked again.
            _acquire_lock(lock, fcntl.LOCK_EX)
            if problems := _find_folder_problems(folder, cache, alone=True):
                # What a killed preparation left is removed without a word.
                if damaged := [problem for problem in problems if not problem.lost]:
                    first = f"{damaged[0].path} is damaged: {damaged[0].reason}."
                    warn(f"{first} Its data set is prepared again.")
                _clear_prepared_folder(folder)
        _acquire_lock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def _lock(folder: Path) -> Iterator[IO[str]]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Opened for appending, which creates the file but never empties one that others hold.
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise files.write_error(folder, error) from error
    with lock:
        yield lock
        # Not left to the closing: a forked process would keep the lock (flock(2)).
        _acquire_lock(lock, fcntl.LOCK_UN)


def _acquire_lock(lock: IO[str], how: int) -> bool:
    """Take a lock; False if others hold it, or the file system has no locks."""
    try:
        fcntl.flock(lock, how)
    except OSError:
        return False
    return True


def _find_folder_problems(folder: Path, cache: Path | None, *, alone: bool) -> list[PreparedProblem]:
    """What is wrong with a folder; files that the manifest lacks only where no other process makes them."""
    listed, paths = _read_file_list(folder), _list_prepared_files(folder)
    if listed is None:
        return [PreparedProblem(path=folder / MANIFEST, reason="it is truncated or changed")]
    problems = [
        PreparedProblem(path=folder / name, reason=reason)
        for name, (size, sha256) in listed.items()
        if (reason := _describe_file_change(paths.get(name), size, sha256, cache))
    ]
    if alone:
        problems += [
            PreparedProblem(path=path, reason="its preparation did not end", lost=True)
            for name, path in paths.items()
            if name not in listed
        ]
    return problems


def _describe_file_change(path: Path | None, size: int, sha256: str, cache: Path | None) -> str:
    if path is None:
        return "it is gone"
    if path.stat().st_size != size:
        return "its size has changed"
    return "" if files.has_sha256(path, sha256, cache) else "its content has changed"


def _extend_manifest(folder: Path, cache: Path) -> None:
    """Add the files that were prepared to the manifest."""
    from filelock import FileLock

    # The shared lock lets several processes come here at once: each would drop the others' entries.
    with FileLock(folder / f"{MANIFEST}.lock"):
        listed = _read_file_list(folder) or {}
        new = {name: path for name, path in _list_prepared_files(folder).items() if name not in listed}
        facts = {name: (path.stat().st_size, files.hash_file(path, cache)) for name, path in new.items()}
        if facts:
            content = {"schema": 1, "folder": folder.name, "files": {**listed, **facts}}
            write_content_file(folder / MANIFEST, content)


def _read_file_list(folder: Path) -> _Listed | None:
    """The files of a folder's manifest, none without a manifest; None if it is damaged or another's."""
    try:
        manifest = read_content_file(folder / MANIFEST)
        listed = manifest["files"] if manifest["folder"] == folder.name else None
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError):
        return None
    return listed and {name: (size, sha256) for name, (size, sha256) in listed.items()}


def _list_prepared_files(folder: Path) -> dict[str, Path]:
    """The files of a folder, without locks and files that are still under a temporary name."""
    paths: dict[str, Path] = {}
    for here, folders, names in os.walk(folder):
        # The names that the datasets library gives to what it has not finished: `NAME.incomplete` of a
        # builder, `tmpXXXX` of a mapped table.
        folders[:] = sorted(name for name in folders if not name.endswith(".incomplete"))
        ended = (
            n for n in names if not n.startswith((MANIFEST, "tmp")) and not n.endswith((".lock", ".tmp"))
        )
        paths |= {Path(here, name).relative_to(folder).as_posix(): Path(here, name) for name in sorted(ended)}
    return paths


def _clear_prepared_folder(folder: Path) -> None:
    """Remove everything but the lock, which others may hold."""
    # Without its file a process that waits for the lock and one that comes later would lock two files.
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


@contextmanager
def _configure_library_cache(folder: Path) -> Iterator[None]:
    """Let the datasets library cache in `folder`."""
    import datasets.config

    downloads = folder / datasets.config.DOWNLOADED_DATASETS_DIR
    # The library reads these at each use, its environment variables only on import. The two others were
    # derived from the first on import, so all three are set.
    places = {
        "HF_DATASETS_CACHE": folder,
        "DOWNLOADED_DATASETS_PATH": downloads,
        "EXTRACTED_DATASETS_PATH": downloads / datasets.config.EXTRACTED_DATASETS_DIR,
    }
    with ExitStack() as undo:
        for name, place in places.items():
            undo.callback(setattr, datasets.config, name, getattr(datasets.config, name))
            setattr(datasets.config, name, place)
        yield


_FULL = ("No space left on device", "Not enough disk space", "Disk quota exceeded", "File too large")


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is of a full disk."""
    # The library's "Not enough disk space" has no errno, and what pyarrow raised is only the cause of its
    # errors: texts and causes are searched, too. A chain of causes may be a circle, hence `seen`.
    seen = list[BaseException]()
    while error is not None and error not in seen:
        number = getattr(error, "errno", None)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or any(text in str(error) for text in _FULL):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False
