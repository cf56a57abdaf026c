"""The former import, as far as a refresh needs it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness import __version__, imported
from harness.errors import RecordError
from harness.imported import Imported
from leaderboard.importers._mteb_files import Told
from leaderboard.importers._mteb_scan import Found

log = logging.getLogger(__name__)

ABOUT = ("path", "size", "mtime_ns", "ctime_ns", "problem")

PASSING = ("cannot be", "too large for the memory")
"""How the problems begin that do not lie in the file."""


class Row(NamedTuple):
    """What the manifest knows of a file."""

    size: int
    mtime_ns: int
    ctime_ns: int
    problem: str
    place: int

    def same(self, found: Found) -> bool:
        """Whether the file is what it was."""
        same = self.size == found.size and self.mtime_ns == found.mtime_ns
        return (
            same and self.ctime_ns == found.ctime_ns and (not found.problem or found.problem == self.problem)
        )

    @property
    def passing(self) -> bool:
        """Whether the file could not be read for a reason that may be gone by now."""
        return self.problem.startswith(PASSING)


@dataclass(frozen=True, kw_only=True)
class Former:
    """The import that stands: its files by path."""

    imported: Imported
    files: Mapping[str, Row]

    def told(self) -> list[Told]:
        """What each of its files is, in their order."""
        columns = [self.imported.files([name])[name].to_pylist() for name in Told._fields]
        return [Told(*values) for values in zip(*columns, strict=True)]


def read(folder: Path, versions: Mapping[str, Any]) -> Former | None:
    """The import in `folder`; None if there is none, or one that was read in another way.

    Raises:
        RecordError: It is of a newer schema.
    """
    found = imported.read(folder)
    if found is None or found.stamp.get("versions") != {"harness": __version__, **versions}:
        return None
    try:
        table = found.files(ABOUT)
        found.scores(["flag"])
        found.entries(["card"])
    except RecordError as error:
        log.warning("%s Everything is imported anew.", error.message)
        return None
    columns = [table[name].to_pylist() for name in ABOUT]
    places = range(table.num_rows)
    rows = {path: Row(*facts) for path, *facts in zip(*columns, places, strict=True)}
    return Former(imported=found, files=rows)
