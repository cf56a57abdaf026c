"""Approximate randomisation: what the difference would be if the models' answers were exchanged."""

from __future__ import annotations

import numpy as np

from harness.metrics import Floats
from harness.regress.measures import MEASURES
from harness.regress.units import Stratum

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
