"""Factors of the learning rate by step."""

from __future__ import annotations

import math

FIRST, LAST, SLOPE, PLATEAU = 1e-4, 0.1, 0.9, 0.9
"""NeoBERT's: the factor at step 0, the one at the end, how much is lost before it, and when it begins."""


def linear(step: int, *, steps: int, warmup: float) -> float:
    """From 0 at step 0 to 1 behind the warmup, then down to 0 at `steps`.

    >>> [linear(s, steps=100, warmup=0.1) for s in (0, 5, 10, 55, 100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    until = math.ceil(warmup * steps)
    if step < until:
        return step / until
    return max(0.0, (steps - step) / max(1, steps - until))


def neobert(step: int, *, steps: int, warmup: float) -> float:
    """NeoBERT's code for GLUE: linear from 1e-4 to 1, linear down to nearly 0.16, then 0.1.

    With w the end of the warmup and m nine tenths of the steps, the factor between them is
    1 - 0.9 * (t - w) / m.

    >>> [round(neobert(s, steps=1000, warmup=0.06), 4) for s in (0, 30, 60, 899, 900, 999)]
    [0.0001, 0.5, 1.0, 0.161, 0.1, 0.1]
    """
    until, plateau = math.ceil(warmup * steps), math.ceil(PLATEAU * steps)
    if step < until:
        return FIRST + (1 - FIRST) * step / until
    return 1 - SLOPE * (step - until) / plateau if step < plateau else LAST
