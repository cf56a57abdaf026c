"""The gate: does a loaded model behave like a model at all? Run before any task."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from harness.encoder.engine import Encoder
from harness.encoder.failure import Failure, Vectors, distance, on_side
from harness.encoder.twice import disagreeing
from harness.errors import ModelError
from harness.types import Role

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


@dataclass(frozen=True, kw_only=True)
class SanityReport:
    """What the gate found: the names of the checks that ran, and those that failed."""

    checks: tuple[str, ...]
    failures: tuple[Failure, ...]
    seconds: float


def check(encoder: Encoder, reload: Callable[[], Encoder] | None = None) -> SanityReport:
    """Run every check, on each side that has a tower of its own.

    Args:
        encoder: The model; it goes on with the second load, if there is one.
        reload: Loads the same model a second time, to see that both loads agree; None leaves
            that check out.
    """
    began = time.perf_counter()
    alone = {role: _alone(encoder, role) for role in encoder.roles}
    failures = [on_side(role, _not_finite(vectors, SHORT)) for role, vectors in alone.items()]
    ran = ["finite"]
    if not any(failures):
        for role, vectors in alone.items():
            failures += [
                on_side(role, _constant(vectors)),
                on_side(role, _moved_by_padding(encoder, vectors, role)),
            ]
        ran += ["constant", "padding"]
        if reload is not None:
            failures += disagreeing(encoder, SHORT, reload)
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


def _alone(encoder: Encoder, role: Role) -> Vectors:
    return np.concatenate([encoder.encode_batch([text], role=role) for text in SHORT])


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


def _moved_by_padding(encoder: Encoder, alone: Vectors, role: Role) -> Failure | None:
    padded = encoder.encode_batch([*SHORT, LONG], role=role)[:-1]
    moved = distance(alone, padded)
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
