"""The average of checkpoints: its weights by hand, its lineage, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from fakes import lineage, train
from harness.cli import invoke
from harness.core.encoding import Settings
from harness.core.lineage import read_document
from harness.data.training.loading import add_text_hashes, count_trained, read_text_hashes
from harness.plan.models import ModelOptions, resolve_model

Average = Callable[..., tuple[int, str]]


@pytest.fixture
def checkpoints(tmp_path: Path) -> list[Path]:
    family = tiny.families()["bert"]
    return [tiny.folder(family, tmp_path / f"step-{seed}", seed=seed) for seed in range(3)]


@pytest.fixture
def average(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Average:
    """The exit code and the output of `harness models average ... --output out`."""

    def run(*models: Path) -> tuple[int, str]:
        places = ("--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"), "--offline")
        code = invoke(["models", "average", *map(str, models), "--output", str(tmp_path / "out"), *places])
        out, err = capsys.readouterr()
        return code, out + err

    return run


def test_each_weight_is_the_mean(checkpoints: list[Path], average: Average, tmp_path: Path) -> None:
    code, text = average(*checkpoints)
    assert code == 0, text
    assert "the mean of 3 models" in text
    parts = [load_file(folder / "model.safetensors") for folder in checkpoints]
    mean = load_file(tmp_path / "out" / "model.safetensors")
    assert mean.keys() == parts[0].keys()
    for name, tensor in mean.items():
        by_hand = torch.stack([part[name] for part in parts]).double().mean(dim=0).float()
        assert torch.equal(tensor, by_hand), name
    document = read_document(tmp_path / "out")
    assert document is not None
    assert {one.name for one in document.lineage.parents} == {"step-0", "step-1", "step-2"}


def test_the_order_does_not_count(checkpoints: list[Path], average: Average, tmp_path: Path) -> None:
    keys, weights = [], []
    for models in (checkpoints, checkpoints[::-1]):
        assert average(*models)[0] == 0
        keys.append(resolve_model(str(tmp_path / "out"), Settings(), ModelOptions()).artifact.key)
        weights.append((tmp_path / "out" / "model.safetensors").read_bytes())
        shutil.rmtree(tmp_path / "out")
    assert keys[0] == keys[1]
    assert weights[0] == weights[1]


def test_a_sharded_checkpoint_keeps_its_parts(
    checkpoints: list[Path], average: Average, tmp_path: Path
) -> None:
    whole = load_file(checkpoints[0] / "model.safetensors")
    names = sorted(whole)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: whole[name] for name in some}, checkpoints[0] / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, some in parts.items() for name in some}}
    (checkpoints[0] / "model.safetensors.index.json").write_text(json.dumps(index))
    (checkpoints[0] / "model.safetensors").unlink()
    code, text = average(*checkpoints[:2])
    assert code == 0, text
    other = load_file(checkpoints[1] / "model.safetensors")
    for file, some in parts.items():
        mean = load_file(tmp_path / "out" / file)
        assert all(torch.allclose(mean[name], (whole[name] + other[name]) / 2, atol=1e-7) for name in some)
    assert resolve_model(str(tmp_path / "out"), Settings(), ModelOptions()).artifact.trained


def test_the_texts_of_all_parents_are_known(
    checkpoints: list[Path], average: Average, tmp_path: Path
) -> None:
    """Otherwise records of the average would not say how many of their texts it was trained on."""
    texts = {"step-0": ["a", "b"], "step-1": ["b", "c"]}
    for name, known in texts.items():
        train(tmp_path / name, lineage(seed=len(name) + ord(name[-1])))
        add_text_hashes([known], tmp_path / name, parents=[])
    assert average(*checkpoints)[0] == 0
    hashes = read_text_hashes(tmp_path / "out")
    assert hashes is not None
    assert (len(hashes), count_trained(["a", "b", "c", "d"], hashes)) == (3, 3)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "step-1" / "training" / "texts.npy").unlink()
    assert average(*checkpoints)[0] == 0
    assert read_text_hashes(tmp_path / "out") is None


def test_what_has_no_average_is_refused(checkpoints: list[Path], average: Average, tmp_path: Path) -> None:
    code, text = average(checkpoints[0], checkpoints[0])
    assert (code, "two or more different models" in text) == (2, True)
    code, text = average(checkpoints[0], Path("bm25"))
    assert (code, "bm25 has no weights" in text) == (2, True)
    config = json.loads((checkpoints[1] / "config.json").read_text())
    (checkpoints[1] / "config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-5}))
    code, text = average(*checkpoints)
    assert (code, "differ in config.json." in text, "step-1" in text) == (2, True, True)
    wider = tiny.folder(tiny.families()["bert"], tmp_path / "wider", seed=4, intermediate_size=96)
    shutil.copy(checkpoints[0] / "config.json", wider / "config.json")
    code, text = average(checkpoints[0], wider)
    assert code == 2, text
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*tmp"))
