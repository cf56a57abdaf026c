"""Exact search: the definitions in float64 are the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.types import Similarity
from harness.search import exact
from launches import LargestTensor


def brute_force(queries: np.ndarray, documents: np.ndarray, similarity: Similarity) -> np.ndarray:
    """All scores in float64, from the definitions."""
    q, d = queries.astype(np.float64), documents.astype(np.float64)
    if similarity == "cosine":
        return (q @ d.T) / np.linalg.norm(q, axis=1)[:, None] / np.linalg.norm(d, axis=1)[None]
    if similarity == "dot":
        return q @ d.T
    power = 2 if similarity == "euclidean" else 1
    return -np.linalg.norm(q[:, None] - d[None], ord=power, axis=2)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**31))
@settings(max_examples=25)
def test_blocks_find_what_the_whole_matrix_has(
    similarity: Similarity, queries: int, documents: int, k: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(queries, 5)).astype(np.float32)
    d = rng.normal(size=(documents, 5)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "QUERY_BLOCK", 4)
        patch.setattr(exact, "DOCUMENT_BLOCK", 7)
        scores, at = exact.find_top_k(q, lambda a, b: d[a:b], documents, k=k, similarity=similarity)
    truth = brute_force(q, d, similarity)
    best = -np.sort(-truth, axis=1)[:, :k]
    assert scores.shape == at.shape == best.shape
    assert np.allclose(scores, best, atol=1e-4)
    assert np.allclose(np.take_along_axis(truth, at, axis=1), scores, atol=1e-4)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 30), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=50)
def test_of_equal_documents_the_first_are_found_whatever_the_blocks(
    documents: int, k: int, block: int, part: int, seed: int
) -> None:
    """Small whole numbers have exact products, and many of them are equal."""
    rng = np.random.default_rng(seed)
    q, d = (rng.integers(-1, 2, (rows, 3)).astype(np.float32) for rows in (6, documents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "QUERY_BLOCK", part)
        patch.setattr(exact, "DOCUMENT_BLOCK", block)
        scores, at = exact.find_top_k(q, lambda a, b: d[a:b], documents, k=k, similarity="dot")
    truth = q @ d.T
    order = np.argsort(-truth, axis=1, kind="stable")[:, :k]
    assert np.array_equal(at, order)
    assert np.array_equal(scores, np.take_along_axis(truth, order, axis=1))


def test_the_whole_score_matrix_is_never_held() -> None:
    documents = np.random.default_rng(0).normal(size=(100_000, 4)).astype(np.float32)
    with LargestTensor() as largest:
        exact.find_top_k(documents[:1500], lambda a, b: documents[a:b], len(documents), k=10)
    assert largest.bytes == 4 * exact.QUERY_BLOCK * exact.DOCUMENT_BLOCK < 4 * 1500 * 100_000


def test_compare_is_one_row_of_the_matrix() -> None:
    rng = np.random.default_rng(1)
    q, d = rng.normal(size=4).astype(np.float32), rng.normal(size=(6, 4)).astype(np.float32)
    for similarity in ("cosine", "dot", "euclidean", "manhattan"):
        assert np.allclose(exact.compare(q, d, similarity), brute_force(q[None], d, similarity)[0], atol=1e-5)  # type: ignore[arg-type]
