"""One run as a job: train a backbone for a task, score it, and leave a record of purpose "trial".

It is small to send: it names its backbone, its data and its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from finetune.glue import outcome
from finetune.glue.checkpoints import Checkpoints
from finetune.glue.prepared import Prepared, as_it_runs, tokenized_rows
from finetune.glue.settings import Trial
from harness import provenance
from harness.desk import Desk, Event
from harness.encoder.modules import backbone_folder
from harness.errors import HarnessError
from harness.filehash import sha256_file
from harness.jobs import examples_bytes, examples_part, model_part, record_output, task_part
from harness.labelled import LabelSource
from harness.types import Artifact, Task

if TYPE_CHECKING:
    from finetune.glue.classifier import Classifier
    from finetune.glue.loop import Progress


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a run starts from in place of its backbone.

    Attributes:
        kind: The MNLI run that this plan selects, a checkpoint file of ours, or a model folder.
        path: Of the last two.
    """

    kind: Literal["selected", "file", "folder"]
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """One run: train a backbone for a task and score it on the dev splits.

    Attributes:
        artifact: The backbone.
        task: What it is trained for.
        trials: The runs it may be: one, or the cells of which a selection before it has chosen one.
        seed: Of the run, in place of its cell's.
        data: The local folder of the data set; None for the hub.
        start: What it starts from in place of the backbone.
        view: Which paper's number is its main score.
        key: Its own.
        identity: What the key is the digest of.
        group: The grid of MNLI runs whose best weights are kept; None where none are.
    """

    artifact: Artifact
    task: Task
    trials: tuple[Trial, ...]
    seed: int
    data: Path | None
    start: Start | None = None
    view: str
    key: str
    identity: Mapping[str, Any]
    group: str | None = None

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Train, score, and write down how it went."""
        from harness.record import Record

        started = datetime.now(tz=UTC)
        desk.set_threads()
        desk.forget()  # the memory is for training
        folder = backbone_folder(self.artifact.folder)
        trial, changed = as_it_runs(folder, self.trial(desk))
        desk.emit(Event(kind="stage", text=f"{self.task.name}: {outcome.said(trial)}"))
        labelled, rows, notes = tokenized_rows(desk, self.artifact, self.task, self.data, trial)
        weights = self._weights(desk)
        started_from = sha256_file(weights, desk.cache) if weights else None
        model, more = self._model(desk, trial, labelled.classes, weights)
        progress = self._trained(desk, trial, model, rows)
        found = outcome.counted(progress)
        if self.group is not None and found is not None:
            model.load_state_dict(progress.weights or {}, strict=False)
            Checkpoints(folder=desk.cache / "finetuned").offer(
                self.group, self.key, found.watched, model.transferable()
            )
        columns = outcome.examples_of(self.task, labelled, found, trial.seed) if found else {}
        examples = examples_bytes(columns)
        metrics = {} if found is None else found.metrics
        seconds = (datetime.now(tz=UTC) - started).total_seconds()
        record = Record(
            key=self.key,
            purpose="trial",
            status="done",
            model=model_part(self.artifact, desk.input("facts")),
            task=task_part(self.task),
            identity=self.identity,
            main_score=outcome.number(self.task, self.view, metrics) if metrics else None,
            scores=outcome.scores_of(self.task, metrics),
            examples=examples_part(columns, examples),
            training=outcome.training_of(trial, progress, trial.steps(len(labelled.train))),
            provenance={
                **provenance.snapshot(device=desk.device, threads=desk.threads, started=started),
                "notes": [*labelled.notes, *changed, *notes, *more, *progress.notes],
                "seconds": {"train": round(seconds, 3)},
                "start_weights": started_from,
                "peak_memory_bytes": provenance.peak_memory(),
            },
        )
        return record_output(record, examples)

    def trial(self, desk: Desk) -> Trial:
        """The run that it is, once a selection has chosen."""
        chosen = int(desk.input("selection").get("chosen", 0))
        return replace(self.trials[chosen], seed=self.seed)

    def _trained(self, desk: Desk, trial: Trial, model: Classifier, rows: Prepared) -> Progress:
        import torch

        from finetune.glue.loop import autocast_of, train
        from finetune.glue.scoring import evaluation

        assert isinstance(self.task.source, LabelSource)
        metrics = self.task.source.metrics
        autocast = autocast_of(torch.device(desk.device), trial)
        told = 0

        def tell(step: int, steps: int) -> None:
            nonlocal told
            if step == 1:
                desk.emit(Event(kind="training", text=outcome.said(trial), steps=steps))
            if step - told >= max(1, steps // 100) or step == steps:
                desk.emit(Event(kind="trained", steps=step - told))
                told = step

        torch.manual_seed(trial.seed)
        return train(
            model,
            rows.train,
            trial,
            lambda trained, step: evaluation(trained, rows.dev, metrics, step, autocast=autocast),
            tell=tell,
        )

    def _model(
        self, desk: Desk, trial: Trial, classes: int, weights: Path | None
    ) -> tuple[Classifier, list[str]]:
        from safetensors.torch import load_file

        from finetune.glue.start import classifier_of

        folder = backbone_folder(self.artifact.folder)
        source = self.start.path if self.start and self.start.kind == "folder" else None
        model, notes = classifier_of(folder, trial, classes=classes, source=source)
        if weights is not None:
            model.start_from(load_file(weights))
        return model.to(desk.device), notes

    def _weights(self, desk: Desk) -> Path | None:
        """The file that it starts from, None where that is a model folder or nothing.

        Raises:
            HarnessError: The weights of the selected run are gone.
        """
        if self.start is None or self.start.kind == "folder":
            return None
        if self.start.path is not None:
            return self.start.path
        source = desk.input("source")
        found = Checkpoints(folder=desk.cache / "finetuned").find(source["run"], source["watched"])
        if found is None:
            raise HarnessError(
                f"The weights of the MNLI run {source['run'][:12]} are no longer in the cache.",
                hint="The same command makes them again; keep one cache for all machines of a run.",
            )
        return found
