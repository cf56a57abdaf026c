"""Tasks that a model is trained for: their rows with labels, and where those come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from harness.types import TaskSource

if TYPE_CHECKING:
    from harness.types import Task

REGRESSION = 1
"""Classes of a task whose labels are numbers."""


@dataclass(frozen=True, kw_only=True)
class LabelledSplit:
    """Rows with labels.

    Attributes:
        texts: One or two columns of sentences, in the order in which a model reads them.
        labels: (rows,) numbers of classes from 0 on, or numbers.
        ids: (rows,) the data's own id of each row, else its place.
    """

    texts: tuple[Sequence[str], ...]
    labels: Sequence[float]
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """The data of a task.

    Attributes:
        train: To train on.
        dev: To score on: those of the task's splits that the data has, by name.
        classes: How many there are; REGRESSION where labels are numbers.
        notes: What the data lacks, in sentences.
    """

    train: LabelledSplit
    dev: Mapping[str, LabelledSplit]
    classes: int
    notes: tuple[str, ...] = ()


@runtime_checkable
class LabelSource(TaskSource, Protocol):
    """The source of a task that a model is trained for: a small picklable object."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names in `harness.metrics.METRICS`; early stopping watches the first."""
        ...

    @property
    def like(self) -> str:
        """The task whose settings in a recipe hold for this one: itself, if a recipe knows it."""
        ...

    @property
    def from_mnli(self) -> bool | None:
        """Whether it starts from a recipe's MNLI model; None for what the recipe says."""
        ...

    def load(self, task: Task, *, data: Path | None) -> Labelled:
        """The rows of a task.

        Args:
            task: Whose splits are wanted.
            data: The local folder that holds the data set, or None to load from the hub.

        Raises:
            DataError: There are no rows to train on, or none to score on.
        """
        ...
