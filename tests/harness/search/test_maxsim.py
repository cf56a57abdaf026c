"""MaxSim: the definitions in float64, and PyLate's ranking, are the truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.search import maxsim
from harness.search.maxsim import compute_maxsim, find_maxsim_top_k
from harness.storage.vectors import TokenVectors
from launches import LargestTensor

# A vector for each token


def tokens(lengths: list[int], seed: int, *, dimension: int = 8, positive: bool = False) -> TokenVectors:
    """Random token vectors of length 1, float32; `positive` ones have no negative product."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(sum(lengths), dimension))
    vectors = np.abs(vectors) if positive else vectors
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return TokenVectors(
        vectors=vectors.astype(np.float32), offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    )


def summed(queries: TokenVectors, documents: TokenVectors, longest: int | None = None) -> np.ndarray:
    """MaxSim by a loop over tokens in float64."""
    out = np.full((len(queries), len(documents)), -np.inf)
    for i in range(len(queries)):
        for j in range(len(documents)):
            query, document = (
                one.astype(np.float64)
                for one in (queries.select_text_vectors(i), documents.select_text_vectors(j))
            )
            if not len(document):
                continue
            best = [max(float(q @ d) for d in document) for q in query]
            shorter = longest is not None and len(document) < longest
            out[i, j] = sum(max(one, 0.0) if shorter else one for one in best)
    return out


def test_maxsim_is_that_of_a_loop_over_tokens() -> None:
    """1,000 ragged pairs, in one block and in many."""
    rng = np.random.default_rng(5)
    queries = tokens(rng.integers(1, 9, 25).tolist(), 1, dimension=16)
    documents = tokens(rng.integers(1, 14, 40).tolist(), 2, dimension=16)
    truth = summed(queries, documents)
    for memory in (2**28, 4096, 1):
        found = compute_maxsim(queries, documents, memory=memory)
        assert found.dtype == np.float32
        assert np.abs(found - truth).max() <= 1e-6


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(0, 6), min_size=1, max_size=9),
    st.integers(1, 400),
    st.integers(0, 2**31),
    st.booleans(),
)
@settings(max_examples=40)
def test_blocks_change_nothing(
    queries: list[int], documents: list[int], memory: int, seed: int, pylate: bool
) -> None:
    longest = max(documents) if pylate else None
    q, d = tokens(queries, seed), tokens(documents, seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxsim, "QUERY_TOKENS", 3)
        found = compute_maxsim(q, d, longest=longest, memory=memory)
    truth = summed(q, d, longest)
    assert np.array_equal(np.isfinite(found), np.isfinite(truth))
    assert np.allclose(found, truth, atol=1e-6)


def test_the_variant_of_pylate_is_its_ranking() -> None:
    pytest.importorskip("pylate")
    from pylate import rank
    from pylate.scores import colbert_scores

    queries, documents = tokens([4, 4, 4], 3), tokens([2, 7, 3, 7, 1], 4)
    found = compute_maxsim(queries, documents, longest=7)
    parts = [torch.from_numpy(documents.select_text_vectors(at)) for at in range(len(documents))]
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    whole = torch.stack([torch.from_numpy(queries.select_text_vectors(at)) for at in range(len(queries))])
    assert np.abs(found - colbert_scores(whole, padded).numpy()).max() <= 1e-6
    for at in range(len(queries)):
        (theirs,) = rank.rerank([[*range(5)]], [whole[at]], [parts])
        order = np.argsort(-found[at], kind="stable")
        assert [hit["id"] for hit in theirs] == order.tolist()
        assert [hit["score"] for hit in theirs] == pytest.approx(found[at][order].tolist(), abs=1e-6)


def test_the_two_rules_part_where_the_best_product_of_a_token_is_negative() -> None:
    """Two query tokens, one of them against every token of the shorter document: its best product is -1."""
    query = TokenVectors(vectors=np.eye(2, dtype=np.float32), offsets=np.array([0, 2]))
    short, long = np.array([[0.0, -1.0]]), np.array([[0.6, 0.8], [0.0, -1.0]])
    documents = TokenVectors(
        vectors=np.concatenate([short, long]).astype(np.float32), offsets=np.array([0, 1, 3])
    )
    assert compute_maxsim(query, documents)[0] == pytest.approx([0.0 - 1.0, 0.6 + 0.8])
    assert compute_maxsim(query, documents, longest=2)[0] == pytest.approx([0.0, 0.6 + 0.8])
    alike = tokens([3, 3], 1, positive=True), tokens([2, 5, 4], 2, positive=True)
    assert np.array_equal(compute_maxsim(*alike), compute_maxsim(*alike, longest=5))


def test_the_best_documents_come_first_and_those_without_a_vector_never() -> None:
    queries, documents = tokens([3, 2], 7), tokens([4, 0, 2, 5, 0, 3], 8)
    done: list[int] = []
    found = list(
        find_maxsim_top_k(
            queries,
            lambda a, b: documents.take(np.arange(a, b)),
            documents.lengths,
            k=5,
            memory=4 * 8 * 7,
            progress=done.append,
        )
    )
    truth = summed(queries, documents)
    assert done == [3, 2, 1]  # 4 + 0 + 2, 5 + 0 and 3 tokens; one without any counts as one, of 7 at most
    for row, (at, scores) in zip(truth, found, strict=True):
        assert at.tolist() == np.argsort(-row, kind="stable")[:4].tolist()
        assert scores == pytest.approx(row[at], abs=1e-6)


def test_products_are_held_in_blocks() -> None:
    queries, documents = tokens([32] * 60, 1), tokens([40] * 300, 2)
    with LargestTensor() as largest:
        compute_maxsim(queries, documents, memory=2**20)
    assert 2**19 < largest.bytes <= 2**20 < 4 * 60 * 32 * 300 * 40


def test_scores_of_many_queries_and_short_documents_are_held_in_blocks() -> None:
    queries, documents = tokens([1] * 64, 15), tokens([0, 1, 2] * 100, 16)
    spans: list[tuple[int, int]] = []

    def part(start: int, end: int) -> TokenVectors:
        spans.append((start, end))
        return documents.take(range(start, end))

    memory = 64 * 4 * 4 * 8
    found = list(find_maxsim_top_k(queries, part, documents.lengths, k=5, memory=memory))
    assert max(end - start for start, end in spans) <= memory // (4 * 4 * len(queries)) < len(documents)
    for (places, _), truth in zip(found, summed(queries, documents), strict=True):
        assert places.tolist() == np.argsort(-truth, kind="stable")[:5].tolist()
