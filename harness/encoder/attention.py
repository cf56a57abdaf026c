"""Attention over packed sequences: an interface, backends of CUDA kernels, and SDPA for any device."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor, nn

from harness.core.errors import explain_unknown


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The needs of a layer for its attention.

    Attributes:
        window: The number of tokens seen to either side; None for all.
        slopes: ALiBi's loss per token of distance, for each head; None without ALiBi.
        dropout: The share of attention weights dropped.
        partly: Whether some computed tokens are not attended to.
        head_dim: The width of a head.
    """

    window: int | None = None
    slopes: tuple[float, ...] | None = None
    dropout: float = 0.0
    partly: bool = False
    head_dim: int = 64


class Backend(Protocol):
    """A backend for attention over texts that are packed one after the other."""

    name: str

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


WIDEST_HEAD, HEAD_STEP = 256, 8
"""The widest heads of FlashAttention's kernels, and the step of widths."""


class _Varlen:
    name = "varlen"

    def explain_refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        if not _has_varlen():
            return "this torch has no varlen_attn with windows"
        if needs.slopes is not None:
            return "it knows no ALiBi"
        return _explain_kernel_refusal(device, dtype, needs) or (
            "it drops no attention" if needs.dropout else None
        )

    def build_layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        return _compute_bounds(lengths, attended, device) if lengths else Nothing()


@functools.cache
def _has_varlen() -> bool:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    # The function came before its windows, so only the signature tells.
    return "window_size" in inspect.signature(varlen_attn).parameters


def _explain_kernel_refusal(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    """The reason why FlashAttention's kernels cannot run this layer, None if they can."""
    if device.type != "cuda":
        return "it needs a GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    if dtype not in (torch.float16, torch.bfloat16):
        return "it needs float16 or bfloat16"
    if needs.head_dim > WIDEST_HEAD or needs.head_dim % HEAD_STEP:
        return f"it takes heads of up to {WIDEST_HEAD} dimensions, a multiple of {HEAD_STEP}"
    # Keys that are not attended to are left out, and the kernel's window counts the keys that remain.
    if needs.partly and needs.window is not None:
        return "it has no window where not all tokens are attended to"
    return None


@dataclass(frozen=True, kw_only=True)
class _Bounds:
    """The first tokens of texts among queries and attended keys, (texts + 1,) int32; `kept` None: all."""

    queries: Tensor
    keys: Tensor
    longest: tuple[int, int]
    kept: Tensor | None

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        key, value = self.select_tokens(key), self.select_tokens(value)
        # varlen_attn takes as many heads of keys as of queries.
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        window = _convert_window(needs)
        out = varlen_attn(query, key, value, self.queries, self.keys, *self.longest, window_size=window)
        assert not isinstance(out, tuple)
        return out

    def select_tokens(self, packed: Tensor) -> Tensor:
        """The attended tokens only."""
        return packed if self.kept is None else packed[self.kept]


def _convert_window(needs: Needs) -> tuple[int, int]:
    """The tokens seen to the left and to the right; -1 for all, as in FlashAttention."""
    return (-1, -1) if needs.window is None else (needs.window, needs.window)


def _compute_bounds(lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> _Bounds:
    """The bounds of texts, and of the attended tokens within them; see `Backend.build_layout`."""
    longest = lengths[0]
    queries = torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32, device=device)
    if attended is None:
        return _Bounds(queries=queries, keys=queries, longest=(longest, longest), kept=None)
    before = torch.cat([attended.new_zeros(1, dtype=torch.int32), attended.cumsum(0, dtype=torch.int32)])
    keys = before[queries.long()]
    # The kernel wants this number on the host, so this waits for the GPU, once a pass.
    most = int(keys.diff().max())
    return _Bounds(queries=queries, keys=keys, longest=(longest, most), kept=attended.nonzero().flatten())


class _Flash:
    """FlashAttention 2 with dropout and ALiBi."""

    name = "flash"

    def explain_refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        if (missing := _explain_flash_absence()) is not None:
            return missing
        # ALiBi's distances would count the packed keys, of which some are left out.
        if needs.slopes is not None and needs.partly:
            return "it has no ALiBi where not all tokens are attended to"
        return _explain_kernel_refusal(device, dtype, needs)

    def build_layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        return _FlashBounds(bounds=_compute_bounds(lengths, attended, device)) if lengths else Nothing()


@functools.cache
def _explain_flash_absence() -> str | None:
    """The reason why the package cannot be used; a build for another torch does not import."""
    if importlib.util.find_spec("flash_attn") is None:
        return "flash-attn is not installed"
    try:
        import flash_attn  # noqa: F401
    except (ImportError, OSError) as error:
        return f"flash-attn does not import ({error})"
    return None


@dataclass(frozen=True, kw_only=True)
class _FlashBounds:
    bounds: _Bounds

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        from flash_attn import flash_attn_varlen_func

        bounds = self.bounds
        slopes = None
        if needs.slopes is not None:
            # flash-attn takes slopes in float32 only, whatever the dtype of the queries.
            slopes = torch.tensor(needs.slopes, dtype=torch.float32, device=query.device)
        out: Tensor = flash_attn_varlen_func(
            query,
            bounds.select_tokens(key),
            bounds.select_tokens(value),
            bounds.queries,
            bounds.keys,
            *bounds.longest,
            dropout_p=needs.dropout,
            window_size=_convert_window(needs),
            alibi_slopes=slopes,
        )
        return out


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
    out = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.bias, dropout_p=dropout, enable_gqa=grouped
    )
    return out if mask.blind is None else out.masked_fill(mask.blind, 0.0)


SMALLEST = 32
"""The tokens of a block where the window is smaller."""


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """The first `tokens` packed tokens in blocks that see their neighbours; `size` is at least the window."""

    tokens: int
    size: int
    mask: _Mask

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens, heads, head_dim)."""
        filled = nn.functional.pad(query[: self.tokens], (0, 0, 0, 0, 0, -self.tokens % self.size))
        queries = filled.unflatten(0, (-1, self.size)).transpose(1, 2)
        out = _compute_masked_attention(
            queries, self._gather_neighbors(key), self._gather_neighbors(value), self.mask, dropout=dropout
        )
        return out.transpose(1, 2).flatten(0, 1)[: self.tokens]

    def _gather_neighbors(self, packed: Tensor) -> Tensor:
        """Each block with its neighbours, (blocks, heads, 3 * size, head_dim), as a view of one copy."""
        after = self.size + -self.tokens % self.size
        filled = nn.functional.pad(packed[: self.tokens], (0, 0, 0, 0, self.size, after))
        return filled.unfold(0, 3 * self.size, self.size).transpose(-1, -2)


def _compute_block_size(window: int) -> int:
    return max(window, SMALLEST)


def _build_blocks(lengths: Sequence[int], kind: _Kind) -> _Blocks:
    """The blocks of the first texts, for a layer with a window and without ALiBi."""
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
        near = nn.functional.pad(kind.attended[:tokens], (size, size + fill)).unfold(0, 3 * size, size)
        allowed = allowed & near[:, None]
    mask = _build_additive_mask(allowed[:, None], kind.dtype, blind=kind.attended is not None)
    return _Blocks(tokens=tokens, size=size, mask=mask)


SLACK = 8
"""The largest difference between the lengths of a group's texts."""

MASKED_TOKENS = 4096
"""The most padded tokens of a group whose texts differ in length."""

Span = tuple[int, int]


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


def _split_spans(lengths: Sequence[int], slack: int = SLACK) -> list[Span]:
    """Spans of texts, longest first, of one length, or of nearly one where texts are short.

    >>> _split_spans([300, 300, 200, 12, 10, 9])
    [(0, 2), (2, 3), (3, 6)]
    >>> _split_spans([12, 10, 10], slack=0)
    [(0, 1), (1, 3)]
    """
    spans: list[Span] = []
    start = 0
    for stop in range(1, len(lengths) + 1):
        if stop == len(lengths) or not _can_share_group(
            lengths[start], lengths[stop], stop - start + 1, slack
        ):
            spans.append((start, stop))
            start = stop
    return spans


def _can_share_group(longest: int, length: int, texts: int, slack: int) -> bool:
    if length == longest:
        return True
    # For short texts a call of their own costs more than a few padding tokens.
    return longest - length <= min(slack, longest // 2) and longest * texts <= MASKED_TOKENS


def _build_text_group(lengths: Sequence[int], start: int, kind: _Kind, bias: Tensor | None) -> _Group:
    """The group of these texts, whose first token is at `start`; `bias` may be for longer texts."""
    texts, length = len(lengths), lengths[0]
    span = (start, start + sum(lengths))
    keys = gather = places = None
    if lengths[-1] != length:
        counts = torch.tensor(lengths, device=kind.device)[:, None]
        place = torch.arange(length, device=kind.device)
        keys = place < counts
        # Padding repeats the last token of its text; the mask hides it, so any valid place would do.
        gather = (start + counts.cumsum(0) - counts + torch.minimum(place, counts - 1)).flatten()
        places = keys.flatten().nonzero().flatten()
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
    slopes = torch.tensor(kind.slopes, device=kind.device)[None, :, None, None]
    return (-slopes * distance).to(kind.dtype)


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
            self.calls[call_key] = [*self._iter_calls(needs, query.dtype)]
        parts = [
            call.compute_attention(query, key, value, dropout=needs.dropout) for call in self.calls[call_key]
        ]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _iter_calls(self, needs: Needs, dtype: torch.dtype) -> Iterator[_Group | _Blocks]:
        kind = _Kind(
            window=needs.window,
            slopes=needs.slopes,
            attended=self.attended,
            device=self.device,
            dtype=dtype,
        )
        long = 0
        if needs.window is not None and needs.slopes is None:
            least = BLOCKS_FROM * _compute_block_size(needs.window)
            # Lengths fall, so the long texts are the first ones.
            long = sum(length > least for length in self.lengths)
        if long:
            yield _build_blocks(self.lengths[:long], kind)
        if self.lengths[long:]:
            yield from self._iter_groups(long, kind)

    def _iter_groups(self, first: int, kind: _Kind) -> Iterator[_Group]:
        lengths = self.lengths[first:]
        starts = [*accumulate(self.lengths, initial=0)][first:]
        bias = _compute_alibi_bias(lengths[0], kind)
        # With a bias, only texts of equal length share a group, and so the bias.
        for a, b in _split_spans(lengths, SLACK if bias is None else 0):
            yield _build_text_group(lengths[a:b], starts[a], kind, bias)


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
    counts = torch.tensor(lengths, device=device)
    stops = counts.cumsum(0)
    first = torch.repeat_interleave(stops - counts, counts, output_size=tokens).int()
    last = torch.repeat_interleave(stops - 1, counts, output_size=tokens).int()
    if window is None:
        return first, last
    ranks = torch.arange(tokens, device=device, dtype=torch.int32)
    return torch.maximum(first, ranks - window), torch.minimum(last, ranks + window)


BACKENDS: dict[str, Backend] = {b.name: b for b in (_Varlen(), _Flash(), Sdpa())}
"""The backends in the order in which they are tried on a GPU."""

AUTO = "auto"

LIBRARY_NAMES = {"flash_attention_2": "flash"}
"""transformers' names of attention mapped to ours, for backends that run only on request."""

HALF = 2
"""The bytes of a number in half precision."""


def choose(
    device: torch.device, dtype: torch.dtype, needs: Needs, asked: str = AUTO
) -> tuple[Backend, str | None]:
    """The backend for a layer, and the reason why it is not the preferred or requested backend, or None.

    The default is SDPA on a CPU. On a GPU in half precision SDPA runs only where no other kernel can, with a
    note.

    Args:
        device: The device of the layer.
        dtype: The dtype of its queries, keys and values.
        needs: What the layer needs of its attention.
        asked: The name of the requested backend.

    Raises:
        UsageError: There is no backend of that name.
    """
    if asked == AUTO:
        tried = BACKENDS.values() if device.type == "cuda" else [BACKENDS["sdpa"]]
        refused = {b.name: b.explain_refusal(device, dtype, needs) for b in tried}
        backend = next(BACKENDS[name] for name, reason in refused.items() if reason is None)
        # In float32 no other kernel exists, so SDPA is what the user expects and needs no note.
        slow = backend.name == "sdpa" and device.type == "cuda" and dtype.itemsize == HALF
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items() if reason is not None)
        return backend, f"sdpa was used for attention ({reasons})" if slow else None
    if asked not in BACKENDS:
        raise explain_unknown(
            "attention backend", asked, [AUTO, *BACKENDS], then=f"{AUTO!r} takes what fits best."
        )
    reason = BACKENDS[asked].explain_refusal(device, dtype, needs)
    if reason is None:
        return BACKENDS[asked], None
    instead, _ = choose(device, dtype, needs)
    return instead, f"attention backend {asked}: {reason}, so {instead.name} was used"
