"""Attention as it is written in papers: text by text, head by head, in float64; and kernels left untested."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.encoder.attention.interface import Needs
from harness.encoder.attention.kernels import BACKENDS


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    attended: Tensor | None,
    needs: Needs,
) -> Tensor:
    """Arguments as in `Layout.compute_attention`; a token that sees nothing gets zeros."""
    texts = zip(*(packed.double().split([*lengths]) for packed in (query, key, value)), strict=True)
    seen = [None] * len(lengths) if attended is None else attended.split([*lengths])
    return torch.cat([_text(q, k, v, a, needs) for (q, k, v), a in zip(texts, seen, strict=True)])


def _text(query: Tensor, key: Tensor, value: Tensor, attended: Tensor | None, needs: Needs) -> Tensor:
    each = query.shape[1] // key.shape[1]
    heads = [
        _head(query[:, h], key[:, h // each], value[:, h // each], attended, needs, h)
        for h in range(query.shape[1])
    ]
    return torch.stack(heads, dim=1)


def _head(
    query: Tensor, key: Tensor, value: Tensor, attended: Tensor | None, needs: Needs, head: int
) -> Tensor:
    scores = query @ key.T / math.sqrt(query.shape[1])
    place = torch.arange(len(query), device=query.device)
    distance = (place[:, None] - place).abs()
    if needs.slopes is not None:
        scores = scores - needs.slopes[head] * distance
    allowed = torch.ones_like(scores, dtype=torch.bool) if attended is None else attended.expand_as(scores)
    if needs.window is not None:
        allowed = allowed & (distance <= needs.window)
    weights = scores.exp() * allowed
    total = weights.sum(dim=1, keepdim=True)
    return weights @ value / torch.where(total == 0, 1.0, total)


def weights_squared(heads: int, lengths: Sequence[int], attended: Tensor | None, needs: Needs) -> Tensor:
    """(tokens, heads), the sum of the squared weights of each query where all scores are 0, but for ALiBi."""
    zeros = torch.zeros(sum(lengths), heads, max(lengths), dtype=torch.float64)
    places = torch.cat([torch.arange(length) for length in lengths])
    # Values of ones at their own places give the weights themselves.
    value = nn.functional.one_hot(places, max(lengths)).double()[:, None].expand(-1, heads, -1)
    return attend(zeros, zeros, value, lengths, attended, needs).square().sum(dim=-1)


def tokens(
    lengths: Sequence[int], *, heads: int = 4, groups: int = 4, width: int = 8, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, and keys and values of so many heads, in float64 on the CPU."""
    draw = torch.Generator().manual_seed(seed)
    count = sum(lengths)
    shapes = ((count, heads, width), (count, groups, width), (count, groups, width))
    query, key, value = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes)
    return query, key, value


def partly(lengths: Sequence[int], share: float = 0.5, seed: int = 0) -> Tensor:
    """Random (tokens,) bool of which that share is True, and one token of every text at least."""
    draw = torch.Generator().manual_seed(seed)
    found = torch.rand(sum(lengths), generator=draw) < share
    found[torch.tensor(lengths).cumsum(0) - 1] = True
    return found


def trust_kernels(monkeypatch: pytest.MonkeyPatch, **reasons: str) -> None:
    """Take kernels within their limits without a test, but for those that have a reason against them."""

    def build_backend(kernel: Any) -> Any:
        return SimpleNamespace(
            name=kernel.name,
            explain_refusal=lambda *layer: reasons.get(kernel.name) or kernel.explain_limits(*layer),
            build_layout=kernel.build_layout,
        )

    for name in BACKENDS.keys() - {"sdpa"}:
        monkeypatch.setitem(BACKENDS, name, build_backend(BACKENDS[name]))
