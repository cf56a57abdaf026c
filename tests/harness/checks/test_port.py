"""The question of a port on tiny models: what is the same stays green, and red names the first stage."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from simulate_port import Form, encode

import harness
import tiny
from check_data import small_check
from harness.checks import check
from harness.checks.outcome import PartLoss
from harness.checks.policy import DEFAULT, Policy
from harness.checks.questions import (
    ModelOutputs,
    PortComparison,
    compare_encoded,
    find_coarser_dtype,
    judge_port,
)

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


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The suites whose margins are said to be seen or not; none of a port, which has no margin."""
    suites: list[str] = []
    monkeypatch.setattr(check, "explain_unseen_margins", lambda means: suites.__iadd__(means))
    return suites


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
    found = run_port(world, tmp_path, change, question="port", **options)
    assert (found.question.name, found.question.source) == ("port", "typed")
    assert found.overall in ("passed", "same")
    assert found.because[0].startswith("The same model: ")


@pytest.mark.parametrize(
    ("change", "stage"),
    [("noise", "tokens are equal, vectors are not: "), ("special", "tokens differ. Token")],
)
def test_red_names_the_first_stage_that_differs(
    change: str, stage: str, world: Path, tmp_path: Path, planned: list[str]
) -> None:
    # Without it the second is refused: its tokenizer contradicts its own files.
    allow = ["special-tokens"] if change == "special" else []
    found = run_port(world, tmp_path, change, question="port", allow=allow)
    assert (found.overall, found.exit_code, found.question.source) == ("regressed", 1, "typed")
    assert found.because[0].startswith(f"Not the same model: {stage}")
    assert planned == []


def test_another_question_is_suggested_and_never_taken(
    world: Path, tmp_path: Path, planned: list[str]
) -> None:
    for change, suggested in (("copy", True), ("noise", False)):
        found = run_port(world, tmp_path, change)
        assert (found.question.name, found.question.source) == ("replace", "default")
        assert any("--question port" in warning for warning in found.warnings) is suggested
    assert planned


def test_a_check_from_python_ends_with_its_budget(world: Path, tmp_path: Path) -> None:
    found = run_port(world, tmp_path, "copy", budget=0.0)
    assert (found.overall, found.tasks[0].verdict) == ("inconclusive", "missing")


def test_a_named_baseline_is_compared_by_its_own_options(world: Path, tmp_path: Path) -> None:
    """By the candidate's options it would be the candidate, and pass whatever they are."""
    from harness.cli import invoke

    folders = ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"), "--offline"]
    typed = ["--model", str(world / "model"), "--suite", f"local:{world / 'own'}", *folders]
    assert invoke(["baseline", "set", "base", *typed]) == 0
    found = harness.check(
        str(world / "model"), "base", question="port", pooling="cls", allow=["pooling"],
        results=tmp_path / "results", cache=tmp_path / "cache", offline=True,
    )  # fmt: skip
    assert (found.overall, found.exit_code) == ("regressed", 1)
    assert "vectors are not" in found.because[0]


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
    assert f"the baseline's model {model} cannot be loaded: " in found.because[0]
    assert found.overall in ("passed", "same")
    shutil.copytree(world / "model", model)
    change_weights(model, add_noise)
    found = harness.check(str(world / "model"), "last", question="port", **asked)  # type: ignore[arg-type]
    assert f"the baseline's model {model} has changed since" in found.because[0]


@pytest.mark.parametrize(
    ("delta", "verdict"),
    [(0.0034, "passed"), (-0.0034, "passed"), (0.0036, "regressed"), (-0.0036, "regressed")],
)
def test_a_score_is_red_beyond_the_limit_and_chance(delta: float, verdict: str) -> None:
    """A port moves scores up as often as down: what a test of one loss calls sure is chance among many."""
    task = replace(small_check().tasks[0], delta=delta, error=0.001, low=delta - 0.002, high=delta + 0.002)
    outputs = PortComparison(text="The same.")
    (judged,), _, end = judge_port((task,), (), outputs, DEFAULT)
    assert (judged.verdict, end.verdict == "regressed") == (verdict, verdict == "regressed")
    if verdict == "regressed":
        assert judged.margin == pytest.approx(0.0005 + 3 * 0.001)
        assert end.because[1].endswith(" points, 0.35 allowed.")


def test_a_collapsed_language_is_red_whatever_else_is_in_doubt() -> None:
    lost = PartLoss(part="de", delta=-0.2, low=-0.3, high=-0.1, collapsed=True)
    task = replace(small_check().tasks[1], delta=0.002, error=0.001, low=0.0, high=0.004, lost=(lost,))
    outputs = PortComparison(text="vectors were not compared.", compared=False)
    (judged,), _, end = judge_port((task,), (), outputs, Policy(parts="fail"))
    assert (judged.verdict, end.verdict, end.exit_code) == ("inconclusive", "regressed", 1)
    assert end.because[0].startswith("de of ")
    (judged,), _, end = judge_port((replace(task, lost=()),), (), outputs, Policy())
    assert (end.verdict, end.because[0]) == ("inconclusive", "Vectors were not compared.")


def test_zeros_of_both_models_are_the_same() -> None:
    """Static vectors of texts without a known token."""
    vectors = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    vectors[:5] = 0
    outputs = ModelOutputs(tokens=[[1]] * 100, vectors=vectors)
    assert compare_encoded(["a"] * 100, outputs, outputs, "float32").stage == ""


@pytest.mark.parametrize(("broken", "stage"), [(0, ""), (1, ""), (4, "vectors")])
def test_a_port_that_is_broken_on_few_texts_is_red(broken: int, stage: str) -> None:
    """Two of a hundred texts may lie anywhere; the median would not see fifty."""
    vectors = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    other = np.where(np.arange(100)[:, None] < broken, -vectors, vectors)
    first, second = (ModelOutputs(tokens=[[1]] * 100, vectors=one) for one in (vectors, other))
    assert compare_encoded(["a"] * 100, first, second, "float32").stage == stage


def test_the_coarser_precision_of_two_models_is_that_of_the_limit(world: Path) -> None:
    forms = Form(), Form(dtype="bfloat16")
    models = [encode(world / "model", form, ["the cat"])[0] for form in forms]
    assert find_coarser_dtype(models) == "bfloat16"
