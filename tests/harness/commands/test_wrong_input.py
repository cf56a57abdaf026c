"""Input that commands cannot use: each ends in a sentence and exit code 2."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.cli import invoke

Measured = Any
Asked = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--batch-tokens", "9" * 30, "from 1 to 2 billion"),
        ("--max-length", str(2**63), "from 1 to 2 billion"),
        ("--threads", "1025", "from 1 to 1024"),
        ("--workers", str(10**6), "from 1 to 1024"),
        ("--keep-vectors", "1e300", "from 0 to a billion"),
        ("--keep-vectors", "nan", "from 0 to a billion"),
        ("--checkpoint-minutes", "inf", "from 0 to a billion"),
        ("--seed", "9" * 30, "from 0 to 4294967295"),
    ],
)
def test_a_count_that_no_run_can_have(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["run", "--model", "minilm", "--suite", "beir", "--dry-run", option, value]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("value", ["nan", "inf", "1e300"])
@pytest.mark.parametrize(
    "command",
    [
        ("cache", "prune", "--dry-run", "--older-than"),
        ("status", "--watch"),
        ("proxy", "fit", "--target", "beir", "--minutes"),
        ("watch", "runs", "--suite", "beir", "--budget-minutes"),
        ("serve", "--refresh"),
    ],
)
def test_an_amount_that_is_no_number(
    command: tuple[str, ...], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a number of days was every folder of the cache."""
    assert invoke([*command[:-1], f"{command[-1]}={value}"]) == 2
    assert f"Invalid value for '{command[-1]}'" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["epochs", "batch_size", "max_steps", "chunk", "max_length"])
def test_a_setting_that_cannot_be_counted(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    typed = f"{setting}={2**64}"
    assert invoke(["run", "--model", "minilm", "--suite", "beir", "--recipe", "simcse", "--set", typed]) == 2
    assert f"The setting {setting} of simcse is {2**64}, more than can be counted." in capsys.readouterr().err


def test_a_remote_without_records_is_told_and_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"file://{tmp_path / 'mistyped'}"
    for more in ((), ("--dry-run",), ("--json",)):
        assert invoke(["remote", "pull", url, "--results", str(tmp_path / "results"), *more]) == 2
        assert f"No records are in {url}." in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_a_watch_of_a_folder_without_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    where = ["--results", str(tmp_path / "results")]
    assert invoke(["watch", str(tmp_path / "run"), "--suite", "beir", "--once", "--offline", *where]) == 0
    said = capsys.readouterr().out
    assert "run: no checkpoint of " in said
    assert "with a step in their name" in said


def test_a_check_on_a_suite_that_the_baseline_does_not_have(
    measured: Measured, asked: Asked, tmp_path: Path
) -> None:
    archive = tmp_path / "last.zip"
    assert asked("baseline", "export", "last", archive)[0] == 0
    for baseline in (archive, "last"):
        arguments = ("--candidate", measured.model("good"), "--baseline", baseline, "--suite", "beir")
        code, _, err = asked("check", *arguments, "--offline")
        assert code == 2
        assert f"The baseline {baseline} has no score of " in err
        assert f"it was set for {measured.local}." in err


def test_results_that_are_a_file(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.touch()
    arguments = ["run", "--model", str(measured.model("good")), "--suite", measured.local, "--offline"]
    assert invoke([*arguments, "--results", str(place)]) == 1
    assert f"Cannot write {place}: a file stands where a folder should be." in capsys.readouterr().err


def test_a_removal_without_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.commands import models

    class Named:
        name, key, folder = "tiny", "a" * 64, Path()

    monkeypatch.setattr(models, "_find_stored_model", lambda *_: Named)
    monkeypatch.setattr(sys, "stdin", None)
    assert invoke(["models", "remove", "tiny"]) == 2
    assert capsys.readouterr().err.endswith("No terminal to ask in.\nPass --yes to remove the model.\n")


def test_a_dtype_that_the_cpu_does_not_run_is_refused_by_a_dry_run(measured: Measured, asked: Asked) -> None:
    half = ("--model", measured.model("good"), "--suite", measured.local, "--dtype", "fp16")
    code, out, err = asked("run", *half, "--devices", "cpu", "--dry-run", "--offline")
    assert (code, out) == (2, "")
    assert "float16 is not run on a CPU" in err


@pytest.mark.parametrize(("option", "name"), [("--prompts", "deep.json"), ("--policy", "deep.toml")])
def test_a_file_that_is_nested_too_deep_is_named(
    option: str, name: str, measured: Measured, asked: Asked, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(("x = " if name.endswith("toml") else "") + "[" * 100_000)
    code, _, err = asked(
        "check", "--candidate", measured.model("good"), "--baseline", "last", option, tmp_path / name
    )
    assert code == 2
    assert f"{tmp_path / name} " in err


def test_a_current_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.delenv("HARNESS_RESULTS", raising=False)
    with contextlib.chdir(tmp_path / "gone"):
        (tmp_path / "gone").rmdir()
        assert invoke(["list", "records"]) == 2
    assert "which was removed" in capsys.readouterr().err
