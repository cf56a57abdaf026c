"""torch's FlexAttention: all texts in one call, with ALiBi and windows as it goes."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.encoder.attention.interface import Layout, Needs, Nothing
from harness.encoder.attention.reach import reach

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128
"""Tokens of a block; pairs of blocks without an allowed pair of tokens are skipped."""

NARROWEST_HEAD = 16
"""The kernel takes no narrower head on a GPU."""


class Flex:
    """Compiled on the first call; for ALiBi on a GPU."""

    name = "flex"

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """Why it cannot do this, None if it can."""
        import torch

        if needs.dropout:
            return "it drops no attention"
        if device.type == "cpu":
            return "it gives no gradients on a CPU" if torch.is_grad_enabled() else None
        if device.type != "cuda":
            return "it needs a GPU or a CPU"
        if needs.head_dim < NARROWEST_HEAD:
            return f"it takes heads of {NARROWEST_HEAD} dimensions or more"
        return _uncompilable()

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """The texts; which pairs of blocks take part depends on the window."""
        if not lengths:
            return Nothing()
        return Documents(lengths=tuple(lengths), attended=attended, device=device)


@functools.cache
def _uncompilable() -> str | None:
    from torch.utils._triton import has_triton

    if not has_triton():
        return "it needs triton"
    if not any(map(shutil.which, [os.environ.get("CC", "cc"), "gcc", "clang"])):
        return "it needs a C compiler"
    return None


@dataclass(frozen=True, kw_only=True)
class Documents:
    """A layout, with the masks and biases worked out so far.

    Attributes:
        lengths: Tokens of each text.
        attended: (tokens,) bool, what is attended to; None for everything.
        device: Where the tokens are.
        masks: By window.
        biases: By slopes.
    """

    lengths: tuple[int, ...]
    attended: Tensor | None
    device: torch.device
    masks: dict[int | None, BlockMask] = field(default_factory=dict)
    biases: dict[tuple[float, ...], Callable[..., Tensor]] = field(default_factory=dict)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.attend`."""
        if needs.window not in self.masks:
            self.masks[needs.window] = block_mask(self.lengths, self.attended, needs.window, self.device)
        if needs.slopes is not None and needs.slopes not in self.biases:
            self.biases[needs.slopes] = _bias(needs.slopes, self.device)
        q, k, v = (t.transpose(0, 1)[None] for t in (query, key, value))
        out: Tensor = _flex(query.device.type)(
            q,
            k,
            v,
            score_mod=None if needs.slopes is None else self.biases[needs.slopes],
            block_mask=self.masks[needs.window],
            enable_gqa=key.shape[1] != query.shape[1],
        )
        return out[0].transpose(0, 1)


def block_mask(
    lengths: Sequence[int], attended: Tensor | None, window: int | None, device: torch.device
) -> BlockMask:
    """Which pairs of tokens are allowed, and the blocks of keys that each block of queries needs.

    Those follow one another, so they come from the first and the last key alone; torch's own
    `create_block_mask` looks at every pair of tokens.
    """
    import torch
    from torch.nn.attention.flex_attention import BlockMask

    first, last = reach(lengths, window, device)
    tokens = len(first)
    count = -(-tokens // BLOCK)
    begins = torch.arange(0, tokens, BLOCK, device=device)
    lowest = first[begins] // BLOCK
    highest = last[(begins + BLOCK - 1).clamp(max=tokens - 1)] // BLOCK
    order = (lowest[:, None] + torch.arange(count, device=device, dtype=torch.int32)) % count
    made: BlockMask = BlockMask.from_kv_blocks(
        (highest - lowest + 1)[None, None],
        order[None, None],
        BLOCK_SIZE=BLOCK,
        mask_mod=_allowed(first, last, attended),
        seq_lengths=(tokens, tokens),
    )
    return made


def _allowed(first: Tensor, last: Tensor, attended: Tensor | None) -> Callable[..., Tensor]:
    def near(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (first[q] <= k) & (k <= last[q])

    if attended is None:
        return near

    def near_and_attended(_batch: Tensor, _head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (first[q] <= k) & (k <= last[q]) & attended[k]

    return near_and_attended


def _bias(slopes: tuple[float, ...], device: torch.device) -> Callable[..., Tensor]:
    import torch

    each = torch.tensor(slopes, device=device)

    def bias(score: Tensor, _batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        # Of two tokens of one text, also the distance in the row.
        return score - each[head] * (q - k).abs()

    return bias


@functools.cache
def _flex(device: str) -> Callable[..., Any]:
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    # Compiling for a CPU needs a C++ compiler; as it is, it is only a check there.
    return torch.compile(flex_attention, dynamic=True) if device == "cuda" else flex_attention
