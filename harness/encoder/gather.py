"""Vectors of batches, brought to their rows and looked over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

Batches = list[tuple[NDArray[np.int64], "Tensor"]]
"""The rows that a batch stands for, and its vectors on the model's device."""


def gathered(done: Batches, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring the batches to the CPU, each to its rows of `out`."""
    for rows, vectors in done:
        out[rows] = vectors.cpu().numpy()
    return out


def require_finite(vectors: NDArray[np.float32], texts: list[str], inverse: NDArray[np.int64]) -> None:
    """See that every vector is finite; `inverse` says which of `texts` each text given was.

    Raises:
        ModelError: With the first text whose vector is not.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if not bad.size:
        return
    shown = texts[bad[0]] if len(texts[bad[0]]) <= 60 else texts[bad[0]][:60] + "…"
    raise ModelError(
        f"{bad.size} of {len(texts)} vectors are not finite; the first is that of text "
        f"{int(np.argmax(inverse == bad[0]))}, {shown!r}.",
        hint="Half precision overflows in some models: ask for float32. If it was, the weights are damaged.",
    )
