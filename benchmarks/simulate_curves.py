"""Runs of a known speed-up: how often the interval holds it, and how often equal runs are called better.

    python benchmarks/simulate_curves.py --trials 1000

Curves rise to an end with a power of the budget, or as a sigmoid of its logarithm. Each seed has its own end
and its own speed, and each checkpoint its noise; checkpoints are spaced evenly, or in equal ratios. The run
that is faster by s has the score at x that the other has at s · x. Ends with 1 if a line misses its bar.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import numpy as np
from measuring import read_options, report_missed

from harness.watch.curves import CurveComparison, SeedCurve, compare_runs

SPEEDUPS = (1.0, 1.5, 2.4)
SEEDS = ((3, 3), (2, 2), (2, 5))
"""Seeds of the faster run, and of the other."""
COVERAGE, CALLED = (0.92, 0.97), 0.05
Shape = Callable[[np.ndarray], np.ndarray]
SHAPES: dict[str, Shape] = {
    "power": lambda x: 0.84 - 0.3 * x**-0.4,
    "sigmoid": lambda x: 0.4 + 0.4 / (1 + np.exp(-0.9 * (np.log(x) - 1.5))),
}
GRIDS = {"even": np.linspace(2, 70, 20), "ratios": np.geomspace(1, 70, 14)}
SPREAD, OWN_SPEED, NOISE = 0.003, 0.08, 0.002
"""Standard deviations: of a seed's end, of the logarithm of its speed, and of a checkpoint."""


def draw_seed(
    run: str, seed: int, shape: Shape, grid: np.ndarray, speed: float, rng: np.random.Generator
) -> SeedCurve:
    """The curve of a seed."""
    own = speed * np.exp(rng.normal(0, OWN_SPEED))
    scores = shape(own * grid) + rng.normal(0, SPREAD) + rng.normal(0, NOISE, len(grid))
    return SeedCurve(run=run, seed=str(seed), budgets=grid, scores=scores)


def compare_drawn_runs(
    shape: str, grid: str, speedup: float, seeds: tuple[int, int], rng: np.random.Generator
) -> CurveComparison:
    """The comparison of a run with one that is `speedup` times slower."""
    speeds = {"fast": (speedup, seeds[0]), "slow": (1.0, seeds[1])}
    curves = [
        draw_seed(run, seed, SHAPES[shape], GRIDS[grid], speed, rng)
        for run, (speed, count) in speeds.items()
        for seed in range(count)
    ]
    return compare_runs(curves)


def measure_line(
    shape: str, grid: str, speedup: float, trials: int, seed: int, seeds: tuple[int, int] = SEEDS[0]
) -> dict[str, float]:
    """The shares of trials whose interval holds the truth, that call one run better, and without interval."""
    rng = np.random.default_rng([seed, *map(len, (shape, grid)), int(10 * speedup)])
    pairs = [compare_drawn_runs(shape, grid, speedup, seeds, rng).pairs[0] for _ in range(trials)]
    intervals = [one.speedup for one in pairs if one.speedup is not None]
    held = [(one.low or np.inf) <= speedup <= (one.high or 0) for one in intervals]
    called = [bool(one.better or one.lower) or one.verdict in ("better", "lower") for one in pairs]
    return {
        "held": float(np.mean(held)),
        "called": float(np.mean(called)),
        "every": float(np.mean([one.verdict == "better" for one in pairs])),
        "none": 1 - len(held) / trials,
        "median": float(np.median([one.value for one in intervals])),
    }


def main() -> int:
    """Print a line for each shape, spacing and speed-up."""
    options = read_options(__doc__, trials=1000, seed=0)
    missed = []
    for seeds, shape, grid, speedup in itertools.product(SEEDS, SHAPES, GRIDS, SPEEDUPS):
        line = measure_line(shape, grid, speedup, options.trials, options.seed, seeds)
        name = f"{seeds[0]} and {seeds[1]} seeds {shape:8} {grid:7} {speedup:.1f} x"
        print(
            f"{name}: median {line['median']:.2f}, interval holds it in {line['held']:.1%}, called better "
            f"{line['called']:.1%}, at every budget {line['every']:.1%}, no interval {line['none']:.1%}",
            flush=True,
        )
        if not COVERAGE[0] <= line["held"] <= COVERAGE[1]:
            missed.append(f"{name}: holds")
        if speedup == 1.0 and line["called"] > CALLED:
            missed.append(f"{name}: called better")
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
