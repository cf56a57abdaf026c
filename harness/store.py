"""The results folder: records, per-example files and leases (the contract is results/README.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from harness import files, imported
from harness.errors import RecordError
from harness.imported import Imported
from harness.record import RECORDS, ExamplesPart, Record
from harness.types import Purpose


class Store:
    """Records under one folder, one file each, written whole and put if absent.

    `records/<artifact>/<task>/<key>.json` is a finished record, `<key>.examples.parquet` its
    per-example file, `<key>.failed.json` the last failure of work that is not finished.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def leases(self) -> Path:
        """The folder of claims on work in progress."""
        return self.root / "leases"

    def prepare(self) -> None:
        """Make the folder, check that it can be written, remove what killed processes left."""
        files.writable(self.root)
        files.sweep(self.root)

    def path(self, artifact: str, task: str, key: str) -> Path:
        """Where the record of `task` under `key` lies, or is to be written.

        `artifact` is the artifact's folder (`Artifact.slug`). One artifact has one folder, whatever
        name it was first measured under: a folder that ends in the same key is used as it is.
        """
        safe = "".join(c if c.isalnum() or c in "-._+" else "-" for c in task).strip(".") or "task"
        folders = self._folders(artifact)
        places = [self.root / "records" / folder / safe / f"{key}.json" for folder in folders]
        return next((place for place in places if place.exists()), places[0])

    def get(self, artifact: str, task: str, key: str, *, purpose: Purpose = "final") -> Record | None:
        """The finished record under `key`, or None if the work is still to be done.

        A trial does not stand in for a `final` record.

        Raises:
            RecordError: The record is of a newer schema, or cannot be read.
        """
        found = self.read(self.path(artifact, task, key))
        return None if found and purpose == "final" and found.purpose == "trial" else found

    def failure(self, artifact: str, task: str, key: str) -> Record | None:
        """The last failure recorded under `key`, if any."""
        return self.read(_failed(self.path(artifact, task, key)))

    def put(
        self, artifact: str, record: Record, examples: bytes | None = None, *, again: bool = False
    ) -> Record:
        """Write a record and its per-example file; returns what stands there afterwards.

        A finished record is put if absent (`again` puts it in place of the old one) and ends
        the failure recorded before it; a failed one always takes the place of the last failure.
        A final record takes the place of a trial, and any record that of a damaged file, which is
        moved aside.

        Raises:
            StoreError: The folder cannot be written.
        """
        path = self.path(artifact, record.task.name, record.key)
        if record.status == "failed":
            files.replace(_failed(path), record.to_json().encode())
            return record
        again = again or self._gives_way(path, record)
        if examples is not None:
            record = self._put_examples(path, record, examples, again=again)
        content = record.to_json().encode()
        if again:
            files.replace(path, content)
        elif not files.write_once(path, content):
            record = self.read(path) or record
        _failed(path).unlink(missing_ok=True)
        return record

    def records(self, *, purpose: str = "final", failed: bool = False) -> Iterator[Record]:
        """Every finished record (or every failure) of a purpose, in the order of their paths.

        A file that is no record, or one of a newer schema, is warned of and left out.
        """
        for path in sorted((self.root / "records").glob("*/*/*.json")):
            if path.name.endswith(".failed.json") != failed:
                continue
            try:
                record = self.read(path)
            except RecordError as error:
                _warn(f"{error.message} It is left out.")
                continue
            if record is not None and record.purpose == purpose:
                yield record

    def examples(self, record: Record, artifact: str) -> Path | None:
        """Where the per-example file of a record lies, None if it has none or it is gone."""
        if record.examples is None:
            return None
        found = self.path(artifact, record.task.name, record.key).with_name(record.examples.file)
        return found if found.exists() else None

    def imported(self) -> list[Imported]:
        """What others published and was imported into this folder, never among its records.

        One that cannot be read, or is of a newer schema, is warned of and left out.
        """
        found = []
        for folder in imported.import_folders(self.root):
            try:
                found.append(imported.read_import(folder))
            except RecordError as error:
                _warn(f"{error.message} It is left out.")
        return [one for one in found if one is not None]

    def _put_examples(self, path: Path, record: Record, content: bytes, *, again: bool) -> Record:
        beside = path.with_suffix(".examples.parquet")
        if again or not path.exists():  # without its record it is what a killed process left
            files.replace(beside, content)
        elif not files.write_once(beside, content):
            content = beside.read_bytes()
        rows = record.examples.rows if record.examples else 0
        part = ExamplesPart(file=beside.name, rows=rows, sha256=hashlib.sha256(content).hexdigest())
        return record.model_copy(update={"examples": part})

    def _folders(self, artifact: str) -> list[str]:
        """The folders of one artifact, at least one; the one in use first."""
        key = artifact.rpartition("-")[2]
        there = sorted(p.name for p in (self.root / "records").glob(f"*-{key}"))
        return [artifact] if not there or there == [artifact] else sorted(there, key=lambda n: n != artifact)

    def _gives_way(self, path: Path, record: Record) -> bool:
        """Whether what lies at `path` is to be replaced; a damaged file is moved aside."""
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
        """The record in a file, None if there is no file or it is damaged, which is warned of.

        Raises:
            RecordError: The record is of a newer schema, or cannot be read.
        """
        try:
            return RECORDS.parse(path.read_text(encoding="utf-8"), where=str(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
        except ValueError:
            _warn(f"{path} is truncated or damaged; it counts as not done.")
            return None


def _warn(message: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", message)


def _failed(path: Path) -> Path:
    return path.with_suffix(".failed.json")
