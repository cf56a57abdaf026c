"""Exact search: the best documents of each query by their vectors, or by MaxSim of the vectors of tokens.

Documents come in blocks, so that the whole score matrix is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from harness.core.types import Similarity
from harness.storage.vectors import TokenVectors

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
            best[number] = _merge(best[number], scores, start, k)
    return _unpack_scores(-np.sort(-np.concatenate(best), axis=1))


def _merge(best: NDArray[np.int64], scores: NDArray[np.float32], start: int, k: int) -> NDArray[np.int64]:
    """The best so far, shape (queries, at most k), with a block of scores, (queries, documents).

    Rows with fewer candidates than others are filled up with the smallest number, which is worse than any.
    """
    # Most scores of a block are below the present k-th: leaving them out here saves sorting them.
    if best.shape[1] == k:
        # Of equal scores the earlier documents stay.
        chosen = scores > _unpack_scores(best[:, :1])[0]
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


def _unpack_scores(packed: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
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


TOKEN_BYTES = 256 * 2**20
"""The memory of a block of products of query tokens and document tokens, unless another one is given."""

QUERY_TOKENS = 2048
"""Query tokens whose products with a block of documents are held at once."""


def compute_maxsim(
    queries: TokenVectors,
    documents: TokenVectors,
    *,
    device: str = "cpu",
    longest: int | None = None,
    memory: int = TOKEN_BYTES,
) -> NDArray[np.float32]:
    """The MaxSim of each query and each document: (queries, documents), -inf for a document without a vector.

    It is the sum over the query's tokens of the largest dot product with a token of the document (Khattab and
    Zaharia, 2020, ColBERT, equation 3). Products and sums are in float32.

    Args:
        queries: Their token vectors.
        documents: Their token vectors, (tokens, dimension).
        device: A torch device.
        longest: The rule of PyLate: beside a document of that many tokens a shorter one is filled up with
            zeros, so that no best product is below 0; None leaves such tokens out.
        memory: Bytes of a block of products, at most.
    """
    out = np.full((len(queries), len(documents)), -np.inf, np.float32)
    rows = max(1, min(QUERY_TOKENS, len(queries.vectors)))
    for columns in _iter_document_blocks(documents, max(1, memory // (4 * rows))):
        block = documents.take(columns)
        tokens = _convert_float_vectors(block, device)
        for start, stop in split_blocks(queries.offsets, rows):
            part = queries.take(np.arange(start, stop))
            best = _compute_best_products(
                _convert_float_vectors(part, device) @ tokens.T, block.lengths, longest
            )
            out[start:stop, columns] = _sum_query_tokens(best, part.lengths)
    return out


def _convert_float_vectors(vectors: TokenVectors, device: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(vectors.vectors)).to(device).float()


def _iter_document_blocks(documents: TokenVectors, tokens: int) -> Iterator[NDArray[np.int64]]:
    """Documents with a vector in blocks of at most so many tokens, shortest first; a longer one is alone."""
    lengths = documents.lengths
    # By length, so that `_compute_best_products` has documents of one length side by side.
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    for start, stop in split_blocks(np.concatenate([[0], np.cumsum(lengths[order])]), tokens):
        yield order[start:stop]


def split_blocks(offsets: NDArray[np.int64], most: int) -> Iterator[tuple[int, int]]:
    """Texts in blocks of at most `most` tokens or characters, from a place to another; a longer one is alone.

    `offsets` are the first of each text and the end of the last.
    """
    start = 0
    while start < len(offsets) - 1:
        stop = max(start + 1, int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1)
        yield start, stop
        start = stop


def _compute_best_products(
    products: torch.Tensor, lengths: NDArray[np.int64], longest: int | None
) -> torch.Tensor:
    """The largest product of each query token with a token of each document, (query tokens, documents).

    Args:
        products: (query tokens, document tokens), of documents by rising length.
        lengths: The tokens of each document.
        longest: See `compute_maxsim`.
    """
    sizes, counts = np.unique(lengths, return_counts=True)
    maxima, start = [], 0
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        group = products[:, start : start + size * count].unflatten(1, (count, size)).amax(dim=2)
        maxima.append(group.clamp(min=0) if longest is not None and size < longest else group)
        start += size * count
    return torch.cat(maxima, dim=1)


def _sum_query_tokens(best: torch.Tensor, lengths: NDArray[np.int64]) -> NDArray[np.float32]:
    """The sum over the tokens of each query: (queries, documents)."""
    if len(set(lengths.tolist())) == 1 and lengths[0]:
        totals = best.unflatten(0, (len(lengths), int(lengths[0]))).sum(dim=1)
    else:
        query = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(best.device)
        totals = best.new_zeros(len(lengths), best.shape[1]).index_add_(0, query, best)
    sums: NDArray[np.float32] = totals.cpu().numpy()
    return sums


def find_maxsim_top_k(
    queries: TokenVectors,
    documents: Callable[[int, int], TokenVectors],
    counts: NDArray[np.int64],
    *,
    k: int,
    device: str = "cpu",
    longest: int | None = None,
    memory: int = TOKEN_BYTES,
    progress: Callable[[int], None] = lambda _done: None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The `k` documents of each query with the highest MaxSim, best first; of equal ones the first.

    Args:
        queries: Their token vectors.
        documents: The token vectors of documents from a place to another.
        counts: The number of vectors of each document.
        k: The number of documents for a query; those without a vector are left out.
        device: A torch device.
        longest: See `compute_maxsim`.
        memory: Bytes of a block of products, at most, of the vectors of documents at one time, and of four
            times their scores.
        progress: Called with the number of documents done.
    """
    best = np.empty((len(queries), 0), np.int64)
    k = min(k, len(counts))
    width = queries.vectors.shape[1]
    # Scores of short documents may take more memory than their vectors.
    weights = np.maximum(counts, -(-4 * len(queries) // width))
    for start, end in split_blocks(np.concatenate([[0], np.cumsum(weights)]), max(1, memory // (4 * width))):
        block = documents(start, end)
        scores = compute_maxsim(queries, block, device=device, longest=longest, memory=memory)
        best = _merge(best, scores, start, k)
        progress(end - start)
    yield from _iter_best_places(best)


def _iter_best_places(best: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The places and scores of each query in numbers that `_pack_scores` made, best first."""
    scores, places = _unpack_scores(-np.sort(-best, axis=1))
    for row, row_places in zip(scores, places, strict=True):
        # Filled places of `_merge` unpack to NaN, and a document without a vector has -inf.
        finite_mask = np.isfinite(row)
        yield row_places[finite_mask], row[finite_mask]


def find_block_top_k(
    queries: TokenVectors, block: TokenVectors, start: int, *, k: int, device: str = "cpu"
) -> NDArray[np.int64]:
    """The `k` best documents of one block of a corpus by MaxSim, packed for `merge_block_top_k`.

    Args:
        queries: Their token vectors.
        block: The token vectors of its documents.
        start: The place of the first of them in the corpus.
        k: The number of documents for a query.
        device: A torch device.

    Returns:
        (queries, at most k): a number for each score and place.
    """
    none = np.empty((len(queries), 0), np.int64)
    return _merge(none, compute_maxsim(queries, block, device=device), start, min(k, len(block)))


def merge_block_top_k(blocks: Sequence[NDArray[np.int64]], *, k: int) -> list[NDArray[np.int64]]:
    """The places of the `k` best documents of each query, best first, from those of all blocks of a corpus.

    A document without a vector is left out.
    """
    return [places[:k] for places, _ in _iter_best_places(np.concatenate(blocks, axis=1))]
