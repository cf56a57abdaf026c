"""CPU and fallback: windows, groups, masks.

torch's scaled_dot_product_attention without padding: any device, any dtype, whatever is needed.

Windowed attention in blocks: time and memory grow with the tokens, not with their square.

Texts of one length, or of nearly one, attended in one call.

Masks for torch's scaled_dot_product_attention that leave no row without a key.

Which stretch of the packed tokens each token may see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from harness.encoder.attention.interface import Layout, Needs, Nothing

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What the masks of one kind of layer depend on, beside the lengths of the texts.

    Attributes:
        window: How far a token sees to either side; None for everything.
        slopes: ALiBi's loss per token of distance, for each head; None without ALiBi.
        attended: (tokens,) bool, what is attended to; None for everything.
        device: Where the tokens are.
        dtype: That of the queries.
    """

    window: int | None
    slopes: tuple[float, ...] | None
    attended: Tensor | None
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class _Mask:
    """What is added to the scores of one call.

    A softmax over nothing is NaN in some kernels, so a query that may see no key sees all of them,
    and what it finds is set to zero where the query is a token.

    Attributes:
        bias: Shape that broadcasts to (batch, heads, queries, keys); None for nothing.
        blind: (batch, 1, queries, 1) bool, the tokens that see no key; None if there is none.
    """

    bias: Tensor | None = None
    blind: Tensor | None = None


def _additive_mask(
    allowed: Tensor, dtype: torch.dtype, *, bias: Tensor | None = None, blind: bool = False
) -> _Mask:
    """The mask that allows these pairs."""
    import torch

    sees = allowed.any(dim=-1, keepdim=True)
    base = torch.zeros((), dtype=dtype, device=allowed.device) if bias is None else bias
    added = torch.where(allowed | ~sees, base, float("-inf"))
    return _Mask(bias=added.to(dtype), blind=~sees if blind else None)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: _Mask, *, dropout: float) -> Tensor:
    """scaled_dot_product_attention under a mask, all tensors (batch, heads, tokens, head_dim)."""
    import torch.nn.functional as f

    grouped = key.shape[1] != query.shape[1]
    out = f.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.bias, dropout_p=dropout, enable_gqa=grouped
    )
    return out if mask.blind is None else out.masked_fill(mask.blind, 0.0)


SMALLEST = 32
"""Tokens of a block where the window is smaller."""


@dataclass(frozen=True, kw_only=True)
class _Blocks:
    """Texts in one row, cut into blocks that see themselves and their two neighbours.

    Attributes:
        tokens: Tokens of these texts, which stand first of all.
        size: Tokens of a block, at least the window.
        mask: For (blocks, heads, size, 3 * size).
    """

    tokens: int
    size: int
    mask: _Mask

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens, heads, head_dim)."""
        import torch.nn.functional as f

        filled = f.pad(query[: self.tokens], (0, 0, 0, 0, 0, -self.tokens % self.size))
        queries = filled.unflatten(0, (-1, self.size)).transpose(1, 2)
        out = _attend(queries, self._threes(key), self._threes(value), self.mask, dropout=dropout)
        return out.transpose(1, 2).flatten(0, 1)[: self.tokens]

    def _threes(self, packed: Tensor) -> Tensor:
        """Each block with its neighbours, (blocks, heads, 3 * size, head_dim), as a view of one copy."""
        import torch.nn.functional as f

        after = self.size + -self.tokens % self.size
        filled = f.pad(packed[: self.tokens], (0, 0, 0, 0, self.size, after))
        return filled.unfold(0, 3 * self.size, self.size).transpose(-1, -2)


def _block_size(window: int) -> int:
    """Tokens of a block for that window."""
    return max(window, SMALLEST)


def _blocks(lengths: Sequence[int], kind: _Kind) -> _Blocks:
    """The blocks of texts that stand first of all, for a layer with a window and without ALiBi."""
    import torch
    import torch.nn.functional as f

    assert kind.window is not None
    tokens, size = sum(lengths), _block_size(kind.window)
    count, fill = -(-tokens // size), -tokens % size
    first, last = reach(lengths, kind.window, kind.device)
    # What fills the last block sees nothing.
    first = f.pad(first, (0, fill)).view(count, size, 1)
    last = f.pad(last, (0, fill), value=-1).view(count, size, 1)
    begins = torch.arange(-size, (count - 1) * size, size, device=kind.device, dtype=torch.int32)
    key = begins[:, None, None] + torch.arange(3 * size, device=kind.device, dtype=torch.int32)
    allowed = (first <= key) & (key <= last)
    if kind.attended is not None:
        near = f.pad(kind.attended[:tokens], (size, size + fill)).unfold(0, 3 * size, size)
        allowed = allowed & near[:, None]
    made = _additive_mask(allowed[:, None], kind.dtype, blind=kind.attended is not None)
    return _Blocks(tokens=tokens, size=size, mask=made)


SLACK = 8
"""Columns by which the shortest text of a group may fall short of its longest."""

MASKED_TOKENS = 4096
"""Padded tokens of a group whose texts differ in length."""

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Texts that are attended in one call.

    Attributes:
        texts: How many there are.
        length: Tokens of the longest.
        span: Its tokens among all packed ones.
        gather: (texts * length,) the token in each place, its text's last one behind the end; None
            where all texts have the same length.
        places: (tokens of the group,) the place of each token; None likewise.
        mask: For (texts, heads, length, length).
    """

    texts: int
    length: int
    span: Span
    gather: Tensor | None
    places: Tensor | None
    mask: _Mask

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens of the group, heads, head_dim)."""
        query, key, value = (self._padded(packed) for packed in (query, key, value))
        found = _attend(query, key, value, self.mask, dropout=dropout)
        flat = found.transpose(1, 2).flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def _padded(self, packed: Tensor) -> Tensor:
        """(tokens, heads, head_dim) to (texts, heads, length, head_dim)."""
        found = packed[slice(*self.span)] if self.gather is None else packed.index_select(0, self.gather)
        return found.view(self.texts, self.length, *found.shape[1:]).transpose(1, 2)


def _spans(lengths: Sequence[int], slack: int = SLACK) -> list[Span]:
    """Cut texts, longest first, into runs of one length, or of nearly one where texts are short.

    >>> _spans([300, 300, 200, 12, 10, 9])
    [(0, 2), (2, 3), (3, 6)]
    >>> _spans([12, 10, 10], slack=0)
    [(0, 1), (1, 3)]
    """
    found: list[Span] = []
    start = 0
    for at in range(1, len(lengths) + 1):
        if at == len(lengths) or not _together(lengths[start], lengths[at], at - start + 1, slack):
            found.append((start, at))
            start = at
    return found


def _together(longest: int, length: int, texts: int, slack: int) -> bool:
    if length == longest:
        return True
    return longest - length <= min(slack, longest // 2) and longest * texts <= MASKED_TOKENS


def _group(lengths: Sequence[int], start: int, kind: _Kind, bias: Tensor | None) -> _Group:
    """The group of these texts, the first token of which is the one at `start` of all packed ones.

    `bias` is from `alibi`, for texts that may be longer; None without ALiBi.
    """
    import torch

    texts, length = len(lengths), lengths[0]
    span = (start, start + sum(lengths))
    keys = gather = places = None
    if lengths[-1] != length:
        counts = torch.tensor(lengths, device=kind.device)[:, None]
        place = torch.arange(length, device=kind.device)
        keys = place < counts
        gather = (start + counts.cumsum(0) - counts + torch.minimum(place, counts - 1)).flatten()
        places = keys.flatten().nonzero().flatten()
    if kind.attended is not None:
        seen = (kind.attended[slice(*span)] if gather is None else kind.attended[gather]).view(texts, length)
        keys = seen if keys is None else keys & seen
    made = _mask(keys, length, kind, bias)
    return _Group(texts=texts, length=length, span=span, gather=gather, places=places, mask=made)


def _mask(keys: Tensor | None, length: int, kind: _Kind, bias: Tensor | None) -> _Mask:
    """The mask of a group, of which `keys` (texts, length) may be attended to; None for all."""
    import torch

    allowed = None if keys is None else keys[:, None, None]
    own = None if bias is None else bias[..., :length, :length]
    window = kind.window if kind.window is not None and kind.window < length - 1 else None
    if window is not None:
        place = torch.arange(length, device=kind.device)
        near = ((place[:, None] - place).abs() <= window)[None, None]
        allowed = near if allowed is None else near & allowed
    if allowed is None:
        return _Mask(bias=own)
    blind = window is not None and kind.attended is not None
    return _additive_mask(allowed, kind.dtype, bias=own, blind=blind)


def _alibi(length: int, kind: _Kind) -> Tensor | None:
    """ALiBi's loss for texts of up to that length: (1, heads, length, length); None without it."""
    import torch

    if kind.slopes is None:
        return None
    place = torch.arange(length, device=kind.device)
    distance = (place[:, None] - place).abs()
    slopes = torch.tensor(kind.slopes, device=kind.device)[None, :, None, None]
    return (-slopes * distance).to(kind.dtype)


BLOCKS_FROM = 2
"""Windowed layers go by blocks for texts of more than so many blocks."""


class Sdpa:
    """The backend that is always there."""

    name = "sdpa"

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """None: it can do everything."""
        return None

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """The texts; how they are grouped depends on what a layer needs."""
        return _Texts(lengths=tuple(lengths), attended=attended, device=device) if lengths else Nothing()


@dataclass(frozen=True, kw_only=True)
class _Texts:
    """A layout, with the calls worked out so far for each kind of layer.

    Attributes:
        lengths: Tokens of each text, falling.
        attended: (tokens,) bool, what is attended to; None for everything.
        device: Where the tokens are.
        calls: By window, slopes and dtype.
    """

    lengths: tuple[int, ...]
    attended: Tensor | None
    device: torch.device
    calls: dict[tuple[object, ...], list[_Group | _Blocks]] = field(default_factory=dict)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.attend`."""
        import torch

        known = (needs.window, needs.slopes, query.dtype)
        if known not in self.calls:
            self.calls[known] = [*self._worked_out(needs, query.dtype)]
        parts = [call.attend(query, key, value, dropout=needs.dropout) for call in self.calls[known]]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _worked_out(self, needs: Needs, dtype: torch.dtype) -> Iterator[_Group | _Blocks]:
        kind = _Kind(
            window=needs.window,
            slopes=needs.slopes,
            attended=self.attended,
            device=self.device,
            dtype=dtype,
        )
        long = 0
        if needs.window is not None and needs.slopes is None:
            least = BLOCKS_FROM * _block_size(needs.window)
            long = sum(length > least for length in self.lengths)
        if long:
            yield _blocks(self.lengths[:long], kind)
        if self.lengths[long:]:
            yield from self._groups(long, kind)

    def _groups(self, first: int, kind: _Kind) -> Iterator[_Group]:
        """Groups of the texts from `first` on."""
        lengths = self.lengths[first:]
        starts = [*accumulate(self.lengths, initial=0)][first:]
        bias = _alibi(lengths[0], kind)
        # With a bias, texts of one length share it as it is.
        for a, b in _spans(lengths, SLACK if bias is None else 0):
            yield _group(lengths[a:b], starts[a], kind, bias)


def reach(lengths: Sequence[int], window: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first and the last token that each token sees: its own text, cut to a window.

    Args:
        lengths: Tokens of each text.
        window: How far a token sees to either side; None for everything.
        device: Where the result is to be.

    Returns:
        Two of shape (tokens,), int32.

    >>> import torch
    >>> [ends.tolist() for ends in reach([3, 2], 1, torch.device("cpu"))]
    [[0, 0, 1, 3, 3], [1, 2, 2, 4, 4]]
    """
    import torch

    tokens = sum(lengths)
    counts = torch.tensor(lengths, device=device)
    stops = counts.cumsum(0)
    first = torch.repeat_interleave(stops - counts, counts, output_size=tokens).int()
    last = torch.repeat_interleave(stops - 1, counts, output_size=tokens).int()
    if window is None:
        return first, last
    own = torch.arange(tokens, device=device, dtype=torch.int32)
    return torch.maximum(first, own - window), torch.minimum(last, own + window)
