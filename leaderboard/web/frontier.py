"""The frontier of points on two axes: those that no other beats on both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal

Better = Literal["lower", "higher"]


def frontier(points: Sequence[tuple[Any, float]], better: Better) -> list[int]:
    """Indices of the points that no other beats, by x; y is better the higher, and ties stay together.

    >>> frontier([(1, 10), (2, 9), (3, 30), (3, 20)], "lower")
    [0, 2]
    """
    order = sorted((i for i, (x, y) in enumerate(points) if x == x and y == y), key=lambda i: -points[i][1])
    order.sort(key=lambda i: points[i][0], reverse=better == "higher")
    unbeaten: list[int] = []
    best = -math.inf
    for (_, y), equal in groupby(order, key=lambda i: points[i]):
        if y > best:
            best = y
            unbeaten += equal
    return sorted(unbeaten, key=lambda i: (points[i][0], i))
