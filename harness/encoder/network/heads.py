"""What stands behind the blocks: the pooler, and the masked-language head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.encoder.network.architecture import Architecture
from harness.encoder.network.basics import activation


class Pooler(nn.Module):
    """The first token through a dense layer and tanh."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """(texts, width) to (texts, width)."""
        return torch.tanh(self.dense(first))


class MaskedHead(nn.Module):
    """From a token's vector to a score for each token of the vocabulary."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        head, width = shape.head, shape.hidden_size
        self.dense = nn.Linear(width, width, bias=head.dense_bias) if head.dense else nn.Identity()
        self.activation = activation(head.activation) if head.dense else nn.Identity()
        plain = nn.LayerNorm(width, eps=shape.norm_eps, bias=head.norm_bias)
        self.norm = plain if head.norm else nn.Identity()
        self.decoder = nn.Linear(width, shape.vocab_size, bias=head.decoder_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., vocab_size)."""
        out: Tensor = self.decoder(self.norm(self.activation(self.dense(hidden))))
        return out
