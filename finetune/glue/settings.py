"""Everything that one fine-tuning run of GLUE is, as frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.identity import Whole
from harness.types import Dtype


@dataclass(frozen=True, kw_only=True)
class Optimizer(Whole):
    """AdamW.

    Attributes:
        betas: Of the two moments.
        eps: Added to the root of the second.
        decay: What a weight decay means. "torch": a step multiplies weights by 1 - lr * decay.
            "composer": by 1 - lr / peak lr * decay, so it does not shrink with the learning rate.
        undecayed: Parameters with one of these in their names, as their authors call them, are not
            decayed.
    """

    betas: tuple[float, float]
    eps: float
    decay: Literal["torch", "composer"] = "torch"
    undecayed: tuple[str, ...] = ()

    def torch_decay(self, weight_decay: float, learning_rate: float) -> float:
        """The decay that means the same to torch's AdamW.

        >>> round(Optimizer(betas=(0.9, 0.98), eps=1e-6, decay="composer").torch_decay(5e-6, 5e-5), 6)
        0.1
        """
        return weight_decay / learning_rate if self.decay == "composer" else weight_decay


@dataclass(frozen=True, kw_only=True)
class Schedule(Whole):
    """How the learning rate goes; `finetune.schedules` computes it.

    Attributes:
        name: "linear": up to the peak, then down to 0. "neobert": up from 1e-4 of the peak, slowly
            down to about 0.16 of it, and 0.1 of it for the last tenth of the steps.
        warmup: Share of the steps until the peak.
    """

    name: Literal["linear", "neobert"]
    warmup: float = 0.06


@dataclass(frozen=True, kw_only=True)
class Dropout(Whole):
    """Shares dropped in the encoder; None leaves what the checkpoint's config says."""

    embedding: float | None = None
    attention: float | None = None
    attention_out: float | None = None
    mlp: float | None = None
    mlp_out: float | None = None


@dataclass(frozen=True, kw_only=True)
class Head(Whole):
    """From the token vectors to the scores: pooling, dropout, dense, activation, dropout, linear.

    Attributes:
        pooling: The first token, or the mean of all.
        dense: Where the dense layer's weights come from: drawn anew, from the backbone's pooler, or
            from the dense layer of its masked-language head; anew where it has none.
        dense_bias: Whether it has a bias.
        activation: Behind it.
        dropout_before: Share dropped before it.
        dropout: Share dropped before the linear layer.
        initializer_range: Standard deviation of fresh weights.
    """

    pooling: Literal["first", "mean"] = "first"
    dense: Literal["fresh", "pooler", "mlm"] = "fresh"
    dense_bias: bool = True
    activation: Literal["tanh", "gelu"] = "tanh"
    dropout_before: float = 0.0
    dropout: float = 0.0
    initializer_range: float = 0.02


@dataclass(frozen=True, kw_only=True)
class Cadence(Whole):
    """How many steps lie between two evaluations.

    The smallest of what is given here, and at least 1; a run always ends with one.

    Attributes:
        steps: By the name of the task.
        at_most: Steps of any task.
        full_batches: Share of an epoch's full batches.
        batches: Share of an epoch's batches, its last small one among them.
        places: Share of the places in an epoch's batches, taken as steps (NeoBERT's code counts those).
    """

    steps: Mapping[str, int] = field(default_factory=dict)
    at_most: int | None = None
    full_batches: float | None = None
    batches: float | None = None
    places: float | None = None

    def every(self, task: str, *, rows: int, batch_size: int) -> int:
        """Steps from one evaluation to the next.

        >>> Cadence(at_most=1000, full_batches=1, places=0.1).every("RTE", rows=2490, batch_size=16)
        155
        """
        batches = math.ceil(rows / batch_size)
        shares = (
            (self.full_batches, rows // batch_size),
            (self.batches, batches),
            (self.places, batches * batch_size),
        )
        found = [int(share * of) for share, of in shares if share is not None]
        found += [steps for steps in (self.steps.get(task), self.at_most) if steps is not None]
        return max(1, min(found, default=batches))


@dataclass(frozen=True, kw_only=True)
class Stopping(Whole):
    """When a run ends early, and which of its evaluations counts.

    Attributes:
        patience: Evaluations without a new best before it ends; None for never.
        counts: The best evaluation, or that at the end.
    """

    patience: int | None = None
    counts: Literal["best", "last"] = "last"


@dataclass(frozen=True, kw_only=True)
class Training(Whole):
    """What all runs of a protocol have in common, up to `float32_tasks`.

    Attributes:
        optimizer: With the meaning of its decay.
        schedule: Of the learning rate.
        max_length: Tokens of an input, special ones included.
        autocast: The dtype of autocast; float32 for none.
        float32_tasks: Tasks that run without autocast.
        dropout: Of the encoder.
        head: Behind it.
        clip: The norm that gradients are scaled down to; None for no clipping.
        shuffled: Whether rows are drawn in a new order in each epoch.
        cadence: Of evaluations.
        stopping: And what they do.
    """

    optimizer: Optimizer
    schedule: Schedule
    max_length: int
    autocast: Dtype
    float32_tasks: tuple[str, ...] = ()
    dropout: Dropout = Dropout()
    head: Head
    clip: float | None = None
    shuffled: bool = True
    cadence: Cadence
    stopping: Stopping = Stopping()


@dataclass(frozen=True, kw_only=True)
class Trial(Whole):
    """One run: a cell of a task's grid with a seed.

    Attributes:
        task: Name of a GLUE task, or of the user's own.
        learning_rate: At its peak.
        batch_size: Rows of one optimizer step.
        weight_decay: As the protocol prints it; `Training.optimizer` says what it means.
        epochs: Passes over the training rows.
        seed: Of the head, the order of rows, and dropout.
        training: Everything else.
        start: Whether it starts from the protocol's selected MNLI model.
    """

    task: str
    learning_rate: float
    batch_size: int
    weight_decay: float
    epochs: int
    seed: int
    training: Training
    start: Literal["backbone", "mnli"] = "backbone"

    @property
    def autocast(self) -> Dtype:
        """The dtype of autocast in this run; float32 for none."""
        return "float32" if self.task in self.training.float32_tasks else self.training.autocast

    def steps(self, rows: int) -> int:
        """Optimizer steps; an epoch's last batch may be a small one."""
        return self.epochs * math.ceil(rows / self.batch_size)
