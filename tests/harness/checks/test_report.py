"""A check as it is printed, as JUnit XML and as a comment on a pull request."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console

import check_data
from harness.checks import advice
from harness.checks.advice import explain_unseen_margins
from harness.checks.outcome import (
    TRAININGS,
    VERDICTS,
    AskedQuestion,
    Chain,
    Check,
    MeanOutcome,
    Overall,
    PartLoss,
    Sensitivity,
    TaskOutcome,
    Verdict,
)
from harness.checks.overall_verdict import merge_verdicts
from harness.checks.policy import DEFAULT, Policy
from harness.checks.questions import SINGLE, PortComparison, judge_port
from harness.checks.report import FORMS, print_check, render_junit, render_markdown
from harness.cli import invoke
from harness.results.units import TRAINED

# Checks made by hand


def task(name: str, verdict: Verdict, *, points: float = 0.0, **changed: Any) -> TaskOutcome:
    """A task with an interval of 3 points below and 2 above its difference."""
    delta = points / 100
    numbers = {"delta": delta, "low": delta - 0.03, "high": delta + 0.02, "p": 0.0123, "margin": 0.025}
    scores = {"candidate": 0.6 + delta, "baseline": 0.6}
    given = {"metric": "ndcg_at_10", "unit": "queries", "units": 300, "runs": (1, 1), "suites": ("mteb",)}
    values: dict[str, Any] = given | numbers | scores | changed
    return TaskOutcome(task=name, type="Retrieval", verdict=verdict, **values)


def mean(verdict: Overall, **changed: Any) -> MeanOutcome:
    numbers = {"candidate": 0.74, "baseline": 0.755, "delta": -0.015, "low": -0.022, "high": -0.008}
    margin = {"p": 0.00001, "margin": 0.0147, "margin_source": "stated", "detectable": 0.0102}
    values: dict[str, Any] = numbers | margin | changed
    return MeanOutcome(suite="mteb", verdict=verdict, there=3, wanted=5, **values)


PORT = AskedQuestion(name="port")
UNTESTED: dict[str, Any] = {"delta": None, "low": None, "high": None, "p": None}
REGRESSED = task("SciFact", "regressed", points=-3.5, p=0.0004)
PASSED = task("STSBenchmark", "passed", points=0.02, metric="cosine_spearman", unit="pairs", units=1379)
OPEN = task("Banking77Classification", "inconclusive", points=-1, runs=(3, 5), to_settle="about 9,000 texts")
UNTESTABLE = task("MindSmallReranking", "not testable", **UNTESTED, reason="no results of queries are kept")
MISSING = task(
    "TRECCOVID & <others>", "missing", **UNTESTED | {"candidate": None}, reason="its data cannot be had"
)
TASKS = (REGRESSED, PASSED, OPEN, UNTESTABLE, MISSING)
SUSPECT = task("FiQA2018", "passed", points=-1.2, suspect=True)
COLLAPSED = task("ArguAna", "regressed", points=-12.34, collapsed=True)


def small_check(**changed: Any) -> Check:
    """A check with a task of most kinds of verdict, regressed as a whole."""
    because = ("SciFact regressed by 3.50 points (p 0.0004).",)
    given = {"policy": DEFAULT.to_json(), "because": because, "tasks": TASKS, "means": (mean("regressed"),)}
    return check_data.small_check(**(given | changed))


def passed(*tasks: TaskOutcome, **changed: Any) -> Check:
    """A check that passed."""
    given = {"overall": "passed", "exit_code": 0, "because": ("The mean held.",), "means": (mean("passed"),)}
    return small_check(**({"tasks": tasks} | given | changed))


def undecided(*tasks: TaskOutcome, **changed: Any) -> Check:
    """A check that decided nothing."""
    given = {"overall": "inconclusive", "exit_code": 3, "because": ("It is open.",), "means": ()}
    return small_check(**({"tasks": tasks} | given | changed))


# What to do


def describe_next_steps(check: Check, **options: Any) -> str:
    return "\n".join(advice.describe_next_steps(check, **options))


def test_after_a_regression_the_task_to_look_at_first_is_named_with_its_command() -> None:
    first = "Reject the candidate.\nLook at {} first:\nharness compare dddddddddddd cccccccccccc --task {}"
    worse = task("DBPedia", "regressed", points=-4)
    pairs = replace(worse, task="STS12", type="STS")
    assert describe_next_steps(small_check(tasks=(pairs,))) == first.format("STS12", "STS12")
    assert describe_next_steps(small_check(tasks=(REGRESSED, worse))) == first.format("DBPedia", "DBPedia")
    assert describe_next_steps(small_check(tasks=(REGRESSED, COLLAPSED))) == first.format(
        "ArguAna", "ArguAna"
    )
    allowed = replace(worse, must_not_regress=False)
    assert describe_next_steps(small_check(tasks=(REGRESSED, allowed))) == first.format("SciFact", "SciFact")


def test_a_port_in_doubt_has_a_next_step_and_a_probe_in_doubt_has_none() -> None:
    """Its scores are in doubt only where vectors were not compared."""
    line = replace(PASSED, verdict="inconclusive")
    advice = "If other outputs are acceptable: this check again, with --question replace."
    assert advice in describe_next_steps(undecided(line, question=PORT)).split("\n")
    assert advice not in describe_next_steps(undecided(replace(line, type="Classification"), question=PORT))
    assert advice not in describe_next_steps(undecided(line))
    steps = (
        "Restore out/a model as it was, and run the check again.\n"
        "Or set the baseline again, with a model that is there:\n"
        "harness baseline set release --replace --model MODEL ...\n"
    )
    mine = "the baseline's model out/a model"
    for why, told in (
        (f"{mine} has changed since", True),
        (f"{mine} cannot be loaded: x", True),
        ("x", False),
    ):
        made = undecided(line, question=PORT, because=(f"Vectors were not compared: {why}.",))
        assert (steps in describe_next_steps(made)) is told


def test_after_a_regression_of_the_mean_alone_the_largest_losses_are_named() -> None:
    losses = [task(f"t{points}", "passed", points=-points) for points in (1, 4, 2, 3)]
    _, text, command = describe_next_steps(small_check(tasks=(*losses, MISSING))).split("\n")
    assert text == "The mean is red, and no single task; most was lost on t4 −4.00, t3 −3.00, t2 −2.00:"
    assert command == "harness compare dddddddddddd cccccccccccc"
    assert "no single task:\nharness" in describe_next_steps(small_check(tasks=()))
    party = replace(small_check().baseline, artifacts=small_check().candidate.artifacts)
    port = small_check(tasks=(REGRESSED,), baseline=party, question=PORT)
    assert describe_next_steps(port).endswith("To see what it did to SciFact:\nharness show cccccccccccc")
    repeated = replace(small_check().baseline, artifacts=("d" * 64, "e" * 64, "f" * 64))
    assert "(the command compares the first training of each side):" in describe_next_steps(
        small_check(baseline=repeated)
    )


@pytest.mark.parametrize("source", ["release.zip", "other/baselines/release.json"])
def test_the_records_of_a_baseline_in_a_file_are_not_compared_with(source: str) -> None:
    party = replace(small_check().baseline, source=source)
    assert describe_next_steps(small_check(baseline=party)).endswith("\nharness show cccccccccccc")


@pytest.mark.parametrize("source", ["release.zip", "release"])
def test_every_command_to_type_exists_with_its_options(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    party = replace(small_check().baseline, source=source)
    for made in (
        small_check(baseline=party),
        small_check(tasks=(PASSED,)),
        passed(COLLAPSED, baseline=party),
    ):
        words = shlex.split(describe_next_steps(made, results=tmp_path / "a folder").split("\n")[-1])
        assert (words[0], invoke(words[1:])) == ("harness", 2)
        assert "No measured model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (passed(PASSED), "Accept the candidate."),
        (passed(PASSED, overall="same"), "Accept the candidate."),
        (passed(PASSED, SUSPECT), "Accept the candidate."),
        (passed(PASSED, OPEN), "Accept the candidate."),
        (
            passed(replace(REGRESSED, must_not_regress=False)),
            "Accept the candidate: the policy lets SciFact regress.",
        ),
        (
            passed(replace(COLLAPSED, verdict="inconclusive")),
            "But look at what collapsed before you accept it.\nCompare scores and settings:\nharness",
        ),
        (
            undecided(MISSING),
            "Nothing is decided.\nCorrect what the reason names, and run the check again",
        ),
        (undecided(replace(MISSING, baseline=None)), "set it again (harness baseline set release --replace"),
        (undecided(UNTESTABLE), "Measure again what is not testable, or ignore it in the policy."),
        (
            undecided(
                UNTESTABLE, policy={"not_testable": "ignore"}, means=(mean("inconclusive", **UNTESTED),)
            ),
            "Measure again what is not testable.",
        ),
    ],
)
def test_each_verdict_says_what_to_do(made: Check, text: str) -> None:
    assert text in describe_next_steps(made)
    told = "Do not accept the candidate yet." in describe_next_steps(made)
    assert told == (made.overall == "inconclusive" and not made.of("missing"))


def test_an_undecided_mean_says_what_decides_it_and_names_no_margin() -> None:
    line = mean("inconclusive", low=-1.77, to_settle="about 1.9 times as many examples")
    text = describe_next_steps(undecided(PASSED, OPEN, means=(line,)))
    assert text == (
        "Do not accept the candidate yet.\n"
        "To decide in 80 % of such checks: about 1.9 times as many examples."
    )
    let_pass = undecided(means=(line, replace(line, suite="beir")), exit_code=0)
    assert describe_next_steps(let_pass).startswith(
        "The policy lets it pass undecided.\nTo decide mteb in 80 %"
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, "in 40 % of checks. The smallest loss seen in 80 % of checks is 3.01. About 9.0 times as many "
             "examples (a larger suite) let it pass in 97.5 %. Or --margin auto"),
        ({"counted": False}, "More examples (of a recipe also trainings) help."),
        ({"detectable": None}, "The smallest loss seen in 80 % of checks is above its score."),
        ({"source": "stated"}, "let it pass in 97.5 %."),
    ],
)  # fmt: skip
def test_a_suite_says_that_it_cannot_see_its_margin(changed: dict[str, Any], text: str) -> None:
    values: dict[str, Any] = {"automatic": 0.03, "detectable": 0.0301, "passing": 0.4, "source": "default"}
    power = Sensitivity(margin=0.01, **values | changed)
    (said,) = explain_unseen_margins({"nanobeir": power})
    assert said.startswith("nanobeir is too weak for its margin of 1.00 points: an equal model passes in ")
    assert text in said
    assert ("--margin auto" in said) == (changed.get("source") != "stated")
    # Three trainings of a baseline widen the interval of one candidate, and are no remedy of few examples.
    assert ("trainings" in said) == (changed == {"counted": False})
    assert explain_unseen_margins({"mteb": replace(power, passing=0.97)}) == []


# A check on the terminal


def printed(check: Check, *, every: bool = False, width: int = 200, colour: bool = False) -> str:
    out = io.StringIO()
    system = "standard" if colour else None
    print_check(
        check,
        Console(file=out, width=width, force_terminal=colour, color_system=system, markup=False),  # type: ignore[arg-type]
        every=every,
    )
    return out.getvalue()


SIDES = (
    "Question replace: is candidate 'nightly-0102' worse than baseline 'release' ('all-MiniLM-L6-v2')? On "
    "mteb (margin of the mean 1.47: chosen by the tool from the number of examples)"
)


def test_the_first_lines_are_the_verdict_why_and_what_to_do() -> None:
    assert printed(small_check()).splitlines()[:4] == [
        "REGRESSED. Reject the candidate. SciFact regressed by 3.50 points (p 0.0004).",
        SIDES,
        "Next:  Look at SciFact first:",
        "       harness compare dddddddddddd cccccccccccc --task SciFact",
    ]
    assert printed(small_check()).splitlines()[-1] == "exit 1: regressed"


def test_a_side_of_several_trainings_names_their_number() -> None:
    check = small_check()
    several = replace(check.baseline, artifacts=("d" * 64, "e" * 64, "f" * 64))
    head = "'nightly-0102' worse than baseline 'release' ('all-MiniLM-L6-v2', 3 trainings)? On mteb"
    assert head in printed(replace(check, baseline=several))
    named = replace(check.baseline, name="release")
    assert "worse than baseline 'release'? On" in printed(replace(check, baseline=named))
    recipe = replace(check.candidate, artifacts=("d" * 64, "e" * 64))
    assert "is candidate 'nightly-0102' (2 trainings) worse than" in printed(replace(check, candidate=recipe))


def test_a_collapse_is_named_first_and_once() -> None:
    because = merge_verdicts((*TASKS, COLLAPSED), (), DEFAULT).because
    text = printed(small_check(tasks=(*TASKS, COLLAPSED), because=because))
    lines = text.splitlines()
    collapse = (
        "ArguAna: −12.34 points, surely lower: a collapse. A loss of more than 5 is red whatever the margin."
    )
    assert lines[0] == f"REGRESSED. Reject the candidate. {collapse}"
    assert lines[2] == "Also:  SciFact: −3.50 points, surely lower; a loss of 2.50 is allowed."
    assert text.count("ArguAna: ") == 1
    open_one = replace(COLLAPSED, verdict="inconclusive")
    fell = printed(passed(open_one), width=400)
    loss = "ArguAna: −12.34 [−15.34, −10.34] points, a collapse: inconclusive."
    assert fell.startswith(f"PASSED. But look at what collapsed before you accept it. {loss}")
    assert rows(fell)["ArguAna"][-1] == "lost more than 5 points"
    allowed = replace(COLLAPSED, must_not_regress=False)
    assert "−10.34] points, a collapse: regressed (allowed)." in printed(passed(allowed), width=400)


@pytest.mark.parametrize("form", ["fail", "name"])
def test_a_part_that_collapsed_stands_in_the_first_line_and_once(form: str) -> None:
    part = PartLoss(part="ar-ar", candidate=0.16, baseline=0.38, delta=-0.22, low=-0.3356, high=-0.1054,
                    collapsed=True, units=250)  # fmt: skip
    # The name of the last is the end of the first one's.
    others = (replace(part, part=name, delta=-0.03, collapsed=False) for name in ("ko-ko", "ar"))
    line = replace(PASSED, lost=(part, *others))
    end = merge_verdicts((line,), (mean("passed"),), Policy.model_validate({"parts": form}))
    made = passed(line, overall=end.verdict, because=end.because, exit_code=end.exit_code)
    loss = "ar-ar of STSBenchmark (250 pairs): −22.00 [−33.56, −10.54] points, a collapse."
    verdict = (
        "REGRESSED. Reject the candidate"
        if form == "fail"
        else "PASSED. But look at what collapsed before you acc"
    )
    assert printed(made).startswith(verdict)
    assert loss in printed(made, width=400).splitlines()[0]
    text = printed(made, width=400)
    assert ('A part is red only with parts = "fail" in the file of --policy' in text) == (form == "name")
    # What the first line says is not said again.
    assert text.count("ar-ar of STSBenchmark") == 1
    assert "Where it lost: ko-ko of STSBenchmark" in text
    assert "; ar of STSBenchmark" in text
    assert [text.count("ar-ar of STSBenchmark (") for text in (printed(made), render_markdown(made))] == [
        1,
        1,
    ]
    # What a port lost follows from what it differs in.
    assert loss not in printed(replace(made, overall="regressed", because=("Not the same.",), question=PORT))


def test_suspects_are_named_with_their_differences() -> None:
    worse = task("NQ", "inconclusive", points=-2, suspect=True)
    note = "Lower, but passed"
    text = f"{note}: FiQA2018 −1.20 [−4.20, +0.80], margin 2.50."
    for made in (passed(PASSED, SUSPECT, worse), small_check(tasks=(REGRESSED, SUSPECT, worse))):
        assert f"{text}\n" in printed(made)
        assert any(text == seen(token) for token in tokens(render_markdown(made)) if token.type == "inline")
    assert "FiQA2018 │" not in printed(passed(PASSED, SUSPECT))
    assert "and 4 more" in printed(passed(*many(SUSPECT, 10)))
    # A port says only what is surely lower, and not what is red.
    lower = replace(SUSPECT, high=-0.001)
    text = f"{note}: FiQA2018 −1.20 [−4.20, −0.10], margin 2.50.\n"
    assert text in printed(small_check(tasks=(replace(REGRESSED, suspect=True), lower), question=PORT))
    assert note not in printed(passed(SUSPECT, question=PORT))


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a printed table by their first cell."""
    lines = [line for line in text.splitlines() if line.startswith(("│", "┃"))]
    cells = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in lines]
    return {first: rest for first, *rest in cells}


def test_a_row_holds_the_interval_that_decides() -> None:
    table = rows(printed(small_check(), width=220))
    seeds = "seeds (baseline / candidate)"
    columns = ["metric", "n", seeds, "baseline", "candidate", "difference", "margin", "verdict"]
    assert table["task"] == columns
    assert table["Banking77Classification"] == [
        *("ndcg_at_10", "300 queries", "5 / 3", "60.00", "59.00", "−1.00 [−4.00, +1.00]", "2.50"),
        "inconclusive",
    ]
    numbers = ["75.50", "74.00", "−1.50 [−2.20, −0.80]", "1.47"]
    assert table["mean of mteb"] == ["", "3 of 5 tasks", "", *numbers, "regressed"]
    assert list(table)[1:] == ["mean of mteb", "SciFact", "Banking77Classification"]


@pytest.mark.parametrize("width", [80, 100, 120, 140, 200])
def test_columns_are_added_where_they_fit_beside_whole_names(width: int) -> None:
    names = ("MassiveScenarioClassification", "TwentyNewsgroupsClustering.v2")
    text = printed(small_check(tasks=[task(name, "inconclusive") for name in names]), width=width)
    table = rows(text)
    assert table.keys() >= {*names, "mean of mteb"}
    assert {"difference", "margin", "verdict"} <= {*table["task"]}
    assert ({"baseline", "candidate"} <= {*table["task"]}) == (width >= 120)
    assert max(map(len, text.splitlines())) <= width


def test_the_legend_says_what_the_two_ends_are() -> None:
    check = small_check(policy={"alpha": 0.1, "task_alpha": 0.01})
    levels = (
        "Difference: candidate − baseline before rounding, in points (score × 100), [lower, upper end]. The "
        "true one is above the lower end (90 % sure) and below the upper (97.5 % sure for the mean, 99 % for "
        "all tasks together), for these two models only, not for other seeds.\n"
    )
    for every in (False, True):
        text = printed(check, width=400, every=every)
        assert levels in text
        assert (
            "Regressed if all three hold: not passed, upper end below 0, over half of the margin lost."
            in text
        )
    same = passed(replace(PASSED, verdict="same"), means=(mean("same", p=None),))
    assert "sure" not in printed(same)
    alone = passed(PASSED, means=(replace(mean("passed"), there=1),))
    assert "(95 % sure) and below the upper (97.5 % sure), for" in printed(alone, width=400)


def test_tasks_that_passed_are_counted_unless_every_task_is_wanted() -> None:
    check = small_check(tasks=(*TASKS, *many(PASSED, 30), replace(PASSED, task="Twin", verdict="same")))
    short, full = printed(check), printed(check, every=True)
    assert "STSBenchmark" not in short
    counts = "tasks: 1 regressed, 1 not measured, 1 inconclusive, 1 not testable, 31 passed, 1 same"
    assert f"\nmean: regressed; {counts} (--all shows every task and rule)\n" in short
    assert full.count("STSBenchmark") == 31
    assert f"{counts}\n" in full
    assert len(rows(printed(small_check(tasks=many(OPEN, 100))))) == 22


def test_what_is_missing_is_named_with_its_reason_once() -> None:
    check = small_check(tasks=(*many(MISSING, 10), UNTESTABLE, replace(UNTESTABLE, task="x", reason="")))
    text = printed(check, width=400)
    assert re.search(r"^not measured: .*-0005 and 4 more: its data cannot be had$", text, re.MULTILINE)
    assert "not testable: MindSmallReranking: no results of queries are kept\n" in text
    assert "not testable: x: no reason was recorded\n" in text
    assert "-0009" in printed(check, every=True, width=400)
    assert "warning: torch 2.10.0 made the baseline, 2.11.0 the candidate.\n" in text


@pytest.mark.parametrize(
    ("changed", "margin", "source"),
    [
        ({"margin_source": "default"}, "1.47", "the default"),
        ({"margin_source": "policy", "margin": 0.005}, "0.50", "set with --margin or in the policy"),
        ({"margin_source": "runs"}, "1.47", "chosen by the tool from the baseline's repeated trainings"),
        ({"margin_source": "checks"}, "1.47", "chosen by the tool from earlier checks"),
        ({"margin_source": "stated"}, "1.47", "chosen by the tool from the number of examples"),
    ],
)
def test_a_margin_is_printed_as_what_it_is(changed: dict[str, Any], margin: str, source: str) -> None:
    line = "What it can see: a true loss of 1.02 points on mteb is red in 80 % of checks."
    check = passed(*TASKS[3:], means=(mean("passed", **changed),))
    for whole in (printed(check, width=400, every=True), render_markdown(check), render_junit(small_check(
        means=check.means))):  # fmt: skip
        assert line in whole
        assert f"On mteb (margin of the mean {margin}: {source})" in whole
    assert "Planned" not in printed(passed(means=(mean("passed", detectable=None),)))


def test_a_suite_of_one_column_of_several_tasks_shows_its_mean_and_its_tasks() -> None:
    column = replace(mean("passed"), wanted=1, there=1)
    tasks = (task("Android", "passed", points=1.0), task("Gaming", "passed"))
    text = printed(passed(means=(column,), tasks=tasks), every=True)
    assert all(re.search(rf"│ {name} +│", text) for name in ("mteb", "Android", "Gaming"))
    assert not re.search(r"│ Android +│", printed(passed(means=(column,), tasks=tasks)))
    text = printed(passed(means=(column,), tasks=tasks[:1]), every=True)
    assert re.search(r"│ Android +│", text)
    assert not re.search(r"│ mteb +│|--all", text)


def test_suites_of_one_margin_are_named_together() -> None:
    means = tuple(
        replace(mean("passed"), suite=name, margin=m, left_out=2)
        for name, m in {"a": 0.02, "b": 0.01, "c": 0.02}.items()
    )
    text = printed(passed(means=means, suites=tuple("abc")), width=400)
    notes = [
        f"margin of the mean {m}: chosen by the tool from the number of examples" for m in ("2.00", "1.00")
    ]
    assert "On 3 of 5 tasks of a, 3 of 5 tasks of c ({}); 3 of 5 tasks of b ({})\n".format(*notes) in text


def test_the_question_tells_how_much_of_a_suite_was_asked_for() -> None:
    """What is missing was asked for; what the options left out was not."""
    one = replace(mean("passed"), there=1, wanted=41, left_out=40)
    assert "On 1 of 41 tasks of mteb (margin 1.47: " in printed(passed(PASSED, means=(one,)))
    lacks = "beir is not checked: none of its tasks is in --tasks."
    head, _, _ = printed(replace(passed(PASSED, means=(one,)), warnings=(lacks,))).partition("┏")
    assert head.startswith("PASSED. Accept the candidate, but beir is not checked: none of its tasks is in")
    gone = mean("inconclusive", **UNTESTED)
    made = undecided(MISSING, means=(replace(gone, there=0, wanted=41, left_out=40),))
    assert "On 1 of 41 tasks of mteb\n" in printed(made)
    # A column without a score may have several tasks, and was not left out.
    column = tuple(replace(MISSING, task=f"CQADupstack{n}") for n in range(3))
    made = undecided(*column, means=(replace(one, there=9, wanted=15, left_out=5),))
    assert "On 10 of 15 tasks of mteb (margin of the mean 1.47: " in printed(made)


def test_a_port_of_learned_scores_alone_is_told_by_its_vectors() -> None:
    probe = replace(task("Probe", "regressed", points=-6, high=-0.04), type="Classification")
    outputs = PortComparison(text="tokens are equal, vectors agree.")
    (judged,), (of_mean,), end = judge_port((probe,), (mean("regressed"),), outputs, DEFAULT)
    assert (judged.verdict, of_mean.verdict, end.verdict) == ("inconclusive", "passed", "passed")
    assert end.because == ("The same model: tokens are equal, vectors agree.",)


# A suite of one task, whose row stands for the mean


def test_a_single_task_whose_mean_regressed_is_red_whatever_its_policy_allows() -> None:
    policy = Policy.model_validate({"must_not_regress": []})
    numbers: dict[str, Any] = {"delta": -0.06, "low": -0.075, "high": -0.045, "margin": 0.2}
    line = task("SciFact", "regressed", must_not_regress=False, collapsed=True, **numbers)
    means = (replace(mean("regressed", **numbers), there=1, wanted=1),)
    end = merge_verdicts((line,), means, policy)
    assert end.because[0].startswith(
        "SciFact: −6.00 points, surely lower: a collapse. A loss of more than 5 is"
    )
    made = small_check(tasks=(line,), means=means, because=end.because, policy=policy.to_json())
    assert rows(printed(made, width=300))["SciFact"][-2] == "regressed"
    assert "Look at SciFact first:" in printed(made)
    assert case(made, "SciFact")[0].tag == "failure"


def test_a_task_that_stands_for_two_suites_is_told_apart_and_counted_by_its_rows() -> None:
    means = tuple(replace(mean("improved"), suite=s, there=1, wanted=3) for s in "ab")
    made = passed(replace(PASSED, suites=("a", "b")), means=means, suites=("a", "b"), overall="improved")
    text = printed(made)
    assert [*rows(text)][1:] == ["STSBenchmark (a)", "STSBenchmark (b)"]
    assert "\ntasks: 2 improved (--all" in text
    cases = {
        s.get("name"): [c.get("name") for c in s.iter("testcase")] for s in fromstring(render_junit(made))
    }
    assert (cases["a"], cases["b"]) == (["STSBenchmark (a)"], ["STSBenchmark (b)"])


def test_a_collapse_is_never_cut() -> None:
    many_red = [task(f"T{n}", "regressed", points=-3) for n in range(9)]
    allowed = replace(COLLAPSED, must_not_regress=False)
    because = merge_verdicts([*many_red, allowed], (), DEFAULT).because
    assert "ArguAna: −12.34 [" in printed(small_check(tasks=(*many_red, allowed), because=because, means=()))
    open_one = undecided(replace(COLLAPSED, verdict="inconclusive"))
    assert printed(open_one).startswith("INCONCLUSIVE. Do not accept the candidate yet. ArguAna: −12.34")


def test_a_command_beside_no_baseline_is_not_said_to_be_beside_one() -> None:
    several = replace(small_check().baseline, artifacts=("d" * 64, "e" * 64, "f" * 64), source="release.zip")
    assert "first training" not in describe_next_steps(small_check(baseline=several))
    lost = replace(mean("regressed"), delta=-0.05)
    chain = Chain(anchor="v1", when="2026-01-01T00:00:00", baselines=2, means=(lost,))
    port = small_check(question=PORT, tasks=(PASSED,), chain=chain)
    assert describe_next_steps(port).split("\n")[1].startswith("The mean is red, and no single task")


def chained(step: MeanOutcome, since: MeanOutcome, *tasks: TaskOutcome, **changed: Any) -> Check:
    """A check whose baseline has an anchor, as it is decided."""
    facts = {"model": "v1", "artifacts": ("a" * 64,), "deltas": {"T": -0.122, "U": 0.01}} | changed
    chain = Chain(anchor="release", when="2026-01-01T00:00:00", baselines=2, means=(since,), **facts)
    end = merge_verdicts(tasks, (step,), DEFAULT, chain)
    given = {"overall": end.verdict, "exit_code": end.exit_code, "because": end.because, "means": (step,)}
    return small_check(tasks=tasks, chain=chain, **given)


GAINED = mean("improved", delta=0.0492, low=0.0379, high=0.0624)
FELL = mean("regressed", delta=-0.0407, low=-0.0486, high=-0.0301, margin=0.01)


def test_where_the_anchor_decides_all_that_is_said_is_against_the_anchor() -> None:
    made = chained(GAINED, FELL, task("T", "inconclusive", points=-2.9), task("V", "inconclusive", points=-3))
    text = printed(made, width=400)
    assert text.splitlines()[0] == (
        "REGRESSED. Reject the candidate. Against v1, the anchor of this chain (set as release on "
        "2026-01-01): Mean of mteb (3 of 5 tasks) −4.07 points, surely lower. Red by itself: 1.00 may be "
        "lost since then. Against the baseline alone: +4.92."
    )
    assert describe_next_steps(made).split("\n")[1:] == [
        "The mean is red, and no single task; since the anchor most was lost on T −12.20:",
        "harness compare aaaaaaaaaaaa cccccccccccc",
    ]
    assert rows(text)["mean of mteb, against the anchor"][-3:] == [
        "−4.07 [−4.86, −3.01]",
        "1.00",
        "regressed",
    ]
    assert "\nmeans: 1 regressed, 1 improved; tasks: 2 inconclusive (--all" in text
    former = chained(GAINED, FELL, model="", artifacts=(), deltas={})
    assert describe_next_steps(former).endswith("no single task:\nharness show cccccccccccc")
    both = chained(mean("regressed"), FELL, task("T", "inconclusive", points=-2.9))
    assert "most was lost on T −2.90:\nharness compare dddddddddddd" in describe_next_steps(both)


def test_a_baseline_that_is_itself_below_its_anchor_is_told_near_the_top() -> None:
    since = mean("passed", delta=-0.0005, low=-0.0009, high=0.0, margin=0.01)
    told = printed(chained(GAINED, since, PASSED), width=400).splitlines()
    assert told[0].startswith("IMPROVED. Accept the candidate.")
    assert told[2].startswith(
        "Note:  On mteb the baseline itself is at −4.97 points against v1, the anchor of this chain "
    )
    assert told[2].endswith("; the candidate is at −0.05.")
    # Other tasks are no common candidate, and a small loss is within what a chain may lose.
    for other in (replace(since, there=2), replace(since, delta=0.04)):
        assert "the baseline itself" not in printed(chained(GAINED, other, PASSED))


def test_many_suites_that_cannot_see_their_margins_have_one_warning() -> None:
    values: dict[str, Any] = {"margin": 0.01, "automatic": 0.03, "detectable": 0.0301}
    means = {name: Sensitivity(passing=p, **values) for name, p in {"a": 0.5, "b": 0.4, "c": 0.97}.items()}
    (said,) = explain_unseen_margins(means)
    assert said.startswith("b is too weak for its margin")
    assert said.endswith("Much the same holds for a.")


def test_a_second_suite_is_said_to_share_the_level_of_red() -> None:
    means = tuple(replace(mean("passed"), suite=name) for name in "ab")
    text = printed(passed(means=means, suites=("a", "b")), width=400, every=True)
    assert "below the upper (97.5 % sure for all 2 means together" in text
    assert "\nmeans: 2 passed; tasks: " in printed(small_check(means=means))


@pytest.mark.parametrize(
    ("overall", "code", "text"),
    [
        ("improved", 0, "exit 0: improved"),
        ("inconclusive", 3, "exit 3: inconclusive"),
        ("inconclusive", 1, "exit 1: inconclusive, which the policy fails"),
        ("inconclusive", 0, "exit 0: inconclusive, which the policy lets pass"),
    ],
)
def test_exit_codes_are_explained(overall: str, code: int, text: str) -> None:
    assert printed(passed(PASSED, overall=overall, exit_code=code)).endswith(f"{text}\n")
    assert printed(undecided(MISSING, exit_code=1)).endswith("exit 1: not measured\n")


def test_a_red_port_says_what_is_not_the_baselines_and_what_to_look_at() -> None:
    """Its mean has no verdict: a row that passed would contradict the first line."""
    outputs = PortComparison(text="tokens differ. Token 2 of 'a' is 1. Compare.", stage="tokens")
    probe = replace(task("Probe", "passed"), type="Classification")
    tasks, means, end = judge_port((COLLAPSED, SUSPECT, probe), (mean("passed"),), outputs, DEFAULT)
    made = small_check(tasks=tasks, means=means, because=end.because, question=PORT)
    first, asked, todo, *_ = printed(made).splitlines()
    assert first == f"REGRESSED. Reject the candidate. Not the same model: {outputs.text}"
    assert asked.startswith(
        "Question port: is candidate 'nightly-0102' the same model as baseline 'release' ('all-MiniLM-L6"
    )
    assert todo == "Next:  Correct what differs. To see what it did to ArguAna:"
    table = rows(printed(made, every=True, width=300))
    assert table["mean of mteb"][-2:] == ["–"] * 2
    assert (table["ArguAna"][-2], table["Probe"][-2]) == ("0.05", "probe")
    assert "\ntasks: 2 regressed, 1 passed" in printed(made)
    assert result(made, "mean of mteb") == ""
    assert "\nmean of mteb measured: −1.50 [−2.20, −0.80] points\n" in spoken(made, "mteb")


def test_work_that_failed_is_told_as_such_in_every_form() -> None:
    """An inconclusive check would be run again as it is."""
    tasks = tuple(replace(MISSING, task=name, reason=f"the candidate has no score: {NAN}") for name in "AB")
    because = merge_verdicts(tasks, (mean("inconclusive", **UNTESTED),), DEFAULT).because
    made = undecided(*tasks, because=because, means=(mean("inconclusive", **UNTESTED),), exit_code=1)
    why = f"2 of 2 tasks lack a score: A, B: {NAN}."
    text = printed(made)
    assert text.splitlines()[0] == f"NOT MEASURED. Nothing is decided. {why}"
    assert "┃" not in text
    assert "## ❓ not measured. Nothing is decided.\n" in render_markdown(made)
    for name in ("overall verdict", "A"):
        (error,) = case(made, name)
        assert (error.tag, error.get("type")) == ("error", "not measured")
        assert error.get("message", "").startswith("not measured: ")
    assert not any("inconclusive" in form(made) for form in (printed, render_markdown, without_policy))


NAN = "6 of 6 vectors are not finite"


def without_policy(check: Check) -> str:
    return re.sub(".*policy[.].*\n", "", render_junit(check))


def spoken(check: Check, suite: str) -> str:
    """What a testsuite says of its cases, those that passed too."""
    return next(
        one.findtext("system-out", "") for one in fromstring(render_junit(check)) if one.get("name") == suite
    )


@pytest.mark.parametrize(
    ("points", "text"),
    [
        (-0.0165, "at worst −2.24; a loss of 2.00 is allowed. Red, since all three hold: the loss is sure, "
                  "over half of what is allowed, perhaps all of it"),
        (-0.0305, "surely lower; a loss of 2.00 is allowed"),
    ],
)  # fmt: skip
def test_a_loss_that_is_red_says_where_it_lies_beside_its_margin(points: float, text: str) -> None:
    low, high = points - 0.0059, points + 0.0088
    lost = task("STS13", "regressed", delta=points, low=low, high=high, margin=0.02)
    made = small_check(tasks=(lost,), because=merge_verdicts((lost,), (), DEFAULT).because)
    loss = f"STS13: −{-100 * points:.2f} points, {text}."
    assert printed(made, width=400).splitlines()[0] == f"REGRESSED. Reject the candidate. {loss}"


def test_one_training_of_each_side_is_the_first_cause() -> None:
    lines = (replace(COLLAPSED, verdict="inconclusive", to_settle=TRAININGS),)
    note = SINGLE.format(known="unknown", change="is surely lower, −7.42 [−8.57, −6.07] points")
    means = (mean("inconclusive", to_settle=TRAININGS),)
    because = merge_verdicts(lines, means, DEFAULT, None, note).because
    made = undecided(*lines, because=because, means=means, question=AskedQuestion(name="retrain"))
    text = printed(made, width=400)
    assert text.splitlines()[0] == (
        "INCONCLUSIVE. Do not accept the candidate yet. This model is surely lower, −7.42 [−8.57, −6.07] "
        "points, but the recipe cannot be judged by one training of each side: what another seed would "
        "change is unknown."
    )
    assert (
        "for these two models only, not for other seeds.\nWith one training a side no recipe passes." in text
    )
    assert "Planned before" not in text
    several = ["--model A --model B --model C", "--model MODEL --recipe RECIPE --seeds 3"]
    trained = replace(made, tasks=(replace(lines[0], unit=TRAINED),))
    for one, words in zip((made, trained), several, strict=True):
        first, command = describe_next_steps(one).splitlines()[1:3]
        assert first.startswith("Train the baseline 3 times in all, with other seeds")
        assert command == f"harness baseline set NAME {words}"


@pytest.mark.parametrize("question", ["port", "retrain", "replace"])
def test_every_form_names_the_question(question: Any) -> None:
    made = small_check(question=AskedQuestion(name=question))
    start = f"Question {question}: is "
    assert printed(made).splitlines()[1].startswith(start)
    assert render_markdown(made).splitlines()[4].startswith(start)
    facts = [one.attrib for one in fromstring(render_junit(made)).iter("property")]
    assert {"name": "question", "value": question} in facts
    assert (case(made, "overall verdict")[0].text or "").startswith(start)
    assert spoken(made, "mteb").startswith(start)


def predicted(**changed: object) -> MeanOutcome:
    bounds = {"candidate_low": 0.506, "candidate_high": 0.518, "baseline_low": 0.509, "baseline_high": 0.521}
    values = {"target": "MTEB(eng, v2)", "candidate": 0.512, "baseline": 0.515} | bounds
    return mean("passed", predicted=values | changed)


def test_a_predicted_benchmark_has_its_error() -> None:
    line, text = predicted(candidate_high=0.53), "51.5 [50.9, 52.1] → 51.2 [50.6, 53.0]"
    assert f"mteb: predicted MTEB(eng, v2): {text}\n" in printed(passed(means=(line,)))
    lines = [
        seen(token) for token in tokens(render_markdown(passed(means=(line,)))) if token.type == "inline"
    ]
    assert f"mteb: predicted MTEB(eng, v2): {text}" in lines


def test_many_sentences_are_cut_unless_all_is_asked_for() -> None:
    check = small_check(because=tuple(f"Reason {number}." for number in range(20)))
    assert "       and 14 more\n" in printed(check)
    assert "Reason 19." in printed(check, every=True)


def test_long_sentences_are_folded_and_commands_are_not() -> None:
    name = "ATaskWithQuiteALongName" * 3
    check = small_check(because=("one two three " * 20,), tasks=(replace(REGRESSED, task=name),))
    lines = printed(check, width=60).splitlines()
    assert lines[0].startswith("REGRESSED. Reject the candidate. one two three")
    assert f"       harness compare dddddddddddd cccccccccccc --task {name}" in lines
    assert all(len(line) <= 60 for line in lines if name not in line)


def test_names_are_never_markup() -> None:
    odd = "[red]x[/red] :smile: [/nothing]"
    party = replace(small_check().candidate, name=odd)
    check = small_check(candidate=party, tasks=(replace(REGRESSED, task=odd),), because=(odd,))
    assert printed(check).count(odd) == 5


@pytest.mark.parametrize(
    ("overall", "colour"),
    [("regressed", "31"), ("inconclusive", "33"), *((one, "32") for one in ("improved", "passed", "same"))],
)
def test_the_verdict_is_coloured(overall: str, colour: str) -> None:
    made = small_check(overall=overall, tasks=(PASSED,))
    assert f"{colour}m{overall.upper()}." in printed(made, colour=True).splitlines()[0]


def test_nothing_to_say_is_no_error() -> None:
    text = printed(small_check(tasks=(), means=(), because=(), warnings=()))
    assert "no tasks\n" in text
    assert "┃" not in text


def test_printing_imports_nothing_beyond_the_console_and_tables() -> None:
    code = """
import sys
sys.path[:0] = ["tests/harness/checks", "tests/support"]
import rich.box, rich.console, rich.table
from test_report import small_check
from harness.core.terminal import create_console
from harness.checks.report import print_check
out = create_console()
before = set(sys.modules)
print_check(small_check(), out, every=True)
new = {name for name in sys.modules if name not in before and not name.startswith(("rich", "harness"))}
print(sorted(new))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# A check as JUnit XML
#
# The rules of both schemas in use are written out here. `JUNIT_XSD` may name the schemas themselves
# (windyroad/JUnit-Schema's JUnit.xsd, jenkinsci/xunit-plugin's junit-10.xsd), separated like the
# folders of PATH; what validates them is the package xmlschema


NUMBER = r"[0-9]+"
SECONDS = r"[0-9]+\.[0-9]{3}"
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
FILLED = r"(?s).*\S.*"
ANY = r"(?s).*"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What both schemas allow: attributes (all of them required) and children, in this order."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    children: str = ""


RESULT = Rule(attributes={"message": ANY, "type": ANY})
RULES = {
    "testsuites": Rule(children="(testsuite )*"),
    "testsuite": Rule(
        attributes={
            **dict.fromkeys(("name", "hostname"), FILLED),
            **dict.fromkeys(("id", "tests", "failures", "errors", "skipped"), NUMBER),
            **{"package": ANY, "timestamp": MOMENT, "time": SECONDS},
        },
        children="properties (testcase )*system-out system-err ",
    ),
    "properties": Rule(children="(property )*"),
    "property": Rule(attributes={"name": FILLED, "value": ANY}),
    "testcase": Rule(
        attributes={"name": ANY, "classname": ANY, "time": SECONDS}, children="((skipped|error|failure) )?"
    ),
    "skipped": Rule(attributes={"message": ANY}),
    "error": RESULT,
    "failure": RESULT,
    "system-out": Rule(),
    "system-err": Rule(),
}


def faults(element: Element) -> list[str]:
    """Where a document breaks the rules."""
    rule = RULES[element.tag]
    found = (
        [f"{element.tag}: {sorted(element.attrib)}"] if set(element.attrib) != set(rule.attributes) else []
    )
    found += [
        f"{element.tag}.{name}: {value!r}"
        for name, value in element.attrib.items()
        if not re.fullmatch(rule.attributes.get(name, ANY), value)
    ]
    children = "".join(f"{child.tag} " for child in element)
    if not re.fullmatch(rule.children, children):
        found.append(f"{element.tag} holds {children}")
    return found + [fault for child in element for fault in faults(child)]


def case(check: Check, name: str) -> Element:
    found = [one for one in fromstring(render_junit(check)).iter("testcase") if one.get("name") == name]
    assert len(found) == 1
    return found[0]


def result(check: Check, name: str) -> str:
    return "".join(child.tag for child in case(check, name))


EVERY_KIND = (
    small_check(),
    small_check(overall="inconclusive", exit_code=3),
    small_check(overall="inconclusive", exit_code=0),
    small_check(overall="passed", exit_code=0, suites=("a", "b")),
    small_check(tasks=(), means=(), because=(), warnings=(), seconds=123456.7),
    small_check(when="2026-01-02T03:04:05.678+02:00", recipe="glue"),
)


@pytest.mark.parametrize("check", EVERY_KIND)
def test_the_rules_of_both_schemas_hold(check: Check) -> None:
    assert faults(fromstring(render_junit(check))) == []


@pytest.mark.parametrize("check", EVERY_KIND)
@pytest.mark.skipif("JUNIT_XSD" not in os.environ, reason="needs JUNIT_XSD, the paths of the schemas")
def test_the_schemas_themselves_hold(check: Check) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    for path in os.environ["JUNIT_XSD"].split(os.pathsep):
        xmlschema.XMLSchema(path).validate(render_junit(check))


RESULTS = {
    **{"regressed": "failure", "missing": "error", "inconclusive": "skipped", "not testable": "skipped"},
    **dict.fromkeys(("improved", "passed", "same"), ""),
}


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_has_its_element(verdict: Verdict) -> None:
    assert result(small_check(tasks=(task("SciFact", verdict),)), "SciFact") == RESULTS[verdict]
    if verdict not in ("missing", "not testable"):
        means = (mean(verdict),)  # type: ignore[arg-type]
        assert result(small_check(means=means), "mean of mteb") == RESULTS[verdict]


@pytest.mark.parametrize("code", [0, 1, 3])
@pytest.mark.parametrize("overall", ["regressed", "inconclusive", "improved", "passed", "same"])
def test_the_overall_case_fails_if_the_exit_code_is_not_0(overall: Overall, code: int) -> None:
    expected = "failure" if code else RESULTS[overall]
    made = small_check(overall=overall, exit_code=code, tasks=(OPEN,))
    assert result(made, "overall verdict") == expected
    if code and overall == "inconclusive":
        assert (
            case(made, "overall verdict")[0].get("message", "").startswith("inconclusive, not called a regr")
        )


def test_a_regression_that_is_allowed_is_no_failure() -> None:
    check = small_check(tasks=(replace(REGRESSED, must_not_regress=False),))
    assert result(check, "SciFact") == "skipped"
    assert case(check, "SciFact")[0].get("message", "").startswith("regressed (allowed)")


def test_the_counts_are_those_of_the_cases() -> None:
    for suite in fromstring(render_junit(small_check())):
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(name, "")) == len(suite.findall(f"testcase/{tag}"))
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        cases = sum(float(one.get("time", "")) for one in suite.iter("testcase"))
        assert float(suite.get("time", "")) == pytest.approx(cases)


def test_the_verdicts_of_each_suite_stand_in_a_testsuite_of_their_own() -> None:
    means = tuple(replace(small_check().means[0], suite=name) for name in ("first", "second"))
    held = {"SciFact": ("first", "second"), "STSBenchmark": ("second",)}
    tasks = tuple(replace(task, suites=held.get(task.task, ())) for task in TASKS)
    check = small_check(suites=("first", "second"), means=means, tasks=tasks)
    root = fromstring(render_junit(check))
    cases = {one.get("name"): [inner.get("name") for inner in one.iter("testcase")] for one in root}
    others = ["TRECCOVID & <others>", "Banking77Classification", "MindSmallReranking"]
    assert cases == {
        "first": ["SciFact", "mean of first"],
        "second": ["STSBenchmark", "mean of second"],
        "check": [*others, "overall verdict"],
    }
    assert [one.get("id") for one in root] == ["0", "1", "2"]


def test_times_are_utc_without_a_zone() -> None:
    check = small_check(when="2026-01-02T00:30:00.5+02:00")
    assert {one.get("timestamp") for one in fromstring(render_junit(check))} == {"2026-01-01T22:30:00"}


def test_candidate_baseline_and_policy_are_properties() -> None:
    suite = fromstring(render_junit(small_check()))[0]
    found = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert found["candidate"] == "nightly-0102"
    assert found["baseline"] == "baseline release (all-MiniLM-L6-v2)"
    assert (found["policy.task_alpha"], found["policy.margin"]) == ("0.02", "2.0")


def test_a_failure_tells_the_difference_and_the_overall_one_what_to_do() -> None:
    failure = case(small_check(), "SciFact")[0]
    assert failure.get("message") == "regressed: −3.50 [−6.50, −1.50] points, margin 2.50"
    assert "candidate: 56.50" in (failure.text or "")
    assert (
        case(small_check(), "TRECCOVID & <others>")[0].get("message")
        == "not measured: its data cannot be had"
    )
    assert "Look at SciFact first:\nharness compare" in (case(small_check(), "overall verdict")[0].text or "")


@given(st.text(), st.text())
def test_any_name_makes_a_document_that_can_be_read(name: str, reason: str) -> None:
    party = replace(small_check().candidate, name=name)
    tasks = (replace(OPEN, task=name, reason=reason),)
    text = render_junit(small_check(candidate=party, tasks=tasks, because=(reason,), warnings=(reason,)))
    assert faults(fromstring(text.encode())) == []


def test_control_characters_are_removed() -> None:
    tasks = (replace(REGRESSED, task="a\x00b\x1bc\ufffed\ud800e\tf"),)
    assert case(small_check(tasks=tasks), "abcde\tf") is not None


# A check as a comment on a pull request, read by another implementation of GitHub's Markdown


LIMIT = 65_536
OURS = re.compile(
    r"<!-- harness-check:[A-Za-z0-9._+-]+ -->|<details>\n<summary>[a-z ]+(: [0-9,]+)?</summary>|</details>"
)
GITHUB_LINKS = re.compile(r"@\w|#\d|://|\bwww\.|\bGH-\d|:[\w+-]+:", re.IGNORECASE)
ODD = [
    "a|b",
    "org/name|x||",
    "<script>alert(1)</script>",
    "</details> <!-- x -->",
    "`code` ``x",
    "@somebody and me@example.org",
    "*a* _b_ **c** ~~d~~",
    "[text](https://example.org) ![picture](x)",
    "https://example.org www.example.org",
    "#12 org/repo#34 GH-56",
    "&amp; &lt; &#64;",
    "back\\slash \\| end\\",
    "line\nbreak\r\n| a | b |",
    "- list",
    "1. list",
    "# heading",
    "=== ---",
    "$x^2$ :tada:",
    "[^1] [x]: y",
    "“quotes” — 日本語 🙂",
]
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def tokens(text: str) -> Iterator[Token]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


def tables(text: str) -> list[list[list[str]]]:
    """The cells of every table, as a reader sees them."""
    found: list[list[list[str]]] = []
    parsed = PARSER.parse(text)
    for at, token in enumerate(parsed):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("td_open", "th_open"):
            found[-1][-1].append(seen(parsed[at + 1]))
    return found


def seen(inline: Token) -> str:
    return "".join(child.content for child in inline.children or ()).replace("\u200b", "")


def named(name: str, **changed: object) -> Check:
    tasks = tuple(replace(task, task=name, reason=name, to_settle=name) for task in TASKS)
    party = replace(small_check().candidate, name=name)
    shown = small_check(candidate=party, tasks=tasks, because=(name,), warnings=(name, name))
    return replace(shown, **changed)  # type: ignore[arg-type]


def many(task: TaskOutcome, count: int, name: str = "") -> tuple[TaskOutcome, ...]:
    return tuple(replace(task, task=f"{name or task.task}-{number:04}") for number in range(count))


def test_it_begins_with_a_marker_and_the_verdict() -> None:
    first, _, heading, _, sides, _, why, *_ = render_markdown(small_check()).splitlines()
    assert first == "<!-- harness-check:release-mteb -->"
    assert sides == SIDES
    assert heading == "## ❌ regressed. Reject the candidate."
    assert why == "SciFact regressed by 3.50 points (p 0.0004)."


def test_the_marker_stays_while_the_candidate_changes() -> None:
    other = replace(small_check().candidate, name="nightly-0103")
    markers = {
        render_markdown(check).splitlines()[0] for check in (small_check(), small_check(candidate=other))
    }
    assert len(markers) == 1
    assert render_markdown(small_check(suites=("beir",))).splitlines()[0] not in markers


def test_what_matters_is_in_the_open_and_the_rest_is_folded_away() -> None:
    in_the_open, _, folded = render_markdown(small_check()).partition("<details>")
    assert "Look at SciFact first: `harness compare dddddddddddd cccccccccccc --task SciFact`" in in_the_open
    assert "| Banking77Classification |" in in_the_open
    assert "STSBenchmark" not in in_the_open
    assert "STSBenchmark" in folded
    summaries = re.findall("<summary>(.*)</summary>", folded)
    kinds = ["not measured: 1", "not testable: 1", "warnings: 1", "passed or the same: 1"]
    assert summaries == [*kinds, "how to read this"]
    changed = small_check(policy=DEFAULT.to_json() | {"must_not_regress": ["STS*"]})
    assert tables(render_markdown(changed))[-2][1:] == [["must_not_regress", '["STS*"]']]


def test_the_tables_hold_the_same_lines_as_the_terminal() -> None:
    check = small_check(tasks=(replace(REGRESSED, p=0.0), *TASKS[1:]))
    lines, missing, *_ = tables(render_markdown(check))
    terminal = [[first, *cells] for first, cells in rows(printed(check, width=300)).items()]
    assert [[cell.lstrip("❌❓✅ ") for cell in line] for line in lines] == terminal
    assert [line[-1] for line in lines[1:]] == ["❌ regressed", "❌ regressed", "❓ inconclusive"]
    assert missing[1] == ["TRECCOVID & <others>", "its data cannot be had"]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_verdict_has_a_sign(verdict: Verdict) -> None:
    good = verdict in ("improved", "passed", "same")
    assert FORMS[verdict].sign in ("✅" if good else "❌❓")


def holds(text: str) -> None:
    """Every table is whole, and nothing but our own HTML, tables and lists is in the text."""
    assert all(len(row) == len(table[0]) for table in tables(text) for row in table)
    for token in tokens(text):
        assert token.type not in ("link_open", "image", "em_open", "strong_open", "s_open")
        assert token.type != "code_inline" or token.content.startswith("harness ")
        assert token.type not in (
            "html_inline",
            "code_block",
            "fence",
            "blockquote_open",
            "ordered_list_open",
        )
        assert token.type != "heading_open" or token.tag == "h2"
        if token.type == "html_block":
            assert OURS.fullmatch(token.content.strip())
        if token.type == "text":
            assert not GITHUB_LINKS.search(token.content)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_shown_as_they_are(name: str) -> None:
    text = render_markdown(named(name))
    holds(text)
    assert tables(text)[1][1][0] == re.sub(r"[\r\n]+", " ", name)


@given(
    st.text(
        alphabet=st.one_of(st.sampled_from("|<>&`*_[]()!@#$~\\:/-+=.1 w\n"), st.characters()), max_size=80
    )
)
def test_no_name_is_read_as_markdown(name: str) -> None:
    holds(render_markdown(named(name)))


@given(st.text(max_size=200))
def test_a_marker_is_one_whole_comment(name: str) -> None:
    party = replace(small_check().baseline, baseline=name, name="")
    first, _ = render_markdown(small_check(baseline=party, suites=())).split("\n", 1)
    marker = re.fullmatch(r"<!-- harness-check:([A-Za-z0-9._+-]+) -->", first)
    assert marker is not None
    assert "--" not in marker[1]


@pytest.mark.parametrize("task", TASKS, ids=[task.verdict for task in TASKS])
@pytest.mark.parametrize("name", ["", "@|<&" * 60])
def test_a_thousand_tasks_stay_within_the_limit(task: TaskOutcome, name: str) -> None:
    check = small_check(
        tasks=many(task, 1324, name),
        because=tuple(f"{name}{number}" for number in range(1324)),
        warnings=tuple(f"{name}{number}" for number in range(1324)),
    )
    text = render_markdown(check)
    assert len(text) < LIMIT
    assert len(text) > 20_000
    holds(text)
    assert text.count("<details>") == text.count("</details>")


def test_rows_that_do_not_fit_are_counted() -> None:
    text = render_markdown(small_check(tasks=many(TASKS[0], 1324)))
    left_out = re.search(r"^([\d,]+) of 1,325 rows are left out here\.$", text, re.MULTILINE)
    assert left_out
    assert text.count("| SciFact-") == 1324 - int(left_out[1].replace(",", ""))


def test_no_kind_of_task_crowds_out_another() -> None:
    text = render_markdown(small_check(tasks=tuple(one for task in TASKS for one in many(task, 264))))
    assert len(text) < LIMIT
    shown = [len(table) - 1 for table in tables(text)]
    assert shown[-1] == 4  # the rules are whole
    assert all(count > 40 for count in shown[:3])
    assert len(text) > 55_000


def test_long_text_is_cut() -> None:
    assert tables(render_markdown(named("x" * 400)))[1][1][0] == "x" * 299 + "…"


def test_the_legend_tells_of_the_weakest_level_and_of_the_anchor() -> None:
    strict = small_check(policy={"alpha": 0.01, "task_alpha": 0.2})
    ends = "above the lower end (99 % sure) and below the upper (97.5 % sure{})"
    assert ends.format(" for the mean, 80 % for all tasks together") in printed(strict, width=400)
    assert ends.format("") in printed(
        passed(PASSED, means=(replace(mean("passed"), there=1),), policy={"alpha": 0.01, "task_alpha": 0.2}),
        width=400,
    )
    since = mean("inconclusive", delta=-0.008, low=-0.013, high=-0.004, margin=0.01)
    anchor = "Against v1, the anchor of this chain (set as release on 2026-01-01): mteb −0.80 [−1.30, "
    for question in ("replace", "port"):
        asked = AskedQuestion(name=question)  # type: ignore[arg-type]
        made = replace(chained(GAINED, since, PASSED), question=asked)
        for text in (printed(made, width=400), render_junit(replace(made, overall="regressed", exit_code=1))):
            assert anchor in text


def test_a_passed_report_names_each_suite_that_is_not_checked() -> None:
    lacks = [f"{name} is not checked: none of its tasks is in --tasks." for name in ("beir", "glue")]
    made = passed(PASSED, warnings=tuple(lacks))
    assert printed(made, width=400).startswith(
        f"PASSED. Accept the candidate, but {lacks[0][:-1]}; {lacks[1]} The mean held."
    )
    part = PartLoss(part="ar-ar", delta=-0.22, low=-0.3, high=-0.1, collapsed=True, units=250)
    fallen = replace(made, tasks=(replace(PASSED, lost=(part,)),))
    assert lacks[0][:-1] in render_markdown(fallen).partition("|")[0]
