"""Exact nearest-neighbour search in blocks: the whole score matrix is never held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.types import Similarity

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

QUERIES = 512
DOCUMENTS = 32_768
"""Rows of the largest score block: 512 × 32,768 float32 are 64 MiB."""


def top_k(
    queries: NDArray[np.float32],
    documents: Callable[[int, int], NDArray[np.float32]],
    count: int,
    *,
    k: int,
    similarity: Similarity = "cosine",
    device: str = "cpu",
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` most similar documents of each query, best first.

    Args:
        queries: Shape (queries, dimension).
        documents: Called with (start, end), gives that slice of the documents' vectors.
        count: How many documents there are.
        k: How many to keep; all of them if there are fewer.
        similarity: How two vectors are compared; distances are negated, so higher is closer.
        device: Where the products are computed.

    Returns:
        Scores and document positions, both of shape (queries, min(k, count)).
    """
    import torch

    k = min(k, count)
    parts = [
        _prepare(part, similarity) for part in torch.split(torch.tensor(queries, device=device), QUERIES)
    ]
    best: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(parts)
    for start in range(0, count, DOCUMENTS):
        end = min(start + DOCUMENTS, count)
        block = _prepare(torch.tensor(documents(start, end), device=device), similarity)
        for number, part in enumerate(parts):
            scores, at = _scores(part, block, similarity).topk(min(k, end - start), dim=1)
            best[number] = _merge(best[number], scores, at + start, k)
    kept = [pair for pair in best if pair is not None]
    scores = torch.cat([pair[0] for pair in kept])
    positions = torch.cat([pair[1] for pair in kept])
    return scores.cpu().numpy(), positions.cpu().numpy()


def compare(
    query: NDArray[np.float32], documents: NDArray[np.float32], similarity: Similarity
) -> Sequence[float]:
    """The similarity of one query, shape (dimension,), to each of `documents`, (n, dimension)."""
    import torch

    one = _prepare(torch.tensor(query)[None], similarity)
    scores: list[float] = _scores(one, _prepare(torch.tensor(documents), similarity), similarity)[0].tolist()
    return scores


def _prepare(vectors: torch.Tensor, similarity: Similarity) -> torch.Tensor:
    import torch

    return torch.nn.functional.normalize(vectors, dim=1) if similarity == "cosine" else vectors


def _scores(queries: torch.Tensor, documents: torch.Tensor, similarity: Similarity) -> torch.Tensor:
    import torch

    if similarity in ("cosine", "dot"):
        return queries @ documents.T
    return -torch.cdist(queries, documents, p=2.0 if similarity == "euclidean" else 1.0)


def _merge(
    best: tuple[torch.Tensor, torch.Tensor] | None, scores: torch.Tensor, at: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    if best is None:
        return scores, at
    scores = torch.cat([best[0], scores], dim=1)
    at = torch.cat([best[1], at], dim=1)
    scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
    return scores, at.gather(1, order)
