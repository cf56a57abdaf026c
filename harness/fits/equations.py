"""The compute-optimal size and tokens of L = E + A / N^α + B / D^β in closed form."""

from __future__ import annotations

import math


def compute_optimum_law(log_a: float, alpha: float, log_b: float, beta: float) -> tuple[float, float]:
    """The optimum N = n · C^η where N · D = C: log n in the base of the logarithms, and η.

    Then D = C^(1 − η) / n and D / N = C^(1 − 2η) / n². These are the equations 6 and 7 of OptiBERT.

    Example:
        >>> compute_optimum_law(0.0, 0.5, 0.0, 0.5)
        (0.0, 0.5)
    """
    # log of α / β in the base of the others cancels only for natural logarithms: callers give those.
    return (log_a - log_b + math.log(alpha / beta)) / (alpha + beta), beta / (alpha + beta)
