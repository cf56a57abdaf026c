"""torch's scaled_dot_product_attention without padding: any device, any dtype, whatever is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from harness.encoder.attention.blocks import Blocks, block_size, blocks
from harness.encoder.attention.groups import SLACK, Group, alibi, group, spans
from harness.encoder.attention.interface import Layout, Needs, Nothing
from harness.encoder.attention.mask import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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
        return Texts(lengths=tuple(lengths), attended=attended, device=device) if lengths else Nothing()


@dataclass(frozen=True, kw_only=True)
class Texts:
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
    calls: dict[tuple[object, ...], list[Group | Blocks]] = field(default_factory=dict)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.attend`."""
        import torch

        known = (needs.window, needs.slopes, query.dtype)
        if known not in self.calls:
            self.calls[known] = [*self._worked_out(needs, query.dtype)]
        parts = [call.attend(query, key, value, dropout=needs.dropout) for call in self.calls[known]]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _worked_out(self, needs: Needs, dtype: torch.dtype) -> Iterator[Group | Blocks]:
        kind = Kind(
            window=needs.window,
            slopes=needs.slopes,
            attended=self.attended,
            device=self.device,
            dtype=dtype,
        )
        long = 0
        if needs.window is not None and needs.slopes is None:
            least = BLOCKS_FROM * block_size(needs.window)
            long = sum(length > least for length in self.lengths)
        if long:
            yield blocks(self.lengths[:long], kind)
        if self.lengths[long:]:
            yield from self._groups(long, kind)

    def _groups(self, first: int, kind: Kind) -> Iterator[Group]:
        """Groups of the texts from `first` on."""
        lengths = self.lengths[first:]
        starts = [*accumulate(self.lengths, initial=0)][first:]
        bias = alibi(lengths[0], kind)
        # With a bias, texts of one length share it as it is.
        for a, b in spans(lengths, SLACK if bias is None else 0):
            yield group(lengths[a:b], starts[a], kind, bias)
