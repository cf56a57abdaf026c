"""The flash-attn package, where it is installed (the gpu extra)."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.encoder.attention.interface import Layout, Needs, Nothing
from harness.encoder.attention.varlen import Bounds, bounds, kernel_refusal, window_size

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Flash:
    """FlashAttention 2 with dropout and ALiBi."""

    name = "flash"

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """Why it cannot do this, None if it can."""
        if (missing := _missing()) is not None:
            return missing
        if needs.slopes is not None and needs.partly:
            return "it has no ALiBi where not all tokens are attended to"
        return kernel_refusal(device, dtype, needs)

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """Where each text begins."""
        return FlashBounds(bounds=bounds(lengths, attended, device)) if lengths else Nothing()


@functools.cache
def _missing() -> str | None:
    """Why the package cannot be used; one built against another torch does not import."""
    if importlib.util.find_spec("flash_attn") is None:
        return "flash-attn is not installed"
    try:
        import flash_attn  # noqa: F401
    except (ImportError, OSError) as error:
        return f"flash-attn does not import ({error})"
    return None


@dataclass(frozen=True, kw_only=True)
class FlashBounds:
    """Where texts begin."""

    bounds: Bounds

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.attend`."""
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
            window_size=window_size(needs),
            alibi_slopes=slopes,
        )
        return out
