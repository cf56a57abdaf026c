"""The index of a results folder: of each record its stamp and the facts that lists, names and estimates need.

It lies in the cache and is never believed: every file is looked at each time, and what has another stamp
than its row is read again. A damaged index, or that of another machine or folder, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from harness.core import files
from harness.core.errors import RecordError, StoreError
from harness.core.provenance import __version__, count_cores
from harness.results.cost.encoding import PastRanking, PastScore
from harness.results.names import NamedModel, distinguish_names
from harness.storage.record import SCHEMA, Record
from harness.storage.store import FAILED, SETTLED_NS, Store, warn_unread

LEAST_ROWS = 200
"""The rows that have changed from which the index is written: fewer are read faster than it is written."""

MANY = 2000
"""The files from which several processes read them: fewer are read before a process has begun."""

BATCH = 250
"""The files that a process reads at a time."""

PROGRESS_SECONDS = 2.0
"""The seconds after which standard error says how far the reading is."""


class Stamp(NamedTuple):
    """What the file system says of a file: another content has another stamp."""

    size: int
    mtime_ns: int
    # Unlike the time of writing it cannot be set, so that a file put in the place of another has its own.
    ctime_ns: int
    inode: int


@dataclass(frozen=True)
class _Listing:
    """The stamps of files by their path below `records/`, and the time and names of each folder.

    The time is 0 where the names may have changed in the same tick of the clock.
    """

    stamps: dict[str, Stamp] = field(default_factory=dict)
    folders: dict[str, tuple[int, str]] = field(default_factory=dict)


def list_record_stamps(root: Path) -> dict[str, Stamp]:
    """The stamps of all files of records and of failures in a results folder, in the order of their paths.

    Returns:
        `<artifact>/<task>/<file>` below `records/` → stamp; zeros where a file cannot be looked at.
    """
    return _list_files(root, {}).stamps


def _list_files(root: Path, known: Mapping[str, tuple[int, str]]) -> _Listing:
    """The files in a results folder; a folder with the time that is known has the names that are known."""
    listing = _Listing()
    try:
        top = os.open(root / "records", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return listing
    try:
        for artifact in _list_folder(top, ".", {}, {}):
            for task in _list_folder(top, artifact, known, listing.folders):
                folder = f"{artifact}/{task}"
                for name in _list_folder(top, folder, known, listing.folders):
                    if name.endswith(".json"):
                        _add_stamp(top, f"{folder}/{name}", listing.stamps)
    finally:
        os.close(top)
    return listing


def _list_folder(
    top: int, folder: str, known: Mapping[str, tuple[int, str]], seen: dict[str, tuple[int, str]]
) -> Sequence[str]:
    """The sorted names in a folder, listed only where its time has changed; none if it is no folder."""
    try:
        changed, (time_before, names) = os.stat(folder, dir_fd=top).st_ctime_ns, known.get(folder, (0, ""))
        if changed != time_before:
            names = _read_names(top, folder)
            # A change in the same tick of the clock as the listing would not be seen later.
            changed = changed if time.time_ns() - changed > SETTLED_NS else 0
    except OSError:
        return ()
    seen[folder] = (changed, names)
    return names.split("/") if names else ()


def _read_names(top: int, folder: str) -> str:
    """The sorted names in a folder in one text."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
    try:
        return "/".join(sorted(os.listdir(descriptor)))
    finally:
        os.close(descriptor)


def _add_stamp(top: int, path: str, stamps: dict[str, Stamp]) -> None:
    try:
        stat = os.stat(path, dir_fd=top)
    except FileNotFoundError:
        return
    except OSError:
        # It is read as any other, and the reason why it cannot be is told then.
        stamps[path] = Stamp(0, 0, 0, 0)
        return
    stamps[path] = Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


class RecordRow(NamedTuple):
    """A finished record in a list: its path below `records/`, its model as recorded, its task and score."""

    path: str
    key: str
    purpose: str
    name: str
    source: str
    folder: str | None
    revision: str | None
    artifact: str
    weights: str
    group: str | None
    task: str
    metric: str
    main_score: float | None

    @property
    def model_fields(self) -> tuple[str | None, ...]:
        """What `model` is made of."""
        return (self.name, self.source, self.artifact, self.folder, self.revision, self.group)

    @property
    def model(self) -> NamedModel:
        """The model, to be told from others of its name."""
        return NamedModel.from_fields(
            self.name,
            self.source,
            self.artifact,
            folder=self.folder,
            revision=self.revision,
            group=self.group,
        )


_PAST = (
    *("data", "setup", "type", "max_length", "texts", "characters", "parameters", "device_kind"),
    *("device_name", "dtype", "tokens", "seconds", "others", "compared", "compared_seconds", "indexed"),
    *("indexed_seconds", "streamed", "probed", "probed_seconds", "ranked_seconds"),
)
_COLUMNS = (*RecordRow._fields, *_PAST)
_SCHEMA = "".join(f', "{name}"' for name in (*_COLUMNS[1:], *Stamp._fields))
_TABLES = (
    f"CREATE TABLE records(path PRIMARY KEY{_SCHEMA}) WITHOUT ROWID;"
    "CREATE TABLE folders(path PRIMARY KEY, changed, names) WITHOUT ROWID;"
)


def _list_facts(record: Record, path: str) -> tuple[Any, ...]:
    """The row of a record in the index, without its stamp."""
    model, lineage = record.model, record.lineage
    return (
        *(path, record.key, record.purpose, model.name, model.source, model.folder, model.revision),
        *(model.artifact, model.weights if lineage else "", None if lineage is None else lineage.group),
        *(record.task.name, record.task.metric, record.main_score, *_list_past_facts(record)),
    )


def _list_past_facts(record: Record) -> tuple[Any, ...]:
    """What a record says of the cost of work; nothing where it has no encoding, or is a trial."""
    nothing = (None,) * len(_PAST)
    if "encoding" not in record.identity or record.purpose != "final":
        return nothing
    if record.identity["encoding"]["output"] != "ranking":
        return (*PastScore.from_record(record).flatten(), None)
    if record.status != "done":
        return nothing
    data, seconds = PastRanking.from_record(record)
    return (data, *nothing[2:], seconds)


def _read_facts(root: Path, paths: Sequence[str]) -> list[tuple[Any, ...] | None]:
    """The rows of some files; None where no record can be read."""
    return [_read_row(root, path) for path in paths]


def _read_row(root: Path, path: str) -> tuple[Any, ...] | None:
    # Quietly: the caller reads it once more in its own process, where a warning is given once.
    try:
        return _list_facts(Store.parse(root / "records" / path), path)
    except (OSError, ValueError, RecordError):
        return None


class RecordIndex:
    """What the finished records of a results folder say, whether read now or when they were last changed.

    Args:
        root: The results folder.
        cache: The cache folder, which holds the index.
    """

    def __init__(self, root: Path, cache: Path) -> None:
        self._root = root
        self._file = _locate_index(root, cache)
        self._database = _open_database(self._file)
        # Rows that are good for this time only: of files that may change within a tick of the clock, or
        # whose values SQLite would not give back.
        self._passing: dict[str, tuple[Any, ...]] = {}
        try:
            self._refresh()
        except sqlite3.Error:
            # It has its digest and yet not what is expected, such as other columns.
            self._database = _open_database(None)
            self._refresh()

    def list_rows(self, *, purpose: str = "final") -> list[RecordRow]:
        """The finished records of a purpose, in the order of their paths."""
        rows = map(RecordRow._make, self._select(RecordRow._fields))
        return [row for row in rows if row.purpose == purpose]

    def list_past_scores(self) -> list[PastScore]:
        """The work behind all final records that were scored from vectors, in the order of their paths."""
        columns = ("path", "artifact", *_PAST[:-1])
        rows = self._select(columns, where="setup IS NOT NULL")
        return [PastScore.from_fields(*row[1:]) for row in rows if row[3] is not None]

    def list_past_rankings(self) -> list[PastRanking]:
        """The data and seconds of all final rankings, in the order of their paths."""
        rows = self._select(("path", "data", "ranked_seconds"), where="ranked_seconds IS NOT NULL")
        return [PastRanking(*row[1:]) for row in rows if row[2] is not None]

    def read_record(self, row: RecordRow) -> Record | None:
        """The record of a row; None where it has been removed or damaged since."""
        return _read_or_warn(self._root / "records" / row.path)

    def _select(self, columns: Sequence[str], where: str = "1") -> Iterator[tuple[Any, ...]]:
        names = ", ".join(f'"{name}"' for name in columns)
        rows = {row[0]: row for row in self._database.execute(f"SELECT {names} FROM records WHERE {where}")}
        pick = itemgetter(*map(_COLUMNS.index, columns))
        rows |= {path: pick(row) for path, row in self._passing.items()}
        return (rows[path] for path in self._stamps if path in rows)

    def _refresh(self) -> None:
        """Look at all files, read those that have changed, and write the index where that saves time."""
        execute = self._database.execute
        known = {path: (changed, names) for path, changed, names in execute("SELECT * FROM folders")}
        before = {row[0]: row[1:] for row in execute(f"SELECT path, {', '.join(Stamp._fields)} FROM records")}
        listing = _list_files(self._root, known)
        self._stamps = listing.stamps
        # A row is taken out of `before` by its file, so that what is left has none.
        new = [
            path
            for path, stamp in listing.stamps.items()
            if before.pop(path, None) != stamp and not path.endswith(FAILED)
        ]
        self._database.executemany(
            "DELETE FROM records WHERE path = ?", ((path,) for path in (*before, *new) if _is_text(path))
        )
        count = sum(self._add_row(path, row) for path, row in _iter_rows(self._root, new))
        if count >= LEAST_ROWS:
            self._write(listing)

    def _add_row(self, path: str, row: tuple[Any, ...]) -> bool:
        """Keep a row; returns whether it is for good."""
        stamp = self._stamps[path]
        settled = time.time_ns() - stamp.ctime_ns > SETTLED_NS
        # SQLite makes a null of what is not a number.
        if settled and all(value == value for value in row):
            with contextlib.suppress(sqlite3.Error, UnicodeEncodeError, OverflowError):
                marks = ", ".join("?" * (len(row) + len(stamp)))
                self._database.execute(f"INSERT INTO records VALUES ({marks})", (*row, *stamp))
                return True
        self._passing[path] = row
        return False

    def _write(self, listing: _Listing) -> None:
        """Write the index, where that is possible, with its digest in front."""
        self._database.execute("DELETE FROM folders")
        self._database.executemany(
            "INSERT INTO folders VALUES (?, ?, ?)",
            ((p, t, names) for p, (t, names) in listing.folders.items() if t and _is_text(p + names)),
        )
        self._database.commit()
        content = self._database.serialize()
        with contextlib.suppress(StoreError):
            files.replace(self._file, hashlib.sha256(content).digest() + content)


def _is_text(path: str) -> bool:
    """Whether a path is UTF-8, as SQLite wants it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _locate_index(root: Path, cache: Path) -> Path:
    """The file of the index of a results folder, with a name of its own for each machine and version."""
    place = root.resolve()
    with contextlib.suppress(OSError):
        stat = place.stat()
        identity = [str(place), stat.st_dev, stat.st_ino, files.get_host_name(), __version__, SCHEMA, _TABLES]
        name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
        return cache / "records" / f"{name}.sqlite"
    return cache / "records" / "none.sqlite"


def _open_database(file: Path | None) -> sqlite3.Connection:
    """The index of a file in memory; an empty one where the file is absent or damaged."""
    database = sqlite3.connect(":memory:")
    content = b""
    with contextlib.suppress(OSError):
        content = file.read_bytes() if file else b""
    if len(content) > 32 and hashlib.sha256(memoryview(content)[32:]).digest() == content[:32]:
        database.deserialize(memoryview(content)[32:])
    else:
        database.executescript(_TABLES)
    return database


def _iter_rows(root: Path, paths: Sequence[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The rows of the records in some files; what cannot be read only warns."""
    for path, row in zip(paths, _iter_read_rows(root, paths), strict=True):
        if row is None:
            # Again, as it may be another file by now, and for the warning of a damaged one.
            record = _read_or_warn(root / "records" / path)
            row = None if record is None else _list_facts(record, path)
        if row is not None:
            yield path, row


def _iter_read_rows(root: Path, paths: Sequence[str]) -> Iterator[tuple[Any, ...] | None]:
    """The rows of some files in their order, read by several processes where there are many."""
    batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
    progress = _Progress(len(paths))
    if len(paths) < MANY or count_cores() < 2:
        for batch in batches:
            yield from progress.note(_read_facts(root, batch))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count_cores(), mp_context=context) as pool:
        for rows in pool.map(_read_facts, [root] * len(batches), batches):
            yield from progress.note(rows)


class _Progress:
    """Says on standard error how far a long reading is, once each few seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._told = total, 0, time.monotonic()

    def note(self, rows: list[tuple[Any, ...] | None]) -> list[tuple[Any, ...] | None]:
        """Count some rows, which are given back."""
        self._done += len(rows)
        if time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            print(
                f"Reading records that are new or changed: {self._done:,} of {self._total:,}", file=sys.stderr
            )
        return rows


def _read_or_warn(path: Path) -> Record | None:
    try:
        return Store.read_record(path)
    except RecordError as error:
        warn_unread(error)
        return None


def distinguish_rows(rows: Sequence[RecordRow]) -> list[str]:
    """For each row the name of its model that no other model of the rows has."""
    models: dict[tuple[str | None, ...], NamedModel] = {}
    for row in reversed(rows):
        if row.model_fields not in models:
            models[row.model_fields] = row.model
    # Each once, by its last row: of several rows of a model the last that knows its folder counts.
    labels = distinguish_names([*models.values()][::-1])
    names = {fields: labels[model.key, model.name] for fields, model in models.items()}
    return [names[row.model_fields] for row in rows]
