"""The settings of a recipe that makes an embedding model, and the form of its loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from harness.encoder.model_settings import POOLING_FLAGS
from harness.errors import UsageError, unknown
from harness.identity import Whole

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn

ATTENTION = "attention"
"""The pooling with learned weights."""

POOLINGS = (ATTENTION, *POOLING_FLAGS.values())


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(Whole):
    """Every setting of the training of an embedding model; each one is in the model's key.

    Attributes:
        pooling: "attention", or a mode of sentence-transformers' Pooling.
        heads: Heads of attentive pooling; without effect on others.
        learning_rate: The highest learning rate.
        batch_size: Rows of an optimizer step, over all processes.
        epochs: Passes over the data; an incomplete last batch of a pass is left out.
        max_length: Tokens at which texts are cut in training; the model keeps its backbone's own length.
        scale: The factor of cosines in the loss, the inverse of the temperature.
        weight_decay: AdamW's decay of all weights but biases and norms.
        betas: AdamW's betas.
        eps: AdamW's epsilon.
        warmup: The share of steps in which the learning rate rises from 0.
        schedule: The way of the learning rate after the warmup, by transformers' name.
        clip: The largest norm of a gradient; 0 for no limit.
        precision: The precision of autocast over float32 weights; float16 needs a GPU.
        batches: "shuffled", or "no_duplicates" for batches in which no text occurs twice.
        selection: The data whose score chooses among checkpoints; empty for the weights at the end.
        evaluate_every: Steps from one evaluation of the selection to the next.
    """

    pooling: str = "mean"
    heads: int = 1
    learning_rate: float = 5e-5
    batch_size: int = 512
    epochs: int = 3
    max_length: int = 32
    scale: float = 20.0
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    warmup: float = 0.0
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    clip: float = 1.0
    precision: Literal["float32", "bfloat16", "float16"] = "float16"
    batches: Literal["shuffled", "no_duplicates"] = "shuffled"
    selection: str = ""
    evaluate_every: int = 125

    def check(self) -> None:
        """Refuse values that no training can have.

        Raises:
            UsageError: One of them is out of its range.
        """
        if self.pooling not in POOLINGS:
            raise unknown("pooling", self.pooling, POOLINGS, then="Choose one of these.")
        for name in ("heads", "batch_size", "epochs", "max_length", "evaluate_every"):
            self._require(name, getattr(self, name) >= 1, "1 or more")
        for name in ("learning_rate", "scale", "eps"):
            self._require(name, 0 < getattr(self, name) < math.inf, "a number above 0")
        for name in ("weight_decay", "clip"):
            self._require(name, 0 <= getattr(self, name) < math.inf, "0 or more")
        self._require("warmup", 0 <= self.warmup <= 1, "a share from 0 to 1")
        self._require("betas", all(0 <= beta < 1 for beta in self.betas), "two numbers from 0 to below 1")

    def _require(self, name: str, right: bool, wanted: str) -> None:
        if not right:
            raise UsageError(
                f"{name} is {getattr(self, name)}, which no training can have.",
                hint=f"Give {wanted}: --set {name}=…",
            )


class Loss(Protocol):
    """A function at the top of a module that makes a recipe's loss; it imports torch inside."""

    def __call__(
        self,
        model: SentenceTransformer,
        settings: EmbeddingSettings,
        *,
        micro_batch: int | None,
        gather: bool,
    ) -> nn.Module:
        """The loss of a batch of tokenized columns, as sentence-transformers' losses compute it.

        Args:
            model: The model in training.
            settings: The settings of the training.
            micro_batch: The most rows in a pass; None for all of a batch.
            gather: Whether texts of other processes are negatives too.
        """
        ...
