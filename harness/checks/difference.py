"""Candidate minus baseline with its variance, on one task and on the mean over a suite's columns."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance
from typing import Literal

import numpy as np

from harness import stats
from harness.checks.metrics import MEASURES
from harness.checks.units import Stratum, Units
from harness.metrics import Floats, prepare_spearman
from harness.stats import Weights
from harness.types import Suite

DRAWS = 10_000
"""Replicates of the bootstrap."""

FLAT = 1e-12
"""A variance below this is rounding."""

ALIKE = 50
"""The number of differing units below which an exchange test is run beside the bootstrap."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A source of uncertainty: its variance of a difference, and its degrees of freedom."""

    variance: float
    freedom: float


@dataclass(frozen=True, kw_only=True)
class Compared(ABC):
    """Scores of a candidate's runs and of a baseline's, in shares of 1.

    Attributes:
        mine, theirs: The score of each run of the candidate, and of the baseline.
        examples: The uncertainty from the choice of units, and of a few probes.
        same: Whether both sides are the same record.
    """

    mine: tuple[float, ...]
    theirs: tuple[float, ...]
    examples: Part
    same: bool = False

    @property
    def candidate(self) -> float:
        """The mean score of the candidate's runs."""
        return fmean(self.mine)

    @property
    def baseline(self) -> float:
        """The mean score of the baseline's runs."""
        return fmean(self.theirs)

    @property
    def delta(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline

    @property
    @abstractmethod
    def seeds(self) -> Part | None:
        """The uncertainty from the runs; None with a single run of each side."""

    @property
    def total(self) -> Part:
        """The sum of all uncertainty."""
        return _together([self.examples] + ([self.seeds] if self.seeds is not None else []))


@dataclass(frozen=True, kw_only=True)
class Difference(Compared):
    """Candidate minus baseline on one task.

    Attributes:
        paired: Whether the runs of the two sides pair up.
        units: The number of resampled units.
        exact: p-values of "not lower" and of "not higher" by exchanging the models' answers, where few units
            differ; None otherwise.
    """

    paired: bool = False
    units: int
    exact: tuple[float, float] | None = None

    @property
    def seeds(self) -> Part | None:
        """The uncertainty from the runs; None with a single run of each side."""
        return None if self.same else _run_part(self.mine, self.theirs, paired=self.paired)

    @property
    def noise(self) -> float | None:
        """Standard deviation over the baseline's runs; None for a single run."""
        return stdev(self.theirs) if len(self.theirs) > 1 else None

    @staticmethod
    def between(
        candidate: Units, baseline: Units, *, paired: bool, rng: np.random.Generator, draws: int = DRAWS
    ) -> Difference:
        """The difference of two models' runs on the same units.

        The units are resampled, the same for both models and all runs (a paired bootstrap), and the metric is
        computed anew on every resample. Runs are a second level: their spread is taken from the scores of the
        runs themselves, as a bootstrap of three to ten runs would underestimate it.

        Args:
            candidate: The candidate's units.
            baseline: The baseline's units, for which `same_examples` holds.
            paired: Whether the runs pair up, as evaluations with the same seed do.
            rng: The random generator.
            draws: The number of replicates.
        """
        mine, theirs = candidate.scores(), baseline.scores()
        parts, exact = [], None
        for one, other in zip(candidate.strata, baseline.strata, strict=True):
            parts.append(_unit_part(one, other, rng, draws))
            if len(mine) == len(theirs) == 1:
                parts.append(_probe_part(one, other))
        if len(candidate.strata) == 1 and len(mine) == len(theirs) == 1:
            exact = _exchange_test(candidate.strata[0], baseline.strata[0], rng, draws)
        return Difference(
            mine=tuple(mine.tolist()),
            theirs=tuple(theirs.tolist()),
            paired=paired,
            units=candidate.count,
            examples=_together(parts),
            exact=exact,
        )


def _together(parts: list[Part]) -> Part:
    """The sum of independent parts, with the degrees of freedom of Welch and Satterthwaite.

    >>> _together([Part(variance=1.0, freedom=4), Part(variance=1.0, freedom=4)])
    Part(variance=2.0, freedom=8.0)
    """
    total = sum(part.variance for part in parts)
    below = sum(part.variance**2 / part.freedom for part in parts)
    return Part(variance=total, freedom=total**2 / below if below > 0 else stats.LARGE)


def _unit_part(one: Stratum, other: Stratum, rng: np.random.Generator, draws: int) -> Part:
    """The variance of the difference over resamples of a stratum's units."""
    count = one.count
    freedom = max(count - 1, 1)
    deltas = _deltas(one, other)
    found = np.concatenate([deltas(weights) for weights in _blocks(count, draws, rng)])
    spread = float(found.astype(np.float64).var(ddof=1)) * count / freedom
    return Part(variance=one.share**2 * (spread + _unseen(one, other, spread)), freedom=freedom)


def _probe_part(one: Stratum, other: Stratum) -> Part:
    """The variance from the choice of the probes' training texts, beyond that of the units.

    The probes of both models have the same training texts, so their differences are a sample. Their variation
    from single units that each probe answers differently is in the units' part already.
    """
    values = one.predicted[0] - other.predicted[0] if one.predicted.shape == other.predicted.shape else None
    if values is None or one.measures != ("mean",) or len(values) < 2:
        return Part(variance=0.0, freedom=1)
    probes, units = values.shape
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    within = float((rest**2).sum()) / ((probes - 1) * max(units - 1, 1))
    spread = float(values.mean(axis=1).var(ddof=1)) - within / units
    return Part(variance=one.share**2 * max(spread, 0.0) / probes, freedom=probes - 1)


def _deltas(one: Stratum, other: Stratum) -> Callable[[Floats], Floats]:
    """The function from weights (resamples, units) to the difference in each resample, (resamples,)."""
    if one.measures == ("mean",):
        of_units = _means(one) - _means(other)
        return lambda weights: MEASURES["mean"](one.gold, of_units, weights)
    mine, theirs = (part.predicted.reshape(-1, part.count) for part in (one, other))
    measures = [_prepare_metric(name, one.gold, np.concatenate([mine, theirs])) for name in one.measures]
    count = len(mine)

    def deltas(weights: Floats) -> Floats:
        found = np.mean([measure(weights) for measure in measures], axis=0)
        return np.asarray(found[:count].mean(axis=0) - found[count:].mean(axis=0))

    return deltas


def _means(one: Stratum) -> Floats:
    """The score of each unit, a mean over runs and probes."""
    return np.asarray(one.predicted.mean(axis=(0, 1)))


def _differing(one: Stratum, other: Stratum) -> np.ndarray:
    """The units that the two models answer differently, (units,) of truth values."""
    if one.measures == ("mean",):
        return np.asarray(_means(one) != _means(other))
    if one.predicted.shape != other.predicted.shape:
        return np.ones(one.count, dtype=bool)
    return np.asarray((one.predicted != other.predicted).any(axis=(0, 1)))


def _unseen(one: Stratum, other: Stratum, spread: float) -> float:
    """The variance of one more unit that might have differed, where most units are answered alike.

    If all units of a sample tie, or differ by the same amount, a bootstrap finds no uncertainty; but none of
    n differing units does not prove that none would differ (Agresti and Min, 2005, add such
    pseudo-observations to paired proportions).
    """
    differ = _differing(one, other)
    if differ.all() and spread > FLAT:
        return 0.0
    size = 1.0
    if one.measures == ("mean",) and differ.any():
        size = float(np.sqrt(np.mean((_means(one) - _means(other))[differ] ** 2)))
    return (size / (one.count + 2)) ** 2


def _exchange_test(
    one: Stratum, other: Stratum, rng: np.random.Generator, draws: int
) -> tuple[float, float] | None:
    differ = _differing(one, other)
    return _p_values(one, other, differ, rng, draws) if 0 < differ.sum() < ALIKE else None


def _run_part(mine: Sequence[float], theirs: Sequence[float], *, paired: bool) -> Part | None:
    """The variance that runs add to the difference of their means; None with a single run of each side.

    Two unpaired groups each have a spread of their own; a single run is as uncertain as those of the other
    side.

    >>> _run_part([0.5, 0.7], [0.4], paired=False)
    Part(variance=0.03, freedom=1)
    """
    if paired and len(mine) == len(theirs) > 1:
        deltas = [a - b for a, b in zip(mine, theirs, strict=True)]
        return Part(variance=variance(deltas) / len(deltas), freedom=len(deltas) - 1)
    groups = [one for one in (mine, theirs) if len(one) > 1]
    if paired or not groups:
        return None
    if len(groups) == 2:
        return _together([Part(variance=variance(g) / len(g), freedom=len(g) - 1) for g in groups])
    spread = variance(groups[0]) * (1 / len(mine) + 1 / len(theirs))
    return Part(variance=round(spread, 15), freedom=len(groups[0]) - 1)


@dataclass(frozen=True, kw_only=True)
class MeanDifference(Compared):
    """Candidate minus baseline, of the mean over those columns whose tasks were all tested.

    `mine` and `theirs` are the means of the runs: a single value where tasks differ in their number of runs.

    Attributes:
        spread: The uncertainty from the runs; None where it is unknown.
        columns, wanted: The tested columns, and the number of the suite's columns.
    """

    spread: Part | None
    columns: tuple[str, ...]
    wanted: int

    @property
    def seeds(self) -> Part | None:
        """The uncertainty from the runs; None where it is unknown."""
        return self.spread

    @staticmethod
    def over_suite(suite: Suite, found: Mapping[str, Difference]) -> MeanDifference | None:
        """The difference of the means over tested columns, each counted once; None without a tested column.

        Columns that the suite shows and does not average are left out, unless they are all that there is.
        `found` are differences by task, and by column where a column shows a part of a task.

        The units of different tasks are independent of each other. Their runs are not where one training gave
        a model for all tasks, so the spread of runs is taken from the means of the runs.
        """
        columns = _averaged_columns(suite)
        tested = {name: tasks for name, tasks in columns.items() if tasks and all(t in found for t in tasks)}
        if not tested:
            return None
        shares: dict[str, float] = {}
        for tasks in tested.values():
            for task in tasks:
                shares[task] = shares.get(task, 0.0) + 1 / len(tested) / len(tasks)
        ones = {task: found[task] for task in shares}
        mine, theirs, spread = _runs(shares, ones)
        return MeanDifference(
            mine=mine,
            theirs=theirs,
            examples=_together([_scaled(ones[task].examples, share) for task, share in shares.items()]),
            spread=spread,
            columns=tuple(tested),
            wanted=len(columns),
            same=all(one.same for one in ones.values()),
        )


def _averaged_columns(suite: Suite) -> dict[str, list[str]]:
    """The columns in a suite's mean, each with the names of its tasks, or its own where it shows a part."""
    parts = suite.parts
    apart = {column.name for column in suite.columns if column.shown_only}
    columns = {c.name: [c.name] if c.name in parts else [t.name for t in c.tasks] for c in suite.columns}
    return {name: tasks for name, tasks in columns.items() if name not in apart} or columns


def _runs(
    shares: Mapping[str, float], ones: Mapping[str, Difference]
) -> tuple[tuple[float, ...], tuple[float, ...], Part | None]:
    """The mean of each run of both sides, and the variance from their spread."""
    counts = {(len(o.mine), len(o.theirs), o.paired) for o in ones.values() if o.seeds is not None}
    if len(counts) > 1:
        parts = [(one.seeds, shares[task]) for task, one in ones.items()]
        seeds = _together([_scaled(part, share) for part, share in parts if part is not None])
        return (_run(shares, ones, "mine"),), (_run(shares, ones, "theirs"),), seeds
    if not counts:
        return (_run(shares, ones, "mine"),), (_run(shares, ones, "theirs"),), None
    many, others, paired = next(iter(counts))
    mine = tuple(_run(shares, ones, "mine", run) for run in range(many))
    theirs = tuple(_run(shares, ones, "theirs", run) for run in range(others))
    return mine, theirs, _run_part(mine, theirs, paired=paired)


def _run(
    shares: Mapping[str, float],
    ones: Mapping[str, Difference],
    side: Literal["mine", "theirs"],
    run: int | None = None,
) -> float:
    """The mean of one run, or of all; a task with a single run has the same score in each."""
    total = 0.0
    for task, share in shares.items():
        scores: tuple[float, ...] = getattr(ones[task], side)
        total += share * (fmean(scores) if run is None or len(scores) == 1 else scores[run])
    return total


def _scaled(part: Part, share: float) -> Part:
    return Part(variance=share**2 * part.variance, freedom=part.freedom)


ALL_OF = 12
"""Most differing units for which every exchange is tried; beyond it a random sample is."""

ROUNDING = 1e-9


def _p_values(
    one: Stratum, other: Stratum, differ: np.ndarray, rng: np.random.Generator, draws: int
) -> tuple[float, float]:
    """p-values of a difference as low, and as high, if the models are exchangeable.

    Each unit that the models answer differently is given to either of them at random, and both scores are
    computed anew (Noreen, 1989; Yeh, 2000).
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
    """The difference with some units exchanged: both models' answers side by side, weighted."""
    kept = 1 - exchanged
    mine, theirs = (np.concatenate(pair, axis=1) for pair in ((kept, exchanged), (exchanged, kept)))
    gold = one.gold if one.measures == ("mean",) else np.concatenate([one.gold, one.gold])
    found = []
    for name in one.measures:
        for a, b in zip(one.predicted[0], other.predicted[0], strict=True):
            both = np.concatenate([a, b])
            found.append(MEASURES[name](gold, both, mine) - MEASURES[name](gold, both, theirs))
    return np.asarray(np.mean(found, axis=0))


FEW = 200
"""The number of units below which they are drawn exactly; others are drawn singly (Poisson, mean 1)."""

DRAWS_AT_ONCE = 40_000
"""Weights in a block: as many as a processor's cache holds beside the results."""

_STEPS = 1 << 16


def _blocks(units: int, draws: int, rng: np.random.Generator) -> Iterator[Weights]:
    """The weights of `draws` replicates, in blocks of (replicates, units).

    Few units are drawn with replacement, as many as there are. Of many units the counts are independent
    Poisson variables of mean 1, which is the limit of the same at a tenth of the work (Hanley and MacGibbon,
    2006, "Creating non-parametric bootstrap samples using Poisson frequencies").
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
    """The Poisson count for each of 65,536 equally likely numbers."""
    shares = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(10)])
    bounds = np.round(shares * _STEPS)
    return np.searchsorted(bounds, np.arange(_STEPS), side="right").astype(np.float32)


_COUNTS = _counts()


def _prepare_metric(name: str, gold: Floats, predicted: Floats) -> Callable[[Floats], Floats]:
    """A metric of several predictions (predictions, units) of the same gold, prepared for many calls."""
    if name == "spearman":
        return prepare_spearman(gold, [*predicted])
    return lambda weights: np.stack([MEASURES[name](gold, one, weights) for one in predicted])
