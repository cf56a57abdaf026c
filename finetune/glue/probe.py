"""Estimates from a few steps of a run: its time for a plan, and its memory for the number of workers."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finetune.glue.jobs import Finetune
from finetune.glue.rows import TokenizedRows, TokenizedTask, adapt_trial
from finetune.glue.settings import Cadence, Trial
from harness.core.arguments import list_allowed_tensors
from harness.core.errors import DataError
from harness.data.locate import Unavailable
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.jobs.context import Event, JobContext
from harness.jobs.recipe import Estimate
from harness.results.cost.compute import FinetuneSpeed, ParameterCount, StepTime

STEPS = 20
"""Steps of a probe for time: half of them with small batches, half with large ones."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The job that measures the memory of the largest batch of each run, longest rows first."""

    runs: tuple[Finetune, ...]

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Train two steps and score a batch of each run; gives the peak and the device's as JSON."""
        import torch

        for work in self.runs:
            context.emit(Event(kind="stage", text=f"measuring the memory of {work.task.name}"))
            trial = work.trials[0]
            labelled, rows, _ = TokenizedTask.load_tokenized_task(
                context, work.artifact, work.task, work.data, trial
            )
            # Two steps: AdamW's moments exist after the first, so that only the second one has the peak.
            longest = rows.train.lengths.argsort(descending=True)[: 2 * trial.batch_size]
            _time_steps(context, work, trial, rows.train.take(longest), labelled.classes)
        peak = device_bytes = None
        if context.device.startswith("cuda"):
            # Reserved, not allocated: what torch's allocator holds is what other workers cannot have.
            peak = torch.cuda.max_memory_reserved(context.device)
            device_bytes = torch.cuda.mem_get_info(context.device)[1]
        return {"memory": json.dumps({"peak_bytes": peak, "device_bytes": device_bytes}).encode()}

    @staticmethod
    def select_largest_runs(works: Sequence[Finetune]) -> tuple[Finetune, ...]:
        """The run with the largest batch for each backbone and task, which takes the most memory."""
        largest_runs: dict[tuple[str, str], Finetune] = {}
        for work in works:
            candidate = replace(work, trials=(max(work.trials, key=lambda t: t.batch_size),), start=None)
            held = largest_runs.setdefault(_build_task_key(work), candidate)
            if candidate.trials[0].batch_size > held.trials[0].batch_size:
                largest_runs[_build_task_key(work)] = candidate
        return tuple(largest_runs.values())


def _measure_speed(context: JobContext, works: Sequence[Finetune]) -> tuple[FinetuneSpeed, ParameterCount]:
    """The speed of a backbone, from twenty steps with the smallest and the largest batch of its runs."""
    import torch

    trials = [(trial, work) for work in works for trial in work.trials]
    steps = []
    for pick in (min, max):
        trial, work = pick(trials, key=lambda pair: pair[0].batch_size)
        labelled, rows, _ = TokenizedTask.load_tokenized_task(
            context, work.artifact, work.task, work.data, trial
        )
        first = torch.arange(min(STEPS // 2 * trial.batch_size, len(rows.train)))
        step, parameters = _time_steps(context, work, trial, rows.train.take(first), labelled.classes)
        steps.append(step)
    return FinetuneSpeed.fit_speed(*steps), parameters


def _time_steps(
    context: JobContext, work: Finetune, trial: Trial, rows: TokenizedRows, classes: int
) -> tuple[StepTime, ParameterCount]:
    """A step of one pass over rows that trains and scores them, and the parameters that have a part in it."""
    import torch

    from finetune.glue import trainer
    from finetune.glue.model import Classifier

    context.set_threads()
    folder = find_backbone_folder(work.artifact.folder)
    trial, _ = adapt_trial(folder, trial)
    extra = list_allowed_tensors(work.artifact.allow)
    model: Any = Classifier.load_classifier(folder, trial, classes=classes, allow_extra=extra)[0].to(
        context.device
    )
    autocast = trainer.build_autocast(torch.device(context.device), trial)
    scoring = 0.0

    def evaluate(trained: Any, step: int) -> trainer.Evaluation:
        nonlocal scoring
        started = time.perf_counter()
        trainer.predict(trained, rows, autocast=autocast)
        scoring = time.perf_counter() - started
        return trainer.Evaluation(step=step, metrics={("probe", "none"): 0.0}, predictions={})

    # One evaluation, at the end of the only pass.
    once = replace(trial, epochs=1, training=replace(trial.training, cadence=Cadence(batches=1)))
    ends = [time.perf_counter()]
    trainer.train_classifier(
        model, rows, once, evaluate, tell=lambda *_: ends.append(time.perf_counter()), read_every=1
    )
    steps = len(ends) - 1
    taken = [after - before for before, after in itertools.pairwise(ends)]
    step = StepTime(
        tokens=int(rows.lengths.sum()) / steps,
        seconds=statistics.median(taken[1:] or taken),  # the first step allocates memory
        scoring=scoring / steps,
    )
    return step, ParameterCount.count_parameters(model)


def estimate_runs(context: JobContext, works: Sequence[Finetune | None]) -> list[Estimate | None]:
    """The estimated cost of each run; where data cannot be read, the reason."""
    planned_works = [work for work in works if work is not None]
    sizes = {_build_task_key(work): work for work in planned_works}
    measured_sizes: dict[tuple[str, str], _Size | DataError] = {}
    lost: Unavailable | None = None
    for place, work in sizes.items():
        # The next task would wait for the same hub, some twenty seconds each.
        measured_sizes[place] = size = lost or _measure_task_rows(context, work)
        lost = size if isinstance(size, Unavailable) else None
    readable_works = [
        work for work in planned_works if not isinstance(measured_sizes[_build_task_key(work)], DataError)
    ]
    keys = dict.fromkeys(work.artifact.key for work in readable_works)
    speeds = {
        key: _measure_speed(context, [work for work in readable_works if work.artifact.key == key])
        for key in keys
    }
    return [
        None if work is None else _estimate(work, speeds, measured_sizes[_build_task_key(work)])
        for work in works
    ]


def _build_task_key(work: Finetune) -> tuple[str, str]:
    """The keys of a backbone and a task."""
    return work.artifact.key, work.task.name


@dataclass(frozen=True, kw_only=True)
class _Size:
    """The rows of a task, the mean tokens of a training row, and the tokens of all dev rows."""

    rows: int
    tokens: float
    dev_tokens: float
    notes: tuple[str, ...]


def _measure_task_rows(context: JobContext, work: Finetune) -> _Size | DataError:
    try:
        labelled, rows, _ = TokenizedTask.load_tokenized_task(
            context, work.artifact, work.task, work.data, work.trials[0]
        )
    except DataError as error:
        return error
    return _Size(
        rows=len(rows.train),
        tokens=float(rows.train.lengths.double().mean()),
        dev_tokens=sum(int(one.lengths.sum()) for one in rows.dev.values()),
        notes=labelled.notes,
    )


def _estimate(
    work: Finetune, speeds: Mapping[str, tuple[FinetuneSpeed, ParameterCount]], size: _Size | DataError
) -> Estimate:
    """The estimate of the slowest cell that a run may turn out to be."""
    if isinstance(size, DataError):
        return Estimate(steps=0, flops=0.0, seconds=0.0, notes=(size.message,), problem=size.message)
    cells = [_estimate_cell(trial, *speeds[work.artifact.key], size) for trial in work.trials]
    return replace(max(cells, key=lambda cell: cell.seconds), steps=max(cell.steps for cell in cells))


def _estimate_cell(trial: Trial, speed: FinetuneSpeed, parameters: ParameterCount, size: _Size) -> Estimate:
    steps = trial.count_trial_steps(size.rows)
    every = trial.training.cadence.compute_interval(trial.task, rows=size.rows, batch_size=trial.batch_size)
    trained = trial.epochs * size.rows * size.tokens
    scored = max(1, steps // every) * size.dev_tokens
    return Estimate(
        steps=steps,
        flops=parameters.compute_flops(trained, scored=scored),
        seconds=speed.estimate_seconds(steps, trained=trained, scored=scored),
        notes=size.notes,
    )
