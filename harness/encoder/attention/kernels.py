"""Attention backends: torch's kernel for texts of different lengths, flash-attn, and the choice of one.

Both kernels compute windows in half precision on a GPU; flash-attn (the gpu extra) also ALiBi.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from harness.core.errors import unknown
from harness.encoder.attention.interface import Backend, Layout, Needs, Nothing
from harness.encoder.attention.sdpa import Sdpa

WIDEST_HEAD, HEAD_STEP = 256, 8
"""The widest heads of FlashAttention's kernels, and the step of widths."""


class _Varlen:
    name = "varlen"

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        if not _has_varlen():
            return "this torch has no varlen_attn with windows"
        if needs.slopes is not None:
            return "it knows no ALiBi"
        return _kernel_refusal(device, dtype, needs) or ("it drops no attention" if needs.dropout else None)

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        return _bounds(lengths, attended, device) if lengths else Nothing()


@functools.cache
def _has_varlen() -> bool:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "window_size" in inspect.signature(varlen_attn).parameters


def _kernel_refusal(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    """The reason why FlashAttention's kernels cannot run this layer, None if they can."""
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
class _Bounds:
    """The first tokens of texts among queries and attended keys, (texts + 1,) int32; `kept` None: all."""

    queries: Tensor
    keys: Tensor
    longest: tuple[int, int]
    kept: Tensor | None

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        key, value = self.attended(key), self.attended(value)
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        window = _window_size(needs)
        out = varlen_attn(query, key, value, self.queries, self.keys, *self.longest, window_size=window)
        assert not isinstance(out, tuple)
        return out

    def attended(self, packed: Tensor) -> Tensor:
        """The attended tokens only."""
        return packed if self.kept is None else packed[self.kept]


def _window_size(needs: Needs) -> tuple[int, int]:
    """The tokens seen to the left and to the right; -1 for all, as in FlashAttention."""
    return (-1, -1) if needs.window is None else (needs.window, needs.window)


def _bounds(lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> _Bounds:
    """The bounds of texts, and of the attended tokens within them; see `Backend.layout`."""
    import torch

    longest = lengths[0]
    queries = torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32, device=device)
    if attended is None:
        return _Bounds(queries=queries, keys=queries, longest=(longest, longest), kept=None)
    before = torch.cat([attended.new_zeros(1, dtype=torch.int32), attended.cumsum(0, dtype=torch.int32)])
    keys = before[queries.long()]
    most = int(keys.diff().max())
    return _Bounds(queries=queries, keys=keys, longest=(longest, most), kept=attended.nonzero().flatten())


class _Flash:
    """FlashAttention 2 with dropout and ALiBi."""

    name = "flash"

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        if (missing := _missing()) is not None:
            return missing
        if needs.slopes is not None and needs.partly:
            return "it has no ALiBi where not all tokens are attended to"
        return _kernel_refusal(device, dtype, needs)

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        return _FlashBounds(bounds=_bounds(lengths, attended, device)) if lengths else Nothing()


@functools.cache
def _missing() -> str | None:
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

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        import torch
        from flash_attn import flash_attn_varlen_func

        at = self.bounds
        slopes = None
        if needs.slopes is not None:
            slopes = torch.tensor(needs.slopes, dtype=torch.float32, device=query.device)
        out: Tensor = flash_attn_varlen_func(
            query,
            at.attended(key),
            at.attended(value),
            at.queries,
            at.keys,
            *at.longest,
            dropout_p=needs.dropout,
            window_size=_window_size(needs),
            alibi_slopes=slopes,
        )
        return out


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

    Raises:
        UsageError: There is no backend of that name.
    """
    if asked == AUTO:
        tried = BACKENDS.values() if device.type == "cuda" else [BACKENDS["sdpa"]]
        refused = {b.name: b.refusal(device, dtype, needs) for b in tried}
        found = next(BACKENDS[name] for name, reason in refused.items() if reason is None)
        slow = found.name == "sdpa" and device.type == "cuda" and dtype.itemsize == HALF
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items() if reason is not None)
        return found, f"sdpa was used for attention ({reasons})" if slow else None
    if asked not in BACKENDS:
        raise unknown("attention backend", asked, [AUTO, *BACKENDS], then=f"{AUTO!r} takes what fits best.")
    reason = BACKENDS[asked].refusal(device, dtype, needs)
    if reason is None:
        return BACKENDS[asked], None
    instead, _ = choose(device, dtype, needs)
    return instead, f"attention backend {asked}: {reason}, so {instead.name} was used"
