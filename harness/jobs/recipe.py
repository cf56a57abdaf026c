"""The interfaces of recipes: those that train a model once, and those that train one for each task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from harness.core.encoding import Encoding, EvaluationSettings
from harness.core.errors import DataError, UsageError
from harness.core.keys import Lineage
from harness.core.sources import SourcedSetting, list_settings
from harness.core.types import Artifact, Output, Task
from harness.data.locate import Located
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import Description
from harness.jobs.context import JobContext
from harness.jobs.jobs import Job
from harness.training.training import TrainingSpec

Locate = Callable[[Task], Located | DataError]
"""A function that gives the place of a task's data, or the reason why there is none."""


@dataclass(frozen=True, kw_only=True)
class RecipePlan:
    """The plan for one score of a recipe.

    Attributes:
        identity: The fields that the score depends on; their digest is the key of the last job.
        jobs: All jobs of the score, each after its inputs; without `resolve`.
        problem: The reason why the score cannot be computed.
        notes: Sentences for the user before the run begins.
        kept: The folders that jobs leave beside their records, by the jobs' keys.
    """

    identity: Mapping[str, Any]
    jobs: tuple[Job, ...] = ()
    problem: DataError | None = None
    notes: tuple[str, ...] = ()
    kept: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The cost of a training run; early stopping may lower it.

    Attributes:
        steps: Optimizer steps.
        flops: The operations of training and scoring, attention not counted.
        seconds: The time in one process on this device.
        notes: Sentences on data that is missing.
        problem: Why the run cannot be made, and has no cost; empty where it can.
    """

    steps: int
    flops: float
    seconds: float
    notes: tuple[str, ...] = ()
    problem: str = ""


class _NamedRecipe(Protocol):
    """A recipe of either kind."""

    @property
    def name(self) -> str:
        """The name that a user types, with its variant after a colon."""

    @property
    def source(self) -> str:
        """The section of the paper, and its code."""


class TaskRecipe(_NamedRecipe, Protocol):
    """A recipe that trains a model for each task, with a user's options."""

    @property
    def convention(self) -> str:
        """The name of the paper's convention for a number from raw metrics."""

    @property
    def uses_seed(self) -> bool:
        """Whether the user's seed changes a run; it is refused otherwise."""

    def plan_task(self, artifact: Artifact, task: Task, *, locate: Locate, seed: int) -> RecipePlan:
        """The jobs for the score of a backbone on a task; no model is loaded.

        Args:
            artifact: The backbone.
            task: The task.
            locate: Gives the place of a task's data.
            seed: The user's seed.
        """

    def estimate(self, jobs: Sequence[Job], context: JobContext) -> list[Estimate | None]:
        """The cost of each run, from a few steps on this machine; None for other jobs."""

    def build_probe_job(self, jobs: Sequence[Job]) -> Job | None:
        """A job that gives the memory of a run and of its device, as JSON (`peak_bytes`, `device_bytes`)."""


@runtime_checkable
class KeepingRecipe(TaskRecipe, Protocol):
    """A recipe that may keep the models that it trains for tasks."""

    def attach_results(self, results: Path) -> TaskRecipe:
        """The recipe with the folder in which it keeps them."""


@dataclass(frozen=True, kw_only=True)
class PlannedModel:
    """Everything that is known of a model before it is trained.

    Attributes:
        lineage: What it is made of; its key follows from that.
        description: The model folder that the training will leave, as `describe` will read it.
        steps: Optimizer steps; None where the size of the data is unknown.
        texts: Texts that are encoded in training, counted each time; None where that is unknown, too.
        notes: Sentences for the user before the training begins.
    """

    lineage: Lineage
    description: Description
    steps: int | None = None
    texts: int | None = None
    notes: tuple[str, ...] = ()


class ModelRecipe(_NamedRecipe, Protocol):
    """A recipe that makes one model of a backbone: a picklable object that holds the user's settings."""

    @property
    def output(self) -> Output:
        """The output of the models that it makes."""

    @property
    def data(self) -> tuple[TrainingData, ...]:
        """The data sets of the recipe, in the order in which `plan` and `train` are given them."""

    @property
    def selection(self) -> tuple[TrainingData, ...]:
        """The data sets whose scores choose among checkpoints; none where the last one is the model."""

    @property
    def all_data(self) -> tuple[TrainingData, ...]:
        """Every data set that the recipe reads under any of its settings, for a mirror."""

    def devices(self, most: int, backbone: Artifact) -> int:
        """The number of devices that a training of a backbone uses, at most `most` and at least 1.

        Each has a process of its own, in which `train` is called with the same spec but for `spec.rank`.
        """

    def plan(
        self,
        backbone: Artifact,
        data: Sequence[LocatedTraining],
        *,
        seed: int,
        planned: Description | None = None,
    ) -> PlannedModel:
        """The model that a training would make; nothing but JSON is read.

        Args:
            backbone: A model on disk, perhaps an already trained one.
            data: The training data, then that of the selection: the recipe's, or the user's own.
            seed: The seed of the training.
            planned: What the model before it in a chain will be, where that is still to be trained.

        Raises:
            UsageError: The settings do not fit the backbone, or the data does not fit the recipe.
            DataError: The data has too few rows.
        """

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`.

        Progress goes to `spec.log`. What lies in `spec.folder` is there again when the same training is
        started again, after whatever ended it.
        """


@runtime_checkable
class GuidedRecipe(ModelRecipe, Protocol):
    """A recipe that makes one model with the help of the vectors of another one, its guide."""

    @property
    def guide(self) -> str:
        """The guide as a user types it, as for --model; empty where the settings need none."""

    def attach_guide(self, artifact: Artifact, encoding: Encoding) -> ModelRecipe:
        """The recipe with its guide on disk, without which it neither plans nor trains where it needs one.

        Raises:
            UsageError: The recipe cannot use such a model.
        """


@runtime_checkable
class NamedDataRecipe(ModelRecipe, Protocol):
    """A recipe that makes one model of several named data sets, each of which a user can replace."""

    def list_data_parts(self) -> tuple[TrainingData | str, ...]:
        """What is read, in the order in which `plan` and `train` are given it; own data as it was typed."""

    def filter_set_names(self, absent: Collection[TrainingData]) -> tuple[str, ...]:
        """The names of the sets that read none of these."""

    def attach_user_data(self, data: Sequence[str]) -> NamedDataRecipe:
        """The recipe with a user's own data, `NAME=DATA` or data alone.

        Raises:
            UsageError: The names do not fit.
        """


@runtime_checkable
class SourcedRecipe(Protocol):
    """A recipe of either kind that knows the source of each of its settings."""

    def list_sourced_settings(self, backbone: Artifact | None = None) -> list[SourcedSetting]:
        """Every setting with its value and source, those of a backbone where one is given."""


def build_two_stage_error(model: str, recipe: str) -> UsageError:
    """The error for a two-stage model in the place of a backbone."""
    return UsageError(
        f"{model} has two stages, and {recipe} trains one backbone.",
        hint="Give the bare backbone; --recipe cde trains a two-stage model further.",
    )


@dataclass(frozen=True, kw_only=True)
class PrintedRow:
    """A printed row of a paper and the run that comes nearest to it, of all variants of a recipe.

    Attributes:
        place: The paper, its table, and the model as printed: `ModernBERT, table 7, ModernBERT base`.
        recipe: What is typed after --recipe.
        model: What is typed after --model; MODEL where the paper's is not public.
        suite: What is typed after --suite.
        settings: What is typed after each --set.
        line: Words of its setting or metric, as printed; needed where the model has several rows.
        differs: Sentences: what the paper does not print, or prints otherwise, and what is taken here.
    """

    place: str
    recipe: str
    model: str
    suite: str
    settings: tuple[str, ...] = ()
    line: str = ""
    differs: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """The paper."""
        return self.place.partition(", ")[0]

    @property
    def command(self) -> str:
        """The whole command line."""
        options = "".join(f" --set {setting}" for setting in self.settings)
        return f"harness run --model {self.model} --recipe {self.recipe}{options} --suite {self.suite}"


@dataclass(frozen=True, kw_only=True)
class RecipeEntry:
    """A recipe in the catalog, the `RECIPE` of a file in finetune/recipes/; a user types `name[:variant]`.

    Attributes:
        settings: By variant, with "" for none, a frozen dataclass of all settings that `--set` can change.
        open: Called with a variant and its settings, perhaps changed; gives the recipe.
        variants: What each variant is, in words.
        kind: Whether it makes one model ("model"), or one for each task ("task").
        chains: By variant, the variants that a user who types it gets, trained one after the other.
        evaluations: By name, how its models are evaluated: those of a variant by the one of its name, else by
            "", and by any other where a user names it.
        printed: The printed rows that it comes near to.
    """

    name: str
    summary: str
    kind: Literal["model", "task"]
    settings: Mapping[str, Any]
    open: Callable[[str, Any], TaskRecipe | ModelRecipe]
    variants: Mapping[str, str] = field(default_factory=dict)
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluations: Mapping[str, EvaluationSettings] = field(default_factory=dict)
    printed: tuple[PrintedRow, ...] = ()


def list_recipe_settings(
    entry: RecipeEntry, variant: str, recipe: TaskRecipe | ModelRecipe, backbone: Artifact | None = None
) -> list[SourcedSetting]:
    """Every setting of an opened recipe; without sources where the recipe has none.

    Args:
        entry: The recipe in the catalog.
        variant: The variant that is opened.
        recipe: The recipe.
        backbone: A model on disk whose values are wanted.
    """
    if isinstance(recipe, SourcedRecipe):
        return recipe.list_sourced_settings(backbone)
    return list_settings(entry.settings[variant], {})
