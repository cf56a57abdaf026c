"""`harness run` on models of one name, and what its reader sees of small tasks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import tiny
from harness.cli import invoke
from harness.driver.evaluation import prepare
from harness.plan.request import Request


@pytest.fixture
def folders(measured: Any, tmp_path: Path) -> tuple[Path, Path]:
    """Two models in folders of one name."""
    places = tmp_path / "exp1" / "final", tmp_path / "exp2" / "final"
    for name, place in zip(("more", "worse"), places, strict=True):
        shutil.copytree(measured.model(name), place)
    return places


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert invoke([*map(str, arguments), "--json"]) in (0, 1, 3)
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


def test_several_lengths_are_one_run_with_the_records_of_single_ones(tmp_path: Path, capsys: Any) -> None:
    model = tiny.folder(tiny.families()["modernbert"], tmp_path / "tiny", max_position_embeddings=16)
    data = tmp_path / "data"
    data.mkdir()
    texts = [{"text": "cold snow falls " * 20 + word, "label": word} for word in ("hot", "wet") * 12]
    for split in ("train", "test"):
        (data / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in texts))
    (data / "harness.toml").write_text('[[task]]\nname = "ends"\ntype = "classification"\n')
    places = ("--results", tmp_path / "results", "--cache", tmp_path / "cache")
    given = ("--model", model, "--suite", f"local:{data}", *places, "--rope-scaling", "yarn:5")
    lengths = ("--lengths", "8,16,64")
    plan = ask(capsys, "run", *given, *lengths, "--dry-run")
    assert [line["model"] for line in plan["plan"]] == [f"tiny, {n} tokens" for n in (8, 16, 64)]
    assert plan["evaluations"][-1] == "tiny at 64 tokens: its 16 positions are scaled by yarn:5"
    asked = Request(
        models=(str(model),), suites=(f"local:{data}",), lengths=(8, 16), cache=tmp_path / "cache"
    )
    joined = prepare(replace(asked, results=tmp_path / "results")).plan
    assert joined.time is not None
    seconds = [job.resources.seconds or 0.0 for job in joined.jobs if job.resources.needs_device]
    assert joined.time.seconds == pytest.approx(sum(seconds))
    report = ask(capsys, "run", *given, *lengths, "--save", tmp_path / "run.toml")
    assert [one["max_length"] for one in report["records"]] == [8, 16, 64]
    assert [one["max_length"] for one in report["suites"]] == [8, 16, 64]
    assert [one["name"] for one in report["models"]] == ["tiny"]
    keys = [one["key"] for one in report["records"]]
    shown = ask(capsys, "show", model, "--results", tmp_path / "results")["records"]
    assert [one["key"] for one in shown] == keys, "by length"
    # Only what lies beyond the positions is scaled; the others are the records without the option.
    for number, single in enumerate((given[:-2], given[:-2], given)):
        (record,) = ask(capsys, "run", *single, "--max-length", (8, 16, 64)[number])["records"]
        assert (record["state"], record["key"]) == ("cached", keys[number])
    assert invoke(["run", "--config", str(tmp_path / "run.toml"), *map(str, places)]) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("scores × 100 of tiny", "8 tokens", "16 tokens", "64 tokens"))
    assert Request(models=("m",), suites=("s",), lengths=16).validate_fields().lengths == (16,)
    for wrong, reason in (
        (("--max-length", 8), "--lengths and --max-length both give a length"),
        (("--protocol", "neobert"), "A protocol has lengths of its own"),
        (("--query-length", 4), "Type --lengths, or leave out --query-length"),
        (("--sweep", "scale=10,20"), "--lengths and --sweep: each length would have a sweep of its own"),
    ):
        assert invoke([*map(str, ("run", *given, *lengths, *wrong))]) == 2
        assert reason in capsys.readouterr().err


def test_a_model_in_half_precision_costs_as_much_as_in_float32(tmp_path: Path, capsys: Any) -> None:
    full = tiny.folder(tiny.families()["bert"], tmp_path / "full")
    half = shutil.copytree(full, tmp_path / "half")
    tensors = load_file(half / "model.safetensors")
    save_file({name: tensor.half() for name, tensor in tensors.items()}, half / "model.safetensors")
    models = ("--model", full, "--model", half, "--pooling", "mean")
    plan = ask(capsys, "run", *models, "--suite", "mteb:STSBenchmark", "--dry-run", "--results", tmp_path)
    first, second = (row["flops"] for row in plan["plan"])
    assert first == second > 0


def test_a_hub_that_cannot_be_reached_is_asked_once_before_the_run(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    command = ["run", "--model", "minilm", "--tasks", "STS12,STS13", "--results", str(tmp_path)]
    assert invoke([*command, "--dry-run"]) == 1
    plan = capsys.readouterr()
    assert plan.err.count("cannot be reached") == 1
    assert "0 to do, 0 done, 2 cannot run" in plan.out
    assert invoke(command) == 1
    error = capsys.readouterr().err
    assert error.count("cannot be reached") == 1
    assert "2 of 2 tasks cannot run" in error
    assert "--data DIR --offline" in error


def test_a_task_outside_a_suite_and_a_published_size_are_told_from_a_misspelt_name(capsys: Any) -> None:
    for model, suite, hint in (
        ("minilm", ("--suite", "mteb", "--tasks", "SIB200Classification"), "mteb:SIB200Classification."),
        ("modernbert-base", ("--suite", "stdlib"), "A run needs org/name from the hub, or a folder."),
    ):
        assert invoke(["run", "--model", model, *suite, "--dry-run"]) == 2
        assert hint in capsys.readouterr().err
