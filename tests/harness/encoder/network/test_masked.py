from __future__ import annotations

import inspect
from typing import Any

import torch

import tiny


def test_the_head_takes_its_arguments_in_the_order_transformers_has() -> None:
    """A mask given by place is a mask, and a trainer sees every column by its name."""
    model: Any = tiny.network(tiny.families()["bert"], head=True)
    names = list(inspect.signature(model.forward).parameters)
    assert names[:5] == ["input_ids", "attention_mask", "token_type_ids", "inputs_embeds", "labels"]
    ids, mask = torch.randint(5, 100, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[1, 4:] = 0
    by_place = model(ids, mask)
    assert by_place.loss is None
    alone = model(ids[1:, :4]).logits
    assert (by_place.logits[1:, :4] - alone).abs().max() < 1e-5
    assert torch.equal(by_place.logits, model(input_ids=ids, attention_mask=mask).logits)
