"""Trackers of experiments: W&B, TensorBoard, MLflow and trackio, each imported when it is first written to.

A tracked run has an id of ours, so that a training that goes on is the same run in the tracker. A mark in
the results folder says how far each tracker has been written, so that no point is written twice.
"""

# The clients themselves, and neither accelerate's trackers nor the callbacks of transformers: those write to
# the process's one current run, while a driver has several trainings at once.

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import io
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from harness.core import files
from harness.core.arguments import Form, split_names
from harness.core.errors import UsageError, explain_unknown
from harness.core.types import build_artifact_slug

PROJECT = "encoder-harness"
"""The project or experiment of tracked runs, where no variable of the tracker names another."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as trackers show it: its id, its name, its kind and its settings as texts and numbers."""

    id: str
    name: str
    kind: Literal["train", "score", "watch"]
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LoggedValues:
    """Values at a step. Those with an `order` up to that of the last written one are already there."""

    order: float | str
    step: int
    values: Mapping[str, float]


class Tracker(ABC):
    """One run in one tracker."""

    rewinds = False
    """Whether points can take the place of earlier ones at their step and behind it."""

    def __init__(self, name: str, run: TrackedRun, folder: Path) -> None:
        self._run, self._folder = run, folder
        self._mark = folder / "marks" / f"{run.id}.{name}.json"
        self._last: Any = json.loads(self._mark.read_bytes()) if self._mark.is_file() else None
        self._started = False

    def log_points(self, points: Sequence[LoggedValues], *, live: bool = False) -> None:
        """Write the points that are not there, in order of their steps.

        Args:
            points: All points of a curve, or with `live` those that follow, perhaps from an earlier step on.
            live: Whether they were measured now.
        """
        new = [point for point in points if self._last is None or point.order > self._last]
        if self.rewinds:
            first = min((point.step for point in (points if live else new)), default=None)
            new = [point for point in points if first is not None and point.step >= first]
        if not new:
            return
        if not self._started:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.start_tracking()
            self._started = True
        self.write_points(new)
        self._last = max(point.order for point in new)
        files.replace(self._mark, json.dumps(self._last).encode(), last=False)

    def finish_tracking(self, *, success: bool) -> None:
        """End the run in the tracker, where it was begun."""
        if self._started:
            self.end_tracking("FINISHED" if success else "KILLED")

    @abstractmethod
    def start_tracking(self) -> None:
        """Open the run of this id, which may be there already."""

    @abstractmethod
    def write_points(self, points: Sequence[LoggedValues]) -> None:
        """Write points."""

    @abstractmethod
    def end_tracking(self, status: str) -> None:
        """Close the run, which has FINISHED or was KILLED."""


class _WandB(Tracker):
    _client: Any

    def start_tracking(self) -> None:
        import wandb

        # A killed process loses what is not in its file; by default that is written every 15 seconds.
        often = {"x_transaction_log_flush_interval": 0.5}
        options = {name: often[name] for name in often.keys() & wandb.Settings.model_fields.keys()}
        self._client = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=self._run.id,
            name=self._run.name,
            job_type=self._run.kind,
            config=dict(self._run.config),
            dir=os.environ.get("WANDB_DIR", self._folder),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off", **options),
        )
        # Its own steps only rise, while a watch may finish an earlier checkpoint later.
        self._client.define_metric("*", step_metric="step")

    def write_points(self, points: Sequence[LoggedValues]) -> None:
        for point in points:
            self._client.log({"step": point.step, **point.values})

    def end_tracking(self, status: str) -> None:
        self._client.finish(exit_code=0 if status == "FINISHED" else 1)


class _MLflow(Tracker):
    _client: Any
    _id: str

    def start_tracking(self) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        name, tags = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT), {"harness.id": self._run.id}
        experiment = self._client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment else self._client.create_experiment(name)
        runs = self._client.search_runs([place], f"tags.`harness.id` = '{self._run.id}'")
        if not runs:
            tags["harness.kind"] = self._run.kind
            runs = [self._client.create_run(place, run_name=self._run.name, tags=tags)]
            params = [Param(_clean_name(key), str(value)[:6000]) for key, value in self._run.config.items()]
            # It takes 100 parameters, and 1,000 values, at once.
            for start in range(0, len(params), 100):
                self._client.log_batch(runs[0].info.run_id, params=params[start : start + 100])
        self._id = runs[0].info.run_id
        self._client.update_run(self._id, status="RUNNING")

    def write_points(self, points: Sequence[LoggedValues]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(_clean_name(name), value, now, p.step) for p in points for name, value in p.values.items()
        ]
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self._id, metrics=metrics[start : start + 1000])

    def end_tracking(self, status: str) -> None:
        self._client.set_terminated(self._id, status=status)


def _clean_name(name: str) -> str:
    """A name with the characters that MLflow takes."""
    return re.sub(r"[^\w\-. /]", "_", name)


class _TensorBoard(Tracker):
    rewinds = True
    _writer: Any
    _step: int

    def start_tracking(self) -> None:
        self._writer, self._step = None, 0

    def write_points(self, points: Sequence[LoggedValues]) -> None:
        for point in points:
            if self._writer is None or point.step < self._step:
                self._open_writer(point.step)
            for name, value in point.values.items():
                self._writer.add_scalar(name, value, point.step)
            self._step = point.step
        self._writer.flush()

    def end_tracking(self, status: str) -> None:
        self._writer.close()

    def _open_writer(self, step: int) -> None:
        """Open a file whose readers forget the values from a step on."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        if self._writer is not None:
            self._writer.close()
        name = build_artifact_slug(self._run.name, self._run.id)
        folder = self._folder / "tensorboard" / self._run.kind / name
        self._writer = SummaryWriter(str(folder), purge_step=step)
        # Its own add_hparams would write a second file, behind which readers see nothing of the first.
        for part in hparams(dict(self._run.config), {}):
            self._writer.file_writer.add_summary(part)


class _Trackio(Tracker):
    _client: Any

    def start_tracking(self) -> None:
        import trackio

        # In a context of its own, as it ends the run that the present one has. What it prints is no result.
        with contextlib.redirect_stdout(io.StringIO()):
            self._client = contextvars.Context().run(
                trackio.init,
                PROJECT,
                name=build_artifact_slug(self._run.name, self._run.id),
                group=self._run.kind,
                config=dict(self._run.config),
                resume="allow",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def write_points(self, points: Sequence[LoggedValues]) -> None:
        for point in points:
            self._client.log(dict(point.values), step=point.step)

    def end_tracking(self, status: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self._client.finish()


_TRACKERS: Mapping[str, type[Tracker]] = {
    "wandb": _WandB,
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "trackio": _Trackio,
}
"""The trackers by the names of their packages, which are those of their modules as well."""


def open_tracker(name: str, run: TrackedRun, folder: Path) -> Tracker:
    """A run in a tracker, which is begun with its first point.

    Args:
        name: The name of the tracker.
        run: The run.
        folder: The folder of marks, and of trackers that write files.
    """
    return _TRACKERS[name](name, run, folder)


def _read_trackers(value: Any) -> Any:
    """Names of trackers, each of which is installed."""
    texts = [value] if isinstance(value, str) else value or ()
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        return value
    names = tuple(dict.fromkeys(name for text in texts for name in split_names(text)))
    for name in names:
        if name not in _TRACKERS:
            raise explain_unknown("tracker", name, _TRACKERS, then="Type e.g. --track wandb.")
        spec = importlib.util.find_spec(name)
        # Without an origin it is a folder of this name, as W&B leaves one where it was run.
        if spec is None or spec.origin is None:
            raise UsageError(f"The tracker {name} is not installed.", hint=f"Type: pip install {name}")
    return names


Trackers = Annotated[
    tuple[str, ...], Form(must="names of trackers, as a text or a list", read=_read_trackers, repeated=True)
]
