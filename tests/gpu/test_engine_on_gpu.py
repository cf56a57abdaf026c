"""The engine and trainings on a device: memory that runs out, waits, compilation, kills, a group."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from measuring import load_encoder
from torch import distributed, nn

import tiny
import tiny_networks
from devices import SAME, largest_difference, on_gpu
from finetune.embedding.settings import EmbeddingSettings
from finetune.recipes.simcse import RECIPE
from harness.encoder.engine import Encoder
from small_trainings import located, spec_in, tiny_artifact, trained
from stopped_trainings import kill_at, sentence

TEXTS = [sentence(number) for number in range(300)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with dropout."""
    target = tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")
    config = json.loads((target / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.fixture
def encoder(folder: Path, device: torch.device) -> Encoder:
    return load_encoder(folder, device=device.type)


def test_a_batch_that_does_not_fit_is_halved(encoder: Encoder, device: torch.device) -> None:
    """The allocator itself refuses: of so many tokens there would be petabytes."""
    expected = encoder.encode(TEXTS)

    def ask_for_memory(_module: nn.Module, args: tuple[dict[str, Any]]) -> None:
        if args[0]["input_ids"].numel() > 100:
            torch.empty(2**50, dtype=torch.uint8, device=device)

    encoder.model[0].register_forward_pre_hook(ask_for_memory)
    found = encoder.encode(TEXTS)
    assert np.abs(found - expected).max() <= SAME * np.abs(expected).max()
    assert any("memory ran out: batches of" in note for note in encoder.notes)


@on_gpu
def test_a_forward_pass_does_not_wait_for_the_device(encoder: Encoder) -> None:
    expected, passes = encoder.encode(TEXTS), []

    def begin(*_: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")

    def end(*_: Any) -> None:
        torch.cuda.set_sync_debug_mode("default")
        passes.append(1)

    encoder.model[0].register_forward_pre_hook(begin)
    encoder.model[-1].register_forward_hook(end, always_call=True)
    assert np.array_equal(encoder.encode(TEXTS), expected)
    assert passes


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_compiled_network_gives_the_same_vectors(name: str, device: torch.device) -> None:
    shape = tiny_networks.shrunk(tiny.families()[name], head_dim=32)
    model = tiny_networks.network(shape).to(device)
    # A CPU's code would be made by a C++ compiler, for half a minute.
    backend = "inductor" if device.type == "cuda" else "aot_eager"
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for lengths in ((30, 2, 17, 1), (70, 11, 33), (12, 5, 17, 20)):
        given = tiny_networks.batch(tiny_networks.texts(lengths, shape.pad_token_id), shape.pad_token_id)
        moved = {field: values.to(device) for field, values in given.items()}
        with torch.no_grad():
            found, expected = compiled(**moved).last_hidden_state, model(**moved).last_hidden_state
        assert largest_difference(found, expected) <= SAME


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_a_killed_training_goes_on_bit_for_bit(folder: Path, tmp_path: Path, device: torch.device) -> None:
    columns = {name: [sentence(1000 * at + n) for n in range(64)] for at, name in enumerate(("a", "b", "c"))}
    rows = located(tmp_path, columns)
    settings = EmbeddingSettings(
        batch_size=8, epochs=2, max_length=16, learning_rate=1e-3, precision="float32"
    )
    recipe = RECIPE.open("mean", settings)
    fields = {"backbone": tiny_artifact(folder), "data": (rows,), "devices": (device.type,)}
    undisturbed = trained(spec_in(tmp_path, recipe, "whole", **fields))
    cut = spec_in(tmp_path, recipe, "cut", **fields)
    kill_at(cut, 7)
    assert list(cut.checkpoints.iterdir())
    found = trained(cut)
    assert all(torch.equal(found[name], weights) for name, weights in undisturbed.items())


@pytest.fixture
def group(device: torch.device, tmp_path: Path) -> Iterator[None]:
    """A group of this process alone."""
    backend = {"cuda": "nccl", "cpu": "gloo"}[device.type]
    distributed.init_process_group(backend, init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_a_group_of_one_process_trains_as_the_process_alone(device: torch.device) -> None:
    shape = tiny_networks.shrunk(tiny.families()["bert"], head_dim=32)
    alone = tiny_networks.network(shape).to(device).train()
    other = copy.deepcopy(alone)
    grouped = nn.parallel.DistributedDataParallel(other, find_unused_parameters=True)
    given = tiny_networks.batch(tiny_networks.texts((30, 9, 2), shape.pad_token_id), shape.pad_token_id)
    moved = {field: values.to(device) for field, values in given.items()}
    for model in (alone, grouped):
        model(**moved).last_hidden_state.square().mean().backward()
    for one, two in zip(alone.parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (two.grad is None)
        if one.grad is not None and two.grad is not None:
            assert largest_difference(two.grad, one.grad) <= SAME
    total = torch.full((1,), math.pi, device=device)
    distributed.all_reduce(total)
    assert float(total) == pytest.approx(math.pi)
