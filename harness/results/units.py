"""The units of a score: queries, pairs, texts or draws, in strata."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.results.weighted_metrics import MEASURES, Floats, prepare_spearman

NOTHING: Floats = np.zeros(0)

Names: TypeAlias = NDArray[np.uint64]
"""Numbers that stand for units, equal where texts are, in whatever split, subset or task."""

Influences: TypeAlias = tuple[Names, Floats]
"""Distinct units, and what each adds to a score or difference: (runs, units) or (units,), of sum 0."""

# A jackknife costs groups × units. By a thousand groups the variance is off by about 4 % (√(2 / 1000)), and
# bounds by half of that.
GROUPS = 1000
"""Most groups of units that a jackknife leaves out one by one."""

# In float64: 32 MB.
AT_ONCE = 4_000_000
"""Weights in memory at one time."""

FLAT = 1e-24
"""A variance below this is rounding."""

LEVEL = 0.95
"""The share of truths within an interval."""


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """The units of one split and subset.

    Attributes:
        measures: Names in MEASURES; the stratum's score is the mean of these measures.
        share: The weight in the score of the task; the shares of a task sum to 1.
        examples: The digest of the units' ids in order, equal for models measured on the same units.
        gold: (units,), empty where units are their own scores (the measure `mean`).
        predicted: (runs, probes, units): the predictions of each run, or the scores of its units. The
            measures of several probes are averaged.
        split, subset: Empty where units were made of neither.
        texts: The names of the texts, (texts,), where units are draws that share texts; else empty.
        influences: (runs, texts): what each of these texts adds to the score, of sum 0 in each run.
        names: The units, or the texts, by what they say; empty where it is unknown, and each is its own.
    """

    measures: tuple[str, ...]
    share: float = 1.0
    examples: str
    gold: Floats
    predicted: Floats
    split: str = ""
    subset: str = ""
    texts: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    influences: Floats = field(default_factory=lambda: NOTHING)
    names: Names = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    @property
    def size(self) -> int:
        """The number of units with all copies: of texts, where draws share them."""
        return len(self.texts) or int(self.predicted.shape[2])

    @property
    def count(self) -> int:
        """The number of distinct units."""
        return len(self.copies[0])

    @functools.cached_property
    def copies(self) -> tuple[Names, NDArray[np.intp], NDArray[np.intp]]:
        """Names and first places of distinct units, (distinct,), and the number of the unit at each place."""
        if not len(self.names):
            return name_places(self.examples, places := np.arange(self.size)), places, places
        names, first, units = np.unique(self.names, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return names[order], first[order], np.argsort(order)[units]

    def sum_copies(self, values: Floats) -> Floats:
        """The sums over the copies of each distinct unit, (..., distinct), of values (..., units)."""
        if self.count == self.size:
            return values
        sums = np.zeros((*values.shape[:-1], self.count))
        np.add.at(sums.T, self.copies[2], values.T)
        return sums

    @property
    def weights(self) -> Floats:
        """The weights (1, units) of the score itself."""
        return np.ones((1, self.predicted.shape[2]))

    def score_runs(self, weights: Floats) -> Floats:
        """The score of each run in each resample, (runs, resamples), from weights (resamples, units)."""
        return np.stack([self._score_run(run, weights) for run in self.predicted])

    def _score_run(self, probes: Floats, weights: Floats) -> Floats:
        # A mean is linear: averaging the probes first takes one call in place of one for each probe.
        if self.measures == ("mean",):
            return MEASURES["mean"](self.gold, probes.mean(axis=0), weights)
        values = [MEASURES[name](self.gold, one, weights) for name in self.measures for one in probes]
        return np.asarray(np.mean(values, axis=0))


@dataclass(frozen=True, kw_only=True)
class Units:
    """One model's score on one task, as units.

    Attributes:
        metric: The metric of the score, as in the record.
        unit: The name of the units, in the plural.
        strata: At least one stratum, all with the same number of runs.
        outputs: The digest of all that the model gave for the examples; empty where it is unknown.
    """

    metric: str
    unit: str
    strata: tuple[Stratum, ...]
    outputs: str = ""

    @property
    def count(self) -> int:
        """The number of distinct units in all strata."""
        return len(np.unique(np.concatenate([stratum.copies[0] for stratum in self.strata])))

    @property
    def runs(self) -> int:
        """The number of runs (seeds)."""
        return len(self.strata[0].predicted)

    def score_runs(self) -> Floats:
        """The score of each run, (runs,)."""
        terms = [one.share * one.score_runs(one.weights)[:, 0] for one in self.strata]
        return np.asarray(np.sum(terms, axis=0))

    def select_subsets(self, cells: Collection[tuple[str, str]]) -> Units | None:
        """The units of some (split, subset) alone; None unless there are some of each."""
        strata = [one for one in self.strata if (one.split, one.subset) in cells]
        if {(one.split, one.subset) for one in strata} != {*cells}:
            return None
        total = sum(one.share for one in strata)
        return replace(self, strata=tuple(replace(one, share=one.share / total) for one in strata))

    def list_influences(self) -> list[Influences]:
        """What each distinct unit of each stratum adds to the score of each run."""
        return [(_name_influences(one), one.share * _compute_influences(one)) for one in self.strata]

    def estimate_half_width(self) -> float | None:
        """Half of the 95 % interval of the score, by the choice of units; None where all units are alike.

        Student's quantile times the standard error: of a mean over units the root of their variance over
        their number, of any other metric the jackknife's (Efron and Tibshirani, 1993, An Introduction to the
        Bootstrap, chapter 11). Sets of units are independent: their variances add up, with the degrees of
        freedom of Welch and Satterthwaite.
        """
        from scipy.special import stdtrit

        influences = [own.mean(axis=0) for _, own in sum_influences(self.list_influences())]
        counts = [len(own) for own in influences]
        sums = [float((own**2).sum()) for own in influences]
        variances = [s * n / (n - 1) for s, n in zip(sums, counts, strict=True) if n > 1]
        total = sum(variances)
        # A single unit says nothing of its like, nor do units that all scored the same.
        if total <= FLAT or min(counts) < 2:
            return None
        freedom = total**2 / sum(v**2 / (n - 1) for v, n in zip(variances, counts, strict=True))
        return float(stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(total))

    @staticmethod
    def join_runs(parts: Sequence[Units]) -> Units:
        """Several runs as one: runs on the same units side by side, draws of other seeds as further units.

        Raises:
            ValueError: Units other than draws differ.
        """
        groups: dict[tuple[object, ...], list[Units]] = {}
        for part in parts:
            groups.setdefault(_build_shape_key(part), []).append(part)
        unit_sets = [_merge_units(group, axis=0) for group in groups.values()]
        if len(unit_sets) == 1:
            return unit_sets[0]
        drawn = all(one.unit == DRAWS or len(one.strata[0].texts) for one in unit_sets)
        if not drawn or len({one.runs for one in unit_sets}) > 1:
            raise ValueError("the runs were measured on different units")
        return _merge_units(unit_sets, axis=2)

    def pool_runs(self) -> Units:
        """The units as a single run, with the probes of all runs as its probes."""
        strata = [
            replace(
                one,
                predicted=one.predicted.reshape(1, -1, one.predicted.shape[2]),
                influences=one.influences.mean(axis=0, keepdims=True) if len(one.texts) else NOTHING,
            )
            for one in self.strata
        ]
        return replace(self, strata=tuple(strata))

    def name_as_both(self, second: Units) -> Units:
        """The same with only those units as copies that are it in a second model too."""
        pairs = zip(self.strata, second.strata, strict=True)
        return replace(self, strata=tuple(replace(one, names=_match_names([one, two])) for one, two in pairs))

    def has_same_examples(self, second: Units) -> bool:
        """Whether two models were measured on the same units."""
        return _build_shape_key(self) == _build_shape_key(second)


DRAWS = "draws"
"""The kind of units that depends on the seed."""

TRAINED = "examples"
"""The kind of units of tasks that a recipe trained for, whose runs are trainings."""


def _compute_influences(stratum: Stratum) -> Floats:
    """What each unit adds to the score of each run, (runs, units), of sum 0 in each."""
    if len(stratum.texts):
        return stratum.influences
    if stratum.measures == ("mean",):
        values = stratum.predicted.mean(axis=1)
        return stratum.sum_copies((values - values.mean(axis=1, keepdims=True)) / stratum.size)
    count = min(stratum.count, GROUPS)
    rows = stratum.predicted.reshape(-1, stratum.size)
    measures = [_prepare_metric(name, stratum.gold, rows) for name in stratum.measures]
    replicates = [
        np.mean([of(weights) for of in measures], axis=0)
        for weights in _iter_jackknife_weights(stratum.copies[2], count)
    ]
    # Efron and Tibshirani (1993, An Introduction to the Bootstrap, chapter 11): the jackknife's variance is
    # (n - 1) / n times the squares below. Whoever sums squares multiplies by n / (n - 1), hence this factor.
    left_out = np.concatenate(replicates, axis=1).reshape(*stratum.predicted.shape[:2], count).mean(axis=1)
    return np.asarray((left_out.mean(axis=1, keepdims=True) - left_out) * (count - 1) / count)


def _name_influences(stratum: Stratum) -> Names:
    """The names of what the influences of a stratum are of: distinct units, or groups of them."""
    grouped = stratum.measures != ("mean",) and stratum.count > GROUPS
    return name_places(stratum.examples, np.arange(GROUPS)) if grouped else stratum.copies[0]


def name_places(examples: str, places: NDArray[np.intp]) -> Names:
    """Names of places in a set of units, the same in whatever subset or task has the set."""
    start = np.frombuffer(hashlib.sha256(examples.encode()).digest()[:8], dtype=np.uint64)
    return np.asarray(start + places.astype(np.uint64))


def _match_names(strata: Sequence[Stratum]) -> Names:
    """Names by which units are copies only where they are in each of several runs on the same units."""
    names = strata[0].names
    for stratum in strata[1:]:
        if not len(names) or not len(stratum.names):
            return np.zeros(0, dtype=np.uint64)
        if not np.array_equal(names, stratum.names):
            both = names * np.uint64(0x9E3779B97F4A7C15) + stratum.names  # a pair of numbers as a number
            _, first, units = np.unique(both, return_index=True, return_inverse=True)
            names = name_places(stratum.examples, first[units])
    return names


def sum_influences(sets: Sequence[Influences]) -> list[Influences]:
    """Independent sets of units: those that share units are a single one, with the sums of what they add."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    of_set = np.repeat(np.arange(len(sets)), [len(names) for names, _ in sets])
    distinct, units = np.unique(np.concatenate([names for names, _ in sets]), return_inverse=True)
    if len(distinct) == len(units):
        return list(sets)
    shared = coo_array((np.ones(len(units)), (of_set, units))).tocsr()
    count, groups = connected_components(shared @ shared.T, directed=False)
    sums = []
    for group in range(count):
        members = [own for own, at in zip(sets, groups, strict=True) if at == group]
        names = np.unique(np.concatenate([own for own, _ in members]))
        total = np.zeros((*members[0][1].shape[:-1], len(names)))
        for own, values in members:
            total[..., np.searchsorted(names, own)] += values
        sums.append((names, total))
    return sums


def _iter_jackknife_weights(units: NDArray[np.intp], count: int) -> Iterator[Floats]:
    """Weights (groups, places) in blocks; each row leaves a group of units out, with all their copies."""
    size, groups = max(1, AT_ONCE // len(units)), units % count
    for first in range(0, count, size):
        yield (groups != np.arange(first, min(first + size, count))[:, None]).astype(np.float64)


def _prepare_metric(name: str, gold: Floats, predicted: Floats) -> Callable[[Floats], Floats]:
    """A metric of several predictions (predictions, units) of the same gold, prepared for many calls."""
    if name == "spearman":
        return prepare_spearman(gold, [*predicted])
    return lambda weights: np.stack([MEASURES[name](gold, one, weights) for one in predicted])


def _merge_units(parts: Sequence[Units], *, axis: int) -> Units:
    """Parts side by side (axis 0, runs of the same units) or end to end (axis 2, units of their own)."""
    if len(parts) == 1:
        return parts[0]
    strata = []
    for same in zip(*(part.strata for part in parts), strict=True):
        names = list(dict.fromkeys(one.examples for one in same))
        predicted = np.concatenate([one.predicted for one in same], axis=axis)
        merged = replace(same[0], examples="+".join(names), predicted=predicted)
        if axis == 0:
            merged = replace(merged, names=_match_names(same))
        if len(merged.texts) and axis == 0:
            merged = replace(merged, influences=np.concatenate([one.influences for one in same]))
        elif len(merged.texts):
            merged = _merge_text_influences(merged, same)
        strata.append(merged)
    return replace(parts[0], strata=tuple(strata))


def _merge_text_influences(merged: Stratum, parts: Sequence[Stratum]) -> Stratum:
    """A stratum with the texts of draws end to end, and what each adds to the mean over all draws."""
    texts, first, places = np.unique(
        np.concatenate([one.texts for one in parts]), return_index=True, return_inverse=True
    )
    draws = [one.predicted.shape[2] for one in parts]
    influences = np.zeros((len(parts[0].predicted), len(texts)))
    ends = np.cumsum([len(one.texts) for one in parts])[:-1]
    for stratum, draw_count, positions in zip(parts, draws, np.split(places, ends), strict=True):
        # An influence is on the mean of its own draws, so it is weighted by their part in all draws.
        influences[:, positions] += stratum.influences * draw_count / sum(draws)
    known = all(len(one.names) for one in parts)
    names = np.concatenate([one.names for one in parts])[first] if known else parts[0].names[:0]
    return replace(merged, texts=texts, influences=influences, names=names)


def _build_shape_key(units: Units) -> tuple[object, ...]:
    return tuple(
        # Shares are sums and quotients of floats, whose last digits depend on the order.
        (one.measures, one.examples, round(one.share, 12), one.size, one.gold.tobytes())
        for one in units.strata
    )


Texts = NDArray[np.object_]
