"""The rows of GLUE's tasks, from a local folder or from the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from finetune.glue.tasks import PATH, REVISION, TASKS, GlueTask
from harness.errors import DataError
from harness.labelled import Labelled, LabelledSplit
from harness.types import Data, Task

TRAIN = "train"


@dataclass(frozen=True, kw_only=True)
class GlueSource:
    """The source of the task of GLUE that has this name."""

    name: str

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return "glue 1"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every raw metric, that of early stopping first."""
        return TASKS[self.name].metrics

    @property
    def like(self) -> str:
        """The task itself."""
        return self.name

    @property
    def from_mnli(self) -> None:
        """As the recipe says."""
        return

    def load(self, task: Task, *, data: Path | None) -> Labelled:
        """The rows of the task (see harness.labelled.LabelSource)."""
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        known = TASKS[self.name]
        place: dict[str, Any] = {"path": PATH, "revision": REVISION} if data is None else {"path": str(data)}
        where = str(data or PATH)
        try:
            found = load_dataset(**place, name=known.subset)
        except (ValueError, OSError, DatasetsError) as error:
            said = str(error.__cause__ or error).partition(" with any supported extension")[0]
            raise DataError(
                f"{where}: {known.subset} cannot be read: {said}",
                hint="A data root holds the hub's files with its README.md, which names them by subset.",
            ) from error
        splits = {
            name: _split(found[name], known, f"{where}, {known.subset}, {name}")
            for name in (TRAIN, *task.splits)
            if name in found
        }
        missing = [name for name in (TRAIN, *task.splits) if name not in splits]
        if TRAIN in missing or len(missing) == len(task.splits):
            raise DataError(
                f"{where} has no {' and no '.join(missing)} of {known.subset}.",
                hint=f"It has: {', '.join(found)}. `harness data pull --suite glue --data DIR` fetches all.",
            )
        notes = [f"the data has no {name}: it is not scored" for name in missing]
        dev = {name: split for name, split in splits.items() if name != TRAIN}
        sizes = {TRAIN: known.train_rows, **dict(zip(known.dev, known.dev_rows, strict=True))}
        notes += [
            f"{name} has {len(split):,} rows, and GLUE's {sizes[name]:,}"
            for name, split in splits.items()
            if len(split) != sizes[name]
        ]
        return Labelled(train=splits[TRAIN], dev=dev, classes=known.classes, notes=tuple(notes))


def _split(rows: Any, task: GlueTask, where: str) -> LabelledSplit:
    lacking = [name for name in (*task.columns, "label") if name not in rows.column_names]
    if lacking:
        raise DataError(f"{where} has no column {', '.join(lacking)}.")
    if len(rows) == 0:
        raise DataError(f"{where} is empty.")
    labels = list(rows["label"])
    if task.classes > 1 and not set(labels) <= set(range(task.classes)):
        raise DataError(f"{where} has labels outside of 0 to {task.classes - 1}: they are hidden ones.")
    ids = list(rows["idx"]) if "idx" in rows.column_names else range(len(rows))
    texts = tuple(list(rows[name]) for name in task.columns)
    return LabelledSplit(texts=texts, labels=labels, ids=[str(i) for i in ids])


def _task(known: GlueTask) -> Task:
    return Task(
        name=known.name,
        type=known.type,
        metric=", ".join(known.metrics),
        splits=known.dev,
        subsets=(known.subset,),
        data=Data(path=PATH, revision=REVISION),
        source=GlueSource(name=known.name),
        output="label",
        roles=("",),
    )


GLUE: Mapping[str, Task] = MappingProxyType({name: _task(known) for name, known in TASKS.items()})
"""The tasks as a plan sees them, by name."""
