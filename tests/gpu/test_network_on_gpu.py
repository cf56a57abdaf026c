"""Attention and the network on a GPU."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import plain_attention
import tiny_networks
from devices import SAME, largest_difference, on_gpu
from harness.encoder import backbones
from harness.encoder.attention.interface import Needs
from harness.encoder.attention.kernels import AUTO, BACKENDS
from harness.encoder.library_load import enable_checkpointing
from harness.encoder.network.model import EncoderModel, choose_backend
from tiny_networks import batch, means, texts

# Every attention backend of the GPU against float64 attention, forwards and backwards


LENGTHS = (700, 512, 512, 300, 129, 128, 127, 40, 33, 9, 1)
FEW = LENGTHS[4:]
"""For gradients on a CPU, whose attention has no blocks of 512: a twentieth of the scores."""
HEADS, WIDTH = 8, 64

TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
"""How far a tensor may be off, as a share of its norm."""

SLOPES = tuple(2.0 ** (-8 * (n + 1) / HEADS) for n in range(HEADS))
"""Those of the ALiBi paper, for a power of two of heads."""

LAYERS: dict[str, dict[str, Any]] = {
    "all": {},
    "window": {"window": 64},
    "narrow window": {"window": 20},
    "window wider than any text": {"window": 1000},
    "alibi": {"slopes": SLOPES},
    "partly": {"partly": True},
    "partly, window": {"partly": True, "window": 64},
    "partly, alibi": {"partly": True, "slopes": SLOPES},
}


def packed(
    groups: int, dtype: torch.dtype, device: torch.device, lengths: tuple[int, ...] = LENGTHS
) -> list[Tensor]:
    drawn = plain_attention.tokens(lengths, heads=HEADS, groups=groups, width=WIDTH)
    return [tensor.to(device, dtype).requires_grad_() for tensor in drawn]


def require(name: str, dtype: torch.dtype, needs: Needs, device: torch.device) -> None:
    reason = BACKENDS[name].explain_refusal(device, dtype, needs)
    if reason is not None:
        pytest.skip(f"{name}: {reason}")


def off(found: Tensor, expected: Tensor) -> float:
    """How far a tensor is off, as a share of its norm."""
    one, other = found.detach().double(), expected.detach().double()
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("groups", [HEADS, 2])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_computes_attention_and_its_gradients(
    name: str, layer: str, groups: int, dtype: torch.dtype, device: torch.device
) -> None:
    needs = Needs(**LAYERS[layer], head_dim=WIDTH)
    if BACKENDS[name].explain_refusal(device, dtype, replace(needs, gradients=True)) is None:
        needs = replace(needs, gradients=True)
    require(name, dtype, needs, device)
    lengths = FEW if device.type == "cpu" else LENGTHS
    seen = plain_attention.partly(lengths, 0.7).to(device) if needs.partly else None
    tensors = packed(groups, dtype, device, lengths)
    weights = plain_attention.tokens(lengths, heads=HEADS, width=WIDTH, seed=1)[0].to(device)
    expected = plain_attention.attend(*tensors, lengths, seen, needs)
    wanted = torch.autograd.grad((expected * weights).sum(), tensors)

    found = BACKENDS[name].build_layout(lengths, seen, device).compute_attention(*tensors, needs)
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    assert off(found, expected) <= TOLERANCE[dtype]
    if not needs.gradients:
        return
    gradients = torch.autograd.grad(found, tensors, weights.to(dtype))
    for one, other in zip(gradients, wanted, strict=True):
        assert off(one, other) <= 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("name", BACKENDS)
def test_queries_and_values_may_be_slices_of_one_projection(name: str, device: torch.device) -> None:
    needs = Needs(window=None if name == "efficient" else 64, head_dim=WIDTH, gradients=True)
    require(name, torch.bfloat16, needs, device)
    tensors = packed(HEADS, torch.bfloat16, device)
    fused = torch.stack(tensors, dim=1).detach().requires_grad_()
    layout = BACKENDS[name].build_layout(LENGTHS, None, device)
    expected = layout.compute_attention(*tensors, needs)
    found = layout.compute_attention(*fused.unbind(1), needs)
    assert off(found, expected) <= 1e-3
    (gradient,) = torch.autograd.grad(found.float().pow(2).sum(), [fused])
    wanted = torch.autograd.grad(expected.float().pow(2).sum(), tensors)
    assert off(gradient, torch.stack(wanted, dim=1)) <= 1e-2


@pytest.mark.parametrize("name", BACKENDS)
def test_a_text_does_not_see_its_neighbours(name: str, device: torch.device) -> None:
    needs = Needs(head_dim=WIDTH)
    require(name, torch.float16, needs, device)
    tensors = [tensor.detach() for tensor in packed(HEADS, torch.float16, device)]
    layout = BACKENDS[name].build_layout(LENGTHS, None, device)
    before = layout.compute_attention(*tensors, needs)
    for tensor in tensors:
        tensor[: LENGTHS[0]] *= 2
    after = layout.compute_attention(*tensors, needs)
    assert not torch.equal(after[: LENGTHS[0]], before[: LENGTHS[0]])
    assert torch.equal(after[LENGTHS[0] :], before[LENGTHS[0] :])


@pytest.mark.parametrize("name", BACKENDS)
def test_no_text_at_all_is_no_error_on_a_gpu(name: str, device: torch.device) -> None:
    tensors = [tensor.to(device, torch.float16) for tensor in plain_attention.tokens((), width=WIDTH)]
    assert BACKENDS[name].build_layout((), None, device).compute_attention(*tensors, Needs()).shape == (
        0,
        4,
        WIDTH,
    )


SHARE = 0.25
"""The share of attention that is dropped; a whole number of 256ths, which FlashAttention draws."""


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("layer", ["all", "window", "partly", "alibi", "partly, window"])
@pytest.mark.parametrize("name", BACKENDS)
def test_dropped_attention_has_the_moments_of_its_share(
    name: str, layer: str, dtype: torch.dtype, device: torch.device
) -> None:
    needs = Needs(**LAYERS[layer], head_dim=WIDTH, dropout=SHARE, gradients=True)
    require(name, dtype, needs, device)
    seen = plain_attention.partly(LENGTHS, 0.7).to(device) if needs.partly else None
    zeros, value, weights = (tensor.detach().to(dtype) for tensor in packed(HEADS, torch.float32, device))
    zeros, value = torch.zeros_like(zeros), value.requires_grad_()
    # With queries of 0 the weights without dropout are the same for every query, but for ALiBi's.
    layout = BACKENDS[name].build_layout(LENGTHS, seen, device)
    kept = layout.compute_attention(zeros, zeros, torch.ones_like(value), needs).detach().double()[..., 0]
    shares = plain_attention.weights_squared(HEADS, LENGTHS, None if seen is None else seen.cpu(), needs).to(
        device
    )
    blind = shares == 0
    excess = torch.where(blind, 0.0, kept - 1)
    variance = shares * SHARE / (1 - SHARE)
    assert abs(float(excess.sum())) <= 6 * float(variance.sum()) ** 0.5 + 2e-3 * excess.numel()
    assert 0.8 <= float(excess.square().sum() / variance.sum()) <= 1.25

    # Results are linear in values, so both sums are equal if the gradient dropped the same weights.
    found = layout.compute_attention(zeros, zeros, value, needs)
    (gradient,) = torch.autograd.grad(found, [value], weights)
    forwards, backwards = (
        (found.detach().double() * weights).sum(),
        (gradient.double() * value.detach()).sum(),
    )
    assert float((forwards - backwards).abs()) <= TOLERANCE[dtype] * float(found.detach().double().norm())
    again = layout.compute_attention(zeros, zeros, value, needs)
    assert not torch.equal(again, found)


@on_gpu
def test_what_is_chosen_on_this_gpu(device: torch.device) -> None:
    def chosen(dtype: torch.dtype, needs: Needs) -> str:
        return choose_backend(device, dtype, needs)[0].name

    assert chosen(torch.float32, Needs(dropout=0.1, gradients=True)) == "efficient"
    assert chosen(torch.float32, Needs(window=64)) == "sdpa"
    assert chosen(torch.bfloat16, Needs(slopes=SLOPES, gradients=True)) in ("flash", "sdpa")
    if torch.cuda.get_device_capability(device) >= (8, 0):
        assert chosen(torch.bfloat16, Needs()) == "varlen"
        assert chosen(torch.float16, Needs(window=64)) == "varlen"
        assert chosen(torch.bfloat16, Needs(window=64, dropout=0.1, gradients=True)) == "varlen"


# The network on a GPU: the same vectors in any batch, on every backend, in every dtype


HALVES = (torch.bfloat16, torch.float16)
OF_TEXTS = (250, 180, 180, 64, 33, 20, 12, 5, 1)
FAMILIES = {
    name: entry.family
    for name, entry in backbones.list_backbones().items()
    if entry.family is not None and entry.family.shape is not None and entry.family.sizes
}


def network(name: str, device: torch.device, **changes: Any) -> EncoderModel:
    """A tiny network of a family in float32, with heads that every backend takes."""
    shape = tiny_networks.shrunk(FAMILIES[name], head_dim=32)
    return tiny_networks.network(replace(shape, **changes)).to(device)


def half(model: EncoderModel, dtype: torch.dtype) -> EncoderModel:
    return copy.deepcopy(model).to(dtype)


def moved(given: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in given.items()}


def arrangements(given: list[Tensor], pad: int, device: torch.device) -> dict[str, Any]:
    """The means of texts by how they come: alone, together, in another order with more padding."""

    def alone(model: EncoderModel) -> Tensor:
        return torch.cat([means(model, moved(batch([text], pad), device)) for text in given])

    def together(model: EncoderModel) -> Tensor:
        return means(model, moved(batch(given, pad), device))

    def turned(model: EncoderModel) -> Tensor:
        return means(model, moved(batch(given[::-1], pad, columns=256, left=True), device)).flip(0)

    return {"alone": alone, "together": together, "turned": turned}


def padded_error(
    model: EncoderModel, given: list[Tensor], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Means in float32, and how far half precision is off where padding is computed, with SDPA."""
    whole = moved(batch(given, model.shape.pad_token_id), device)
    computed = {**whole, "compute_mask": torch.ones_like(whole["input_ids"])}
    rounded = half(model, dtype)
    rounded.attention_asked = "sdpa"
    expected = means(model, whole)
    return expected, (means(rounded, computed) - expected).abs().max()


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_a_text_has_the_same_vector_in_any_batch_in_float32(name: str, device: torch.device) -> None:
    model = network(name, device)
    given = texts(OF_TEXTS, model.shape.pad_token_id)
    found = [run(model) for run in arrangements(given, model.shape.pad_token_id, device).values()]
    assert all(largest_difference(other, found[0]) <= SAME for other in found[1:])


@torch.no_grad()
@pytest.mark.parametrize("asked", [AUTO, *BACKENDS])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_half_precision_is_no_further_off_than_twice_what_padding_is(
    name: str, dtype: torch.dtype, asked: str, device: torch.device
) -> None:
    model = network(name, device)
    given = texts(OF_TEXTS, model.shape.pad_token_id)
    expected, error = padded_error(model, given, dtype, device)
    rounded = half(model, dtype)
    rounded.attention_asked = asked
    found = {how: run(rounded) for how, run in arrangements(given, model.shape.pad_token_id, device).items()}
    if rounded.notes:
        pytest.skip(rounded.notes[0])
    for one in found.values():
        assert (one - expected).abs().max() <= 2 * error
        assert (one - found["alone"]).abs().max() <= 2 * error


@on_gpu
@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_a_network_on_the_gpu_is_the_one_on_the_cpu(name: str, device: torch.device) -> None:
    model = network(name, device)
    given = batch(texts(OF_TEXTS, model.shape.pad_token_id), model.shape.pad_token_id)
    found = means(model, moved(given, device)).cpu()
    assert largest_difference(found, means(copy.deepcopy(model).cpu(), given)) <= SAME


@torch.no_grad()
@pytest.mark.parametrize("name", FAMILIES)
def test_expansion_tokens_have_the_same_vectors_in_any_batch(name: str, device: torch.device) -> None:
    model = network(name, device)
    pad = model.shape.pad_token_id
    queries = moved(batch(texts((40, 33, 20, 6, 1), pad), 4 + (pad == 4)), device)
    together = model(**queries).last_hidden_state
    for n in range(len(together)):
        one = {field: values[n : n + 1] for field, values in queries.items()}
        assert largest_difference(model(**one).last_hidden_state[0], together[n]) <= SAME
    chosen, usual = half(model, torch.bfloat16), half(model, torch.bfloat16)
    usual.attention_asked = "sdpa"
    error, bar = ((m(**queries).last_hidden_state - together).norm() for m in (chosen, usual))
    assert error <= 2 * bar


def gradients(model: EncoderModel, given: dict[str, Tensor]) -> dict[str, Tensor]:
    found = model(**given).last_hidden_state.double()
    weights = torch.linspace(-1, 1, found.shape[-1], device=found.device)
    ((found * weights).sum(dim=-1) ** 2).mean().backward()
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


def apart(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """How far all gradients together are off, as a share of their norm."""
    difference = torch.cat([(found[name] - expected[name]).flatten() for name in expected])
    return float(difference.norm() / torch.cat([g.flatten() for g in expected.values()]).norm())


@pytest.mark.parametrize("asked", [AUTO, *BACKENDS])
@pytest.mark.parametrize("name", ["bert", "modernbert", "mosaicbert"])
def test_gradients_are_no_further_off_than_twice_those_of_sdpa(
    name: str, asked: str, device: torch.device
) -> None:
    model = network(name, device)
    given = moved(batch(texts(OF_TEXTS, model.shape.pad_token_id), model.shape.pad_token_id), device)
    expected = gradients(copy.deepcopy(model), given)
    usual, tested = half(model, torch.bfloat16), half(model, torch.bfloat16)
    usual.attention_asked, tested.attention_asked = "sdpa", asked
    found = gradients(tested, given)
    if tested.notes:
        pytest.skip(tested.notes[0])
    assert apart(found, expected) <= 2 * apart(gradients(usual, given), expected)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["bert", "modernbert", "mosaicbert"])
def test_checkpointing_changes_no_gradient_on_a_gpu(name: str, reentrant: bool, device: torch.device) -> None:
    model = half(network(name, device), torch.bfloat16).train()
    given = moved(batch(texts(OF_TEXTS, model.shape.pad_token_id), model.shape.pad_token_id), device)
    expected = gradients(copy.deepcopy(model), given)
    again = copy.deepcopy(model)
    enable_checkpointing(again, reentrant=reentrant)
    assert apart(gradients(again, given), expected) <= 1e-2


def test_autocast_computes_attention_in_half_precision(device: torch.device) -> None:
    model = network("modernbert", device)
    given = moved(batch(texts(OF_TEXTS, model.shape.pad_token_id), model.shape.pad_token_id), device)
    expected = model(**given).last_hidden_state
    assert model.attention_as_run in ("efficient+sdpa", "sdpa")
    with torch.autocast(device.type, torch.bfloat16):
        found = model(**given).last_hidden_state
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        assert model.attention_as_run in ("varlen", "flash")
    assert (found - expected).norm() <= 0.05 * expected.norm()
    found.float().pow(2).sum().backward()


@on_gpu
@pytest.mark.parametrize("name", ["bert", "modernbert", "neobert"])
def test_every_layer_of_a_family_without_bias_runs_on_the_varlen_kernel(
    name: str, device: torch.device
) -> None:
    model = half(network(name, device), torch.bfloat16)
    model.attention_asked = "varlen"
    with torch.inference_mode():
        model(**moved(batch(texts(OF_TEXTS, model.shape.pad_token_id), model.shape.pad_token_id), device))
    if model.notes:
        pytest.skip(model.notes[0])
    assert model.attention_as_run == "varlen"
