"""The results folder: records, per-example files and leases (the contract is results/README.md)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from harness import files
from harness.errors import RecordError
from harness.record import ExamplesPart, Record, parse

log = logging.getLogger(__name__)


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
        """Where the record of `task` for the artifact folder `artifact` lies under `key`."""
        safe = "".join(c if c.isalnum() or c in "-._+" else "-" for c in task).strip(".") or "task"
        return self.root / "records" / artifact / safe / f"{key}.json"

    def get(self, artifact: str, task: str, key: str) -> Record | None:
        """The finished record under `key`, or None if the work is still to be done."""
        return self._read(self.path(artifact, task, key))

    def failure(self, artifact: str, task: str, key: str) -> Record | None:
        """The last failure recorded under `key`, if any."""
        return self._read(_failed(self.path(artifact, task, key)))

    def put(
        self, artifact: str, record: Record, examples: bytes | None = None, *, again: bool = False
    ) -> Record:
        """Write a record and its per-example file; returns what stands there afterwards.

        A finished record is put if absent (`again` puts it in place of the old one) and ends
        the failure recorded before it; a failed one always takes the place of the last failure.

        Raises:
            StoreError: The folder cannot be written.
        """
        path = self.path(artifact, record.task.name, record.key)
        if record.status == "failed":
            files.replace(_failed(path), record.to_json().encode())
            return record
        if examples is not None:
            record = self._put_examples(path, record, examples, again=again)
        content = record.to_json().encode()
        if again:
            files.replace(path, content)
        elif not files.write_once(path, content):
            record = self._read(path) or record
        _failed(path).unlink(missing_ok=True)
        return record

    def records(self, *, purpose: str = "final", failed: bool = False) -> Iterator[Record]:
        """Every finished record (or every failure) of a purpose, in the order of their paths."""
        for path in sorted((self.root / "records").glob("*/*/*.json")):
            if path.name.endswith(".failed.json") == failed:
                record = self._read(path)
                if record is not None and record.purpose == purpose:
                    yield record

    def examples(self, record: Record, artifact: str) -> Path | None:
        """Where the per-example file of a record lies, if it has one."""
        if record.examples is None:
            return None
        return self.path(artifact, record.task.name, record.key).with_name(record.examples.file)

    def _put_examples(self, path: Path, record: Record, content: bytes, *, again: bool) -> Record:
        beside = path.with_suffix(".examples.parquet")
        if again:
            files.replace(beside, content)
        elif not files.write_once(beside, content):
            content = beside.read_bytes()
        rows = record.examples.rows if record.examples else 0
        part = ExamplesPart(file=beside.name, rows=rows, sha256=hashlib.sha256(content).hexdigest())
        return record.model_copy(update={"examples": part})

    def _read(self, path: Path) -> Record | None:
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RecordError(f"Cannot read {path}: {error.strerror}.") from error
        except UnicodeDecodeError:
            self._set_aside(path)
            return None
        try:
            return parse(text, where=str(path))
        except ValueError:
            self._set_aside(path)
            return None

    def _set_aside(self, path: Path) -> None:
        aside = path.with_suffix(".broken")
        log.warning("%s is truncated or damaged; it counts as not done.", path)
        try:
            path.rename(aside)
        except OSError as error:
            log.warning("It could not be moved aside to %s: %s", aside.name, error.strerror)


def _failed(path: Path) -> Path:
    return path.with_suffix(".failed.json")
