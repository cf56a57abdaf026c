"""`harness check` over real records of tiny models: verdicts, exit codes, refusals, and what it writes."""

from __future__ import annotations

import json
import random
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import faulty
from blocked import invoke_blocked
from harness.checks.outcome import CHECKS
from harness.checks.policy import DEFAULT, Policy
from harness.core.documents import append_digest, verify_digest
from harness.core.errors import UsageError
from tiny import WORDS


def check(measured: Any, asked: Any, candidate: str, baseline: str, *more: object) -> tuple[int, Any]:
    """A check's exit code and JSON."""
    code, out, err = asked(
        *("check", "--candidate", measured.model(candidate), "--baseline", baseline, "--offline", "--json"),
        *more,
    )
    assert out, err
    return code, json.loads(out)


def policy(tmp_path: Path, text: str) -> tuple[str, Path]:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return "--policy", path


def of(told: Any, task: str) -> Any:
    return next(one for one in told["tasks"] if one["task"] == task)


def records(measured: Any, model: str, task: str) -> list[Path]:
    return [
        path
        for path in (measured.results / "records").glob(f"{model}-*/{task}/*.json")
        if not path.name.endswith(".failed.json")
    ]


def test_a_model_is_the_same_as_itself(measured: Any, asked: Any) -> None:
    code, told = check(measured, asked, "good", "last")
    assert (code, told["overall"], told["exit_code"]) == (0, "same", 0)
    assert [one["verdict"] for one in told["tasks"]] == ["same"] * 4
    assert {one["delta"] for one in told["tasks"]} == {0.0}
    assert told["means"][0]["there"] == told["means"][0]["wanted"] == 4
    assert told["baseline"]["baseline"] == "last"


def test_a_model_that_hardly_sees_its_words_has_regressed(measured: Any, asked: Any) -> None:
    code, told = check(measured, asked, "worse", "last")
    assert (code, told["overall"]) == (1, "regressed")
    alike = of(told, "alike")
    assert (alike["verdict"], alike["unit"], alike["units"], alike["runs"]) == (
        "regressed",
        "pairs",
        300,
        [1, 1],
    )
    assert alike["high"] < 0
    assert alike["p"] < 0.02
    assert alike["delta"] == pytest.approx(alike["candidate"] - alike["baseline"])
    assert any(one.startswith("alike: −") and "collapse" in one for one in told["because"])
    assert told["means"][0]["delta"] == pytest.approx(sum(one["delta"] for one in told["tasks"]) / 4)


def test_the_other_way_round_it_has_improved(measured: Any, asked: Any) -> None:
    code, told = check(measured, asked, "good", str(measured.model("worse")), "--suite", measured.local)
    assert (code, told["overall"]) == (0, "improved")
    assert of(told, "alike")["verdict"] == "improved"
    assert told["baseline"]["baseline"] == ""


def test_what_must_not_regress_is_the_policys(measured: Any, asked: Any, tmp_path: Path) -> None:
    more = policy(tmp_path, "must_not_regress = []\nmean_margin = 50\n")
    code, told = check(measured, asked, "worse", "last", *more)
    assert of(told, "alike")["verdict"] == "regressed"
    assert (code, told["overall"]) == (0, "passed")
    more = policy(
        tmp_path, "must_not_regress = []\nmean_margin = 50\n[tasks.alike]\nmust_not_regress = true\n"
    )
    code, told = check(measured, asked, "worse", "last", *more)
    assert (code, told["because"][0].partition(":")[0]) == (1, "alike")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('must_not_regress = ["nothing*"]', "must_not_regress names no task of this check: nothing*"),
        ('must_not_regress = ["alik"]', "Did you mean alike?"),
        ("[tasks.alik]\nmargin = 2", "Did you mean alike?"),
    ],
)
def test_a_name_that_protects_nothing_is_refused(
    text: str, told: str, measured: Any, asked: Any, tmp_path: Path
) -> None:
    options = ("--candidate", measured.model("worse"), "--baseline", "last", "--offline")
    code, out, err = asked("check", *options, *policy(tmp_path, text + "\n"))
    assert (code, out) == (2, "")
    assert told in err


@pytest.mark.parametrize(("how", "expected"), [("exit-3", 1), ("fail", 1), ("pass", 1)])
def test_a_task_that_was_not_reached_is_never_passed_over(
    how: str, expected: int, measured: Any, asked: Any, tmp_path: Path
) -> None:
    for path in records(measured, "again", "find"):
        path.unlink()
    budget = f'mean_margin = 0.01\nbudget_minutes = 1e-9\ninconclusive = "{how}"\n'
    code, told = check(measured, asked, "again", "last", *policy(tmp_path, budget))
    find = of(told, "find")
    assert (find["verdict"], find["candidate"]) == ("missing", None)
    assert find["reason"].startswith("the candidate has no score")
    assert (code, told["overall"]) == (expected, "inconclusive")
    assert any("1 of 4 tasks lack a score: find" in one for one in told["because"])
    assert (told["means"][0]["there"], told["means"][0]["wanted"]) == (3, 4)


def test_a_task_that_fails_is_missing_and_why_is_told(
    measured: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites._mteb.built import BuiltSource

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is on fire")

    for path in records(measured, "again", "alike"):
        path.unlink()
    monkeypatch.setattr(BuiltSource, "evaluate", fails)
    code, told = check(measured, asked, "again", "last")
    alike = of(told, "alike")
    assert (code, told["overall"], alike["verdict"]) == (1, "inconclusive", "missing")
    assert "the disk is on fire" in alike["reason"]


def test_a_pinned_record_that_is_gone_is_missing(measured: Any, asked: Any) -> None:
    for path in records(measured, "good", "sort"):
        path.unlink()
    code, told = check(measured, asked, "again", "last")
    assert (code, told["overall"]) == (1, "inconclusive")
    assert of(told, "sort")["verdict"] == "missing"
    assert of(told, "sort")["reason"].startswith("the baseline has no score")
    assert of(told, "sort")["candidate"] is not None


@pytest.mark.parametrize(("ignored", "expected"), [(False, (3, "inconclusive")), (True, (1, "regressed"))])
def test_examples_that_are_gone_make_a_task_not_testable(
    ignored: bool, expected: tuple[int, str], measured: Any, asked: Any, tmp_path: Path
) -> None:
    for path in (measured.results / "records").glob("worse-*/alike/*.parquet"):
        path.unlink()
    told_not_to = "must_not_regress = []\nmean_margin = 50\nmargin = 50\n"
    more = told_not_to if not ignored else 'not_testable = "ignore"\n'
    code, told = check(measured, asked, "worse", "last", *policy(tmp_path, more))
    alike = of(told, "alike")
    assert (alike["verdict"], alike["p"]) == ("not testable", None)
    assert "per-example file is gone" in alike["reason"]
    assert alike["delta"] == pytest.approx(alike["candidate"] - alike["baseline"])
    assert (code, told["overall"]) == expected
    assert told["means"][0]["there"] == 3


def test_what_is_missing_is_measured_first(measured: Any, asked: Any) -> None:
    for path in records(measured, "again", "alike"):
        path.unlink()
    code, told = check(measured, asked, "again", "last")
    assert of(told, "alike")["verdict"] not in ("missing", "not testable")
    assert code == told["exit_code"]
    assert len(records(measured, "again", "alike")) == 1


# Refusals


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--max-length", "16"), "encoding.max_length is 16, the baseline's 64"),
        (("--prompt", "query=find: "), "prompts.query"),
        (("--seed", "7"), "seed is 7, the baseline's 42"),
        (("--pooling", "cls"), "pooling"),
    ],
)
def test_another_treatment_is_refused_with_the_difference(
    options: tuple[str, ...], field: str, measured: Any, asked: Any
) -> None:
    code, out, err = asked(
        *("check", "--candidate", measured.model("worse"), "--baseline", "last", "--offline", *options),
    )
    assert (code, out) == (2, "")
    assert "is not evaluated as the baseline last was" in err
    assert field in " ".join(err.split())
    assert not [
        CHECKS.kind.read_document_file(path) for path in sorted((measured.results / "checks").glob("*.json"))
    ]


def test_other_data_is_refused_with_the_difference(measured: Any, asked: Any, tmp_path: Path) -> None:
    """Somebody mends a file of the suite after the baseline was set."""
    path = measured.suite / "pairs.jsonl"
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"score": 5', b'"score": 4'))
    try:
        code, _, err = asked(
            *("check", "--candidate", measured.model("worse"), "--baseline", "last", "--offline")
        )
        allowed = policy(tmp_path, 'allow_differences = ["data.*"]\n')
        _, told = check(measured, asked, "worse", "last", *allowed)
    finally:
        path.write_bytes(before)
    assert code == 2
    assert "data.content" in err
    assert "(alike)" in err
    assert any("which is allowed" in one for one in told["warnings"])
    assert of(told, "alike")["verdict"] == "not testable"


def test_a_difference_that_a_policy_allows_only_warns(measured: Any, asked: Any, tmp_path: Path) -> None:
    more = policy(tmp_path, 'allow_differences = ["encoding.*"]\n')
    code, told = check(measured, asked, "good", "last", "--max-length", "32", *more)
    assert code == told["exit_code"]
    assert any("max_length is 32" in one and "which is allowed" in one for one in told["warnings"])


def test_a_difference_of_the_models_own_names_what_to_type(measured: Any, asked: Any) -> None:
    question = ("--candidate", measured.model("good"), "--baseline", "last", "--offline")
    code, _, err = asked("check", *question, "--max-length", "32", "--pooling", "cls")
    text = " ".join(err.split())
    assert code == 2
    assert "--allow pooling --allow max_length" in text
    flags = ("--allow", "pooling", "--allow", "max_length")
    code, told = check(measured, asked, "good", "last", "--max-length", "32", "--pooling", "cls", *flags)
    assert code == told["exit_code"] != 2
    assert sum("which is allowed" in one for one in told["warnings"]) == 2


def test_other_library_versions_only_warn(measured: Any, asked: Any) -> None:
    for path in (measured.results / "records").glob("worse-*/*/*.json"):
        record = verify_digest(path.read_text())
        record["provenance"]["packages"]["numpy"] = "1.0"
        path.write_text(append_digest(record))
    _, told = check(measured, asked, "worse", "last")
    assert any(one.startswith("numpy was ") and "is 1.0 for the candidate" in one for one in told["warnings"])
    assert told["overall"] == "regressed"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--candidate", "good"), "A check needs --baseline"),
        (("--baseline", "last"), "A check needs --candidate"),
        (("--candidate", "{good}", "--baseline", "{good}"), "Which suite?"),
        (("--candidate", "{good}", "--baseline", "lost.json"), "The file lost.json does not exist"),
        (
            ("--candidate", "{good}", "--baseline", "last", "--policy", "lost.toml"),
            "lost.toml cannot be read",
        ),
        (("--candidate", "nowhere/at-all", "--baseline", "last"), "nowhere/at-all"),
    ],
)
def test_misuse_is_told(arguments: tuple[str, ...], told: str, measured: Any, asked: Any) -> None:
    filled = [one.format(good=measured.model("good")) for one in arguments]
    code, out, err = asked("check", *filled, "--offline")
    assert code == 2
    assert out == ""
    assert told in " ".join(err.split())


# Several runs


def test_two_seeds_are_a_level_above_the_texts(measured: Any, asked: Any) -> None:
    """Texts stay the same under another seed; clusterings draw others of the same texts."""
    code, told = check(
        measured, asked, "again", str(measured.model("good")), "--suite", measured.local, "--seeds", "2"
    )
    sort, group, find = (of(told, name) for name in ("sort", "group", "find"))
    assert (sort["runs"], sort["units"]) == ([2, 2], 45)
    assert sort["noise"] is not None
    assert (group["units"], group["runs"]) == (60, [1, 1])
    assert (find["units"], find["runs"]) == (40, [1, 1])
    assert [len(one["candidate_keys"]) for one in (sort, group, find)] == [2, 2, 1]
    assert {one["verdict"] for one in told["tasks"]} <= {"inconclusive", "improved", "passed", "same"}
    assert code == told["exit_code"]
    again = check(
        measured, asked, "again", str(measured.model("good")), "--suite", measured.local, "--seeds", "2"
    )[1]
    assert again["tasks"] == told["tasks"]


def test_repeated_runs_give_the_automatic_margin(measured: Any, asked: Any) -> None:
    code, told = check(measured, asked, "worse", "repeated", "--margin", "auto")
    scores = {
        name: json.loads(records(measured, name, "find")[0].read_text())["main_score"]
        for name in ("good", "again", "more", "worse")
    }
    find = of(told, "find")
    assert find["runs"] == [1, 3]
    assert find["baseline"] == pytest.approx(
        (scores["good"] + scores["again"] + scores["more"]) / 3, abs=2e-5
    )
    assert find["candidate"] == pytest.approx(scores["worse"], abs=2e-5)
    assert find["margin_source"] == told["means"][0]["margin_source"] == "runs"
    assert 0.02 <= find["margin"] <= 0.03
    assert find["detectable"] is None  # from three runs, no loss that the score has room for
    assert code == told["exit_code"]


def test_earlier_checks_move_no_margin(measured: Any, asked: Any, tmp_path: Path) -> None:
    """Whatever passed before, and under whatever policy, the same check gives the same numbers."""
    alone = check(measured, asked, "worse", "last")[1]
    loose = policy(tmp_path, "margin = 100.0\nmean_margin = 100.0\n")
    for name in ("again", "more", "good"):
        check(measured, asked, name, "last", *loose)
    later = check(measured, asked, "worse", "last")[1]
    assert (later["tasks"], later["means"]) == (alone["tasks"], alone["means"])


def test_a_margin_that_cannot_be_seen_is_told_before_anything_runs(
    measured: Any, asked: Any, tmp_path: Path
) -> None:
    for path in records(measured, "again", "alike"):
        path.unlink()
    tight = policy(tmp_path, "mean_margin = 0.1\nbudget_minutes = 1e-9\n")
    options = ("--candidate", measured.model("again"), "--baseline", "last", "--offline", "--json", *tight)
    code, out, err = asked("check", *options)
    words = " ".join(err.split())
    assert "is too weak for its margin of 0.10 points" in words
    assert re.search(r"an equal model passes in \d+ % of checks", words)
    assert "--margin auto" in words
    # What it would take is the report's to say: a second number here would contradict it.
    assert "most checks:" not in words
    told = json.loads(out)
    assert code == 1
    # It is no part of the report, which says itself what a mean lacks.
    assert not any("is too weak for" in one for one in told["warnings"])


def test_what_decides_nothing_fails_if_asked_to(measured: Any, asked: Any, tmp_path: Path) -> None:
    tight = ("worse", "repeated", "--margin", "2")
    code, told = check(measured, asked, *tight)
    assert (code, told["overall"], told["means"][0]["margin_source"]) == (3, "inconclusive", "policy")
    code, told = check(measured, asked, *tight, "--tasks", "find,sort,group")
    assert told["overall"] == "inconclusive"
    # Tasks are no seeds.
    assert "seeds of each in all. For later checks: --margin auto" in told["means"][0]["to_settle"]
    assert told["means"][0]["left_out"] == 1
    assert any(one.startswith("Left out of ") for one in told["warnings"])
    assert not any("is too weak for" in one for one in told["warnings"])
    report = tmp_path / "junit.xml"
    code, told = check(measured, asked, *tight, "--fail-on-inconclusive", "--junit", str(report))
    assert (code, told["exit_code"], told["policy"]["inconclusive"]) == (1, 1, "fail")
    assert '<failure type="inconclusive"' in report.read_text()


def test_a_margin_of_the_mean_that_applies_to_no_suite_is_told(
    measured: Any, asked: Any, tmp_path: Path
) -> None:
    more = policy(tmp_path, "mean_margin = 0.3\n")
    warned = [
        any(one.startswith("mean_margin of the policy applies to no suite") for one in told["warnings"])
        for told in (
            check(measured, asked, "good", "last", "--tasks", "alike", *more)[1],
            check(measured, asked, "good", "last", "--tasks", "alike")[1],
            check(measured, asked, "good", "last", *more)[1],
        )
    ]
    assert warned == [True, False, False]


# What it writes


def test_every_form_is_written_and_says_the_same(measured: Any, asked: Any, tmp_path: Path) -> None:
    files = {name: tmp_path / "out" / f"check.{name}" for name in ("json", "xml", "md")}
    files["json"].parent.mkdir()
    options = ("--json-file", files["json"], "--junit", files["xml"], "--markdown", files["md"])
    code, out, _ = asked(
        *("check", "--candidate", measured.model("worse"), "--baseline", "last", "--offline", *options)
    )
    assert code == 1
    assert "alike" in out
    assert "regressed" in out
    told = json.loads(files["json"].read_text())
    (kept,) = (CHECKS.kind.read_document_file(path) for path in (measured.results / "checks").glob("*.json"))
    assert kept == CHECKS.kind.parse(json.dumps(told), where="the file")
    assert [path.name for path in (measured.results / "checks").iterdir()] == [
        f"{kept.when.replace('-', '').replace(':', '').partition('+')[0]}-{kept.id}.json"
    ]
    suite = ElementTree.parse(files["xml"]).getroot()
    cases = {one.get("name"): [child.tag for child in one] for one in suite.iter("testcase")}
    assert sum("failure" in one for one in cases.values()) >= 1
    markdown = files["md"].read_text()
    assert all(name in markdown for name in ("alike", "regressed"))
    assert "NaN" not in files["json"].read_text()


def test_the_policy_is_explained_and_can_be_saved(asked: Any, tmp_path: Path) -> None:
    code, out, _ = asked("check", "--explain")
    assert code == 0
    assert Policy.model_validate(tomllib.loads(out)) == DEFAULT
    code, out, _ = asked("check", "--explain", *policy(tmp_path, "alpha = 0.01\n[tasks.A]\nmargin = 3\n"))
    assert Policy.model_validate(tomllib.loads(out)).margin_of("A") == 3
    code, out, _ = asked("check", "--explain", "--json")
    assert json.loads(out)["alpha"] == 0.05


def test_a_file_of_a_baseline_stands_for_it_wherever_it_lies(
    measured: Any, asked: Any, tmp_path: Path
) -> None:
    path = measured.results / "baselines" / "last.json"
    _, by_file = check(measured, asked, "worse", str(path))
    _, by_name = check(measured, asked, "worse", "last")
    assert by_file["tasks"] == by_name["tasks"]
    moved = tmp_path / "elsewhere.json"
    moved.write_bytes(path.read_bytes())
    assert check(measured, asked, "worse", str(moved))[1]["tasks"] == by_name["tasks"]


def test_one_key_with_two_scores_is_no_pass(measured: Any, asked: Any, tmp_path: Path) -> None:
    """The same model gave another score in the results folder of the baseline's file."""
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(measured.results, elsewhere)
    (path,) = records(measured, "good", "find")
    record = verify_digest(path.read_text())
    record["main_score"] -= 0.05
    for name in ("main_score", "ndcg_at_10"):
        record["scores"]["test"]["default"][name] -= 0.05
    path.write_text(append_digest(record))
    code, told = check(measured, asked, "good", str(elsewhere / "baselines" / "last.json"))
    assert (code, told["overall"], of(told, "find")["verdict"]) == (3, "inconclusive", "not testable")
    assert of(told, "alike")["reason"] == "one and the same record"


def test_the_same_check_gives_the_same_numbers(measured: Any, asked: Any) -> None:
    first, second = (check(measured, asked, "again", "last")[1] for _ in range(2))
    for one in (first, second):
        for name in ("seconds", "when", "digest"):
            one.pop(name)
    assert first == second


def test_a_check_of_what_is_there_needs_no_heavy_library(measured: Any, asked: Any) -> None:
    """Torch, mteb, transformers and scikit-learn cannot be imported in the process that answers."""
    arguments = ["check", "--candidate", str(measured.model("worse")), "--baseline", "last", "--json"]
    ((code, out, err),) = invoke_blocked([[*arguments, "--results", measured.results]])
    assert code == 1, err
    told = json.loads(out)
    assert told["overall"] == "regressed"
    assert told["tasks"] == check(measured, asked, "worse", "last")[1]["tasks"]


def test_the_python_call_gives_the_check_of_the_command(measured: Any, asked: Any, tmp_path: Path) -> None:
    import harness

    policy = tmp_path / "policy.toml"
    policy.write_text("alpha = 0.05\n")
    found = harness.check(
        str(measured.model("worse")), "last", policy=policy, results=measured.results, offline=True
    )
    told = check(measured, asked, "worse", "last")[1]
    assert (found.overall, found.exit_code) == ("regressed", 1)
    assert found.to_json()["tasks"] == told["tasks"]
    with pytest.raises(UsageError, match="a suite is needed"):
        harness.check("minilm", "minilm", results=measured.results)
    with pytest.raises(UsageError, match="argument of harness"):
        harness.check(str(measured.model("worse")), "last", results=measured.results, banana=1)


def test_tasks_leave_out_suites_that_have_none_of_them(measured: Any, asked: Any, tmp_path: Path) -> None:
    """A suite without a task left would hold every check back as one with a missing score does."""
    suites = [tmp_path / "own", tmp_path / "second"]
    for folder in suites:
        shutil.copytree(measured.suite, folder)
        settings = folder / "harness.toml"
        start = 0 if folder.name == "own" else 2
        tables = settings.read_text().split("\n\n")[start : start + 2]
        settings.write_text("\n\n".join(tables))
    named = [part for folder in suites for part in ("--suite", f"local:{folder}")]
    typed = ("baseline", "set", "two", "--model", measured.model("good"), *named, "--offline")
    assert asked(*typed)[0] == 0
    code, told = check(measured, asked, "good", "two", "--tasks", "alike")
    assert (code, told["overall"], [one["task"] for one in told["tasks"]]) == (0, "same", ["alike"])
    assert [len(told[name]) for name in ("suites", "means")] == [1, 1]
    assert f"local:{suites[1]} is not checked: none of its tasks is in --tasks." in told["warnings"]
    model = ("--candidate", measured.model("good"), "--offline")
    code, _, err = asked("check", *model, "--baseline", "two", "--tasks", "alike,STS12")
    assert (code, "A check takes tasks that its baseline has." in err) == (2, True)


def test_a_model_without_a_number_is_work_that_failed(measured: Any, asked: Any, tmp_path: Path) -> None:
    """Exit 3 is for statistics alone, and a pipeline may let it pass; a model without numbers is refused."""
    folder = shutil.copytree(measured.model("good"), tmp_path / "spoiled")
    faulty.tensors(folder, lambda held: {name: one * np.float32(np.nan) for name, one in held.items()})
    typed = ("check", "--candidate", str(folder), "--baseline", "last", "--offline", "--tasks", "alike")
    code, _, err = asked(*typed)
    assert (code, "spoiled: 6 of 6 vectors of short test texts are not finite" in err) == (2, True)
    code, out, _ = asked(*typed, "--no-gate", "--json")
    told = json.loads(out)
    assert (code, told["overall"], of(told, "alike")["verdict"]) == (1, "inconclusive", "missing")


def test_one_training_of_each_side_is_said_to_hide_what_seeds_do(measured: Any, asked: Any) -> None:
    for baseline, said in (("last", True), ("repeated", False)):
        typed = ("check", "--candidate", measured.model("worse"), "--baseline", baseline, "--offline")
        assert ("for these two models only, not for other seeds" in asked(*typed)[1]) is said
        because = check(measured, asked, "worse", baseline, "--question", "retrain")[1]["because"]
        assert ("cannot be judged by one training of each side" in because[0]) is said


@pytest.fixture
def rooted(measured: Any, asked: Any, tmp_path: Path) -> Path:
    """A data root of two tasks, and the file of a baseline that was measured on it."""
    chance, root = random.Random(0), tmp_path / "root"
    for task in ("stsbenchmark-sts", "sts12-sts"):
        pairs = [
            {
                "sentence1": " ".join(chance.choices(WORDS, k=4)),
                "sentence2": chance.choice(WORDS),
                "score": n % 6,
            }
            for n in range(40)
        ]
        (root / "mteb" / task).mkdir(parents=True)
        (root / "mteb" / task / "test.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    tasks = ("--tasks", "STSBenchmark,STS12", "--data", root, "--offline")
    assert asked("baseline", "set", "two", "--model", measured.model("good"), *tasks)[0] == 0
    assert asked("baseline", "export", "two", tmp_path / "two.zip")[0] == 0
    return root


def test_missing_data_is_named_and_not_taken_for_other_data(
    rooted: Path, measured: Any, asked: Any, tmp_path: Path
) -> None:
    options = ("--candidate", measured.model("worse"), "--offline", "--data", rooted)
    shutil.rmtree(rooted / "mteb" / "sts12-sts")
    for baseline in (tmp_path / "two.zip", measured.model("good")):
        tasks = () if baseline.suffix else ("--tasks", "STSBenchmark,STS12")
        code, out, err = asked("check", *options, "--baseline", baseline, *tasks)
        assert (code, out) == (2, "")
        assert re.search(
            rf"^Error: STS12: .*data set mteb/sts12-sts .*is not in {rooted}", err, re.MULTILINE
        ), err
        assert re.search(r"harness data pull .*mteb:STS12\b.* --data DIR", err), err
        assert "allow" not in err
    more = ("--tasks", "STSBenchmark,STS12", "--data", rooted, "--offline")
    code, _, err = asked("baseline", "set", "three", "--model", measured.model("again"), *more)
    assert (code, "Error: STS12: " in err) == (2, True)


def test_a_hub_that_cannot_be_reached_is_said_at_once(
    rooted: Path, measured: Any, asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    tasks = ("--suite", "mteb:STS12")
    models = ("--candidate", measured.model("worse"), "--baseline", measured.model("good"))
    for command in (("check", *models), ("baseline", "set", "x", "--model", measured.model("good"))):
        code, _, err = asked(*command, *tasks)
        assert code == 2
        assert "cannot be reached" in err
        assert "--data DIR --offline" in err
        assert "thrown while requesting" not in err


def test_one_of_the_tasks_of_a_baseline_is_narrowed_to_by_tasks(
    rooted: Path, measured: Any, asked: Any, tmp_path: Path
) -> None:
    options = ("--candidate", measured.model("good"), "--baseline", tmp_path / "two.zip", "--data", rooted)
    _, _, err = asked("check", *options, "--offline", "--suite", "mteb:STSBenchmark")
    assert err.rstrip().endswith("For mteb:STSBenchmark alone: --tasks STSBenchmark.")
    assert asked("check", *options, "--offline", "--tasks", "STSBenchmark")[0] == 0


def test_another_precision_names_the_question_of_a_port(measured: Any, asked: Any) -> None:
    options = ("--candidate", measured.model("good"), "--baseline", "last", "--dtype", "bfloat16")
    code, _, err = asked("check", *options, "--question", "replace", "--offline")
    assert (code, "--question port" in err, "--allow dtype" in err) == (2, True, True)


def test_a_report_that_cannot_be_written_is_to_have_another_name(
    measured: Any, asked: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    options = ("--candidate", measured.model("good"), "--baseline", "last")
    code, _, err = asked("check", *options, "--markdown", tmp_path / "file" / "check.md")
    assert (code, "Name another file." in err, "--cache" in err) == (2, True, False)
