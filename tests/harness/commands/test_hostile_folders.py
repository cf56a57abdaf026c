"""Model folders of strangers: refused in a line, none of them run, nothing written, little memory taken."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import measured_child
import tiny
from harness.cli import invoke
from hostile import FOLDERS, obeyed

SECONDS, BYTES = 5, 500_000_000
"""The most that a folder may take beyond what the same command takes for a whole one that is loaded."""

assert torch
assert transformers


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    rows = [{"text1": "the cat", "text2": "sat on", "score": number} for number in range(5)]
    (folder / "own").mkdir()
    (folder / "own" / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "own" / "harness.toml").write_text('[[task]]\ntype = "sts"\n')
    tiny.folder(tiny.families()["bert"], folder / "model")
    return folder


@pytest.fixture
def patience() -> Iterator[None]:
    """Ends a test that waits for a pipe to be written to."""
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("it waits for ever")))
    signal.alarm(60)
    yield
    signal.alarm(0)


def _make(kind: str, whole: Path, target: Path) -> list[str]:
    """A hostile folder, and the command that plans its evaluation."""
    shutil.copytree(whole / "model", target / "models" / "model")
    if kind:
        FOLDERS[kind][0](target / "models" / "model", target / "trace")
    typed = ["run", "--model", target / "models" / "model", "--suite", f"local:{whole / 'own'}", "--offline"]
    return [*map(str, typed), "--dry-run", "--results", str(target / "results")]


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.usefixtures("patience")
def test_a_hostile_folder_is_refused_in_a_line(kind: str, whole: Path, tmp_path: Path, capsys: Any) -> None:
    typed = _make(kind, whole, tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    code, (out, err) = invoke(typed), capsys.readouterr()
    said = FOLDERS[kind][1]
    assert code in ((2,) if said else (0, 2)), err
    assert said in err
    if code:
        assert err.startswith("Error: ")
        assert err.count("\n") <= 2
    assert len(err) < 1000
    assert "Traceback" not in err
    assert obeyed(out + err) == set()
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before


def _measure(typed: list[str], cache: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "harness", *typed, "--cache", str(cache)]
    done = subprocess.run(
        [sys.executable, "-S", measured_child.__file__, *command], capture_output=True, check=True
    )
    return dict(json.loads(done.stdout))


LOADED = {
    *("code in weights", "code in a training's arguments", "tokenizer of its own", "place 2**31 in a pickle"),
    *("shape of 2**60", "tokenizer nested 3,000 deep", "config of 10**15 numbers", "Python nested deep"),
    *(
        "code in an optimizer",
        "code in a pickle of a tokenizer",
        "README of gigabytes",
        "model.json of another",
    ),
    *("template that never ends", "regular expression that never ends"),
}
"""Those that are loaded without their weights; all others are refused before torch is imported."""


@pytest.fixture(scope="module")
def usual(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the same command takes for a whole folder."""
    folder = tmp_path_factory.mktemp("usual")
    used = _measure(_make("", whole, folder), folder / "cache")
    assert used["code"] == 0, used["out"]
    return used


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_hostile_folder_takes_little(kind: str, whole: Path, usual: dict[str, Any], tmp_path: Path) -> None:
    used = _measure(_make(kind, whole, tmp_path), tmp_path / "cache")
    assert used["code"] in (0, 2)
    least = usual if kind in LOADED else {"seconds": 0, "bytes": 0}
    assert used["seconds"] <= least["seconds"] + SECONDS
    assert used["bytes"] <= least["bytes"] + BYTES
    assert not (tmp_path / "trace").exists()
