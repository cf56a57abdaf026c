"""The conclusion of a check: never a silent pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.checks.outcome import VERDICTS, MeanOutcome, Overall, TaskOutcome, Verdict
from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import DEFAULT, Policy


def judged_task(verdict: Verdict, name: str = "T", *, must: bool = True) -> TaskOutcome:
    return TaskOutcome(
        task=name,
        type="STS",
        metric="m",
        verdict=verdict,
        must_not_regress=must,
        delta=-0.02,
        low=-0.03,
        high=-0.01,
        p=0.01,
    )


def judged_mean(verdict: Overall, suite: str = "s") -> MeanOutcome:
    return MeanOutcome(
        suite=suite,
        verdict=verdict,
        candidate=0.5,
        baseline=0.5,
        delta=0.0,
        low=-0.01,
        high=0.01,
        margin=0.005,
    )


def ends(tasks: list[TaskOutcome], means: list[MeanOutcome], policy: Policy = DEFAULT) -> tuple[str, int]:
    found = merge_verdicts(tasks, means, policy)
    assert found.because
    return found.verdict, found.exit_code


@pytest.mark.parametrize(
    ("verdicts", "means", "expected"),
    [
        (("passed", "improved", "inconclusive"), ("passed",), ("passed", 0)),
        (("passed",), ("improved",), ("improved", 0)),
        (("passed",), ("passed", "improved"), ("passed", 0)),
        (("passed",), ("same", "improved"), ("improved", 0)),
        (("same",), ("same",), ("same", 0)),
        (("same", "passed"), ("passed",), ("passed", 0)),
        (("passed",), ("inconclusive",), ("inconclusive", 3)),
        (("passed",), ("improved", "inconclusive"), ("inconclusive", 3)),
        (("passed", "missing"), ("improved",), ("inconclusive", 1)),
        (("passed", "not testable"), ("improved",), ("inconclusive", 3)),
        (("improved", "regressed"), ("improved",), ("regressed", 1)),
        (("regressed", "missing"), ("inconclusive",), ("regressed", 1)),
        (("passed", "missing"), ("regressed",), ("regressed", 1)),
        (("passed",), ("regressed", "improved"), ("regressed", 1)),
    ],
)
def test_the_verdict_of_a_check(
    verdicts: tuple[Verdict, ...], means: tuple[Overall, ...], expected: tuple[str, int]
) -> None:
    tasks = [judged_task(one, f"T{at}") for at, one in enumerate(verdicts)]
    assert ends(tasks, [judged_mean(one) for one in means]) == expected


@pytest.mark.parametrize(("how", "code"), [("exit-3", 3), ("fail", 1), ("pass", 0)])
def test_the_policy_says_what_nothing_decided_ends_with(how: str, code: int) -> None:
    policy = Policy.model_validate({"inconclusive": how})
    assert ends([judged_task("inconclusive")], [judged_mean("inconclusive")], policy) == (
        "inconclusive",
        code,
    )
    assert ends([judged_task("regressed")], [judged_mean("passed")], policy) == ("regressed", 1)
    assert ends([judged_task("passed")], [judged_mean("passed")], policy) == ("passed", 0)


@pytest.mark.parametrize("how", ["exit-3", "fail", "pass"])
@pytest.mark.parametrize(("missing", "code"), [("exit-3", 3), ("fail", 1)])
def test_a_missing_score_never_passes(how: str, missing: str, code: int) -> None:
    policy = Policy.model_validate({"inconclusive": how, "missing": missing})
    assert ends([judged_task("missing")], [judged_mean("passed")], policy) == ("inconclusive", code)
    nothing = replace(judged_mean("inconclusive"), delta=None)
    assert ends([], [nothing], policy) == ("inconclusive", code)


def test_a_task_that_may_regress_does_not_decide() -> None:
    assert ends([judged_task("regressed", must=False)], [judged_mean("passed")]) == ("passed", 0)


def test_tasks_that_cannot_be_tested_may_be_left_out_but_missing_ones_may_not() -> None:
    policy = Policy(not_testable="ignore")
    assert ends([judged_task("not testable")], [judged_mean("passed")], policy)[0] == "passed"
    assert ends([judged_task("missing")], [judged_mean("passed")], policy)[0] == "inconclusive"


def test_where_nothing_could_be_tested_nothing_is_said() -> None:
    nothing = MeanOutcome(suite="s", verdict="inconclusive", wanted=3)
    policy = Policy(not_testable="ignore")
    found = merge_verdicts([judged_task("not testable")], [nothing], policy)
    assert (found.verdict, found.because) == ("inconclusive", ("No task of s could be tested.",))


def test_the_worst_is_told_first() -> None:
    tasks = [
        replace(judged_task("regressed", name), delta=delta) for name, delta in (("A", -0.01), ("B", -0.05))
    ]
    assert [one.partition(":")[0] for one in merge_verdicts(tasks, [], DEFAULT).because] == ["B", "A"]


def test_missing_scores_are_told_by_their_reason() -> None:
    reasons = {"A": "the candidate has no score: it burns", "B": "the baseline has no score: gone", "C": ""}
    tasks = [replace(judged_task("missing", name), reason=why) for name, why in reasons.items()]
    assert merge_verdicts([*tasks, judged_task("passed")], [judged_mean("passed")], DEFAULT).because == (
        "1 of 4 tasks lack a score: A: it burns.",
        "1 of 4 tasks lack a score: B: the baseline has no score: gone.",
        "1 of 4 tasks lack a score: C.",
    )


def test_every_verdict_has_a_place_in_the_order() -> None:
    assert sorted(VERDICTS) == sorted(set(VERDICTS))
    assert len(VERDICTS) == 7
