"""A paper's GLUE as frozen data, and what a user may change of it.

The data are the settings of a run, the grid of each task, and the selection among runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Interval

from finetune.glue.schedule import Schedule
from harness.core.arguments import Form, Seed, Tokens, replace_settings, split_settings
from harness.core.errors import UsageError
from harness.core.keys import AlwaysHashed
from harness.core.types import DTYPES, Dtype

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Optimizer(AlwaysHashed):
    """The AdamW optimizer.

    Attributes:
        betas: AdamW's decay rates of the two moments.
        eps: Added to the root of the second moment.
        decay: The meaning of weight decay. "torch": a step multiplies weights by 1 - lr * decay. "composer",
            as MosaicML's library Composer: by 1 - lr / peak lr * decay.
        undecayed: Parameters with any of these in their names are not decayed: names of the published
            checkpoint, and of the head, whose biases end in `.bias`; none for decay of all parameters.
    """

    betas: tuple[float, float]
    eps: float
    decay: Literal["torch", "composer"] = "torch"
    undecayed: tuple[str, ...] = ()

    def convert_decay(self, weight_decay: float, learning_rate: float) -> float:
        """The weight decay that means the same to torch's AdamW.

        >>> round(Optimizer(betas=(0.9, 0.98), eps=1e-6, decay="composer").convert_decay(5e-6, 5e-5), 6)
        0.1
        """
        return weight_decay / learning_rate if self.decay == "composer" else weight_decay


@dataclass(frozen=True, kw_only=True)
class Dropout(AlwaysHashed):
    """Dropout probabilities in the encoder; none leaves that of the checkpoint's config.

    Attributes:
        embedding: Of the embeddings, behind their norm; none for the config's, which --model shows.
        attention: Of attention weights; none for the config's, which --model shows.
        attention_out: Of what the projection of attention gives; none for the config's, which --model shows.
        mlp: Of the feed-forward layer's activated inner values; none for the config's, which --model shows.
        mlp_out: Of what the feed-forward layer gives; none for the config's, which --model shows.
    """

    embedding: float | None = None
    attention: float | None = None
    attention_out: float | None = None
    mlp: float | None = None
    mlp_out: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClassifierHead(AlwaysHashed):
    """The layers from token vectors to scores: pooling, dropout, dense, activation, dropout, linear; no norm.

    The linear layer has a bias. Fresh biases are 0.

    Attributes:
        pooling: The first token, or the mean of all.
        dense: The source of the dense layer's weights: fresh, the backbone's pooler, or the dense layer of
            its masked-language head; fresh where the backbone has none, as --model shows.
        dense_bias: Whether the dense layer has a bias.
        activation: The activation after the dense layer; "gelu" is that with erf.
        dropout_before: Probability of the dropout before the dense layer.
        dropout: Probability of the dropout before the linear layer.
        initializer_range: Standard deviation of a fresh dense layer, and of the last one if that is "normal".
        last: The distribution of the last layer's weights: "normal" with `initializer_range`; "megatron", of
            standard deviation width^-0.5 and cut at twice that.
        library: Whether transformers' own class for classification is trained, if it has one for the
            backbone, with the head and dropouts of that class; the other settings of the head then hold only
            for other backbones.
    """

    pooling: Literal["first", "mean"] = "first"
    dense: Literal["fresh", "pooler", "mlm"] = "fresh"
    dense_bias: bool = True
    activation: Literal["tanh", "gelu"] = "tanh"
    dropout_before: float = 0.0
    dropout: float = 0.0
    initializer_range: float = 0.02
    last: Literal["normal", "megatron"] = field(default="normal", metadata={"later": True})
    library: bool = field(default=False, metadata={"later": True})

    @property
    def inert(self) -> frozenset[str]:
        """The name of `library` where it is not set."""
        return frozenset() if self.library else frozenset({"library"})


@dataclass(frozen=True, kw_only=True)
class Cadence(AlwaysHashed):
    """The steps between two evaluations.

    Of n rows in batches of b, with the limits that are set: max(1, min(steps, at_most, floor(full_batches *
    floor(n / b)), floor(batches * ceil(n / b)), floor(places * ceil(n / b) * b))). Steps are counted through
    all epochs. The end of a run is evaluated too if the last evaluation counts, or if there was none before.

    Attributes:
        steps: The most steps between two evaluations, by the name of the task.
        at_most: The most steps between two evaluations, for every task.
        full_batches: The most steps between two evaluations: this times the full batches of an epoch.
        batches: The most steps between two evaluations: this times all batches of an epoch.
        places: The most steps between two evaluations: this times the rows of an epoch, of which an
            incomplete last batch counts as a full one.
    """

    steps: Mapping[str, int] = field(default_factory=dict)
    at_most: int | None = None
    full_batches: float | None = None
    batches: float | None = None
    places: float | None = None

    @property
    def inert(self) -> frozenset[str]:
        """The names of the limits that are not set."""
        return frozenset(limit.name for limit in fields(self) if not getattr(self, limit.name))

    def compute_interval(self, task: str, *, rows: int, batch_size: int) -> int:
        """Steps from one evaluation to the next.

        Args:
            task: The name of the task, for limits of its own.
            rows: The number of training rows.
            batch_size: Rows of one optimizer step.

        >>> cadence = Cadence(at_most=1000, full_batches=1, places=0.1)
        >>> cadence.compute_interval("RTE", rows=2490, batch_size=16)
        155
        """
        batches = math.ceil(rows / batch_size)
        shares = (
            (self.full_batches, rows // batch_size),
            (self.batches, batches),
            (self.places, batches * batch_size),
        )
        intervals = [int(share * of) for share, of in shares if share is not None]
        intervals += [steps for steps in (self.steps.get(task), self.at_most) if steps is not None]
        return max(1, min(intervals, default=batches))


@dataclass(frozen=True, kw_only=True)
class Stopping(AlwaysHashed):
    """Early stopping, and the evaluation that counts.

    Attributes:
        patience: A run ends after this many evaluations in a row without a new best of the task's first
            metric (of MNLI: on its first set), or after one fewer if none was ever above 0; none for no early
            end.
        counts: The evaluation that is a run's score: the best by that metric, first of equals, or the last.
    """

    patience: int | None = None
    counts: Literal["best", "last"] = "last"


@dataclass(frozen=True, kw_only=True)
class Training(AlwaysHashed):
    """The settings that all runs of a protocol share, up to `float32_tasks`.

    Attributes:
        optimizer: The optimizer.
        schedule: The schedule of the learning rate.
        max_length: Tokens of an input, special tokens included; fewer if the backbone has fewer learned
            positions.
        autocast: The dtype of autocast, of head and loss and in evaluations too; float32 for none. Weights
            are float32. float16 scales the loss, at first by 65,536, doubled after 2,000 steps and halved by
            an overflow, whose step is skipped; the schedule goes on. On a CPU it is float32.
        float32_tasks: Tasks that run without autocast; none for no task.
        dropout: Dropout probabilities in the encoder; none leaves that of the checkpoint's config.
        head: The head behind the encoder.
        clip: The norm that gradients are scaled down to; none for no clipping.
        shuffled: Whether each epoch has rows in a new order; if false, each has them in that of the file.
        cadence: The steps between evaluations.
        stopping: Early stopping, and the evaluation that counts.
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
class Trial(AlwaysHashed):
    """One run: a cell of a task's grid with a seed.

    Attributes:
        task: Name of a GLUE task, or of the user's own.
        learning_rate: Peak of the learning rate.
        batch_size: Rows of one optimizer step; the last step of an epoch has the rows that are left.
        weight_decay: As the protocol prints it; `optimizer.decay` says what it means.
        epochs: Passes over the training rows.
        seed: Seed of the head, the order of rows, and dropout.
        training: All other settings.
        start: The backbone, or the protocol's selected MNLI model.
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

    def count_trial_steps(self, rows: int) -> int:
        """The number of optimizer steps; an epoch's last batch may be a small one."""
        return self.epochs * math.ceil(rows / self.batch_size)

    def build_optimizer(self, model: nn.Module) -> torch.optim.AdamW:
        """AdamW over the trained parameters of a model, with the protocol's settings.

        Args:
            model: The model; `published`, where it has that, gives a parameter's name in the published
                form, which says whether it decays.

        Returns:
            The optimizer, its first group with weight decay and its second without.
        """
        import torch

        settings = self.training.optimizer
        # Papers list parameters without decay by the names of their own checkpoints, which are not our
        # network's.
        called = getattr(model, "published", str)
        decay = settings.convert_decay(self.weight_decay, self.learning_rate)
        groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                groups[not any(part in called(name) for part in settings.undecayed)].append(parameter)
        return torch.optim.AdamW(
            [{"params": groups[True], "weight_decay": decay}, {"params": groups[False], "weight_decay": 0.0}],
            lr=self.learning_rate,
            betas=settings.betas,
            eps=settings.eps,
            fused=True,
        )


@dataclass(frozen=True, kw_only=True)
class Grid(AlwaysHashed):
    """The values of a task's settings, tried in all combinations."""

    learning_rates: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    weight_decays: tuple[float, ...]
    epochs: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)

    @property
    def cells(self) -> int:
        """The number of combinations, seeds apart."""
        return len(self.learning_rates) * len(self.batch_sizes) * len(self.weight_decays) * len(self.epochs)


@dataclass(frozen=True, kw_only=True)
class Protocol(AlwaysHashed):
    """A paper's procedure for fine-tuning on GLUE.

    Attributes:
        name: The name of the recipe.
        source: The paper's section, and its code.
        training: The settings that all runs share.
        grids: Grids by the name of the task.
        transfer: Tasks that start from the MNLI run with the best accuracy on the matched set, of equals the
            first, of its grid (no final or fresh seeds); it need not have the best score. All runs of these
            tasks, of any seed, start with that run's weights at the evaluation that counts
            (`stopping.counts`), and a new last layer. MNLI's grid is trained first, also for one task alone,
            with the values of --set as well; --set mnli=… gives it others, or a model in its place, and --set
            transfer=false starts from the backbone.
        selection: "best": the configuration of the grid with the best score on the development set, the first
            of equals; "none": the only configuration, whose score is the mean over its seeds.
        view: The paper whose rule makes one number of a task's metrics; the best cell has the highest.
        final_seeds: Seeds with which the protocol runs the best configuration again; the mean of these runs
            is the score; none for no such runs.
        assumed: Assumptions that no source states, each as a sentence.
        variants: Other readings of the same source, by name.
        keeps: Whether the classifiers of its runs are kept.
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
    keeps: bool = field(default=False, metadata={"later": True})

    def list_trials(self, task: str, *, like: str = "", transfer: bool | None = None) -> tuple[Trial, ...]:
        """Every trial of a task's grid, seeds innermost.

        Args:
            task: A GLUE task, or a user's own.
            like: The GLUE task whose grid, cadence and precision hold; the task itself, if empty.
            transfer: Whether to start from the MNLI model; None for the protocol's own choice.
        """
        grid, training = self.grids[like or task], self._resolve_training(task, like)
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

    def _resolve_training(self, task: str, like: str) -> Training:
        """The settings of a task's runs; a user's own task has the cadence and precision of `like`."""
        if like in ("", task):
            return self.training
        shared_training = self.training
        steps = shared_training.cadence.steps
        return replace(
            shared_training,
            # Steps and precision are kept by the name of a task: `like`'s are those of the user's task.
            cadence=replace(shared_training.cadence, steps={task: steps[like]} if like in steps else {}),
            float32_tasks=(task,) if like in shared_training.float32_tasks else (),
        )

    @property
    def runs(self) -> int:
        """The number of runs of all grids and final seeds."""
        return sum(len(self.list_trials(task)) + len(self.final_seeds) for task in self.grids)


_Count = Annotated[int, Interval(ge=1, le=100_000)]


def _read_dtype(value: Any) -> Any:
    return DTYPES.get(value, value) if isinstance(value, str) else value


GRID_FIELDS = {
    "learning_rate": "learning_rates",
    "batch_size": "batch_sizes",
    "weight_decay": "weight_decays",
    "epochs": "epochs",
}
"""The settings with several values, by the fields of a grid."""


@dataclass(frozen=True, kw_only=True)
class GlueSettings:
    """The settings of a GLUE recipe that a user may change; empty ones are the recipe's, task by task.

    Attributes:
        fresh_seeds: How often a chosen configuration runs again with seeds that no run of the grid had; the
            mean of these runs is the score; 0 for no such runs. Unless it is set, 5, or 0 in a protocol that
            has final seeds or chooses nothing.
        transfer: Whether tasks start from the model for MNLI where the protocol says so.
        mnli: In place of the recipe's own MNLI runs: a model for MNLI, folder or weights, or the values of
            these runs, as learning_rate=5e-5,epochs=1; those that are not named are the recipe's.
        learning_rate, batch_size, weight_decay, epochs: The values of every task's grid.
        seeds: The seeds whose mean is the score, at the chosen cell or at the only one.
        max_length: Tokens of an input.
        dtype: The dtype of autocast in every task; float32 for none.
    """

    fresh_seeds: Annotated[int, Interval(ge=0, le=1000)] | None = None
    transfer: bool = True
    mnli: Path | None = None
    learning_rate: tuple[Annotated[float, Interval(gt=0, le=1)], ...] = ()
    batch_size: tuple[_Count, ...] = ()
    weight_decay: tuple[Annotated[float, Interval(ge=0, le=1)], ...] = ()
    epochs: tuple[_Count, ...] = ()
    seeds: tuple[Seed, ...] = ()
    max_length: Tokens | None = None
    dtype: Annotated[Dtype, Form(read=_read_dtype)] | None = None

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that leave everything to the protocol."""
        unset = {"fresh_seeds": not self.fresh_seeds, "mnli": self.mnli is None}
        return frozenset(name for name, holds in unset.items() if holds)

    @staticmethod
    def from_protocol(protocol: Protocol) -> GlueSettings:
        """The settings with a protocol's own values; what differs by task stays empty."""
        training, values = protocol.training, dict[str, Any]()
        for name in (*GRID_FIELDS, "seeds"):
            shared = {getattr(grid, GRID_FIELDS.get(name, name)) for grid in protocol.grids.values()}
            values[name] = shared.pop() if len(shared) == 1 else ()
        if protocol.selection == "best":
            values["seeds"] = protocol.final_seeds
        dtype = None if training.float32_tasks else training.autocast
        return GlueSettings(**values, max_length=training.max_length, dtype=dtype)

    def check_glue_settings(self) -> None:
        """Refuse settings that contradict each other, or a model that is not there.

        Raises:
            UsageError: The message says which.
        """
        if self.mnli is not None and not self.transfer:
            raise UsageError("mnli and transfer=false contradict each other.", hint="Leave one of them out.")
        if self.mnli is not None and not self.mnli.exists() and self.resolve_start_settings() is None:
            raise UsageError(
                f"{self.mnli} does not exist.",
                hint="--set mnli=… takes a model folder, a weights file, or values as learning_rate=5e-5.",
            )

    def resolve_start_settings(self) -> GlueSettings | None:
        """The settings of the MNLI runs that tasks start from; None where `mnli` names no values.

        Raises:
            UsageError: It names values that no run has.
        """
        if self.mnli is None or self.mnli.exists() or "=" not in str(self.mnli):
            return None
        before: dict[str, Any] = {"mnli": None, **dict.fromkeys(GRID_FIELDS, ())}
        others = [one.name for one in fields(self) if one.name not in GRID_FIELDS]
        values = split_settings(str(self.mnli), of="mnli")
        example = "--set mnli={}=VALUE"
        return replace_settings(replace(self, **before), values, of="mnli", fixed=others, example=example)

    def adapt_protocol(self, protocol: Protocol) -> tuple[Protocol, dict[str, Any]]:
        """The protocol with the values that are set, and those that make it another one, by setting.

        Raises:
            UsageError: There are seeds beside fresh ones, or several values where the protocol chooses none.
        """
        modified: dict[str, Any] = {}
        for name in (*GRID_FIELDS, "seeds", "max_length", "dtype"):
            value = getattr(self, name)
            if value in ((), None):
                continue
            narrowed = _set_value(protocol, name, value)
            if narrowed != protocol:
                modified[name] = list(value) if isinstance(value, tuple) else value
            protocol = narrowed
        multiple = next((name for name in GRID_FIELDS if len(set(modified.get(name, ()))) > 1), None)
        if multiple is not None and protocol.selection == "none":
            raise UsageError(
                f"{protocol.name} chooses no value of {multiple}: its score is the mean of all its runs.",
                hint=f"Give --set {multiple} one value; seeds alone may be several.",
            )
        if "seeds" in modified and self.fresh_seeds:
            raise UsageError("seeds and fresh_seeds contradict each other.", hint="Leave one of them out.")
        return protocol, modified


def _set_value(protocol: Protocol, name: str, value: Any) -> Protocol:
    """The protocol with a value of a setting in every task."""
    training = protocol.training
    if name == "max_length":
        return replace(protocol, training=replace(training, max_length=value))
    if name == "dtype":
        return replace(protocol, training=replace(training, autocast=value, float32_tasks=()))
    if name == "seeds" and protocol.selection == "best":
        return replace(protocol, final_seeds=_choose_values(protocol.final_seeds, value))
    field = GRID_FIELDS.get(name, name)
    grids = {
        task: replace(grid, **{field: _choose_values(getattr(grid, field), value)})
        for task, grid in protocol.grids.items()
    }
    return replace(protocol, grids=grids)


def _choose_values(before: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    # The order decides among equals only: the same values in another order are the same grid.
    return before if set(values) == set(before) else tuple(dict.fromkeys(values))
