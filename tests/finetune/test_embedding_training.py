"""Training of embedding models: the library's steps, exact resumption, and errors."""

from __future__ import annotations

import json
import math
import shutil
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch.utils.data import DataLoader

import tiny
from finetune.embedding import trainer as module
from finetune.embedding.batches import BatchOrder, text_numbers
from finetune.embedding.plan import EmbeddingRecipe
from finetune.embedding.settings import EmbeddingSettings
from finetune.embedding.trainer import train
from finetune.recipes.simcse import RECIPE, loss
from harness import training
from harness.data.training import LocatedTraining, TrainingData
from harness.errors import HarnessError
from harness.training import STOPPED, TrainingSpec, read_log, run_training
from harness.types import Artifact

SETTINGS = EmbeddingSettings(
    batch_size=8, epochs=3, max_length=16, learning_rate=1e-3, precision="float32", evaluate_every=4
)


def sentence(number: int) -> str:
    """A short sentence; no two of the first ten thousand are equal."""
    words = ["cat", "sat", "mat", "query", *"abcdefgh"]
    return " ".join(["the", *(words[(number * 31 + at) % 12] for at in range(number % 7)), str(number)])


def located(folder: Path, columns: Mapping[str, list[Any]], score: str = "") -> LocatedTraining:
    """Rows in a Parquet file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.parquet"
    Dataset.from_dict(dict(columns)).to_parquet(str(file))
    texts = tuple(name for name in columns if name != score)
    rows = len(next(iter(columns.values())))
    data = TrainingData(content="c" * 64, columns=texts, score=score, rows=rows)
    return LocatedTraining(data=data, file=file, name="rows.parquet", rows=rows, own=True)


def triplets(rows: int) -> dict[str, list[str]]:
    names = ("anchor", "positive", "negative")
    return {name: [sentence(at * 1000 + n) for n in range(rows)] for at, name in enumerate(names)}


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A tiny BERT with dropout."""
    folder = tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("backbone") / "tiny")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (folder / "config.json").write_text(json.dumps(config))
    return Artifact(name="tiny", source=str(folder), folder=folder, key="a" * 64, weights="b" * 64)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> LocatedTraining:
    return located(tmp_path_factory.mktemp("rows"), triplets(67))


@pytest.fixture
def make(backbone: Artifact, rows: LocatedTraining, tmp_path: Path) -> Callable[..., TrainingSpec]:
    """A spec in a folder of its own; settings and fields of the spec may be given."""

    def made(name: str = "run", settings: Mapping[str, Any] | None = None, **fields: Any) -> TrainingSpec:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        recipe = RECIPE.open("mean", replace(SETTINGS, **(settings or {})))
        full = {"backbone": backbone, "data": (rows,), "seed": 7, "key": "k" * 64, "threads": 1, **fields}
        return TrainingSpec(recipe=recipe, folder=folder, cache=tmp_path / "cache", minutes=1e-9, **full)

    return made


def settings_of(spec: TrainingSpec) -> EmbeddingSettings:
    assert isinstance(spec.recipe, EmbeddingRecipe)
    return spec.recipe.settings


def run(spec: TrainingSpec, **options: Any) -> dict[str, torch.Tensor]:
    """The weights after a training in this process."""
    train(spec, settings_of(spec), loss, caches=True, **options)
    return weights(spec)


def weights(spec: TrainingSpec) -> dict[str, torch.Tensor]:
    found = {}
    for path in sorted(spec.output.rglob("*.safetensors")):
        found |= {f"{path.parent.name}/{name}": tensor for name, tensor in load_file(path).items()}
    return found


def largest_difference(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


# Against the library


def plain(spec: TrainingSpec, target: Path, batches: list[list[int]]) -> list[float]:
    """The training as a script with the library's trainer, on the same batches."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )
    from transformers import TrainerCallback

    found: list[float] = []

    class Losses(TrainerCallback):
        def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
            found.extend([logs["loss"]] if "loss" in logs else [])

    class Trainer(SentenceTransformerTrainer):
        def get_train_dataloader(self) -> Any:
            data = self.train_dataset
            loader = torch.Generator()
            return DataLoader(data, batch_sampler=batches, collate_fn=self.data_collator, generator=loader)

    body = models.Transformer(str(spec.backbone.folder), max_seq_length=16)
    model = SentenceTransformer(modules=[body, models.Pooling(32, "mean")], device="cpu")
    data = Dataset.from_parquet(str(spec.data[0].file))
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(target),
        max_steps=len(batches),
        learning_rate=1e-3,
        per_device_train_batch_size=8,
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        seed=spec.seed,
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        loss=losses.MultipleNegativesRankingLoss(model, scale=20.0),
        callbacks=[Losses()],
    ).train()
    model.save(str(target / "model"))
    return found


def test_steps_are_those_of_the_library(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    """Thirty steps with dropout, without our network: the weights and losses of a plain script."""
    spec = make(settings={"epochs": 4}, threads=None)
    order = BatchOrder(67, 8, epochs=4, seed=7)
    ours = run(spec, library=True)
    losses = plain(spec, tmp_path / "plain", [batch.tolist() for batch in order.after(0)])
    theirs = load_file(tmp_path / "plain" / "model" / "model.safetensors")
    assert order.steps == len(losses) == 32
    assert largest_difference({n.removeprefix("model/"): t for n, t in ours.items()}, theirs) <= 1e-6
    assert [line["loss"] for line in read_log(spec.folder / "log.jsonl")] == pytest.approx(losses, abs=1e-6)
