"""torch's own kernel for texts of different lengths: CUDA, half precision, windows."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from harness.encoder.attention.interface import Layout, Needs, Nothing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

WIDEST_HEAD, HEAD_STEP = 256, 8
"""FlashAttention's kernels take heads up to this width, in steps of that many dimensions."""


class Varlen:
    """The backend of choice on a GPU."""

    name = "varlen"

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """Why it cannot do this, None if it can."""
        if not _has_varlen():
            return "this torch has no varlen_attn with windows"
        if needs.slopes is not None:
            return "it knows no ALiBi"
        return kernel_refusal(device, dtype, needs) or ("it drops no attention" if needs.dropout else None)

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """Where each text begins."""
        return bounds(lengths, attended, device) if lengths else Nothing()


@functools.cache
def _has_varlen() -> bool:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "window_size" in inspect.signature(varlen_attn).parameters


def kernel_refusal(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    """What FlashAttention's kernels cannot do, None for what they can."""
    import torch

    if device.type != "cuda":
        return "it needs a GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    if dtype not in (torch.float16, torch.bfloat16):
        return "it needs float16 or bfloat16"
    if needs.head_dim > WIDEST_HEAD or needs.head_dim % HEAD_STEP:
        return f"it takes heads of up to {WIDEST_HEAD} dimensions, a multiple of {HEAD_STEP}"
    if needs.partly and needs.window is not None:
        return "it has no window where not all tokens are attended to"
    return None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where texts begin among the queries, and among the keys.

    Attributes:
        queries: (texts + 1,) int32.
        keys: The same of the tokens attended to.
        longest: The most queries and the most keys of a text.
        kept: The tokens attended to; None where all are.
    """

    queries: Tensor
    keys: Tensor
    longest: tuple[int, int]
    kept: Tensor | None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.attend`."""
        from torch.nn.attention.varlen import varlen_attn

        key, value = self.attended(key), self.attended(value)
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        window = window_size(needs)
        out = varlen_attn(query, key, value, self.queries, self.keys, *self.longest, window_size=window)
        assert not isinstance(out, tuple)
        return out

    def attended(self, packed: Tensor) -> Tensor:
        """Only the tokens that are attended to."""
        return packed if self.kept is None else packed[self.kept]


def window_size(needs: Needs) -> tuple[int, int]:
    """How many tokens are seen to the left and to the right; -1 for all, as FlashAttention has it."""
    return (-1, -1) if needs.window is None else (needs.window, needs.window)


def bounds(lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Bounds:
    """The bounds of texts, and of the tokens attended to within them; see `Backend.layout`."""
    import torch

    longest = lengths[0]
    queries = torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32, device=device)
    if attended is None:
        return Bounds(queries=queries, keys=queries, longest=(longest, longest), kept=None)
    before = torch.cat([attended.new_zeros(1, dtype=torch.int32), attended.cumsum(0, dtype=torch.int32)])
    keys = before[queries.long()]
    most = int(keys.diff().max())
    return Bounds(queries=queries, keys=keys, longest=(longest, most), kept=attended.nonzero().flatten())
