"""The verdicts on made-up models whose true difference is known, in as many trials as a test can have.

`tests/benchmarks/simulate_check.py` does the same in thousands of trials. The bounds here are those
that a right implementation misses less than once in 10,000 runs.
"""

from __future__ import annotations

import pytest
from scipy.stats import binom
from simulate_check import ALPHA, NAMES, Question, share, verdicts

TRIALS = 300
QUICK = ["search50", "search50b", "draws10", "draws12", "draws15", "search150"]
"""Where all twenty tasks would take too long; with seeds also one of every other type."""


def at_most(chance: float) -> float:
    """The share of trials that something of this chance exceeds once in 10,000 times."""
    return float(binom.ppf(1 - 1e-4, TRIALS, chance)) / TRIALS


def at_least(chance: float) -> float:
    return float(binom.ppf(1e-4, TRIALS, chance)) / TRIALS


def told(effects: dict[str, float], margin: float, names: list[str], *, seeds: bool) -> list[dict[str, str]]:
    question = Question(effects, margin, names)
    return [verdicts(seed, question, seeds) for seed in range(TRIALS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "seeds"),
    [(NAMES, False), ([*QUICK, "pairs250", "labels209"], True)],
    ids=["twenty tasks", "seeds"],
)
def test_false_alarms_are_as_rare_as_asked_for(names: list[str], seeds: bool) -> None:
    rows = told({}, 0.0, names, seeds=seeds)
    assert share(rows, "regressed") <= at_most(ALPHA)
    assert share(rows, "improved") <= at_most(ALPHA)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [False, True])
def test_two_that_differ_by_the_margin_are_not_equivalent(seeds: bool) -> None:
    names = ["search50", "search150", "draws10", "draws15", "pairs250"]
    rows = told(dict.fromkeys(names, -0.02), 0.02, names, seeds=seeds)
    for name in names:
        assert share(rows, "equivalent", name) <= at_most(ALPHA)


def test_a_clear_drop_is_found() -> None:
    rows = told({"search150": -0.06, "draws15": -0.03}, 0.0, QUICK, seeds=False)
    assert share(rows, "regressed", "draws15") >= at_least(0.95)
    assert share(rows, "regressed", "search150") >= at_least(0.5)
    assert share(rows, "improved") <= at_most(ALPHA)


def test_two_that_do_not_differ_are_found_to_be_equivalent() -> None:
    names = ["search150", "draws15"]
    rows = told({}, 0.06, names, seeds=False)
    for name in names:
        assert share(rows, "equivalent", name) >= at_least(0.8)
