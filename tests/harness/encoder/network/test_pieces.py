"""The feed-forward part a piece at a time: the same vectors, and never while training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from harness.encoder.network import layers
from tiny_networks import batch, network, shrunk, texts


@pytest.mark.parametrize("name", sorted(tiny.families()))
def test_pieces_give_the_same_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shrunk(tiny.families()[name])
    pad = shape.pad_token_id or 0
    model, given = network(shape), batch(texts((60, 50, 33, 7), pad), pad)
    seen: list[int] = []
    plain = layers.Block._fed

    def counted(self: layers.Block, x: Tensor) -> Tensor:
        seen.append(len(x))
        return plain(self, x)

    monkeypatch.setattr(layers.Block, "_fed", counted)
    with torch.no_grad():
        whole = model(**given).last_hidden_state
        assert set(seen) == {150}
        monkeypatch.setattr(layers, "PIECE", 64)
        seen.clear()
        found = model(**given).last_hidden_state
    assert seen == [64, 64, 22] * shape.num_hidden_layers
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-5)


def test_dropout_is_drawn_alike_with_and_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient cache runs a batch twice with one seed."""
    monkeypatch.setattr(layers, "PIECE", 16)
    family = tiny.families()["gte"]
    changes = {"hidden_dropout_prob": 0.0}
    model = tiny.network(family, **changes).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    given = batch(texts((30, 20), 0), 0)
    torch.manual_seed(1)
    with torch.no_grad():
        first = model(**given).last_hidden_state
    torch.manual_seed(1)
    torch.testing.assert_close(model(**given).last_hidden_state, first)
