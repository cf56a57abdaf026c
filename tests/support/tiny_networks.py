"""Networks of a few thousand parameters, with weights large enough that attention is not even."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import tiny
from harness.encoder.architecture import Architecture, Family
from harness.encoder.network.model import EncoderModel
from harness.encoder.network.pretrained import EncoderConfig

LAYERS, WINDOW, VOCABULARY = 3, 6, 100


def shrunk(family: Family, *, head_dim: int = 8) -> Architecture:
    """The architecture of a family's first size with everything that costs time made small."""
    shape = tiny.read_config(next(iter(family.sizes.values())), family)[1]
    groups = shape.num_attention_heads // shape.num_key_value_heads
    small = {
        "vocab_size": VOCABULARY,
        "pad_token_id": min(shape.pad_token_id, VOCABULARY - 1),
        "hidden_size": 4 * head_dim,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": max(1, 4 // groups),
        "head_dim": head_dim,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "windows": tuple(w and WINDOW for w in shape.windows[:LAYERS]),
        "initializer_range": 0.2,
    }
    return replace(shape, **small, **{name: 0.0 for name in vars(shape) if name.endswith("_dropout")})


def small(**changes: Any) -> Architecture:
    """An architecture of no family's own, with rotary positions."""
    settings: dict[str, Any] = {
        **{"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 48},
        **{"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8},
        **{"max_position_embeddings": 256, "positions": "rotary", "initializer_range": 0.2},
    }
    return Architecture(**{**settings, **changes})


def network(shape: Architecture, *, seed: int = 0) -> EncoderModel:
    """A network of that shape with random weights, in evaluation mode."""
    torch.manual_seed(seed)
    model = EncoderModel(EncoderConfig.from_architecture(shape)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def texts(lengths: Sequence[int], pad: int, *, seed: int = 0) -> list[Tensor]:
    """Random token ids of texts of these lengths, none of them the one that pads."""
    draw = torch.Generator().manual_seed(seed)
    found = [torch.randint(0, VOCABULARY - 1, (length,), generator=draw) for length in lengths]
    return [ids + (ids >= pad) for ids in found]


def batch(
    given: Sequence[Tensor], pad: int, *, columns: int | None = None, left: bool = False
) -> dict[str, Any]:
    """A padded batch of texts; as wide as the longest unless `columns` says otherwise."""
    wide = columns or max((len(ids) for ids in given), default=0)
    ids = torch.full((len(given), wide), pad)
    mask = torch.zeros(len(given), wide, dtype=torch.long)
    for row, text in enumerate(given):
        place = slice(wide - len(text), wide) if left else slice(len(text))
        ids[row, place], mask[row, place] = text, 1
    return {"input_ids": ids, "attention_mask": mask}


def means(model: Callable[..., Any], given: dict[str, Any]) -> Tensor:
    """The mean of each text's attended vectors, in float64: (texts, width)."""
    vectors = model(**given).last_hidden_state.double()
    mask = given["attention_mask"].to(vectors)[..., None]
    return (vectors * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
