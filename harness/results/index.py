"""The index of a results folder: of each record its stamp and the facts that lists, names and estimates need.

It lies in the cache and is never believed: every file is looked at each time, and what has another stamp
than its row is read again. A damaged index, or that of another machine or folder, counts as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from harness.core import files
from harness.core.errors import RecordError
from harness.core.identity import digest
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
    f"CREATE TABLE IF NOT EXISTS records(path PRIMARY KEY{_SCHEMA}) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS folders(path PRIMARY KEY, changed, names) WITHOUT ROWID;"
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
    # A record whose circumstances have another form is in lists and says nothing of the cost of work.
    with contextlib.suppress(AttributeError, LookupError, TypeError):
        if record.identity["encoding"]["output"] != "ranking":
            return (*PastScore.from_record(record).flatten(), None)
        if record.status == "done":
            data, seconds = PastRanking.from_record(record)
            return (data, *nothing[2:], seconds)
    return nothing


def _read_facts(root: Path, paths: Sequence[str]) -> list[tuple[Any, ...] | None]:
    """The rows of some files; None where no record can be read."""
    return [_read_row(root, path) for path in paths]


def _read_row(root: Path, path: str) -> tuple[Any, ...] | None:
    # Quietly: the caller reads it once more in its own process, where a warning is given once.
    try:
        return _list_facts(Store.parse(root / "records" / path), path)
    except (OSError, ValueError, RecordError):
        return None


_UNFIT = (sqlite3.InterfaceError, sqlite3.ProgrammingError, UnicodeEncodeError, OverflowError)
"""What SQLite says of a value that it would not give back."""


class RecordIndex:
    """What the finished records of a results folder say, whether read now or when they were last changed.

    Args:
        root: The results folder.
        cache: The cache folder, which holds the index.
    """

    def __init__(self, root: Path, cache: Path) -> None:
        self._root = root
        self._name = _name_index(root)
        self._folder = cache / "records"
        # Rows that were read now and are in no database, and the files whose rows there no longer hold.
        self._fresh: dict[str, tuple[Any, ...]] = {}
        self._stale: set[str] = set()
        file = self._find_index()
        try:
            self._refresh(file, files.generate_temporary_path(self._folder / f"{self._name}.sqlite"))
        except sqlite3.Error:
            # It has its digest and yet not what is expected, or the disk is full: all is read, in memory.
            if file is not None:
                with contextlib.suppress(OSError):
                    file.unlink()
            self._refresh(None, None)

    def list_rows(self, *, purpose: str = "final") -> list[RecordRow]:
        """The finished records of a purpose, in the order of their paths."""
        rows = map(RecordRow._make, self._select(RecordRow._fields))
        return [row for row in rows if row.purpose == purpose]

    def list_past_scores(self) -> list[PastScore]:
        """The work behind all final records that were scored from vectors, in the order of their paths."""
        rows = self._select(("path", "artifact", *_PAST[:-1]), where="setup IS NOT NULL")
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
        stored = self._database.execute(f"SELECT {names} FROM records WHERE {where}")
        rows = {row[0]: row for row in stored if row[0] not in self._stale}
        pick = itemgetter(*map(_COLUMNS.index, columns))
        rows |= {path: pick(row) for path, row in self._fresh.items()}
        return (rows[path] for path in self._stamps if path in rows)

    def _find_index(self) -> Path | None:
        """The file of the index; None where there is none whose content has the digest in its name."""
        for file in self._folder.glob(f"{self._name}-*.sqlite"):
            with contextlib.suppress(OSError), file.open("rb") as content:
                if file.stem.endswith(hashlib.file_digest(content, "sha256").hexdigest()):
                    return file
        return None

    def _refresh(self, file: Path | None, target: Path | None) -> None:
        """Look at all files, read those that have changed, and write the index where that saves time."""
        # Immutable: no lock, as nobody writes into a file that has its digest in its name.
        self._database = _connect(None if file is None else f"{file.resolve().as_uri()}?mode=ro&immutable=1")
        execute = self._database.execute
        known = {path: (changed, names) for path, changed, names in execute("SELECT * FROM folders")}
        stamps = execute(f"SELECT path, {', '.join(Stamp._fields)} FROM records")
        before = {row[0]: row[1:] for row in stamps}
        listing = _list_files(self._root, known)
        self._stamps = listing.stamps
        new = [
            path
            for path, stamp in listing.stamps.items()
            if before.get(path) != stamp and not path.endswith(FAILED)
        ]
        self._fresh, self._stale = {}, {path for path in new if path in before}
        rows = _iter_rows(self._root, new)
        if len(new) < LEAST_ROWS:
            self._fresh = dict(rows)
        else:
            gone = [path for path in before if path not in listing.stamps]
            self._database = _copy_database(file, target)
            try:
                self._rebuild(rows, listing, gone, target)
            finally:
                # The database stays open: a file that was removed can be read on.
                if target is not None:
                    with contextlib.suppress(OSError):
                        target.unlink()

    def _rebuild(
        self,
        rows: Iterator[tuple[str, tuple[Any, ...]]],
        listing: _Listing,
        gone: Sequence[str],
        target: Path | None,
    ) -> None:
        """Put new rows into the database, and publish its file where that saves time."""
        remove = "DELETE FROM records WHERE path = ?"
        self._database.executemany(remove, ((path,) for path in (*gone, *self._stale)))
        self._stale = set()
        count = sum(self._insert_row(path, row) for path, row in rows)
        self._insert_folders(listing)
        self._database.commit()
        # Few rows are read again faster than they are written.
        if target is not None and count >= LEAST_ROWS:
            self._publish(target)

    def _insert_folders(self, listing: _Listing) -> None:
        self._database.execute("DELETE FROM folders")
        for path, (changed, names) in listing.folders.items():
            if changed:
                with contextlib.suppress(UnicodeEncodeError):
                    self._database.execute("INSERT INTO folders VALUES (?, ?, ?)", (path, changed, names))

    def _insert_row(self, path: str, row: tuple[Any, ...]) -> bool:
        """Keep a row in the database, or else for this time only; returns whether it is there for good."""
        stamp = self._stamps[path]
        # A file may change once more in the tick of its last change. SQLite makes a null of NaN.
        if time.time_ns() - stamp.ctime_ns > SETTLED_NS and all(value == value for value in row):
            marks = ", ".join("?" * (len(row) + len(stamp)))
            # Of a number that is too large, or of a text that is not UTF-8.
            with contextlib.suppress(*_UNFIT):
                self._database.execute(f"INSERT INTO records VALUES ({marks})", (*row, *stamp))
                return True
        self._fresh[path] = row
        return False

    def _publish(self, temporary: Path) -> None:
        """Give an index the name with its digest, and remove the former one."""
        with contextlib.suppress(OSError):
            with temporary.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            former = [*self._folder.glob(f"{self._name}-*.sqlite")]
            new = self._folder / f"{self._name}-{sha256}.sqlite"
            temporary.replace(new)
            for file in former:
                if file != new:
                    file.unlink(missing_ok=True)


def _copy_database(file: Path | None, target: Path | None) -> sqlite3.Connection:
    """A copy of the index in a file, or an empty one, at a place; in memory where that cannot be written."""
    if target is None:
        return _connect(None)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if file is not None:
            shutil.copyfile(file, target)
        return _connect(target.resolve().as_uri())
    except (OSError, sqlite3.Error):
        database = _connect(None)
        if file is not None:
            sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True).backup(database)
        return database


def _name_index(root: Path) -> str:
    """The start of the name of a results folder's index, another one for each machine and version."""
    place = root.resolve()
    numbers: tuple[int, ...] = ()
    with contextlib.suppress(OSError):
        numbers = (place.stat().st_dev, place.stat().st_ino)
    return digest([str(place), *numbers, files.get_host_name(), __version__, SCHEMA, _TABLES])[:32]


def _connect(uri: str | None) -> sqlite3.Connection:
    """The database at a place, or a new one in memory, with its tables."""
    database = sqlite3.connect(uri or ":memory:", uri=True)
    if uri is None or "immutable" not in uri:
        # What is lost in a crash has no name yet.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
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
    progress, done = _Progress(len(paths)), 0
    if len(paths) >= MANY and count_cores() > 1 and _can_fork():
        batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
        context = multiprocessing.get_context("fork")
        # A process that was killed, as for memory, ends the pool: the rest is read here.
        with (
            contextlib.suppress(BrokenProcessPool),
            ProcessPoolExecutor(count_cores(), mp_context=context) as pool,
        ):
            for rows in pool.map(_read_facts, [root] * len(batches), batches):
                done += len(rows)
                yield from progress.note(rows)
    for path in paths[done:]:
        yield from progress.note([_read_row(root, path)])


def _can_fork() -> bool:
    """Whether other processes can read: a new interpreter would run a script without a guard again."""
    return sys.platform == "linux" and threading.active_count() == 1


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
