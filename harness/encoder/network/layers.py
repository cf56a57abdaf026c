"""The layers of the encoder, each on packed tokens (tokens, width).

These are rotary and ALiBi positions, embeddings, attention, feed-forward, heads and norms.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from harness.core.errors import ModelError
from harness.encoder.architecture import Architecture
from harness.encoder.attention.interface import Layout, Needs

Table = tuple["Tensor", "Tensor"]
"""Cosines and sines, each (tokens, 1, head_dim / 2) in float32."""


def compute_rotations(
    shape: Architecture, packed: Packing, places: Tensor | None = None
) -> dict[tuple[float, bool], Table]:
    """The rotations of each frequency base in a network; empty where its positions are not rotary.

    The kinds of scaling are "dynamic" (NTK-aware: the base grows by `factor` with the length of the text
    beyond `trained` positions; NomicBERT's code uses the length of the padded batch), "ntk" (lowered by
    `factor`, spread over the dimensions by `mixed` if given, as in GTE's code), and those of transformers:
    "linear" (divided by `factor`), "yarn" of `trained` positions, and "dynamic" at a fixed `length`.

    Args:
        shape: The architecture of the network.
        packed: The packing of the batch.
        places: (tokens,), the place of each token in its text; None for its rank.

    Returns:
        By frequency base, and whether it is scaled, the cosines and sines of every token.

    Raises:
        ModelError: The scaling is of another kind.
    """
    if shape.positions != "rotary":
        return {}
    lengths = packed.gather_text_lengths()
    places = packed.positions if places is None else places
    return {
        (theta, is_scaled): _build_rotary_table(
            places,
            *_compute_frequencies(
                shape.head_dim, theta, lengths, scaling=shape.rotary_scaling if is_scaled else None
            ),
        )
        for theta, is_scaled in {(shape.theta(n), shape.is_scaled(n)) for n in range(shape.num_hidden_layers)}
    }


def _compute_frequencies(
    head_dim: int, theta: float, lengths: Tensor, *, scaling: Mapping[str, Any] | None = None
) -> tuple[Tensor, float]:
    """The rotation of each pair of dimensions from one position to the next, in radians, and their weight."""
    steps = torch.arange(0, head_dim, 2, device=lengths.device, dtype=torch.float32)[None] / head_dim
    plain = torch.pow(theta, steps).reciprocal()
    if scaling is None:
        return plain, 1.0
    kind, factor = scaling["kind"], float(scaling["factor"])
    if kind in ("linear", "yarn") or "length" in scaling:
        trained, length = scaling.get("trained", 1), scaling.get("length")
        arguments = (head_dim, theta, kind, factor, trained, length)
        return _compute_library_frequencies(lengths.device, *arguments)
    if kind == "dynamic":
        beyond = lengths.float() / float(scaling["trained"])
        # base * (factor * length / trained - (factor - 1)) ** (d / (d - 2)), as in transformers.
        grown = (beyond * factor - (factor - 1)).clamp(min=1.0)
        base = grown[:, None].pow(head_dim / (head_dim - 2)) * theta
        return base.pow(steps).reciprocal(), 1.0
    if kind == "ntk" and scaling.get("mixed") is None:
        return torch.pow(theta * factor, steps).reciprocal() / math.pow(factor, 2 / head_dim), 1.0
    if kind == "ntk":
        # The divisor of each pair of dimensions: from little for the first to `factor` for the last.
        count, mixed = steps.shape[-1], scaling["mixed"]
        ranks = torch.arange(1, count + 1, device=steps.device, dtype=torch.float32)
        return plain / (ranks.pow(mixed) * (math.log(factor) / math.pow(count, mixed))).exp(), 1.0
    raise ModelError(f"The rotary scaling {kind!r} is not known; there are dynamic, linear, ntk and yarn.")


# Cached also as a copy to a GPU waits for it.
@functools.cache
def _compute_library_frequencies(
    device: torch.device,
    head_dim: int,
    theta: float,
    kind: str,
    factor: float,
    trained: int,
    length: int | None,
) -> tuple[Tensor, float]:
    """Scaled frequencies, (1, head_dim / 2), and the weight of cosines and sines."""
    config = PreTrainedConfig(
        head_dim=head_dim,
        hidden_size=head_dim,
        num_attention_heads=1,
        max_position_embeddings=trained,
        rope_parameters={"rope_theta": theta, "rope_type": "default"},
    )
    frequency, weight = scale_frequencies(config, kind, factor, length)
    return frequency.to(device)[None], weight


def scale_frequencies(config: Any, kind: str, factor: float, length: int | None) -> tuple[Tensor, float]:
    """The frequencies of rotary positions by transformers' own functions, on the CPU, and their weight.

    Args:
        config: A config of transformers, whose rotary positions are not scaled.
        kind: "yarn", "dynamic" or "linear".
        factor: The factor of the scaling.
        length: The tokens of the text that the dynamic one is for.
    """
    config = copy.deepcopy(config)
    config.rope_parameters |= {"rope_type": kind, "factor": factor}
    frequency, weight = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    return frequency, float(weight)


def _build_rotary_table(positions: Tensor, frequency: Tensor, weight: float) -> Table:
    """The cosines and sines of tokens at these positions, times a weight, which sharpens attention."""
    angles = (positions[:, None].float() * frequency)[:, None]
    return (angles.cos(), angles.sin()) if weight == 1 else (angles.cos() * weight, angles.sin() * weight)


def _apply_rotation(x: Tensor, turn: Table, *, interleaved: bool) -> Tensor:
    """Each head's vector, rotated by its position; computed in float32."""
    cosine, sine = turn
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    # The product of a half-precision and a float32 tensor is float32.
    turned = (
        (first * cosine).addcmul_(second, sine, value=-1),
        (second * cosine).addcmul_(first, sine),
    )
    both = torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
    return both.to(x.dtype)


def _compute_alibi_slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's loss of each head per token of distance.

    For a power of two the geometric sequence of the ALiBi paper (section 3), otherwise that of the next
    smaller power followed by every other slope of the next larger one, as in its code.

    >>> _compute_alibi_slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
    >>> [round(s, 4) for s in _compute_alibi_slopes(3)]
    [0.0625, 0.0039, 0.25]
    """
    below = 2 ** math.floor(math.log2(heads))
    rest = _build_geometric_slopes(2 * below)[::2][: heads - below]
    return _build_geometric_slopes(below) + rest


def _build_geometric_slopes(heads: int) -> tuple[float, ...]:
    return tuple(2 ** (-8 * (i + 1) / heads) for i in range(heads))


PIECE = 1024
"""The number of tokens whose inner vectors fit into the cache of a CPU; more tokens cost time."""


class Embeddings(nn.Module):
    """Token embeddings, with token types and learned positions where the architecture has them."""

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
        self.norm = build_norm(shape) if shape.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(shape.embedding_dropout)

    def forward(self, embedded: Tensor, positions: Tensor, types: Tensor | None) -> Tensor:
        """Add positions and types to embedded tokens, then normalise.

        Args:
            embedded: (tokens, width), the embeddings of the token ids.
            positions: (tokens,), the place of each token in its text.
            types: (tokens,), the token types; None for type 0.
        """
        if self.types is not None:
            embedded = embedded + (self.types.weight[0] if types is None else self.types(types))
        if self.positions is not None:
            embedded = embedded + self.positions(positions + self.offset)
        out: Tensor = self.dropout(self.norm(embedded))
        return out


class _FeedForward(nn.Module):
    """Two projections with an activation between them, gated or not."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.shape = shape
        width, inside, bias = shape.hidden_size, shape.intermediate_size, shape.mlp_in_bias
        fused = shape.gated and shape.gate_first is not None
        self.up = nn.Linear(width, 2 * inside if fused else inside, bias=bias)
        self.gate = nn.Linear(width, inside, bias=bias) if shape.gated and not fused else None
        self.activation = _build_activation(shape.activation)
        self.dropout = nn.Dropout(shape.mlp_dropout)
        self.down = nn.Linear(inside, width, bias=shape.mlp_out_bias)
        self.out_dropout = nn.Dropout(shape.mlp_out_dropout)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            # A call of dropout costs time even where it drops nothing.
            return cast(Tensor, self.down(self._compute_inner(x)))
        out: Tensor = self.out_dropout(self.down(self.dropout(self._compute_inner(x))))
        return out

    def _compute_inner(self, x: Tensor) -> Tensor:
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
    """Attention and feed-forward, each added to its input."""

    def __init__(self, shape: Architecture, layer: int) -> None:
        super().__init__()
        self.prenorm = shape.prenorm
        bare = shape.prenorm and layer == 0 and not shape.first_attention_norm
        self.attention_norm = nn.Identity() if bare else build_norm(shape)
        self.attention = _Attention(shape, layer)
        self.mlp_norm = build_norm(shape)
        self.mlp = _FeedForward(shape)

    def forward(self, x: Tensor, layout: Layout, turn: Table | None, partly: bool) -> Tensor:
        """The next hidden state.

        Args:
            x: (tokens, width).
            layout: The attention layout of the texts.
            turn: The rotations of the tokens; None without rotary positions.
            partly: Whether some computed tokens are not attended to.

        Returns:
            (tokens, width).
        """
        if self.prenorm:
            x = _add(x, self.attention(self.attention_norm(x), layout, turn, partly=partly))
        else:
            x = self.attention_norm(_add(x, self.attention(x, layout, turn, partly=partly)))
        # A compiled block would be traced again for each number of pieces, and dropout has an order.
        is_whole = self.training or torch.is_grad_enabled() or torch.compiler.is_compiling()
        if is_whole or x.device.type != "cpu" or len(x) <= PIECE:
            return self._apply_feed_forward(x)
        return torch.cat([self._apply_feed_forward(piece) for piece in x.split(PIECE)])

    def _apply_feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward part, each token alone."""
        if self.prenorm:
            return _add(x, self.mlp(self.mlp_norm(x)))
        out: Tensor = self.mlp_norm(_add(x, self.mlp(x)))
        return out


def _add(x: Tensor, part: Tensor) -> Tensor:
    """The sum, in the memory of `part` where no gradient needs it."""
    # Under autocast they differ in dtype, and the sum has that of `x`.
    return x + part if torch.is_grad_enabled() or part.dtype != x.dtype else part.add_(x)


class _Attention(nn.Module):
    """Self-attention within each text."""

    def __init__(self, shape: Architecture, layer: int) -> None:
        super().__init__()
        self.shape = shape
        self.window = shape.window(layer)
        self.slopes = _compute_alibi_slopes(shape.num_attention_heads) if shape.positions == "alibi" else None
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
        self.is_fused = False

    def needs(self, *, partly: bool) -> Needs:
        return Needs(
            window=self.window,
            slopes=self.slopes,
            dropout=self.dropout if self.training else 0.0,
            partly=partly,
            head_dim=self.shape.head_dim,
            # Cached gradients run each pass twice, which must drop the same by the same kernel.
            gradients=torch.is_grad_enabled() or self.training,
        )

    def fuse_projections(self) -> None:
        """Put the weights of queries, keys and values into one tensor each, for one product in inference."""
        if self.shape.qkv != "split":
            return
        for name in ("weight", "bias") if self.shape.qkv_bias else ("weight",):
            parts = [getattr(layer, name) for layer in (self.query, self.key, self.value)]
            rows = torch.cat([part.data for part in parts]).split([len(part) for part in parts])
            for part, own_rows in zip(parts, rows, strict=True):
                part.data = own_rows
        self.is_fused = True

    def forward(self, x: Tensor, layout: Layout, turn: Table | None, *, partly: bool) -> Tensor:
        query, key, value = self._compute_qkv(x, turn)
        attention = self._run_attention(layout, query, key, value, partly=partly)
        out: Tensor = self.out(attention.flatten(1))
        return cast(Tensor, self.out_dropout(out)) if self.training else out

    def _compute_qkv(self, x: Tensor, turn: Table | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, rotated to their places, and values, each (tokens, heads, head_dim)."""
        heads, each = self.shape.num_attention_heads, self.shape.head_dim
        if self.shape.qkv == "split":
            query, key, value = (part.unflatten(-1, (-1, each)) for part in self._project_apart(x))
            return self._rotate(query, turn), self._rotate(key, turn), value
        by_head = self.shape.qkv == "by_head"
        parts = self.qkv(x).unflatten(-1, (heads, 3, each) if by_head else (3, heads, each))
        axis = -2 if by_head else -3
        if turn is None or torch.is_grad_enabled() or x.device.type == "cpu":
            query, key, value = parts.unbind(axis)
            return self._rotate(query, turn), self._rotate(key, turn), value
        # Rotated together they need half of a GPU's launches; a gradient would need a copy of all parts.
        query, key = self._rotate(parts.narrow(axis, 0, 2).movedim(axis, 0), turn)
        return query, key, parts.select(axis, 2)

    def _rotate(self, x: Tensor, turn: Table | None) -> Tensor:
        return x if turn is None else _apply_rotation(x, turn, interleaved=self.shape.rotary_interleaved)

    def _project_apart(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values of three layers, by one product where they are fused."""
        layers = (self.query, self.key, self.value)
        joined = _join_layers(layers) if self.is_fused and not torch.is_grad_enabled() else None
        if joined is None:
            return [layer(x) for layer in layers]
        fused = nn.functional.linear(x, *joined)
        return torch.split(fused, [layer.out_features for layer in layers], dim=-1)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run_attention(
        self, layout: Layout, query: Tensor, key: Tensor, value: Tensor, *, partly: bool
    ) -> Tensor:
        """Attention outside of any compiled graph, since it depends on the present lengths."""
        return layout.compute_attention(query, key, value, self.needs(partly=partly))


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _join_layers(layers: Sequence[nn.Linear]) -> list[Tensor] | None:
    """The weight, and the bias if there is one, of all layers; None where they do not lie side by side."""
    # A layer that was wrapped, moved or replaced since the fusion has its own weights again.
    if any(type(layer) is not nn.Linear for layer in layers):
        return None
    names = ("weight",) if layers[0].bias is None else ("weight", "bias")
    joined = [_join_rows([getattr(layer, name) for layer in layers]) for name in names]
    tensors = [part for part in joined if part is not None]
    return tensors if len(tensors) == len(names) else None


def _join_rows(parts: Sequence[Tensor]) -> Tensor | None:
    """The tensors as one without a copy; None where they do not lie side by side in memory."""
    first, stop = parts[0], parts[0].storage_offset()
    for part in parts:
        if part.untyped_storage()._cdata != first.untyped_storage()._cdata or part.storage_offset() != stop:
            return None
        stop += part.numel()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())


class Pooler(nn.Module):
    """The first token through a dense layer and tanh."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        self.dense = nn.Linear(shape.hidden_size, shape.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """(texts, width) to (texts, width)."""
        return torch.tanh(self.dense(first))


class MaskedHead(nn.Module):
    """The masked-language head: from a token's vector to a score for each token of the vocabulary."""

    def __init__(self, shape: Architecture) -> None:
        super().__init__()
        head, width = shape.head, shape.hidden_size
        self.dense = nn.Linear(width, width, bias=head.dense_bias) if head.dense else nn.Identity()
        self.activation = _build_activation(head.activation) if head.dense else nn.Identity()
        eps = shape.norm_eps if head.norm_eps is None else head.norm_eps
        plain = nn.LayerNorm(width, eps=eps, bias=head.norm_bias)
        self.norm = plain if head.norm else nn.Identity()
        self.decoder = nn.Linear(width, shape.vocab_size, bias=head.decoder_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., width) to (..., vocab_size)."""
        out: Tensor = self.decoder(self.norm(self.activation(self.dense(hidden))))
        return out


def build_norm(shape: Architecture) -> nn.Module:
    """A norm over the width."""
    if shape.norm == "rms":
        return nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
    return nn.LayerNorm(shape.hidden_size, eps=shape.norm_eps, bias=shape.norm_bias)


def _build_activation(name: str) -> nn.Module:
    return cast(nn.Module, cast(Mapping[str, Any], ACT2FN)[name])


@dataclass(frozen=True, kw_only=True)
class Packing:
    """The computed tokens of a batch; its texts follow one another, the longest first.

    Attributes:
        shape: Texts and columns of the padded batch.
        index: (tokens,) place of each computed token in the flattened batch.
        positions: (tokens,) its rank among the computed tokens of its text.
        lengths: The number of computed tokens of each text that has any, falling.
        bounds: (texts that have any + 1,) the first token of each of them, and the number of tokens.
        attended: (tokens,) whether it is attended to; None where all are.
    """

    shape: tuple[int, int]
    index: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    bounds: Tensor
    attended: Tensor | None

    @staticmethod
    def from_masks(compute: Tensor, attend: Tensor) -> Packing:
        """The packing of a batch; a text without attended tokens attends to all of its computed ones."""
        compute = compute | attend
        lengths = compute.sum(dim=1)
        # Stable: where every place is computed, `pack` takes the tokens in the batch's own order.
        order = torch.argsort(lengths, descending=True, stable=True)
        ordered = compute[order]
        row, column = ordered.nonzero(as_tuple=True)
        ranks = ordered.cumsum(dim=1) - 1
        index = order[row] * compute.shape[1] + column
        # Waits for the GPU: layouts are built from lengths on the host.
        counted = tuple(length for length in lengths[order].tolist() if length)
        keys = attend | ~attend.any(dim=1, keepdim=True)
        attended = keys.flatten()[index]
        return Packing(
            shape=(compute.shape[0], compute.shape[1]),
            index=index,
            positions=ranks[row, column],
            lengths=counted,
            bounds=torch.tensor([*accumulate(counted, initial=0)], device=compute.device),
            attended=None if bool(attended.all()) else attended,
        )

    @staticmethod
    def from_sorted_masks(compute: NDArray[np.bool_], attend: NDArray[np.bool_] | None = None) -> Packing:
        """The packing, on the CPU, of a batch whose longest text is its first.

        Args:
            compute: (texts, columns), the computed tokens.
            attend: (texts, columns), those of them that are attended to; None for all.
        """
        lengths = compute.sum(axis=1)
        bounds = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
        keys = compute if attend is None else attend | ~attend.any(axis=1, keepdims=True)
        attended = keys[compute]
        index = np.flatnonzero(compute)
        return Packing(
            shape=(compute.shape[0], compute.shape[1]),
            index=torch.from_numpy(index),
            positions=torch.from_numpy(np.arange(len(index)) - np.repeat(bounds[:-1], np.diff(bounds))),
            lengths=tuple(np.diff(bounds).tolist()),
            bounds=torch.from_numpy(bounds),
            attended=None if attended.all() else torch.from_numpy(attended),
        )

    @property
    def whole(self) -> bool:
        """Whether every place of the batch is computed; the tokens are then in the batch's order."""
        return len(self.index) == self.shape[0] * self.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """(texts, columns, ...) to (tokens, ...)."""
        return padded.flatten(0, 1) if self.whole else padded.flatten(0, 1)[self.index]

    def unpack(self, packed: Tensor) -> Tensor:
        """(tokens, width) to (texts, columns, width), zero where nothing was computed."""
        texts, columns = self.shape
        width = packed.shape[-1]
        if self.whole:
            return packed.view(texts, columns, width)
        out = packed.new_zeros(texts * columns, width)
        return out.index_copy_(0, self.index, packed).view(texts, columns, width)

    def select_first_tokens(self, packed: Tensor) -> Tensor:
        """The first token of each text: (tokens, width) to (texts, width), zero for an empty text."""
        texts, columns = self.shape
        begins = self.bounds[:-1]
        out = packed.new_zeros(texts, packed.shape[-1])
        return out.index_copy_(0, self.index[begins] // max(columns, 1), packed[begins])

    def gather_text_lengths(self) -> Tensor:
        """(tokens,) the length of each token's text."""
        lengths = self.bounds.diff()
        return lengths.repeat_interleave(lengths, output_size=len(self.index))
