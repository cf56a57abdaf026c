"""Languages of one task, of which one collapses or none differs: how often each is named by a check.

    python benchmarks/simulate_parts.py --trials 1000

Each language has 100 texts, and 0.8 of their answers are right; of that which collapses 0.2 are. A share of
the answers of an equal model is drawn anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from measuring import read_options
from simulate_gate import made_up

from harness.checks.baselines import BaselineModel
from harness.checks.outcome import PartLoss
from harness.checks.policy import DEFAULT
from harness.checks.sides import CheckSide, Comparison
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_comparison
from harness.results.record_units import ScoredRecord
from harness.results.units import Stratum, Units
from harness.results.weighted_metrics import Floats

TEXTS, RIGHT, FALLEN = 100, 0.8, 0.2
SUITE = made_up(["T"])


def draw_languages(
    count: int, rng: np.random.Generator, *, changed: float = 0.15, fallen: int = 0
) -> Comparison:
    """A pair of models: the first `fallen` languages of the candidate collapse, the others are equal."""
    theirs = rng.random((count, TEXTS)) < RIGHT
    mine = np.where(rng.random(theirs.shape) < changed, rng.random(theirs.shape) < RIGHT, theirs)
    mine[:fallen] = rng.random((fallen, TEXTS)) < FALLEN
    return Comparison(candidate=_side("x", mine * 1.0), baseline=_side("a", theirs * 1.0), failures={})


def _side(model: str, answers: Floats) -> CheckSide:
    strata = tuple(
        Stratum(
            measures=("mean",), share=1 / len(answers), examples=str(at), split="test", subset=f"l{at}",
            gold=np.zeros(0), predicted=own[None, None],
        )
        for at, own in enumerate(answers)
    )  # fmt: skip
    record = ScoredRecord(
        key=model, task={}, model={"artifact": model}, identity={}, provenance={},
        score=float(answers.mean()), units=Units(metric="accuracy", unit="texts", strata=strata),
    )  # fmt: skip
    run = BaselineModel(model=model, source=model, artifact=model, folder=model, keys={})
    return CheckSide(runs=(run,), home=Path(), scored={"T": (record,)}, missing={"T": 0})


def list_lost(sides: Comparison) -> tuple[PartLoss, ...]:
    """The languages that a check names."""
    power = estimate_baseline_power(sides.baseline, [SUITE], DEFAULT)
    return evaluate_comparison(sides, [SUITE], DEFAULT, power)[0][0].lost


def main() -> None:
    """Print the shares of checks that name the collapsed language, and any other one."""
    given = read_options(__doc__, trials=1000, seed=0)
    for count in (10, 30, 100):
        for changed in (0.02, 0.15, 0.4, 0.8):
            rng, named, false = np.random.default_rng([given.seed, count, int(100 * changed)]), 0, 0
            for _ in range(given.trials):
                lost = list_lost(draw_languages(count, rng, changed=changed, fallen=1))
                named += bool(lost) and lost[0].part == "l0" and lost[0].collapsed
                false += bool(list_lost(draw_languages(count, rng, changed=changed)))
            print(
                f"{count:4} languages, {changed:4.0%} of answers changed: the collapsed one named in "
                f"{named / given.trials:.1%}, any of an equal model in {false / given.trials:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
