"""Which stretch of the packed tokens each token may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def reach(lengths: Sequence[int], window: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """The first and the last token that each token sees: its own text, cut to a window.

    Args:
        lengths: Tokens of each text.
        window: How far a token sees to either side; None for everything.
        device: Where the result is to be.

    Returns:
        Two of shape (tokens,), int32.

    >>> import torch
    >>> [ends.tolist() for ends in reach([3, 2], 1, torch.device("cpu"))]
    [[0, 0, 1, 3, 3], [1, 2, 2, 4, 4]]
    """
    import torch

    tokens = sum(lengths)
    counts = torch.tensor(lengths, device=device)
    stops = counts.cumsum(0)
    first = torch.repeat_interleave(stops - counts, counts, output_size=tokens).int()
    last = torch.repeat_interleave(stops - 1, counts, output_size=tokens).int()
    if window is None:
        return first, last
    own = torch.arange(tokens, device=device, dtype=torch.int32)
    return torch.maximum(first, own - window), torch.minimum(last, own + window)
