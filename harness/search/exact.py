"""Exact search: the best documents of each query by their vectors.

Documents come in blocks, so that the whole score matrix is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from harness.core.types import Similarity

QUERY_BLOCK = 512
DOCUMENT_BLOCK = 16_384
"""Rows of the largest score block: 512 × 16,384 float32 are 32 MiB."""


def find_top_k(
    queries: NDArray[np.float32],
    documents: Callable[[int, int], NDArray[np.float32]],
    count: int,
    *,
    k: int,
    similarity: Similarity = "cosine",
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The `k` most similar documents of each query, best first; of equal ones the first in the corpus.

    Args:
        queries: (queries, dimension).
        documents: The vectors of documents from a place to another, (documents, dimension).
        count: The number of documents.
        k: The number of documents for a query.
        similarity: How vectors are compared.

    Returns:
        The scores and the places in the corpus, (queries, at most k) each.
    """
    k = min(k, count)
    parts = torch.split(_prepare(torch.tensor(queries), similarity), QUERY_BLOCK)
    best = [np.empty((len(part), 0), np.int64) for part in parts]
    for start in range(0, count, DOCUMENT_BLOCK):
        end = min(start + DOCUMENT_BLOCK, count)
        block = _prepare(torch.tensor(documents(start, end)), similarity)
        for number, part in enumerate(parts):
            scores = _compute_similarity(part, block, similarity).numpy()
            best[number] = merge_scores(best[number], scores, start, k)
    return unpack_scores(-np.sort(-np.concatenate(best), axis=1))


def merge_scores(
    best: NDArray[np.int64], scores: NDArray[np.float32], start: int, k: int
) -> NDArray[np.int64]:
    """The best so far, shape (queries, at most k), with a block of scores, (queries, documents).

    Rows with fewer candidates than others are filled up with the smallest number, which is worse than any.
    """
    # Most scores of a block are below the present k-th: leaving them out here saves sorting them.
    if best.shape[1] == k:
        # Of equal scores the earlier documents stay.
        chosen = scores > unpack_scores(best[:, :1])[0]
    else:
        chosen = scores >= np.partition(scores, -min(k, scores.shape[1]))[:, [-min(k, scores.shape[1])]]
    rows, columns = np.divmod(np.flatnonzero(chosen), scores.shape[1])
    counts = np.count_nonzero(chosen, axis=1)
    candidates = np.full((len(scores), counts.max()), np.iinfo(np.int64).min)
    candidates[rows, np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)] = _pack_scores(
        scores[rows, columns], start + columns
    )
    merged = np.concatenate([best, candidates], axis=1)
    k = min(k, merged.shape[1])
    return np.partition(merged, -k, axis=1)[:, -k:]


def _pack_scores(scores: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number for each score and place, larger for a higher score, then for an earlier place."""
    return (
        # The sum makes -0.0 a 0.0, whose bits differ.
        _convert_float_bits((scores + 0.0).view(np.int32)).astype(np.int64) << 32 | LAST - places
    )


def unpack_scores(packed: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The scores and places in numbers that `_pack_scores` made."""
    return _convert_float_bits((packed >> 32).astype(np.int32)).view(np.float32), LAST - (packed & LAST)


def _convert_float_bits(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    """The bits of float32 numbers as integers in the same order; twice is the bits again."""
    # Positive floats are ordered like their bits, negative ones the other way round, hence the flip.
    return bits ^ ((bits >> 31) & 0x7FFF_FFFF)


LAST = 0xFFFF_FFFF
"""The last place of a document that can be packed."""


def compare(
    query: NDArray[np.float32], documents: NDArray[np.float32], similarity: Similarity
) -> Sequence[float]:
    """The similarity of one query to each document.

    Args:
        query: (dimension,).
        documents: (documents, dimension).
        similarity: How vectors are compared.
    """
    query_vector = _prepare(torch.tensor(query)[None], similarity)
    scores: list[float] = _compute_similarity(
        query_vector, _prepare(torch.tensor(documents), similarity), similarity
    )[0].tolist()
    return scores


def _prepare(vectors: torch.Tensor, similarity: Similarity) -> torch.Tensor:
    return torch.nn.functional.normalize(vectors, dim=1) if similarity == "cosine" else vectors


def _compute_similarity(
    queries: torch.Tensor, documents: torch.Tensor, similarity: Similarity
) -> torch.Tensor:
    if similarity in ("cosine", "dot"):
        return queries @ documents.T
    return -torch.cdist(queries, documents, p=2.0 if similarity == "euclidean" else 1.0)
