"""Attention over packed sequences: a layer's needs, the interface of a backend, and SDPA, for any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The needs of a layer for its attention.

    Attributes:
        window: The number of tokens seen to either side; None for all.
        slopes: ALiBi's loss per token of distance, for each head; None without ALiBi.
        dropout: The share of attention weights dropped.
        partly: Whether some computed tokens are not attended to.
        head_dim: The width of a head.
        gradients: Whether gradients may be taken of the result, or of a repetition of the pass.
    """

    window: int | None = None
    slopes: tuple[float, ...] | None = None
    dropout: float = 0.0
    partly: bool = False
    head_dim: int = 64
    gradients: bool = False


class Backend(Protocol):
    """A backend for attention over texts that are packed one after the other."""

    @property
    def name(self) -> str:
        """The name in options and records."""
        ...

    def explain_refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """The reason why it cannot run a layer, None if it can.

        Args:
            device: The device of the layer.
            dtype: The dtype of its queries, keys and values.
            needs: What the layer needs of its attention.
        """
        ...

    def build_layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """The values that are computed once for all layers of a pass.

        Args:
            lengths: The number of tokens of each text, falling, none of them 0.
            attended: (tokens,) bool, the tokens that others attend to, at least one of each text; None for
                all.
            device: The device of the tokens.
        """
        ...


class Layout(Protocol):
    """The layout of the texts of one pass for a backend."""

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """The result of attention within each text, zeros for a token that sees no attended token.

        Args:
            query: (tokens, heads, head_dim).
            key: (tokens, key and value heads, head_dim).
            value: Like `key`.
            needs: The needs of the layer.

        Returns:
            (tokens, heads, head_dim).
        """
        ...


class Nothing:
    """The layout of an empty list of texts."""

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.compute_attention`."""
        return query


# SDPA: few calls on a GPU, and on a CPU one for each group of texts of nearly one length


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """The window, ALiBi slopes, attended tokens, device and dtype, on which the masks of a layer depend."""

    window: int | None
    slopes: tuple[float, ...] | None
    attended: Tensor | None
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class _Mask:
    """The mask of a call: `bias` is added to scores; results of `blind` queries (no key seen) become 0."""

    bias: Tensor | None = None
    blind: Tensor | None = None


def _is_apart(device: torch.device) -> bool:
    """Whether a device is not the CPU, so that few calls count for more than computed padding."""
    return device.type != "cpu"


def send_numbers(values: Sequence[float], device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """The numbers as a tensor, (numbers,), copied to its device without waiting for it."""
    # On MPS such a copy may come after the memory is used again.
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=device.type == "cuda")


ALIGNED = 8
"""A GPU copies a bias in each layer unless its rows have a multiple of this length."""


def _align_length(length: int, device: torch.device) -> int:
    return -(-length // ALIGNED) * ALIGNED if _is_apart(device) else length


def _build_additive_mask(
    allowed: Tensor, dtype: torch.dtype, *, bias: Tensor | None = None, blind: bool = False
) -> _Mask:
    sees = allowed.any(dim=-1, keepdim=True)
    base = torch.zeros((), dtype=dtype, device=allowed.device) if bias is None else bias
    # A row of -inf alone gives NaN: a query that sees no key sees all here, and its result becomes 0.
    added = torch.where(allowed | ~sees, base, float("-inf"))
    return _Mask(bias=added.to(dtype), blind=~sees if blind else None)


def _compute_masked_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: _Mask, *, dropout: float
) -> Tensor:
    """scaled_dot_product_attention under a mask, all tensors (batch, heads, tokens, head_dim)."""
    grouped = key.shape[1] != query.shape[1]
    if grouped and _is_apart(query.device):
        # With fewer heads of keys, SDPA has no fused kernel of a GPU that takes a bias.
        groups, grouped = query.shape[1] // key.shape[1], False
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    out = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.bias, dropout_p=dropout, enable_gqa=grouped
    )
    return out if mask.blind is None else out.masked_fill(mask.blind, 0.0)


Span = tuple[int, int]
"""The first of texts or tokens, and the first behind the last."""

SMALLEST = 32
"""The tokens of a block where the window is smaller."""


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """The packed tokens at `span` in blocks that see their neighbours; `size` is at least the window."""

    span: Span
    size: int
    mask: _Mask

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens, heads, head_dim)."""
        tokens = self.span[1] - self.span[0]
        filled = nn.functional.pad(query[slice(*self.span)], (0, 0, 0, 0, 0, -tokens % self.size))
        queries = filled.unflatten(0, (-1, self.size)).transpose(1, 2)
        out = _compute_masked_attention(
            queries, self._gather_neighbors(key), self._gather_neighbors(value), self.mask, dropout=dropout
        )
        return out.transpose(1, 2).flatten(0, 1)[:tokens]

    def _gather_neighbors(self, packed: Tensor) -> Tensor:
        """Each block with its neighbours, (blocks, heads, 3 * size, head_dim), as a view of one copy."""
        after = self.size + (self.span[0] - self.span[1]) % self.size
        filled = nn.functional.pad(packed[slice(*self.span)], (0, 0, 0, 0, self.size, after))
        return filled.unfold(0, 3 * self.size, self.size).transpose(-1, -2)


def _compute_block_size(window: int) -> int:
    return max(window, SMALLEST)


def _build_blocks(lengths: Sequence[int], start: int, kind: _Kind) -> _Blocks:
    """The blocks of texts from the token `start` on, for a layer with a window and without ALiBi."""
    assert kind.window is not None
    tokens, size = sum(lengths), _compute_block_size(kind.window)
    count, fill = -(-tokens // size), -tokens % size
    first, last = _compute_reach(lengths, kind.window, kind.device)
    # The filling of the last block sees no key.
    first = nn.functional.pad(first, (0, fill)).view(count, size, 1)
    last = nn.functional.pad(last, (0, fill), value=-1).view(count, size, 1)
    begins = torch.arange(-size, (count - 1) * size, size, device=kind.device, dtype=torch.int32)
    key = begins[:, None, None] + torch.arange(3 * size, device=kind.device, dtype=torch.int32)
    allowed = (first <= key) & (key <= last)
    if kind.attended is not None:
        seen = kind.attended[start : start + tokens]
        near = nn.functional.pad(seen, (size, size + fill)).unfold(0, 3 * size, size)
        allowed = allowed & near[:, None]
    mask = _build_additive_mask(allowed[:, None], kind.dtype, blind=kind.attended is not None)
    return _Blocks(span=(start, start + tokens), size=size, mask=mask)


SLACK = 8
"""The largest difference between the lengths of a group's texts."""

MASKED_TOKENS = 4096
"""The most padded tokens of a group whose texts differ in length."""


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Texts that share one call, of up to `length` tokens, at `span` of the packed tokens.

    `gather` (texts * length,) maps places to tokens and `places` tokens to places; None for equal lengths.
    """

    texts: int
    length: int
    span: Span
    gather: Tensor | None
    places: Tensor | None
    mask: _Mask

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens of the group, heads, head_dim)."""
        query, key, value = (self._pad_tokens(packed) for packed in (query, key, value))
        out = _compute_masked_attention(query, key, value, self.mask, dropout=dropout)
        flat = out.transpose(1, 2).flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def _pad_tokens(self, packed: Tensor) -> Tensor:
        """(tokens, heads, head_dim) to (texts, heads, length, head_dim)."""
        gathered = packed[slice(*self.span)] if self.gather is None else packed.index_select(0, self.gather)
        return gathered.view(self.texts, self.length, *gathered.shape[1:]).transpose(1, 2)


def _split_spans(count: int, can_fit: Callable[[int, int], bool]) -> list[Span]:
    """Spans of so many texts, each as long as it fits; a text that does not fit has a span of its own.

    >>> _split_spans(5, lambda start, stop: stop - start <= 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    spans: list[Span] = []
    start = 0
    for stop in range(1, count + 1):
        if stop == count or not can_fit(start, stop + 1):
            spans.append((start, stop))
            start = stop
    return spans


def _build_text_group(lengths: Sequence[int], start: int, kind: _Kind, bias: Tensor | None) -> _Group:
    """The group of these texts, whose first token is at `start`; `bias` may be for longer texts."""
    texts, length, tokens = len(lengths), lengths[0], sum(lengths)
    span = (start, start + tokens)
    keys = gather = places = None
    if lengths[-1] != length:
        length = _align_length(length, kind.device)
        counts = send_numbers(lengths, kind.device)[:, None]
        place = torch.arange(length, device=kind.device)
        keys, begins = place < counts, counts.cumsum(0) - counts
        # Padding repeats the last token of its text; the mask hides it, so any valid place would do.
        gather = (start + begins + torch.minimum(place, counts - 1)).flatten()
        rows = torch.arange(texts, device=kind.device)[:, None] * length - begins
        shift = rows.flatten().repeat_interleave(counts.flatten(), output_size=tokens)
        places = shift + torch.arange(tokens, device=kind.device)
    if kind.attended is not None:
        seen = (kind.attended[slice(*span)] if gather is None else kind.attended[gather]).view(texts, length)
        keys = seen if keys is None else keys & seen
    mask = _mask(keys, length, kind, bias)
    return _Group(texts=texts, length=length, span=span, gather=gather, places=places, mask=mask)


def _mask(keys: Tensor | None, length: int, kind: _Kind, bias: Tensor | None) -> _Mask:
    """The mask of a group with its attended tokens `keys` (texts, length); None for all."""
    allowed = None if keys is None else keys[:, None, None]
    cut_bias = None if bias is None else bias[..., :length, :length]
    # A window over the whole text masks nothing, and without a mask SDPA can take a faster kernel.
    window = kind.window if kind.window is not None and kind.window < length - 1 else None
    if window is not None:
        place = torch.arange(length, device=kind.device)
        near = ((place[:, None] - place).abs() <= window)[None, None]
        allowed = near if allowed is None else near & allowed
    if allowed is None:
        return _Mask(bias=cut_bias)
    blind = window is not None and kind.attended is not None
    return _build_additive_mask(allowed, kind.dtype, bias=cut_bias, blind=blind)


def _compute_alibi_bias(length: int, kind: _Kind) -> Tensor | None:
    """ALiBi's loss for texts up to that length, (1, heads, length, length); None without ALiBi."""
    if kind.slopes is None:
        return None
    place = torch.arange(length, device=kind.device)
    distance = (place[:, None] - place).abs()
    slopes = send_numbers(kind.slopes, kind.device)[None, :, None, None]
    return (-slopes * distance).to(kind.dtype)


CALL_BYTES = 512 * 2**20
"""The most bytes of the mask of a call on a GPU, and of its padded queries."""

BLOCKS_FROM = 2
"""The number of blocks above which a text of a windowed layer is cut into blocks."""


class Sdpa:
    """The backend that is always available."""

    name = "sdpa"

    def explain_refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """None: it supports every layer."""
        return None

    def build_layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """The texts; their groups depend on the needs of a layer."""
        return _Texts(lengths=tuple(lengths), attended=attended, device=device) if lengths else Nothing()


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """A layout of texts by falling `lengths`, with the `calls` so far by window, slopes and dtype."""

    lengths: tuple[int, ...]
    attended: Tensor | None
    device: torch.device
    calls: dict[tuple[object, ...], list[_Group | _Blocks]] = field(default_factory=dict)

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        # The texts are fixed, so these three decide the masks; layers of one kind share them.
        call_key = (needs.window, needs.slopes, query.dtype)
        if call_key not in self.calls:
            self.calls[call_key] = [*self._iter_calls(needs, query)]
        parts = [
            call.compute_attention(query, key, value, dropout=needs.dropout) for call in self.calls[call_key]
        ]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _iter_calls(self, needs: Needs, query: Tensor) -> Iterator[_Group | _Blocks]:
        kind = _Kind(
            window=needs.window,
            slopes=needs.slopes,
            attended=self.attended,
            device=self.device,
            dtype=query.dtype,
        )
        starts = [*accumulate(self.lengths, initial=0)]
        long = self._count_block_texts(needs)
        for start, stop in self._split_blocks(long, starts, kind):
            yield _build_blocks(self.lengths[start:stop], starts[start], kind)
        if not self.lengths[long:]:
            return
        bias = _compute_alibi_bias(_align_length(self.lengths[long], self.device), kind)
        for start, stop in self._split_groups(long, kind, query):
            yield _build_text_group(self.lengths[start:stop], starts[start], kind, bias)

    def _count_block_texts(self, needs: Needs) -> int:
        """The number of texts, the longest ones, that are computed in blocks."""
        if needs.window is None or needs.slopes is not None:
            return 0
        least = BLOCKS_FROM * _compute_block_size(needs.window)
        # Lengths fall, so the long texts are the first ones.
        long = sum(length > least for length in self.lengths)
        return len(self.lengths) if long and _is_apart(self.device) else long

    def _split_blocks(self, texts: int, starts: Sequence[int], kind: _Kind) -> list[Span]:
        """The first texts in one span, on a GPU in as few as memory allows."""
        row = 3 * _compute_block_size(kind.window or 0) * kind.dtype.itemsize
        apart = _is_apart(kind.device)
        return _split_spans(
            texts, lambda start, stop: not apart or (starts[stop] - starts[start]) * row <= CALL_BYTES
        )

    def _split_groups(self, first: int, kind: _Kind, query: Tensor) -> list[Span]:
        """The other texts in groups of nearly one length, on a GPU in as few as memory allows."""
        lengths = self.lengths
        # With a bias, only texts of equal length share a group on a CPU, and so the bias.
        slack = SLACK if kind.slopes is None else 0

        def can_fit(start: int, stop: int) -> bool:
            longest, shortest, texts = lengths[first + start], lengths[first + stop - 1], stop - start
            if not _is_apart(kind.device):
                # For short texts a call of their own costs more than a few padding tokens.
                is_near = longest - shortest <= min(slack, longest // 2)
                return shortest == longest or (is_near and longest * texts <= MASKED_TOKENS)
            # The numbers in a mask for each token of a text.
            columns = 1
            if longest != shortest or kind.attended is not None:
                columns = 1 if kind.window is None else longest
                columns = columns if kind.slopes is None else query.shape[1] * longest
            row = max(columns, query.shape[1] * query.shape[2]) * kind.dtype.itemsize
            return texts * longest * row <= CALL_BYTES

        return [(first + start, first + stop) for start, stop in _split_spans(len(lengths) - first, can_fit)]


def _compute_reach(lengths: Sequence[int], window: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first and the last token that each token sees: its own text, cut to a window.

    Args:
        lengths: The number of tokens of each text.
        window: The number of tokens seen to either side; None for all.
        device: The device of the result.

    Returns:
        Two tensors of shape (tokens,), int32.

    >>> import torch
    >>> [ends.tolist() for ends in _compute_reach([3, 2], 1, torch.device("cpu"))]
    [[0, 0, 1, 3, 3], [1, 2, 2, 4, 4]]
    """
    tokens = sum(lengths)
    counts = send_numbers(lengths, device)
    stops = counts.cumsum(0)
    first = torch.repeat_interleave(stops - counts, counts, output_size=tokens).int()
    last = torch.repeat_interleave(stops - 1, counts, output_size=tokens).int()
    if window is None:
        return first, last
    ranks = torch.arange(tokens, device=device, dtype=torch.int32)
    return torch.maximum(first, ranks - window), torch.minimum(last, ranks + window)
