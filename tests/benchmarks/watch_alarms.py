"""How often a watch flags a sound curve, and how often it finds a drop.

    python tests/benchmarks/watch_alarms.py

Curves of 30 checkpoints with normal noise: flat, rising with the logarithm of the step, and learning (a
sigmoid of it), evenly spaced. Prints the share of sound checkpoints flagged on arrival, of sound curves
flagged with hindsight (looked at once, and after every checkpoint), and of drops found at their step.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from harness.watch.changes import LEAST, changes

STEPS = [1000 * step for step in range(1, 31)]
NOISE, BROKEN = 0.005, 18
X = np.log1p(np.asarray(STEPS, float))
SHAPES = {
    "flat": np.full(len(STEPS), 0.5),
    "rising": 0.3 + 0.02 * X,
    "learning": 0.3 + 0.3 / (1 + np.exp(-1.5 * (X - np.log(8000)))),
}


def alarms(shape: str, curves: int, rng: np.random.Generator) -> dict[str, float]:
    """Shares of false alarms on one shape."""
    drops = once = ever = 0
    for seed in range(curves):
        values = SHAPES[shape] + rng.normal(0, NOISE, len(STEPS))
        found = changes(STEPS, values, seed=seed)
        drops += sum(one.kind == "drop" for one in found)
        once += any(one.kind == "shift" for one in found)
        looks = (changes(STEPS[:end], values[:end], seed=seed) for end in range(LEAST + 1, len(STEPS) + 1))
        ever += any(one.kind == "shift" for look in looks for one in look)
    return {
        "checkpoints flagged on arrival": round(drops / (curves * (len(STEPS) - LEAST)), 4),
        "curves flagged with hindsight, looked at once": round(once / curves, 4),
        "curves flagged with hindsight, looked at after every checkpoint": round(ever / curves, 4),
    }


def power(size: float, lasting: bool, curves: int, rng: np.random.Generator) -> float:
    """Share of drops of so many standard deviations of the noise that are flagged at their step."""
    found = 0
    for seed in range(curves):
        values = SHAPES["learning"] + rng.normal(0, NOISE, len(STEPS))
        values[BROKEN : None if lasting else BROKEN + 1] -= size * NOISE
        found += any(one.step == STEPS[BROKEN] for one in changes(STEPS, values, seed=seed))
    return round(found / curves, 3)


def main() -> None:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--curves", type=int, default=300)
    curves, rng = parser.parse_args().curves, np.random.default_rng(0)
    print(json.dumps({"curves": curves, **{shape: alarms(shape, curves, rng) for shape in SHAPES}}, indent=1))
    for lasting in (False, True):
        what = "lasting drops found" if lasting else "single low checkpoints found"
        print(what, {f"{size} deviations": power(size, lasting, curves, rng) for size in (4, 6, 8)})


if __name__ == "__main__":
    main()
