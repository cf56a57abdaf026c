"""What runs on a GPU, seen on tensors without values, where waiting for a value is an error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import plain_attention
import tiny
import tiny_networks
from harness.encoder.network import model as network_model
from launches import BACKWARD, FORWARD, measure

MIXES = ((30,) * 8, (250, 180, 180, 64, 33, 20, 12, 5, 1), (200, 1, 1, 1), tuple(range(250, 0, -1)))
LAYERS = 12
MOST = 145
"""Launches of a batch without gradients, from ids with a known packing to padded vectors."""


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends are chosen as on a GPU where kernels pass their test and flash-attn is missing."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    plain_attention.trust_kernels(monkeypatch, flash="flash-attn is not installed")
    # Gradients of tensors without values need the device "meta".
    choose = network_model.choose_backend
    monkeypatch.setattr(
        network_model, "choose_backend", lambda _device, *rest: choose(torch.device("cuda"), *rest)
    )
    monkeypatch.setattr(network_model, "_detect_attention_dtype", lambda hidden: hidden.dtype)


def shape_of(name: str, **changes: Any) -> Any:
    shape = tiny_networks.shrunk(tiny.families()[name], head_dim=64)
    windows = tuple(tiny_networks.WINDOW if n % 3 else None for n in range(LAYERS)) if shape.windows else ()
    return replace(shape, num_hidden_layers=LAYERS, windows=windows, **changes)


DROPOUTS = {"attention_dropout": 0.1, "attention_out_dropout": 0.1, "mlp_out_dropout": 0.1}
OPERATORS = {
    "bert": ("_flash_attention", "varlen"),
    "modernbert": ("_flash_attention", "varlen"),
    "neobert": ("_flash_attention", "varlen"),
    "mosaicbert": ("_softmax", "sdpa"),
}


@pytest.mark.parametrize("lengths", MIXES)
@pytest.mark.parametrize("name", OPERATORS)
def test_training_calls_attention_once_a_layer(name: str, lengths: tuple[int, ...]) -> None:
    shape = shape_of(name, **DROPOUTS)
    _, backend = OPERATORS[name]
    found, model = measure(shape, lengths, train=True)
    assert (sum(found.select(FORWARD).values()), model.attention_as_run) == (LAYERS, backend)
    found, _ = measure(shape, lengths, device="meta", train=True)
    assert sum(found.select(FORWARD).values()) == LAYERS
    assert sum(found.select(BACKWARD).values()) == LAYERS


@pytest.mark.parametrize(
    ("name", "dtype", "partly", "backend"),
    [
        ("bert", torch.bfloat16, True, "varlen"),
        ("bert", torch.float32, False, "efficient"),
        ("bert", torch.float32, True, "efficient"),
        ("modernbert", torch.bfloat16, True, "sdpa+varlen"),
        ("modernbert", torch.float32, False, "efficient+sdpa"),
        ("mosaicbert", torch.bfloat16, False, "varlen"),
        ("mosaicbert", torch.bfloat16, True, "sdpa"),
        ("mosaicbert", torch.float32, False, "sdpa"),
        ("eurobert", torch.float32, False, "efficient"),
    ],
)
@pytest.mark.parametrize("lengths", MIXES)
def test_encoding_calls_attention_once_a_layer(
    name: str, dtype: torch.dtype, partly: bool, backend: str, lengths: tuple[int, ...]
) -> None:
    found, model = measure(shape_of(name), lengths, dtype=dtype, partly=partly)
    assert (sum(found.select(FORWARD).values()), model.attention_as_run) == (LAYERS, backend)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("lengths", MIXES)
def test_a_batch_has_few_launches(lengths: tuple[int, ...], dtype: torch.dtype) -> None:
    found, _ = measure(shape_of("bert"), lengths, dtype=dtype)
    assert found.names.total() <= MOST, found.names
