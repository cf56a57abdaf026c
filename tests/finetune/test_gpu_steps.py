"""What a GPU's steps need, on the CPU: batches ahead of their steps, and the sizes of passes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Condition, Lock

import numpy as np
import pytest
import torch

from finetune import gpu_steps
from finetune.gpu_steps import AHEAD, GPUMemory, PassSize
from harness.encoder.batches import iterate_ahead


def slow(count: int, taken: list[int]) -> Iterator[int]:
    for number in range(1, count + 1):
        time.sleep(0.05)
        taken.append(number)
        yield number


def test_batches_are_made_while_steps_run() -> None:
    """No step ends before the batches of the next ones are made."""
    steps, made, moved = [], list[int](), Condition()

    def make() -> Iterator[int]:
        for number in range(1, 21):
            with moved:
                made.append(number)
                moved.notify_all()
            yield number

    for number in iterate_ahead(make(), AHEAD, Lock()):
        with moved:
            assert moved.wait_for(lambda: len(made) >= min(20, number + AHEAD), 60)  # noqa: B023
        steps.append(number)
    assert steps == made == list(range(1, 21))


def test_few_batches_are_made_ahead_and_none_after_the_end() -> None:
    taken: list[int] = []
    batches = iterate_ahead(slow(100, taken), AHEAD, Lock())
    assert next(batches) == 1
    while len(taken) < 1 + AHEAD:
        time.sleep(0.01)
    time.sleep(0.2)
    assert len(taken) == 1 + AHEAD
    batches.close()  # type: ignore[attr-defined]
    after = len(taken)
    time.sleep(0.2)
    assert len(taken) == after <= 2 + AHEAD


def test_an_error_in_a_batch_is_that_of_its_step() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("a bad row")

    batches = iterate_ahead(broken(), AHEAD, Lock())
    assert next(batches) == 1
    with pytest.raises(ValueError, match="a bad row"):
        next(batches)


def test_no_batch_is_made_while_the_lock_is_held() -> None:
    taken: list[int] = []
    lock = Lock()
    batches = iterate_ahead(slow(100, taken), AHEAD, lock)
    next(batches)
    with lock:
        before = len(taken)
        time.sleep(0.2)
        assert len(taken) == before


def sized(
    monkeypatch: pytest.MonkeyPatch, *, free: int, least: int = 16, most: int | None = None
) -> PassSize:
    """Sizes after a step with passes of `least` texts of 10 tokens that took 1,600 bytes."""
    states = iter([GPUMemory(1_000, 1_000, 0), GPUMemory(1_500, 3_100, free)])
    monkeypatch.setattr(gpu_steps, "read_gpu_memory", lambda: next(states))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    sizes = PassSize(least, most)
    lengths = [np.full(64, 10)]
    assert sizes.choose_rows(lengths) == least
    with sizes.measure_first_step(lengths):
        pass
    return sizes


def test_the_size_of_passes_follows_from_memory_and_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 bytes a token; of 15,000 free ones 1,000 are for AdamW's moments, and 0.7 of the rest for a pass."""
    sizes = sized(monkeypatch, free=15_000)
    assert sizes.tokens == 512
    assert sizes.choose_rows([np.full(64, 2), np.full(64, 4)]) is None, "384 tokens in all"
    assert sizes.choose_rows([np.full(64, 2), np.full(64, 8)]) == 64, "at most 512 in a column"
    assert sizes.choose_rows([np.full(60, 9)]) == 32
    assert sizes.choose_rows([np.full(64, 100)]) == 16, "the recipe's, though it has more tokens"
    uneven = np.array([500, *[1] * 63])
    assert sizes.choose_rows([uneven, uneven]) == 16, "500 + 15 are more, and the recipe's is the least"


def test_rows_that_did_not_fit_are_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sized(monkeypatch, free=10**9, most=32)
    assert sizes.choose_rows([np.full(64, 1)]) == 32
    assert sized(monkeypatch, free=10**9, least=4, most=4).choose_rows([np.full(64, 1)]) == 4
