from __future__ import annotations

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from finetune.glue.trainer import _linear, _neobert


@pytest.mark.parametrize(("steps", "warmup"), [(50, 3), (100, 0), (7, 2), (1, 0), (20, 20)])
def test_linear_is_that_of_transformers(steps: int, warmup: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_linear_schedule_with_warmup(optimizer, warmup, steps).lr_lambdas[0]
    for step in range(steps + 1):
        assert _linear(step, steps=steps, warmup=warmup / steps) == pytest.approx(theirs(step))


def test_neobert_by_hand() -> None:
    """100 steps: 6 of warmup, the plateau from 90 on."""
    found = [_neobert(step, steps=100, warmup=0.06) for step in range(100)]
    assert found[0] == pytest.approx(1e-4)
    assert found[3] == pytest.approx(1e-4 + 0.9999 / 2)
    assert found[6] == 1.0
    assert found[46] == pytest.approx(1 - 0.9 * 40 / 90)
    assert found[89] == pytest.approx(1 - 0.9 * 83 / 90)
    assert found[90:] == [0.1] * 10


def test_the_warmup_is_rounded_up() -> None:
    assert _linear(6, steps=101, warmup=0.06) < 1
    assert _linear(7, steps=101, warmup=0.06) == 1
    assert _neobert(7, steps=101, warmup=0.06) == 1
