"""Suites from a folder of Python source, built once: unchanged source comes from the cache, unparsed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness import files
from harness.documents import with_digest, without_digest
from harness.errors import DataError, StoreError
from harness.identity import digest
from harness.types import SIDES, Column, Data, Suite, SuiteOptions, Task
from suites import _python, _tables
from suites._content import Clusters, Content, Document, Labelled, Query, Retrieval, Row, content_hash, size
from suites._mteb.snapshot import narrowed
from suites._mteb.source import BuiltSource

Part = Literal["search", "classification", "clustering"]

KINDS: dict[Part, tuple[str, str, str]] = {
    "search": ("CodeSearch", "Retrieval", "ndcg_at_10"),
    "classification": ("DocstringClassification", "Classification", "accuracy"),
    "clustering": ("DocstringClustering", "Clustering", "v_measure"),
}


@dataclass(frozen=True, kw_only=True)
class _SourceLoader:
    """The loader of a task from the Python source below `root`; `planned` is its content hash."""

    root: Path
    part: Part
    planned: str
    cache: Path | None = None

    def content(self) -> Content:
        """The task's data, built from the source."""
        content = _content_tasks(self.root, self.cache).content(self.part)
        if content is None:
            raise DataError(f"{self.root} no longer has enough source for {self.part}.")
        _tables.require_unchanged(str(self.root), content_hash(content), self.planned)
        return content


def suite(
    name: str, title: str, root: Path, *, prefix: str, options: SuiteOptions, revision: str = ""
) -> Suite:
    """A suite of the tasks that the source below `root` is large enough for.

    Raises:
        DataError: Not even code search can be made.
        UsageError: Nothing of it is left under `options`.
    """
    tasks = _content_tasks(root, options.cache)
    columns = []
    for part in KINDS:
        if content := tasks.content(part):
            loader = _SourceLoader(root=root, part=part, planned=tasks.hash(part), cache=options.cache)
            columns.append(_column(prefix, loader, content, revision))
    made = Suite(name=name, title=title, columns=tuple(columns), notes=tasks.notes, averages="large")
    return narrowed(made, options)


def _column(prefix: str, loader: _SourceLoader, content: Content, revision: str) -> Column:
    kind, type_, metric = KINDS[loader.part]
    task = Task(
        name=f"{prefix}{kind}",
        type=type_,
        metric=metric,
        splits=("test",),
        data=Data(revision=revision, content=loader.planned),
        roles=SIDES if type_ == "Retrieval" else ("",),
        source=BuiltSource(loader=loader),
        size=size(content),
    )
    return Column(name=task.name, type=type_, tasks=(task,))


VERSION = 2
"""The version of the cached form, raised whenever the same source would give other tasks."""


def _content_tasks(root: Path, cache: Path | None) -> _python.Tasks:
    """The tasks of the source below `root`, cached here and in `cache` while the files are unchanged."""
    return _tasks(root, cache, _fingerprint(root))


@functools.lru_cache(maxsize=4)
def _tasks(root: Path, cache: Path | None, fingerprint: str) -> _python.Tasks:
    if cache is None:
        return _python.build(root)
    kept = cache / "source" / f"{fingerprint}.json"
    try:
        return _read(without_digest(kept.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, DataError):
        built = _python.build(root)
    hashes = {part: built.hash(part) for part in _python.PARTS if built.content(part)}
    built = dataclasses.replace(built, hashes=hashes)
    with contextlib.suppress(StoreError):  # the cache only saves time
        files.replace(kept, with_digest(dataclasses.asdict(built)).encode())
    return built


def _fingerprint(root: Path) -> str:
    found = _python.python_files(root)
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
    """Size, mode and times of a file, () without a file."""
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
