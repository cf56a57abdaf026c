"""Suites built from Python source: code search, classification and clustering of docstrings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import DataError
from harness.types import SIDES, Column, Data, Suite, SuiteOptions, Task
from suites import _keep, _unchanged
from suites._data import Content, content_hash, size
from suites._mteb.built import BuiltSource
from suites._narrowed import narrowed

Part = Literal["search", "classification", "clustering"]

KINDS: dict[Part, tuple[str, str, str]] = {
    "search": ("CodeSearch", "Retrieval", "ndcg_at_10"),
    "classification": ("DocstringClassification", "Classification", "accuracy"),
    "clustering": ("DocstringClustering", "Clustering", "v_measure"),
}


@dataclass(frozen=True, kw_only=True)
class SourceLoader:
    """One of the tasks made from the Python source below `root`; `planned` is its content hash."""

    root: Path
    part: Part
    planned: str
    cache: Path | None = None

    def content(self) -> Content:
        """The task's data, built from the source.

        Raises:
            DataError: The source changed after the plan was made.
        """
        content = _keep.tasks(self.root, self.cache).content(self.part)
        if content is None:
            raise DataError(f"{self.root} no longer has enough source for {self.part}.")
        _unchanged.require(str(self.root), content_hash(content), self.planned)
        return content


def suite(
    name: str, title: str, root: Path, *, prefix: str, options: SuiteOptions, revision: str = ""
) -> Suite:
    """A suite of the tasks that the source below `root` is enough for.

    Raises:
        DataError: Not even code search can be made.
        UsageError: Nothing is left of it under `options`.
    """
    tasks = _keep.tasks(root, options.cache)
    columns = []
    for part in KINDS:
        if content := tasks.content(part):
            loader = SourceLoader(root=root, part=part, planned=tasks.hash(part), cache=options.cache)
            columns.append(_column(prefix, loader, content, revision))
    made = Suite(name=name, title=title, columns=tuple(columns), notes=tasks.notes)
    return narrowed(made, options)


def _column(prefix: str, loader: SourceLoader, content: Content, revision: str) -> Column:
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
