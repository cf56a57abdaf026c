"""Student's t distribution, without the half second that importing a statistics library takes."""

from __future__ import annotations

import math
from statistics import NormalDist

LARGE = 1e7
"""Degrees of freedom from which on the normal distribution is as good."""

_STEPS, _ENOUGH = 500, 1e-15


def below(t: float, freedom: float) -> float:
    """The probability of a value below `t`.

    Args:
        t: Any number, also infinite.
        freedom: Degrees of freedom, above 0; they need not be whole.

    >>> round(below(-2.015, 5), 4)
    0.05
    """
    if math.isinf(t) or freedom >= LARGE:
        return NormalDist().cdf(t)
    tail = 0.5 * _beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return tail if t < 0 else 1 - tail


def quantile(share: float, freedom: float) -> float:
    """The value that a share of the distribution lies below.

    Args:
        share: Between 0 and 1, both excluded.
        freedom: Degrees of freedom, above 0.

    >>> round(quantile(0.95, 5), 3)
    2.015
    """
    if share < 0.5:
        return -quantile(1 - share, freedom)
    start = NormalDist().inv_cdf(share)
    if freedom >= LARGE:
        return start
    low, high = 0.0, max(1.0, start)
    while below(high, freedom) < share:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle, freedom) < share else (low, middle)
        if high - low <= _ENOUGH * high:
            break
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    found = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + term * d, tiny)
            c = _away(1 + term / c, tiny)
            found *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return found


def _away(value: float, tiny: float) -> float:
    """The value, or something small in place of nothing."""
    return value if abs(value) > tiny else tiny
