"""Embeddings, attention, feed-forward, heads, norms.

The parts of the network, each working on packed tokens: (tokens, width).

The attention part of a block.

What stands behind the blocks: the pooler, and the masked-language head.

Norms and activations by what a shape says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN

from harness.encoder.attention.interface import Layout, Needs
from harness.encoder.family import Architecture
from harness.encoder.network.positions import Table, rotate, slopes

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


class Attention(nn.Module):
    """Self-attention within each text."""

    def __init__(self, shape: Architecture, layer: int) -> None:
        super().__init__()
        self.shape = shape
        self.window = shape.window(layer)
        self.slopes = slopes(shape.num_attention_heads) if shape.positions == "alibi" else None
        self.dropout = shape.attention_dropout
        width, each = shape.hidden_size, shape.head_dim
        queries, keys = shape.num_attention_heads * each, shape.num_key_value_heads * each
        if shape.qkv == "split":
            self.query = nn.Linear(width, queries, bias=shape.qkv_bias)
            self.key = nn.Linear(width, keys, bias=shape.qkv_bias)
            self.value = nn.Linear(width, keys, bias=shape.qkv_bias)
        else:
            self.qkv = nn.Linear(width, queries + 2 * keys, bias=shape.qkv_bias)
        self.out = nn.Linear(queries, width, bias=shape.attention_out_bias)
        self.out_dropout = nn.Dropout(shape.attention_out_dropout)

    def needs(self, *, partly: bool) -> Needs:
        """What it asks of a backend."""
        dropout = self.dropout if self.training else 0.0
        width = self.shape.head_dim
        return Needs(window=self.window, slopes=self.slopes, dropout=dropout, partly=partly, head_dim=width)

    def forward(self, x: Tensor, layout: Layout, turn: Table | None, *, partly: bool) -> Tensor:
        """(tokens, width) to (tokens, width)."""
        query, key, value = self._project(x)
        if turn is not None:
            query = rotate(query, turn, interleaved=self.shape.rotary_interleaved)
            key = rotate(key, turn, interleaved=self.shape.rotary_interleaved)
        found = self._attend(layout, query, key, value, partly=partly)
        out: Tensor = self.out_dropout(self.out(found.flatten(1)))
        return out

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (tokens, heads, head_dim)."""
        heads, each = self.shape.num_attention_heads, self.shape.head_dim
        if self.shape.qkv == "split":
            query, key, value = (p(x).unflatten(-1, (-1, each)) for p in (self.query, self.key, self.value))
            return query, key, value
        fused = self.qkv(x)
        if self.shape.qkv == "by_head":
            query, key, value = fused.unflatten(-1, (heads, 3 * each)).chunk(3, dim=-1)
            return query, key, value
        query, key, value = fused.unflatten(-1, (3, heads, each)).unbind(dim=-3)
        return query, key, value

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _attend(self, layout: Layout, query: Tensor, key: Tensor, value: Tensor, *, partly: bool) -> Tensor:
        """Never part of a compiled graph: what is done depends on the lengths at hand."""
        return layout.attend(query, key, value, self.needs(partly=partly))


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


def norm(shape: Architecture) -> nn.Module:
    """A norm over the width."""
    if shape.norm == "rms":
        return nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
    return nn.LayerNorm(shape.hidden_size, eps=shape.norm_eps, bias=shape.norm_bias)


def activation(name: str) -> nn.Module:
    """An activation by its name in transformers."""
    return cast(nn.Module, cast(Mapping[str, Any], ACT2FN)[name])
