"""Those tasks of a user's folder that a recipe trains a model for: their source and their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.labelled import Labelled, LabelledSplit
from harness.types import Task
from suites import _unchanged
from suites._local_kinds import KINDS
from suites._local_labels import classes, numbers
from suites._local_learning import Learning
from suites._local_task import LocalTask, identified
from suites._places import reading
from suites._tables import Record

OPTIONAL = "text2"
"""The column that a task of single texts lacks."""

Texts = tuple[list[str], ...]
"""A list for each column."""


@dataclass(frozen=True, kw_only=True)
class LocalSource:
    """The source of such a task (see harness.labelled.LabelSource)."""

    task: LocalTask
    learning: Learning

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return "local 1"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every raw metric, that of early stopping first."""
        return self.learning.metrics

    @property
    def like(self) -> str:
        """The task of GLUE whose settings hold."""
        return self.learning.like

    @property
    def from_mnli(self) -> bool:
        """As harness.toml says."""
        return self.learning.from_mnli

    def load(self, task: Task, *, data: Path | None) -> Labelled:
        """The rows of the task, from its own files.

        Raises:
            DataError: They cannot be used, or changed after the plan was made.
        """
        _unchanged.require(task.name, self.task.content, task.data.content)
        return load(self.task, self.learning)


def load(task: LocalTask, learning: Learning) -> Labelled:
    """Read and check a task's files.

    Raises:
        DataError: With the file and the line of what cannot be used.
    """
    with reading(task.files[0].parent):
        train, dev = (dict(identified(task, path)) for path in task.files)
    first, second = [*train.values()], [*dev.values()]
    columns = _text_columns(task, [*first, *second])
    texts, scored = _texts(columns, first), _texts(columns, second)
    label = task.column("label")
    numeric = KINDS[task.type].numeric
    labels = numbers(label, first, second) if numeric else classes(label, learning, first, second)
    return Labelled(
        train=LabelledSplit(texts=texts, labels=labels.train, ids=[*train]),
        dev={task.split: LabelledSplit(texts=scored, labels=labels.dev, ids=[*dev])},
        classes=labels.classes,
        notes=(*labels.notes, *_unread(columns, label, first[0]), *_seen(texts, scored)),
    )


def _text_columns(task: LocalTask, rows: Sequence[Record]) -> list[str]:
    """What the columns of texts are called in the files; the second may be in neither file."""
    one, two = task.column("text1"), task.column(OPTIONAL)
    there = OPTIONAL in dict(task.columns) or any(two in record.fields for record in rows)
    return [one, two] if there else [one]


def _texts(columns: Sequence[str], rows: Sequence[Record]) -> Texts:
    return tuple([record.text(name) for record in rows] for name in columns)


def _unread(columns: Sequence[str], label: str, row: Record) -> tuple[str, ...]:
    """That there may be a second text in another column."""
    rest = [
        repr(name)
        for name, value in row.fields.items()
        if name not in (*columns, label) and isinstance(value, str)
    ]
    if len(columns) > 1 or not rest:
        return ()
    return (f"each row is one text, {columns[0]!r}; not read: {', '.join(rest)}",)


def _seen(train: Texts, dev: Texts) -> tuple[str, ...]:
    """That rows are scored which were trained on."""
    known = set(zip(*train, strict=True))
    rows = [*zip(*dev, strict=True)]
    same = sum(row in known for row in rows)
    return (f"{same} of {len(rows)} dev rows have the texts of a training row",) if same else ()
