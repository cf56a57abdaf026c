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


def choose(
    device: torch.device, dtype: torch.dtype, needs: Needs, asked: str = AUTO
) -> tuple[Backend, str | None]:
    """The backend for one kind of layer, and why the one asked for is not it (None if it is).

    On a CPU that is SDPA unless another is asked for.

    Raises:
        UsageError: There is no backend of that name.
    """
    if asked == AUTO:
        return next(b for b in _tried(device, needs) if b.refusal(device, dtype, needs) is None), None
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
