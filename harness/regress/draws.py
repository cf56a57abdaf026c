"""Resamples: how often each unit is drawn in every replicate of a bootstrap."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]

FEW = 200
"""Fewer units than these are drawn exactly; of more, each is drawn on its own (Poisson with mean 1)."""

AT_ONCE = 40_000
"""Weights in one block: as many as a processor's cache holds beside what is computed from them."""

_STEPS = 1 << 16


def blocks(units: int, draws: int, rng: np.random.Generator) -> Iterator[Weights]:
    """The weights of `draws` replicates, in blocks of (replicates, units).

    Of few units as many are drawn, with replacement, as there are. Of many, the counts of the units
    are independent Poisson variables of mean 1, which is the limit of the same and a tenth of the
    work (Hanley and MacGibbon, 2006, "Creating non-parametric bootstrap samples using Poisson
    frequencies").

    Args:
        units: How many there are, at least 1.
        draws: Replicates.
        rng: Where chance comes from.
    """
    size = max(1, AT_ONCE // units)
    for first in range(0, draws, size):
        rows = min(size, draws - first)
        if units < FEW:
            drawn = rng.multinomial(units, np.full(units, 1 / units), size=rows)
            yield drawn.astype(np.float32)
        else:
            raw = rng.bit_generator.random_raw((rows * units + 3) // 4)
            yield _COUNTS[raw.view(np.uint16)[: rows * units]].reshape(rows, units)


def _counts() -> Weights:
    """The Poisson count that each of 65,536 equally likely numbers stands for."""
    shares = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(10)])
    bounds = np.round(shares * _STEPS)
    return np.searchsorted(bounds, np.arange(_STEPS), side="right").astype(np.float32)


_COUNTS = _counts()
