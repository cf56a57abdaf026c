"""One training a side is at most inconclusive, unless a loss is beyond what seeds are known to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from check_data import small_check
from harness.checks.advice import describe_next_steps
from harness.checks.baselines import BaselineModel
from harness.checks.outcome import TRAININGS, MeanOutcome, TaskOutcome
from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import DEFAULT
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


def judge(mean: MeanOutcome, known: Any = MappingProxyType({}), trainings: int = 1) -> tuple[Any, str | None]:
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
    assert note is not None
    assert "is unknown" in note


def test_with_replicates_nothing_changes() -> None:
    assert judge(MEAN, trainings=3) == (MEAN, None)


@pytest.mark.parametrize(("loss", "verdict"), [(0.02, "inconclusive"), (0.06, "regressed")])
def test_a_loss_beyond_what_seeds_do_stays_red(loss: float, verdict: str) -> None:
    mean = replace(MEAN, verdict="regressed", delta=-loss, low=-loss - 0.004, high=-loss + 0.004)
    judged, note = judge(replace(mean, there=8), KNOWN)
    assert judged.verdict == verdict
    # A red line is judged, and nothing is said to be open.
    assert note == "" if verdict == "regressed" else (note or "").endswith("no loss beyond it.")
    # Two of eight tasks have more noise than the printed mean of eight.
    assert judge(replace(mean, there=2), KNOWN)[0].verdict == "inconclusive"


def test_the_mean_of_one_task_has_the_seeds_of_this_task() -> None:
    numbers: dict[str, Any] = {"delta": -0.06, "low": -0.075, "high": -0.04, "error": 0.008}
    task = replace(small_check().tasks[0], task="RTE", suites=("glue",), unit=TRAINED, **numbers)
    mean = replace(MEAN, verdict="regressed", there=1, wanted=8, **numbers)
    sides = Comparison(candidate=build_side("c"), baseline=build_side("b"), failures={})
    (judged,), (of_mean,), _ = judge_retraining((task,), (mean,), sides, KNOWN)
    assert (judged.verdict, of_mean.verdict) == ("inconclusive", "inconclusive")


def test_what_single_trainings_leave_open_is_said_of_no_other_suite() -> None:
    """Neither of one trained with three seeds, nor of one with the same outputs, nor of one untested."""
    tasks = tuple(
        replace(
            small_check().tasks[0],
            task=suite,
            suites=(suite,),
            verdict="passed",
            unit=TRAINED,
            runs=(runs, runs),
        )
        for suite, runs in {"single": 1, "seeds": 3, "same": 1}.items()
    )
    settle = "about 2.0 times as many examples (a larger suite)"
    single, seeds = (
        replace(MEAN, suite=s, verdict="inconclusive", to_settle=settle) for s in ("single", "seeds")
    )
    same = replace(MEAN, suite="same", verdict="same", delta=0.0, low=0.0, high=0.0)
    gone = MeanOutcome(suite="gone", verdict="inconclusive", wanted=3)
    sides = Comparison(candidate=build_side("c"), baseline=build_side("b"), failures={})
    judged, means, note = judge_retraining(tasks, (single, seeds, same, gone), sides, {})
    assert note is not None
    assert note.startswith("This model is surely lower, −1.50 [−2.20, −0.80] points on single, but")
    assert [one.to_settle for one in means] == [f"{TRAININGS}; {settle}", settle, "", ""]
    end = merge_verdicts(judged, means, DEFAULT, None, note)
    assert end.because[1] == note
    assert end.because[2].startswith("Mean of seeds (3 of 5 tasks): −1.50 points, at worst −2.20; ")
    steps = describe_next_steps(small_check(overall="inconclusive", means=means, tasks=judged))
    assert steps[1].startswith("Train the baseline 3 times in all, with other seeds")
    assert steps[2] == "harness baseline set NAME --model MODEL --recipe RECIPE --seeds 3"
    assert steps[4:] == [
        f"To decide {suite} in 80 % of such checks: {settle}." for suite in ("single", "seeds")
    ]


def test_a_task_without_a_score_does_not_make_trained_tasks_single() -> None:
    task = replace(small_check().tasks[0], suites=("glue",), unit=TRAINED, runs=(3, 3))
    tasks = (task, TaskOutcome(task="gone", type="", metric="", verdict="missing", suites=("glue",)))
    sides = Comparison(candidate=build_side("c"), baseline=build_side("b"), failures={})
    assert judge_retraining(tasks, (MEAN,), sides, {}) == (tasks, (MEAN,), None)
