"""Under torch.compile: the same vectors and gradients, and no new graphs for new lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tiny
from tiny_networks import batch, network, shrunk, texts

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

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


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_compiled_network_gives_the_same(name: str) -> None:
    model: Any = network(shrunk(tiny.families()[name]), seed=1)
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
