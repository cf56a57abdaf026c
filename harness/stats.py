"""Bootstrap, exact test, Student's t, intervals.

Intervals of scores over seeds and examples (OptiBERT's bootstrap, and what it leaves open).

Resamples: how often each unit is drawn in every replicate of a bootstrap.

Approximate randomisation: what the difference would be if the models' answers were exchanged.

Student's t distribution, without the half second that importing a statistics library takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.checks.units import Stratum
from harness.metrics import MEASURES, METRICS, Floats

DRAWS, LEVEL = 1000, 0.95
"""Replicates, and the share of them between the bounds."""

AT_ONCE = 4_000_000
"""Weights held at one time: replicates * examples."""

Seeds = Literal["all", "one"]
"""Whether a replicate draws as many seeds as there are, or one."""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What several seeds predict of one set of examples.

    Attributes:
        gold: (examples,).
        predicted: (seeds, examples).
    """

    gold: Floats
    predicted: Floats


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A score with its bounds, all shares of 1."""

    point: float
    low: float
    high: float


def scores(sets: Sequence[Predictions], metrics: Sequence[str]) -> Floats:
    """The score of each seed: the mean over metrics and sets, (seeds,)."""
    found = [
        [
            [METRICS[name](s.gold, one, np.ones((1, len(s.gold))))[0] for one in s.predicted]
            for name in metrics
        ]
        for s in sets
    ]
    return np.asarray(np.mean(found, axis=(0, 1)))


def replicates(
    sets: Sequence[Predictions], metrics: Sequence[str], *, rng: np.random.Generator, draws: int = DRAWS
) -> dict[Seeds, Floats]:
    """The score of a task in each replicate, (draws,), with as many seeds as there are and with one.

    A replicate draws seeds, and examples once for all of them: a task's examples are the same for
    every seed, and drawing them anew for each would make the interval too narrow. Several sets, as
    MNLI's matched and mismatched, are drawn each on its own and count alike. Where seeds answer
    single examples differently at random, that noise enters twice and the interval is too wide; where
    seeds as such differ much, a few of them tell too little and it is too narrow. With one seed a
    replicate the widths come closest to those that OptiBERT prints.

    Args:
        sets: Of one task, with the same seeds.
        metrics: Names in METRICS; their mean is the score.
        rng: Where chance comes from.
        draws: Replicates.
    """
    count = len(sets[0].predicted)
    every = rng.integers(count, size=(draws, count))
    of_sets = [np.concatenate([*_resampled(one, metrics, draws, rng)]) for one in sets]
    of_seeds = np.mean(of_sets, axis=0)
    single = rng.integers(count, size=(draws, 1))
    return {
        "all": np.take_along_axis(of_seeds, every, axis=1).mean(axis=1),
        "one": np.take_along_axis(of_seeds, single, axis=1).mean(axis=1),
    }


def interval(point: float, drawn: Floats, *, level: float = LEVEL) -> Interval:
    """The interval between the percentiles of what was drawn."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(point=point, low=float(low), high=float(high))


def of_average(points: Mapping[str, float], drawn: Mapping[str, Floats], *, level: float = LEVEL) -> Interval:
    """The interval of the mean over tasks, whose examples are independent of one another."""
    return interval(float(np.mean([*points.values()])), np.mean([*drawn.values()], axis=0), level=level)


def mean_of_bounds(intervals: Sequence[Interval]) -> Interval:
    """The mean of the bounds, as OptiBERT prints for its average: no interval of the mean, but wider.

    >>> mean_of_bounds([Interval(point=0.5, low=0.25, high=0.75), Interval(point=1, low=0.75, high=1)])
    Interval(point=0.75, low=0.5, high=0.875)
    """
    point, low, high = (float(np.mean([getattr(i, n) for i in intervals])) for n in ("point", "low", "high"))
    return Interval(point=point, low=low, high=high)


def _resampled(
    one: Predictions, metrics: Sequence[str], draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """The score of every seed in each replicate of one set, in parts of (replicates, seeds)."""
    examples = len(one.gold)
    size = max(1, AT_ONCE // examples)
    for first in range(0, draws, size):
        rows = min(size, draws - first)
        weights = rng.multinomial(examples, np.full(examples, 1 / examples), size=rows).astype(float)
        found = [[METRICS[name](one.gold, p, weights) for p in one.predicted] for name in metrics]
        yield np.asarray(np.mean(found, axis=0).T)


Weights = NDArray[np.float32]

FEW = 200
"""Fewer units than these are drawn exactly; of more, each is drawn on its own (Poisson with mean 1)."""

DRAWS_AT_ONCE = 40_000
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
    size = max(1, DRAWS_AT_ONCE // units)
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

ALL_OF = 12
"""Of so many units every exchange is tried, of more a sample."""

ROUNDING = 1e-9


def p_values(
    one: Stratum, other: Stratum, differ: np.ndarray, rng: np.random.Generator, draws: int
) -> tuple[float, float]:
    """How often a difference as low, and as high, comes about if the models are exchangeable.

    Each unit that the models answer differently is given to one or the other by chance, and both
    scores are computed anew (Noreen, 1989; Yeh, 2000).

    Args:
        one: The candidate's units, of one run.
        other: The baseline's.
        differ: Which units the models answer differently, (units,).
        rng: Where chance comes from.
        draws: How many exchanges are drawn where there are too many to try all.
    """
    exchanged = np.zeros((1, one.count))
    found, seen = [], _delta(one, other, exchanged)[0]
    places = np.flatnonzero(differ)
    for swaps in _swaps(len(places), rng, draws):
        exchanged = np.zeros((len(swaps), one.count))
        exchanged[:, places] = swaps
        found.append(_delta(one, other, exchanged))
    deltas = np.concatenate(found)
    every = len(places) <= ALL_OF
    counts = (deltas <= seen + ROUNDING).sum(), (deltas >= seen - ROUNDING).sum()
    low, high = (float((count + (not every)) / (len(deltas) + (not every))) for count in counts)
    return low, high


def _swaps(count: int, rng: np.random.Generator, draws: int, at_once: int = 64) -> list[Floats]:
    if count <= ALL_OF:
        numbers = np.arange(1 << count)[:, None]
        swaps = (numbers >> np.arange(count)) & 1
    else:
        swaps = rng.integers(2, size=(draws, count))
    return [swaps[first : first + at_once].astype(np.float64) for first in range(0, len(swaps), at_once)]


def _delta(one: Stratum, other: Stratum, exchanged: Floats) -> Floats:
    """The difference with some units exchanged: both models' answers stand side by side, weighted."""
    kept = 1 - exchanged
    mine, theirs = (np.concatenate(pair, axis=1) for pair in ((kept, exchanged), (exchanged, kept)))
    gold = one.gold if one.measures == ("mean",) else np.concatenate([one.gold, one.gold])
    found = []
    for name in one.measures:
        for a, b in zip(one.predicted[0], other.predicted[0], strict=True):
            both = np.concatenate([a, b])
            found.append(MEASURES[name](gold, both, mine) - MEASURES[name](gold, both, theirs))
    return np.asarray(np.mean(found, axis=0))


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
