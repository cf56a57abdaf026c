"""Masks for torch's scaled_dot_product_attention that leave no row without a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the masks of one kind of layer depend on, beside the lengths of the texts.

    Attributes:
        window: How far a token sees to either side; None for everything.
        slopes: ALiBi's loss per token of distance, for each head; None without ALiBi.
        attended: (tokens,) bool, what is attended to; None for everything.
        device: Where the tokens are.
        dtype: That of the queries.
    """

    window: int | None
    slopes: tuple[float, ...] | None
    attended: Tensor | None
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class Mask:
    """What is added to the scores of one call.

    A softmax over nothing is NaN in some kernels, so a query that may see no key sees all of them,
    and what it finds is set to zero where the query is a token.

    Attributes:
        bias: Shape that broadcasts to (batch, heads, queries, keys); None for nothing.
        blind: (batch, 1, queries, 1) bool, the tokens that see no key; None if there is none.
    """

    bias: Tensor | None = None
    blind: Tensor | None = None


def mask(allowed: Tensor, dtype: torch.dtype, *, bias: Tensor | None = None, blind: bool = False) -> Mask:
    """The mask that allows these pairs.

    Args:
        allowed: Bool, of a shape that broadcasts to (batch, heads, queries, keys).
        dtype: That of the queries.
        bias: What is added to the scores of allowed pairs.
        blind: Whether a query that is a token may see no key.
    """
    import torch

    sees = allowed.any(dim=-1, keepdim=True)
    base = torch.zeros((), dtype=dtype, device=allowed.device) if bias is None else bias
    added = torch.where(allowed | ~sees, base, float("-inf"))
    return Mask(bias=added.to(dtype), blind=~sees if blind else None)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Mask, *, dropout: float) -> Tensor:
    """scaled_dot_product_attention under a mask, all tensors (batch, heads, tokens, head_dim)."""
    import torch.nn.functional as f

    grouped = key.shape[1] != query.shape[1]
    out = f.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.bias, dropout_p=dropout, enable_gqa=grouped
    )
    return out if mask.blind is None else out.masked_fill(mask.blind, 0.0)
