"""`harness run` on models of one name, and what its reader sees of small tasks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.cli import invoke


@pytest.fixture
def folders(measured: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Two models in folders of one name."""
    places = tmp_path / "exp1" / "final", tmp_path / "exp2" / "final"
    for name, place in zip(("more", "worse"), places, strict=True):
        shutil.copytree(measured.model(name), place)
    return places


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert invoke([*map(str, arguments), "--json"]) in (0, 1)
    return json.loads(capsys.readouterr().out)


def test_two_folders_of_one_name_are_told_apart_in_the_run_and_by_every_reader(
    measured: Any, folders: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    results = ("--results", tmp_path / "own")
    suite = ("--suite", measured.local, "--tasks", "type:STS", "--offline", *results)
    first, second = folders
    report = ask(capsys, "run", "--model", first, "--model", second, *suite)
    names = ["exp1/final", "exp2/final"]
    assert [model["name"] for model in report["models"]] == names
    assert [one["model"] for one in report["records"]] == names
    assert [one["model"] for one in report["suites"]] == names
    assert {row["model"] for row in ask(capsys, "list", "records", *results)["records"]} == {*names}
    for path in (tmp_path / "own").glob("records/*/*/*.json"):
        about = json.loads(path.read_text())["model"]
        assert (about["name"], about["source"]) == ("final", "local")
        assert str(tmp_path) not in path.read_text()
    check = ask(capsys, "check", "--candidate", second, "--baseline", first, *suite)
    assert (check["candidate"]["name"], check["baseline"]["name"]) == ("exp2/final", "exp1/final")
    # By names that were typed, in the order of the command line; the same model twice is run once.
    typed = ("--model", f"new={first}", "--model", f"old={second}", "--model", first)
    again = ask(capsys, "run", *typed, *suite)
    assert [model["name"] for model in again["models"]] == ["new", "old", "new"]
    assert {one["state"] for one in again["records"]} == {"cached"}


def test_a_small_task_has_a_mean_with_its_interval_where_it_was_asked_for_alone(
    measured: Any, folders: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    suite = ("--suite", measured.local, "--tasks", "type:STS", "--results", tmp_path / "own")
    (run,) = ask(capsys, "run", "--model", folders[0], *suite, "--offline")["suites"]
    ((name, score),) = [(name, value) for name, value in run["columns"].items() if value is not None]
    assert run["mean_over_requested"] == {"value": score, "there": 1, "wanted": 1}
    mean = run["small"]["mean"]
    assert mean == run["small"]["columns"][name]
    assert mean["examples"] == 300
    # For pairs of normal values 1.96 (1 − r²) / sqrt(n) (Fisher); these are whole numbers, and few of them.
    assert mean["half_width"] == pytest.approx(1.96 * (1 - score**2) / 300**0.5, rel=0.4)
    assert invoke(["run", "--model", str(folders[0]), *map(str, suite), "--offline"]) == 0
    printed = capsys.readouterr().out
    assert f"mean over the task asked for {100 * score:.2f} (1 of 1)" in printed
    assert f"300 examples (± {100 * mean['half_width']:.1f}): too few" in printed
    (shown,) = ask(capsys, "show", folders[0], "--suite", measured.local, *suite[4:])["suites"]
    assert shown["small"]["columns"][name] == mean
