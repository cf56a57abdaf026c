"""Rotary and ALiBi.

Rotary positions: frequencies, their scaling for long inputs, and the rotation itself.

Attention with linear biases: the further a token, the less it counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.encoder.family import Architecture
from harness.encoder.network.packing import Packing
from harness.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor


Table = tuple["Tensor", "Tensor"]
"""Cosines and sines, each (tokens, 1, head_dim / 2) in float32."""


def turned(shape: Architecture, packed: Packing) -> dict[float, Table]:
    """The rotations of each base of frequencies in a network, none where its positions are others."""
    if shape.positions != "rotary":
        return {}
    lengths = packed.text_lengths()
    return {
        theta: table(
            packed.positions, frequencies(shape.head_dim, theta, lengths, scaling=shape.rotary_scaling)
        )
        for theta in {shape.theta(n) for n in range(shape.num_hidden_layers)}
    }


def frequencies(
    head_dim: int, theta: float, lengths: Tensor, *, scaling: Mapping[str, Any] | None = None
) -> Tensor:
    """How far each pair of dimensions turns from one position to the next, in radians.

    `scaling` is None or names its `kind`:
        "dynamic": NTK-aware, the base grows with the text's own length beyond `trained` positions,
            by `factor` (as in NomicBERT's code, where it is the length of the padded batch).
        "ntk": lowered by `factor`, spread over the dimensions by `mixed` where it is given (as in
            GTE's code).
        "linear": divided by `factor`.

    Args:
        head_dim: Dimensions that are turned.
        theta: Base of the frequencies.
        lengths: (tokens,) of each token the length of its text.
        scaling: What is done for long inputs.

    Returns:
        Shape (tokens or 1, head_dim / 2), float32.

    Raises:
        ModelError: For another kind.
    """
    import torch

    steps = torch.arange(0, head_dim, 2, device=lengths.device, dtype=torch.float32)[None] / head_dim
    plain = torch.pow(theta, steps).reciprocal()
    if scaling is None:
        return plain
    kind, factor = scaling["kind"], float(scaling["factor"])
    if kind == "dynamic":
        beyond = lengths.float() / float(scaling["trained"])
        grown = (beyond * factor - (factor - 1)).clamp(min=1.0)
        base = grown[:, None].pow(head_dim / (head_dim - 2)) * theta
        return base.pow(steps).reciprocal()
    if kind == "linear":
        return plain / factor
    if kind == "ntk" and scaling.get("mixed") is None:
        return torch.pow(theta * factor, steps).reciprocal() / math.pow(factor, 2 / head_dim)
    if kind == "ntk":
        return plain / _spread(steps, factor, scaling["mixed"])
    raise ModelError(f"The rotary scaling {kind!r} is not known; there are dynamic, linear and ntk.")


def table(positions: Tensor, frequency: Tensor) -> Table:
    """The cosines and sines of tokens at these positions."""
    angles = (positions[:, None].float() * frequency)[:, None]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, turn: Table, *, interleaved: bool) -> Tensor:
    """Turn each head's vector by its position; computed in float32.

    Args:
        x: (tokens, heads, head_dim).
        turn: From `table`.
        interleaved: Whether pairs are neighbouring dimensions; otherwise pair i is dimension i of
            each half.
    """
    import torch

    cosine, sine = turn
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
    # The product of a half-precision and a float32 tensor is float32.
    turned = (
        (first * cosine).addcmul_(second, sine, value=-1),
        (second * cosine).addcmul_(first, sine),
    )
    both = torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
    return both.to(x.dtype)


def _spread(steps: Tensor, factor: float, mixed: float) -> Tensor:
    """By what each pair is divided: from little for the first to `factor` for the last."""
    import torch

    count = steps.shape[-1]
    ranks = torch.arange(1, count + 1, device=steps.device, dtype=torch.float32)
    return (ranks.pow(mixed) * (math.log(factor) / math.pow(count, mixed))).exp()


def slopes(heads: int) -> tuple[float, ...]:
    """How much each head loses with every token of distance.

    For a power of two the geometric sequence of the ALiBi paper (section 3), otherwise that of the
    next smaller one followed by every other slope of the next larger one, as in its code.

    >>> slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
    >>> [round(s, 4) for s in slopes(3)]
    [0.0625, 0.0039, 0.25]
    """
    below = 2 ** math.floor(math.log2(heads))
    rest = _geometric(2 * below)[::2][: heads - below]
    return _geometric(below) + rest


def _geometric(heads: int) -> tuple[float, ...]:
    return tuple(2 ** (-8 * (i + 1) / heads) for i in range(heads))
