"""One pass of a batch through the blocks: how its texts lie for the attention of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.encoder.attention.choice import choose
from harness.encoder.attention.interface import Layout, Needs
from harness.encoder.network.packing import Packing

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The layouts of one pass, one for each backend that takes part.

    Attributes:
        packed: The texts.
        device: Where they are.
        dtype: In which attention computes.
        asked: The backend asked for.
        layouts: Those worked out so far, by the name of their backend.
        notes: Why a backend that was asked for did not do it.
    """

    packed: Packing
    device: torch.device
    dtype: torch.dtype
    asked: str
    layouts: dict[str, Layout] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def partly(self) -> bool:
        """Whether some computed tokens are not attended to."""
        return self.packed.attended is not None

    def layout(self, needs: Needs) -> Layout:
        """The texts as the backend for such a layer wants them."""
        backend, note = choose(self.device, self.dtype, needs, self.asked)
        if note is not None and note not in self.notes:
            self.notes.append(note)
        if backend.name not in self.layouts:
            self.layouts[backend.name] = backend.layout(
                self.packed.lengths, self.packed.attended, self.device
            )
        return self.layouts[backend.name]


def dtype_of(hidden: Tensor) -> torch.dtype:
    """The dtype that attention over these computes in, under autocast or not."""
    import torch

    if torch.is_autocast_enabled(hidden.device.type):
        return torch.get_autocast_dtype(hidden.device.type)
    return hidden.dtype
