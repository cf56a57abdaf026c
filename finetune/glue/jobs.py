"""The jobs of a task: a run, the choice among runs, the MNLI model that others start from, the score.

A run is small to send: it names its backbone, its data and its settings. What it leaves is a record
of purpose "trial"; the score of a task is a record made of those.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from finetune.glue import outcome
from finetune.glue.checkpoints import Checkpoints
from finetune.glue.selection import select, select_source
from finetune.glue.settings import Trial
from harness import provenance
from harness.data import no_bars
from harness.desk import Desk, Event
from harness.errors import HarnessError
from harness.jobs import examples_bytes, examples_part, model_part, prepared_data, task_part
from harness.labelled import Labelled, LabelSource
from harness.record import EXAMPLE_COLUMNS, Record, parse
from harness.types import Artifact, Purpose, Task

if TYPE_CHECKING:
    import torch

    from finetune.glue.classifier import Classifier
    from finetune.glue.loop import Progress
    from finetune.glue.rows import Rows


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
        predictions: Whether its record has them.
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
    predictions: bool = False
    group: str | None = None

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Train, score, and write down how it went."""
        started = datetime.now(tz=UTC)
        desk.set_threads()
        desk.forget()  # the memory is for training
        trial = self.trial(desk)
        desk.emit(Event(kind="stage", text=f"{self.task.name}: {outcome.said(trial)}"))
        labelled, rows, notes = tokenized_rows(desk, self.artifact, self.task, self.data, trial)
        progress, model, more = self._trained(desk, trial, labelled, rows)
        found = outcome.counted(progress)
        if self.group is not None and found is not None:
            model.load_state_dict(progress.weights or {}, strict=False)
            Checkpoints(folder=desk.cache / "finetuned").offer(
                self.group, self.key, found.watched, model.transferable()
            )
        columns = (
            outcome.examples_of(self.task, labelled, found, trial.seed) if found and self.predictions else {}
        )
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
            main_score=outcome.number(self.task.name, self.view, metrics) if metrics else None,
            scores=outcome.scores_of(self.task, metrics),
            examples=examples_part(columns, examples),
            training=outcome.training_of(trial, progress, trial.steps(len(labelled.train))),
            provenance={
                **provenance.snapshot(device=desk.device, threads=desk.threads, started=started),
                "notes": [*labelled.notes, *notes, *more, *progress.notes],
                "seconds": {"train": round(seconds, 3)},
                "peak_memory_bytes": provenance.peak_memory(),
            },
        )
        made = {"record": record.to_json().encode()}
        return {**made, "examples": examples} if examples is not None else made

    def trial(self, desk: Desk) -> Trial:
        """The run that it is, once a selection has chosen."""
        chosen = int(desk.input("selection").get("chosen", 0))
        return replace(self.trials[chosen], seed=self.seed)

    def _trained(
        self, desk: Desk, trial: Trial, labelled: Labelled, rows: Prepared
    ) -> tuple[Progress, Classifier, list[str]]:
        import torch

        from finetune.glue.loop import autocast_of, train
        from finetune.glue.scoring import evaluation

        model, notes = self._model(desk, trial, labelled.classes)
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
        progress = train(
            model,
            rows.train,
            trial,
            lambda trained, step: evaluation(trained, rows.dev, metrics, step, autocast=autocast),
            tell=tell,
        )
        return progress, model, notes

    def _model(self, desk: Desk, trial: Trial, classes: int) -> tuple[Classifier, list[str]]:
        from finetune.glue.start import classifier_of
        from harness.encoder.modules import backbone_folder

        folder = backbone_folder(self.artifact.folder)
        source = self.start.path if self.start and self.start.kind == "folder" else None
        model, notes = classifier_of(folder, trial, classes=classes, source=source)
        if self.start is not None and self.start.kind != "folder":
            model.start_from(self._weights(desk))
        return model.to(desk.device), notes

    def _weights(self, desk: Desk) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        assert self.start is not None
        if self.start.path is not None:
            return load_file(self.start.path)
        return Checkpoints(folder=desk.cache / "finetuned").load(desk.input("source")["run"])


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The rows of a task on a device."""

    train: Rows
    dev: Mapping[str, Rows]


def tokenized_rows(
    desk: Desk, artifact: Artifact, task: Task, data: Path | None, trial: Trial
) -> tuple[Labelled, Prepared, list[str]]:
    """A task's rows, read and tokenized once for all runs of a worker, and notes."""
    import torch

    from finetune.glue.rows import tokenized
    from harness.encoder.lengths import lengths
    from harness.encoder.modules import backbone_folder

    source = task.source
    assert isinstance(source, LabelSource)
    most = lengths(artifact.folder)[0].table
    length = min(trial.training.max_length, most or trial.training.max_length)
    notes = [f"inputs are cut at {length} tokens: the backbone has no more positions"]

    def make() -> tuple[Labelled, Prepared]:
        from transformers import AutoTokenizer

        with prepared_data(task, data, desk.cache), no_bars():
            labelled = source.load(task, data=data)
        tokenizer = AutoTokenizer.from_pretrained(backbone_folder(artifact.folder), local_files_only=True)
        device = torch.device(desk.device)
        made = {
            name: tokenized(
                tokenizer,
                split.texts,
                split.labels,
                max_length=length,
                device=device,
                numbers=labelled.classes == 1,
            )
            for name, split in {"": labelled.train, **labelled.dev}.items()
        }
        return labelled, Prepared(train=made.pop(""), dev=made)

    labelled, rows = desk.kept("rows", (artifact.key, task, data, length), make)
    return labelled, rows, notes if length < trial.training.max_length else []


@dataclass(frozen=True, kw_only=True)
class Select:
    """The best cell of a task's grid, from the records of its runs; gives it as JSON."""

    trials: tuple[Trial, ...]
    keys: tuple[str, ...]
    view: str

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Choose, and show every cell."""
        records = records_in(desk, self.keys)
        tried = [outcome.tried_of(r, t, self.view) for r, t in zip(records, self.trials, strict=True)]
        found = select(tried)
        told = {
            "chosen": tried.index(found.chosen),
            "maximum": found.maximum,
            "cells": outcome.cells_of(tried, records),
            "diverged": found.diverged,
            "constant": found.constant,
        }
        return {"selection": json.dumps(told).encode()}


@dataclass(frozen=True, kw_only=True)
class Source:
    """The MNLI run that others start from; it is trained once more if its weights are gone."""

    runs: tuple[Finetune, ...]
    view: str

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Choose by the accuracy on the matched set, and see that the weights are there."""
        records = records_in(desk, [run.key for run in self.runs])
        tried = [
            outcome.tried_of(r, run.trials[0], self.view) for r, run in zip(records, self.runs, strict=True)
        ]
        found = select_source(tried)
        run = self.runs[tried.index(found.chosen)]
        kept = Checkpoints(folder=desk.cache / "finetuned")
        again = not kept.path(run.key).exists()
        if again:
            desk.emit(
                Event(kind="note", text="the weights of the selected run are gone: it is run once more")
            )
            kept.forget(run.group or "")
            run.run(desk)
        if not kept.path(run.key).exists():
            raise HarnessError(
                "The selected MNLI run diverged when it was run once more.",
                hint="Another run of the grid was better on this day: start with an empty cache and results.",
            )
        told = {"run": run.key, **outcome.cell_of(found.chosen.trial), "watched": found.chosen.watched}
        return {"source": json.dumps({**told, "again": again}).encode()}


@dataclass(frozen=True, kw_only=True)
class Conclude:
    """A task's score: the mean over the seeds that count, with all that was tried on the way.

    Attributes:
        seeds: The keys of the runs that count.
        kind: "fresh" seeds of ours at the chosen cell, the protocol's own "final" ones there, all
            runs of a "protocol" that chooses nothing, or the grid's "maximum".
        told: What the record says of the recipe.
    """

    artifact: Artifact
    task: Task
    trials: tuple[Trial, ...]
    runs: tuple[str, ...]
    seeds: tuple[str, ...]
    kind: Literal["fresh", "final", "protocol", "maximum"]
    view: str
    key: str
    identity: Mapping[str, Any]
    told: Mapping[str, Any]
    purpose: Purpose = "final"

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Put the runs together."""
        started = datetime.now(tz=UTC)
        selection = desk.input("selection") or self._unselected(desk)
        chosen = (self.runs[selection["chosen"]],) if self.kind == "maximum" else ()
        keys = self.seeds or chosen
        records = records_in(desk, keys)
        whole = [record for record in records if record.main_score is not None]
        if not whole:
            raise HarnessError(f"All {len(records)} runs of the chosen cell diverged.")
        metrics = outcome.means_of(whole)
        scores = [record.main_score for record in whole if record.main_score is not None]
        columns = outcome.together([examples_in(desk, r.key) for r in whole if r.examples] or [{}])
        examples = examples_bytes(columns)
        notes = [note for record in whole for note in record.provenance.get("notes", ())]
        if len(whole) < len(records):
            notes.append(
                f"{len(records) - len(whole)} of {len(records)} seeds diverged: the mean is over the rest"
            )
        record = Record(
            key=self.key,
            purpose=self.purpose,
            status="done",
            model=whole[0].model,
            task=task_part(self.task),
            identity=self.identity,
            main_score=outcome.number(self.task.name, self.view, metrics),
            scores=outcome.scores_of(self.task, metrics),
            examples=examples_part(columns, examples),
            training={
                **self.told,
                "source": desk.input("source") or None,
                "chosen": outcome.cell_of(self.trials[selection["chosen"]])
                if self.kind != "protocol"
                else None,
                "grid_maximum": selection["maximum"],
                "cells": selection["cells"],
                "diverged": selection["diverged"],
                "constant": selection["constant"],
                "seeds": {
                    "kind": self.kind,
                    "seeds": [record.training["trial"]["seed"] for record in records],
                    "keys": [record.key for record in records],
                    "scores": [record.main_score for record in records],
                    "standard_deviation": outcome.spread(scores),
                    "diverged": len(records) - len(whole),
                },
            },
            provenance={
                **provenance.snapshot(device=desk.device, threads=desk.threads, started=started),
                "notes": [*dict.fromkeys(notes)],
                "seconds": {
                    "train": round(sum(r.provenance["seconds"]["train"] for r in self._all(desk, records)), 3)
                },
            },
        )
        made = {"record": record.to_json().encode()}
        return {**made, "examples": examples} if examples is not None else made

    def _unselected(self, desk: Desk) -> dict[str, Any]:
        """The runs of a protocol that chooses nothing, shown as those of a grid are."""
        records = records_in(desk, self.runs)
        tried = [outcome.tried_of(r, t, self.view) for r, t in zip(records, self.trials, strict=True)]
        scores = [one.score for one in tried if one.score is not None]
        return {
            "chosen": 0,
            "maximum": max(scores, default=None),
            "cells": outcome.cells_of(tried, records),
            "diverged": sum(one.diverged for one in tried),
            "constant": sum(one.constant for one in tried),
        }

    def _all(self, desk: Desk, counted: Sequence[Record]) -> list[Record]:
        """Every run behind the score, each once."""
        found = {r.key: r for r in (*records_in(desk, self.runs), *counted)}
        return list(found.values())


def records_in(desk: Desk, keys: Sequence[str]) -> list[Record]:
    """The records of runs that are this job's inputs."""
    return [parse(desk.inputs[key]["record"].decode(), where=f"the run {key[:12]}") for key in keys]


def examples_in(desk: Desk, key: str) -> dict[str, list[Any]]:
    """The per-example columns of a run that is this job's input."""
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(desk.inputs[key]["examples"]))
    return {name: table[name].to_pylist() for name in EXAMPLE_COLUMNS}
