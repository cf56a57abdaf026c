"""Short sentences to train on, and trainings that end in the middle of a step as if they were killed."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.trainer_callback import CallbackHandler

from harness.training.training import TrainingSpec


def sentence(number: int) -> str:
    """A short sentence; no two of the first ten thousand are equal."""
    words = ["cat", "sat", "mat", "query", *"abcdefgh"]
    return " ".join(["the", *(words[(number * 31 + at) % 12] for at in range(number % 7)), str(number)])


class Killed(BaseException):
    """A kill in the middle of a training, as far as a process can do that to itself."""


def kill_at(spec: TrainingSpec, step: int) -> None:
    """Train until a step is done, and end there without a word."""
    end = CallbackHandler.on_step_end

    def die(own: CallbackHandler, args: Any, state: Any, control: Any) -> Any:
        if state.global_step >= step:
            raise Killed
        return end(own, args, state, control)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallbackHandler, "on_step_end", die)
        with pytest.raises(Killed):
            spec.recipe.train(spec)
