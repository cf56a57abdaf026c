"""A network that takes memory, in a module that a process of its own imports in a moment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Allocating:
    """A network that takes 200 MB for each sequence."""

    def move_batch(self, ids: torch.Tensor, lengths: Sequence[int]) -> int:
        return len(lengths)

    def run_pass(self, batch: int) -> None:
        torch.ones(batch * 50_000_000).sum()
        time.sleep(0.2)
