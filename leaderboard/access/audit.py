"""The audit: a line for every attempt to push a record, and one before a record is stored."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from leaderboard.access import private

LONGEST = 128
"""Characters of one value; what is longer is cut."""

FULL = 64 * 2**20
"""Bytes after which the file is put aside as `audit.jsonl.1`, in place of the one before it."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What is written of an attempt; no secret is among it.

    Attributes:
        token: The token's name, None where there was no known one.
        client: The address it came from.
        key: The record's key, None where the request did not get that far.
        outcome: One word: `accepted` before a record is stored; then `created`, `known`, `conflict`,
            or why it was refused.
        status: The HTTP status of the answer; 202 where there is none yet.
    """

    token: str | None
    client: str | None
    key: str | None
    outcome: str
    status: int


class Audit:
    """The audit of a results folder, in `site/audit.jsonl`."""

    def __init__(self, results: Path, *, full: int = FULL) -> None:
        self.path = private.folder(results) / "audit.jsonl"
        self._full = full

    def write(self, attempt: Attempt) -> None:
        """Append a line, whole, whoever else writes; values of strangers are escaped and cut.

        Raises:
            OSError: The file cannot be written.
        """
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(attempt)}
        cut = {k: v[:LONGEST] if isinstance(v, str) else v for k, v in line.items()}
        content = (json.dumps(cut, ensure_ascii=True) + "\n").encode("ascii")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._make_room(len(content))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, private.MODE)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError("the line was not written whole")
        finally:
            os.close(descriptor)

    def _make_room(self, wanted: int) -> None:
        if self._size() + wanted <= self._full:
            return
        with private.exclusively(self.path.parent, "audit"):
            if self._size() + wanted > self._full:  # nobody else did it in between
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0
