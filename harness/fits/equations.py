"""The compute-optimal size and tokens of L = E + A / N^α + B / D^β in closed form."""

from __future__ import annotations

import math


def compute_optimum_law(log_a: float, alpha: float, log_b: float, beta: float) -> tuple[float, float]:
    """The optimum N = n · C^η where N · D = C, of natural logarithms of A and B: ln n, and η.

    Then D = C^(1 − η) / n and D / N = C^(1 − 2η) / n². These are the equations 6 and 7 of OptiBERT.

    Example:
        >>> compute_optimum_law(0.0, 0.5, 0.0, 0.5)
        (0.0, 0.5)
    """
    return (log_a - log_b + math.log(alpha / beta)) / (alpha + beta), beta / (alpha + beta)
