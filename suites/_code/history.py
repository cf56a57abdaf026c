"""The history of a folder in git: its newest commits, and its files before them.

Git's plumbing is read; nothing is checked out, written or fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NEWEST, SHARE = 1000, 4
"""The test set is the newest commits: at most NEWEST of them, and at most one in SHARE of all."""

Blob = str
"""The id of a file's content in git."""


class NoHistoryError(Exception):
    """A folder without a history that can be read; the text is the reason."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Commit:
    """A commit: its id, subject, and by path the content before and after of the files that it changed."""

    id: str
    subject: str
    files: Mapping[str, tuple[Blob, Blob]]


@dataclass(frozen=True, kw_only=True)
class History:
    """A folder's files before its newest commits, by path, and these commits, newest first."""

    root: Path
    files: Mapping[str, Blob]
    commits: tuple[Commit, ...]

    def read_blobs(self, blobs: Collection[Blob]) -> Iterator[tuple[Blob, bytes]]:
        """The contents of files."""
        blob_ids = sorted({*blobs})
        for start in range(0, len(blob_ids), _AT_ONCE):
            part = blob_ids[start : start + _AT_ONCE]
            # One process for many files, and the contents of no more than these in memory.
            data = _run_git(self.root, "cat-file", "--batch", given="\n".join(part) + "\n")
            end = 0
            for blob in part:
                head, end = data[end : data.index(b"\n", end)], data.index(b"\n", end) + 1
                size = int(head.rpartition(b" ")[2])  # "<id> blob <size>"
                yield blob, data[end : end + size]
                end += size + 1


_AT_ONCE = 200


def read_head_commit(root: Path) -> str:
    """The commit that a folder is at, "" without one."""
    try:
        return _resolve_head(root)[0]
    except NoHistoryError:
        return ""


def read_history(root: Path) -> History:
    """The files before the newest commits, and these commits without merges.

    The newest commits are those that the newest commit holds and an older one on its first-parent line does
    not, so no content of theirs is in the files.

    Raises:
        NoHistoryError: git is not installed, or the folder has no history or only a part of it.
    """
    commit, shallow = _resolve_head(root)
    if shallow:
        raise NoHistoryError("the git history is shallow (`git fetch --unshallow` gets the rest)")
    # Commits of merged branches lie beside this line: a base on it holds whole merges or none of them.
    line = _run_git(root, "rev-list", "--first-parent", commit).decode().split()
    most = min(NEWEST, int(_run_git(root, "rev-list", "--count", "--no-merges", commit)) // SHARE)
    base = _find_base_commit(root, line, most)
    if base is None:
        raise NoHistoryError(f"the git history has only {len(line)} commits")
    return History(
        root=root,
        files=dict(_list_commit_files(root, base)),
        commits=tuple(_list_new_commits(root, base, commit)),
    )


def _resolve_head(root: Path) -> tuple[str, bool]:
    """The commit that a folder is at, and whether its history is shallow."""
    if not any(os.path.exists(place / ".git") for place in (root, *root.parents)):
        raise NoHistoryError("the folder has no git history")
    commit, shallow = _run_git(root, "rev-parse", "HEAD", "--is-shallow-repository").decode().split()
    return commit, shallow == "true"


def _find_base_commit(root: Path, line: list[str], most: int) -> str | None:
    """The oldest commit of a line (newest first) that is followed by at most `most` others."""
    low, high = 0, len(line) - 1
    while low < high:  # the count grows along the line
        middle = (low + high + 1) // 2
        count = int(_run_git(root, "rev-list", "--count", "--no-merges", f"{line[middle]}..{line[0]}"))
        low, high = (middle, high) if count <= most else (low, middle - 1)
    return line[low] if low else None


def _list_commit_files(root: Path, commit: str) -> Iterator[tuple[str, Blob]]:
    for entry in _run_git(root, "ls-tree", "-r", "-z", commit, ".").decode(errors="replace").split("\0"):
        # Regular files only: 120000 is a link, 160000 a submodule.
        if match := re.fullmatch(r"100\d{3} blob ([0-9a-f]+)\t(.*)", entry, re.DOTALL):
            yield match.group(2), match.group(1)


def _list_new_commits(root: Path, base: str, newest: str) -> Iterator[Commit]:
    """The commits after `base` that change a file, newest first."""
    form = "--format=%H%x00%s%x00"
    listed = _run_git(
        root, "rev-list", "--no-merges", "--topo-order", "--encoding=UTF-8", form, f"{base}..{newest}"
    )
    subjects = dict(re.findall(r"^([0-9a-f]{40,64})\0(.*)\0$", listed.decode(errors="replace"), re.MULTILINE))
    # Without renames a moved file is no change of its functions. --relative leaves out what is outside of the
    # folder, which may be a part of a repository.
    raw = _run_git(
        root, "diff-tree", "--stdin", "-r", "-z", "--raw", "--relative", "--no-renames", "--diff-filter=M",
        given="\n".join(subjects) + "\n",
    )  # fmt: skip
    files: dict[str, dict[str, tuple[Blob, Blob]]] = {}
    commit = ""
    parts = iter(raw.decode(errors="replace").split("\0"))
    for part in parts:
        if match := re.fullmatch(r":100\d{3} 100\d{3} ([0-9a-f]+) ([0-9a-f]+) M", part):
            files[commit][next(parts)] = (match.group(1), match.group(2))
        elif part.startswith(":"):
            next(parts)
        elif part:
            commit = part.strip()
            files[commit] = {}
    yield from (
        Commit(id=name, subject=subject, files=files[name])
        for name, subject in subjects.items()
        if files.get(name)
    )


def _run_git(root: Path, *arguments: str, given: str = "") -> bytes:
    """What git prints; no configuration of the repository may run a program or reach the network."""
    # GIT_DIR and others, which a hook of git sets, would name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # No lock in a repository that is only read, and no download of what a partial clone lacks.
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    # core.fsmonitor can name a program that git then runs.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-replace-objects", "--no-pager")
    try:
        done = subprocess.run(
            ["git", *safe, *arguments],
            cwd=root, env=environment, input=given.encode(), capture_output=True, check=False,
        )  # fmt: skip
    except OSError:
        raise NoHistoryError("git is not installed") from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise NoHistoryError(f"git says: {message.removeprefix('fatal: ')}")
    return done.stdout
