"""Ten releases, each checked against the one before and becoming the next baseline: is a slow loss seen?

    python benchmarks/simulate_chain.py --trials 1000

Each release draws 15 % of its predecessor's answers anew, and loses 0.3 points of every task or nothing.
Half of the tasks are right or wrong answers, half are scores with many zeros. The chain goes on whatever a
check says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from measuring import read_options
from simulate_gate import made_up

from harness.checks.baselines import BaselineModel
from harness.checks.outcome import Chain, Power
from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import DEFAULT
from harness.checks.sides import CheckSide, Comparison
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_chain, evaluate_comparison
from harness.core.types import Suite
from harness.results.record_units import ScoredRecord
from harness.results.units import Stratum, Units
from harness.results.weighted_metrics import Floats

RELEASES, CHANGED, LEVEL = 10, 0.15, 0.8


def draw_releases(rng: np.random.Generator, tasks: int, texts: int, loss: float) -> Iterator[CheckSide]:
    """The first baseline and its releases, each a side of a check."""
    shape = tasks, texts
    chance, height = rng.random(shape), rng.beta(2, 1, shape)
    for release in range(RELEASES + 1):
        right = chance < LEVEL - release * loss
        # A beta of mean 2/3 in place of 1: its losses are rarer by as much to cost the same.
        graded = (chance < LEVEL - 1.5 * release * loss) * height
        yield _build_side(release, np.where(np.arange(tasks)[:, None] % 2 == 0, right * 1.0, graded))
        anew = rng.random(shape) < CHANGED
        chance, height = (
            np.where(anew, drawn, kept)
            for drawn, kept in ((rng.random(shape), chance), (rng.beta(2, 1, shape), height))
        )


def _build_side(release: int, answers: Floats) -> CheckSide:
    name, scored = f"release {release}", {}
    for at, own in enumerate(answers):
        stratum = Stratum(
            measures=("mean",), examples=str(at), gold=np.zeros(0), predicted=own[None, None]
        )  # fmt: skip
        scored[f"T{at}"] = (
            ScoredRecord(
                key=f"{name} {at}", task={}, model={"artifact": name}, identity={}, provenance={},
                score=float(own.mean()), units=Units(metric="m", unit="texts", strata=(stratum,)),
            ),
        )  # fmt: skip
    run = BaselineModel(model=name, source=name, artifact=name, folder=name, keys={})
    return CheckSide(runs=(run,), home=Path(), scored=scored, missing=dict.fromkeys(scored, 0))


def find_red_releases(rng: np.random.Generator, tasks: int, texts: int, loss: float) -> tuple[int, int]:
    """The first release that is red by the anchor, and by any rule; RELEASES + 1 where none is."""
    suites = [made_up([f"T{at}" for at in range(tasks)])]
    anchor, *releases = draw_releases(rng, tasks, texts, loss)
    by_anchor = by_any = RELEASES + 1
    baseline = anchor
    for number, candidate in enumerate(releases, 1):
        power = estimate_baseline_power(baseline, suites, DEFAULT)
        chain = _test_by_anchor(candidate, anchor, suites, power, number) if number > 1 else None
        if chain and chain.means[0].verdict == "regressed":
            by_anchor = min(by_anchor, number)
        sides = Comparison(candidate=candidate, baseline=baseline, failures={})
        tasks, means = evaluate_comparison(sides, suites, DEFAULT, power)
        if merge_verdicts(tasks, means, DEFAULT, chain).verdict == "regressed":
            by_any = min(by_any, number)
        baseline = candidate
    return by_anchor, by_any


def is_red_by_anchor(
    rng: np.random.Generator, tasks: int, texts: int, loss: float, *, releases: int = RELEASES
) -> bool:
    """Whether one of the first releases is red by the anchor; those after it are not drawn."""
    suites = [made_up([f"T{at}" for at in range(tasks)])]
    sides = itertools.islice(draw_releases(rng, tasks, texts, loss), releases + 1)
    anchor, baseline = next(sides), next(sides)
    for number, candidate in enumerate(sides, 2):
        power = estimate_baseline_power(baseline, suites, DEFAULT)
        if _test_by_anchor(candidate, anchor, suites, power, number).means[0].verdict == "regressed":
            return True
        baseline = candidate
    return False


def _test_by_anchor(
    candidate: CheckSide, anchor: CheckSide, suites: Sequence[Suite], power: Power, number: int
) -> Chain:
    sides = Comparison(candidate=candidate, baseline=anchor, failures={})
    means, _ = evaluate_chain(sides, suites, DEFAULT, power, number - 1)
    return Chain(anchor="release 0", when="", baselines=number - 1, means=means)


def main() -> None:
    """Print the shares of chains that are red by the fifth and by the tenth release."""
    given = read_options(__doc__, trials=1000, seed=0)
    for tasks, texts in ((20, 1000), (13, 50)):
        for loss in (0.003, 0.0):
            red = np.array(
                [
                    find_red_releases(np.random.default_rng([given.seed, tasks, trial]), tasks, texts, loss)
                    for trial in range(given.trials)
                ]
            )
            fifth, tenth = ((red <= number).mean(axis=0) for number in (5, RELEASES))
            print(
                f"{tasks} tasks of {texts} texts, {-100 * loss:.1f} points a release: red by the anchor "
                f"by the fifth in {fifth[0]:.1%}, by the tenth in {tenth[0]:.1%}; by any rule in "
                f"{fifth[1]:.1%} and {tenth[1]:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
