"""The classifier of a run, kept in the results folder with its losses and its predictions."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.keys import Lineage, ModelDocument
from harness.core.types import LabelledData, Task, build_artifact_slug
from harness.encoder.folder.description import compute_folder_identity
from harness.jobs.context import Event, JobContext
from harness.training.model_store import PREDICTIONS, TRAINING, ModelStore
from harness.training.training import MODEL, TrainingLog
from suites.glue import GlueSource, format_submission_name


@dataclass(frozen=True, kw_only=True)
class ClassifierPlace:
    """The place in which the classifier of a run is kept, and what it is made of."""

    results: Path
    name: str
    lineage: Lineage

    @property
    def folder(self) -> Path:
        """The folder of the classifier, whether it is there or not."""
        return ModelStore(self.results).locate_model(build_artifact_slug(self.name, self.lineage.key))

    def store_classifier(
        self,
        save: Callable[[Path, Sequence[str]], None],
        tokenizer: Any,
        task: Task,
        labelled: LabelledData,
        *,
        losses: Sequence[float],
        predictions: Mapping[str, Sequence[float]],
        facts: Mapping[str, Any],
        context: JobContext,
    ) -> None:
        """Put a classifier into its place; one that is there already stays.

        Args:
            save: Writes the model, with the names of its classes, into a folder.
            tokenizer: Of transformers.
            task: Its task.
            labelled: The rows of its task.
            losses: The loss of each step.
            predictions: By split, for each row the number of its class, or a number.
            facts: The circumstances of the training.
            context: That of the job.

        Raises:
            StoreError: The results folder cannot be written.
        """
        key, store = self.lineage.key, ModelStore(self.results, context.remote)
        work = store.start_training(key, name=self.name, lineage=self.lineage, steps=len(losses))
        log, folder = TrainingLog(work), work / MODEL
        log.begin(steps=len(losses), done=0)
        log.steps([{"step": step, "loss": loss} for step, loss in enumerate(losses, start=1)])
        save(folder, labelled.names)
        tokenizer.save_pretrained(folder)
        place = folder / TRAINING / PREDICTIONS
        place.mkdir(parents=True)
        splits = {**labelled.dev, **labelled.test}
        for split, values in predictions.items():
            name, text = _format_predictions(task, split, splits[split].ids, values, labelled.names)
            (place / name).write_text(text, encoding="utf-8", newline="")
        content, weights, _ = compute_folder_identity(folder, context.cache)
        document = ModelDocument(
            name=self.name,
            key=key,
            content=content,
            weights=weights,
            lineage=self.lineage,
            training={"steps": len(losses), **facts},
        )
        stored = store.put(folder, document, build_artifact_slug(self.name, key))
        store.send(key, context.cache)
        context.emit(Event(kind="note", text=f"the classifier is {stored}"))


def _format_predictions(
    task: Task, split: str, ids: Sequence[str], values: Sequence[float], names: Sequence[str]
) -> tuple[str, str]:
    """The name and the text of a file of predictions: of GLUE as it is submitted, else a CSV file.

    Args:
        task: The task.
        split: The split that the rows are of.
        ids: The id of each row.
        values: For each row the number of its class, or a number.
        names: The names of the classes in the order of their numbers; none where labels are numbers.
    """
    is_glue, text = isinstance(task.source, GlueSource), io.StringIO()
    writer = csv.writer(text, delimiter="\t" if is_glue else ",", lineterminator="\n")
    writer.writerow(["index" if is_glue else "id", "prediction"])
    for id_, value in zip(ids, values, strict=True):
        # STS-B's numbers are those of its scale.
        number = f"{min(max(value, 0.0), 5.0):.3f}" if is_glue else repr(value)
        writer.writerow([id_, names[int(value)] if names else number])
    name = f"{format_submission_name(task.name, split)}.tsv" if is_glue else f"{task.name}-{split}.csv"
    return name, text.getvalue()
