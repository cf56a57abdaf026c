"""A protocol: the grid of every task, and how a score comes out of its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Literal

from finetune.glue.settings import Training, Trial
from harness.identity import Whole


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
        view: Which paper's number of a task is maximized, by its name in `finetune.glue.views`.
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
