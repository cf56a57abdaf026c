"""Weights for a model of other people's code and for ours: by name and shape, the same on every machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch


def drawn(shapes: Mapping[str, Sequence[int]], seed: int) -> dict[str, torch.Tensor]:
    """A float32 tensor for each name.

    SHAKE-256 of "seed:name" is read as little-endian 32-bit integers, laid on [-1, 1), and filled in
    row by row. A matrix is scaled so that it keeps the spread of its inputs, a vector called "weight"
    (of a norm) is 1 + 0.2 of it, any other 0.2 of it.
    """
    return {name: _drawn(name, tuple(shape), seed) for name, shape in shapes.items()}


def _drawn(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    count = math.prod(shape)
    stream = hashlib.shake_256(f"{seed}:{name}".encode()).digest(4 * count)
    even = torch.from_numpy(np.frombuffer(stream, "<u4").reshape(shape) / 2**31 - 1)
    if len(shape) > 1:
        return (math.sqrt(3 / shape[-1]) * even).float()
    return (float(name.endswith("weight")) + 0.2 * even).float()
