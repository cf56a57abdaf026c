"""A paper's GLUE as frozen data: settings, grid, selection.

A protocol: the grid of every task, and how a score comes out of its runs.

Everything that one fine-tuning run of GLUE is, as frozen data.

The choice among a grid's runs: the best cell of a task, and the MNLI model that others start from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from harness.errors import HarnessError
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
    """How the learning rate goes; `finetune.glue.trainer` computes it.

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
class ClassifierHead(Whole):
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
    head: ClassifierHead
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


@dataclass(frozen=True, kw_only=True)
class Grid(Whole):
    """The values a task is tried with, all against all."""

    learning_rates: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    weight_decays: tuple[float, ...]
    epochs: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)

    @property
    def cells(self) -> int:
        """How many combinations there are, seeds apart."""
        return len(self.learning_rates) * len(self.batch_sizes) * len(self.weight_decays) * len(self.epochs)


@dataclass(frozen=True, kw_only=True)
class Protocol(Whole):
    """How a paper fine-tunes on GLUE.

    Attributes:
        name: Of the recipe.
        source: The paper's section, and its code.
        training: What all runs have in common.
        grids: By the name of the task.
        transfer: Tasks that start from the selected MNLI model.
        selection: The grid's best cell by dev score, or no selection (one cell, mean over its seeds).
        view: Which paper's number of a task is maximized, by its name in `suites.glue`.
        final_seeds: Seeds with which the protocol itself runs the best cell once more.
        assumed: What no source says, each as a sentence.
        variants: Other readings of the same source, by name.
    """

    name: str
    source: str
    training: Training
    grids: Mapping[str, Grid]
    transfer: tuple[str, ...] = ()
    selection: Literal["best", "none"] = "best"
    view: str = "neobert"
    final_seeds: tuple[int, ...] = ()
    assumed: tuple[str, ...] = ()
    variants: Mapping[str, Protocol] = field(default_factory=dict)

    def trials(self, task: str, *, like: str = "", transfer: bool | None = None) -> tuple[Trial, ...]:
        """Every run of a task's grid, seeds innermost.

        Args:
            task: Of GLUE, or a user's own.
            like: The task of GLUE whose grid, cadence and precision it has; itself, if empty.
            transfer: Whether it starts from the MNLI model; None for what the protocol says.
        """
        grid, training = self.grids[like or task], self._training(task, like)
        starts = task in self.transfer if transfer is None else transfer
        return tuple(
            Trial(
                task=task,
                learning_rate=rate,
                batch_size=rows,
                weight_decay=decay,
                epochs=epochs,
                seed=seed,
                training=training,
                start="mnli" if starts else "backbone",
            )
            for rate, rows, decay, epochs, seed in product(
                grid.learning_rates, grid.batch_sizes, grid.weight_decays, grid.epochs, grid.seeds
            )
        )

    def _training(self, task: str, like: str) -> Training:
        """What all runs have in common, with what holds for `like` said of a user's own task."""
        if like in ("", task):
            return self.training
        asked = self.training
        steps = asked.cadence.steps
        return replace(
            asked,
            cadence=replace(asked.cadence, steps={task: steps[like]} if like in steps else {}),
            float32_tasks=(task,) if like in asked.float32_tasks else (),
        )

    @property
    def runs(self) -> int:
        """Runs of all grids, and those of `final_seeds`."""
        return sum(len(self.trials(task)) + len(self.final_seeds) for task in self.grids)


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """A run that has ended.

    Attributes:
        trial: What was run.
        score: The task's number by the protocol's own view; None if the run diverged.
        watched: The metric of early stopping, for MNLI the accuracy on the matched set; None likewise.
        constant: Whether it predicts one and the same for every row.
    """

    trial: Trial
    score: float | None
    watched: float | None
    constant: bool = False

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite."""
        return self.score is None


@dataclass(frozen=True, kw_only=True)
class _Selection:
    """What a grid gave.

    Attributes:
        chosen: The run with the best score, the first of those that share it.
        diverged: How many of them diverged.
        constant: How many predict one and the same for every row.
    """

    chosen: RunScore
    diverged: int
    constant: int

    @property
    def maximum(self) -> float:
        """The best score: chosen on the rows it is measured on, so it errs upward."""
        assert self.chosen.score is not None
        return self.chosen.score


def select(tried: Sequence[RunScore]) -> _Selection:
    """The best cell of a task's grid.

    Raises:
        HarnessError: If every run diverged.
    """
    return _by([run.score for run in tried], tried)


def select_source(tried: Sequence[RunScore]) -> _Selection:
    """The MNLI run that others start from: the highest accuracy on the matched set; errors as `select`."""
    return _by([run.watched for run in tried], tried)


def _by(values: Sequence[float | None], tried: Sequence[RunScore]) -> _Selection:
    known = [(value, -at) for at, value in enumerate(values) if value is not None]
    if not known:
        raise HarnessError(
            f"All {len(tried)} runs of the grid diverged: no loss stayed finite.",
            hint="See that the backbone is whole, or run it in float32.",
        )
    return _Selection(
        chosen=tried[-max(known)[1]],
        diverged=sum(run.diverged for run in tried),
        constant=sum(run.constant for run in tried),
    )
