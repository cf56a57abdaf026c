"""The plan of a recipe that trains an embedding model: the model to come, known from JSON alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from finetune.embedding.settings import ATTENTION, LARGE, EmbeddingSettings, Loss
from harness.data.training import LocatedTraining, TrainingData
from harness.encoder.model_files import backbone_folder, input_modules, library_class, read_object
from harness.encoder.model_settings import WIDTHS, Description, describe
from harness.errors import DataError, UsageError, unknown
from harness.identity import canonical
from harness.lineage import Lineage, ParentPart
from harness.recipe import PlannedModel, RecipeEntry
from harness.training import TrainingSpec
from harness.types import Artifact, Output


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Pairs of sentences with scores, on which the best weights of a training are chosen.

    Attributes:
        task: The task that they belong to, whose scores are then no test of the model.
        data: The pairs.
    """

    task: str
    data: TrainingData


def _none(_settings: EmbeddingSettings) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecipe:
    """A recipe that trains an embedding model once, with a user's settings.

    Attributes:
        name: The name that a user types, with its variant after a colon.
        source: The section of the paper, and its code.
        data: The data sets of the recipe; rows of all of them are mixed.
        loss: The loss of a batch.
        settings: The settings of this training.
        variant: The variant that the user typed.
        defaults: The settings of the variant.
        selections: The data that `selection` can name.
        assumed: What the source leaves open under given settings.
        assumed_data: What it leaves open on its data, which says nothing of a user's own.
        caches: Whether the loss gives the same step with fewer rows in a pass.
    """

    name: str
    source: str
    data: tuple[TrainingData, ...]
    loss: Loss
    settings: EmbeddingSettings
    variant: str = ""
    defaults: EmbeddingSettings
    selections: Mapping[str, Selection] = field(default_factory=dict)
    assumed: Callable[[EmbeddingSettings], tuple[str, ...]] = _none
    assumed_data: tuple[str, ...] = ()
    caches: bool = True

    @property
    def output(self) -> Output:
        """The output of the model: one vector for each text."""
        return "vector"

    @property
    def selection(self) -> tuple[TrainingData, ...]:
        """The data that chooses among checkpoints; none unless the settings name it."""
        return tuple(choice.data for choice in self._chosen())

    @property
    def all_data(self) -> tuple[TrainingData, ...]:
        """The data sets of the recipe, and those of every selection."""
        return (*self.data, *(choice.data for choice in self.selections.values()))

    def devices(self, most: int, backbone: Artifact) -> int:
        """The most devices that can share a batch of a backbone."""
        return self._fitted(backbone).devices(most)

    def plan(self, backbone: Artifact, data: Sequence[LocatedTraining], *, seed: int) -> PlannedModel:
        """The model that the training would make; only JSON is read.

        Args:
            backbone: A model on disk, perhaps an already trained one.
            data: The training data, then that of the selection.
            seed: The seed of the training.

        Raises:
            UsageError: The settings do not fit the backbone, or the data does not fit the recipe.
            DataError: The data has too few rows.
        """
        self._check_backbone(backbone)
        settings = self._fitted(backbone)
        found = describe(backbone.folder, own_code=backbone.trust_remote_code)
        training = data[: len(data) - len(self._chosen())]
        self._check_data(training)
        counts = [part.rows for part in training if part.rows is not None]
        rows = sum(counts) if len(counts) == len(training) else None
        steps = None if rows is None else settings.steps(rows)
        columns = max(len(part.data.columns) for part in training)
        return PlannedModel(
            lineage=self._lineage(backbone, settings, data, seed),
            description=replace(
                found, pooling=self.settings.pooling, normalize=False, similarity_fn_name="cosine"
            ),
            steps=steps,
            texts=None if rows is None else settings.rows_read(rows) * columns,
            notes=self._notes(backbone, found, settings),
        )

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""
        from finetune.embedding.trainer import train

        train(spec, self._fitted(spec.backbone), self.loss, caches=self.caches)

    def check(self) -> None:
        """Refuse settings that no training can have, whatever its data.

        Raises:
            UsageError: A value is out of its range, or there is no such selection.
        """
        self.settings.check()
        name = self.settings.selection
        if name and not self.selections:
            raise UsageError(
                f"{self.name} has no data to choose checkpoints by.", hint="Leave out --set selection=…"
            )
        if name and name not in self.selections:
            raise unknown("selection", name, self.selections, then="Choose one of these, or none.")

    def _chosen(self) -> tuple[Selection, ...]:
        name = self.settings.selection
        return (self.selections[name],) if name else ()

    def _fitted(self, backbone: Artifact) -> EmbeddingSettings:
        """The settings for a backbone."""
        settings = self.settings.fitted(_width(backbone))
        settings.check()
        return settings

    def _check_backbone(self, backbone: Artifact) -> None:
        entered = input_modules(backbone.folder)
        if entered and [library_class(kind) for kind, _ in entered] != ["Transformer"]:
            raise UsageError(
                f"{backbone.name} does not begin with one Transformer module, which {self.name} trains.",
                hint="Give the bare backbone.",
            )
        width, heads = _width(backbone), self.settings.heads
        if self.settings.pooling == ATTENTION and width is not None and width % heads:
            raise UsageError(
                f"{heads} heads do not divide the {width} dimensions of {backbone.name}.",
                hint=f"Give a divisor of {width}: --set heads=…",
            )

    def _check_data(self, data: Sequence[LocatedTraining]) -> None:
        size = self.settings.batch_size
        for part in data:
            if part.data.score:
                raise UsageError(
                    f"{part.name} has pairs with a score, which the loss of {self.name} does not take.",
                    hint="Give pairs, triplets, or rows with several negatives.",
                )
        if len({len(part.data.columns) for part in data}) > 1:
            raise UsageError(
                "The data sets differ in their number of columns.", hint="Give sets of one form."
            )
        if all(part.rows is not None for part in data) and sum(part.rows or 0 for part in data) < size:
            rows = sum(part.rows or 0 for part in data)
            names = ", ".join(part.name for part in data)
            raise DataError(
                f"{names} has {rows} row{'s' * (rows != 1)}, and a batch has {size}.",
                hint="Give more data, or a smaller batch: --set batch_size=…",
            )

    def _lineage(
        self, backbone: Artifact, settings: EmbeddingSettings, data: Sequence[LocatedTraining], seed: int
    ) -> Lineage:
        plain = asdict(self.settings.identity)
        before = asdict(self.defaults.identity)
        own = [part.name for part in data if part.own]
        return Lineage(
            recipe=self.name.partition(":")[0],
            variant=self.variant,
            source=self.source,
            settings=json.loads(canonical(settings.identity)),
            changed={name: value for name, value in plain.items() if value != before[name]},
            parents=(ParentPart.of(backbone),),
            data=tuple(part.data.identity for part in data),
            seed=seed,
            assumed=(*self.assumed(settings), *(() if own else self.assumed_data)),
            selected_on=tuple(choice.task for choice in self._chosen()),
            own_data=", ".join(own),
        )

    def _notes(self, backbone: Artifact, found: Description, settings: EmbeddingSettings) -> tuple[str, ...]:
        notes = []
        if self.settings.group_size is None:
            width = _width(backbone)
            notes.append(
                f"{backbone.name} with token vectors of {width or 'unknown'} dimensions is trained in groups "
                f"of {settings.group_size} rows: 16 from {LARGE} dimensions on, 64 below"
            )
        if found.pooling is not None:
            replaced = f", and its pooling ({found.pooling}) is replaced by {settings.pooling}"
            notes.append(
                f"{backbone.name} is already an embedding model: its weights are trained further"
                + (replaced if found.pooling != settings.pooling else "")
            )
        return tuple(notes)


def _width(backbone: Artifact) -> int | None:
    """The dimensions of a backbone's token vectors, if its config tells them."""
    config = read_object(backbone_folder(backbone.folder) / "config.json")
    return next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The settings of a recipe under a name of their own.

    Attributes:
        summary: The variant in words.
        settings: All its settings.
    """

    summary: str
    settings: EmbeddingSettings


def entry(
    recipe: EmbeddingRecipe, summary: str, variants: Mapping[str, Variant] | None = None
) -> RecipeEntry:
    """The entry of a recipe in the catalog.

    Args:
        recipe: The recipe with the settings that hold without a variant.
        summary: The recipe in words.
        variants: Further settings by the name of a variant.
    """
    named = dict(variants or {})
    settings = {"": recipe.settings, **{name: variant.settings for name, variant in named.items()}}
    return RecipeEntry(
        name=recipe.name,
        summary=summary,
        kind="model",
        settings=settings,
        open=partial(_opened, recipe, settings),
        variants={name: variant.summary for name, variant in named.items()},
    )


def _opened(
    recipe: EmbeddingRecipe,
    defaults: Mapping[str, EmbeddingSettings],
    variant: str,
    settings: EmbeddingSettings,
) -> EmbeddingRecipe:
    name = f"{recipe.name}:{variant}" if variant else recipe.name
    chosen = "" if settings.selection.lower() == "none" else settings.selection
    made = replace(
        recipe,
        name=name,
        variant=variant,
        settings=replace(settings, selection=chosen),
        defaults=defaults[variant],
    )
    made.check()
    return made
