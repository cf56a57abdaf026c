"""From differences to verdicts: tests, their correction over tasks, and equivalence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev

from harness import stats
from harness.checks.difference import Compared, Difference, Part
from harness.checks.outcome import Verdict
from harness.checks.policy import Correction

POWER = 0.8
"""With which what is said to settle a task would settle it, if the difference is what was seen."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a policy says of one task; shares of 1.

    Attributes:
        margin: Differences within it do not count.
        max_drop: The drop that is allowed.
        measured: Whether the margin is what the baseline's own runs differ by.
    """

    margin: float
    max_drop: float = 0.0
    measured: bool = False


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is said of one task.

    Attributes:
        verdict: Without `missing` and `not testable`, which are said before.
        low: Lower bound of the difference, one-sided at alpha.
        high: Upper bound.
        p_regressed: Corrected.
        p_improved: Corrected.
        to_settle: What would turn `inconclusive` into a verdict; empty otherwise.
    """

    verdict: Verdict
    low: float
    high: float
    p_regressed: float
    p_improved: float
    to_settle: str = ""


def judge(
    differences: Mapping[str, Difference],
    limits: Mapping[str, Limits],
    *,
    alpha: float,
    correction: Correction,
    units: Mapping[str, str],
    share: float = 1.0,
) -> dict[str, Judged]:
    """The verdict of every task.

    A task is `equivalent` if two one-sided tests at alpha put the difference within the margin
    (Schuirmann, 1987); else `regressed` if it is lower than by the allowed drop, or `improved` if it
    is higher, by a one-sided test at alpha after correction over the tasks; else `inconclusive`. So
    alpha is the chance that any task of a candidate as good as the baseline is called regressed
    (Holm), or the share of false ones among those called so (Benjamini and Hochberg).

    Args:
        differences: By task.
        limits: Likewise.
        alpha: The level.
        correction: Over tasks.
        units: By task: what its units are called.
        share: Of alpha that the tests of tasks have; p-values are larger by as much.
    """
    names = list(differences)
    p_low = corrected([p_regressed(differences[n], limits[n].max_drop) for n in names], correction)
    p_high = corrected([p_improved(differences[n]) for n in names], correction)
    found = {}
    for name, *both in zip(names, p_low, p_high, strict=True):
        lower, higher = (min(1.0, p / share) for p in both)
        one, limit = differences[name], limits[name]
        low, high = bounds(one, alpha)
        verdict = _verdict(one, limit, lower, higher, alpha)
        hint = (
            settle(one, limit, alpha, units[name], math.ceil(len(names) / share))
            if verdict == "inconclusive"
            else ""
        )
        found[name] = Judged(
            verdict=verdict, low=low, high=high, p_regressed=lower, p_improved=higher, to_settle=hint
        )
    return found


def _verdict(one: Difference, limit: Limits, lower: float, higher: float, alpha: float) -> Verdict:
    if limit.measured and lower <= alpha:  # of few runs a measured margin may be wide
        return "regressed"
    if equivalent(one, limit, alpha):
        return "equivalent"
    if lower <= alpha:
        return "regressed"
    return "improved" if higher <= alpha else "inconclusive"


def equivalent(one: Compared, limit: Limits, alpha: float) -> bool:
    """Whether the difference lies within the margin.

    A measured margin holds the spread of runs already, so there only the units' part counts.
    """
    part = one.examples if limit.measured else one.total
    low, high = _around(one.delta, part, alpha)
    return one.same or (-limit.margin <= low and high <= limit.margin)


def bounds(one: Compared, alpha: float) -> tuple[float, float]:
    """The difference's lower and upper bound, each one-sided at alpha."""
    return _around(one.delta, one.total, alpha)


def _around(delta: float, part: Part, alpha: float) -> tuple[float, float]:
    if part.variance <= 0:
        return delta, delta
    reach = stats.student_quantile(1 - alpha, part.freedom) * math.sqrt(part.variance)
    return delta - reach, delta + reach


def p_regressed(one: Compared, max_drop: float) -> float:
    """p-value of "not lower than by `max_drop`"; the larger one where chance was also counted out."""
    estimated = _p(one.delta + max_drop, one.total)
    exact = one.exact[0] if isinstance(one, Difference) and one.exact else 0.0
    return 1.0 if one.same else max(estimated, exact)


def p_improved(one: Difference) -> float:
    """p-value of "not higher"."""
    return 1.0 if one.same else max(_p(-one.delta, one.total), one.exact[1] if one.exact else 0.0)


def _p(distance: float, part: Part) -> float:
    """The chance of a difference as low as `distance` if there is none."""
    if part.variance <= 0:
        return 0.0 if distance < 0 else 1.0
    return stats.student_cdf(distance / math.sqrt(part.variance), part.freedom)


def corrected(p: Sequence[float], correction: Correction) -> list[float]:
    """p-values after correction for their number (Holm, 1979; Benjamini and Hochberg, 1995).

    >>> corrected([0.01, 0.04, 0.03], "holm")
    [0.03, 0.06, 0.06]
    >>> corrected([0.01, 0.04, 0.03], "benjamini-hochberg")
    [0.03, 0.04, 0.04]
    """
    count, found = len(p), [0.0] * len(p)
    order = sorted(range(count), key=lambda at: p[at])
    if correction == "none":
        return list(p)
    if correction == "holm":
        highest = 0.0
        for rank, at in enumerate(order):
            highest = max(highest, min(1.0, (count - rank) * p[at]))
            found[at] = highest
        return found
    lowest = 1.0
    for rank, at in reversed(list(enumerate(order))):
        lowest = min(lowest, p[at] * count / (rank + 1))
        found[at] = lowest
    return found


def learnt_margin(one: Compared, alpha: float) -> float | None:
    """How far another run of the baseline would lie from the mean of its runs; None of a single run.

    The one-sided bound of a prediction for as many runs as the candidate has.
    """
    if len(one.theirs) == 1:
        return None
    spread = stdev(one.theirs) * math.sqrt(1 / len(one.mine) + 1 / len(one.theirs))
    return stats.student_quantile(1 - alpha, len(one.theirs) - 1) * spread


def settle(one: Difference, limit: Limits, alpha: float, unit: str, tasks: int = 1) -> str:
    """How many units or seeds would settle a task, if the difference is what was seen.

    Args:
        one: What was seen.
        limit: What the policy says of the task.
        alpha: The level.
        unit: What the units are called.
        tasks: Over how many tasks a test of a drop is corrected.
    """
    wanted = max(
        _wanted(max(-one.delta - limit.max_drop, one.delta), alpha / tasks),
        _wanted(limit.margin - abs(one.delta), alpha, sides=2),
    )
    by_seeds = one.seeds.variance if one.seeds and not limit.measured else 0.0
    by_units = one.examples.variance
    seeds = max(len(one.mine), len(one.theirs))
    found = [
        f"about {_rounded(count):,} {what}"
        for count, there, what in (
            (_needed(one.units * by_units, wanted - by_seeds), one.units, unit),
            (_needed(seeds * by_seeds, wanted - by_units), seeds, "seeds of each"),
        )
        if count is not None and count > there
    ]
    more = f"more seeds and more {unit}" if one.seeds else f"more {unit}"
    return " or ".join(found) or more


def _wanted(distance: float, alpha: float, sides: int = 1) -> float:
    """The variance with which a difference that far from a bound, or from two, would be told from it."""
    power = 1 - (1 - POWER) / sides
    reach = stats.student_quantile(1 - alpha, stats.LARGE) + stats.student_quantile(power, stats.LARGE)
    return (max(distance, 0.0) / reach) ** 2


def _needed(of_one: float, wanted: float) -> int | None:
    """How many it takes; None where no number of them would do."""
    return math.ceil(of_one / wanted) if wanted > 0 else None


def _rounded(count: int) -> int:
    """A count with two digits that mean something.

    >>> _rounded(1234)
    1300
    """
    unit = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // unit) * unit
