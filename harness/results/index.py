"""The index of a results folder: of each record the facts that lists, names and estimates need, by its stamp.

It lies in the cache and is never believed: every file that it answers for is looked at each time, and what
has another stamp than it had is read again. A damaged index, or that of another machine or folder, counts
as none.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import mmap
import multiprocessing
import os
import sqlite3
import sys
import threading
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from harness.core import files
from harness.core.documents import read_or_warn
from harness.core.errors import StoreError
from harness.core.keys import digest
from harness.core.provenance import count_cores, find_version
from harness.results.cost.duration import PAST_COLUMNS, PastRanking, PastScore, PastScores
from harness.results.scores import NamedModel, distinguish_names
from harness.storage.record import SCHEMA, Record
from harness.storage.store import FAILED, SETTLED_NS, Store

LEAST_ROWS = 200
"""The records that have changed from which the index is written: fewer are read faster than it is written."""

MANY = 2000
"""The files from which several processes read them: fewer are read before a process has begun."""

BATCH = 250
"""The files that a process reads at a time."""

PROGRESS_SECONDS = 2.0
"""The seconds after which standard error says how far the reading is."""

_ABSENT = bytes(32)
"""The stamp of what cannot be looked at, or is to be looked at again: nothing else has it."""


class ModelRow(NamedTuple):
    """A model as recorded; `group` is that of the seeds of its training."""

    name: str
    source: str
    artifact: str
    folder: str | None
    revision: str | None
    group: str | None

    @property
    def named(self) -> NamedModel:
        """The model, to be told from others of its name."""
        return NamedModel.from_fields(
            self.name,
            self.source,
            self.artifact,
            folder=self.folder,
            revision=self.revision,
            group=self.group,
        )


class RecordRow(NamedTuple):
    """A finished record in a list: its place, its model as recorded, its task and score."""

    place: bytes
    weights: str
    task: str
    metric: str
    main_score: float | None
    model: ModelRow

    @property
    def path(self) -> str:
        """Its path below `records/`."""
        return os.fsdecode(self.place.replace(b"\0", b"/"))

    @property
    def key(self) -> str:
        """Its EvaluationKey, which is the name of its file."""
        return self.path.rpartition("/")[2].removesuffix(".json")


_RECORD = ("purpose", "artifact", "weights", "task", "metric", "main_score", *PAST_COLUMNS, "ranked_seconds")
_PAST = f"""CREATE VIEW past AS SELECT place, artifact AS model, {", ".join(PAST_COLUMNS)} FROM records
WHERE setup IS NOT NULL"""
_TABLES = f"""
PRAGMA page_size=16384;
CREATE TABLE folders(folder PRIMARY KEY, paths, stamps);
CREATE TABLE models(id INTEGER PRIMARY KEY, {", ".join(f'"{name}"' for name in ModelRow._fields)});
CREATE TABLE records(place PRIMARY KEY, model, {", ".join(_RECORD)}) WITHOUT ROWID;
CREATE INDEX artifacts ON records(artifact);
{_PAST};
"""
_CHOSEN = f"""
CREATE TEMP TABLE records AS SELECT all_of.* FROM chosen
CROSS JOIN main.records AS all_of ON place >= start AND place < end ORDER BY place;
{_PAST.replace("VIEW", "TEMP VIEW")};
"""
"""The same tables of some models alone, which hide those of all."""
# A place is the path of a record with null bytes for slashes: bytes sort as the parts of paths do.
_INSERT = f"INSERT OR REPLACE INTO records VALUES ({', '.join('?' * (len(_RECORD) + 2))})"

_Facts = tuple[ModelRow, tuple[Any, ...], tuple[Any, ...]]
"""What the index has of a record: its model, what lists show, and what it says of the cost of work."""

_NO_PAST = (None,) * (len(PAST_COLUMNS) + 1)


def _list_facts(record: Record) -> _Facts:
    model, lineage = record.model, record.lineage
    group = None if lineage is None else lineage.group
    return (
        ModelRow(model.name, model.source, model.artifact, model.folder, model.revision, group),
        (
            *(record.purpose, model.artifact, model.weights if lineage else ""),
            *(record.task.name, record.task.metric, record.main_score),
        ),
        _list_past_facts(record),
    )


def _list_past_facts(record: Record) -> tuple[Any, ...]:
    """What a record says of the cost of work; nothing where it encodes nothing, or is a trial."""
    measured = "measured" in record.provenance
    if "encoding" not in record.identity or record.purpose != "final" or measured:
        return _NO_PAST
    # A record whose circumstances have another form is in lists and says nothing of the cost of work.
    with contextlib.suppress(AttributeError, LookupError, TypeError):
        if record.identity["encoding"]["output"] != "ranking":
            facts = PastScore.from_record(record)[1:]
            # SQLite makes a null of NaN.
            return (*facts, None) if all(fact == fact for fact in facts) else _NO_PAST
        if record.status == "done":
            data, seconds = PastRanking.from_record(record)
            return (data, *_NO_PAST[2:], seconds)
    return _NO_PAST


@dataclass(frozen=True)
class _Folder:
    """A model's folder that is not as it was: the stamps of what is in it, now and in the index.

    Stamps are by path below `records/`, in bytes, as the system has it.
    """

    name: bytes
    stamps: dict[bytes, bytes]
    before: Mapping[bytes, bytes]

    @property
    def new(self) -> list[bytes]:
        """The files of records to be read."""
        return [
            path for path, stamp in self.stamps.items() if stamp != self.before.get(path) and _is_record(path)
        ]

    @property
    def gone(self) -> list[bytes]:
        """The files of records that are no longer there."""
        return [path for path in self.before if path not in self.stamps and _is_record(path)]


def _is_record(path: bytes) -> bool:
    return path.endswith(b".json") and not path.endswith(os.fsencode(FAILED)) and path.count(b"/") == 2


_FACTS = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")
"""What a stamp has of a file: the time of its last change cannot be set, so that a file put in the place of
another has its own."""


def _look(top: int, paths: Iterable[bytes]) -> bytes:
    """The stamps of files and folders one after the other; nothing where one cannot be looked at."""
    look = functools.partial(os.stat, dir_fd=top)
    # In one go, as a results folder has 100,000 of them.
    with contextlib.suppress(OSError, OverflowError):
        return array("Q", chain.from_iterable(map(_FACTS, map(look, paths)))).tobytes()
    return b""


def _is_settled(stamp: bytes, began: int) -> bool:
    """Whether a file cannot have changed once more in the tick of the clock of its last change."""
    return began - array("Q", stamp)[2] > SETTLED_NS


def _look_closely(top: int, place: bytes, name: bytes, before: Mapping[bytes, bytes]) -> _Folder:
    """What is in a model's folder: it, the folders of its tasks, and the files in these."""
    tasks = [name + b"/" + task for task in _list_names(place + b"/" + name)]
    inside = [task + b"/" + file for task in tasks for file in _list_names(place + b"/" + task)]
    paths = (name, *tasks, *(path for path in inside if path.endswith(b".json")))
    return _Folder(name, {path: _look(top, [path]) or _ABSENT for path in paths}, before)


def _list_names(folder: bytes) -> list[bytes]:
    """The sorted names in a folder; none if it is no folder."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _list_folders(records: Path) -> set[bytes]:
    """The names of what is in a folder of records; none if there is no such folder."""
    # One that may not be looked into is an error: its records would be taken for gone.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return {*os.listdir(os.fsencode(records))}
    return set()


def _choose_latest(records: Path, names: set[bytes], count: int, always: Collection[bytes]) -> set[bytes]:
    """The folders of models that got a task last, so many, and some of any age."""
    changed = dict[bytes, int]()
    for name in names:
        with contextlib.suppress(OSError):
            changed[name] = os.stat(os.path.join(os.fsencode(records), name)).st_mtime_ns
    latest = sorted(changed, key=lambda name: (changed[name], name), reverse=True)[:count]
    return {*latest, *names.intersection(always)}


def _list_changes(
    records: Path, names: set[bytes], known: Iterable[tuple[bytes, bytes, bytes]]
) -> list[_Folder]:
    """The folders of models that are not as they are known by the paths and stamps of what is in them."""
    place, changed = os.fsencode(records), list[_Folder]()
    names = {*names}
    top = os.open(records, os.O_RDONLY | os.O_DIRECTORY) if names else -1
    try:
        for name, paths, stamps in known:
            if name not in names or _look(top, paths.split(b"\0")) != stamps:
                parts = (stamps[at : at + len(_ABSENT)] for at in range(0, len(stamps), len(_ABSENT)))
                before = dict(zip(paths.split(b"\0"), parts, strict=True))
                is_there = name in names
                changed.append(
                    _look_closely(top, place, name, before) if is_there else _Folder(name, {}, before)
                )
            names.discard(name)
        changed += [_look_closely(top, place, name, {}) for name in names]
    finally:
        if top >= 0:
            os.close(top)
    return sorted(changed, key=attrgetter("name"))


_UNFIT = (sqlite3.InterfaceError, sqlite3.ProgrammingError, UnicodeEncodeError, OverflowError)
"""What SQLite says of a value that it would not give back."""


class RecordIndex:
    """What the finished records of a results folder say, whether read now or when they were last changed.

    Args:
        root: The results folder.
        cache: The cache folder, which holds the index.
        latest: The number of models that got a task last, beyond which no others are looked at.
        always: The names of models' folders that are looked at whatever their age.
    """

    def __init__(
        self, root: Path, cache: Path, *, latest: int = sys.maxsize, always: Collection[str] = ()
    ) -> None:
        self._records = root / "records"
        self._files = cache / "records", _name_index(root)
        self._latest, self._always = latest, [os.fsencode(name) for name in always]
        try:
            saved = self._refresh(self._read_content())
        except sqlite3.Error:
            # It has its digest and yet not what is expected.
            saved = self._refresh(b"")
        if saved >= LEAST_ROWS:
            self._publish()

    def list_models(self, *, purpose: str = "final") -> list[ModelRow]:
        """The models of records of a purpose, in the order of their last ones."""
        query = "SELECT model, place FROM records WHERE purpose = ? ORDER BY place"
        last = dict(self._database.execute(query, (purpose,)))
        return [self._models[number] for number in sorted(last, key=last.__getitem__)]

    def list_rows(
        self, artifacts: Collection[str] | None = None, *, purpose: str = "final"
    ) -> list[RecordRow]:
        """The finished records of a purpose, of all models or of some, in the order of their paths."""
        some = "" if artifacts is None else f"AND artifact IN ({', '.join('?' * len(artifacts))})"
        columns = f"place, {', '.join(RecordRow._fields[1:-1])}, model"
        query = f"SELECT {columns} FROM records WHERE purpose = ? {some} ORDER BY place"
        rows, models = self._database.execute(query, (purpose, *(artifacts or ()))), self._models
        return [RecordRow._make((*row[:-1], models[row[-1]])) for row in rows]

    @property
    def past_scores(self) -> PastScores:
        """The work behind all final records that were scored from vectors."""
        return PastScores(self._database)

    def list_past_rankings(self) -> list[PastRanking]:
        """The data and seconds of all final rankings, in the order of their paths."""
        query = "SELECT data, ranked_seconds FROM records WHERE ranked_seconds IS NOT NULL ORDER BY place"
        return [PastRanking(*row) for row in self._database.execute(query)]

    def read_record(self, row: RecordRow) -> Record | None:
        """The record of a row; None where it has been removed or damaged since."""
        return read_or_warn(Store.read_record, self._records / row.path)

    @functools.cached_property
    def _models(self) -> dict[int, ModelRow]:
        return {row[0]: ModelRow(*row[1:]) for row in self._database.execute("SELECT * FROM models")}

    def _read_content(self) -> bytes | mmap.mmap:
        """The content of the index; nothing where there is none whose content has the digest in its name."""
        folder, name = self._files
        # A cache that may not be looked into has none.
        with contextlib.suppress(OSError):
            for file in folder.glob(f"{name}-*.sqlite"):
                with contextlib.suppress(OSError, ValueError):
                    return read_index_file(file)
        return b""

    def _refresh(self, content: bytes | mmap.mmap) -> int:
        """Look at all files, and read those that have changed; returns the number to be saved."""
        self.__dict__.pop("_models", None)
        self._database = sqlite3.connect(":memory:")
        if content:
            self._database.deserialize(content)
        else:
            self._database.executescript(_TABLES)
        # Before the look: what changes while it lasts is looked at again the next time.
        began = time.time_ns()
        names, query = _list_folders(self._records), "SELECT folder, paths, stamps FROM folders"
        is_partial = len(names) > self._latest
        if is_partial:
            names = _choose_latest(self._records, names, self._latest, self._always)
            self._database.execute("CREATE TEMP TABLE chosen(folder PRIMARY KEY, start, end)")
            self._database.executemany(
                "INSERT INTO chosen VALUES (?, ?, ?)", ((name, name + b"\0", name + b"\1") for name in names)
            )
            query += " JOIN chosen USING (folder)"
        changed = _list_changes(self._records, names, self._database.execute(query))
        lost = [path for folder in changed for path in (*folder.gone, *folder.new)]
        self._database.executemany("DELETE FROM records WHERE place = ?", ((_place(path),) for path in lost))
        unread = self._insert_records([path for folder in changed for path in folder.new])
        saved = sum(self._insert_folder(folder, unread, began) for folder in changed)
        if is_partial:
            self._database.executescript(_CHOSEN)
        self._database.commit()
        return saved

    def _insert_records(self, paths: Sequence[bytes]) -> set[bytes]:
        """Read some files; returns those without a record."""
        numbers: dict[ModelRow, int] = {}
        unread = set()
        full = [f"{self._records}/{os.fsdecode(path)}" for path in paths]
        for path, facts in zip(paths, _iter_facts(full), strict=True):
            if facts is None:
                unread.add(path)
                continue
            model, shown, past = facts
            # Not before: most commands read a few damaged files at most.
            numbers = numbers or {row: number for number, row in self._models.items()}
            if model not in numbers:
                numbers[model] = len(numbers) + 1
                self._models[numbers[model]] = model
                self._database.execute(
                    "INSERT INTO models VALUES (?, ?, ?, ?, ?, ?, ?)", (numbers[model], *model)
                )
            row = (_place(path), numbers[model], *shown)
            try:
                self._database.execute(_INSERT, (*row, *past))
            except _UNFIT:
                self._database.execute(_INSERT, (*row, *_NO_PAST))
        return unread

    def _insert_folder(self, folder: _Folder, unread: Collection[bytes], began: int) -> int:
        """Keep what is in a folder now; returns the number of records that need not be read again."""
        self._database.execute("DELETE FROM folders WHERE folder = ?", (folder.name,))
        kept = {
            path: _ABSENT if path in unread or not _is_settled(stamp, began) else stamp
            for path, stamp in folder.stamps.items()
        }
        if kept:
            row = (folder.name, b"\0".join(kept), b"".join(kept.values()))
            self._database.execute("INSERT INTO folders VALUES (?, ?, ?)", row)
        return len(folder.gone) + sum(kept[path] != _ABSENT for path in folder.new)

    def _publish(self) -> None:
        """Write the index under a name with its digest, and remove the former one."""
        folder, name = self._files
        content = self._database.serialize()
        with contextlib.suppress(OSError, StoreError):
            new = folder / f"{name}-{hashlib.sha256(content).hexdigest()}.sqlite"
            files.replace(new, content)
            for file in folder.glob(f"{name}-*.sqlite"):
                if file != new:
                    file.unlink(missing_ok=True)


def _place(path: bytes) -> bytes:
    return path.replace(b"/", b"\0")


def read_index_file(file: Path) -> bytes | mmap.mmap:
    """The content of an index.

    Raises:
        OSError: It cannot be read.
        ValueError: It has not the digest in the name of its file.
    """
    with file.open("rb") as opened:
        content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if file.stem.rpartition("-")[2] != hashlib.sha256(content).hexdigest():
        raise ValueError("its SHA-256 is not that in its name")
    return content


def _name_index(root: Path) -> str:
    """The start of the name of a results folder's index, another one for each machine and version."""
    place = root.resolve()
    numbers: tuple[int, ...] = ()
    with contextlib.suppress(OSError):
        numbers = (place.stat().st_dev, place.stat().st_ino)
    return digest([str(place), *numbers, files.get_host_name(), find_version(), SCHEMA, _TABLES])[:32]


def _iter_facts(paths: Sequence[str]) -> Iterator[_Facts | None]:
    """What is in some files, read by several processes where there are many; what cannot be read warns."""
    progress, done = _Progress(len(paths)), 0
    if len(paths) >= MANY and count_cores() > 1 and _can_fork():
        batches = [paths[start : start + BATCH] for start in range(0, len(paths), BATCH)]
        context = multiprocessing.get_context("fork")
        # A process that was killed, as for memory, ends the pool: the rest is read here.
        with (
            contextlib.suppress(BrokenProcessPool),
            ProcessPoolExecutor(count_cores(), mp_context=context) as pool,
        ):
            for batch, facts in zip(batches, pool.map(_read_quietly, batches), strict=True):
                # What could not be read again, for its warning, and as it may be another file by now.
                yield from (one or _read_facts(path) for path, one in zip(batch, facts, strict=True))
                done += len(batch)
                progress.tell(done)
    for number, path in enumerate(paths[done:], done):
        yield _read_facts(path)
        progress.tell(number)


def _read_quietly(paths: Sequence[str]) -> list[_Facts | None]:
    """What is in some files; None where no record can be read."""
    # Another process warns, and each file is warned of once.
    logging.disable()
    return [_read_facts(path) for path in paths]


def _read_facts(path: str) -> _Facts | None:
    record = read_or_warn(Store.read_record, Path(path))
    return None if record is None else _list_facts(record)


def _can_fork() -> bool:
    """Whether other processes can read: a new interpreter would run a script without a guard again."""
    return sys.platform == "linux" and threading.active_count() == 1


class _Progress:
    """Says on standard error how far a long reading is, once each few seconds."""

    def __init__(self, total: int) -> None:
        self._total, self._told = total, time.monotonic()

    def tell(self, done: int) -> None:
        """Say that so many are done."""
        if time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            print(f"Reading records that are new or changed: {done:,} of {self._total:,}", file=sys.stderr)


def distinguish_models(models: Iterable[ModelRow]) -> dict[ModelRow, str]:
    """For each model the name that no other of them has; of two rows of one the last with a folder counts."""
    # Each once, by its last place.
    named = {model: model.named for model in reversed([*models])}
    labels = distinguish_names([*named.values()][::-1])
    return {model: labels[one.key, one.name] for model, one in named.items()}
