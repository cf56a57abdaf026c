"""From records to what is said: repeats and their seeds, means, tasks that a suite lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest

from fakes import task
from harness.checks.baselines import BaselineModel
from harness.checks.decide import decide
from harness.checks.difference import Difference
from harness.checks.policy import DEFAULT
from harness.checks.scored import ScoredRecord
from harness.checks.sides import CheckSide, Comparison, task_differences
from harness.checks.units import Stratum, Units
from harness.errors import UsageError
from harness.types import Column, Suite

RNG = np.random.default_rng(5)
LEVEL = RNG.random(200)


def record(model: str, shift: float, seed: int = 0) -> ScoredRecord:
    values = LEVEL + shift + RNG.normal(0, 0.02, size=200)
    stratum = Stratum(measures=("mean",), examples="same", gold=np.zeros(0), predicted=values[None, None, :])
    units = Units(metric="m", unit="queries", strata=(stratum,))
    return ScoredRecord(
        key=f"{model}-{seed}",
        task={},
        model={"artifact": model},
        identity={},
        provenance={},
        score=float(values.mean()),
        units=units,
    )


def side(held: Mapping[str, Sequence[ScoredRecord]]) -> CheckSide:
    models = dict.fromkeys(str(one.model["artifact"]) for ones in held.values() for one in ones)
    runs = tuple(BaselineModel(model=m, source=m, artifact=m, folder=m, keys={}) for m in models)
    scored = {name: tuple(ones) for name, ones in held.items()}
    return CheckSide(runs=runs, home=Path(), scored=scored, missing=dict.fromkeys(held, 0))


def sides(mine: Sequence[ScoredRecord], theirs: Sequence[ScoredRecord]) -> Comparison:
    return Comparison(candidate=side({"T": mine}), baseline=side({"T": theirs}), failures={})


SUITE = Suite(name="one", title="", columns=(Column(name="T", type="any", tasks=(task("T"),)),))


def found(both: Comparison) -> Difference:
    one = task_differences(both, SUITE.tasks, DEFAULT)["T"]
    assert isinstance(one, Difference)
    return one


def test_the_seeds_of_repeats_are_no_runs_of_their_own() -> None:
    shifts = {"a": 0.0, "b": 0.03, "c": -0.03}
    theirs = [record(model, shift, seed) for model, shift in shifts.items() for seed in (1, 2)]
    mine = [record("x", 0.0, seed) for seed in (1, 2)]
    one = found(sides(mine, theirs))
    means = [np.mean([r.score for r in theirs if r.model["artifact"] == m]) for m in shifts]
    assert (len(one.mine), len(one.theirs)) == (1, 3)
    assert one.noise == pytest.approx(stdev(means))
    assert one.seeds is not None
    assert one.seeds.variance == pytest.approx(stdev(means) ** 2 * (1 + 1 / 3))
    assert one.seeds.freedom == 2


def test_the_seeds_of_two_models_belong_together_two_by_two() -> None:
    one = found(sides([record("x", 0.0, s) for s in (1, 2, 3)], [record("a", 0.0, s) for s in (1, 2, 3)]))
    assert one.paired
    assert (len(one.mine), len(one.theirs)) == (3, 3)


def test_two_repeats_are_too_few_for_a_measured_margin() -> None:
    policy = replace(DEFAULT, margin="measured")
    two = sides([record("x", 0.0)], [record("a", 0.0), record("b", 0.01)])
    with pytest.raises(UsageError, match="has 2 runs of T: it takes 3"):
        decide(two, [SUITE], policy, "base")
    three = sides([record("x", 0.0)], [record("a", 0.0), record("b", 0.01), record("c", -0.01)])
    assert decide(three, [SUITE], policy, "base").tasks[0].margin > 0.01


def test_the_mean_of_a_single_task_has_its_margin() -> None:
    mean = decide(sides([record("x", 0.0)], [record("a", 0.0)]), [SUITE], DEFAULT, "base").means[0]
    assert mean.margin == pytest.approx(0.01)


def test_tasks_and_means_share_alpha() -> None:
    """With a second task the p-value of the first is twice for Holm and twice for the tasks' half."""
    policy = replace(DEFAULT, margin=0.0, mean_margin=0.0)
    mine, theirs = [record("x", -0.0026)], [record("a", 0.0)]
    alone = decide(sides(mine, theirs), [SUITE], policy, "base")
    two = replace(SUITE, columns=(*SUITE.columns, Column(name="U", type="any", tasks=(task("U"),))))
    both = Comparison(
        candidate=side({"T": mine, "U": [record("x", 0.0)]}),
        baseline=side({"T": theirs, "U": [record("a", 0.0)]}),
        failures={},
    )
    together = decide(both, [two], policy, "base")
    one, other = alone.tasks[0].p_regressed, together.tasks[0].p_regressed
    assert one is not None
    assert other == pytest.approx(4 * one)


def test_a_mean_whose_interval_lies_below_its_margin_regressed() -> None:
    two = replace(SUITE, columns=(*SUITE.columns, Column(name="U", type="any", tasks=(task("U"),))))
    for shift, expected in ((-0.02, "regressed"), (0.0, "equivalent"), (0.02, "improved")):
        both = Comparison(
            candidate=side({name: [record("x", shift)] for name in "TU"}),
            baseline=side({name: [record("a", 0.0)] for name in "TU"}),
            failures={},
        )
        mean = decide(both, [two], DEFAULT, "base").means[0]
        assert mean.verdict == expected
        assert mean.high is not None
        assert (mean.high < -mean.margin) == (expected == "regressed")
