"""The parts of the network, each working on packed tokens: (tokens, width)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from harness.encoder.attention.interface import Layout
from harness.encoder.network.architecture import Architecture
from harness.encoder.network.basics import activation, norm
from harness.encoder.network.rotary import Table
from harness.encoder.network.self_attention import Attention

PIECE = 1024
"""So many tokens' inner vectors stay in the cache of a CPU; more cost it time."""


class Embeddings(nn.Module):
    """Tokens, with their types and learned positions where there are any."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        width = shape.hidden_size
        self.offset = shape.position_offset
        # The padding row of a token embedding gets no gradient in transformers either.
        self.tokens = nn.Embedding(shape.vocab_size, width, padding_idx=shape.pad_token_id)
        learned = shape.positions == "learned"
        rows = shape.max_position_embeddings + shape.position_offset
        self.positions = nn.Embedding(rows, width) if learned else None
        self.types = nn.Embedding(shape.token_types, width) if shape.token_types else None
        self.norm = norm(shape) if shape.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(shape.embedding_dropout)

    def forward(self, embedded: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        """Add positions and types to embedded tokens (tokens, width); `types` None means all 0."""
        if self.types is not None:
            embedded = embedded + (self.types.weight[0] if types is None else self.types(types))
        if self.positions is not None:
            embedded = embedded + self.positions(positions + self.offset)
        out: Tensor = self.dropout(self.norm(embedded))
        return out


class FeedForward(nn.Module):
    """Two projections with an activation between them, gated or not."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        width, inside, bias = shape.hidden_size, shape.intermediate_size, shape.mlp_in_bias
        fused = shape.gated and shape.gate_first is not None
        self.up = nn.Linear(width, 2 * inside if fused else inside, bias=bias)
        self.gate = nn.Linear(width, inside, bias=bias) if shape.gated and not fused else None
        self.activation = activation(shape.activation)
        self.dropout = nn.Dropout(shape.mlp_dropout)
        self.down = nn.Linear(inside, width, bias=shape.mlp_out_bias)
        self.out_dropout = nn.Dropout(shape.mlp_out_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(tokens, width) to (tokens, width)."""
        out: Tensor = self.out_dropout(self.down(self.dropout(self._inside(x))))
        return out

    def _inside(self, x: Tensor) -> Tensor:
        up: Tensor = self.up(x)
        if self.gate is not None:
            gated: Tensor = self.activation(self.gate(x)) * up
            return gated
        if not self.shape.gated:
            plain: Tensor = self.activation(up)
            return plain
        first, second = up.chunk(2, dim=-1)
        halves: Tensor = (
            self.activation(first) * second if self.shape.gate_first else self.activation(second) * first
        )
        return halves


class Block(nn.Module):
    """Attention and feed-forward, each added to what came in."""

    def __init__(self, shape: Architecture, layer: int) -> None:
        super().__init__()
        self.prenorm = shape.prenorm
        bare = shape.prenorm and layer == 0 and not shape.first_attention_norm
        self.attention_norm = nn.Identity() if bare else norm(shape)
        self.attention = Attention(shape, layer)
        self.mlp_norm = norm(shape)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, layout: Layout, turn: Table | None, partly: bool) -> Tensor:
        """(tokens, width) to (tokens, width)."""
        if self.prenorm:
            x = x + self.attention(self.attention_norm(x), layout, turn, partly=partly)
        else:
            x = self.attention_norm(x + self.attention(x, layout, turn, partly=partly))
        whole = self.training or torch.is_grad_enabled() or torch.compiler.is_compiling()
        return self._fed(x) if whole else in_pieces(self._fed, x)

    def _fed(self, x: Tensor) -> Tensor:
        """Through the feed-forward part, each token alone."""
        out: Tensor = x + self.mlp(self.mlp_norm(x)) if self.prenorm else self.mlp_norm(x + self.mlp(x))
        return out


def in_pieces(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """What a function of single tokens gives for (tokens, width), PIECE tokens at once on a CPU.

    Not for training: dropout would draw its numbers in another order than in one piece.
    """
    if x.device.type != "cpu" or len(x) <= PIECE:
        return function(x)
    return torch.cat([function(piece) for piece in x.split(PIECE)])
