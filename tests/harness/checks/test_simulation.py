"""The verdicts on made-up models whose true difference is known, in as many trials as a test can have.

`benchmarks/simulate_gate.py` does the same in thousands of trials. A right implementation misses the
bounds here less than once in 10,000 runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom
from simulate_changes import KINDS as CHANGED_KINDS
from simulate_changes import simulate_line as simulate_changes
from simulate_gate import KINDS, SUITES, Draw, Drawn, Kind, Line, Simulation, Trials, tasks_of, units_of
from simulate_port import FORMS, list_right_shares
from simulate_retrain import iter_lines, simulate_line

from harness.results.units import Stratum, Units
from harness.results.weighted_metrics import Floats

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


@pytest.mark.slow
def test_a_collapse_is_red_and_so_is_a_suite_that_lost_a_little_everywhere() -> None:
    collapsed = trials_of(NANO, [0.345, *[0.0] * 12], 40)
    assert collapsed.share(1) >= at_least(0.99, 40)
    assert np.mean(collapsed.tasks.verdict[:, 0] == "regressed") >= at_least(0.99, 40)
    fallen = trials_of({"nDCG, 1000 queries": 10, "ten probes, 2000 texts": 10}, [0.01] * 20, 40)
    assert fallen.share(1) >= at_least(0.8, 40)


def few_shot_probes(rng: np.random.Generator, losses: Sequence[float], _: Floats) -> Drawn:
    """Six probes, each the nearer mean of 8 texts of two classes; 5 % of all texts are seen anew.

    As a probe moves with its texts, that is about as if 15 % of the answers were drawn anew.
    """
    classes, training = np.arange(1400) % 2, rng.integers(200, size=(6, 8))
    seen = rng.normal(size=(len(losses), 1400, 8))
    kept = rng.random((len(losses), 1400, 1)) < np.sqrt(0.95)
    texts = np.where(kept, rng.normal(size=(1400, 8)), seen) + np.outer(classes, [1.5, *[0] * 7])
    units = []
    for own in texts:
        centres = [own[classes == label][training].mean(axis=1)[:, None] for label in (0, 1)]
        far = [((own[400:] - centre) ** 2).sum(axis=2) for centre in centres]
        right = (far[1] < far[0]) == classes[400:]
        units.append(units_of("mean", right.astype(float)[None], unit="texts"))
    return Drawn(units=tuple(units), expected=(0.5,) * len(losses))


def draws_with_starts(rng: np.random.Generator, losses: Sequence[float], _: Floats) -> Drawn:
    """Ten draws of all texts, each a mean of texts and what a random start of a model's clusters adds."""
    count, names = 400, np.array([f"{at:03}" for at in range(400)])
    kept = rng.random((len(losses), count)) < np.sqrt(0.85)
    values = 0.5 + 0.2 * np.where(kept, rng.normal(size=count), rng.normal(size=kept.shape))
    units = []
    for own in values:
        scores = own.mean() + 0.03 * rng.normal(size=(1, 1, 10))
        stratum = Stratum(
            measures=("mean",), examples="", gold=np.zeros(0), predicted=scores, texts=names,
            influences=(own - own.mean())[None] / count,
        )  # fmt: skip
        units.append(Units(metric="v_measure", unit="texts", strata=(stratum,)))
    return Drawn(units=tuple(units), expected=(0.5,) * len(losses))


@pytest.mark.parametrize("draw", [few_shot_probes, draws_with_starts])
def test_an_automatic_margin_counts_probes_and_draws(draw: Draw) -> None:
    kind = Kind(name="own", draw=draw)
    line = Line(name="own", kinds=(kind,), strengths=(0.0,))
    found = Simulation(trials=200, seed=1).of(line)
    # A variance of few probes or draws is told by them alone: fewer pass than the 97.5 % of many texts.
    assert found.share(0) >= at_least(0.93, 200)
    true = float(np.sqrt((found.mean.delta**2).mean()))
    assert found.mean.margin.mean() <= 1.5 * 3.6 * true


@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHANGED_KINDS, "Spearman, 20 pairs 30 times"])
def test_few_changed_answers_are_judged_as_often_right_as_many(name: str) -> None:
    """A twentieth of the trials of `benchmarks/simulate_changes.py`, for the smallest share and one more."""
    for changed in (0.02, 0.15):
        for margins in (0, 1, 3):
            line = simulate_changes(name, changed, margins, trials=50, seed=5)
            assert not line.misses, line.text


@pytest.mark.slow
def test_the_same_weights_are_green_and_others_red() -> None:
    shares = list_right_shares(["bert", "modernbert"], trials=25, seed=1)
    assert shares.keys() == FORMS.keys()
    assert {name: own for name, own in shares.items() if min(own.values()) < at_least(0.99, 25)} == {}


@pytest.mark.slow
@pytest.mark.parametrize("part", ["1 task, seeds 0.5", "1 task, seeds 1", "1 task, seeds 2"])
def test_retrainings_are_judged_as_often_as_it_says(part: str) -> None:
    lines = [line for line in iter_lines(part) if line.form != "models"]
    assert [text for text, misses in (simulate_line(one, 50, seed=1) for one in lines) if misses] == []
