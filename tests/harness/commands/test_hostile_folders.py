"""Model folders of strangers: refused in a line, none of them run, nothing written, little memory taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import tiny
from blocked import invoke_blocked
from harness.cli import invoke
from hostile import FOLDERS, obeyed
from sparing import spare

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


def _make(kind: str, whole: Path, target: Path) -> list[str]:
    """A hostile folder, and the command that plans its evaluation."""
    shutil.copytree(whole / "model", target / "models" / "model")
    FOLDERS[kind][0](target / "models" / "model", target / "trace")
    typed = ["run", "--model", target / "models" / "model", "--suite", f"local:{whole / 'own'}", "--offline"]
    return [*map(str, typed), "--dry-run", "--results", str(target / "results")]


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_hostile_folder_is_refused_in_a_line(kind: str, whole: Path, tmp_path: Path, capsys: Any) -> None:
    typed = _make(kind, whole, tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    with spare():
        code = invoke(typed)
    out, err = capsys.readouterr()
    said = FOLDERS[kind][1]
    assert code in ((2,) if said else (0, 2)), err
    assert said in err
    if code:
        assert err.startswith("Error: ")
        assert err.count("\n") <= 2
    assert len(err) < 1000
    assert "Traceback" not in err
    assert obeyed(out + err) == set()
    assert not (tmp_path / "trace").exists()
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before


LOADED = {
    *("code in weights", "code in a training's arguments", "tokenizer of its own", "place 2**31 in a pickle"),
    *("shape of 2**60", "tokenizer nested 3,000 deep", "config of 10**15 numbers", "Python nested deep"),
    *("code in an optimizer", "code in a pickle of a tokenizer", "README of gigabytes"),
    *("model.json of another", "template that never ends", "regular expression that never ends"),
    *("config with a field twice", "config in another alphabet", "config of half a character"),
    "config that controls a terminal",
}
"""Those loaded without their weights, or of a type that transformers may know; the others need no torch."""


def test_the_others_are_refused_without_torch_and_without_transformers(whole: Path, tmp_path: Path) -> None:
    kinds = [kind for kind in FOLDERS if kind not in LOADED]
    typed = [_make(kind, whole, tmp_path / str(number)) for number, kind in enumerate(kinds)]
    for kind, (code, out, err) in zip(kinds, invoke_blocked(typed), strict=True):
        assert (code, out) == (2, ""), (kind, err)
        assert FOLDERS[kind][1] in err, kind
