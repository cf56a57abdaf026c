"""Fetching a data set from the hub into a data root, whole, verified and in one step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from harness.data.folder import MANIFEST, FileEntry, Manifest, visible_files
from harness.data.huberrors import Unavailable, explained
from harness.data.locate import other_revision, places
from harness.data.needs import Need
from harness.data.sizes import human_size, remote_size
from harness.data.verify import verify
from harness.errors import DataError
from harness.filehash import sha256_file

Progress = Callable[[str], None]
"""Called with one line at each step of a pull."""


def _quiet(_line: str) -> None:
    """Say nothing."""


def pull(need: Need, root: Path, *, progress: Progress = _quiet) -> Literal["pulled", "kept"]:
    """Fetch a data set at its pinned revision into `<root>/<org>/<name>/`.

    Where another revision lies there it goes to `<name>@<revision>` beside it.

    Files go to a hidden folder beside the final one; only when all are there and hashed does the
    folder get its name. What an interrupted pull fetched is kept for the next one. A data set
    that is there and verified is kept as it is; one that was pulled and has changed is replaced.

    Raises:
        DataError: The hub cannot be reached or refuses, the disk is full, the root cannot be
            written, or a folder stands there that no pull made.
    """
    with explained(need, root), _locked(_place(need, root)) as target:
        if target.exists():
            wrong = [problem for problem in verify(need, root) if problem.kind != "extra"]
            if not wrong:
                return "kept"
            _refuse_foreign(target)
        partial = _download(need, target, progress)
        progress(f"hashing {need.path}")
        _write_manifest(need, partial)
        _put_in_place(partial, target)
    return "pulled"


def _place(need: Need, root: Path) -> Path:
    """The usual folder, or the one beside it if another revision lies there."""
    root.expanduser().mkdir(parents=True, exist_ok=True)
    usual, beside = places(need.path, need.revision, root)
    return usual if other_revision(usual, need.revision) is None else beside


def _download(need: Need, target: Path, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download

    partial = target.parent / f".{target.name}.{need.revision[:12]}.partial"
    _check_room(need, partial)
    progress(f"fetching {need.path} at {need.revision[:12]}")
    snapshot_download(need.path, repo_type="dataset", revision=need.revision, local_dir=partial)
    if not visible_files(partial):
        raise DataError(f"The data set {need.path} at revision {need.revision} holds no files.")
    return partial


def _check_room(need: Need, partial: Path) -> None:
    """Refuse what cannot fit before anything is fetched; a size the hub does not tell is no bar.

    What an interrupted pull has fetched is not asked for again.
    """
    try:
        size = remote_size(need)
    except Unavailable:
        raise
    except DataError:
        return
    free = shutil.disk_usage(partial.parent).free
    fetched = sum(f.stat().st_size for f in partial.rglob("*") if f.is_file())
    if size - fetched > free:
        raise DataError(
            f"{need.path} has {human_size(size)}, and {partial.parent} has {human_size(free)} free.",
            hint="Free some room, or choose another folder with --data DIR.",
        )


def _write_manifest(need: Need, folder: Path) -> None:
    entries = {
        name: FileEntry(size=path.stat().st_size, sha256=sha256_file(path))
        for name, path in visible_files(folder).items()
    }
    manifest = Manifest(repo=need.path, revision=need.revision, files=entries)
    (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")


def _put_in_place(partial: Path, target: Path) -> None:
    """Give a finished folder its name; an older one is moved aside first and then removed."""
    shutil.rmtree(partial / ".cache", ignore_errors=True)
    aside = target.parent / f".{target.name}.old"
    shutil.rmtree(aside, ignore_errors=True)
    if target.exists():
        target.rename(aside)
    partial.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


def _refuse_foreign(target: Path) -> None:
    ours = (target / MANIFEST).exists() or not visible_files(target)
    if target.is_symlink() or not ours:
        raise DataError(
            f"{target} was not pulled by this program, so it is not replaced.",
            hint="Move it away and pull again, or choose another folder with --data DIR.",
        )


@contextmanager
def _locked(target: Path) -> Iterator[Path]:
    """Keep a second pull of the same data set waiting until this one is done."""
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / f".{target.name}.lock"):
        yield target
