"""The learning-rate schedules of GLUE against transformers, Composer's words, and NeoBERT by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from finetune.glue.schedule import Schedule


@pytest.mark.parametrize(("steps", "warmup"), [(50, 3), (100, 0), (7, 2), (1, 0), (20, 20)])
def test_linear_is_that_of_transformers(steps: int, warmup: int) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_linear_schedule_with_warmup(optimizer, warmup, steps).lr_lambdas[0]
    for step in range(steps + 1):
        assert Schedule(name="linear", warmup=warmup / steps).compute_factor(
            step, steps=steps
        ) == pytest.approx(theirs(step))


def test_composer_is_one_step_late_and_rounds_the_warmup_down() -> None:
    """LinearWithWarmupScheduler of Composer, which is stepped before the time of the batch is counted."""
    steps, warm = 77, 7  # int(0.1 * 77)

    def by_its_time(batch: int) -> float:
        return batch / warm if batch < warm else 1 - (batch - warm) / (steps - warm)

    made = [Schedule(name="composer", warmup=0.1).compute_factor(step, steps=steps) for step in range(steps)]
    assert made == pytest.approx([by_its_time(max(0, step - 1)) for step in range(steps)])
    assert Schedule(name="composer", warmup=0.1).compute_factor(0, steps=1) == 1.0


def test_neobert_by_hand() -> None:
    """100 steps: 6 of warmup, the plateau from 90 on."""
    found = [Schedule(name="neobert", warmup=0.06).compute_factor(step, steps=100) for step in range(100)]
    assert found[0] == pytest.approx(1e-4)
    assert found[3] == pytest.approx(1e-4 + 0.9999 / 2)
    assert found[6] == 1.0
    assert found[46] == pytest.approx(1 - 0.9 * 40 / 90)
    assert found[89] == pytest.approx(1 - 0.9 * 83 / 90)
    assert found[90:] == [0.1] * 10


def test_the_warmup_is_rounded_up() -> None:
    assert Schedule(name="linear", warmup=0.06).compute_factor(6, steps=101) < 1
    assert Schedule(name="linear", warmup=0.06).compute_factor(7, steps=101) == 1
    assert Schedule(name="neobert", warmup=0.06).compute_factor(7, steps=101) == 1
