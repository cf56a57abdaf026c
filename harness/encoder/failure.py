"""What a check of the sanity gate tells, and how far two vectors are apart."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.types import Role

Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One check that the model did not pass, and what to do about it."""

    check: str
    message: str
    hint: str

    def __str__(self) -> str:
        return self.message


def on_side(role: Role, failure: Failure | None) -> Failure | None:
    """The failure, with the side it was found on where the model has sides."""
    if failure is None or not role:
        return failure
    return replace(failure, message=f"On side {role}: {failure.message}")


def distance(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """The distance of each two rows, against the length of the first."""
    wide = first.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(wide, axis=1), 1e-30)
    found: NDArray[np.float64] = np.linalg.norm(wide - second, axis=1) / lengths
    return found
