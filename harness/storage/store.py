"""The store: records, files beside them, leases in the results folder (contract: results/README.md).

With a remote, the folder is a working copy of records that several machines share (`SharedRecords`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from harness.core import files
from harness.core.documents import read_limited
from harness.core.errors import NewerSchemaError, RecordError, warn
from harness.core.keys import digest
from harness.core.types import Purpose, build_artifact_slug
from harness.storage.record import RECORDS, Record
from harness.storage.remote_and_leases import ObjectInfo, Remote, sweep_leases


class Store:
    """Records under one folder, one file each, written in one step and put if absent.

    `records/<artifact>/<task>/<key>.json` is a finished record, `<key>.examples.parquet` its per-example
    file, `<key>.run.parquet` its run file, and `<key>.failed.json` the last failure of unfinished work.

    Attributes:
        root: The results folder.
        leases: The folder of leases on work in progress.
        remote: The object storage that has copies of what is made, None without any.
        shared: The records of the remote; None without one.
    """

    def __init__(self, root: Path, remote: Remote | None = None) -> None:
        self.root, self.leases = root, root / "leases"
        self.remote = remote
        self.shared = None if remote is None else SharedRecords(remote, self)

    def prepare(self, artifacts: Iterable[str]) -> None:
        """Make the folder, check that it can be written, and remove what killed processes left there.

        Args:
            artifacts: The folders of the artifacts (`Artifact.slug`) whose records are looked at: in all of
                them there may be a million files.
        """
        files.require_writable(self.root)
        folders = [one for slug in artifacts for one in self.list_record_folders(slug.rpartition("-")[2])]
        files.sweep(self.root, ".*.tmp")
        for folder in (*folders, *(one for one in self.root.iterdir() if one.name != "records")):
            files.sweep(folder)
        sweep_leases(self.leases)
        for failure in filter(is_stale_failure, (f for one in folders for f in one.glob(f"*/*{FAILED}"))):
            failure.unlink(missing_ok=True)

    def locate_record(self, artifact: str, task: str, key: str) -> Path:
        """The path of the record of `task` under `key`, whether it exists or not.

        `artifact` is the artifact's folder (`Artifact.slug`). An artifact has one folder, whatever its name
        in the first run: an existing folder that ends in the same key is used.
        """
        folders = self.list_record_folders(artifact.rpartition("-")[2]) or [self.root / "records" / artifact]
        folders.sort(key=lambda folder: folder.name != artifact)
        places = [folder / format_task_folder(task) / f"{key}.json" for folder in folders]
        return next((place for place in places if place.exists()), places[0])

    def get(
        self, artifact: str, task: str, key: str, *, purpose: Purpose = "final", now: bool = False
    ) -> Record | None:
        """The finished record under `key`; None without one, or if it is a trial and `purpose` is "final".

        With a remote, the records of the artifact there are fetched first, once, and again where one is
        missing; those of the last seconds are only seen with `now`, which costs a request for each record
        that neither side has.

        Args:
            artifact: The artifact's folder (`Artifact.slug`).
            task: The name of the task.
            key: The EvaluationKey.
            purpose: "final" does not accept a trial.
            now: Whether the remote is asked for this very record.

        Raises:
            RecordError: The record is of a newer schema, or cannot be read.
            StoreError: The remote cannot be read, or the folder cannot be written.
        """
        # The first look-up lists the remote even if the folder has a record: it may be a trial, or another.
        if self.shared is not None and not self.shared.has_listed(artifact):
            self.shared.look_up(artifact, task, key)
        record = self._get(artifact, task, key, purpose)
        if record is None and self.shared is not None and self.shared.look_up(artifact, task, key, now=now):
            record = self._get(artifact, task, key, purpose)
        return record

    def _get(self, artifact: str, task: str, key: str, purpose: Purpose) -> Record | None:
        record = self.read_record(self.locate_record(artifact, task, key))
        return None if record and purpose == "final" and record.purpose == "trial" else record

    def put(
        self,
        artifact: str,
        record: Record,
        examples: bytes | None = None,
        *,
        run: bytes | None = None,
        again: bool = False,
    ) -> Record:
        """Write a record, its per-example file and its run file; returns the stored record.

        A finished record is put if absent (with `again` it replaces the old one) and deletes the earlier
        failure; a failed record always replaces the last failure. A final record replaces a trial, and any
        record replaces a damaged file, which is moved aside. With a remote the record is sent there, too; if
        the remote has one already, that is the stored one. Failures stay on this machine.

        Args:
            artifact: The artifact's folder (`Artifact.slug`).
            record: The record.
            examples: The content of its per-example file (Parquet), None without one.
            run: The content of its run file (Parquet), None without one.
            again: Whether a finished record is replaced.

        Raises:
            StoreError: The folder or the remote cannot be written.
        """
        path = self.locate_record(artifact, record.task.name, record.key)
        if record.status == "failed":
            files.replace(path.with_suffix(FAILED), record.to_json().encode())
            return record
        stored = self._put(path, record, examples, run, again=again)
        return stored if self.shared is None else self.shared.send(path, again=again) or stored

    def _put(
        self, path: Path, record: Record, examples: bytes | None, run: bytes | None, *, again: bool
    ) -> Record:
        again = again or self._can_replace_record(path, record)
        contents = {
            part: data for part, data in zip(BESIDE, (examples, run), strict=True) if data is not None
        }
        record = _fill_part_names(path, record, contents)
        if again or not path.exists():  # without their record files are from a killed process
            _put_beside(path, contents)
        content = record.to_json().encode()
        if again:
            # The record before the removal: the old one still names the files that are removed.
            files.replace(path, content)
            _remove_beside(path, BESIDE.keys() - contents.keys())
        elif not files.write_once(path, content):
            record = self._resolve_first_record(path, record, contents)
        path.with_suffix(FAILED).unlink(missing_ok=True)
        return record

    def find_part_file(self, record: Record, artifact: str, part: str = "examples") -> Path | None:
        """The path of a record's per-example or run file, None without one; a damaged one only warns."""
        facts = getattr(record, part)
        path = facts and self.locate_record(artifact, record.task.name, record.key).with_name(facts.file)
        if path is None or not path.is_file():
            return None
        if files.hash_file(path) == facts.sha256:
            return path
        _warn_once(path, f"{path} is damaged: its record has another SHA-256. It counts as missing.")
        return None

    def _resolve_first_record(self, path: Path, record: Record, contents: Mapping[str, bytes]) -> Record:
        """The record that was written first; the new one if it has just replaced a file beside the first."""
        stored = self.read_record(path) or record
        for part in contents:
            # Two processes that write one key both replace the files beside it. Where the loser was last, the
            # winner's record names a file with another hash, so the loser's record takes its place.
            mine, theirs = getattr(record, part), getattr(stored, part)
            replaced = theirs is not None and mine != theirs
            if replaced and files.has_sha256(path.with_name(mine.file), mine.sha256):
                _put_beside(path, contents)
                files.replace(path, record.to_json().encode())
                return record
        return stored

    def list_record_folders(self, key: str) -> list[Path]:
        """The folders of the records of an artifact, by the start of its key as it is in their names."""
        records, now = self.root / "records", time.time_ns()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            changed = records.stat().st_mtime_ns
            # A change in the same tick of the clock would not be seen: a new listing counts once.
            names = _list_artifact_folders(records, changed if now - changed > SETTLED_NS else now)
            return [records / name for name in names.get(key, ())]
        return []

    def _can_replace_record(self, path: Path, record: Record) -> bool:
        """Whether the file at `path` is replaced; a damaged file is moved aside."""
        if not path.exists():
            return False
        stored = self.read_record(path)
        if stored is None:
            aside = path.with_suffix(".broken")
            warn(f"{path} was damaged; it is kept as {aside.name}.")
            files.move(path, aside)
            return False
        return stored.purpose == "trial" and record.purpose == "final"

    @staticmethod
    def read_record(path: Path) -> Record | None:
        """The record in a file, None if there is no file or it is damaged, which is logged as a warning.

        Raises:
            RecordError: The record is of a newer schema, or cannot be read.
        """
        try:
            return Store.parse(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
        except ValueError as error:
            _warn_once(path, f"{path} is damaged: {error}. It counts as not done.")
            return None

    @staticmethod
    def parse(path: Path, content: bytes | None = None, *, where: str = "") -> Record:
        """The record in a file, compared with the file's place.

        Args:
            path: The file.
            content: What is in the file, or would be; None to read it.
            where: Its name in messages; empty for its path.

        Raises:
            OSError: The file cannot be read.
            RecordError: The record is of a newer schema, or the file holds none.
            ValueError: The file is damaged, or holds another record than its place says.
        """
        content = read_limited(path, RECORDS.limit) if content is None else content
        try:
            record = RECORDS.parse(content, where=where or path)
            problem = _explain_misplacement(record, path)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError("it is truncated, or no JSON") from error
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if problem:
            raise ValueError(problem)
        return record


LISTING_SECONDS = 15.0
"""The age up to which a listing of a remote is believed; ten times what it took, where that is more."""


@dataclass(frozen=True, kw_only=True)
class _Differences:
    """What a remote and a folder do not have in common: objects to fetch, files of records to send.

    `objects` are all records of the remote.
    """

    fetch: tuple[str, ...]
    send: tuple[Path, ...]
    objects: Mapping[str, ObjectInfo]


class SharedRecords:
    """The records of a remote, of which those in a results folder are copies.

    `records/<start of the artifact's key>/<task>/<key>.json` is a record, whatever its model is called, so of
    several writers of a key one is first. Files beside it have the start of their SHA-256 in their names and
    are there before it, so that no record is ever seen with the file of another. What is read is compared
    with its place and its digest; a damaged object counts as absent and is replaced.
    """

    def __init__(self, remote: Remote, store: Store) -> None:
        self.remote = remote
        self._store = store
        # By the start of an artifact's key: the records as listed, and the time until which that is believed.
        self._listings: dict[str, tuple[float, Mapping[str, ObjectInfo]]] = {}
        self._better: set[Path] = set()

    def look_up(self, artifact: str, task: str, key: str, *, now: bool = False) -> bool:
        """Fetch the records of an artifact that the folder lacks; whether anything was fetched.

        One request lists all of them, and a listing counts for some seconds: `now` asks for this one record.

        Args:
            artifact: The artifact's folder (`Artifact.slug`).
            task: The name of the task.
            key: The EvaluationKey.
            now: Whether to ask for this record instead of believing the last listing.
        """
        if now:
            return self._fetch(self._resolve_record_object(self._store.locate_record(artifact, task, key)))
        start, begun = artifact.rpartition("-")[2], time.monotonic()
        until, known = self._listings.get(start, (begun, {}))
        if begun < until:
            return False
        changes = self.compare_records(known, start)
        ended = time.monotonic()
        is_new = self.fetch(changes.fetch) > 0
        self._listings[start] = ended + max(LISTING_SECONDS, 10 * (ended - begun)), changes.objects
        return is_new

    def has_listed(self, artifact: str) -> bool:
        """Whether the records of an artifact were looked up before."""
        return artifact.rpartition("-")[2] in self._listings

    def compare_records(
        self, known: Mapping[str, ObjectInfo] = MappingProxyType({}), start: str = ""
    ) -> _Differences:
        """What is to be fetched and sent so that remote and folder have the same records.

        A record that is on both sides, and not the same, is to be fetched: the remote's counts.

        Args:
            known: Objects that were compared before; those that have not changed are not compared again.
            start: The start of the key of the only artifact whose records are compared; empty for all.
        """
        listing = self.remote.list_objects(f"records/{start}".rstrip("/"))
        remote_objects = {name: info for name, info in listing.items() if name.endswith(".json")}
        here = {self._resolve_record_object(path): path for path in self._list_record_files(start)}
        new = [name for name, info in remote_objects.items() if known.get(name) != info]
        # A comparison may cost a request, so several run at once.
        differs = self.remote.map_concurrently(
            lambda n: n not in here or self._has_other_content(n, remote_objects[n], here[n]), new
        )
        return _Differences(
            fetch=tuple(name for name, other in zip(new, differs, strict=True) if other),
            send=tuple(path for name, path in here.items() if name not in remote_objects),
            objects=remote_objects,
        )

    def fetch(self, names: Iterable[str]) -> int:
        """Fetch records by the names of their objects; returns how many there were."""
        return sum(self.remote.map_concurrently(self._fetch, [*names]))

    def send_missing(self) -> int:
        """Send the records that the remote lacks, of every artifact that was looked up; returns their number.

        They are of a run that was killed before it sent them, or that had no remote.
        """
        missing = [
            path
            for start, (_, objects) in self._listings.items()
            for path in self._list_record_files(start)
            if self._resolve_record_object(path) not in objects or path in self._better
        ]
        return len(self.remote.map_concurrently(self.send, missing))

    def send(self, path: Path, *, again: bool = False) -> Record | None:
        """Send a record and the files beside it; returns the record that counts, None if the file is damaged.

        A record that the remote has already replaces the one in the folder, unless only that one is final.
        """
        record = self._store.read_record(path)
        if record is None:
            return None
        name, content = self._resolve_record_object(path), path.read_bytes()
        beside = self._send_beside(path, record)
        if not again and self.remote.create(name, content):
            return record
        before = self.remote.read_object(name)
        # A record of a newer version is an error here and not damage: it must not be replaced.
        first = None if before is None else self._parse(name, before, newer=True)
        if first is not None and not again and not _should_replace(first, record):
            if before != content:
                self._write_local_record(path, name, first, before or b"")
            return first
        self.remote.replace(name, content)
        # After the new record: until then the old one names them.
        for gone in set() if first is None else {*_list_part_objects(name, first).values()} - beside:
            self.remote.remove(gone)
        return record

    def _send_beside(self, path: Path, record: Record) -> set[str]:
        """Send the files beside a record; returns the names of their objects."""
        objects = _list_part_objects(self._resolve_record_object(path), record)
        for part, name in objects.items():
            file = path.with_suffix(BESIDE[part])
            if file.is_file() and files.has_sha256(file, getattr(record, part).sha256):
                content = file.read_bytes()
                if not self.remote.create(name, content):
                    warn(f"{self.remote.url}/{name} was damaged; it is replaced.")
                    self.remote.replace(name, content)
        return {*objects.values()}

    def _has_other_content(self, name: str, info: ObjectInfo, path: Path) -> bool:
        """Whether the object of a record is another than its file."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return True
        # Another tag proves nothing where the storage encrypts, so the content is read then.
        return not info.has_content(content) and self.remote.read_object(name) != content

    def _fetch(self, name: str) -> bool:
        """Fetch a record with the files beside it to its place; False without one, or if it is damaged."""
        # What comes damaged is read once more before a word is said: the transfer may be at fault.
        for attempt in range(2):
            content = self.remote.read_object(name)
            if content is None:
                return False
            record = self._parse(name, content, again=attempt > 0)
            if record is not None:
                slug = build_artifact_slug(record.model.name, record.model.artifact)
                path = self._store.locate_record(slug, record.task.name, record.key)
                return self._write_local_record(path, name, record, content)
        return False

    def _write_local_record(self, path: Path, name: str, record: Record, content: bytes) -> bool:
        """Write a fetched record to its place, the files beside it first; False where a final one stays."""
        stored = self._store.read_record(path)
        if stored is not None and _should_replace(record, stored):
            # The remote has a trial, the folder a final record: `send_missing` sends it.
            self._better.add(path)
            return False
        contents = self._read_beside(name, record)
        _put_beside(path, contents)
        files.replace(path, content)
        _remove_beside(path, BESIDE.keys() - contents.keys())
        path.with_suffix(FAILED).unlink(missing_ok=True)
        return True

    def _read_beside(self, name: str, record: Record) -> dict[str, bytes]:
        """The files beside a record; one that is gone or damaged only warns, and counts as missing."""
        contents = {}
        for part, beside in _list_part_objects(name, record).items():
            content = self.remote.read_object(beside)
            if content is not None and hashlib.sha256(content).hexdigest() == getattr(record, part).sha256:
                contents[part] = content
            else:
                what = "is not there" if content is None else "is damaged: its record has another SHA-256"
                warn(f"{self.remote.url}/{beside} {what}. It counts as missing.")
        return contents

    def _parse(self, name: str, content: bytes, *, again: bool = True, newer: bool = False) -> Record | None:
        """The record in an object; None if it is damaged, or of a newer schema unless that is an error.

        That it is damaged is said where it was read `again`.
        """
        where = f"{self.remote.url}/{name}"
        try:
            return Store.parse(Path(name), content, where=where)
        except NewerSchemaError as error:
            if newer:
                raise
            warn(f"{error.message} It is left out.")
        except (RecordError, ValueError) as error:
            if again:
                warn(f"{where} is damaged: {str(error).splitlines()[0].rstrip('.')}. It counts as not done.")
        return None

    def _list_record_files(self, start: str) -> list[Path]:
        """The files of finished records of an artifact in the results folder, or of all, sorted."""
        every = (self._store.root / "records").glob("*")
        folders = self._store.list_record_folders(start) if start else every
        paths = (path for folder in folders for path in folder.glob("*/*.json"))
        return sorted(path for path in paths if not path.name.endswith(FAILED))

    @staticmethod
    def _resolve_record_object(path: Path) -> str:
        """The name of the object of a record's file."""
        return f"records/{path.parts[-3].rpartition('-')[2]}/{path.parts[-2]}/{path.name}"


def _should_replace(stored: Record, new: Record) -> bool:
    """Whether a record is replaced by another under its key: a trial by a final one."""
    return stored.purpose == "trial" and new.purpose == "final"


def _list_part_objects(name: str, record: Record) -> dict[str, str]:
    """The names of the objects beside that of a record, by the part of the record that names them."""
    start = name.removesuffix(".json")
    named = {part: facts for part in BESIDE if (facts := getattr(record, part)) is not None}
    return {part: f"{start}.{facts.sha256[:16]}{BESIDE[part]}" for part, facts in named.items()}


# Without it each look-up would list all of them, perhaps thousands.
@functools.lru_cache(maxsize=8)
def _list_artifact_folders(records: Path, _stamp: int) -> Mapping[str, list[str]]:
    """The names of the folders in `records/`, sorted, by the start of an artifact's key in which they end."""
    names = defaultdict(list)
    for name in sorted(os.listdir(records)):
        names[name.rpartition("-")[2]].append(name)
    return names


def _explain_misplacement(record: Record, path: Path) -> str:
    """The reason why a record cannot be the one of its file; empty if it can."""
    # A file that was copied or renamed by hand must not count as the score of another model or task.
    artifact = path.parent.parent.name.rpartition("-")[2]
    if record.key != _parse_record_key(path):
        return f"it holds the record of another key, {record.key[:12]}"
    if digest(record.identity) != record.key:
        return "its key is not the digest of its identity"
    if format_task_folder(record.task.name) != path.parent.name:
        return f"it holds a record of another task, {record.task.name}"
    if not record.model.artifact.startswith(artifact):
        return f"its folder is not that of its model, {record.model.artifact[:12]}"
    if (record.status == "failed") != path.name.endswith(FAILED):
        return f"it holds a record that is {record.status}"
    named = {part: getattr(record, part).file for part in BESIDE if getattr(record, part) is not None}
    if any(file != f"{record.key}{BESIDE[part]}" for part, file in named.items()):
        return "it names a file that is not its own"
    return ""


def is_stale_failure(path: Path) -> bool:
    """Whether the work of a failure's file has been finished since."""
    try:
        return Store.read_record(path.with_name(f"{_parse_record_key(path)}.json")) is not None
    except RecordError:
        return False


_warned: set[tuple[Path, int, int]] = set()
"""The damaged files that were warned of, with size and time."""


def _warn_once(path: Path, message: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        # With size and time, so that a file that is damaged a second time is told again.
        stat = path.stat()
        if (stamp := (path, stat.st_size, stat.st_mtime_ns)) not in _warned:
            _warned.add(stamp)
            warn(message)


SETTLED_NS = 2_000_000_000
"""The age of a change of a folder below which a listing is not kept; some file systems count in seconds."""

FAILED = ".failed.json"
"""The end of the name of a failure's file."""


BESIDE = {"examples": ".examples.parquet", "run": ".run.parquet"}
"""The ends of the names of files beside a record, by the part of the record that names them."""


def _fill_part_names(path: Path, record: Record, contents: Mapping[str, bytes]) -> Record:
    """A record with the names and hashes of the files beside it."""
    parts = {}
    for part, content in contents.items():
        named = {"file": path.with_suffix(BESIDE[part]).name, "sha256": hashlib.sha256(content).hexdigest()}
        parts[part] = getattr(record, part).model_copy(update=named)
    return record.model_copy(update=parts) if parts else record


def _put_beside(path: Path, contents: Mapping[str, bytes]) -> None:
    for part, content in contents.items():
        files.replace(path.with_suffix(BESIDE[part]), content, last=False)  # the record comes after it


def _remove_beside(path: Path, parts: Iterable[str]) -> None:
    """Remove the files of a replaced record that the new one does not have."""
    for part in parts:
        path.with_suffix(BESIDE[part]).unlink(missing_ok=True)


def _parse_record_key(path: Path) -> str:
    """The key in the name of a record's or a failure's file."""
    return path.name.removesuffix(FAILED).removesuffix(".json")


def format_task_folder(task: str) -> str:
    """The name of a task's folder."""
    # Without dots at the ends: no hidden folder, and never "..".
    return "".join(c if c.isalnum() or c in "-._+" else "-" for c in task).strip(".") or "task"
