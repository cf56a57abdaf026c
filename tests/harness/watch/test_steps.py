from __future__ import annotations

import pytest

from harness.watch.source import _step_of, _unfinished

STEPS = {
    "checkpoint-1000": 1000,  # transformers' Trainer
    "step_1000": 1000,
    "step1000": 1000,  # Pythia
    "step1000-tokens4B": 1000,  # OLMo
    "stage1-step1000-tokens4B": 1000,  # OLMo 2
    "step0": 0,
    "global_step500": 500,  # DeepSpeed
    "iter_0001000": 1000,  # Megatron
    "ep0-ba1000-rank0": 1000,  # Composer
    "ckpt-1000": 1000,
    "checkpoint_epoch3_step200": 200,
    "checkpoint-1000-merged": 1000,
    "step=100-loss=2.31": 100,  # Lightning
    "step-1.5k": 1500,
    "step143k": 143_000,
    "ckpt1M": 1_000_000,
    "0001000": 1000,
    "1000-hf": 1000,
    "1000steps": 1000,
    "model_1000": 1000,
    "epoch3": 3,
    "step1000_step2000": 2000,
    "final": None,
    "latest": None,
    "main": None,
    "checkpoint-best": None,
    "e5-base-v2": None,
    "tokens4B": None,
    "1.5": None,
    "bert-2024-run": None,
    "footstep": None,
    "": None,
}


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_the_step_of_a_name(name: str, step: int | None) -> None:
    assert _step_of(name) == step


@pytest.mark.parametrize("name", ["tmp-checkpoint-1000", ".step5", "step5.tmp", "_step5", "step5.incomplete"])
def test_names_of_what_is_being_written(name: str) -> None:
    assert _unfinished(name)


def test_other_names_are_finished() -> None:
    assert not any(map(_unfinished, STEPS))
