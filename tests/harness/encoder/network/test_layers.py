"""Rotary positions and packed texts against what is written out here."""

from __future__ import annotations

import cmath
import copy
import math
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.torch import load_file
from torch import nn

import tiny_networks
from harness.core.errors import ModelError
from harness.encoder.network.layers import Packing, Table, _apply_rotation, compute_rotations

# Rotary positions


WIDTH = 8


def table(places: torch.Tensor, *lengths: int, theta: float = 100.0, **scaling: Any) -> Table:
    """The rotations of the tokens of texts of these lengths, by default of one, at these places."""
    shape = tiny_networks.small(head_dim=WIDTH, rotary_theta=theta, rotary_scaling=scaling or None)
    counts = torch.tensor(lengths or [len(places)])
    mask = torch.arange(int(counts.max())) < counts[:, None]
    return compute_rotations(shape, Packing.from_masks(mask, mask), places)[theta, bool(scaling)]


def one(length: int = 1, **scaling: Any) -> list[float]:
    """The angles by which a text's second token is turned."""
    cosine, sine = table(torch.ones(length), **scaling)
    assert cosine.dtype == sine.dtype == torch.float32
    return [math.atan2(y, x) for y, x in zip(sine[0, 0].tolist(), cosine[0, 0].tolist(), strict=True)]


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_pair_of_dimensions_is_a_complex_number_that_turns(interleaved: bool) -> None:
    positions = torch.tensor([0, 1, 5, 700])
    x = torch.randn(4, 2, WIDTH, dtype=torch.float64)
    found = _apply_rotation(x, table(positions), interleaved=interleaved)
    for token, place in enumerate(positions.tolist()):
        for head in range(2):
            for pair in range(WIDTH // 2):
                at = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + WIDTH // 2)
                before = complex(*x[token, head, at].tolist())
                after = before * cmath.exp(1j * place * 100.0 ** (-2 * pair / WIDTH))
                assert complex(*found[token, head, at].tolist()) == pytest.approx(after, abs=1e-4)


def test_scores_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(1, 1, WIDTH).expand(50, 1, WIDTH), torch.randn(1, 1, WIDTH).expand(50, 1, WIDTH)
    turn = table(torch.arange(50))
    query, key = (_apply_rotation(x, turn, interleaved=False)[:, 0] for x in (query, key))
    scores = query @ key.T
    for distance in (-7, 0, 3):
        line = scores.diagonal(distance)
        torch.testing.assert_close(line, line[:1].expand_as(line), rtol=0, atol=1e-5)


def test_half_precision_is_turned_in_float32() -> None:
    x = torch.randn(300, 2, WIDTH).bfloat16()
    turn = table(torch.arange(300), theta=10_000.0)
    found = _apply_rotation(x, turn, interleaved=False)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, _apply_rotation(x.float(), turn, interleaved=False).bfloat16())


def test_the_gradient_turns_back() -> None:
    x = torch.randn(5, 2, WIDTH, requires_grad=True)
    weights = torch.randn(5, 2, WIDTH)
    cosine, sine = table(torch.arange(5))
    (_apply_rotation(x, (cosine, sine), interleaved=True) * weights).sum().backward()
    torch.testing.assert_close(x.grad, _apply_rotation(weights, (cosine, -sine), interleaved=True))


def test_frequencies_fall_from_one() -> None:
    assert one() == pytest.approx([1.0, 100 ** (-1 / 4), 0.1, 100 ** (-3 / 4)])


def test_linear_scaling_divides() -> None:
    assert one(kind="linear", factor=4) == pytest.approx([f / 4 for f in one()])


def test_dynamic_scaling_grows_the_base_with_the_text_beyond_the_trained_length() -> None:
    scaling = {"kind": "dynamic", "factor": 2, "trained": 10}
    assert one(length=10, **scaling) == one(length=3, **scaling) == one()
    base = 100 * (2 * 30 / 10 - 1) ** (WIDTH / (WIDTH - 2))
    assert one(length=30, **scaling) == pytest.approx([base ** (-2 * n / WIDTH) for n in range(4)])


def test_dynamic_scaling_of_a_text_does_not_depend_on_its_neighbours() -> None:
    scaling = {"kind": "dynamic", "factor": 2, "trained": 10}
    both = table(torch.cat([torch.arange(30), torch.arange(5)]), 30, 5, **scaling)
    for span, length in ((slice(30), 30), (slice(30, None), 5)):
        alone = table(torch.arange(length), **scaling)
        assert all(torch.equal(ours[span], own) for ours, own in zip(both, alone, strict=True))


def test_ntk_scaling_without_a_mixture_raises_the_base_and_lowers_all() -> None:
    expected = [(100 * 2) ** (-2 * n / WIDTH) / 2 ** (2 / WIDTH) for n in range(4)]
    assert one(kind="ntk", factor=2) == pytest.approx(expected)


def test_ntk_scaling_with_a_mixture_reaches_the_factor_at_the_last_pair() -> None:
    found = one(kind="ntk", factor=2, mixed=0.6)
    spread = [math.exp(math.log(2) * ((n + 1) / 4) ** 0.6) for n in range(4)]
    assert found == pytest.approx([f / s for f, s in zip(one(), spread, strict=True)])
    assert found[-1] == pytest.approx(one()[-1] / 2)


def test_an_unknown_scaling_is_an_error() -> None:
    with pytest.raises(ModelError, match="'longrope' is not known"):
        one(kind="longrope", factor=2)


# Packed texts


SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=7)
MASKS = SHAPES.flatmap(lambda shape: st.tuples(hnp.arrays(bool, shape), hnp.arrays(bool, shape)))


def packed(compute: object, attend: object) -> Packing:
    return Packing.from_masks(torch.as_tensor(compute).bool(), torch.as_tensor(attend).bool())


@settings(max_examples=60)
@example(
    ([[1, 0, 0], [1, 1, 1], [0, 0, 1]], [[1, 0, 0], [1, 1, 1], [0, 0, 1]])
)  # equal ones keep their order
@example(([[1, 1, 1, 1]], [[1, 1, 0, 0]]))  # computed and not attended to
@example(([[1, 1, 0], [1, 1, 1]], [[0, 0, 0], [1, 0, 0]]))  # without an attended token
@given(MASKS)
def test_packing_is_what_its_attributes_say(masks: tuple[object, object]) -> None:
    compute, attend = (torch.as_tensor(mask).bool() for mask in masks)
    found = Packing.from_masks(compute, attend)
    wanted = compute | attend
    texts = [[c for c in range(wanted.shape[1]) if wanted[t, c]] for t in range(len(wanted))]
    order = sorted((t for t in range(len(texts)) if texts[t]), key=lambda t: -len(texts[t]))
    assert found.lengths == tuple(len(texts[t]) for t in order)
    assert found.index.tolist() == [t * wanted.shape[1] + c for t in order for c in texts[t]]
    assert found.positions.tolist() == [n for t in order for n in range(len(texts[t]))]
    assert found.gather_text_lengths().tolist() == [len(texts[t]) for t in order for _ in texts[t]]
    keys = [bool(attend[t, c]) or not attend[t].any() for t in order for c in texts[t]]
    assert (found.attended is None) if all(keys) else (found.attended.tolist() == keys)  # type: ignore[union-attr]
    assert found.bounds.tolist() == [*accumulate(found.lengths, initial=0)]
    rows = torch.argsort(wanted.sum(dim=1), descending=True, stable=True)
    on_device, on_host = (
        vars(build(wanted[rows], attend[rows]))
        for build in (
            Packing.from_masks,
            lambda *both: Packing.from_sorted_masks(*(one.numpy() for one in both)),
        )
    )
    for name, value in on_device.items():
        same = (
            torch.equal(value, on_host[name]) if isinstance(value, torch.Tensor) else value == on_host[name]
        )
        assert same, name


@settings(max_examples=40)
@given(MASKS)
def test_what_is_packed_comes_back_to_its_place(masks: tuple[object, object]) -> None:
    compute, attend = (torch.as_tensor(mask) for mask in masks)
    found = Packing.from_masks(compute, attend)
    padded = torch.randn(*compute.shape, 3)
    expected = padded * (compute | attend)[..., None]
    assert torch.equal(found.unpack(found.pack(padded)), expected)
    first = found.select_first_tokens(found.pack(padded))
    for text, row in enumerate(compute | attend):
        begin = row.nonzero().flatten()[:1].tolist()
        assert torch.equal(first[text], padded[text, begin[0]] if begin else torch.zeros(3))


def test_a_full_batch_stays_in_its_order() -> None:
    found = packed([[1, 1], [1, 1]], [[1, 1], [1, 1]])
    assert found.whole
    assert found.index.tolist() == [0, 1, 2, 3]
    padded = torch.randn(2, 2, 3)
    assert torch.equal(found.unpack(found.pack(padded)), padded)


def test_empty_texts_and_empty_batches_are_packed_to_nothing() -> None:
    for shape in ((2, 3), (2, 0), (0, 3)):
        mask = torch.zeros(shape, dtype=torch.bool)
        found = Packing.from_masks(mask, mask)
        assert (found.lengths, found.attended) == ((), None)
        vectors = torch.randn(0, 4, requires_grad=True)
        assert torch.equal(found.unpack(vectors), torch.zeros(*shape, 4))
        assert torch.equal(found.select_first_tokens(vectors), torch.zeros(shape[0], 4))


def test_gradients_go_back_through_packing() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = Packing.from_masks(mask, mask)
    vectors = torch.randn(3, 2, requires_grad=True)
    weights = torch.randn(2, 3, 2)
    (found.unpack(vectors) * weights).sum().backward()
    assert vectors.grad is not None
    assert torch.equal(vectors.grad, found.pack(weights))


# Fused projections


def test_fused_projections_are_slices_of_one_tensor_and_give_the_same(tmp_path: Path) -> None:
    model = tiny_networks.network(tiny_networks.small(num_key_value_heads=2))
    batch = tiny_networks.batch(tiny_networks.texts((9, 4), 0), 0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
    model.fuse_projections()
    attention: Any = model.layers[0].attention
    storages = {layer.weight.untyped_storage()._cdata for layer in (attention.query, attention.key)}
    assert len(storages) == 1
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    products: list[int] = []
    attention.key.register_forward_hook(lambda *_: products.append(1))
    with torch.no_grad():
        torch.testing.assert_close(model(**batch).last_hidden_state, expected, rtol=0, atol=1e-6)
    assert products == []
    model(**batch).last_hidden_state.sum().backward()
    assert products == [1]
    assert attention.key.weight.grad is not None
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(tensor, saved[name]) for name, tensor in before.items())


@pytest.mark.parametrize("how", ["copied", "moved", "replaced", "trained", "another bias"])
def test_projections_that_are_no_longer_fused_are_computed_apart(how: str) -> None:
    model = tiny_networks.network(tiny_networks.small())
    model.fuse_projections()
    if how == "copied":
        model = copy.deepcopy(model)
    if how == "moved":
        model = model.double()
    attention: Any = model.layers[0].attention
    with torch.no_grad():
        if how == "replaced":
            attention.key = nn.Sequential(attention.key, nn.Identity())
            attention.key[0].weight.mul_(2)
        elif how == "another bias":
            attention.key.bias = nn.Parameter(attention.key.bias + 1)
        else:
            attention.key.weight.mul_(2)
        x = torch.randn(5, 32, dtype=attention.query.weight.dtype)
        found = [part.flatten(1) for part in attention._compute_qkv(x, None)]
        expected = [layer(x) for layer in (attention.query, attention.key, attention.value)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
