"""Finding the files of a checkout of mteb's results repository, without following a link."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from array import array
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError

CARD = "model_meta.json"
EXPERIMENTS = "experiments"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Found(NamedTuple):
    """One file: where it lies below the results, and what changes when it does.

    `problem` says why it is not to be read, empty if it is. The time of the last change of the
    inode is there because archives give all their files one time of modification.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    problem: str = ""


def results_of(path: Path) -> Path:
    """The folder of the results: `path`, or `results` below it.

    Raises:
        UsageError: There is no such folder.
    """
    if not path.is_dir():
        raise UsageError(
            f"{path} is no folder.",
            hint="PATH is a checkout of github.com/embeddings-benchmark/results, or its results folder.",
        )
    return path / "results" if (path / "results").is_dir() else path


def scan(root: Path) -> list[Found]:
    """Every JSON file below the results, sorted by path; other files are none of ours.

    Results lie at <model>/<revision>/<Task>.json and
    <model>/<revision>/experiments/<name>/<Task>.json.
    """
    found: list[Found] = []
    for model in _list(root, "", found, holds=False):
        for revision in _list(root, model, found, holds=False):
            for inner in _list(root, revision, found, holds=True):
                if not inner.endswith(f"/{EXPERIMENTS}"):
                    found.append(Found(inner, 0, 0, 0, "a folder where none belongs"))
                    continue
                for experiment in _list(root, inner, found, holds=False):
                    for deeper in _list(root, experiment, found, holds=True):
                        found.append(Found(deeper, 0, 0, 0, "a folder where none belongs"))
    return sorted(found)


def digest_of(found: list[Found]) -> str:
    """A hash that changes with any file: another one, a missing one, another size or time."""
    digest = hashlib.sha256("\0".join([f"{file.path}\0{file.problem}" for file in found]).encode())
    for numbers in ("size", "mtime_ns", "ctime_ns"):
        digest.update(array("q", map(attrgetter(numbers), found)))
    return digest.hexdigest()


def folder_of(path: str) -> str | None:
    """The folder of an entry that a path lies in, None if it lies in none.

    >>> folder_of("org__model/external/experiments/long/STS12.json")
    'org__model/external/experiments/long'
    """
    folder, _, _ = path.rpartition("/")
    steps = folder.split("/")
    return folder if len(steps) == 2 or (len(steps) == 4 and steps[2] == EXPERIMENTS) else None


def commit_of(path: Path) -> str | None:
    """The commit that is checked out at `path` or right above it, read without git."""
    for folder in (path, path.parent):
        if (folder / ".git").is_dir():
            return _commit(folder / ".git")
    return None


def _commit(git: Path) -> str | None:
    head = _text(git / "HEAD")
    if not head.startswith("ref: refs/") or ".." in head:
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ")
    packed = {n: c for c, _, n in (line.partition(" ") for line in _text(git / "packed-refs").splitlines())}
    commit = _text(git / name) or packed.get(name, "")
    return commit if _COMMIT.fullmatch(commit) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _list(root: Path, below: str, found: list[Found], *, holds: bool) -> list[str]:
    """The folders in a folder; its JSON files go to `found`, with a problem unless it `holds` results."""
    prefix = f"{below}/" if below else ""
    folders = []
    try:
        with os.scandir(f"{root}/{below}") as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if below or not entry.name.startswith("."):
                        folders.append(path)
                elif entry.name.endswith(".json"):
                    found.append(_file(entry, path, holds))
                elif entry.is_symlink() and entry.is_dir():
                    found.append(Found(shown(path), 0, 0, 0, "a symbolic link"))
    except OSError as error:
        found.append(Found(shown(below), 0, 0, 0, f"cannot be listed: {error.strerror}"))
    return folders


def _file(entry: os.DirEntry[str], path: str, holds: bool) -> Found:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError as error:
        return Found(shown(path), 0, 0, 0, f"cannot be read: {error.strerror}")
    place = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    if not path.isascii() and shown(path) != path:
        return Found(shown(path), *place, "its name is not UTF-8")
    if stat.S_ISREG(facts.st_mode):
        return Found(path, *place, "" if holds else "not where results lie")
    return Found(path, *place, "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "no regular file")


def shown(path: str) -> str:
    """A path as text, what is no UTF-8 in it escaped."""
    return path.encode("utf-8", "backslashreplace").decode()
