"""Short sentences to train on, trainings on several devices, and some that end in the middle as if killed."""

from __future__ import annotations

from typing import Any

import pytest
from transformers.trainer_callback import CallbackHandler

from harness.jobs import training_jobs
from harness.training.training import (
    EVENTS,
    Listener,
    TrainingOutcome,
    TrainingSpec,
    _Messages,
    _train,
    run_training,
)


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


def train_in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Have jobs train in this process, without the seconds that the start of another one takes."""

    def run_here(spec: TrainingSpec, listener: Listener) -> TrainingOutcome:
        spec.folder.mkdir(parents=True, exist_ok=True)
        (spec.folder / EVENTS).write_bytes(b"")
        code = _train(spec)
        messages = _Messages(spec.folder / EVENTS)
        for message in messages.read_messages():
            listener(message)
        return messages.build_outcome(code)

    patch.setattr(training_jobs, "run_training", run_here)


def train_on_devices(spec: TrainingSpec) -> None:
    """Train to the end: on one device in this process, on several in a process for each."""
    if len(spec.devices) == 1:
        spec.recipe.train(spec)
        return
    outcome = run_training(spec, lambda _: None)
    assert outcome.code == 0, (outcome.error, (spec.folder / "output.log").read_text()[-3000:])
