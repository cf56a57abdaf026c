"""Windowed attention in blocks: time and memory grow with the tokens, not with their square."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.encoder.attention.mask import Kind, Mask, attend, mask
from harness.encoder.attention.reach import reach

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST = 32
"""Tokens of a block where the window is smaller."""


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Texts in one row, cut into blocks that see themselves and their two neighbours.

    Attributes:
        tokens: Tokens of these texts, which stand first of all.
        size: Tokens of a block, at least the window.
        mask: For (blocks, heads, size, 3 * size).
    """

    tokens: int
    size: int
    mask: Mask

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """The result for these texts: (tokens, heads, head_dim)."""
        import torch.nn.functional as f

        filled = f.pad(query[: self.tokens], (0, 0, 0, 0, 0, -self.tokens % self.size))
        queries = filled.unflatten(0, (-1, self.size)).transpose(1, 2)
        out = attend(queries, self._threes(key), self._threes(value), self.mask, dropout=dropout)
        return out.transpose(1, 2).flatten(0, 1)[: self.tokens]

    def _threes(self, packed: Tensor) -> Tensor:
        """Each block with its neighbours, (blocks, heads, 3 * size, head_dim), as a view of one copy."""
        import torch.nn.functional as f

        after = self.size + -self.tokens % self.size
        filled = f.pad(packed[: self.tokens], (0, 0, 0, 0, self.size, after))
        return filled.unfold(0, 3 * self.size, self.size).transpose(-1, -2)


def block_size(window: int) -> int:
    """Tokens of a block for that window."""
    return max(window, SMALLEST)


def blocks(lengths: Sequence[int], kind: Kind) -> Blocks:
    """The blocks of texts that stand first of all, for a layer with a window and without ALiBi."""
    import torch
    import torch.nn.functional as f

    assert kind.window is not None
    tokens, size = sum(lengths), block_size(kind.window)
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
    made = mask(allowed[:, None], kind.dtype, blind=kind.attended is not None)
    return Blocks(tokens=tokens, size=size, mask=made)
