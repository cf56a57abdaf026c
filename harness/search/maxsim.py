"""MaxSim: the sum over a query's tokens of the best product with a document's token, and exact search by it.

Documents come in blocks, so that the products of all tokens are never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from harness.search.exact import merge_scores, unpack_scores
from harness.storage.vectors import TokenVectors

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
        best = merge_scores(best, scores, start, k)
        progress(end - start)
    yield from _iter_best_places(best)


def _iter_best_places(best: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The places and scores of each query in numbers that `_pack_scores` made, best first."""
    scores, places = unpack_scores(-np.sort(-best, axis=1))
    for row, row_places in zip(scores, places, strict=True):
        # Filled places of `merge_scores` unpack to NaN, and a document without a vector has -inf.
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
    return merge_scores(none, compute_maxsim(queries, block, device=device), start, min(k, len(block)))


def merge_block_top_k(blocks: Sequence[NDArray[np.int64]], *, k: int) -> list[NDArray[np.int64]]:
    """The places of the `k` best documents of each query, best first, from those of all blocks of a corpus.

    A document without a vector is left out.
    """
    return [places[:k] for places, _ in _iter_best_places(np.concatenate(blocks, axis=1))]
