"""One training a side is at most inconclusive, unless a loss is beyond what seeds are known to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from check_data import small_check
from harness.checks.baselines import BaselineModel
from harness.checks.outcome import MeanOutcome, TaskOutcome
from harness.checks.questions import find_seed_deviations, judge_retraining
from harness.checks.sides import CheckSide, Comparison
from harness.core.encoding import Ranking
from harness.core.types import Artifact
from harness.plan.plan import ConfiguredModel
from harness.results.units import TRAINED


def build_side(*artifacts: str) -> CheckSide:
    runs = tuple(BaselineModel(model=a, source=a, artifact=a, folder=a, keys={}) for a in artifacts)
    return CheckSide(runs=runs, home=Path(), scored={}, missing={})


KNOWN = find_seed_deviations(
    ConfiguredModel(
        artifact=Artifact(
            name="runs/OptiBERT_neo-glue", source="", folder=Path(), key="k" * 64, weights="w" * 64
        ),
        encoding=Ranking(),
    ),
    ["glue", "mteb"],
)


def judge(mean: MeanOutcome, known: Any = MappingProxyType({}), trainings: int = 1) -> tuple[Any, str]:
    """The mean as a retraining judges it, and its note."""
    tasks = tuple(replace(one, suites=(mean.suite,)) for one in small_check().tasks)
    baseline = build_side(*(f"b{n}" for n in range(trainings)))
    sides = Comparison(candidate=build_side("c"), baseline=baseline, failures={})
    _, (judged,), note = judge_retraining(tasks, (mean,), sides, known)
    return judged, note


MEAN = replace(small_check().means[0], suite="glue", error=0.002)


@pytest.mark.parametrize("verdict", ["passed", "improved", "regressed"])
def test_one_training_a_side_is_inconclusive(verdict: Any) -> None:
    mean, note = judge(replace(MEAN, verdict=verdict))
    assert mean.verdict == "inconclusive"
    assert "is unknown" in note


def test_with_replicates_nothing_changes() -> None:
    assert judge(MEAN, trainings=3) == (MEAN, "")


@pytest.mark.parametrize(("loss", "verdict"), [(0.02, "inconclusive"), (0.06, "regressed")])
def test_a_loss_beyond_what_seeds_do_stays_red(loss: float, verdict: str) -> None:
    mean = replace(MEAN, verdict="regressed", delta=-loss, low=-loss - 0.004, high=-loss + 0.004)
    mean, note = judge(mean, KNOWN)
    assert mean.verdict == verdict
    assert "known from printed tables" in note


def test_a_task_without_a_score_does_not_make_trained_tasks_single() -> None:
    task = replace(small_check().tasks[0], suites=("glue",), unit=TRAINED, runs=(3, 3))
    tasks = (task, TaskOutcome(task="gone", type="", metric="", verdict="missing", suites=("glue",)))
    sides = Comparison(candidate=build_side("c"), baseline=build_side("b"), failures={})
    assert judge_retraining(tasks, (MEAN,), sides, {}) == (tasks, (MEAN,), "")
