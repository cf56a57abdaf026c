"""Scores that others published, imported into a results folder: their files and how they are read.

`<results>/imported/<source>/import.json` is the stamp. It names the tables of one import, which lie beside it
under unique names, and is written last: after a crash, or during an import, the former import is still
complete.
"""

from __future__ import annotations

import hashlib
import io
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from harness.core import files as disk
from harness.core.documents import DocumentKind, read_or_warn
from harness.core.errors import RecordError, UsageError
from harness.core.provenance import find_version

SCHEMA = 2
"""The schema of a stamp and its tables; a newer one is refused. Schema 2 added the digests of both."""

STAMP = "import.json"
TABLES = ("entries", "files", "scores")
"""The entries that have scores, to whose row numbers the others refer; the files with the scores, in their
order; the main scores, one row for each file, split and subset."""

_TABLE = re.compile(rf"({'|'.join(TABLES)})-[0-9a-f]{{12}}\.parquet")


class _Stamp(BaseModel):
    """The fields that every importer writes into a stamp; other fields are preserved."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    schema_version: int = Field(default=SCHEMA, alias="schema")
    id: str = Field(pattern="^[0-9a-f]{12}$")


STAMPS = DocumentKind(
    name="stamp of an import",
    type=_Stamp,
    schema=SCHEMA,
    migrations={1: lambda stamp: stamp},
    hint="Remove this file and import again.",
    digest_since=2,
)


@dataclass(frozen=True, kw_only=True)
class Imported:
    """One import: its stamp, and its tables, which are read on demand.

    Attributes:
        source: The name of the importer.
        folder: The folder of the import.
        stamp: `schema`, `source`, `when`, `versions`, `tables`, `counts` and the importer's own facts.
    """

    source: str
    folder: Path
    stamp: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The name of this import; each import that changes something has a new name."""
        return str(self.stamp["id"])

    @property
    def counts(self) -> Mapping[str, Any]:
        """The importer's counts, such as the number of entries."""
        counts: Mapping[str, Any] = self.stamp.get("counts", {})
        return counts

    def find_problem(self) -> str:
        """What is wrong with its tables, every byte read; empty if nothing."""
        problems = ((table, self.find_table_problem(table)) for table in TABLES)
        return next((f"its table {table}: {problem}" for table, problem in problems if problem), "")

    def find_table_problem(self, table: str) -> str:
        """What is wrong with a table, every byte read; empty if nothing. Schema 1 knew only its length."""
        path, facts = self.locate_table(table), self.stamp.get("tables", {}).get(table, {})
        try:
            if path.stat().st_size != facts.get("bytes"):
                return "its length is not that in its stamp"
            same = "sha256" not in facts or disk.has_sha256(path, facts["sha256"])
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        return "" if same else "its SHA-256 is not that in its stamp"

    def load_table(self, table: str, columns: Sequence[str] | None = None) -> Any:
        """One of `TABLES`, or some of its columns, as a pyarrow table.

        Raises:
            RecordError: It cannot be read, or is not what was written.
        """
        from pyarrow import ArrowException, parquet

        path = self.locate_table(table)
        try:
            if problem := self.find_table_problem(table):
                raise OSError(problem)
            # Not read_table, which would import pandas. The checksums find a page that was damaged on disk.
            with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                return file.read(columns=list(columns) if columns else None)
        except (OSError, ArrowException) as error:
            hint = f"Remove {self.folder} and import again: harness import {self.source} PATH"
            raise RecordError(f"{path} cannot be read: {error}.", hint=hint) from error

    def locate_table(self, table: str) -> Path:
        """The file of a table."""
        return self.folder / f"{table}-{self.id}.parquet"

    @staticmethod
    def resolve_import_folder(results: Path, source: str) -> Path:
        """The folder for the import of a source in a results folder."""
        return results / "imported" / source

    @staticmethod
    def read_imports(results: Path) -> list[Imported]:
        """The imports in a results folder, sorted by name; unreadable imports only warn."""
        stamps = sorted((results / "imported").glob(f"*/{STAMP}"))
        imports = [read_or_warn(Imported.read_import, stamp.parent) for stamp in stamps]
        return [published for published in imports if published is not None]

    @staticmethod
    def read_import(folder: Path) -> Imported | None:
        """The import in `folder`, None if there is none.

        Raises:
            RecordError: It is of a newer schema, or its stamp cannot be read.
        """
        if not (folder / STAMP).exists():
            return None
        stamp = STAMPS.read_document_file(folder / STAMP).model_dump(by_alias=True)
        if stamp.get("source", folder.name) != folder.name:
            raise RecordError(f"{folder / STAMP} is that of the source {stamp['source']}.", hint=STAMPS.hint)
        return Imported(source=folder.name, folder=folder, stamp=stamp)

    @staticmethod
    @contextmanager
    def lock(folder: Path) -> Iterator[None]:
        """Keep other imports out of `folder` while this import runs.

        Raises:
            UsageError: Another import is running there.
            StoreError: The folder cannot be written.
        """
        from filelock import FileLock, Timeout

        disk.require_writable(folder)
        disk.sweep(folder)
        lock = FileLock(folder / ".lock")
        try:
            held = lock.acquire(timeout=0)
        except Timeout as error:
            message = f"Another import is writing to {folder}."
            raise UsageError(message, hint="Wait until it has ended.") from error
        with held:
            yield

    @staticmethod
    def publish(
        folder: Path, tables: Mapping[str, Any], facts: Mapping[str, Any], versions: Mapping[str, Any]
    ) -> Imported:
        """Write an import in place of the former one: its tables (pyarrow), then its stamp.

        Args:
            folder: The folder of the import (`resolve_import_folder`), locked with `lock`.
            tables: `entries`, `files` and `scores`.
            facts: The importer's facts, among them `counts`.
            versions: Versions, other than the harness's own, on which the tables depend.
        """
        former = Imported.read_import(folder)
        # New names for each import: a reader never finds tables of two imports under one stamp.
        import_id = secrets.token_hex(6)
        written = {}
        for name in TABLES:
            content = _serialize_parquet(tables[name])
            disk.replace(folder / f"{name}-{import_id}.parquet", content)
            sha256 = hashlib.sha256(content).hexdigest()
            written[name] = {"rows": tables[name].num_rows, "bytes": len(content), "sha256": sha256}
        about = {
            "source": folder.name,
            "id": import_id,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"harness": find_version(), **versions},
            "tables": written,
        }
        imported = Imported(source=folder.name, folder=folder, stamp={}).update_stamp({**about, **facts})
        # The tables of the former import stay once more: a page may be reading them now.
        kept = {import_id, former.id if former else import_id}
        for path in folder.glob("*.parquet"):
            if _TABLE.fullmatch(path.name) and path.stem.rpartition("-")[2] not in kept:
                path.unlink(missing_ok=True)
        return imported

    def update_stamp(self, facts: Mapping[str, Any]) -> Imported:
        """Write the stamp of an import again with changed `facts`; its tables stay."""
        stamp = _Stamp.model_validate({**self.stamp, **facts, "schema": SCHEMA})
        disk.replace(self.folder / STAMP, STAMPS.serialize_document(stamp).encode())
        return replace(self, stamp=stamp.model_dump(by_alias=True))


def _serialize_parquet(table: Any) -> bytes:
    from pyarrow import parquet, types

    text = [f.name for f in table.schema if types.is_dictionary(f.type)]
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="zstd", use_dictionary=text, write_page_checksum=True)
    return sink.getvalue()
