"""The question of a port on tiny models: what is the same stays green, and red names the first stage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import harness
import tiny

PAIRS = [
    {"text1": f"the cat sat {one}", "text2": f"the mat {'sat ' * (n % 4)}{one}", "score": n % 6}
    for n, one in enumerate(["on mat", "query", "abc", "on the cat", "mat", "xyz 1", "sat sat", "the"] * 8)
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("port")
    tiny.folder(tiny.families()["bert"], root / "model", seed=1)
    (root / "own").mkdir()
    (root / "own" / "pairs.jsonl").write_text("\n".join(map(json.dumps, PAIRS)))
    (root / "own" / "harness.toml").write_text('[[task]]\nname = "alike"\ntype = "sts"\n')
    return root


def change_weights(folder: Path, change: Any) -> None:
    path = folder / "model.safetensors"
    tensors = {name: change(tensor) for name, tensor in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def add_noise(tensor: Any) -> Any:
    noise = np.random.default_rng(tensor.size).normal(0, 0.03, tensor.shape)
    return (tensor + noise).astype(tensor.dtype)


def save_again(folder: Path) -> None:
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def swap_special_tokens(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "sep_token": "[MASK]"}))


CHANGES: dict[str, Any] = {
    "fp16": lambda folder: change_weights(folder, lambda one: one.astype(np.float16)),
    "tokenizer": save_again,
    "noise": lambda folder: change_weights(folder, add_noise),
    "special": swap_special_tokens,
}


def run_port(world: Path, tmp_path: Path, change: str, **options: Any) -> Any:
    copy = tmp_path / change
    shutil.copytree(world / "model", copy)
    CHANGES.get(change, lambda _: None)(copy)
    return harness.check(
        str(copy), str(world / "model"), f"local:{world / 'own'}", results=tmp_path / "results",
        cache=tmp_path / "cache", offline=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "options"),
    [("fp16", {}), ("tokenizer", {}), ("copy", {"dtype": "bfloat16"}), ("copy", {"batch_tokens": 64})],
)
def test_the_same_weights_are_a_port_and_pass(
    change: str, options: dict[str, Any], world: Path, tmp_path: Path
) -> None:
    found = run_port(world, tmp_path, change, **options)
    assert (found.question.name, found.question.source) == ("port", "guessed")
    assert found.overall in ("passed", "same")
    assert found.because[0].startswith(("Tokens and vectors are the same", "Both sides are one"))


@pytest.mark.parametrize(
    ("change", "stage"), [("noise", "vectors differ first"), ("special", "Tokens differ")]
)
def test_red_names_the_first_stage_that_differs(change: str, stage: str, world: Path, tmp_path: Path) -> None:
    found = run_port(world, tmp_path, change, question="port")
    assert (found.overall, found.exit_code, found.question.source) == ("regressed", 1, "typed")
    assert stage in found.because[0]


def test_noise_is_another_model_unless_a_port_is_typed(world: Path, tmp_path: Path) -> None:
    found = run_port(world, tmp_path, "noise")
    assert (found.question.name, found.question.source) == ("replace", "guessed")


def test_a_baseline_whose_model_changed_is_judged_by_scores(world: Path, tmp_path: Path) -> None:
    model = tmp_path / "set"
    shutil.copytree(world / "model", model)
    asked = {"results": tmp_path / "results", "cache": tmp_path / "cache", "offline": True}
    from harness.cli import invoke

    options = ["--results", str(asked["results"]), "--cache", str(asked["cache"]), "--offline"]
    suite = f"local:{world / 'own'}"
    assert invoke(["baseline", "set", "last", "--model", str(model), "--suite", suite, *options]) == 0
    shutil.rmtree(model)
    found = harness.check(str(world / "model"), "last", question="port", **asked)  # type: ignore[arg-type]
    assert found.because[0].startswith("Vectors were not compared")
    assert found.overall in ("passed", "same")
