"""One training a side is at most inconclusive, unless a loss is beyond what seeds are known to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from check_data import small_check
from harness.checks.baselines import BaselineModel
from harness.checks.outcome import MeanOutcome
from harness.checks.retraining import judge_retraining
from harness.checks.sides import CheckSide, Comparison


def build_side(*artifacts: str) -> CheckSide:
    runs = tuple(BaselineModel(model=a, source=a, artifact=a, folder=a, keys={}) for a in artifacts)
    return CheckSide(runs=runs, home=Path(), scored={}, missing={})


def judge(mean: MeanOutcome, backbone: str, trainings: int = 1) -> Any:
    tasks = tuple(replace(one, suites=(mean.suite,)) for one in small_check().tasks)
    baseline = build_side(*(f"b{n}" for n in range(trainings)))
    sides = Comparison(candidate=build_side("c"), baseline=baseline, failures={})
    return judge_retraining(tasks, (mean,), sides, [backbone])


MEAN = replace(small_check().means[0], suite="glue", error=0.002)


@pytest.mark.parametrize("verdict", ["passed", "improved", "regressed"])
def test_one_training_a_side_is_inconclusive(verdict: Any) -> None:
    found = judge(replace(MEAN, verdict=verdict), "somebert")
    assert found.means[0].verdict == "inconclusive"
    assert "is unknown" in found.note


def test_with_replicates_nothing_changes() -> None:
    found = judge(MEAN, "somebert", trainings=3)
    assert (found.means, found.note) == ((MEAN,), "")


@pytest.mark.parametrize(("loss", "verdict"), [(0.02, "inconclusive"), (0.06, "regressed")])
def test_a_loss_beyond_what_seeds_do_stays_red(loss: float, verdict: str) -> None:
    mean = replace(MEAN, verdict="regressed", delta=-loss, low=-loss - 0.004, high=-loss + 0.004)
    found = judge(mean, "runs/OptiBERT_neo-glue")
    assert found.means[0].verdict == verdict
    assert "known from printed tables" in found.note
