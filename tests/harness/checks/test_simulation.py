"""The verdicts on made-up models whose true difference is known, in as many trials as a test can have.

`benchmarks/simulate_gate.py` does the same in thousands of trials. A right implementation misses the
bounds here less than once in 10,000 runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from simulate_gate import KINDS, SUITES, Line, Simulation, Trials, tasks_of
from simulate_port import FORMS, list_right_shares
from simulate_retrain import iter_lines, simulate_line

NANO = SUITES["13 x 50 queries"]
TRIED = (
    "nDCG, 150 queries",
    "accuracy 0.97, 1000 texts",
    "Spearman, 200 pairs",
    "ten probes, 300 texts",
    "5 seeds, 277 examples",
    "1 training against 5, 500 texts",
    "k-means, 300 texts, 10 draws",
)


def at_most(chance: float, trials: int) -> float:
    """The share of trials that something of this chance exceeds once in 10,000 times."""
    return float(binom.ppf(1 - 1e-4, trials, chance)) / trials


def at_least(chance: float, trials: int) -> float:
    return float(binom.ppf(1e-4, trials, chance)) / trials


def trials_of(counts: dict[str, int], strengths: list[float], trials: int) -> Trials:
    """Trials of a suite with the strength of each task's loss."""
    line = Line(name=f"{counts} {strengths}", kinds=tasks_of(counts), strengths=tuple(strengths))
    return Simulation(trials=trials, seed=1).of(line)


@pytest.mark.slow
def test_equal_models_are_green() -> None:
    found = trials_of(NANO, [0.0] * 13, 100)
    assert found.share(0) >= at_least(0.9, 100)
    assert found.share(1) <= at_most(0.045, 100)
    true = float(found.mean.delta.std())
    assert found.mean.margin.mean() <= 1.5 * 3.6 * true


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
def test_a_bound_lies_beyond_the_truth_as_seldom_as_it_says(name: str) -> None:
    trials, strength = (30, 0.3) if name.startswith("k-means") else (80, 0.04)
    found = trials_of({name: 3}, [strength] * 3, trials)
    truth = found.tasks.true([KINDS[name]] * 3)
    passed, above = found.tasks.low > truth, found.tasks.high < truth
    assert passed.mean() <= at_most(0.06, passed.size)
    assert above.mean() <= at_most(0.02 / 3 + 0.01, above.size)


def test_a_collapse_is_red_and_so_is_a_suite_that_lost_a_little_everywhere() -> None:
    collapsed = trials_of(NANO, [0.345, *[0.0] * 12], 40)
    assert collapsed.share(1) >= at_least(0.99, 40)
    assert np.mean(collapsed.tasks.verdict[:, 0] == "regressed") >= at_least(0.99, 40)
    fallen = trials_of({"nDCG, 1000 queries": 10, "ten probes, 2000 texts": 10}, [0.01] * 20, 40)
    assert fallen.share(1) >= at_least(0.8, 40)


@pytest.mark.slow
def test_the_same_weights_are_green_and_others_red() -> None:
    shares = list_right_shares(["bert", "modernbert"], trials=25, seed=1)
    assert shares.keys() == FORMS.keys()
    assert {name: own for name, own in shares.items() if min(own.values()) < at_least(0.99, 25)} == {}


@pytest.mark.parametrize("part", ["1 task, seeds 0.5", "1 task, seeds 1", "1 task, seeds 2"])
def test_retrainings_are_judged_as_often_as_it_says(part: str) -> None:
    lines = [line for line in iter_lines(part) if line.form != "models"]
    assert [text for text, misses in (simulate_line(one, 50, seed=1) for one in lines) if misses] == []
