"""Fine-tuning on a GPU: the losses of the CPU, half precision, and the memory of a run."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import torch
from torch import nn

import tiny
from devices import on_gpu
from finetune.glue import trainer
from finetune.glue.model import Classifier
from finetune.glue.rows import TokenizedRows
from finetune.glue.schedule import Schedule
from finetune.glue.settings import Cadence, ClassifierHead, Optimizer, Training, Trial
from finetune.glue.trainer import Evaluation, build_autocast, predict, train_classifier

WORDS = ("the", "cat", "sat", "on", "mat", "query")
TRIAL = Trial(
    task="SST-2",
    learning_rate=1e-3,
    batch_size=8,
    weight_decay=0.01,
    epochs=4,
    seed=0,
    training=Training(
        optimizer=Optimizer(betas=(0.9, 0.95), eps=1e-8),
        schedule=Schedule(name="linear"),
        max_length=32,
        autocast="float32",
        head=ClassifierHead(),
        cadence=Cadence(batches=1),
    ),
)


def rows(device: str, count: int = 64) -> TokenizedRows:
    draw = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (count,), generator=draw).tolist()
    texts = [" ".join([WORDS[label], *WORDS[2 : 3 + at % 4]]) for at, label in enumerate(labels)]
    return TokenizedRows.tokenize_rows(
        tiny.tokenizer(), [texts], labels, max_length=32, device=torch.device(device), numbers=False
    )


def trained(device: str, autocast: str = "float32") -> tuple[list[float], float]:
    """The losses of a run, and the share of its own rows that it then gets right."""
    trial = replace(TRIAL, training=replace(TRIAL.training, autocast=autocast))
    torch.manual_seed(0)
    encoder = tiny.network(tiny.families()["bert"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = Classifier(encoder, width=32, classes=2, head=ClassifierHead()).to(device)
    given = rows(device)
    context = build_autocast(torch.device(device), trial)

    def evaluate(model: nn.Module, step: int) -> Evaluation:
        said = predict(model, given, autocast=context)
        right = float((said == given.labels.cpu()).float().mean())
        return Evaluation(step=step, metrics={("dev", "accuracy"): right}, predictions={"dev": said})

    progress = train_classifier(model, given, trial, evaluate)
    return progress.losses, progress.evaluations[-1].watched


SAME = 2e-3
"""How far losses of float32 may lie apart, as a share: steps carry on what sums in another order leave."""


@on_gpu
def test_losses_are_those_of_the_cpu(device: torch.device) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    ours, _ = trained(device.type)
    theirs, _ = trained("cpu")
    assert len(ours) == len(theirs) == 32
    assert ours == pytest.approx(theirs, rel=SAME)


@pytest.mark.parametrize("autocast", ["float16", "bfloat16"])
def test_half_precision_learns_as_much(autocast: str, device: torch.device) -> None:
    """Steps that float16 leaves out at first make it one or two steps late, of 8 an epoch."""
    losses, right = trained(device.type, autocast)
    single, _ = trained(device.type)
    assert all(map(math.isfinite, losses))
    assert statistics.fmean(losses[-8:]) == pytest.approx(statistics.fmean(single[-8:]), rel=0.05)
    assert right > 0.9


@on_gpu
def test_steps_that_overflow_in_float16_are_left_out_until_the_scale_fits(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    scales: list[float] = []

    class Scaler(torch.amp.GradScaler):
        def __init__(self, device: str, *, enabled: bool) -> None:
            super().__init__(device, init_scale=2.0**24, enabled=enabled)

        def update(self, new_scale: float | torch.Tensor | None = None) -> None:
            super().update(new_scale)
            scales.append(self.get_scale())

    monkeypatch.setattr(trainer, "GradScaler", Scaler)
    losses, _ = trained(device.type, "float16")
    assert scales[0] == 2.0**23
    assert scales[-1] == scales[-8] < 2.0**20, "the scale fits in the end"
    assert all(map(math.isfinite, losses))
    assert statistics.fmean(losses[-8:]) < statistics.fmean(losses[:8])


@on_gpu
def test_memory_that_runs_out_halves_a_batch(device: torch.device) -> None:
    """A first pass that asks for more than there is; the losses are those of whole batches."""
    whole, _ = trained("cuda")
    asked = []

    class Greedy(Classifier):
        def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
            asked.append(len(inputs["input_ids"]))
            if self.training and len(inputs["input_ids"]) > 4:
                torch.empty(2**45, device="cuda")
            return super().forward(**inputs)

    torch.manual_seed(0)
    encoder = tiny.network(tiny.families()["bert"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = Greedy(encoder, width=32, classes=2, head=ClassifierHead()).to("cuda")
    nothing = Evaluation(step=0, metrics={("dev", "accuracy"): 0.0}, predictions={})
    progress = train_classifier(model, rows("cuda"), TRIAL, lambda _model, _step: nothing)
    assert progress.micro_batch == 4
    assert max(asked[1:]) == 4
    assert progress.losses == pytest.approx(whole, rel=SAME)
