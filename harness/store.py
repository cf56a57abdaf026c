"""The store: records, files beside them, leases in the results folder (contract: results/README.md)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness import files, imported
from harness.errors import RecordError
from harness.files import Leases
from harness.identity import digest
from harness.imported import Imported
from harness.record import RECORDS, ExamplesPart, Record, RunPart
from harness.types import Purpose


class Store:
    """Records under one folder, one file each, written in one step and put if absent.

    `records/<artifact>/<task>/<key>.json` is a finished record, `<key>.examples.parquet` its per-example
    file, `<key>.run.parquet` its run file, and `<key>.failed.json` the last failure of unfinished work.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._artifacts = _ArtifactFolders(root / "records")

    @property
    def leases(self) -> Path:
        """The folder of leases on work in progress."""
        return self.root / "leases"

    def prepare(self) -> None:
        """Make the folder, check that it can be written, and remove what killed processes left there."""
        files.writable(self.root)
        files.sweep(self.root)
        Leases.sweep(self.leases)
        for path in self.superseded():
            path.unlink(missing_ok=True)

    def superseded(self) -> list[Path]:
        """The files of failures whose work has been finished since, sorted."""
        failures = sorted((self.root / "records").glob("*/*/*.failed.json"))
        return [path for path in failures if _is_record(path.with_name(f"{_key(path)}.json"))]

    def path(self, artifact: str, task: str, key: str) -> Path:
        """The path of the record of `task` under `key`, whether it exists or not.

        `artifact` is the artifact's folder (`Artifact.slug`). An artifact has one folder, whatever its name
        in the first run: an existing folder that ends in the same key is used.
        """
        folders = self._folders(artifact)
        places = [self.root / "records" / folder / _folder(task) / f"{key}.json" for folder in folders]
        return next((place for place in places if place.exists()), places[0])

    def get(self, artifact: str, task: str, key: str, *, purpose: Purpose = "final") -> Record | None:
        """The finished record under `key`, None if there is none; a trial does not replace a `final` record.

        Raises:
            RecordError: The record is of a newer schema, or cannot be read.
        """
        found = self.read(self.path(artifact, task, key))
        return None if found and purpose == "final" and found.purpose == "trial" else found

    def failure(self, artifact: str, task: str, key: str) -> Record | None:
        """The last failure under `key`, None if there is none."""
        return self.read(_failed(self.path(artifact, task, key)))

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
        record replaces a damaged file, which is moved aside.

        Raises:
            StoreError: The folder cannot be written.
        """
        path = self.path(artifact, record.task.name, record.key)
        if record.status == "failed":
            files.replace(_failed(path), record.to_json().encode())
            return record
        again = again or self._gives_way(path, record)
        contents = {
            part: data for part, data in zip(BESIDE, (examples, run), strict=True) if data is not None
        }
        record = _naming(path, record, contents)
        if again or not path.exists():  # without their record files are from a killed process
            _put_beside(path, contents)
        content = record.to_json().encode()
        if again:
            files.replace(path, content)
            _remove_beside(path, BESIDE.keys() - contents.keys())
        elif not files.write_once(path, content):
            record = self._first(path, record, contents)
        _failed(path).unlink(missing_ok=True)
        return record

    def records(self, *, purpose: str = "final", failed: bool = False) -> Iterator[Record]:
        """Every finished record (or failure) of a purpose, sorted by path; unreadable files only warn."""
        for path in sorted((self.root / "records").glob("*/*/*.json")):
            if path.name.endswith(FAILED) != failed:
                continue
            try:
                record = self.read(path)
            except RecordError as error:
                _warn(f"{error.message} It is left out.")
                continue
            if record is not None and record.purpose == purpose:
                yield record

    def examples(self, record: Record, artifact: str) -> Path | None:
        """The path of a record's per-example file, None without one; a damaged one only warns."""
        return self._beside(record, artifact, record.examples)

    def run(self, record: Record, artifact: str) -> Path | None:
        """The path of a record's run file, None without one; a damaged one only warns."""
        return self._beside(record, artifact, record.run)

    def _beside(self, record: Record, artifact: str, part: ExamplesPart | RunPart | None) -> Path | None:
        if part is None:
            return None
        found = self.path(artifact, record.task.name, record.key).with_name(part.file)
        if not found.is_file():
            return None
        if files.sha256_file(found) == part.sha256:
            return found
        _warn_once(found, f"{found} is damaged: its record has another SHA-256. It counts as missing.")
        return None

    def imported(self) -> list[Imported]:
        """The imports in this folder, which are never among its records; unreadable imports only warn."""
        found = []
        for folder in imported.Imported.homes(self.root):
            try:
                found.append(imported.Imported.read(folder))
            except RecordError as error:
                _warn(f"{error.message} It is left out.")
        return [one for one in found if one is not None]

    def _first(self, path: Path, record: Record, contents: Mapping[str, bytes]) -> Record:
        """The record that was there first; it gives way where a file beside it has just been replaced."""
        there = self.read(path) or record
        for part in contents:
            mine, theirs = getattr(record, part), getattr(there, part)
            replaced = theirs is not None and mine != theirs
            if replaced and files.has_sha256(path.with_name(mine.file), mine.sha256):
                _put_beside(path, contents)
                files.replace(path, record.to_json().encode())
                return record
        return there

    def _folders(self, artifact: str) -> list[str]:
        """The folders of one artifact, at least one, the folder in use first."""
        key = artifact.rpartition("-")[2]
        there = self._artifacts.of(key)
        return [artifact] if not there or there == [artifact] else sorted(there, key=lambda n: n != artifact)

    def _gives_way(self, path: Path, record: Record) -> bool:
        """Whether the file at `path` is replaced; a damaged file is moved aside."""
        if not path.exists():
            return False
        there = self.read(path)
        if there is None:
            aside = path.with_suffix(".broken")
            _warn(f"{path} was damaged; it is kept as {aside.name}.")
            files.move(path, aside)
            return False
        return there.purpose == "trial" and record.purpose == "final"

    @staticmethod
    def read(path: Path) -> Record | None:
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
    def parse(path: Path) -> Record:
        """The record in a file, held against the file's place.

        Raises:
            OSError: The file cannot be read.
            RecordError: The record is of a newer schema, or the file holds none.
            ValueError: The file is damaged, or holds another record than its place says.
        """
        try:
            record = RECORDS.parse(path.read_text(encoding="utf-8"), where=str(path))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError("it is truncated, or no JSON") from error
        if problem := _misplacement(record, path):
            raise ValueError(problem)
        return record


class _ArtifactFolders:
    """The names of the folders in `records/`, listed again when that folder has changed.

    A look-up without it would list all of them, of which there may be thousands.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp = 0
        self._names: dict[str, list[str]] = {}

    def of(self, key: str) -> list[str]:
        """The names that end in the start of an artifact's key, sorted."""
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._stamp:
                self._list()
                # A change in the same tick of the clock would not be seen: a new listing counts once.
                self._stamp = changed if time.time_ns() - changed > SETTLED_NS else 0
        except (FileNotFoundError, NotADirectoryError):
            return []
        return self._names.get(key, [])

    def _list(self) -> None:
        self._names = {}
        for name in sorted(os.listdir(self._folder)):
            self._names.setdefault(name.rpartition("-")[2], []).append(name)


def _misplacement(record: Record, path: Path) -> str:
    """The reason why a record cannot be the one of its file; empty if it can."""
    artifact = path.parent.parent.name.rpartition("-")[2]
    if record.key != _key(path):
        return f"it holds the record of another key, {record.key[:12]}"
    if digest(record.identity) != record.key:
        return "its key is not the digest of its identity"
    if _folder(record.task.name) != path.parent.name:
        return f"it holds a record of another task, {record.task.name}"
    if not record.model.artifact.startswith(artifact):
        return f"its folder is not that of its model, {record.model.artifact[:12]}"
    if (record.status == "failed") != path.name.endswith(FAILED):
        return f"it holds a record that is {record.status}"
    return ""


def _is_record(path: Path) -> bool:
    try:
        return path.exists() and Store.read(path) is not None
    except RecordError:
        return False


_warned: set[tuple[Path, int, int]] = set()
"""The damaged files that were warned of, with size and time."""


def _warn_once(path: Path, message: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        stat = path.stat()
        if (stamp := (path, stat.st_size, stat.st_mtime_ns)) not in _warned:
            _warned.add(stamp)
            _warn(message)


def _warn(message: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", message)


SETTLED_NS = 2_000_000_000
"""The age of a change of a folder below which a listing is not kept; some file systems count in seconds."""

FAILED = ".failed.json"
"""The end of the name of a failure's file."""


BESIDE = {"examples": ".examples.parquet", "run": ".run.parquet"}
"""The ends of the names of files beside a record, by the part of the record that names them."""


def _naming(path: Path, record: Record, contents: Mapping[str, bytes]) -> Record:
    """A record with the names and hashes of the files beside it."""
    parts = {}
    for part, content in contents.items():
        named = {"file": path.with_suffix(BESIDE[part]).name, "sha256": hashlib.sha256(content).hexdigest()}
        parts[part] = getattr(record, part).model_copy(update=named)
    return record.model_copy(update=parts) if parts else record


def _put_beside(path: Path, contents: Mapping[str, bytes]) -> None:
    for part, content in contents.items():
        files.replace(path.with_suffix(BESIDE[part]), content)


def _remove_beside(path: Path, parts: Iterable[str]) -> None:
    """Remove the files of a replaced record that the new one does not have."""
    for part in parts:
        path.with_suffix(BESIDE[part]).unlink(missing_ok=True)


def _failed(path: Path) -> Path:
    return path.with_suffix(FAILED)


def _key(path: Path) -> str:
    """The key in the name of a record's or a failure's file."""
    return path.name.removesuffix(FAILED).removesuffix(".json")


def _folder(task: str) -> str:
    """The name of a task's folder."""
    return "".join(c if c.isalnum() or c in "-._+" else "-" for c in task).strip(".") or "task"
