"""The jobs of a GLUE protocol: train one run, select among the runs of a grid, score a task from its runs.

A run trains a backbone for a task, scores it and leaves a record of purpose "trial". The score of a task is a
record made of its runs. Jobs are small to send: they name their backbone, data and settings, and find earlier
runs as inputs on their context. The best MNLI weights of each grid are cached by the worker itself: they can
be made again, and are too large to send to the driver.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from finetune.glue.protocol import RunScore, Trial
from finetune.glue.rows import TokenizedTask, adapted_to_backbone
from harness.core import files, provenance
from harness.core.documents import with_digest, without_digest
from harness.core.errors import HarnessError
from harness.core.files import sha256_file
from harness.core.types import Artifact, LabelledData, LabelSource, Raw, Task
from harness.encoder.folder.modules import backbone_folder
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import lineage_of, model_part, record_output, task_part
from harness.results.scores import raw_metrics
from harness.storage.record import EXAMPLE_COLUMNS, RECORDS, Record
from suites.glue import VIEWS, GlueSource

if TYPE_CHECKING:
    from torch import Tensor

    from finetune.glue.model import Classifier
    from finetune.glue.trainer import Evaluation, Progress

log = logging.getLogger(__name__)

CELL = ("learning_rate", "batch_size", "weight_decay", "epochs", "seed")
"""The settings of a run that its grid varies."""


def _cell_of(trial: Trial) -> dict[str, Any]:
    """The settings of a run that its grid varies, by name."""
    return {name: getattr(trial, name) for name in CELL}


def notes_of_runs(trial: Trial) -> str:
    """The settings of a run in a few words.

    >>> from finetune.recipes.glue_quick import PROTOCOL
    >>> notes_of_runs(PROTOCOL.trials("RTE")[0])
    'lr 5e-05, batch 16, decay 0.01, 1 epoch, seed 0'
    """
    epochs = f"{trial.epochs} epoch{'s' if trial.epochs > 1 else ''}"
    return (
        f"lr {trial.learning_rate:g}, batch {trial.batch_size}, decay {trial.weight_decay:g}, "
        f"{epochs}, seed {trial.seed}"
    )


def _number(task: Task, view: str, found: Raw) -> float | None:
    """A task's number by a paper's view, None if a part is missing; for a user's own task, the mean."""
    if isinstance(task.source, GlueSource):
        return VIEWS[view].number(task.name, found)
    return sum(found.values()) / len(found)


def _selection_metric(task: Task, view: str, found: Raw) -> float:
    """The score that cells are selected by: the task's number, or the mean of its parts that are there."""
    whole = _number(task, view, found)
    if whole is not None:
        return whole
    values = [found[part] for part in VIEWS[view].parts[task.name] if part in found] or [*found.values()]
    return sum(values) / len(values)


def _scores_of(task: Task, metrics: Raw) -> dict[str, dict[str, dict[str, float]]]:
    """Raw metrics in the form of a record: split → subset → metric → value."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (split, name), value in metrics.items():
        found.setdefault(split, {}).setdefault(task.subsets[0], {})[name] = value
    return found


def _counted_evaluation(progress: Progress) -> Evaluation | None:
    """The evaluation that counts as a run's score; None if the run diverged."""
    if progress.diverged:
        return None
    return progress.best if progress.weights is not None else progress.evaluations[-1]


Named = Sequence[Sequence[Any]]
"""Metrics on disk: [split, name, value] each."""


def _named(metrics: Raw) -> list[list[Any]]:
    return [[*name, value] for name, value in metrics.items()]


def _training_of(trial: Trial, progress: Progress, labelled: LabelledData) -> dict[str, Any]:
    """The `training` part of a run's record: trial, steps, losses and evaluations."""
    from finetune.glue.trainer import cross_fitted

    found, gold = _counted_evaluation(progress), {n: rows.labels for n, rows in labelled.dev.items()}
    best = trial.training.stopping.counts == "best" and not progress.diverged
    first = None if found is None else next(iter(found.predictions.values()))
    finite = [loss for loss in progress.losses if math.isfinite(loss)]
    return {
        "trial": asdict(trial),
        "diverged": progress.diverged,
        "constant": first is not None and bool((first == first[0]).all()),
        "watched": None if found is None else found.watched,
        "steps": {
            "asked": trial.steps(len(labelled.train)),
            "done": len(progress.losses),
            "counted": found.step if found else None,
        },
        "loss": {"first": finite[0], "last": finite[-1]} if finite else {},
        "evaluations": [{"step": one.step, "metrics": _named(one.metrics)} for one in progress.evaluations],
        "cross_fitted": _named(cross_fitted(progress.evaluations, gold)) if best else None,
        "micro_batch": progress.micro_batch,
    }


def _examples_of(task: Task, labelled: LabelledData, found: Evaluation, seed: int) -> dict[str, list[Any]]:
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


def _score_of(record: Record, task: Task, view: str) -> float | None:
    """A run's score by a view; the run may have been made under a recipe with another one."""
    return None if record.training["diverged"] else _selection_metric(task, view, raw_metrics(record))


def _run_scores(records: Sequence[Record], trials: Sequence[Trial], task: Task, view: str) -> list[RunScore]:
    """The RunScores from the records of a grid."""
    return [
        RunScore(
            trial=trial,
            score=_score_of(record, task, view),
            watched=record.training["watched"],
            constant=record.training["constant"],
        )
        for record, trial in zip(records, trials, strict=True)
    ]


def _selection_of(
    tried: Sequence[RunScore], records: Sequence[Record], *, chosen: int, maximum: float | None
) -> dict[str, Any]:
    """The selection of a grid: the place of the chosen cell, and every run with its score and raw metrics.

    `maximum` is the best score, which errs upward, as the run was chosen on the same rows.
    """
    cells = [
        {
            **_cell_of(run.trial),
            "score": run.score,
            "metrics": _named(raw_metrics(record)),
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


def _means_of(runs: Sequence[Raw]) -> dict[tuple[str, str], float]:
    """The mean of each raw metric over runs."""
    import numpy as np

    return {name: float(np.mean([one[name] for one in runs])) for name in runs[0]}


def _evaluation_part(task: Task, view: str, records: Sequence[Record]) -> dict[str, Any]:
    """The evaluation that counts in each run, with the scores of other choices over the same runs."""

    def other(metrics: Sequence[Named | None]) -> dict[str, Any] | None:
        known = [{(split, name): value for split, name, value in run} for run in metrics if run]
        if len(known) < len(metrics):
            return None
        found = _means_of(known)
        return {"score": _number(task, view, found), "metrics": _named(found)}

    runs = [record.training for record in records]
    return {
        "counts": runs[0]["trial"]["training"]["stopping"]["counts"],
        "evaluations": [len(run["evaluations"]) for run in runs],
        "last": other([run["evaluations"][-1]["metrics"] for run in runs]),
        "cross_fitted": other([run.get("cross_fitted") for run in runs]),
    }


def _constant_metrics(task: Task, columns: Mapping[str, Sequence[Any]]) -> dict[tuple[str, str], float]:
    """The metrics of a model that gives 0 for every row, as one does whose scores are not finite."""
    import numpy as np

    from harness.results.metrics import METRICS

    assert isinstance(task.source, LabelSource)
    splits, gold = np.array(columns["split"]), np.array(columns["gold"], dtype=float)
    found = {}
    for split in dict.fromkeys(columns["split"]):
        rows = gold[splits == split]
        for name in task.source.metrics:
            score = METRICS[name](rows, np.zeros_like(rows), np.ones((1, len(rows))))[0]
            found[split, name] = float(score)
    return found


def _spread(values: Sequence[float]) -> float | None:
    """The standard deviation over seeds; None for a single seed."""
    import numpy as np

    return float(np.std(values, ddof=1)) if len(values) > 1 else None


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

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Train and score the model; gives the record of the run."""
        started = datetime.now(tz=UTC)
        context.set_threads()
        context.forget()  # training needs the memory
        folder = backbone_folder(self.artifact.folder)
        trial, changed = adapted_to_backbone(folder, self.trial(context))
        context.emit(Event(kind="stage", text=f"{self.task.name}: {notes_of_runs(trial)}"))
        labelled, rows, notes = TokenizedTask.of(context, self.artifact, self.task, self.data, trial)
        weights = self._weights(context)
        started_from = sha256_file(weights, context.cache) if weights else None
        model, more = self._model(context, trial, labelled.classes, weights)
        progress = self._trained(context, trial, model, rows)
        found = _counted_evaluation(progress)
        if self.group is not None and found is not None:
            model.load_state_dict(progress.weights or {}, strict=False)
            _Checkpoints(folder=context.cache / "finetuned").offer(
                self.group, self.key, found.watched, model.transferable()
            )
        columns = _examples_of(self.task, labelled, found, trial.seed) if found else {}
        metrics = {} if found is None else found.metrics
        seconds = (datetime.now(tz=UTC) - started).total_seconds()
        record = Record(
            key=self.key,
            purpose="trial",
            status="done",
            model=model_part(self.artifact, context.input("facts")),
            lineage=lineage_of(self.artifact),
            task=task_part(self.task),
            identity=self.identity,
            main_score=_number(self.task, self.view, metrics) if metrics else None,
            scores=_scores_of(self.task, metrics),
            training=_training_of(trial, progress, labelled),
            provenance={
                **provenance.snapshot(device=context.device, threads=context.limits.threads, started=started),
                "notes": [*labelled.notes, *changed, *notes, *more, *progress.notes],
                "seconds": {"train": round(seconds, 3)},
                "start_weights": started_from,
                "peak_memory_bytes": provenance.peak_memory(),
            },
        )
        return record_output(record, columns)

    def trial(self, context: JobContext) -> Trial:
        """The trial of this run, from the earlier selection where there are several."""
        chosen = int(context.input("selection").get("chosen", 0))
        return replace(self.trials[chosen], seed=self.seed)

    def _trained(self, context: JobContext, trial: Trial, model: Classifier, rows: TokenizedTask) -> Progress:
        import torch

        from finetune.glue import trainer

        assert isinstance(self.task.source, LabelSource)
        metrics = self.task.source.metrics
        autocast = trainer.autocast_of(torch.device(context.device), trial)
        told = 0

        def tell(step: int, steps: int, loss: float) -> None:
            nonlocal told
            if step == 1:
                context.emit(Event(kind="training", text=notes_of_runs(trial), steps=steps))
            if step - told >= max(1, steps // 100) or step == steps:
                context.emit(Event(kind="trained", text=f"loss {loss:.4g}", steps=step - told))
                told = step

        torch.manual_seed(trial.seed)
        return trainer.train(
            model,
            rows.train,
            trial,
            lambda trained, step: trainer.Evaluation.of(trained, rows.dev, metrics, step, autocast=autocast),
            tell=tell,
            micro_batch=context.fewer(trial.batch_size) if context.halvings else None,
        )

    def _model(
        self, context: JobContext, trial: Trial, classes: int, weights: Path | None
    ) -> tuple[Classifier, list[str]]:
        from safetensors.torch import load_file

        from finetune.glue.model import Classifier

        folder = backbone_folder(self.artifact.folder)
        source = self.start.path if self.start and self.start.kind == "folder" else None
        extra = self.artifact.allow_extra
        model, notes = Classifier.of(folder, trial, classes=classes, source=source, allow_extra=extra)
        if weights is not None:
            model.start_from(load_file(weights))
        return model.to(context.device), notes

    def _weights(self, context: JobContext) -> Path | None:
        """The checkpoint file to start from; None for a model folder or the backbone."""
        if self.start is None or self.start.kind == "folder":
            return None
        if self.start.path is not None:
            return self.start.path
        source = context.input("source")
        found = _Checkpoints(folder=context.cache / "finetuned").find(source["run"], source["watched"])
        if found is None:
            raise HarnessError(
                f"The weights of the MNLI run {source['run'][:12]} are no longer in the cache.",
                hint="The same command makes them again; keep one cache for all machines of a run.",
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Select:
    """The job that selects the best cell of a task's grid from the records of its runs; gives JSON."""

    task: Task
    trials: tuple[Trial, ...]
    keys: tuple[str, ...]
    view: str

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Select the best cell; gives its place and every cell of the grid."""
        records = _records_in(context, self.keys)
        tried = _run_scores(records, self.trials, self.task, self.view)
        best = RunScore.select(tried)
        selection = _selection_of(tried, records, chosen=tried.index(best), maximum=best.score)
        return {"selection": json.dumps(selection).encode()}


@dataclass(frozen=True, kw_only=True)
class SelectStart:
    """The job that selects the MNLI run to start from, the best accuracy on the matched set; gives JSON."""

    runs: tuple[Finetune, ...]
    view: str

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Select the run; gives its key, settings and watched metric."""
        records = _records_in(context, [run.key for run in self.runs])
        trials = [run.trials[0] for run in self.runs]
        tried = _run_scores(records, trials, self.runs[0].task, self.view)
        chosen = RunScore.select(tried, by="watched")
        run = self.runs[tried.index(chosen)]
        told = {"run": run.key, **_cell_of(chosen.trial), "watched": chosen.watched}
        return {"source": json.dumps(told).encode()}


@dataclass(frozen=True, kw_only=True)
class RestoreWeights:
    """The job that runs the selected MNLI run once more if its weights are not in the cache."""

    runs: tuple[Finetune, ...]

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Restore the weights if needed; gives the selection with the watched metric of these weights.

        Raises:
            HarnessError: The run diverges the second time.
        """
        source = context.input("source")
        kept = _Checkpoints(folder=context.cache / "finetuned")
        again = kept.find(source["run"], source["watched"]) is None
        if again:
            said = "the weights of the selected MNLI run are not in the cache: it is run once more"
            context.emit(Event(kind="note", text=said))
            source["watched"] = self._remade(context, kept, source["run"])
        return {"source": json.dumps({**source, "again": again}).encode()}

    def _remade(self, context: JobContext, kept: _Checkpoints, key: str) -> float:
        run = next(run for run in self.runs if run.key == key)
        kept.forget(run.group or "")
        made = RECORDS.parse(run.run(context)["record"].decode(), where="the run made once more")
        watched = made.training["watched"]
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
        selection = context.input("selection") or self._unselected(context)
        keys = [*dict.fromkeys((*self.runs, *self.seeds))]
        runs = dict(zip(keys, _records_in(context, keys), strict=True))
        chosen = (self.runs[selection["chosen"]],) if self.kind == "maximum" else ()
        counted = [runs[key] for key in self.seeds or chosen]
        seconds = float(sum(run.provenance["seconds"]["train"] for run in runs.values()))
        whole = [record for record in counted if not record.training["diverged"]]
        if not whole:
            raise HarnessError(f"All {len(counted)} runs of the chosen cell diverged.")
        metrics = _means_of([raw_metrics(record) for record in whole])
        examples = [_examples_in(context, record.key) for record in whole]
        columns = {name: [value for run in examples for value in run[name]] for name in EXAMPLE_COLUMNS}
        lost = [_constant_metrics(self.task, columns)] * (len(counted) - len(whole))
        with_lost = _named(_means_of([*map(raw_metrics, whole), *lost])) if lost else None
        record = Record(
            key=self.key,
            status="done",
            model=whole[0].model,
            lineage=whole[0].lineage,
            task=task_part(self.task),
            identity=self.identity,
            main_score=_number(self.task, self.view, metrics),
            scores=_scores_of(self.task, metrics),
            training={
                **self._training(context, selection, counted),
                "evaluation": _evaluation_part(self.task, self.view, whole),
                "with_diverged": with_lost,
            },
            provenance={
                **provenance.snapshot(device=context.device, threads=context.limits.threads, started=started),
                "notes": self._notes(counted),
                "seconds": {"train": round(seconds, 3)},
            },
        )
        return record_output(record, columns)

    def _training(
        self, context: JobContext, selection: Mapping[str, Any], counted: Sequence[Record]
    ) -> dict[str, Any]:
        cell = _cell_of(self.trials[selection["chosen"]])
        scores = [_score_of(record, self.task, self.view) for record in counted]
        return {
            **self.told,
            "source": context.input("source") or None,
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
                "standard_deviation": _spread([score for score in scores if score is not None]),
                "diverged": sum(record.training["diverged"] for record in counted),
                "constant": sum(record.training["constant"] for record in counted),
            },
        }

    def _notes(self, counted: Sequence[Record]) -> list[str]:
        notes = [note for record in counted for note in record.provenance.get("notes", ())]
        lost = sum(record.training["diverged"] for record in counted)
        if lost:
            notes.append(f"{lost} of {len(counted)} seeds diverged: the mean is over the rest")
        return [*dict.fromkeys(notes)]

    def _unselected(self, context: JobContext) -> dict[str, Any]:
        """The runs of a protocol that selects nothing, in the form of a selection."""
        records = _records_in(context, self.runs)
        tried = _run_scores(records, self.trials, self.task, self.view)
        scores = [run.score for run in tried if run.score is not None]
        return _selection_of(tried, records, chosen=0, maximum=max(scores, default=None))


def _records_in(context: JobContext, keys: Sequence[str]) -> list[Record]:
    """The records of runs among this job's inputs."""
    return [
        RECORDS.parse(context.inputs[key]["record"].decode(), where=f"the run {key[:12]}") for key in keys
    ]


def _examples_in(context: JobContext, key: str) -> dict[str, list[Any]]:
    """The per-example columns of a run among this job's inputs."""
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(context.inputs[key]["examples"]))
    return {name: table[name].to_pylist() for name in EXAMPLE_COLUMNS}


STATE = "best.json"
"""The file with the watched metric of each run whose weights lie beside it, and their SHA-256."""


@dataclass(frozen=True, kw_only=True)
class _Checkpoints:
    """The cached weights, a folder for each grid: `<cache>/finetuned/<grid>/<run>.safetensors`."""

    folder: Path

    def find(self, key: str, watched: float) -> Path | None:
        """The weights of a run that reached this metric; a run made again may reach another."""
        for path in sorted(self.folder.glob(f"*/{key}.safetensors")):
            known = _read_state(path.parent).get(key)
            if known is None or known["watched"] != watched:
                continue
            if files.has_sha256(path, known["sha256"], self.folder.parent):
                return path
            log.warning("%s is damaged: its SHA-256 differs. The run is made again.", path)
        return None

    def offer(self, group: str, key: str, watched: float, tensors: dict[str, Tensor]) -> None:
        """Cache a run's weights unless better ones of its grid are there, and remove worse ones."""
        from filelock import FileLock
        from safetensors.torch import save

        place = self.folder / group
        files.writable(place)
        with FileLock(place / ".lock"):
            others = {old: known for old, known in _read_state(place).items() if old != key}
            best = max([*(known["watched"] for known in others.values()), watched])
            kept = {old: known for old, known in others.items() if known["watched"] == best}
            if watched == best:
                content = save({n: t.cpu().contiguous() for n, t in tensors.items()})
                files.replace(place / f"{key}.safetensors", content)
                kept[key] = {"watched": watched, "sha256": hashlib.sha256(content).hexdigest()}
            files.replace(place / STATE, with_digest({"runs": kept}).encode())
            for path in place.glob("*.safetensors"):
                if path.stem not in kept:
                    path.unlink(missing_ok=True)

    def forget(self, group: str) -> None:
        """Forget the metrics of a grid, so that its next run is the best so far."""
        (self.folder / group / STATE).unlink(missing_ok=True)


def _read_state(place: Path) -> dict[str, dict[str, Any]]:
    """The known runs of a grid; none where the file is missing, damaged, or of an older version."""
    try:
        return dict(without_digest((place / STATE).read_bytes())["runs"])
    except (OSError, ValueError, LookupError):
        return {}
