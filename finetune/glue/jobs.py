"""The jobs of a GLUE protocol that train a run and score a task from its runs.

A run trains a backbone for a task, scores it and leaves a record of purpose "trial". The score of a task is a
record made of its runs; between them finetune.glue.selection chooses. Jobs are small to send: they name their
backbone, data and settings, and find earlier runs as inputs on their context. The worker itself caches the
best MNLI weights of each grid: they are too large to send to the driver, and can be made again.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from finetune.glue.rows import TokenizedTask, adapt_trial, load_tokenizer
from finetune.glue.selection import (
    build_selection,
    compute_task_number,
    extract_cell,
    read_run_records,
    score_run,
    score_runs,
    serialize_metrics,
)
from finetune.glue.settings import Trial
from finetune.glue.storage import ClassifierPlace
from harness.core import files, provenance
from harness.core.arguments import list_allowed_tensors
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import HarnessError
from harness.core.files import hash_file
from harness.core.types import Artifact, LabelledData, LabelSource, Raw, Task
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import build_model_part, count_scored_data, read_model_lineage
from harness.results.scores import collect_raw_metrics
from harness.storage.record import EXAMPLE_COLUMNS, RECORDS, Record, build_record_output, build_task_part

# torch takes seconds to import, and a driver that only plans and sends jobs needs none of it.
if TYPE_CHECKING:
    from torch import Tensor

    from finetune.glue.model import Classifier
    from finetune.glue.trainer import Evaluation, Progress


def format_trial(trial: Trial) -> str:
    """The settings of a run in short.

    >>> from finetune.recipes.glue_quick import PROTOCOL
    >>> format_trial(PROTOCOL.list_trials("RTE")[0])
    'lr 5e-05, batch 16, decay 0.01, 1 epoch, seed 0'
    """
    epochs = f"{trial.epochs} epoch{'s' if trial.epochs > 1 else ''}"
    return (
        f"lr {trial.learning_rate:g}, batch {trial.batch_size}, decay {trial.weight_decay:g}, "
        f"{epochs}, seed {trial.seed}"
    )


def _build_record_scores(task: Task, metrics: Raw) -> dict[str, dict[str, dict[str, float]]]:
    """Raw metrics in the form of a record: split → subset → metric → value."""
    record_scores: dict[str, dict[str, dict[str, float]]] = {}
    for (split, name), value in metrics.items():
        record_scores.setdefault(split, {}).setdefault(task.subsets[0], {})[name] = value
    return record_scores


def _choose_evaluation(progress: Progress) -> Evaluation | None:
    """The evaluation that counts as a run's score; None if the run diverged."""
    if progress.diverged:
        return None
    return progress.best if progress.weights is not None else progress.evaluations[-1]


Named = Sequence[Sequence[Any]]
"""Metrics on disk: [split, name, value] each."""


def _build_run_training(trial: Trial, progress: Progress, labelled: LabelledData) -> dict[str, Any]:
    """The `training` part of a run's record: trial, steps, losses and evaluations."""
    from finetune.glue.trainer import compute_cross_fit

    evaluation, gold = _choose_evaluation(progress), {n: rows.labels for n, rows in labelled.dev.items()}
    best = trial.training.stopping.counts == "best" and not progress.diverged
    first = None if evaluation is None else next(iter(evaluation.predictions.values()))
    # JSON has no NaN.
    finite = [loss for loss in progress.losses if math.isfinite(loss)]
    return {
        "trial": asdict(trial),
        "diverged": progress.diverged,
        "constant": first is not None and bool((first == first[0]).all()),
        "watched": None if evaluation is None else evaluation.watched,
        "steps": {
            "asked": trial.count_trial_steps(len(labelled.train)),
            "done": len(progress.losses),
            "counted": evaluation.step if evaluation else None,
        },
        "loss": {"first": finite[0], "last": finite[-1]} if finite else {},
        "evaluations": [
            {"step": one.step, "metrics": serialize_metrics(one.metrics)} for one in progress.evaluations
        ],
        "cross_fitted": serialize_metrics(compute_cross_fit(progress.evaluations, gold)) if best else None,
        "micro_batch": progress.micro_batch,
    }


def _build_example_columns(
    task: Task, labelled: LabelledData, evaluation: Evaluation, seed: int
) -> dict[str, list[Any]]:
    """The per-example columns of a run (results/README.md)."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("split", "subset", "example_id", "replicate", "prediction", "gold", "metric")
    }
    for split, predicted in evaluation.predictions.items():
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


def _compute_metric_means(runs: Sequence[Raw]) -> dict[tuple[str, str], float]:
    """The mean of each raw metric over runs."""
    import numpy as np

    return {name: float(np.mean([one[name] for one in runs])) for name in runs[0]}


def _build_evaluation_part(task: Task, view: str, records: Sequence[Record]) -> dict[str, Any]:
    """The evaluation that counts in each run, with the scores of other choices over the same runs."""

    def score_choice(metrics: Sequence[Named | None]) -> dict[str, Any] | None:
        choice_runs = [{(split, name): value for split, name, value in run} for run in metrics if run]
        if len(choice_runs) < len(metrics):
            return None
        means = _compute_metric_means(choice_runs)
        return {"score": compute_task_number(task, view, means), "metrics": serialize_metrics(means)}

    runs = [record.training for record in records]
    return {
        "counts": runs[0]["trial"]["training"]["stopping"]["counts"],
        "evaluations": [len(run["evaluations"]) for run in runs],
        "last": score_choice([run["evaluations"][-1]["metrics"] for run in runs]),
        "cross_fitted": score_choice([run.get("cross_fitted") for run in runs]),
    }


def _score_constant_model(task: Task, columns: Mapping[str, Sequence[Any]]) -> dict[tuple[str, str], float]:
    """The metrics of a model that predicts 0 for every row, as a diverged one does."""
    import numpy as np

    from harness.results.weighted_metrics import METRICS

    assert isinstance(task.source, LabelSource)
    splits, gold = np.array(columns["split"]), np.array(columns["gold"], dtype=float)
    constant_metrics = {}
    for split in dict.fromkeys(columns["split"]):
        rows = gold[splits == split]
        for name in task.source.metrics:
            score = METRICS[name](rows, np.zeros_like(rows), np.ones((1, len(rows))))[0]
            constant_metrics[split, name] = float(score)
    return constant_metrics


@dataclass(frozen=True, kw_only=True)
class StartFrom:
    """The weights that a run starts from in place of its backbone's.

    Attributes:
        kind: The MNLI run that this plan selects, a checkpoint file of ours, or a model folder.
        path: The checkpoint file or model folder.
    """

    kind: Literal["selected", "file", "folder"]
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """The job of one run: train a backbone for a task and score it on the dev splits.

    Attributes:
        artifact: The backbone.
        task: The task.
        trials: The run's trial, or the cells of a grid from which an earlier selection has chosen.
        seed: The seed of the run, in place of its cell's.
        data: The local folder of the data set; None for the hub.
        start: The weights to start from in place of the backbone's.
        view: The paper whose number is the main score.
        key: The key of the run's record.
        identity: The content whose digest is the key.
        group: The grid of MNLI runs whose best weights are cached; None to cache no weights.
        place: Where the classifier is kept; None to keep none.
    """

    artifact: Artifact
    task: Task
    trials: tuple[Trial, ...]
    seed: int
    data: Path | None
    start: StartFrom | None = None
    view: str
    key: str
    identity: Mapping[str, Any]
    group: str | None = None
    place: ClassifierPlace | None = None

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Train and score the model; gives the record of the run."""
        started = datetime.now(tz=UTC)
        context.set_threads()
        context.forget()  # training needs the memory
        folder = find_backbone_folder(self.artifact.folder)
        # Of several trials an earlier selection has chosen one.
        chosen = int(context.read_input("selection").get("chosen", 0))
        trial, changed = adapt_trial(folder, replace(self.trials[chosen], seed=self.seed))
        context.emit(Event(kind="stage", text=f"{self.task.name}: {format_trial(trial)}"))
        labelled, rows, notes = TokenizedTask.load_tokenized_task(
            context, self.artifact, self.task, self.data, trial, test=self.place is not None
        )
        weights = self._find_start_weights(context)
        started_from = hash_file(weights, context.cache) if weights else None
        model, more = self._build_classifier(context, trial, labelled.classes, weights)
        progress = self._train_run(context, trial, model, rows)
        evaluation = _choose_evaluation(progress)
        if self.group is not None and evaluation is not None:
            model.load_state_dict(progress.weights or {}, strict=False)
            _Checkpoints.open_cache(context).keep_best_weights(
                self.group, self.key, evaluation.watched, model.list_transferable_tensors()
            )
        run_provenance = provenance.collect_provenance(
            device=context.device, threads=context.limits.threads, started=started
        )
        seconds = round((datetime.now(tz=UTC) - started).total_seconds(), 3)
        if self.place is not None and evaluation is not None:
            facts = {**run_provenance, "seconds": seconds, "notes": [*more, *progress.notes]}
            self._store_classifier(context, trial, model, labelled, rows, progress, evaluation, facts)
        columns = _build_example_columns(self.task, labelled, evaluation, trial.seed) if evaluation else {}
        metrics = {} if evaluation is None else evaluation.metrics
        report = count_scored_data(self.task, self.data, context.cache)
        noted = dict.fromkeys((*labelled.notes, *report.gaps, *report.notes))
        record = Record(
            key=self.key,
            purpose="trial",
            status="done",
            model=build_model_part(self.artifact, context.read_input("facts")),
            lineage=read_model_lineage(self.artifact),
            task=build_task_part(self.task),
            identity=self.identity,
            main_score=compute_task_number(self.task, self.view, metrics) if metrics else None,
            scores=_build_record_scores(self.task, metrics),
            training=_build_run_training(trial, progress, labelled),
            provenance={
                **run_provenance,
                "notes": [*noted, *changed, *notes, *more, *progress.notes],
                "data": dict(report.counts),
                "seconds": {"train": seconds},
                "start_weights": started_from,
                "peak_memory_bytes": provenance.measure_peak_memory(),
            },
        )
        return build_record_output(record, columns)

    def _train_run(
        self, context: JobContext, trial: Trial, model: Classifier, rows: TokenizedTask
    ) -> Progress:
        import torch

        from finetune.glue import trainer

        assert isinstance(self.task.source, LabelSource)
        metrics = self.task.source.metrics
        autocast = trainer.build_autocast(torch.device(context.device), trial)
        lines: list[dict[str, Any]] = []

        def tell(step: int, steps: int, loss: float) -> None:
            if step == 1:
                context.emit(Event(kind="training", text=format_trial(trial), steps=steps))
            rate = trial.learning_rate * trial.training.schedule.compute_factor(step - 1, steps=steps)
            lines.append({"step": step, "loss": loss, "rate": rate})
            # At most about a hundred events of a run, since each one goes to the driver.
            if len(lines) >= max(1, steps // 100):
                emit_lines()

        def emit_lines() -> None:
            if lines:
                text, log = f"loss {lines[-1]['loss']:.4g}", [*lines] if context.limits.logs_steps else ()
                context.emit(Event(kind="trained", text=text, steps=len(lines), log=log))
                lines.clear()

        # Dropout starts from the seed, whatever the loading of the weights has drawn.
        torch.manual_seed(trial.seed)
        progress = trainer.train_classifier(
            model,
            rows.train,
            trial,
            lambda trained, step: trainer.Evaluation.evaluate_splits(
                trained, rows.dev, metrics, step, autocast=autocast
            ),
            tell=tell,
            micro_batch=context.reduce_batch_size(trial.batch_size) if context.halvings else None,
        )
        emit_lines()
        return progress

    def _build_classifier(
        self, context: JobContext, trial: Trial, classes: int, weights: Path | None
    ) -> tuple[Classifier, list[str]]:
        from safetensors.torch import load_file

        from finetune.glue.model import Classifier

        folder = find_backbone_folder(self.artifact.folder)
        source = self.start.path if self.start and self.start.kind == "folder" else None
        extra = list_allowed_tensors(self.artifact.allow)
        model, notes = Classifier.load_classifier(
            folder, trial, classes=classes, source=source, allow_extra=extra
        )
        if weights is not None:
            model.start_from(load_file(weights))
        return model.to(context.device), notes

    def _store_classifier(
        self,
        context: JobContext,
        trial: Trial,
        model: Classifier,
        labelled: LabelledData,
        rows: TokenizedTask,
        progress: Progress,
        evaluation: Evaluation,
        facts: Mapping[str, Any],
    ) -> None:
        """Keep the classifier that counts, with its predictions for the scored and for unlabelled rows."""
        import torch

        from finetune.glue import trainer

        tokens = trial.epochs * int(rows.train.lengths.sum())
        assert self.place is not None
        model.load_state_dict(progress.weights or {}, strict=False)
        autocast = trainer.build_autocast(torch.device(context.device), trial)
        tests = {name: trainer.predict(model, split, autocast=autocast) for name, split in rows.test.items()}
        predicted = {**evaluation.predictions, **tests}
        self.place.store_classifier(
            model.save_classifier,
            load_tokenizer(find_backbone_folder(self.artifact.folder)),
            self.task,
            labelled,
            losses=progress.losses,
            predictions={name: values.tolist() for name, values in predicted.items()},
            facts={**facts, "devices": [context.device], "tokens": tokens},
            context=context,
        )

    def _find_start_weights(self, context: JobContext) -> Path | None:
        """The checkpoint file to start from; None for a model folder or the backbone."""
        if self.start is None or self.start.kind == "folder":
            return None
        if self.start.path is not None:
            return self.start.path
        source = context.read_input("source")
        checkpoint = _Checkpoints.open_cache(context).find(source["run"], source["watched"])
        if checkpoint is None:
            raise HarnessError(
                f"The weights of the MNLI run {source['run'][:12]} are no longer in the cache.",
                hint="The same command makes them again; keep one cache for all machines of a run.",
            )
        return checkpoint


@dataclass(frozen=True, kw_only=True)
class RestoreWeights:
    """The job that runs the selected MNLI run once more if its weights are not in the cache."""

    runs: tuple[Finetune, ...]

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Restore the weights if needed; gives the selection with the watched metric of these weights.

        Raises:
            HarnessError: The run diverges the second time.
        """
        source = context.read_input("source")
        kept = _Checkpoints.open_cache(context)
        again = kept.find(source["run"], source["watched"]) is None
        if again:
            note = "the weights of the selected MNLI run are not in the cache: it is run once more"
            context.emit(Event(kind="note", text=note))
            source["watched"] = self._rebuild_weights(context, kept, source["run"])
        return {"source": json.dumps({**source, "again": again}).encode()}

    def _rebuild_weights(self, context: JobContext, kept: _Checkpoints, key: str) -> float:
        run = next(run for run in self.runs if run.key == key)
        # A run made again can reach another metric on other hardware; a better one that is remembered would
        # keep its weights from being cached.
        kept.forget(run.group or "")
        record = RECORDS.parse(run.run(context)["record"].decode(), where="the run made once more")
        watched = record.training["watched"]
        if watched is None:
            raise HarnessError(
                "The selected MNLI run diverged when it was run once more.",
                hint="It did not when it was chosen: other hardware or threads? "
                "--set mnli=MODEL starts from another model.",
            )
        return float(watched)


Kind = Literal["fresh", "final", "protocol", "maximum"]
"""The kind of seeds behind a score; `ScoreFromRuns` explains each."""


@dataclass(frozen=True, kw_only=True)
class ScoreFromRuns:
    """The job of a task's score: the mean over the seeds that count, with every run behind it.

    Attributes:
        seeds: The keys of the runs that count.
        kind: "fresh" seeds of ours at the chosen cell, the protocol's own "final" seeds there, all runs of a
            "protocol" that selects nothing, or the grid's "maximum".
        told: The recipe's part of the record's `training`.
    """

    task: Task
    trials: tuple[Trial, ...]
    runs: tuple[str, ...]
    seeds: tuple[str, ...]
    kind: Kind
    view: str
    key: str
    identity: Mapping[str, Any]
    told: Mapping[str, Any]

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Combine the runs; gives the record of the score.

        Raises:
            HarnessError: All runs that count diverged.
        """
        started = datetime.now(tz=UTC)
        selection = context.read_input("selection") or self._build_default_selection(context)
        # A seed that counts may be a run of the grid as well.
        keys = [*dict.fromkeys((*self.runs, *self.seeds))]
        runs = dict(zip(keys, read_run_records(context, keys), strict=True))
        chosen = (self.runs[selection["chosen"]],) if self.kind == "maximum" else ()
        counted = [runs[key] for key in self.seeds or chosen]
        seconds = float(sum(run.provenance["seconds"]["train"] for run in runs.values()))
        valid_records = [record for record in counted if not record.training["diverged"]]
        if not valid_records:
            raise HarnessError(f"All {len(counted)} runs of the chosen cell diverged.")
        metrics = _compute_metric_means([collect_raw_metrics(record) for record in valid_records])
        examples = [_read_input_examples(context, record.key) for record in valid_records]
        columns = {name: [value for run in examples for value in run[name]] for name in EXAMPLE_COLUMNS}
        # A second score counts diverged seeds as a model that says nothing, since the mean over the rest
        # flatters.
        lost = [_score_constant_model(self.task, columns)] * (len(counted) - len(valid_records))
        with_lost = (
            serialize_metrics(_compute_metric_means([*map(collect_raw_metrics, valid_records), *lost]))
            if lost
            else None
        )
        record = Record(
            key=self.key,
            status="done",
            model=valid_records[0].model,
            lineage=valid_records[0].lineage,
            task=build_task_part(self.task),
            identity=self.identity,
            main_score=compute_task_number(self.task, self.view, metrics),
            scores=_build_record_scores(self.task, metrics),
            training={
                **self._build_score_training(context, selection, counted),
                "evaluation": _build_evaluation_part(self.task, self.view, valid_records),
                "with_diverged": with_lost,
            },
            provenance={
                **provenance.collect_provenance(
                    device=context.device, threads=context.limits.threads, started=started
                ),
                "notes": self._collect_run_notes(counted),
                "data": counted[0].provenance.get("data", {}),
                "seconds": {"train": round(seconds, 3)},
            },
        )
        return build_record_output(record, columns)

    def _build_score_training(
        self, context: JobContext, selection: Mapping[str, Any], counted: Sequence[Record]
    ) -> dict[str, Any]:
        import numpy as np

        cell = extract_cell(self.trials[selection["chosen"]])
        scores = [score_run(record, self.task, self.view) for record in counted]
        finite = [score for score in scores if score is not None]
        return {
            **self.told,
            "source": context.read_input("source") or None,
            "chosen": None if self.kind == "protocol" else cell,
            "grid_maximum": selection["maximum"],
            "cells": selection["cells"],
            "diverged": selection["diverged"],
            "constant": selection["constant"],
            "seeds": {
                "kind": self.kind,
                "seeds": [record.training["trial"]["seed"] for record in counted],
                "keys": [record.key for record in counted],
                "scores": scores,
                "standard_deviation": float(np.std(finite, ddof=1)) if len(finite) > 1 else None,
                "diverged": sum(record.training["diverged"] for record in counted),
                "constant": sum(record.training["constant"] for record in counted),
            },
        }

    def _collect_run_notes(self, counted: Sequence[Record]) -> list[str]:
        notes = [note for record in counted for note in record.provenance.get("notes", ())]
        lost = sum(record.training["diverged"] for record in counted)
        if lost:
            notes.append(f"{lost} of {len(counted)} seeds diverged: the mean is over the rest")
        return [*dict.fromkeys(notes)]

    def _build_default_selection(self, context: JobContext) -> dict[str, Any]:
        """The runs of a protocol that selects nothing, in the form of a selection."""
        records = read_run_records(context, self.runs)
        tried = score_runs(records, self.trials, self.task, self.view)
        scores = [run.score for run in tried if run.score is not None]
        return build_selection(tried, records, chosen=0, maximum=max(scores, default=None))


def _read_input_examples(context: JobContext, key: str) -> dict[str, list[Any]]:
    """The per-example columns of a run among this job's inputs."""
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(context.inputs[key]["examples"]))
    return {name: table[name].to_pylist() for name in EXAMPLE_COLUMNS}


STATE = "best.json"
"""The file with the watched metric of each run whose weights lie beside it, and their SHA-256."""


@dataclass(frozen=True, kw_only=True)
class _Checkpoints:
    """The cached weights, a folder for each grid: `<cache>/finetuned/<grid>/<run>.safetensors`.

    Attributes:
        folder: The folder of all grids.
        tell: Called with sentences on files that are damaged.
    """

    folder: Path
    tell: Callable[[Sequence[str]], None]

    @staticmethod
    def open_cache(context: JobContext) -> _Checkpoints:
        """Those in the cache of a job, which gets the notes."""
        return _Checkpoints(folder=context.cache / "finetuned", tell=context.tell)

    def find(self, key: str, watched: float) -> Path | None:
        """The weights of a run that reached this metric; a run made again may reach another."""
        for path in sorted(self.folder.glob(f"*/{key}.safetensors")):
            cached_run = self._read_state(path.parent).get(key)
            if cached_run is None or cached_run["watched"] != watched:
                continue
            if files.has_sha256(path, cached_run["sha256"], self.folder.parent):
                return path
            self.tell([f"{path} is damaged: its SHA-256 differs. It counts as missing."])
        return None

    def keep_best_weights(self, group: str, key: str, watched: float, tensors: dict[str, Tensor]) -> None:
        """Cache a run's weights unless better ones of its grid are there, and remove worse ones."""
        from filelock import FileLock
        from safetensors.torch import save

        place = self.folder / group
        files.require_writable(place)
        # Several workers run the cells of one grid at the same time, with one cache.
        with FileLock(place / ".lock"):
            others = {old: known for old, known in self._read_state(place).items() if old != key}
            best = max([*(known["watched"] for known in others.values()), watched])
            kept = {old: known for old, known in others.items() if known["watched"] == best}
            if watched == best:
                # safetensors refuses tensors with gaps between their values.
                content = save({n: t.cpu().contiguous() for n, t in tensors.items()})
                files.replace(place / f"{key}.safetensors", content)
                kept[key] = {"watched": watched, "sha256": hashlib.sha256(content).hexdigest()}
            # Weights first, then the state, then the removal: a kill leaves no state that names weights which
            # are not there, and weights without a state are not used.
            write_content_file(place / STATE, {"runs": kept})
            for path in place.glob("*.safetensors"):
                if path.stem not in kept:
                    path.unlink(missing_ok=True)

    def forget(self, group: str) -> None:
        """Forget the metrics of a grid, so that its next run is the best so far."""
        (self.folder / group / STATE).unlink(missing_ok=True)

    def _read_state(self, place: Path) -> dict[str, dict[str, Any]]:
        """The known runs of a grid; none where the file is missing, damaged, or of an older version."""
        try:
            return dict(read_content_file(place / STATE)["runs"])
        except (ValueError, LookupError):
            self.tell([f"{place / STATE} is damaged. The weights beside it count as missing."])
        except OSError:
            pass  # there is none yet
        return {}
