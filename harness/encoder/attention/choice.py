"""Which backend does which layer's attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.encoder.attention.flash import Flash
from harness.encoder.attention.flex import Flex
from harness.encoder.attention.interface import Backend, Needs
from harness.encoder.attention.sdpa import Sdpa
from harness.encoder.attention.varlen import Varlen
from harness.errors import unknown

if TYPE_CHECKING:
    import torch

BACKENDS: dict[str, Backend] = {b.name: b for b in (Varlen(), Flash(), Flex(), Sdpa())}
"""In the order in which they are tried on a GPU."""

AUTO = "auto"

LIBRARY_NAMES = {"flash_attention_2": "flash", "flex_attention": "flex"}
"""transformers' names of attention to ours, of those that are not there unless asked for."""

HALF = 2
"""Bytes of a number in half precision."""


def choose(
    device: torch.device, dtype: torch.dtype, needs: Needs, asked: str = AUTO
) -> tuple[Backend, str | None]:
    """The backend for one kind of layer, and why the one hoped for is not it (None if it is).

    On a CPU that is SDPA unless another is asked for. On a GPU SDPA takes part in half precision only
    where no kernel for texts of different lengths can, which is worth saying.

    Raises:
        UsageError: There is no backend of that name.
    """
    if asked == AUTO:
        refused = {b.name: b.refusal(device, dtype, needs) for b in _tried(device, needs)}
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


def _tried(device: torch.device, needs: Needs) -> list[Backend]:
    if device.type != "cuda":
        return [BACKENDS["sdpa"]]
    # Compiling takes longer than it saves where no bias is needed.
    return [b for b in BACKENDS.values() if b.name != "flex" or needs.slopes is not None]
