"""What every attention backend is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one layer asks of attention.

    Attributes:
        window: How far a token sees to either side; None for everything.
        slopes: ALiBi's loss per token of distance, for each head; None without ALiBi.
        dropout: Share of attention weights dropped.
        partly: Whether some computed tokens are not attended to.
        head_dim: Width of a head.
    """

    window: int | None = None
    slopes: tuple[float, ...] | None = None
    dropout: float = 0.0
    partly: bool = False
    head_dim: int = 64


class Backend(Protocol):
    """Attention of texts packed one behind the other."""

    name: str

    def refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        """Why it cannot do this, None if it can."""
        ...

    def layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        """Whatever it works out once for all layers of a pass.

        Args:
            lengths: Tokens of each text, falling, none of them 0.
            attended: (tokens,) bool, the tokens that others attend to, at least one of each text;
                None for all.
            device: Where the tokens are.
        """
        ...


class Layout(Protocol):
    """The texts of one pass, as a backend has laid them out."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """Let every token attend to the tokens of its own text.

        A token that no attended token of its text is near enough to gets zeros.

        Args:
            query: (tokens, heads, head_dim).
            key: (tokens, key and value heads, head_dim).
            value: Like `key`.
            needs: What the layer asks for.

        Returns:
            (tokens, heads, head_dim).
        """
        ...


class Nothing:
    """The layout of no text at all."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.attend`."""
        return query
