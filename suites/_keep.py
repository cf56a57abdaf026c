"""Keeps what was built from source code, so that unchanged source is parsed once."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from harness import files
from harness.errors import DataError, StoreError
from harness.identity import digest
from suites import _python, _source_files
from suites._data import Clusters, Document, Labelled, Query, Retrieval, Row

VERSION = 2
"""Raised whenever the same source would give other tasks."""


def tasks(root: Path, cache: Path | None) -> _python.Tasks:
    """The tasks of the source below `root`, built anew if a file changed since they were built.

    They are kept in this process, and in `cache` for others.

    A file counts as changed if its size, its time of change or its place is another; what is
    kept that cannot be read is built again.
    """
    return _tasks(root, cache, _fingerprint(root))


@functools.lru_cache(maxsize=4)
def _tasks(root: Path, cache: Path | None, fingerprint: str) -> _python.Tasks:
    if cache is None:
        return _python.build(root)
    kept = cache / "source" / f"{fingerprint}.json"
    try:
        return _read(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, DataError):
        built = _python.build(root)
    hashes = {part: built.hash(part) for part in _python.PARTS if built.content(part)}
    built = dataclasses.replace(built, hashes=hashes)
    with contextlib.suppress(StoreError):  # it only saves time
        files.replace(kept, json.dumps(dataclasses.asdict(built)).encode())
    return built


def _fingerprint(root: Path) -> str:
    found = _source_files.python_files(root)
    return digest(
        {
            "version": VERSION,
            "python": _python.stdlib_revision(),  # another Python parses other syntax
            "root": str(root),
            "files": [[name, *_stamp(root / name)] for name in found.files],
            "closed": found.closed,
        }
    )


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes with a file, () if it is gone."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_size, stat.st_mode, stat.st_mtime_ns, stat.st_ctime_ns


def _read(raw: dict[str, Any]) -> _python.Tasks:
    search = raw["search"]
    retrieval = Retrieval(
        documents=tuple(Document(**d) for d in search["documents"]),
        queries=tuple(Query(**q) for q in search["queries"]),
        qrels=search["qrels"],
        notes=tuple(search["notes"]),
    )
    labelled, clusters = raw["classification"], raw["clustering"]
    return _python.Tasks(
        search=retrieval,
        classification=labelled and Labelled(train=_rows(labelled["train"]), test=_rows(labelled["test"])),
        clustering=clusters and Clusters(rows=_rows(clusters["rows"])),
        notes=tuple(raw["notes"]),
        hashes=raw["hashes"],
    )


def _rows(raw: list[dict[str, Any]]) -> tuple[Row, ...]:
    return tuple(Row(**row) for row in raw)
