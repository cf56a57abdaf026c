"""The interface of attention over packed sequences: a layer's needs, a backend, its layout of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The needs of a layer for its attention.

    Attributes:
        window: The number of tokens seen to either side; None for all.
        slopes: ALiBi's loss per token of distance, for each head; None without ALiBi.
        dropout: The share of attention weights dropped.
        partly: Whether some computed tokens are not attended to.
        head_dim: The width of a head.
        gradients: Whether gradients may be taken of the result, or of a repetition of the pass.
    """

    window: int | None = None
    slopes: tuple[float, ...] | None = None
    dropout: float = 0.0
    partly: bool = False
    head_dim: int = 64
    gradients: bool = False


class Backend(Protocol):
    """A backend for attention over texts that are packed one after the other."""

    @property
    def name(self) -> str:
        """The name in options and records."""
        ...

    def explain_refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """The reason why it cannot run a layer, None if it can.

        Args:
            device: The device of the layer.
            dtype: The dtype of its queries, keys and values.
            needs: What the layer needs of its attention.
        """
        ...

    def build_layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """The values that are computed once for all layers of a pass.

        Args:
            lengths: The number of tokens of each text, falling, none of them 0.
            attended: (tokens,) bool, the tokens that others attend to, at least one of each text; None for
                all.
            device: The device of the tokens.
        """
        ...


class Layout(Protocol):
    """The layout of the texts of one pass for a backend."""

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """The result of attention within each text, zeros for a token that sees no attended token.

        Args:
            query: (tokens, heads, head_dim).
            key: (tokens, key and value heads, head_dim).
            value: Like `key`.
            needs: The needs of the layer.

        Returns:
            (tokens, heads, head_dim).
        """
        ...


class Nothing:
    """The layout of an empty list of texts."""

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.compute_attention`."""
        return query
