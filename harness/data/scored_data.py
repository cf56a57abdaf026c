"""A data set for distillation on disk, in PyLate's form: documents of queries with a teacher's scores.

A folder with three configurations, each a Parquet file of the split "train", which the datasets library
opens: `train`, whose rows are a query's id, ids of documents and their scores, and the texts, `queries` and
`documents`. A provenance.json says what it was made of, and has the hash of each file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import RecordError, UsageError
from harness.core.keys import digest
from harness.data.collection import Collection
from harness.data.scored_tables import TEXTS

PROVENANCE = "provenance.json"
"""The file that says what a folder was made of."""

_SCHEMA = 1
"""The version of that file."""

_PARQUET = "train-00000-of-00001.parquet"
"""The name of each configuration's file."""


@dataclass(frozen=True, kw_only=True)
class ScoredRow:
    """A query, its documents by their place in a collection, and their scores as they are written."""

    query: str
    documents: tuple[int, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ScoredData:
    """A data set that was made.

    Attributes:
        folder: Its folder.
        key: The hash of what it was made of.
        facts: The rest of provenance.json: `counts`, `constant`, `notes` among them.
        was_there: Whether an earlier run made it.
    """

    folder: Path
    key: str
    facts: Mapping[str, Any]
    was_there: bool = False

    @staticmethod
    def read_scored_data(folder: Path, identity: Mapping[str, Any]) -> ScoredData | None:
        """The data set of an identity in a folder; None if nothing lies there.

        Raises:
            UsageError: Something else lies there, or the data set has changed or was made of other data.
        """
        if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
            return None
        elsewhere = "Name another folder with --output, or move this one away."
        if not (folder / PROVENANCE).is_file():
            raise UsageError(
                f"{folder} exists, but is not a data set of this command: it has no {PROVENANCE}.",
                hint=elsewhere,
            )
        try:
            facts = read_content_file(folder / PROVENANCE)
            broken = [n for n, sha256 in facts["files"].items() if files.hash_file(folder / n) != sha256]
            other = [name for name, value in identity.items() if facts["identity"].get(name) != value]
        except (OSError, ValueError, LookupError, AttributeError) as error:
            raise RecordError(f"{folder} cannot be read: {error}.", hint=elsewhere) from None
        if broken:
            raise UsageError(f"{folder / broken[0]} has changed since it was written.", hint=elsewhere)
        if other:
            raise UsageError(f"{folder} was made with another value of: {', '.join(other)}.", hint=elsewhere)
        return ScoredData(folder=folder, key=digest(identity), facts=facts, was_there=True)

    @staticmethod
    def write_scored_data(
        folder: Path,
        identity: Mapping[str, Any],
        facts: Mapping[str, Any],
        rows: Sequence[ScoredRow],
        collection: Collection,
        about: str,
    ) -> ScoredData:
        """Write a data set beside its place and rename it.

        Args:
            folder: The place, where nothing lies or an empty folder.
            identity: What the data set was made of.
            facts: What provenance.json says besides.
            rows: The scores.
            collection: The texts.
            about: The text of the README.

        Raises:
            StoreError: The folder cannot be written.
        """
        import pyarrow.parquet as pq

        folder = folder.absolute()
        files.sweep(folder.parent, f".{folder.name}.*.tmp")
        staged = files.create_temporary_folder(folder)
        key = digest(identity)
        provenance = {"schema": _SCHEMA, "key": key, "identity": dict(identity), **facts}
        try:
            for config, table in _build_scored_tables(rows, collection).items():
                (staged / config).mkdir()
                pq.write_table(table, staged / config / _PARQUET, compression="zstd")
            (staged / "README.md").write_text(_render_readme(about), encoding="utf-8")
            names = sorted(path.relative_to(staged).as_posix() for path in staged.rglob("*.*"))
            hashes = {name: files.hash_file(staged / name) for name in names}
            write_content_file(staged / PROVENANCE, {**provenance, "files": hashes})
            for name in (*names, PROVENANCE):
                # On disk before the rename: after a power cut the folder is complete or absent.
                files.sync(staged / name)
            # rename(2) replaces an empty folder, and refuses one with files.
            staged.rename(folder)
            files.sync(folder.parent)
        except OSError as error:
            store_error = files.write_error(folder, error)
            hint = "The vectors are kept: free some room or name another --output, and run the command again."
            store_error.hint = hint
            raise store_error from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return ScoredData(folder=folder, key=key, facts=provenance)


def _build_scored_tables(rows: Sequence[ScoredRow], collection: Collection) -> Mapping[str, Any]:
    """The table of each configuration."""
    import pyarrow as pa

    def build_table(*columns: tuple[str, Sequence[Any], Any]) -> Any:
        return pa.table({name: pa.array(values, kind) for name, values, kind in columns})

    names, text = list(collection.documents), pa.string()
    # Only documents with a score are written; the collection may have many more.
    used = [names[number] for number in sorted({number for row in rows for number in row.documents})]
    queries = [row.query for row in rows]
    ids = [[names[number] for number in row.documents] for row in rows]
    query_id = ("query_id", queries, text)
    return {
        "train": build_table(
            query_id,
            ("document_ids", ids, pa.list_(text)),
            ("scores", [row.scores for row in rows], pa.list_(pa.float32())),
        ),
        "queries": build_table(query_id, ("text", [collection.queries[name] for name in queries], text)),
        "documents": build_table(
            ("document_id", used, text), ("text", [collection.documents[name] for name in used], text)
        ),
    }


def _render_readme(about: str) -> str:
    """The README, whose head names the file of each configuration."""
    configs = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/{_PARQUET}\n"
        for name in ("train", *TEXTS)
    )
    return f"---\nconfigs:\n{configs}---\n# Scores for distillation\n\n{about}"
