"""The former import, as far as a refresh needs it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness import __version__
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


def usable(standing: Imported | None, versions: Mapping[str, Any]) -> bool:
    """Whether there is an import that is whole and was read as files are read now."""
    if standing is None or not standing.whole():
        return False
    return bool(standing.stamp.get("versions") == {"harness": __version__, **versions})


def stands(standing: Imported, digest: str) -> bool:
    """Whether nothing changed since, and nothing is to be tried again."""
    problems = standing.counts.get("problems", {})
    return standing.stamp.get("scan") == digest and not any(p.startswith(PASSING) for p in problems)


def read(standing: Imported) -> Former | None:
    """What a refresh needs of the import, None if its tables cannot be read."""
    try:
        table = standing.files(ABOUT)
        standing.scores(["flag"])
        standing.entries(["card"])
    except RecordError as error:
        log.warning("%s Everything is imported anew.", error.message)
        return None
    columns = [table[name].to_pylist() for name in ABOUT]
    places = range(table.num_rows)
    rows = {path: Row(*facts) for path, *facts in zip(*columns, places, strict=True)}
    return Former(imported=standing, files=rows)
