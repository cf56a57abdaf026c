from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from blocked import BLOCKER
from harness.watch.source import _condition

Write = Callable[..., Path]


def problem(folder: Path) -> str:
    return _condition(folder, settle=0).problem


def test_a_whole_checkpoint_has_a_stamp_that_its_weights_change(write: Write) -> None:
    folder = write("checkpoint-1")
    first = _condition(folder, settle=0)
    assert (first.problem, bool(first.stamp)) == ("", True)
    (folder / "trainer_state.json").write_text("{}")
    assert _condition(folder, settle=0).stamp == first.stamp
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert _condition(folder, settle=0).stamp != first.stamp


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_truncated_weights_are_told(write: Write, left: int) -> None:
    weights = write("checkpoint-1") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:left])
    assert "model.safetensors is not a whole safetensors file" in problem(weights.parent)
    assert str(weights.parent) not in problem(weights.parent)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config.json", None, "it has no config.json"),
        ("config.json", '{"model_type": "be', "config.json cannot be read as JSON"),
        ("tokenizer.json", '{"version": ', "tokenizer.json cannot be read as JSON"),
        ("tokenizer_config.json", "", "tokenizer_config.json cannot be read as JSON"),
        ("model.safetensors", None, "it has no weights"),
    ],
)
def test_a_file_that_lacks_or_is_half_written_is_told(
    write: Write, name: str, content: str | None, told: str
) -> None:
    path = write("checkpoint-1") / name
    path.unlink() if content is None else path.write_text(content)
    assert told in problem(path.parent)


def test_a_checkpoint_without_tokenizer_is_told_how_to_get_one(write: Write) -> None:
    folder = write("checkpoint-1")
    for path in [*folder.glob("tokenizer*"), *folder.glob("vocab*")]:
        path.unlink()
    assert "brings no tokenizer" in problem(folder)


def test_every_part_of_an_index_must_be_there_and_whole(write: Write) -> None:
    folder = write("checkpoint-1")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / part, metadata={"format": "pt"})
    index = {"weight_map": {name: part for part, held in parts.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert problem(folder) == ""
    second = folder / "model-00002-of-00002.safetensors"
    content = second.read_bytes()
    second.write_bytes(content[:-1])
    assert "not a whole safetensors file" in problem(folder)
    second.unlink()
    assert "lacks 1 of its 2 weight files" in problem(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map"')
    assert "cannot be read as JSON" in problem(folder)


def test_a_zip_of_torchs_is_read_to_its_directory(write: Write) -> None:
    import torch

    folder = write("checkpoint-1")
    (folder / "model.safetensors").unlink()
    weights = folder / "pytorch_model.bin"
    torch.save({"w": torch.zeros(1000)}, weights)
    assert problem(folder) == ""
    content = weights.read_bytes()
    for left in (2, 100, len(content) - 30):
        weights.write_bytes(content[:left])
        assert "pytorch_model.bin is not a whole file of torch's" in problem(folder)
    torch.save({"w": torch.zeros(1000)}, weights, _use_new_zipfile_serialization=False)
    assert weights.read_bytes()[:2] == pickle.dumps(0, protocol=2)[:2]
    assert problem(folder) == ""


def test_a_checkpoint_must_lie_still(write: Write) -> None:
    folder = write("checkpoint-1")
    (folder / "optimizer.pt").write_bytes(b"x")
    found = _condition(folder, settle=30)
    assert found.problem == "it changed 0 s ago"
    assert 25 < found.settles <= 30
    assert found.stamp == ""


def test_a_checkpoint_that_is_removed_meanwhile_is_no_crash(write: Write) -> None:
    folder = write("checkpoint-1")
    shutil.rmtree(folder)
    assert problem(folder)


def test_looking_needs_no_torch(write: Write) -> None:
    write("checkpoint-1")
    folder = write("checkpoint-2").parent
    asked = f"from harness.watch.watch import look; print(len(look({str(folder)!r}, settle=0).new))"
    done = subprocess.run(
        [sys.executable, "-c", f"{BLOCKER}\n{asked}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2"
