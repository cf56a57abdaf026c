"""The checkout this program runs from, if it runs from one."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """A commit, and whether the files differ from it (new files that git does not ignore count)."""

    commit: str
    dirty: bool


@cache
def checkout(folder: Path = Path(__file__).parent) -> Checkout | None:
    """The checkout that `folder` is part of; None without one.

    An installation that merely lies inside somebody's checkout, such as a virtual environment,
    is not part of it: git must know a file in `folder`.
    """
    if not _git(folder, "ls-files", "."):
        return None
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain")
    if not commit or changes is None:
        return None
    return Checkout(commit=commit, dirty=bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, None if it fails or is not there."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
