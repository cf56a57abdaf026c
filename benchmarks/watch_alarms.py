"""How often a watch flags a sound curve, and how often it finds a drop.

    python benchmarks/watch_alarms.py

Looks: watches of CHECKPOINTS equal checkpoints, example by example, whose scores on each example are draws
of one distribution. Prints the share of watches in which any checkpoint is called lower than an earlier one,
and the share of drops found at their step.

Lines: curves of 30 checkpoints with normal noise: flat, rising with the logarithm of the step, and learning
(a sigmoid of it), evenly spaced. Prints the share of sound checkpoints flagged on arrival, of sound curves
flagged with hindsight (looked at once, and after every checkpoint), and of drops found at their step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from measuring import read_options

from harness.core.types import Column, Data, Suite, Task
from harness.results.score_differences import Difference, MeanDifference
from harness.results.units import NOTHING, Stratum, Units
from harness.watch.changes import LEAST, detect_drops, look_at
from harness.watch.state import Watch, WatchEntry

STEPS = [1000 * step for step in range(1, 31)]
NOISE, BROKEN = 0.005, 18
X = np.log1p(np.asarray(STEPS, float))
SHAPES = {
    "flat": np.full(len(STEPS), 0.5),
    "rising": 0.3 + 0.02 * X,
    "learning": 0.3 + 0.3 / (1 + np.exp(-1.5 * (X - np.log(8000)))),
}


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The examples of a suite, each of which a checkpoint answers anew with a probability of `changed`.

    `right` is the chance of a full score, `wrong` of none; other scores are uniform between them.
    """

    tasks: int
    each: int
    changed: float
    right: float
    wrong: float

    def suite(self) -> Suite:
        """The suite, a column for each task."""
        source: Any = None
        about = {"type": "any", "metric": "any", "splits": ("test",), "data": Data(), "source": source}
        tasks = [Task(name=f"t{n}", **about) for n in range(self.tasks)]
        columns = tuple(Column(name=one.name, type=one.type, tasks=(one,)) for one in tasks)
        return Suite(name="s", title="s", columns=columns)

    def checkpoints(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """The scores of equal checkpoints, (count, tasks, each)."""
        shape = (self.tasks, self.each)
        anew = rng.random((count, *shape)) < self.changed
        return np.where(anew, self._scores((count, *shape), rng), self._scores(shape, rng))

    def _scores(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        kind = rng.random(shape)
        between = np.where(kind < self.right + self.wrong, 0.0, rng.random(shape))
        return np.where(kind < self.right, 1.0, between)


SUITES = {
    "13 tasks of 50 queries": Examples(tasks=13, each=50, changed=0.3, right=0.3, wrong=0.3),
    "3 tasks of 200 queries": Examples(tasks=3, each=200, changed=0.15, right=0.3, wrong=0.3),
    "1 task of 1,000 rare flips": Examples(tasks=1, each=1000, changed=0.02, right=0.9, wrong=0.1),
}
SEED, CHECKPOINTS, SIZES = 0, 40, (0.02, 0.05, 0.1)


def looks(examples: Examples, scores: np.ndarray) -> Watch:
    """The watch of checkpoints with these scores, (checkpoints, tasks, each)."""
    suite, names = examples.suite(), [f"t{n}" for n in range(examples.tasks)]
    units = [[_units(*one) for one in zip(names, checkpoint, strict=True)] for checkpoint in scores]
    watch = Watch(name="w", source="/run", suite="s", request={})
    for step, mine in enumerate(units):
        entry = WatchEntry(step=step, name=f"step{step}", state="done", mean=float(scores[step].mean()))
        reference = watch.find_reference(step)
        if reference is not None:
            pairs = zip(names, mine, units[reference.step], strict=True)
            mean = MeanDifference.aggregate_suite(
                suite, {name: Difference.compare_units(one, other) for name, one, other in pairs}
            )
            assert mean is not None
            look = look_at(mean, number=watch.looks + 1, reference=reference.step)
            entry = entry.model_copy(update={"look": look})
            watch = watch.model_copy(update={"looks": look.number})
        watch = watch.add_entry(entry)
    return watch


def _units(task: str, scores: np.ndarray) -> Units:
    stratum = Stratum(measures=("mean",), gold=NOTHING, predicted=scores[None, None, :], examples=task)
    return Units(metric="ndcg_at_10", unit="queries", strata=(stratum,))


def false_looks(examples: Examples, watches: int, rng: np.random.Generator) -> float:
    """Share of watches of equal checkpoints with any alarm."""
    found = sum(bool(looks(examples, examples.checkpoints(CHECKPOINTS, rng)).lower) for _ in range(watches))
    return round(found / watches, 4)


def drops_found(examples: Examples, size: float, watches: int, rng: np.random.Generator) -> float:
    """Share of drops of the mean, by answers lost at checkpoint BROKEN, that are found there."""
    found = 0
    for _ in range(watches):
        scores = examples.checkpoints(BROKEN + 1, rng)
        lost = rng.random(scores[BROKEN].shape) < size / scores[BROKEN].mean()
        scores[BROKEN][lost] = 0.0
        found += any(one.step == BROKEN for one in looks(examples, scores).lower)
    return round(found / watches, 3)


def alarms(shape: str, curves: int, rng: np.random.Generator) -> dict[str, float]:
    """Shares of false alarms on one shape."""
    drops = once = ever = 0
    for seed in range(curves):
        values = SHAPES[shape] + rng.normal(0, NOISE, len(STEPS))
        found = detect_drops(STEPS, values, seed=seed)
        drops += sum(one.kind == "drop" for one in found)
        once += any(one.kind == "shift" for one in found)
        looks = (
            detect_drops(STEPS[:end], values[:end], seed=seed) for end in range(LEAST + 1, len(STEPS) + 1)
        )
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
        found += any(one.step == STEPS[BROKEN] for one in detect_drops(STEPS, values, seed=seed))
    return round(found / curves, 3)


def main() -> None:
    """Print the shares."""
    given, rng = read_options(__doc__, curves=300, watches=1000), np.random.default_rng(SEED)
    print(f"looks: {given.watches} watches of {CHECKPOINTS} equal checkpoints, seed {SEED}")
    for name, examples in SUITES.items():
        print(
            f"{name}: {100 * false_looks(examples, given.watches, rng):.1f} % of watches have a false alarm"
        )
        shares = [drops_found(examples, size, max(given.watches // 5, 1), rng) for size in SIZES]
        found = [
            f"{100 * size:g} points {100 * share:.0f} %" for size, share in zip(SIZES, shares, strict=True)
        ]
        print(f"  drops at look {BROKEN} that are found there: {', '.join(found)}")
    curves, rng = given.curves, np.random.default_rng(SEED)
    print(json.dumps({"curves": curves, **{shape: alarms(shape, curves, rng) for shape in SHAPES}}, indent=1))
    for lasting in (False, True):
        what = "lasting drops found" if lasting else "single low checkpoints found"
        print(what, {f"{size} deviations": power(size, lasting, curves, rng) for size in (4, 6, 8)})


if __name__ == "__main__":
    main()
