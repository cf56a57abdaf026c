"""The selection among the runs of a GLUE grid: the number of a run, the best one, and the jobs that select.

Whether a protocol selects at all, and by which seeds its score is then measured, is in its data
(finetune.glue.settings).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from finetune.glue.settings import Trial
from harness.core.errors import HarnessError
from harness.core.types import Raw, Task
from harness.jobs.context import JobContext
from harness.results.scores import collect_raw_metrics
from harness.storage.record import RECORDS, Record
from suites.glue import VIEWS, GlueSource

CELL = ("learning_rate", "batch_size", "weight_decay", "epochs", "seed")
"""The settings of a run that its grid varies."""


def extract_cell(trial: Trial) -> dict[str, Any]:
    """The settings of a run that its grid varies, by name."""
    return {name: getattr(trial, name) for name in CELL}


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """The score of a finished run.

    Attributes:
        trial: The trial.
        score: The task's number by the protocol's own view; None if the run diverged.
        watched: The metric of early stopping, for MNLI the accuracy on the matched set; None if diverged.
        constant: Whether the prediction is the same for every row.
    """

    trial: Trial
    score: float | None
    watched: float | None
    constant: bool = False

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite."""
        return self.score is None

    @staticmethod
    def select(tried: Sequence[RunScore], by: Literal["score", "watched"] = "score") -> RunScore:
        """The best run of a task's grid, the first of equals.

        Args:
            tried: The runs.
            by: "watched" for the MNLI run that others start from: best accuracy on the matched set.

        Raises:
            HarnessError: Every run diverged.
        """
        # max keeps the first of equals, so that the order of the grid decides.
        finished = [run for run in tried if getattr(run, by) is not None]
        if not finished:
            raise HarnessError(
                f"All {len(tried)} runs of the grid diverged: no loss stayed finite.",
                hint="See that the backbone is whole, or run it in float32.",
            )
        return max(finished, key=attrgetter(by))


def compute_task_number(task: Task, view: str, metrics: Raw) -> float | None:
    """A task's number by a paper's view, None if a part is missing; for a user's own task, the mean."""
    if isinstance(task.source, GlueSource):
        return VIEWS[view].compute_task_number(task.name, metrics)
    return sum(metrics.values()) / len(metrics)


def _compute_selection_metric(task: Task, view: str, metrics: Raw) -> float:
    """The score that cells are selected by: the task's number, or the mean of its parts that are there."""
    task_number = compute_task_number(task, view, metrics)
    if task_number is not None:
        return task_number
    # A data root may lack one of MNLI's sets; the view's number then does not exist, but a choice can be
    # made.
    values = [metrics[part] for part in VIEWS[view].parts[task.name] if part in metrics] or [
        *metrics.values()
    ]
    return sum(values) / len(values)


def serialize_metrics(metrics: Raw) -> list[list[Any]]:
    """Metrics as they are on disk: [split, name, value] each."""
    return [[*name, value] for name, value in metrics.items()]


def score_run(record: Record, task: Task, view: str) -> float | None:
    """A run's score by a view, which may differ from the view of the recipe that made the run."""
    if record.training["diverged"]:
        return None
    return _compute_selection_metric(task, view, collect_raw_metrics(record))


def score_runs(records: Sequence[Record], trials: Sequence[Trial], task: Task, view: str) -> list[RunScore]:
    """The RunScores from the records of a grid."""
    return [
        RunScore(
            trial=trial,
            score=score_run(record, task, view),
            watched=record.training["watched"],
            constant=record.training["constant"],
        )
        for record, trial in zip(records, trials, strict=True)
    ]


def build_selection(
    tried: Sequence[RunScore], records: Sequence[Record], *, chosen: int, maximum: float | None
) -> dict[str, Any]:
    """The selection of a grid: the place of the chosen cell, and every run with its score and raw metrics.

    `maximum` is the best score, which errs upward, as the run was chosen on the same rows.
    """
    cells = [
        {
            **extract_cell(run.trial),
            "score": run.score,
            "metrics": serialize_metrics(collect_raw_metrics(record)),
            "diverged": run.diverged,
            "constant": run.constant,
            "micro_batch": record.training["micro_batch"],
            "key": record.key,
        }
        for run, record in zip(tried, records, strict=True)
    ]
    return {
        "chosen": chosen,
        "maximum": maximum,
        "cells": cells,
        "diverged": sum(run.diverged for run in tried),
        "constant": sum(run.constant for run in tried),
    }


def read_run_records(context: JobContext, keys: Sequence[str]) -> list[Record]:
    """The records of runs among this job's inputs."""
    return [
        RECORDS.parse(context.inputs[key]["record"].decode(), where=f"the run {key[:12]}") for key in keys
    ]


@dataclass(frozen=True, kw_only=True)
class Select:
    """The job that selects the best run of a grid from the records of its runs; gives JSON.

    Attributes:
        by: "score" for a task's best cell, "watched" for the MNLI run that others start from.
    """

    task: Task
    trials: tuple[Trial, ...]
    keys: tuple[str, ...]
    view: str
    by: Literal["score", "watched"] = "score"

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Select the run; gives its place and every cell, or of a start its key, settings and metric."""
        records = read_run_records(context, self.keys)
        tried = score_runs(records, self.trials, self.task, self.view)
        best = RunScore.select(tried, self.by)
        place = tried.index(best)
        if self.by == "watched":
            start_run = {"run": self.keys[place], **extract_cell(best.trial), "watched": best.watched}
            return {"source": json.dumps(start_run).encode()}
        selection = build_selection(tried, records, chosen=place, maximum=best.score)
        return {"selection": json.dumps(selection).encode()}
