"""An encoder with a head for a task of GLUE."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from finetune.glue.settings import Head
from harness.encoder.network.names import Names
from harness.errors import ModelError


class Classifier(nn.Module):
    """Token vectors, one of them or their mean, dropout, dense, activation, dropout, linear.

    Args:
        encoder: Gives `last_hidden_state`, (rows, columns, width).
        width: Of its vectors.
        classes: Scores of a row; 1 for a number.
        head: What stands behind it.
        dense: A dense layer that was trained with the backbone; None for a fresh one.
        names: What the backbone's authors call its tensors; None where the encoder has these names.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        width: int,
        classes: int,
        head: Head,
        dense: nn.Linear | None = None,
        names: Names | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.names = names
        self.pooling = head.pooling
        self.dropout_before = nn.Dropout(head.dropout_before)
        self.dense = nn.Linear(width, width, bias=head.dense_bias)
        self.activation: nn.Module = nn.Tanh() if head.activation == "tanh" else nn.GELU()
        self.dropout = nn.Dropout(head.dropout)
        self.classifier = nn.Linear(width, classes)
        for layer in (self.dense, self.classifier):
            nn.init.normal_(layer.weight, std=head.initializer_range)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        if dense is not None:
            self._take(dense)

    def _take(self, dense: nn.Linear) -> None:
        with torch.no_grad():
            self.dense.weight.copy_(dense.weight)
            if self.dense.bias is not None and dense.bias is not None:
                self.dense.bias.copy_(dense.bias)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Scores of the rows, (rows, classes)."""
        hidden: Tensor = self.encoder(**inputs).last_hidden_state
        pooled = self._pooled(hidden, inputs["attention_mask"])
        dense = self.activation(self.dense(self.dropout_before(pooled)))
        scores: Tensor = self.classifier(self.dropout(dense))
        return scores

    def _pooled(self, hidden: Tensor, mask: Tensor) -> Tensor:
        if self.pooling == "first":
            return hidden[:, 0]
        weights = mask[..., None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)

    def published(self, name: str) -> str:
        """What the backbone's authors call a parameter; its own name if it is none of theirs."""
        if self.names is None or not name.startswith("encoder."):
            return name
        return self.names.theirs(name.removeprefix("encoder."), with_head=False)

    def transferable(self) -> dict[str, Tensor]:
        """What a model for another task starts from: all but the last layer."""
        return {n: t for n, t in self.state_dict().items() if not n.startswith("classifier.")}

    def start_from(self, tensors: dict[str, Any]) -> None:
        """Take over what another model's `transferable` gave; the last layer stays fresh.

        Raises:
            ModelError: They are those of another model.
        """
        wanted = {n: t.shape for n, t in self.transferable().items()}
        given = {n: t.shape for n, t in tensors.items()}
        if wanted != given:
            other = sorted(n for n in wanted.keys() | given.keys() if wanted.get(n) != given.get(n))
            raise ModelError(
                f"The checkpoint is of another model: {len(other)} tensors differ, the first is {other[0]}.",
                hint="It must come from the same backbone and recipe.",
            )
        self.load_state_dict(tensors, strict=False)
