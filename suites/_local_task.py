"""One task of a user's folder: its identity from the files' bytes, and its rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataError
from harness.identity import digest
from suites._local_kinds import KINDS, RULE
from suites._local_learning import Learning
from suites._places import reading
from suites._tables import Record, records

_IDS = "Another column can be the id: id = \"...\" under 'columns' in harness.toml."


@dataclass(frozen=True, kw_only=True)
class LocalTask:
    """One task in a user's folder.

    `files` are in the order of the type's files in docs/local-data.md; `columns` are pairs of a
    column's name here and the name it has in the files, where the two differ. For
    `ignore_identical_ids` see suites._data.Retrieval; `learning` is there if a recipe trains a
    model for the task.
    """

    name: str
    type: str
    split: str = "test"
    files: tuple[Path, ...]
    columns: tuple[tuple[str, str], ...] = ()
    ignore_identical_ids: bool = False
    learning: Learning | None = None

    @property
    def metric(self) -> str:
        """The task's main metric as mteb calls it, or all metrics of one that is trained for."""
        return ", ".join(self.learning.metrics if self.learning else KINDS[self.type].metrics)

    @property
    def content(self) -> str:
        """The hash of the files' bytes and of all that harness.toml says but for the name.

        It is computed at every access, so a changed file shows.
        """
        files = [[path.suffix, _file_hash(path)] for path in self.files]
        said = {"reader": 1, "type": self.type, "columns": dict(self.columns), "files": files}
        if self.ignore_identical_ids:
            said[RULE] = True
        if self.learning:
            said["learning"] = self.learning
        return digest(said)

    def column(self, name: str) -> str:
        """What the column `name` is called in the files."""
        return dict(self.columns).get(name, name)


def _file_hash(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identified(task: LocalTask, path: Path) -> list[tuple[str, Record]]:
    """Each row with its id: the mapped column, else `_id` or `id`, else (no retrieval) its number."""
    mapped = dict(task.columns).get("id")
    found: dict[str, Record] = {}
    for number, record in enumerate(records(path), start=1):
        column = mapped or next((name for name in ("_id", "id") if name in record.fields), None)
        if column is None and task.type == "retrieval":
            column = "_id"
        id_ = record.token(column) if column else str(number)
        if id_ in found:
            raise record.error(f"the id {id_!r} is already that of line {found[id_].line}.", hint=_IDS)
        found[id_] = record
    return list(found.items())


@contextmanager
def named(*paths: Path) -> Iterator[None]:
    """Put the files before what is wrong with the data as a whole."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{', '.join(map(str, paths))}: {error.message}", hint=error.hint) from None
