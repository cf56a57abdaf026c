"""Whether a difference is more than chance: its bounds, one-sided p-values, and the paired two-sided test."""

from __future__ import annotations

from harness.checks.difference import Compared
from harness.results.units import FLAT


def compute_confidence_interval(one: Compared, alpha: float) -> tuple[float, float]:
    """The bounds of a difference, each one-sided at alpha."""
    return one.delta + one.total.compute_bound_offset(alpha), one.delta + one.total.compute_bound_offset(
        1 - alpha
    )


def compute_bound_p(one: Compared, bound: float) -> float:
    """The p-value of "the true difference is not above a bound", which the lower confidence bound decides."""
    if one.total.variance <= FLAT:
        return float(one.delta <= bound)
    return one.total.share_below(bound - one.delta)


def compute_loss_p(one: Compared) -> float:
    """The p-value of "not lower than the baseline", which the upper confidence bound decides."""
    if one.total.variance <= FLAT:
        return float(one.delta >= 0.0)
    return 1 - one.total.share_below(-one.delta)


def compute_gain_p(one: Compared) -> float:
    """The p-value of "not higher than the baseline"."""
    return compute_bound_p(one, 0.0)


def compute_paired_test(one: Compared, alpha: float = 0.05) -> tuple[float, float, float]:
    """The two-sided p-value of "no difference", and the bounds of its 1 - alpha interval."""
    p = 1.0 if one.same else min(1.0, 2 * min(compute_gain_p(one), compute_loss_p(one)))
    return (p, *compute_confidence_interval(one, alpha / 2))
