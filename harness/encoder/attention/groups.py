"""Texts of one length, or of nearly one, attended in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.encoder.attention.mask import Kind, Mask, attend, mask

if TYPE_CHECKING:
    from torch import Tensor

SLACK = 8
"""Columns by which the shortest text of a group may fall short of its longest."""

MASKED_TOKENS = 4096
"""Padded tokens of a group whose texts differ in length."""

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Group:
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
    mask: Mask

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens of the group, heads, head_dim)."""
        query, key, value = (self._padded(packed) for packed in (query, key, value))
        found = attend(query, key, value, self.mask, dropout=dropout)
        flat = found.transpose(1, 2).flatten(0, 1)
        return flat if self.places is None else flat.index_select(0, self.places)

    def _padded(self, packed: Tensor) -> Tensor:
        """(tokens, heads, head_dim) to (texts, heads, length, head_dim)."""
        found = packed[slice(*self.span)] if self.gather is None else packed.index_select(0, self.gather)
        return found.view(self.texts, self.length, *found.shape[1:]).transpose(1, 2)


def spans(lengths: Sequence[int], slack: int = SLACK) -> list[Span]:
    """Cut texts, longest first, into runs of one length, or of nearly one where texts are short.

    >>> spans([300, 300, 200, 12, 10, 9])
    [(0, 2), (2, 3), (3, 6)]
    >>> spans([12, 10, 10], slack=0)
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


def group(lengths: Sequence[int], start: int, kind: Kind, bias: Tensor | None) -> Group:
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
    return Group(texts=texts, length=length, span=span, gather=gather, places=places, mask=made)


def _mask(keys: Tensor | None, length: int, kind: Kind, bias: Tensor | None) -> Mask:
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
        return Mask(bias=own)
    blind = window is not None and kind.attended is not None
    return mask(allowed, kind.dtype, bias=own, blind=blind)


def alibi(length: int, kind: Kind) -> Tensor | None:
    """ALiBi's loss for texts of up to that length: (1, heads, length, length); None without it."""
    import torch

    if kind.slopes is None:
        return None
    place = torch.arange(length, device=kind.device)
    distance = (place[:, None] - place).abs()
    slopes = torch.tensor(kind.slopes, device=kind.device)[None, :, None, None]
    return (-slopes * distance).to(kind.dtype)
