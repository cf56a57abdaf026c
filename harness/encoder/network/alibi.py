"""Attention with linear biases: the further a token, the less it counts."""

from __future__ import annotations

import math


def slopes(heads: int) -> tuple[float, ...]:
    """How much each head loses with every token of distance.

    For a power of two the geometric sequence of the ALiBi paper (section 3), otherwise that of the
    next smaller one followed by every other slope of the next larger one, as in its code.

    >>> slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
    >>> [round(s, 4) for s in slopes(3)]
    [0.0625, 0.0039, 0.25]
    """
    below = 2 ** math.floor(math.log2(heads))
    rest = _geometric(2 * below)[::2][: heads - below]
    return _geometric(below) + rest


def _geometric(heads: int) -> tuple[float, ...]:
    return tuple(2 ** (-8 * (i + 1) / heads) for i in range(heads))
