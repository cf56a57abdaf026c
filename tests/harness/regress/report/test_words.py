"""Sentences and numbers that every report shares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from check_data import TASKS, small_check
from harness.checks import report
from harness.checks.outcome import MeanOutcome

REGRESSED, EQUIVALENT, INCONCLUSIVE, UNTESTED, MISSING = TASKS


def test_a_mean_reads_as_a_sentence() -> None:
    mean = replace(small_check().means[0], there=40, wanted=41)
    assert (
        report._mean_text(mean)
        == "mean over 40 of 41 columns 75.50 → 74.00, −1.50 [−2.20, −0.80], margin ±0.50"
    )


def test_a_mean_of_nothing_has_dashes() -> None:
    mean = MeanOutcome(suite="mteb", verdict="inconclusive", wanted=41)
    assert report._mean_text(mean) == "mean over 0 of 41 columns"


def predicted(**changed: object) -> MeanOutcome:
    values = {
        "target": "MTEB(eng, v2)",
        "candidate": 0.512,
        "candidate_low": 0.506,
        "candidate_high": 0.518,
        "baseline": 0.515,
        "baseline_low": 0.509,
        "baseline_high": 0.521,
    }
    return replace(small_check().means[0], predicted=values | changed)


def test_a_predicted_benchmark_has_its_error() -> None:
    assert report._predicted_text(predicted()) == "predicted MTEB(eng, v2): 51.5 ± 0.6 → 51.2 ± 0.6"
    assert report._predicted_text(small_check().means[0]) == ""


def test_a_lopsided_prediction_shows_both_bounds() -> None:
    lopsided = report._predicted_text(predicted(candidate_high=0.53, baseline=None))
    assert lopsided == "predicted MTEB(eng, v2): 51.2 [50.6, 53.0]"


@pytest.mark.parametrize(
    ("p", "text"), [(0.0004, "0.0004"), (0.00009, "<0.0001"), (0.0, "<0.0001"), (1.0, "1.0000"), (None, "–")]
)
def test_p_values(p: float | None, text: str) -> None:
    assert report.p_text(replace(REGRESSED, p_regressed=p)) == text


def test_an_improved_task_shows_the_p_value_of_the_gain() -> None:
    assert report.p_text(replace(REGRESSED, verdict="improved", p_improved=0.02)) == "0.0200"


def test_the_order_is_by_verdict_then_by_size() -> None:
    smaller = replace(REGRESSED, task="smaller", delta=-0.01)
    larger = replace(REGRESSED, task="larger", delta=-0.2)
    improved = replace(EQUIVALENT, task="improved", verdict="improved", delta=0.9)
    found = report._ordered(
        [EQUIVALENT, improved, UNTESTED, INCONCLUSIVE, MISSING, smaller, REGRESSED, larger]
    )
    assert [task.task for task in found] == [
        *("larger", "SciFact", "smaller", "TRECCOVID & <others>", "Banking77Classification"),
        *("MindSmallReranking", "improved", "STSBenchmark"),
    ]


def test_counts_and_units() -> None:
    check = small_check()
    counted = "5 tasks: 1 regressed, 1 missing, 1 inconclusive, 1 not testable, 1 equivalent"
    assert report._counts_text(check) == counted
    assert report._counts_text(small_check(tasks=())) == "0 tasks"
    assert report._units_text(INCONCLUSIVE) == "3,080 texts"
    assert report._units_text(MISSING) == "–"
    assert [report._seeds_text(task) for task in (REGRESSED, INCONCLUSIVE)] == ["1", "3 / 5"]


@pytest.mark.parametrize(
    ("overall", "code", "text"),
    [
        ("regressed", 1, "exit 1: the candidate regressed"),
        ("equivalent", 0, "exit 0: passed: no difference beyond the margins"),
        ("inconclusive", 3, "exit 3: neither a regression nor its absence is shown"),
        ("inconclusive", 0, "exit 0: passed: inconclusive, which the policy lets through"),
        ("improved", 1, "exit 1: the policy fails this verdict"),
    ],
)
def test_exit_codes_are_explained(overall: str, code: int, text: str) -> None:
    assert report._exit_text(small_check(overall=overall, exit_code=code)) == text


def test_a_regression_that_is_allowed_says_so() -> None:
    assert report._verdict_text(replace(REGRESSED, must_not_regress=False)) == "regressed (allowed)"
    assert report._verdict_text(EQUIVALENT) == "equivalent"


def test_each_reason_is_said_once() -> None:
    more = [replace(MISSING, task=f"t{number}") for number in range(3)]
    silent = replace(MISSING, task="silent", reason="")
    assert report._reasons([*more, silent]) == {
        "the candidate has no score: its data cannot be had": ["t0", "t1", "t2"],
        "no reason was recorded": ["silent"],
    }
