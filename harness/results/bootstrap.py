"""Bootstrap intervals of scores over seeds and examples, after OptiBERT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from harness.results.weighted_metrics import METRICS, Floats

DRAWS, LEVEL = 1000, 0.95
"""The number of replicates, and the share of them between the bounds."""

# In float64: 32 MB.
AT_ONCE = 4_000_000
"""The number of weights in memory at one time: replicates * examples."""

Seeds = Literal["all", "one"]
"""Whether a replicate draws as many seeds as there are, or a single seed."""


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The predictions of several seeds, `predicted` (seeds, examples), with their `gold` (examples,)."""

    gold: Floats
    predicted: Floats

    @staticmethod
    def read_file(path: Path) -> dict[str, Predictions]:
        """The predictions of a per-example file by split, with one row for each seed."""
        import pyarrow.parquet as pq

        table = pq.read_table(path, columns=["split", "replicate", "prediction", "gold"]).to_pydict()
        splits, seeds = np.array(table["split"]), np.array(table["replicate"])
        predicted, gold = (np.array(table[name], dtype=float) for name in ("prediction", "gold"))
        predictions = {}
        for split in dict.fromkeys(table["split"]):
            of_seeds = [(splits == split) & (seeds == seed) for seed in dict.fromkeys(table["replicate"])]
            predictions[split] = Predictions(
                gold=gold[of_seeds[0]], predicted=np.stack([predicted[chosen] for chosen in of_seeds])
            )
        return predictions

    @staticmethod
    def compute_seed_scores(sets: Sequence[Predictions], metrics: Sequence[str]) -> Floats:
        """The score of each seed: the mean over metrics and sets, (seeds,)."""
        values = [
            [
                [METRICS[name](s.gold, one, np.ones((1, len(s.gold))))[0] for one in s.predicted]
                for name in metrics
            ]
            for s in sets
        ]
        return np.asarray(np.mean(values, axis=(0, 1)))

    @staticmethod
    def draw_replicates(
        sets: Sequence[Predictions], metrics: Sequence[str], *, rng: np.random.Generator, draws: int = DRAWS
    ) -> dict[Seeds, Floats]:
        """The score of a task in each replicate, (draws,), with as many seeds as there are and with one seed.

        A replicate draws seeds, and examples once for all of them: a task's examples are the same for every
        seed, and drawing them for each seed would make the interval too narrow. Several sets, such as MNLI's
        matched and mismatched, are drawn separately and count alike. Where seeds answer single examples
        differently at random, that noise enters twice and the interval is too wide; where seeds as such
        differ much, a few of them are not enough and it is too narrow. With one seed a replicate the widths
        come closest to OptiBERT's.

        Args:
            sets: The sets of one task, with the same seeds.
            metrics: Names in METRICS; their mean is the score.
            rng: The random number generator.
            draws: The number of replicates.
        """
        count = len(sets[0].predicted)
        every = rng.integers(count, size=(draws, count))
        of_sets = [np.concatenate([*_iter_resamples(one, metrics, draws, rng)]) for one in sets]
        of_seeds = np.mean(of_sets, axis=0)
        single = rng.integers(count, size=(draws, 1))
        return {
            "all": np.take_along_axis(of_seeds, every, axis=1).mean(axis=1),
            "one": np.take_along_axis(of_seeds, single, axis=1).mean(axis=1),
        }


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A score with its bounds, all shares of 1."""

    point: float
    low: float
    high: float

    @staticmethod
    def from_replicates(point: float, drawn: Floats, *, level: float = LEVEL) -> Interval:
        """The interval between the percentiles of the replicates.

        Args:
            point: The score.
            drawn: The score in each replicate, (draws,).
            level: The share of replicates between the bounds.
        """
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
        return Interval(point=point, low=float(low), high=float(high))

    @staticmethod
    def estimate_average(points: Mapping[str, float], drawn: Mapping[str, Floats]) -> Interval:
        """The interval of the mean over tasks, whose examples are independent of each other."""
        return Interval.from_replicates(
            float(np.mean([*points.values()])), np.mean([*drawn.values()], axis=0)
        )

    @staticmethod
    def mean_of_bounds(intervals: Sequence[Interval]) -> Interval:
        """The mean of the bounds, which OptiBERT prints for its average: wider than an interval of the mean.

        >>> wide, narrow = Interval(point=0.5, low=0.25, high=0.75), Interval(point=1, low=0.75, high=1)
        >>> Interval.mean_of_bounds([wide, narrow])
        Interval(point=0.75, low=0.5, high=0.875)
        """
        point, low, high = (
            float(np.mean([getattr(i, n) for i in intervals])) for n in ("point", "low", "high")
        )
        return Interval(point=point, low=low, high=high)


def _iter_resamples(
    one: Predictions, metrics: Sequence[str], draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """The score of every seed in each replicate of one set, in parts of (replicates, seeds)."""
    examples = len(one.gold)
    size = max(1, AT_ONCE // examples)
    for first in range(0, draws, size):
        rows = min(size, draws - first)
        # How often each example is in a resample with replacement: multinomial counts, drawn at once.
        weights = rng.multinomial(examples, np.full(examples, 1 / examples), size=rows).astype(float)
        values = [[METRICS[name](one.gold, p, weights) for p in one.predicted] for name in metrics]
        yield np.asarray(np.mean(values, axis=0).T)
