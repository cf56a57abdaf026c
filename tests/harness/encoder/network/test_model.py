"""The network as a whole: padding, pieces, its head, and torch.compile."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import AutoModel

import tiny
import tiny_networks
from harness.encoder.network import layers
from harness.encoder.network.model import EncoderModel, load_network
from tiny_networks import batch, means, network, shrunk, texts

# The same vectors in any batch


FAMILIES = [name for name, family in tiny.families().items() if family.sizes]
SAME = 1e-5
EXPANSION = 4
"""A token that is computed without being attended to; it is not the one that pads."""


@functools.cache
def network_of(name: str) -> EncoderModel:
    return tiny_networks.network(tiny_networks.shrunk(tiny.families()[name]))


def vectors(model: EncoderModel, given: dict[str, Any]) -> list[torch.Tensor]:
    """The vectors of each text's tokens; all others must be zero."""
    mask = given["attention_mask"].bool()
    with torch.no_grad():
        found = model(**given).last_hidden_state
    assert bool((found[~mask] == 0).all())
    return [row[seen] for row, seen in zip(found, mask, strict=True)]


def differ(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True) if len(b))


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=8)
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    extra=st.integers(0, 5),
    left=st.booleans(),
    data=st.data(),
)
def test_a_text_has_the_same_vectors_in_any_batch(
    name: str, lengths: list[int], extra: int, left: bool, data: st.DataObject
) -> None:
    model = network_of(name)
    pad = model.shape.pad_token_id
    given = texts(lengths, pad)
    alone = [vectors(model, batch([text], pad))[0] for text in given]
    order = data.draw(st.permutations(range(len(given))))
    mixed = batch([given[n] for n in order], pad, columns=max(lengths) + extra, left=left)
    assert differ(vectors(model, mixed), [alone[n] for n in order]) <= SAME


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_bfloat16_is_no_further_off_than_twice_what_padding_is(name: str, tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()[name], tmp_path / name)
    exact, half = (ours(name, folder, dtype) for dtype in (torch.float32, torch.bfloat16))
    pad = exact.shape.pad_token_id
    given = texts((60, 41, 41, 33, 20, 12, 7, 5, 3, 2), pad)
    whole = batch(given, pad)
    wide, rounded = (padded(name, folder, dtype) for dtype in (torch.float32, torch.bfloat16))
    expected = means(wide, whole)
    bar = 2 * (means(rounded, whole) - expected).abs().max()
    alone = torch.cat([means(half, batch([text], pad)) for text in given])
    mixed = means(half, batch(given[::-1], pad, columns=62, left=True)).flip(0)
    assert (means(exact, whole) - expected).abs().max() <= SAME
    for found in (alone, mixed, means(half, whole)):
        assert (found - expected).abs().max() <= bar
    assert (alone - mixed).abs().max() <= bar


def ours(name: str, folder: Path, dtype: torch.dtype) -> EncoderModel:
    model = load_network(folder, tiny.families()[name], dtype=dtype).model
    assert isinstance(model, EncoderModel)
    return model


def padded(name: str, folder: Path, dtype: torch.dtype) -> Callable[..., Any]:
    """transformers' class over all columns; where it has none, ours made to compute them."""
    if tiny.families()[name].native:
        return AutoModel.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()  # type: ignore[no-any-return]
    model = ours(name, folder, dtype)
    return lambda input_ids, **given: model(input_ids, **given, compute_mask=torch.ones_like(input_ids))


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "changes"),
    [("bert", {}), ("modernbert", {}), ("modernbert", {"local_attention": 16}), ("roberta", {})],
)
def test_expansion_tokens_of_a_query_get_the_vectors_of_padded_transformers(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    folder = tiny.folder(tiny.families()[name], tmp_path / name, **changes)
    model = ours(name, folder, torch.float32)
    queries = batch(texts((32, 19, 5, 1), model.shape.pad_token_id), EXPANSION)
    assert bool((queries["attention_mask"] == 0).any())
    found, expected = (
        run(**queries).last_hidden_state for run in (model, padded(name, folder, torch.float32))
    )
    assert (found - expected).abs().max() <= SAME


@pytest.mark.parametrize("name", FAMILIES)
def test_a_query_has_the_same_vectors_in_any_batch(name: str) -> None:
    model = network_of(name)
    pad = model.shape.pad_token_id
    queries = batch(texts((40, 33, 20, 6, 1), pad), EXPANSION + (pad == EXPANSION))
    with torch.no_grad():
        together = model(**queries).last_hidden_state
        for n in range(len(together)):
            one = {field: values[n : n + 1] for field, values in queries.items()}
            assert (model(**one).last_hidden_state[0] - together[n]).abs().max() <= SAME


@pytest.mark.parametrize("name", FAMILIES)
def test_empty_texts_disturb_nobody(name: str) -> None:
    model = network_of(name)
    pad = model.shape.pad_token_id
    given = texts((9, 0, 4), pad)
    found = vectors(model, batch(given, pad))
    alone = [vectors(model, batch([given[n]], pad))[0] for n in (0, 2)]
    assert differ([found[0], found[2]], alone) <= SAME
    for shape in ((2, 3), (2, 0), (0, 3)):
        nothing = {
            "input_ids": torch.full(shape, pad),
            "attention_mask": torch.zeros(shape, dtype=torch.long),
        }
        assert torch.equal(model(**nothing).last_hidden_state, torch.zeros(*shape, model.shape.hidden_size))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_text_without_an_attended_token_is_encoded_as_if_all_were(name: str) -> None:
    model = network_of(name)
    pad = model.shape.pad_token_id
    given = texts((9, 7), pad)
    unmasked = batch(given, pad)
    masked = {**unmasked, "attention_mask": unmasked["attention_mask"] * torch.tensor([[1], [0]])}
    with torch.no_grad():
        found, expected = (model(**given).last_hidden_state for given in (masked, unmasked))
    assert (found - expected).abs().max() <= SAME


@pytest.mark.parametrize("name", FAMILIES)
def test_every_gradient_of_a_batch_is_the_sum_over_its_texts(name: str) -> None:
    model = network_of(name)
    pad = model.shape.pad_token_id
    given = texts((50, 21, 20, 3), pad)

    def gradients(batches: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        model.zero_grad()
        for one in batches:
            model(**one).last_hidden_state.pow(3).sum().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    together = gradients([batch(given, pad)])
    apart = gradients([batch([text], pad) for text in given])
    floor = max(float(g.norm()) for g in apart.values())
    for key, gradient in apart.items():
        assert (together[key] - gradient).norm() <= 1e-4 * gradient.norm() + 1e-6 * floor


# The feed-forward part a piece at a time: the same vectors, and never while training


@pytest.mark.parametrize("name", sorted(tiny.families()))
def test_pieces_give_the_same_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shrunk(tiny.families()[name])
    pad = shape.pad_token_id or 0
    model, given = network(shape), batch(texts((60, 50, 33, 7), pad), pad)
    seen: list[int] = []
    for block in model.layers:
        block.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    with torch.no_grad():
        whole = model(**given).last_hidden_state
        assert set(seen) == {150}
        monkeypatch.setattr(layers, "PIECE", 64)
        seen.clear()
        found = model(**given).last_hidden_state
    assert seen == [64, 64, 22] * shape.num_hidden_layers
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-5)


def test_dropout_is_drawn_alike_with_and_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient cache runs a batch twice with one seed."""
    monkeypatch.setattr(layers, "PIECE", 16)
    family = tiny.families()["gte"]
    changes = {"hidden_dropout_prob": 0.0}
    model = tiny.network(family, **changes).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.3
    given = batch(texts((30, 20), 0), 0)
    torch.manual_seed(1)
    with torch.no_grad():
        first = model(**given).last_hidden_state
    torch.manual_seed(1)
    torch.testing.assert_close(model(**given).last_hidden_state, first)


# Heads


def test_the_head_takes_its_arguments_in_the_order_transformers_has() -> None:
    """A mask given by place is a mask, and a trainer sees every column by its name."""
    model: Any = tiny.network(tiny.families()["bert"], head=True)
    names = list(inspect.signature(model.forward).parameters)
    assert names[:5] == ["input_ids", "attention_mask", "token_type_ids", "inputs_embeds", "labels"]
    ids, mask = torch.randint(5, 100, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[1, 4:] = 0
    by_place = model(ids, mask)
    assert by_place.loss is None
    alone = model(ids[1:, :4]).logits
    assert (by_place.logits[1:, :4] - alone).abs().max() < 1e-5
    assert torch.equal(by_place.logits, model(input_ids=ids, attention_mask=mask).logits)


# Under torch.compile: the same vectors and gradients, and no new graphs for new lengths


gradient_of_no_leaf = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
LENGTHS = (
    (30, 2, 17, 1),
    (12, 5, 17, 20),
    (9, 31, 8, 8),
    (40, 3),
    (25, 24, 23, 22, 5),
    (70, 11, 33),
    (70,) * 20,
    (70,) * 45,
)


@pytest.mark.slow
@gradient_of_no_leaf
@pytest.mark.parametrize(("name", "fused"), [("bert", False), ("bert", True), ("modernbert", False)])
def test_a_compiled_network_gives_the_same(name: str, fused: bool) -> None:
    model: Any = network(shrunk(tiny.families()[name]), seed=1)
    if fused:
        model.fuse_projections()
    given = [batch(texts(lengths, model.shape.pad_token_id), model.shape.pad_token_id) for lengths in LENGTHS]
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, dynamic=True)
    frames = []
    with torch.no_grad():
        for one in given:
            found = compiled(**one).last_hidden_state
            torch.testing.assert_close(found, model(**one).last_hidden_state, rtol=0, atol=1e-5)
            frames.append(counter.frame_count)
    assert 2 <= frames[0] < 15
    assert frames[-1] == frames[-2], frames
    model.train()
    wanted, found = _gradients(model, model, given[0]), _gradients(model, compiled, given[0])
    assert any(gradient is not None for gradient in wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def _gradients(model: Any, run: Any, given: dict[str, Any]) -> tuple[torch.Tensor | None, ...]:
    total = run(**given).last_hidden_state.square().sum()
    return torch.autograd.grad(total, [*model.parameters()], allow_unused=True)
