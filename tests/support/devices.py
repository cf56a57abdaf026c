"""The devices that a test of tests/gpu runs on, and how far tensors of two of them may lie apart."""

from __future__ import annotations

import pytest
from torch import Tensor

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
DEVICES = (pytest.param("cpu", marks=pytest.mark.slow), GPU)

on_gpu = pytest.mark.parametrize("device", [GPU], indirect=True)
"""What a CPU cannot show."""

SAME = 1e-4
"""How far float32 vectors of the same texts may lie apart, as a share of the largest value.

Products of other shapes add up in another order: each sum of some hundred terms is off by up to 1e-5 of its
size, and layers add to that. A token less changes the vector of a text of 250 tokens by 3e-3 or more.
"""


def largest_difference(found: Tensor, expected: Tensor) -> float:
    """How far the worst number is off, as a share of the largest one."""
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())
