"""The parts of a training that depend on the kind of model: rows, batches, network, loss and folder."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, concatenate_datasets
from sentence_transformers import SentenceTransformer as LibrarySentenceTransformer
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from torch import nn

from finetune.embedding.row_order import (
    BatchOrder,
    Order,
    hash_table_texts,
)
from finetune.embedding.settings import ATTENTION, EmbeddingSettings, Loss, TrainerSettings
from harness.core.arguments import list_allowed_tensors
from harness.core.errors import HarnessError
from harness.core.types import Artifact
from harness.data.training.loading import load_training
from harness.encoder.attentive_pooling import AttentivePooling
from harness.encoder.folder.description import describe
from harness.encoder.library_load import build_pooling, get_dimension
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.training.training import TrainingSpec


class Setup(ABC):
    """The parts of a training that depend on the kind of model: data, network, loss and folder.

    Args:
        settings: The settings of the recipe.

    Attributes:
        caches: Whether a step is the same with fewer rows in a pass.
        evaluate_every: Steps from one evaluation of the selection to the next.
        numbered: Whether the loss is given the numbers of the rows, as its labels.
        labels_on_host: Whether the loss reads its labels on the CPU.
    """

    caches = True
    evaluate_every = 1
    numbered = False
    labels_on_host = False

    def __init__(self, settings: TrainerSettings) -> None:
        self._trainer_settings = settings

    def load_training_rows(self, spec: TrainingSpec) -> Any:
        """The training rows: a table, or what gives rows by their numbers (`__getitems__`).

        By default those of all training sets, under the column names of the first.
        """
        first, *others = [load_training(part, cache=spec.cache) for part in spec.data]
        names = first.column_names
        renamed = [part.rename_columns(dict(zip(part.column_names, names, strict=True))) for part in others]
        return concatenate_datasets([first, *renamed]) if others else first

    def build_order(self, data: Any, spec: TrainingSpec) -> Order:
        """The batches of the rows, by default those that the settings name."""
        return batch_order(data, spec, self._trainer_settings)

    @abstractmethod
    def build_model(self, spec: TrainingSpec) -> LibrarySentenceTransformer:
        """The model before its first step."""

    @abstractmethod
    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """The loss of a batch.

        Args:
            model: The model in training.
            micro_batch: The most rows in a pass; None for a whole batch.
            gather: Whether texts of other processes are candidates too.
        """

    def build_collator(self, model: Any) -> Any:
        """A function that turns rows into the inputs of a step; None for sentence-transformers' own."""
        return None

    def score_selection(self, model: Any, data: Dataset) -> float:
        """The score of a model on the data by which the best checkpoint is chosen."""
        raise NotImplementedError

    def describe_step(self, step: int) -> Mapping[str, Any]:
        """Further values of a step for the log, beside those that are measured."""
        return {}

    @abstractmethod
    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the trained model."""


class EmbeddingSetup(Setup):
    """The training of a model with one vector for each text: a backbone with a new pooling.

    Args:
        settings: The settings of the recipe.
        loss: The loss of the recipe.
        caches: Whether the loss gives the same step with fewer rows in a pass.
    """

    def __init__(self, settings: EmbeddingSettings, loss: Loss, *, caches: bool) -> None:
        super().__init__(settings)
        self.caches, self.evaluate_every = caches, settings.evaluate_every
        self._settings, self._loss = settings, loss
        self._length: int | None = None

    def build_model(self, spec: TrainingSpec) -> LibrarySentenceTransformer:
        """The backbone with a new pooling and its prompts; texts are cut at the training's length."""
        settings, transformer = self._settings, open_backbone(spec)
        width = get_dimension(transformer)
        pooling: nn.Module = (
            AttentivePooling(width, heads=settings.heads)
            if settings.pooling == ATTENTION
            else build_pooling(width, [settings.pooling])
        )
        model = SentenceTransformer(
            modules=[transformer, pooling],
            device=spec.device,
            similarity_fn_name="cosine",
            local_files_only=True,
        )
        keep_prompts(model, spec)
        # Only the training cuts texts shorter; the finished model keeps this length.
        self._length = model.max_seq_length or settings.max_length
        model.max_seq_length = min(filter(None, (settings.max_length, self._length)), default=None)
        return model

    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """The loss of the recipe."""
        return self._loss(model, self._settings, micro_batch=micro_batch, gather=gather)

    def score_selection(self, model: Any, data: Dataset) -> float:
        """Spearman's correlation of cosines with the scores of pairs, at the model's own length."""
        first, second, gold = (list(data[name]) for name in data.column_names[:3])
        evaluator = EmbeddingSimilarityEvaluator(
            first, second, gold, main_similarity="cosine", batch_size=64, write_csv=False
        )
        cut, model.max_seq_length = model.max_seq_length, self._length
        score = float(evaluator(model)["spearman_cosine"])
        model.max_seq_length = cut
        # NaN, where all cosines are equal, counts as the worst score.
        return score if math.isfinite(score) else -1.0

    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the model with its own length."""
        model.max_seq_length = self._length
        model.save(str(folder), create_model_card=False)


def batch_order(data: Dataset, spec: TrainingSpec, settings: TrainerSettings) -> BatchOrder:
    """The shuffled batches of rows; with "no_duplicates" no text of any column occurs twice in a batch.

    Args:
        data: The training rows.
        spec: The training, for its seed.
        settings: The size and kind of batches, and the epochs.

    Raises:
        HarnessError: The rows do not fill a batch.
    """
    texts = None
    if settings.batches == "no_duplicates":
        texts = hash_table_texts(data.iter(batch_size=10_000), data.column_names)
    order = BatchOrder(
        len(data),
        settings.batch_size,
        epochs=settings.epochs,
        seed=spec.seed,
        texts=texts,
        group=settings.group,
        keeps_last=settings.last_batch == "kept",
        max_steps=settings.max_steps,
    )
    if order.steps == 0:
        raise HarnessError(
            f"The data has {len(data)} rows, which do not fill a batch of {settings.batch_size}.",
            hint="Give more data, or a smaller batch: --set batch_size=…",
        )
    return order


def open_backbone(spec: TrainingSpec) -> Any:
    """The Transformer module of a spec's backbone in float32, on the training's device."""
    return open_whole(spec)[0]


def open_whole(spec: TrainingSpec) -> Any:
    """The model of a spec's backbone with all its modules, as `open_backbone` opens the first one."""
    backbone = spec.backbone
    return SentenceTransformer(
        str(backbone.folder),
        device=spec.device,
        local_files_only=True,
        trust_remote_code=backbone.trust_remote_code,
        model_kwargs=build_backbone_args(backbone),
    )


def build_backbone_args(backbone: Artifact) -> dict[str, Any]:
    """The arguments with which the weights of a backbone are loaded to be trained."""
    extra = {"allow_extra": patterns} if (patterns := list_allowed_tensors(backbone.allow)) else {}
    return {"dtype": torch.float32, "weights_only": True, **extra}


def keep_prompts(model: LibrarySentenceTransformer, spec: TrainingSpec) -> None:
    """Give a model the prompts of its backbone; the library would add empty ones."""
    described = describe(spec.backbone.folder, own_code=spec.backbone.trust_remote_code)
    model.prompts = dict(described.prompts)
    model.default_prompt_name = described.default_prompt_name


def set_dropout(model: nn.Module, share: float) -> None:
    """Set every dropout of a model: the modules, and the shares that attention has as plain numbers."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        for name in ("dropout", "attention_dropout", "dropout_prob"):
            # By type: some families have a module or a method under these names.
            if type(getattr(module, name, None)) in (int, float):
                setattr(module, name, share)
