"""Recipes that train a model for each task, as the rest of a run sees them."""

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
"""Where a task's data lies, or why it cannot be had."""


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """What a user may ask of a recipe.

    Attributes:
        fresh_seeds: Runs of the chosen cell with seeds of ours; None for the recipe's own number.
        transfer: Whether tasks that a protocol starts from a model for another task do so.
        source: A model that they start from in place of the one that the recipe would train.
        seed: What the fresh seeds are counted from.
    """

    fresh_seeds: int | None = None
    transfer: bool = True
    source: Path | None = None
    seed: int = SEED


@dataclass(frozen=True, kw_only=True)
class RecipePlan:
    """One score that a recipe is to give.

    Attributes:
        identity: What the score depends on; its digest is the key, and that of the last job.
        jobs: All that makes the score, what is needed first standing first; without `resolve`.
        problem: Why it cannot be made.
        notes: What a user should know before it begins, in sentences.
    """

    identity: Mapping[str, Any]
    jobs: tuple[Job, ...] = ()
    problem: DataError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run will take; early stopping may make it less.

    Attributes:
        steps: Optimizer steps.
        flops: Of training and of scoring, attention apart.
        seconds: In one process on this device.
        notes: What its data lacks, in sentences.
    """

    steps: int
    flops: float
    seconds: float
    notes: tuple[str, ...] = ()


class Recipe(Protocol):
    """A recipe with a user's options, opened by name."""

    @property
    def name(self) -> str:
        """As a user types it, its variant behind a colon."""
        ...

    @property
    def source(self) -> str:
        """The paper's section, and its code."""
        ...

    @property
    def convention(self) -> str:
        """The name of its paper's way to make a number of raw metrics."""
        ...

    def plan_task(self, artifact: Artifact, task: Task, *, locate: Locate) -> RecipePlan:
        """The jobs behind a backbone's score on a task; nothing is loaded."""
        ...

    def estimate(self, jobs: Sequence[Job], context: JobContext) -> list[Estimate | None]:
        """What each of these runs will take, from a few steps on this machine; None for other jobs."""
        ...

    def probe(self, jobs: Sequence[Job]) -> Job | None:
        """A job that gives the memory which one of these runs takes at most, as JSON (`peak_bytes`)."""
        ...


@dataclass(frozen=True, kw_only=True)
class RecipeEntry:
    """A recipe as the catalog lists it: one `RECIPE` in a file of finetune/recipes/.

    A recipe is asked for as `name`, or as `name:variant`; `variants` says of each what it is.
    """

    name: str
    summary: str
    open: Callable[[str, RecipeOptions], Recipe]
    variants: Mapping[str, str] = field(default_factory=dict)
