"""The rows of a task on a device, read and tokenized once for all runs of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.glue.settings import Trial
from harness.data import no_bars
from harness.desk import Desk
from harness.encoder.found import family_in
from harness.jobs import prepared_data
from harness.labelled import Labelled, LabelSource
from harness.types import Artifact, Task

if TYPE_CHECKING:
    from finetune.glue.rows import Rows


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
    folder = backbone_folder(artifact.folder)
    assert isinstance(source, LabelSource)
    most = lengths(artifact.folder)[0].table
    length = min(trial.training.max_length, most or trial.training.max_length)
    notes = [f"inputs are cut at {length} tokens: the backbone has no more positions"]

    def make() -> tuple[Labelled, Prepared]:
        from transformers import AutoTokenizer

        from harness.encoder.padding import let_end_pad, require_padding

        with prepared_data(task, data, desk.cache), no_bars():
            labelled = source.load(task, data=data)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        let_end_pad(tokenizer, family_in(folder))
        require_padding(tokenizer)
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


def as_it_runs(folder: Path, trial: Trial) -> tuple[Trial, list[str]]:
    """A run with what its backbone does not allow changed, and notes on that."""
    family, training, notes = family_in(folder), trial.training, list[str]()
    if family is not None and family.float32_only is not None and trial.autocast != "float32":
        training = replace(training, autocast="float32")
        notes.append(f"run in float32: {family.float32_only}")
    if family is not None and family.end_pads and training.head.pooling == "first":
        training = replace(training, head=replace(training.head, pooling="mean"))
        notes.append("a decoder's first token sees nothing else: the mean of all tokens stands for it")
    return replace(trial, training=training), notes
