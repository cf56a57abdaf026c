"""What a run leaves: its record, and what the runs of a task come to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from finetune.glue.protocol import Trial, Tried
from harness.record import Record
from harness.scores import raw
from harness.types import LabelledData, Raw, Task
from suites.glue import VIEWS, GlueSource

if TYPE_CHECKING:
    from finetune.glue.trainer import Evaluation, Progress


CELL = ("learning_rate", "batch_size", "weight_decay", "epochs", "seed")
"""The settings of a run that its grid varies."""


def cell_of(trial: Trial) -> dict[str, Any]:
    """What a run has of its own among the runs of a task."""
    return {name: getattr(trial, name) for name in CELL}


def said(trial: Trial) -> str:
    """A run in a few words.

    >>> from finetune.recipes.glue_quick import PROTOCOL
    >>> said(PROTOCOL.trials("RTE")[0])
    'lr 5e-05, batch 16, decay 0.01, 1 epoch, seed 0'
    """
    epochs = f"{trial.epochs} epoch{'s' if trial.epochs > 1 else ''}"
    return (
        f"lr {trial.learning_rate:g}, batch {trial.batch_size}, decay {trial.weight_decay:g}, "
        f"{epochs}, seed {trial.seed}"
    )


def number(task: Task, view: str, found: Raw) -> float | None:
    """A task's number by a paper's view, None unless all of it is there; of a user's own, the mean."""
    if isinstance(task.source, GlueSource):
        return VIEWS[view].number(task.name, found)
    return sum(found.values()) / len(found)


def choosing(task: Task, view: str, found: Raw) -> float:
    """What a cell is chosen by: the task's number, or the mean of its parts that are there."""
    whole = number(task, view, found)
    if whole is not None:
        return whole
    values = [found[part] for part in VIEWS[view].parts[task.name] if part in found] or [*found.values()]
    return sum(values) / len(values)


def scores_of(task: Task, metrics: Raw) -> dict[str, dict[str, dict[str, float]]]:
    """Raw metrics as a record has them: split → subset → metric → value."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (split, name), value in metrics.items():
        found.setdefault(split, {}).setdefault(task.subsets[0], {})[name] = value
    return found


def counted(progress: Progress) -> Evaluation | None:
    """The evaluation that is a run's score; None if it diverged."""
    if progress.diverged:
        return None
    return progress.best if progress.weights is not None else progress.evaluations[-1]


def training_of(trial: Trial, progress: Progress, steps: int) -> dict[str, Any]:
    """How a run went, for its record."""
    found = counted(progress)
    first = None if found is None else next(iter(found.predictions.values()))
    finite = [loss for loss in progress.losses if math.isfinite(loss)]
    return {
        "trial": asdict(trial),
        "diverged": progress.diverged,
        "constant": first is not None and bool((first == first[0]).all()),
        "watched": None if found is None else found.watched,
        "steps": {"asked": steps, "done": len(progress.losses), "counted": found.step if found else None},
        "loss": {"first": finite[0], "last": finite[-1]} if finite else {},
        "evaluations": [
            {"step": one.step, "metrics": [[*name, value] for name, value in one.metrics.items()]}
            for one in progress.evaluations
        ],
        "micro_batch": progress.micro_batch,
    }


def examples_of(task: Task, labelled: LabelledData, found: Evaluation, seed: int) -> dict[str, list[Any]]:
    """The per-example columns of a run (results/README.md)."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("split", "subset", "example_id", "replicate", "prediction", "gold", "metric")
    }
    for split, predicted in found.predictions.items():
        rows, values = labelled.dev[split], predicted.tolist()
        exact = labelled.classes > 1
        columns["split"] += [split] * len(rows)
        columns["subset"] += [task.subsets[0]] * len(rows)
        columns["example_id"] += rows.ids
        columns["replicate"] += [seed] * len(rows)
        columns["prediction"] += values
        columns["gold"] += [float(label) for label in rows.labels]
        columns["metric"] += [
            float(value == label) if exact else None for value, label in zip(values, rows.labels, strict=True)
        ]
    return columns


def tried_of(record: Record, trial: Trial, task: Task, view: str) -> Tried:
    """What a run's record says to a selection."""
    training = record.training
    return Tried(
        trial=trial,
        score=None if training["diverged"] else choosing(task, view, raw(record)),
        watched=training["watched"],
        constant=training["constant"],
    )


def all_tried(records: Sequence[Record], trials: Sequence[Trial], task: Task, view: str) -> list[Tried]:
    """What the records of a grid say to a selection."""
    return [tried_of(r, trial, task, view) for r, trial in zip(records, trials, strict=True)]


def cells_of(tried: Sequence[Tried], records: Sequence[Record]) -> list[dict[str, Any]]:
    """Every run of a grid with its score and raw metrics: how sensitive the task is to the settings."""
    return [
        {
            **cell_of(one.trial),
            "score": one.score,
            "metrics": [[*name, value] for name, value in raw(record).items()],
            "diverged": one.diverged,
            "constant": one.constant,
            "micro_batch": record.training["micro_batch"],
            "key": record.key,
        }
        for one, record in zip(tried, records, strict=True)
    ]


def means_of(records: Sequence[Record]) -> dict[tuple[str, str], float]:
    """The mean of every raw metric over runs."""
    import numpy as np

    found = [raw(record) for record in records]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def spread(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None of a single one."""
    import numpy as np

    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def together(columns: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Per-example columns of several runs, one behind the other."""
    return {name: [value for one in columns for value in one[name]] for name in columns[0]}
