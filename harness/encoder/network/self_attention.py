"""The attention part of a block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.encoder.attention.interface import Layout, Needs
from harness.encoder.network.alibi import slopes
from harness.encoder.network.architecture import Architecture
from harness.encoder.network.rotary import Table, rotate


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
