"""Trackers of a run: what its trainings report as they go on, and its scores at the end.

All of it is written by this process, wherever the jobs run, and in a thread: no tracker holds a job up or
ends one. A tracker that fails is warned of once, and gets nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.errors import warn
from harness.core.keys import build_encoding_identity, digest
from harness.driver.execute import Listeners
from harness.driver.report.run import Report
from harness.jobs.context import Event
from harness.jobs.jobs import Job
from harness.jobs.training_jobs import Train
from harness.plan.catalog import join_single_tasks
from harness.plan.plan import ConfiguredModel
from harness.results.differences import Comparable, flatten
from harness.storage.record import Record
from harness.storage.trackers import LoggedValues, TrackedRun, Tracker, open_tracker
from harness.training.training import read_log


class Tracking:
    """The trackers of one run of the program: a context that ends when everything is written."""

    def __init__(self, names: Sequence[str], results: Path) -> None:
        self._names, self._folder = tuple(names), results / "tracking"
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trackers")
        # Used in the thread alone: the trackers of each run by name, and the names of those that failed.
        self._runs: dict[str, dict[str, Tracker]] = {}
        self._lost: set[str] = set()

    def __enter__(self) -> Tracking:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self._submit(self._finish_all, success=error is None)
        self._thread.shutdown()

    def extend_listeners(self, listeners: Listeners | None) -> Listeners:
        """Listeners that pass everything on to others, and trainings to the trackers."""
        first = listeners or Listeners()

        def note_event(job: Job, event: Event) -> None:
            first.event(job, event)
            if event.log or event.kind in ("finished", "failed"):
                self._submit(self._follow, job, event)

        def note_record(job: Job, record: Record) -> None:
            first.trained(job, record)
            if job.kind == "finetune":
                self._submit(self._end_finetune, job, record)

        return replace(first, event=note_event, trained=note_record)

    def log_scores(self, report: Report) -> None:
        """Write the scores of each model of a report, and its means, but for those of a limit."""
        if report.prepared.request.limit is None:
            self._submit(self._log_scores, report)

    def log_curve(self, run: TrackedRun, points: Sequence[LoggedValues], *, live: bool = False) -> None:
        """Write the points of a run that are not there, as `Tracker.log_points` does."""
        self._submit(self._log, run, points, live=live)

    def _submit(self, work: Callable[..., None], *args: Any, **options: Any) -> None:
        if self._names:
            self._thread.submit(self._attempt, work, *args, **options)

    def _log_scores(self, report: Report) -> None:
        for model in report.prepared.subjects:
            run, point = _read_scores(report, model)
            if point.values:
                self._log(run, [point])
                self._finish(run.id, success=True)

    def _log(self, run: TrackedRun, points: Sequence[LoggedValues], *, live: bool = False) -> None:
        trackers = self._runs.setdefault(run.id, {})

        def write_points(name: str) -> None:
            if name not in trackers:
                trackers[name] = open_tracker(name, run, self._folder)
            trackers[name].log_points(points, live=live)

        for name in self._names:
            if name not in self._lost:
                self._attempt(write_points, name, of=name)

    def _finish(self, key: str, *, success: bool) -> None:
        for name, tracker in self._runs.pop(key, {}).items():
            self._attempt(tracker.finish_tracking, success=success, of=name)

    def _finish_all(self, *, success: bool) -> None:
        for key in [*self._runs]:
            self._finish(key, success=success)

    def _attempt(self, work: Callable[..., None], *args: Any, of: str = "", **options: Any) -> None:
        """Do a part of the work; an error ends a tracker, or all of them, and nothing else."""
        try:
            work(*args, **options)
        except Exception as error:
            lost = [name for name in self._names if of in ("", name) and name not in self._lost]
            self._lost.update(lost)
            if lost:
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                warn(f"{', '.join(lost)} gets nothing more of this run ({reason}). The run goes on.")

    def _follow(self, job: Job, event: Event) -> None:
        """Write what an event of a training says, behind what its log has and this process has not heard."""
        if points := [_read_point(line) for line in event.log]:
            run = _build_training_run(job)
            if run.id not in self._runs:
                lines = read_log(job.work.spec.log.path) if isinstance(job.work, Train) else []
                self._log(run, [_read_point(line) for line in lines if line["step"] < points[0].step])
            self._log(run, points, live=True)
        if event.kind != "trained":
            self._finish(job.key[:12], success=event.kind == "finished")

    def _end_finetune(self, job: Job, record: Record) -> None:
        """Write the score of a fine-tuning run, and end it."""
        score, step = record.main_score, record.training["steps"]["done"]
        if job.key[:12] in self._runs and score is not None:
            point = LoggedValues(order=step + 0.5, step=step, values={"score": score})
            self._log(_build_training_run(job), [point])
        self._finish(job.key[:12], success=True)


def _read_point(line: Mapping[str, Any]) -> LoggedValues:
    """The values in a line of a training's log; the score of a selection comes behind the loss of its step.

    >>> _read_point({"step": 2, "loss": 0.5, "tokens": 30, "seconds": 0.5}).values
    {'train/loss': 0.5, 'train/tokens_per_second': 60.0, 'train/steps_per_second': 2.0}
    """
    values = {**line, "learning_rate": line.get("rate"), "rate": None, "tokens": None, "seconds": None}
    if seconds := line.get("seconds"):
        values |= {"tokens_per_second": line.get("tokens", 0) / seconds, "steps_per_second": 1 / seconds}
    step, selects = values.pop("step"), "loss" not in line
    prefix = "selection" if selects else "train"
    numbers = {
        f"{prefix}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }
    return LoggedValues(order=step + 0.5 if selects else step, step=step, values=numbers)


def _build_training_run(job: Job) -> TrackedRun:
    """A training as trackers show it, with the settings of its recipe."""
    work: Any = job.work
    name = work.artifact.name
    if isinstance(work, Train):
        lineage = work.lineage
        parents = ", ".join(parent.name for parent in lineage.parents)
        facts = {"model": name, "recipe": lineage.name, "seed": lineage.seed, "parents": parents}
        return TrackedRun(
            id=job.key[:12], name=name, kind="train", config=flatten_config({**lineage.settings, **facts})
        )
    return TrackedRun(
        id=job.key[:12],
        name=f"{name} {job.label}",
        kind="train",
        config=flatten_config({"model": name, **work.identity}),
    )


def _read_scores(report: Report, model: ConfiguredModel) -> tuple[TrackedRun, LoggedValues]:
    """The scores of a model, as a run of these suites under this treatment."""
    prepared, key = report.prepared, model.artifact.key
    results = [result for result in report.results if result.cell.subject == model]
    treatment = digest([Comparable(identity=result.cell.identity).curve for result in results])
    values: dict[str, float | None] = {}
    for suite in join_single_tasks(prepared.suites):
        if model in report.list_suite_models(suite):
            aggregates = report.compute_aggregates(model, suite)
            scores = {
                **aggregates.columns,
                "mean": aggregates.over_tasks.whole,
                "mean_over_types": aggregates.over_types.whole,
            }
            values |= {f"{suite.name}/{name}": value for name, value in scores.items()}
    lineage = report.find_lineage(model)
    config = {
        "model": model.artifact.name,
        "artifact": key,
        "recipe": "" if lineage is None else lineage.name,
        **({} if lineage is None else lineage.settings),
        "encoding": build_encoding_identity(model.encoding),
    }
    run = TrackedRun(
        # The model's key is that of its training's run; the same model has one for each treatment.
        id=f"{key[:12]}-{treatment[:8]}",
        name=prepared.format_model_label(model),
        kind="score",
        config=flatten_config(config),
    )
    measured = [result.record.provenance.get("started", "") for result in results if result.record]
    numbers = {name: value for name, value in values.items() if value is not None}
    return run, LoggedValues(order=max(measured, default=""), step=0, values=numbers)


def flatten_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in one level, each a number or a text."""
    plain = {name: value for name, value in flatten(config).items() if value is not None}
    return {k: v if isinstance(v, int | float | str) else str(v) for k, v in plain.items()}
