from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.encoder.network.layers import Packing
from harness.encoder.network.model import _packing

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7)
MASKS = SHAPES.flatmap(lambda shape: st.tuples(hnp.arrays(bool, shape), hnp.arrays(bool, shape)))


def packed(compute: object, attend: object) -> Packing:
    return _packing(torch.as_tensor(compute).bool(), torch.as_tensor(attend).bool())


@settings(max_examples=60, deadline=None)
@given(MASKS)
def test_packing_is_what_its_attributes_say(masks: tuple[object, object]) -> None:
    compute, attend = (torch.as_tensor(mask) for mask in masks)
    found = _packing(compute, attend)
    wanted = compute | attend
    texts = [[c for c in range(wanted.shape[1]) if wanted[t, c]] for t in range(len(wanted))]
    order = sorted((t for t in range(len(texts)) if texts[t]), key=lambda t: -len(texts[t]))
    assert found.lengths == tuple(len(texts[t]) for t in order)
    assert found.index.tolist() == [t * wanted.shape[1] + c for t in order for c in texts[t]]
    assert found.positions.tolist() == [n for t in order for n in range(len(texts[t]))]
    assert found.text_lengths().tolist() == [len(texts[t]) for t in order for _ in texts[t]]
    keys = [bool(attend[t, c]) or not attend[t].any() for t in order for c in texts[t]]
    assert (found.attended is None) if all(keys) else (found.attended.tolist() == keys)  # type: ignore[union-attr]


@settings(max_examples=40, deadline=None)
@given(MASKS)
def test_what_is_packed_comes_back_to_its_place(masks: tuple[object, object]) -> None:
    compute, attend = (torch.as_tensor(mask) for mask in masks)
    found = _packing(compute, attend)
    padded = torch.randn(*compute.shape, 3)
    expected = padded * (compute | attend)[..., None]
    assert torch.equal(found.unpack(found.pack(padded)), expected)
    first = found.first(found.pack(padded))
    for text, row in enumerate(compute | attend):
        begin = row.nonzero().flatten()[:1].tolist()
        assert torch.equal(first[text], padded[text, begin[0]] if begin else torch.zeros(3))


def test_a_full_batch_stays_in_its_order() -> None:
    found = packed([[1, 1], [1, 1]], [[1, 1], [1, 1]])
    assert found.whole
    assert found.index.tolist() == [0, 1, 2, 3]
    padded = torch.randn(2, 2, 3)
    assert torch.equal(found.unpack(found.pack(padded)), padded)


def test_the_longest_text_comes_first_and_equal_ones_keep_their_order() -> None:
    found = packed([[1, 0, 0], [1, 1, 1], [0, 0, 1]], [[1, 0, 0], [1, 1, 1], [0, 0, 1]])
    assert found.lengths == (3, 1, 1)
    assert found.index.tolist() == [3, 4, 5, 0, 8]
    assert found.positions.tolist() == [0, 1, 2, 0, 0]


def test_tokens_may_be_computed_and_not_attended_to() -> None:
    found = packed([[1, 1, 1, 1]], [[1, 1, 0, 0]])
    assert found.lengths == (4,)
    assert found.attended is not None
    assert found.attended.tolist() == [True, True, False, False]


def test_a_text_without_an_attended_token_attends_to_itself() -> None:
    found = packed([[1, 1, 0], [1, 1, 1]], [[0, 0, 0], [1, 0, 0]])
    assert found.lengths == (3, 2)
    assert found.attended is not None
    assert found.attended.tolist() == [True, False, False, True, True]


def test_empty_texts_and_empty_batches_are_packed_to_nothing() -> None:
    for shape in ((2, 3), (2, 0), (0, 3)):
        mask = torch.zeros(shape, dtype=torch.bool)
        found = _packing(mask, mask)
        assert (found.lengths, found.attended) == ((), None)
        vectors = torch.randn(0, 4, requires_grad=True)
        assert torch.equal(found.unpack(vectors), torch.zeros(*shape, 4))
        assert torch.equal(found.first(vectors), torch.zeros(shape[0], 4))


def test_gradients_go_back_through_packing() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = _packing(mask, mask)
    vectors = torch.randn(3, 2, requires_grad=True)
    weights = torch.randn(2, 3, 2)
    (found.unpack(vectors) * weights).sum().backward()
    assert vectors.grad is not None
    assert torch.equal(vectors.grad, found.pack(weights))
