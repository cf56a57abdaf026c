"""The question that a check asks: is it a port, a retraining, or another model? It is guessed, or typed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from harness.checks.baselines import BaselineModel, Reference
from harness.checks.outcome import AskedQuestion
from harness.checks.sides import CheckRequest
from harness.core.errors import HarnessError
from harness.encoder.folder.modules import weight_files
from harness.encoder.tensors import StoredTensor, read_tensor_headers
from harness.plan.plan import ConfiguredModel
from harness.plan.request import Request
from harness.plan.resolved_request import ResolvedRequest

SAME, LEAST = 2**-7, 2**-24
"""The largest relative difference of a number of the same weights, and the step of the smallest of float16.

Rounding to bfloat16 keeps every number within 2^-8. A few more steps of a training keep a tensor as near, but
not its small numbers.
"""

PIECE = 2**22
"""The numbers of a tensor that are compared at once, which bounds memory."""

_READ = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def resolve_baseline_model(
    reference: Reference, requests: tuple[CheckRequest, ...], *, offline: bool
) -> ConfiguredModel | None:
    """The baseline's model; None where it is not to be had, has changed, or is one of several.

    Args:
        reference: The baseline or the model.
        requests: The requests of the check.
        offline: Whether it must be on this machine already.
    """
    if reference.baseline is None:
        return (requests[1].opened.trained or requests[1].opened.asked)[0]
    runs = {run.artifact: run for run in reference.baseline.runs}
    if len(runs) > 1:
        return None
    (run,) = runs.values()
    request = requests[0].requests[0]
    try:
        (model,) = ResolvedRequest.resolve_request(_build_model_request(request, run, offline)).asked
    except (HarnessError, OSError):
        return None
    return model if model.artifact.key == run.artifact else None


def _build_model_request(request: Request, run: BaselineModel, offline: bool) -> Request:
    pinned = f"{run.source}@{run.revision}" if run.revision and "@" not in run.source else run.source
    return replace(
        request, models=(pinned,), recipe=(), recipe_settings={}, offline=offline or request.offline
    )


def guess_question(
    requests: tuple[CheckRequest, ...], candidate: ConfiguredModel, baseline: ConfiguredModel | None
) -> AskedQuestion:
    """The question that two models suggest. Nothing is loaded; what cannot be read is another model.

    Args:
        requests: The requests of the check, the candidate's first.
        candidate: The candidate, of a recipe what it makes first.
        baseline: The baseline's model, likewise; None if it is not to be had.
    """
    mine, theirs = candidate.lineage, baseline.lineage if baseline is not None else None
    if mine is not None and theirs is not None and mine.key != theirs.key:
        parents = [[parent.artifact for parent in one.parents] for one in (mine, theirs)]
        if mine.recipe == theirs.recipe and parents[0] == parents[1]:
            return AskedQuestion(
                name="retrain", why=f"both were made of {mine.parents[0].name} by {mine.recipe}"
            )
    if baseline is not None and not requests[0].opened.stages:
        if candidate.artifact.weights == baseline.artifact.weights:
            return AskedQuestion(name="port", why="both have the same weights")
        if _has_near_weights(candidate, baseline):
            return AskedQuestion(name="port", why="the weights differ by rounding alone")
    return AskedQuestion()


def _has_near_weights(candidate: ConfiguredModel, baseline: ConfiguredModel) -> bool:
    """Whether two folders have the same tensors, each with a relative difference of at most SAME."""
    try:
        files = (weight_files(model.artifact.folder) for model in (candidate, baseline))
        mine, theirs = (read_tensor_headers(paths) for paths in files)
        if not mine or not theirs or mine.keys() != theirs.keys():
            return False
        if any(mine[name].shape != theirs[name].shape for name in mine):
            return False
        return all(_is_near(mine[name], theirs[name]) for name in mine)
    except (HarnessError, OSError, ValueError):
        return False


def _is_near(first: StoredTensor, second: StoredTensor) -> bool:
    if first.path.suffix != ".safetensors" or not {first.dtype, second.dtype} <= _READ.keys():
        return False
    pieces = zip(_iter_pieces(first), _iter_pieces(second), strict=True)
    return all((np.abs(mine - theirs) <= SAME * np.abs(theirs) + LEAST).all() for mine, theirs in pieces)


def _iter_pieces(tensor: StoredTensor) -> Iterator[NDArray[np.float64]]:
    kind = np.dtype(_READ[tensor.dtype])
    with tensor.path.open("rb") as file:
        file.seek(tensor.begin)
        left = (tensor.end - tensor.begin) // kind.itemsize
        while left > 0:
            piece = np.frombuffer(file.read(min(left, PIECE) * kind.itemsize), kind)
            left -= len(piece)
            if tensor.dtype == "BF16":
                # The upper half of a float32.
                piece = (piece.astype(np.uint32) << 16).view(np.float32)
            yield piece.astype(np.float64)
