"""Contrastive training of our network on a GPU: the losses of the padded network, and the speed."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import tiny_networks
from harness.encoder import backbones
from harness.encoder.network.model import EncoderModel
from tiny_networks import batch, texts

STEPS, ROWS = {"cuda": 30, "cpu": 10}, {"cuda": 128, "cpu": 8}


def network(name: str, device: torch.device) -> EncoderModel:
    family = backbones.list_backbones()[name].family
    assert family is not None
    return (
        tiny_networks.network(replace(tiny_networks.shrunk(family, head_dim=32), initializer_range=0.05))
        .to(device)
        .train()
    )


def vectors(model: EncoderModel, given: dict[str, Tensor], padded: bool) -> Tensor:
    """The mean over the tokens of each text; with `padded` every place of the batch is computed."""
    extra = {"compute_mask": torch.ones_like(given["input_ids"])} if padded else {}
    tokens = model(**given, **extra).last_hidden_state.float()
    mask = given["attention_mask"][:, :, None]
    return (tokens * mask).sum(dim=1) / mask.sum(dim=1)


def trained(name: str, device: torch.device, *, padded: bool) -> tuple[list[float], float]:
    """The losses of a training in bfloat16 autocast, and the tokens of a second, without padding."""
    model, rows, steps = network(name, device), ROWS[device.type], STEPS[device.type]
    pad = model.shape.pad_token_id
    lengths = [4 + (7 * n) % 61 for n in range(3 * rows)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, began = [], time.perf_counter()
    for step in range(steps):
        columns = texts(lengths, pad, seed=step % 3)
        parts = [batch(columns[at : at + rows], pad) for at in range(0, 3 * rows, rows)]
        with torch.autocast(device.type, torch.bfloat16):
            moved = [{name: tensor.to(device) for name, tensor in part.items()} for part in parts]
            found = [nn.functional.normalize(vectors(model, part, padded).float()) for part in moved]
        scores = 20 * found[0] @ torch.cat(found[1:]).T
        loss = nn.functional.cross_entropy(scores, torch.arange(rows, device=device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss.detach()))
    return losses, steps * sum(lengths) / (time.perf_counter() - began)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_losses_in_bfloat16_are_those_of_the_padded_network(name: str, device: torch.device) -> None:
    ours, speed = trained(name, device, padded=False)
    theirs, padded_speed = trained(name, device, padded=True)
    print(f"{name}: {speed:.0f} tokens/s, padded {padded_speed:.0f}")
    assert all(map(math.isfinite, ours))
    assert ours[-1] < ours[0]
    assert max(abs(one - other) for one, other in zip(ours, theirs, strict=True)) <= 1e-2
