"""Suites built from Python source: code search, classification and clustering of docstrings."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import DataError
from harness.types import SIDES, Column, Data, Suite, Task
from suites import _keep, _python
from suites._data import Content, content_hash, size
from suites._mteb.built import BuiltSource

Part = Literal["search", "classification", "clustering"]

KINDS: dict[Part, tuple[str, str, str]] = {
    "search": ("CodeSearch", "Retrieval", "ndcg_at_10"),
    "classification": ("DocstringClassification", "Classification", "accuracy"),
    "clustering": ("DocstringClustering", "Clustering", "v_measure"),
}


@dataclass(frozen=True, kw_only=True)
class SourceLoader:
    """One of the tasks made from the Python source below `root`."""

    root: Path
    part: Part
    cache: Path | None = None

    def content(self) -> Content:
        """The task's data, built from the source."""
        content: Content | None = getattr(_tasks(self.root, self.cache), self.part)
        if content is None:
            raise DataError(f"{self.root} no longer has enough source for {self.part}.")
        return content


def suite(
    name: str, title: str, root: Path, *, prefix: str, revision: str = "", cache: Path | None = None
) -> Suite:
    """A suite of the tasks that the source below `root` is enough for.

    Raises:
        DataError: Not even code search can be made.
    """
    parts = [part for part in KINDS if getattr(_tasks(root, cache), part) is not None]
    loaders = [SourceLoader(root=root, part=part, cache=cache) for part in parts]
    columns = (_column(prefix, loader, revision) for loader in loaders)
    return Suite(name=name, title=title, columns=tuple(columns), notes=_tasks(root, cache).notes)


def _column(prefix: str, loader: SourceLoader, revision: str) -> Column:
    kind, type_, metric = KINDS[loader.part]
    content = loader.content()
    task = Task(
        name=f"{prefix}{kind}",
        type=type_,
        metric=metric,
        splits=("test",),
        data=Data(revision=revision, content=content_hash(content)),
        roles=SIDES if type_ == "Retrieval" else ("",),
        source=BuiltSource(loader=loader),
        size=size(content),
    )
    return Column(name=task.name, type=type_, tasks=(task,))


@functools.cache
def _tasks(root: Path, cache: Path | None) -> _python.Tasks:
    return _keep.tasks(root, cache)
