"""Whether a difference is more than chance: its bounds, one-sided p-values, and the paired two-sided test.

Where many are tested at once: Bonferroni's levels, and the discoveries of Benjamini and Hochberg.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.checks.difference import Compared, Difference
from harness.checks.policy import RED, Policy
from harness.core.types import Suite
from harness.results.units import FLAT

Name = TypeVar("Name", str, tuple[str, str, str])


def compute_confidence_interval(one: Compared, alpha: float) -> tuple[float, float]:
    """The bounds of a difference, each one-sided at alpha."""
    low, high = (one.total.compute_bound_offset(share) for share in (alpha, 1 - alpha))
    return one.delta + low, one.delta + high


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


def compute_paired_test(one: Compared, alpha: float = 0.05) -> tuple[float, float, float]:
    """The two-sided p-value of "no difference", and the bounds of its 1 - alpha interval."""
    p = 1.0 if one.same else min(1.0, 2 * min(compute_bound_p(one, 0.0), compute_loss_p(one)))
    return (p, *compute_confidence_interval(one, alpha / 2))


@dataclass(frozen=True, kw_only=True)
class SharedLevel:
    """The level at which several tests together call a regression, and their number (Bonferroni)."""

    alpha: float
    tests: int

    @property
    def each(self) -> float:
        """The level of a single test."""
        return self.alpha / self.tests


def assign_task_levels(
    tested: Mapping[str, Difference], suites: Sequence[Suite], policy: Policy
) -> dict[str, SharedLevel]:
    """The level of a regression of each task: its share of `task_alpha`, or a mean's if it is alone."""
    alone = {suite.tasks[0].name for suite in suites if len(suite.tasks) == 1}
    # Tasks that are the same, or that may regress, cannot be red: they take no part of the level.
    several = [n for n, one in tested.items() if n not in alone and not one.same and policy.forbids(n)]
    mean = SharedLevel(alpha=RED, tests=len(suites))
    level = SharedLevel(alpha=policy.task_alpha, tests=max(len(several), 1))
    return {name: mean if name in alone else level for name in tested}


def find_discoveries(tested: Mapping[Name, Difference], alpha: float, *, gain: bool) -> set[Name]:
    """Tasks or parts that are lower, or higher, at a false discovery rate (Benjamini and Hochberg, 1995)."""
    p = {
        name: compute_bound_p(one, 0.0) if gain else compute_loss_p(one)
        for name, one in tested.items()
        if not one.same
    }
    order = sorted(p, key=lambda name: p[name])
    last = max((at for at, name in enumerate(order, 1) if p[name] <= alpha * at / len(order)), default=0)
    return set(order[:last])
