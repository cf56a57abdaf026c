"""`harness baseline`: setting, listing, showing, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
import yaml

from harness.checks.baselines import BASELINES, write_baseline
from harness.core.documents import append_digest, verify_digest
from harness.storage.store import Store
from hostile import write_member
from sparing import spare

ROOT = Path(__file__).parents[3]


def test_it_is_pinned_to_the_keys_of_its_records(measured: Any, asked: Any) -> None:
    code, out, _ = asked("baseline", "show", "repeated", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["schema"] == 6
    assert told["power"]["tasks"].keys() == {"find", "alike", "sort", "group"}
    assert {one["source"] for one in told["power"]["means"].values()} == {"default"}
    assert {one["margin"] for one in told["power"]["tasks"].values()} == {0.02}
    _, shown, err = asked("baseline", "show", "repeated")
    assert "margin 1.00 (the default)" in shown
    assert "is too weak for its margin of 1.00 points" in " ".join(err.split())
    assert [run["model"] for run in told["runs"]] == ["good", "again", "more"]
    assert told["suites"] == [measured.local]
    store = Store(measured.results)
    for run in told["runs"]:
        assert run["keys"].keys() == {"find", "alike", "sort", "group"}
        for task, (key,) in run["keys"].items():
            record = store.get(run["folder"], task, key)
            assert record is not None
            assert (record.key, record.model.artifact) == (key, run["artifact"])
    assert (
        BASELINES.find_document(measured.results, "repeated").to_json()
        == BASELINES.kind.read_document_file(measured.results / "baselines" / "repeated.json").to_json()
    )


def test_a_seed_of_0_is_shown(measured: Any, asked: Any) -> None:
    last = BASELINES.find_document(measured.results, "last")
    zero = replace(last, name="zero", options={**last.options, "seed": 0})
    write_baseline(measured.results, zero, replace=False)
    assert "seed 0" in asked("baseline", "show", "zero")[1]


def test_they_are_listed_and_a_damaged_one_is_warned_of(measured: Any, asked: Any) -> None:
    (measured.results / "baselines" / "broken.json").write_text("{")
    code, out, err = asked("baseline", "list", "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)["baselines"]] == ["last", "repeated"]
    assert "broken.json is not a baseline" in " ".join(err.split())
    code, out, _ = asked("baseline", "list")
    assert code == 0
    assert "last" in out
    assert "repeated" in out


def test_without_any_the_list_says_how_to_set_one(asked: Any, measured: Any) -> None:
    for path in (measured.results / "baselines").iterdir():
        path.unlink()
    code, out, _ = asked("baseline", "list")
    assert code == 0
    assert "harness baseline set NAME" in " ".join(out.split())
    for more in (("baseline", "show", "last"), ("check", "--candidate", "bm25", "--baseline", "last")):
        code, _, err = asked(*more)
        assert (code, "harness baseline set NAME" in " ".join(err.split())) == (2, True)


def test_one_that_is_not_there_is_told_with_its_nearest(asked: Any) -> None:
    code, _, err = asked("baseline", "show", "lst")
    assert code == 2
    assert "last" in err


def set_(measured: Any, asked: Any, name: str, *more: object, model: str = "good") -> tuple[int, str, str]:
    told: tuple[int, str, str] = asked(
        *("baseline", "set", name, "--model", measured.model(model), "--suite", measured.local, "--offline"),
        *more,
    )
    return told


def test_a_name_is_taken_until_it_is_to_be_replaced(measured: Any, asked: Any) -> None:
    code, _, err = set_(measured, asked, "last", model="worse")
    assert code == 2
    assert "--replace" in err
    assert BASELINES.find_document(measured.results, "last").runs[0].model == "good"
    code, out, _ = set_(measured, asked, "last", "--replace", "--json", model="worse")
    assert code == 0
    assert json.loads(out)["runs"][0]["model"] == "worse"
    assert BASELINES.find_document(measured.results, "last").runs[0].model == "worse"


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ((), "Name one with --suite, or tasks with --tasks."),
        (("--tasks", "STS1"), "No task is called 'STS1'"),
    ],
)
def test_tasks_alone_are_a_suite_each(tasks: tuple[str, ...], said: str, measured: Any, asked: Any) -> None:
    code, _, err = asked("baseline", "set", "new", "--model", str(measured.model("good")), *tasks)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("name", ["a b", "../up", ".x"])
def test_a_name_that_cannot_be_a_files_is_refused_before_anything_runs(
    name: str, measured: Any, asked: Any
) -> None:
    code, _, err = set_(measured, asked, name)
    assert code == 2
    assert "cannot be the name of a baseline" in err


def test_the_treatment_is_kept_so_that_a_candidate_has_the_same(measured: Any, asked: Any) -> None:
    options = ("--max-length", "24", "--prompt", "query=find: ", "--tasks", "find,alike")
    code, out, _ = set_(measured, asked, "short", *options, "--json")
    assert code == 0
    assert json.loads(out)["runs"][0]["keys"].keys() == {"find", "alike"}
    code, out, err = asked(
        *("check", "--candidate", measured.model("good"), "--baseline", "short", "--offline", "--json")
    )
    assert code == 0, err
    told = json.loads(out)
    assert [one["task"] for one in told["tasks"]] == ["find", "alike"]
    assert {one["reason"] for one in told["tasks"]} == {"one and the same record"}
    code, _, err = asked(
        *("check", "--candidate", measured.model("good"), "--baseline", "short", "--offline"),
        *("--max-length", "32"),
    )
    assert code == 2
    assert "encoding.max_length is 32, the baseline's 24" in " ".join(err.split())


def test_a_fresh_machine_needs_its_file_alone(
    measured: Any, asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is as with the baseline's own results folder, from another one and an empty cache."""
    exported, fresh = tmp_path / "last.zip", tmp_path / "fresh"
    code, out, err = asked("baseline", "export", "last", exported, "--json")
    assert code == 0, err
    assert json.loads(out)["records"] == 4
    assert hashlib.sha256(exported.read_bytes()).hexdigest() == json.loads(out)["sha256"]
    again = asked("baseline", "export", "last", tmp_path / "again.zip", "--json")[1]
    assert json.loads(again)["sha256"] == json.loads(out)["sha256"]
    question = ("check", "--candidate", measured.model("worse"), "--offline", "--json")
    here = json.loads(asked(*question, "--baseline", "last")[1])
    monkeypatch.setenv("HARNESS_CACHE", str(fresh / "cache"))
    code, out, err = asked(*question, "--baseline", exported, "--results", fresh / "results")
    there = json.loads(out)
    assert code == here["exit_code"], err
    assert there["tasks"] == here["tasks"]
    assert there["means"] == here["means"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "settings", "code", "verdict"),
    [
        ("good", "", 0, "same"),
        ("worse", "", 1, "regressed"),
        ("again", 'budget_minutes = 1e-9\nmissing = "exit-3"', 3, "inconclusive"),
    ],
)
def test_the_step_of_the_action_in_a_fresh_clone(
    candidate: str, settings: str, code: int, verdict: str, measured: Any, asked: Any, tmp_path: Path
) -> None:
    """The action's own shell step with the program itself, a baseline's file, and nothing else."""
    clone, reports = tmp_path / "clone", tmp_path / "reports"
    for folder in (clone / "baselines", reports, tmp_path / "bin"):
        folder.mkdir(parents=True)
    asked("baseline", "export", "last", clone / "baselines" / "last.zip")
    (clone / "policy.toml").write_text(settings)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (run,) = (one["run"] for one in action["runs"]["steps"] if one["name"] == "Check")
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    (tmp_path / "bin" / "harness").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harness "$@"\n')
    (tmp_path / "bin" / "harness").chmod(0o755)
    inputs = {
        "CANDIDATE": measured.model(candidate), "BASELINE": "baselines/last.zip", "SUITE": "",
        "POLICY": "policy.toml", "RESULTS": "results", "ARGUMENTS": "--offline", "PYTHON_VERSION": "",
        "HARNESS_CACHE": tmp_path / "cache", "REPORTS": reports, "GITHUB_OUTPUT": tmp_path / "output",
        "GITHUB_STEP_SUMMARY": tmp_path / "summary", "PYTHONPATH": ROOT,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    environment = {**os.environ, **{name: str(value) for name, value in inputs.items()}}
    done = subprocess.run(
        ["bash", "-c", run], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "output").read_text() == f"verdict={verdict}\nexit-code={code}\n"
    assert (tmp_path / "summary").read_text() == (reports / "check.md").read_text()
    assert json.loads((reports / "check.json").read_text())["overall"] == verdict
    report = fromstring((reports / "junit.xml").read_text())
    # Work that is missing is an error, and no failure of the candidate.
    assert bool([*report.iter("failure"), *report.iter("error")]) == (code != 0)


def _changed(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an exported baseline with other content."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    other = path.with_name("changed.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return other


def _one_byte(parts: dict[str, bytes]) -> None:
    name = next(name for name in parts if name.endswith(".parquet"))
    parts[name] = parts[name][:-1] + bytes([parts[name][-1] ^ 1])


def _climbing(parts: dict[str, bytes]) -> None:
    content = verify_digest(parts["content.json"])
    content["files"]["records/../../evil.json"] = hashlib.sha256(b"{}").hexdigest()
    parts |= {"content.json": append_digest(content).encode(), "records/../../evil.json": b"{}"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_one_byte, "has another SHA-256"),
        (_climbing, "it holds a file 'records/../../evil.json'"),
        (lambda parts: parts.update({"records/more": b""}), "not those that it lists"),
        (lambda parts: parts.pop("content.json"), "content.json"),
        (lambda parts: parts.update({"content.json": b"[]"}), "no schema number"),
    ],
)
def test_a_file_that_was_changed_is_refused(
    change: Any, told: str, measured: Any, asked: Any, tmp_path: Path
) -> None:
    asked("baseline", "export", "last", tmp_path / "last.zip")
    changed = _changed(tmp_path / "last.zip", change)
    code, _, err = asked("check", "--candidate", measured.model("good"), "--baseline", changed, "--offline")
    text = " ".join(err.split())
    assert code == 2
    assert "is not a baseline with its records, or is damaged" in text
    assert told in text
    assert "harness baseline export" in text
    assert not list(tmp_path.rglob("evil.json"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("content.json", "its 'content.json' unpacks to 536,870,912 bytes, and may have 16,777,216"),
        ("records/m/t/k.parquet", "unpacks to 536,870,912 bytes, and may have 268,435,456"),
        ("records/m/t/k.bin", "unpacks to 536,870,912 bytes, and may have 0"),
    ],
)
def test_a_file_that_unpacks_to_more_than_memory_is_refused_before(
    name: str, told: str, measured: Any, asked: Any, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        write_member(archive, name, 2**29)
        if name != "content.json":
            content = {"baseline": "last", "files": {name: "0" * 64}}
            write_member(archive, "content.json", json.dumps(content).encode())
    typed = ["check", "--candidate", measured.model("good"), "--baseline", tmp_path / "bomb.zip", "--offline"]
    with spare():
        code, out, err = asked(*typed)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    assert not list((tmp_path / "cache").rglob("*.parquet"))


def test_a_baseline_whose_records_are_gone_is_not_exported(measured: Any, asked: Any, tmp_path: Path) -> None:
    key = BASELINES.find_document(measured.results, "last").runs[0].keys["find"][0]
    (record,) = measured.results.rglob(f"{key}.json")
    record.unlink()
    code, _, err = asked("baseline", "export", "last", tmp_path / "last.zip")
    assert code == 2
    assert "Records of the baseline last are not in" in " ".join(err.split())
    assert list(tmp_path.glob("*.zip")) == []
    code, _, err = asked("baseline", "export", "last", tmp_path / "last.json")
    assert code == 2
    assert "does not end in .zip" in err


def test_a_loss_that_the_replaced_baseline_forgot_is_red_by_its_anchor(
    measured: Any, asked: Any, tmp_path: Path
) -> None:
    new = ("--model", measured.model("more"), "--suite", measured.local, "--offline", "--replace")
    assert asked("baseline", "set", "last", *new)[0] == 0
    assert "anchor: last of " in asked("baseline", "show", "last")[1]
    question = ("check", "--candidate", measured.model("more"), "--offline", "--json", "--baseline")
    code, out, _ = asked(*question, "last")
    told = json.loads(out)
    assert (code, told["overall"], told["means"][0]["verdict"]) == (1, "regressed", "same")
    (since,) = told["chain"]["means"]
    assert (told["chain"]["baselines"], since["margin"], since["verdict"]) == (1, 0.01, "regressed")
    assert "Against good, the anchor of this chain (set as last on " in told["because"][0]
    # The candidate is the baseline, so that the losses since the anchor are the whole difference of both.
    direct = json.loads(asked(*question, measured.model("good"), "--suite", measured.local)[1])
    assert told["chain"]["deltas"] == {one["task"]: one["delta"] for one in direct["tasks"]}
    assert told["chain"]["artifacts"] == direct["baseline"]["artifacts"]
    asked("baseline", "export", "last", tmp_path / "last.zip")
    for path in (measured.results / "records").glob("good-*/*/*.json"):
        path.unlink()
    code, out, _ = asked(*question, "last")
    told = json.loads(out)
    assert (code, told["overall"], told["chain"]) == (0, "same", None)
    assert any("4 of 4 tasks have no records" in one for one in told["warnings"])
    assert asked(*question, tmp_path / "last.zip")[0] == 1
    wide = policy_file(tmp_path, "chain_margin = 100")
    assert asked(*question, tmp_path / "last.zip", "--policy", wide)[0] == 0
    assert asked("baseline", "set", "last", *new, "--anchor", "last")[0] == 0
    assert "anchor: " not in asked("baseline", "show", "last")[1]


def policy_file(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_seeds_are_kept_so_that_a_candidate_has_as_many(measured: Any, asked: Any) -> None:
    code, out, _ = set_(measured, asked, "seeds", "--seeds", "2", "--tasks", "sort,find", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["seeds"] == 2
    assert {task: len(keys) for task, keys in told["runs"][0]["keys"].items()} == {"find": 1, "sort": 2}
    code, out, _ = asked(
        *("check", "--candidate", measured.model("again"), "--baseline", "seeds", "--offline", "--json")
    )
    runs = {one["task"]: one["runs"] for one in json.loads(out)["tasks"]}
    assert runs == {"find": [1, 1], "sort": [2, 2]}


def test_what_is_missing_is_measured_and_what_is_there_is_not(measured: Any, asked: Any) -> None:
    (gone,) = (measured.results / "records").glob("good-*/alike/*.json")
    gone.unlink()
    there = {path: path.stat().st_mtime_ns for path in (measured.results / "records").rglob("*.json")}
    code, out, _ = set_(measured, asked, "anew", "--data", measured.results)
    # What the baseline does not keep of the typed options is in the next command.
    following = f"--baseline anew --results {measured.results} --data {measured.results} --offline\n"
    assert (code, out.endswith(following)) == (0, True)
    assert gone.exists()
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in there.items())


def test_nothing_is_pinned_where_a_score_could_not_be_had(
    measured: Any, asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites._mteb.built import BuiltSource

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the disk is on fire")

    monkeypatch.setattr(BuiltSource, "evaluate", fails)
    (gone,) = (measured.results / "records").glob("good-*/alike/*.json")
    gone.unlink()
    code, _, err = set_(measured, asked, "anew")
    assert code == 1
    assert "The baseline anew was not set: 1 tasks have no score (alike)" in " ".join(err.split())
    assert "anew" not in BASELINES.list_names(measured.results)


def test_a_name_that_is_a_models_or_a_files_is_refused(asked: Any, measured: Any) -> None:
    for name, told in (("minilm", "minilm is a model"), ("last.json", "cannot be the name")):
        code, _, err = asked(
            "baseline", "set", name, "--model", measured.model("worse"), "--suite", "stdlib", "--offline"
        )
        assert code == 2
        assert told in err


def test_a_model_is_no_repeat_of_itself(asked: Any, measured: Any) -> None:
    models = ("--model", measured.model("worse"), "--model", measured.model("worse"))
    code, _, err = asked("baseline", "set", "twice", *models, "--suite", measured.local, "--offline")
    assert code == 2
    assert "is given twice" in err


def test_a_name_out_of_the_folder_is_none(asked: Any, measured: Any) -> None:
    code, _, err = asked("baseline", "show", "../baselines/last")
    assert code == 2
    assert "No baseline is called" in err


def test_a_misspelt_baseline_is_told(asked: Any, measured: Any) -> None:
    code, _, err = asked("check", "--candidate", measured.model("worse"), "--baseline", "lats", "--offline")
    assert code == 2
    assert "No baseline or model is called 'lats'" in err
    assert "Did you mean last?" in err


def test_a_file_of_a_baseline_is_shown(measured: Any, asked: Any, tmp_path: Path) -> None:
    file = tmp_path / "last.zip"
    assert asked("baseline", "export", "last", file)[0] == 0
    code, out, _ = asked("baseline", "show", file)
    assert (code, out.startswith("last: set ")) == (0, True)
    assert f" --baseline {file} --results " in out
    assert asked("baseline", "show", tmp_path / "none.zip")[0] == 2


def test_the_advice_for_a_damaged_baseline_has_its_name(measured: Any, asked: Any) -> None:
    (measured.results / "baselines" / "last.json").write_text("{")
    code, _, err = asked("baseline", "show", "last")
    assert (code, "harness baseline set last --replace" in err) == (2, True)
