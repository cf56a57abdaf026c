"""The interface of recipes, which train a model for each task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.context import JobContext
from harness.data.locate import Located
from harness.errors import DataError
from harness.jobs import Job
from harness.types import SEED, Artifact, Task

Locate = Callable[[Task], Located | DataError]
"""A function that gives the place of a task's data, or the reason why there is none."""


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """The options of a recipe.

    Attributes:
        fresh_seeds: The number of runs with fresh seeds at the chosen settings; None for the default.
        transfer: Whether tasks start from the model of another task where the protocol says so.
        source: A model that they start from in place of the one that the recipe would train.
        seed: The number from which fresh seeds are counted.
    """

    fresh_seeds: int | None = None
    transfer: bool = True
    source: Path | None = None
    seed: int = SEED


@dataclass(frozen=True, kw_only=True)
class RecipePlan:
    """The plan for one score of a recipe.

    Attributes:
        identity: The fields that the score depends on; their digest is the key of the last job.
        jobs: All jobs of the score, each after its inputs; without `resolve`.
        problem: The reason why the score cannot be computed.
        notes: Sentences for the user before the run begins.
    """

    identity: Mapping[str, Any]
    jobs: tuple[Job, ...] = ()
    problem: DataError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of a training run; early stopping may lower it.

    Attributes:
        steps: Optimizer steps.
        flops: The operations of training and scoring, attention not counted.
        seconds: The time in one process on this device.
        notes: Sentences on data that is missing.
    """

    steps: int
    flops: float
    seconds: float
    notes: tuple[str, ...] = ()


class Recipe(Protocol):
    """A recipe with a user's options."""

    @property
    def name(self) -> str:
        """The name that a user types, with its variant after a colon."""
        ...

    @property
    def source(self) -> str:
        """The section of the paper, and its code."""
        ...

    @property
    def convention(self) -> str:
        """The name of the paper's convention for a number from raw metrics."""
        ...

    @property
    def uses_seed(self) -> bool:
        """Whether the user's seed changes a run; it is refused otherwise."""
        ...

    def plan_task(self, artifact: Artifact, task: Task, *, locate: Locate) -> RecipePlan:
        """The jobs for the score of a backbone on a task; no model is loaded."""
        ...

    def estimate(self, jobs: Sequence[Job], context: JobContext) -> list[Estimate | None]:
        """The cost of each run, from a few steps on this machine; None for other jobs."""
        ...

    def probe(self, jobs: Sequence[Job]) -> Job | None:
        """A job whose output is the largest memory of one of these runs, as JSON (`peak_bytes`)."""
        ...


@dataclass(frozen=True, kw_only=True)
class RecipeEntry:
    """A recipe in the catalog, the `RECIPE` of a file in finetune/recipes/; a user types `name[:variant]`."""

    name: str
    summary: str
    open: Callable[[str, RecipeOptions], Recipe]
    variants: Mapping[str, str] = field(default_factory=dict)
