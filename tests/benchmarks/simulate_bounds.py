"""How often the bounds of a difference hold the truth, on made-up models whose true difference is known.

    python tests/benchmarks/simulate_bounds.py --trials 1000

Every generator draws two models' answers to the same units, from a process of its own and not by resampling.
For each, the share of trials is printed in which the truth lies below the lower 95 % bound, above the upper
one, and outside of both, with the true standard deviation of the difference and the mean of the claimed one.
Ends with 1 if a bound misses the truth more often than 5 % by three points and three standard errors.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from simulate_check import units

from harness.checks.difference import Difference
from harness.checks.metrics import v_measure, without_each
from harness.checks.record_units import REFIT
from harness.checks.units import Stratum, Units
from harness.metrics import Floats

ALPHA = 0.05
Generator = Callable[[np.random.Generator], tuple[Units, Units, float]]


def _means(values: Floats, truth: float) -> tuple[Units, Units, float]:
    """The units of differences of single units, and the true mean difference."""
    found = values[None, None]
    return units("mean", found), units("mean", np.zeros_like(found)), truth


def ndcg(rng: np.random.Generator, count: int) -> tuple[Units, Units, float]:
    """Queries of which three in ten find nothing; 15 % are answered anew."""
    levels = np.append(1 / np.log2(np.arange(2, 12)), np.zeros(4))
    before, after = rng.choice(levels, (2, count))
    return _means(np.where(rng.random(count) < 0.15, after - before, 0.0), 0.0)


def flips(rng: np.random.Generator, count: int) -> tuple[Units, Units, float]:
    """Right answers that become wrong (4 %), and wrong ones right (2 %)."""
    return _means(rng.choice([-1.0, 0.0, 1.0], count, p=[0.04, 0.94, 0.02]), -0.02)


def losses(rng: np.random.Generator, count: int) -> tuple[Units, Units, float]:
    """Two in a hundred units lose most of their score, the others nearly nothing."""
    lost = np.where(rng.random(count) < 0.02, -rng.uniform(0.5, 1, count), rng.normal(0, 0.01, count))
    return _means(lost, -0.015)


def correlations(rng: np.random.Generator, count: int) -> tuple[Units, Units, float]:
    """Similarities around gold grades, whose errors two models share in part."""
    gold, shared = rng.normal(size=(2, count))
    mine, theirs = (gold + 0.6 * shared + 0.4 * rng.normal(size=count) for _ in range(2))
    return units("spearman", mine[None, None], gold), units("spearman", theirs[None, None], gold), 0.0


def probes(rng: np.random.Generator, count: int) -> tuple[Units, Units, float]:
    """Ten probes of common training texts, each a little better or worse for either model."""
    level = rng.beta(4, 2, size=count)

    def model() -> Units:
        chance = level + rng.normal(0, 0.01, size=(10, 1)) + rng.normal(0, 0.05, size=count)
        return units("mean", (rng.random((1, 10, count)) < np.clip(chance, 0, 1)).astype(float))

    return model(), model(), 0.0


def trained(rng: np.random.Generator, count: int) -> tuple[Units, Units, float]:
    """Five seeds a side that shift all answers, and answer single examples at random."""
    level = rng.beta(4, 2, size=count)

    def model() -> Units:
        own = level + rng.normal(0, 0.1, size=count)
        chance = own + rng.normal(0, 0.004, size=(5, 1))
        return units("mean", (rng.random((5, 1, count)) < np.clip(chance, 0, 1)).astype(float))

    return model(), model(), 0.0


def clustering(rng: np.random.Generator, count: int, draws: int, size: int) -> tuple[Units, Units, float]:
    """K-means over embeddings of texts of eight groups, of draws with replacement."""
    from sklearn.cluster import MiniBatchKMeans

    centres = np.random.default_rng(5).normal(size=(8, 16)) * 0.5
    groups = rng.integers(8, size=count)
    shared = centres[groups] + 0.7 * rng.normal(size=(count, 16))
    drawn = rng.integers(count, size=(draws, size * count))
    texts = np.array([f"{at:05}" for at in range(count)])

    def model() -> Units:
        embeddings = shared + 0.9 * rng.normal(size=shared.shape)
        kmeans = MiniBatchKMeans(n_clusters=8, batch_size=512, n_init=1, random_state=42)
        found, influences = [], np.zeros(count)
        for own in drawn:
            clusters = kmeans.fit_predict(embeddings[own]).astype(np.intp)
            found.append(v_measure(groups[own], clusters))
            influences[np.unique(own)] += without_each(groups[own], clusters, own)
        of_texts = (influences - influences.mean()) * np.sqrt(REFIT) / draws
        stratum = Stratum(
            measures=("mean",), examples="", gold=np.zeros(0), predicted=np.array(found)[None, None],
            texts=texts, influences=of_texts[None],
        )  # fmt: skip
        return Units(metric="v_measure", unit="texts", strata=(stratum,))

    return model(), model(), 0.0


GENERATORS: Mapping[str, Generator] = {
    **{f"nDCG with ties, {n} queries": partial(ndcg, count=n) for n in (50, 150, 1000)},
    **{f"rare flips, {n} texts": partial(flips, count=n) for n in (150, 1000)},
    **{f"rare losses, {n} queries": partial(losses, count=n) for n in (400, 1000)},
    **{f"Spearman, {n} pairs": partial(correlations, count=n) for n in (200, 1379)},
    **{f"ten probes, {n} texts": partial(probes, count=n) for n in (300, 2000)},
    **{f"five seeds, {n} examples": partial(trained, count=n) for n in (277, 2000)},
    **{
        f"k-means, {n} texts, {draws} draws of {size} times as many": partial(
            clustering, count=n, draws=draws, size=size
        )
        for n, draws, size in ((300, 10, 2), (300, 30, 2), (300, 30, 8), (1000, 10, 2), (2048, 10, 2))
    },
}


def trial(seed: int, name: str) -> tuple[float, float, bool, bool]:
    """The error of a difference, what is claimed of it, and whether the truth is below and above it."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, *name.encode()])
    mine, theirs, truth = GENERATORS[name](rng)
    found = Difference.between(mine, theirs)
    low, high = (found.delta + found.total.reach(share) for share in (ALPHA, 1 - ALPHA))
    return found.delta - truth, found.total.variance, truth < low, truth > high


def main() -> int:
    """Print the shares; 1 if one is out of its bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="Part of the names of generators.")
    given = parser.parse_args()
    most, failed = ALPHA + 0.03 + 3 * (ALPHA / given.trials) ** 0.5, False
    print(json.dumps({"trials": given.trials, "seeds": f"0 to {given.trials - 1}", "bounds": 1 - ALPHA}))
    with ProcessPoolExecutor(given.processes) as pool:
        for name in (name for name in GENERATORS if given.only in name):
            rows = np.array([*pool.map(partial(trial, name=name), range(given.trials), chunksize=8)])
            true, claimed = rows[:, 0].std(), np.sqrt(rows[:, 1].mean())
            below, above = rows[:, 2].mean(), rows[:, 3].mean()
            failed |= bool(max(below, above) > most)
            print(
                f"{name:52} below {below:.3f}  above {above:.3f}  out {below + above:.3f}  "
                f"sd {100 * true:.2f}  claimed {100 * claimed:.2f}",
                flush=True,
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
