"""The gate: does a loaded model behave like a model at all? Run before any task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.encoder.engine import Encoder
from harness.errors import ModelError

Vectors = NDArray[np.float32]

SHORT = (
    "A cat sat on the mat.",
    "The stock market fell by 3% on Tuesday, after rates rose.",
    "def add(a, b): return a + b",
    "How do I reset my password?",
    "Übung macht den Meister; l'été à Paris.",
    "42",
)
"""Different texts of different lengths: their vectors must differ."""

LONG = " ".join(f"{text} Sentence {i} goes on about something else." for i in range(5) for text in SHORT)
"""A neighbour of some 350 tokens, longer than the windows of local attention."""

SAME = 1e-6
"""Cosines above 1 - SAME are those of one vector, up to float32's own rounding of 6e-8 a term."""

PADDING = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""How far, against its own length, a vector may move when its batch is padded.

Other kernels run on another shape, so the last bits differ: some hundred roundings of 6e-8 in
float32, of 4e-3 in bfloat16, of 5e-4 in float16, most of which cancel. A vector in which padding
takes part moves by more than 1e-1 beside a neighbour this long.
"""

RELOADED = {"float32": 1e-6, "bfloat16": 1e-3, "float16": 1e-3}
"""How far two loads may differ: the same kernels on the same numbers, so in practice by nothing."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One check that the model did not pass, and what to do about it."""

    check: str
    message: str
    hint: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, kw_only=True)
class SanityReport:
    """What the gate found: the names of the checks that ran, and those that failed."""

    checks: tuple[str, ...]
    failures: tuple[Failure, ...]
    seconds: float


def check(encoder: Encoder, reload: Callable[[], Encoder] | None = None) -> SanityReport:
    """Run every check.

    Args:
        encoder: The model.
        reload: Loads the same model a second time, to see that both loads agree; None leaves
            that check out.
    """
    began = time.perf_counter()
    alone = np.concatenate([encoder.encode_batch([text]) for text in SHORT])
    failures = [_not_finite(alone, SHORT)]
    ran = ["finite"]
    if failures == [None]:
        failures += [_constant(alone), _moved_by_padding(encoder, alone)]
        ran += ["constant", "padding"]
        if reload is not None:
            failures.append(_disagreeing(encoder, reload()))
            ran.append("reload")
    return SanityReport(
        checks=tuple(ran),
        failures=tuple(f for f in failures if f is not None),
        seconds=time.perf_counter() - began,
    )


def require(report: SanityReport) -> None:
    """Stop if a check failed.

    Raises:
        ModelError: With every failure in the message.
    """
    if report.failures:
        raise ModelError(
            "\n".join(f.message for f in report.failures), hint="\n".join(f.hint for f in report.failures)
        )


def _not_finite(vectors: Vectors, texts: tuple[str, ...]) -> Failure | None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if not bad.size:
        return None
    return Failure(
        check="finite",
        message=f"{bad.size} of {len(texts)} vectors are not finite, that of {texts[bad[0]]!r} first.",
        hint="Half precision overflows in some models: ask for float32. If it was, the weights are damaged.",
    )


def _constant(vectors: Vectors) -> Failure | None:
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    cosines = (wide / np.maximum(norms, 1e-30)) @ (wide / np.maximum(norms, 1e-30)).T
    if norms.all() and cosines.min() < 1 - SAME:
        return None
    return Failure(
        check="constant",
        message=f"{len(vectors)} different texts all have the same vector.",
        hint="The tokenizer may not be the model's own, or the weights were never set.",
    )


def _moved_by_padding(encoder: Encoder, alone: Vectors) -> Failure | None:
    padded = encoder.encode_batch([*SHORT, LONG])[:-1]
    moved = _distance(alone, padded)
    allowed = PADDING.get(encoder.dtype_as_run, PADDING["float32"])
    if (moved <= allowed).all():
        return None
    worst = int(moved.argmax())
    return Failure(
        check="padding",
        message=f"The vector of {SHORT[worst]!r} moves by {moved[worst]:.1%} of its length when its batch "
        f"is padded ({allowed:.2%} is rounding in {encoder.dtype_as_run}).",
        hint="The model attends to padding or pools over it, so its scores would depend on the batch.",
    )


def _disagreeing(encoder: Encoder, other: Encoder) -> Failure | None:
    moved = _distance(encoder.encode_batch(SHORT), other.encode_batch(SHORT))
    if (moved <= RELOADED.get(encoder.dtype_as_run, RELOADED["float32"])).all():
        return None
    worst = int(moved.argmax())
    return Failure(
        check="reload",
        message=f"Two loads of the model disagree: the vector of {SHORT[worst]!r} differs by "
        f"{moved[worst]:.1%} of its length.",
        hint="Some of its parameters or buffers are set at random, not read from its files.",
    )


def _distance(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """The distance of each two rows, against the length of the first."""
    wide = first.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(wide, axis=1), 1e-30)
    distance: NDArray[np.float64] = np.linalg.norm(wide - second, axis=1) / lengths
    return distance
