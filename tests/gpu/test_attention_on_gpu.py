"""Every attention backend of the GPU against float64 attention, forwards and backwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import plain_attention
from harness.encoder.attention.interface import Needs
from harness.encoder.attention.kernels import BACKENDS, choose
from harness.encoder.network.layers import _slopes

pytestmark = pytest.mark.gpu

DEVICE = torch.device("cuda")
LENGTHS = (700, 512, 512, 300, 129, 128, 127, 40, 33, 9, 1)
HEADS, WIDTH = 8, 64

TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}
"""How far a tensor may be off, as a share of its norm."""

LAYERS: dict[str, dict[str, Any]] = {
    "all": {},
    "window": {"window": 64},
    "narrow window": {"window": 20},
    "window wider than any text": {"window": 1000},
    "alibi": {"slopes": _slopes(HEADS)},
    "partly": {"partly": True},
    "partly, window": {"partly": True, "window": 64},
    "partly, alibi": {"partly": True, "slopes": _slopes(HEADS)},
}


@pytest.fixture(autouse=True)
def few_compilations() -> Iterator[None]:
    """Each test compiles for itself, so that none runs into the limit."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def packed(groups: int, dtype: torch.dtype) -> list[Tensor]:
    drawn = plain_attention.tokens(LENGTHS, heads=HEADS, groups=groups, width=WIDTH)
    return [tensor.to(DEVICE, dtype).requires_grad_() for tensor in drawn]


def require(name: str, dtype: torch.dtype, needs: Needs) -> None:
    reason = BACKENDS[name].refusal(DEVICE, dtype, needs)
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
    name: str, layer: str, groups: int, dtype: torch.dtype
) -> None:
    needs = Needs(**LAYERS[layer], head_dim=WIDTH)
    require(name, dtype, needs)
    seen = plain_attention.partly(LENGTHS, 0.7).to(DEVICE) if needs.partly else None
    tensors = packed(groups, dtype)
    weights = plain_attention.tokens(LENGTHS, heads=HEADS, width=WIDTH, seed=1)[0].to(DEVICE)
    expected = plain_attention.attend(*tensors, LENGTHS, seen, needs)
    wanted = torch.autograd.grad((expected * weights).sum(), tensors)

    found = BACKENDS[name].layout(LENGTHS, seen, DEVICE).attend(*tensors, needs)
    assert (found.dtype, found.shape) == (dtype, expected.shape)
    assert off(found, expected) <= TOLERANCE[dtype]
    gradients = torch.autograd.grad(found, tensors, weights.to(dtype))
    for one, other in zip(gradients, wanted, strict=True):
        assert off(one, other) <= 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("name", BACKENDS)
def test_queries_and_values_may_be_slices_of_one_projection(name: str) -> None:
    needs = Needs(window=64, head_dim=WIDTH)
    require(name, torch.bfloat16, needs)
    tensors = packed(HEADS, torch.bfloat16)
    fused = torch.stack(tensors, dim=1).detach().requires_grad_()
    layout = BACKENDS[name].layout(LENGTHS, None, DEVICE)
    expected = layout.attend(*tensors, needs)
    found = layout.attend(*fused.unbind(1), needs)
    assert off(found, expected) <= 1e-3
    (gradient,) = torch.autograd.grad(found.float().pow(2).sum(), [fused])
    wanted = torch.autograd.grad(expected.float().pow(2).sum(), tensors)
    assert off(gradient, torch.stack(wanted, dim=1)) <= 1e-2


@pytest.mark.parametrize("name", BACKENDS)
def test_a_text_does_not_see_its_neighbours(name: str) -> None:
    needs = Needs(head_dim=WIDTH)
    require(name, torch.float16, needs)
    tensors = [tensor.detach() for tensor in packed(HEADS, torch.float16)]
    layout = BACKENDS[name].layout(LENGTHS, None, DEVICE)
    before = layout.attend(*tensors, needs)
    for tensor in tensors:
        tensor[: LENGTHS[0]] *= 2
    after = layout.attend(*tensors, needs)
    assert not torch.equal(after[: LENGTHS[0]], before[: LENGTHS[0]])
    assert torch.equal(after[LENGTHS[0] :], before[LENGTHS[0] :])


@pytest.mark.parametrize("name", BACKENDS)
def test_no_text_at_all_is_no_error_on_a_gpu(name: str) -> None:
    tensors = [tensor.to(DEVICE, torch.float16) for tensor in plain_attention.tokens((), width=WIDTH)]
    assert BACKENDS[name].layout((), None, DEVICE).attend(*tensors, Needs()).shape == (0, 4, WIDTH)


def test_flash_attn_drops_attention() -> None:
    needs = Needs(dropout=0.5, head_dim=WIDTH)
    require("flash", torch.bfloat16, needs)
    tensors = packed(HEADS, torch.bfloat16)
    layout = BACKENDS["flash"].layout(LENGTHS, None, DEVICE)
    assert not torch.equal(layout.attend(*tensors, needs), layout.attend(*tensors, needs))


def test_flex_compiles_once_for_texts_of_all_lengths() -> None:
    from torch._dynamo.utils import counters

    needs = Needs(slopes=_slopes(HEADS), head_dim=WIDTH)
    require("flex", torch.bfloat16, needs)
    counters.clear()
    for lengths in ((700, 300, 5), (400, 30), (1000,), (513, 20, 20, 1)):
        drawn = plain_attention.tokens(lengths, heads=HEADS, groups=HEADS, width=WIDTH)
        tensors = [tensor.to(DEVICE, torch.bfloat16) for tensor in drawn]
        with torch.no_grad():
            found = BACKENDS["flex"].layout(lengths, None, DEVICE).attend(*tensors, needs)
        expected = plain_attention.attend(*tensors, lengths, None, needs)
        assert off(found, expected) <= TOLERANCE[torch.bfloat16]
    assert counters["stats"]["unique_graphs"] == 1


def test_what_is_chosen_on_this_gpu() -> None:
    def chosen(dtype: torch.dtype, needs: Needs) -> str:
        return choose(DEVICE, dtype, needs)[0].name

    assert chosen(torch.float32, Needs()) == "sdpa"
    assert chosen(torch.bfloat16, Needs(slopes=_slopes(HEADS))) in ("flash", "flex")
    if torch.cuda.get_device_capability(DEVICE) >= (8, 0):
        assert chosen(torch.bfloat16, Needs()) == "varlen"
        assert chosen(torch.float16, Needs(window=64)) == "varlen"
