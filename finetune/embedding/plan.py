"""The plan of a recipe that trains an embedding model: the planned model, from JSON files alone."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from finetune.embedding.settings import ATTENTION, LARGE, EmbeddingSettings, Loss, TrainerSettings
from harness.core.encoding import EvaluationSettings, LateInteraction
from harness.core.errors import DataError, UsageError, explain_unknown
from harness.core.keys import Lineage, ParentPart, serialize_canonical
from harness.core.sources import (
    CHANGED,
    Source,
    SourcedSetting,
    Sources,
    describe_fields,
    describe_notes,
    explain_sources,
    find_source,
    inherit_sources,
    list_settings,
)
from harness.core.types import SEED, Artifact, Output
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import Description, describe
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import WIDTHS, find_backbone_folder, list_input_modules
from harness.jobs.recipe import PlannedModel, PrintedRow, RecipeEntry, build_two_stage_error
from harness.training.training import TrainingSpec
from suites._mteb.snapshot import load_snapshot


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Pairs of sentences with scores, on which the best weights of a training are chosen.

    Attributes:
        task: The task that they belong to, whose scores are then no test of the model.
        data: The pairs.
    """

    task: str
    data: TrainingData


def describe_training_data(data: TrainingData) -> str:
    """A data set in a line: where it is, and what is read of it.

    >>> describe_training_data(TrainingData(path="org/pairs", revision="abc", rows=5_000))
    'org/pairs@abc, split train, columns (anchor, positive), rows 5,000'
    """
    facts = [f"{name} {_format_fact(value)}" for name, value in _list_data_facts(data).items()]
    counted = ["rows counted when they are read"] if data.rows is None else []
    return ", ".join([f"{data.path}@{data.revision}", *facts, *counted])


def _list_data_facts(data: TrainingData) -> dict[str, Any]:
    """What is read of a data set: its split and columns, and all that is not usual."""
    values = {one.name: getattr(data, one.name) for one in fields(data)}
    unusual = {one.name for one in fields(data) if values[one.name] != one.default}
    names = {"split", "columns", *unusual} - {"path", "revision"}
    return {name: value for name, value in values.items() if name in names}


def _format_fact(value: Any) -> str:
    if isinstance(value, int):
        return "yes" if value is True else f"{value:,}"
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


MEANINGS = {
    **describe_fields(LateInteraction),
    "loss": "Scores are cosines times `scale`. A group's loss is the mean over its queries (in a mix as "
    "`reduction` says), a batch's the mean over its groups; a batch without groups is one group.",
    "method": '"full" trains all weights; "freeze" those of the last blocks and of the final norm; "lora" '
    'adapters of low rank beside dense layers, without dropout; "bias" the biases, those of norms too.',
    "seed": "The seed of new weights, the order of rows and dropout, and of the samples of an evaluation: "
    "--seed. With --seeds N, N trainings have this seed and the next numbers.",
    "sweep.learning_rate": "The values that the paper tries. Type --sweep learning_rate=… to train with "
    "each; otherwise there is one training, with learning_rate.",
    "sweep.select": "The tasks whose mean chooses among them, if named by --select.",
    "learning_rate.usual": "The highest learning rate if learning_rate is 0. For `full` and `freeze` it is "
    "that of the Pythia nearest in size (parameters without embeddings).",
    "prefixes": "The texts before queries and documents, by data set, or by the source that a row has in its "
    "column `dataset`.",
    "prompts": "The text that the model puts before inputs of an evaluation: of TASK-side, TASK, TYPE-side, "
    "TYPE and side the first that is here; <sep> and <bos> are the backbone's tokens, or its eos and cls.",
    "evaluation.similarity": "How two vectors are compared; a cosine divides by their lengths. Classifiers "
    "and clusterings get the vector of a text as it is, of any length "
    "(`evaluation.normalized_types` apart); vectors of tokens have length 1.",
}
"""What facts of a recipe mean that are no settings."""

LAST = ("evaluation.similarity", "prompts")
"""The facts of an evaluation, which stand behind all settings."""


def _describe_short_warmup(settings: TrainerSettings, steps: int | None) -> tuple[str, ...]:
    """A note on a training that ends before its warmup; empty for any other."""
    # Steps of data that is still to be read are not known.
    if steps is None or (rises := settings.count_warmup_steps(steps)) <= steps:
        return ()
    return (
        f"the learning rate rises for {rises:,} steps, and there are {steps:,}: it never gets to "
        f"{settings.learning_rate:g}; --set warmup=0.1 has it rise for a tenth of them",
    )


def count_set_rows(data: Sequence[LocatedTraining]) -> list[int] | None:
    """The rows of each data set; None if the count of any is unknown."""
    counts = [part.rows for part in data if part.rows is not None]
    return counts if len(counts) == len(data) else None


SettingsT = TypeVar("SettingsT", bound=TrainerSettings)


@dataclass(frozen=True, kw_only=True)
class TrainerRecipe(ABC, Generic[SettingsT]):
    """A recipe that trains a model once, with a user's settings.

    Attributes:
        name: The name that a user types, with its variant after a colon.
        source: The section of the paper, and its code.
        data: The data sets of the recipe; rows of all of them are mixed.
        settings: The settings of this training.
        variant: The variant that the user typed.
        defaults: The settings of the variant.
        sources: The sources of the variant's settings, of its data, its loss and its evaluation.
        sweep: The values of settings that the paper tries, and under `select` the tasks that choose.
        evaluation_settings: How its models are evaluated; None for their own settings.
    """

    name: str
    source: str
    data: tuple[TrainingData, ...]
    settings: SettingsT
    variant: str = ""
    defaults: SettingsT
    sources: Mapping[str, Source] = field(default_factory=dict)
    sweep: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    evaluation_settings: EvaluationSettings | None = None

    facts: ClassVar[Mapping[str, str]] = {
        "dropout": "the probabilities of the backbone's own config, in training: as published 0.1 in a BERT, "
        "0 in a NeoBERT or a ModernBERT, and 0 in a Pythia by transformers' default",
        "prompts": "none: an evaluation puts nothing before texts but what a model already has",
        "titles": "an evaluation encodes a document with a title as title, a blank, and text; a training of "
        "the recipe's data reads no titles",
        "rows": "a missing or blank text ends a training before its first step",
        "backbone": "--model NAME@COMMIT fixes its revision; records name the one that was taken",
        "weights": "all are trained",
    }
    """What holds beside the settings and their facts, by subject."""

    trains_two_stages: ClassVar[bool] = False
    """Whether a training may start from a two-stage model."""

    @property
    @abstractmethod
    def output(self) -> Output:
        """The output of the model."""

    @property
    def selection(self) -> tuple[TrainingData, ...]:
        """The data that chooses among checkpoints; none unless the settings name it."""
        return tuple(choice.data for choice in self._find_selections())

    @property
    def all_data(self) -> tuple[TrainingData, ...]:
        """The data sets of the recipe, and those of every selection."""
        return self.data

    def devices(self, most: int, backbone: Artifact) -> int:
        """The most devices that can share a batch of a backbone."""
        return self._resolve_settings(backbone).limit_devices(most)

    def plan(
        self,
        backbone: Artifact,
        data: Sequence[LocatedTraining],
        *,
        seed: int,
        planned: Description | None = None,
    ) -> PlannedModel:
        """The model that the training would make; arguments and errors are those of ModelRecipe."""
        settings = self._resolve_settings(backbone)
        description = planned or describe(backbone.folder, own_code=backbone.trust_remote_code)
        self._check_backbone_fit(backbone, description)
        # The data of the selection stands last.
        training = data[: len(data) - len(self._find_selections())]
        self._check_training_data(training)
        steps, rows = self._estimate_work(settings, training)
        texts = None if steps is None or rows is None else self._count_training_texts(steps, rows, training)
        return PlannedModel(
            lineage=self._build_lineage(backbone, settings, data, seed),
            description=self._plan_description(description),
            steps=steps,
            texts=texts,
            notes=(
                *self._collect_plan_notes(backbone, description, settings),
                *_describe_short_warmup(settings, steps),
                explain_sources(self.name),
            ),
        )

    @abstractmethod
    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""

    def check_recipe_settings(self) -> None:
        """Refuse settings that no training can have, whatever its data.

        Raises:
            UsageError: A value is out of its range, or the selection is unknown.
        """
        self.settings.check_values()

    def list_sourced_settings(self, backbone: Artifact | None = None) -> list[SourcedSetting]:
        """Every setting with its value and source: of training, data and loss, and of evaluation.

        Args:
            backbone: A model on disk, for which values are resolved; None for the values as they are typed.
        """
        before, settings = self.defaults.normalize_settings(), self.settings
        names = [one.name for one in fields(settings)]
        changed = [name for name in names if getattr(settings, name) != getattr(before, name)]
        sources = {**self.sources, **dict.fromkeys(changed, CHANGED)}
        meanings = {**MEANINGS, "data": self._explain_data()}
        evaluation = self.evaluation_settings or EvaluationSettings()
        evaluation = replace(evaluation, dtype=evaluation.dtype or "float32")
        if backbone is not None:
            planned = self._plan_description(describe(backbone.folder, own_code=backbone.trust_remote_code))
            length = evaluation.max_length
            length = min(length, planned.position_limit or length) if length else planned.max_length
            evaluation = replace(evaluation, max_length=length)
        rows = [
            *(
                SourcedSetting(
                    name=name, value=value, meaning=meanings.get(name, ""), source=find_source(name, sources)
                )
                for name, value in self._list_facts().items()
            ),
            *list_settings(settings if backbone is None else self._fit_settings(backbone), sources),
            *list_settings(evaluation, sources, above="evaluation."),
        ]
        return sorted(rows, key=lambda row: row.name in LAST)

    def list_assumptions(self) -> tuple[str, ...]:
        """What the source leaves open beside the settings, and the reading taken."""
        return ()

    def list_facts(self, model: Artifact | str = "") -> dict[str, str]:
        """What holds beside the settings, by subject.

        Args:
            model: A backbone on disk, or the name of a published one.
        """
        rows = {*self._list_facts(), *(one.name for one in fields(self.settings))}
        facts = {**self.facts, "steps": self._describe_steps(model), "mteb": load_snapshot().version}
        return {name: text for name, text in facts.items() if name not in rows}

    def _describe_steps(self, _model: Artifact | str) -> str:
        """The steps of a training of a model on the recipe's own data, in words."""
        data = [LocatedTraining(data=part, name=part.path, rows=part.rows) for part in self.data]
        steps, _ = self._estimate_work(self.settings, data)
        if steps is None:
            return "known when the rows are read"
        fewer = "" if self.settings.batches == "shuffled" else "; fewer where `batches` leaves out rows"
        return f"{steps:,}, in {self.settings.count_warmup_steps(steps):,} of which the rate rises{fewer}"

    def _explain_data(self) -> str:
        """The facts of the data sets in words."""
        lines, meanings = "".join(self._list_facts()["data"]), describe_fields(TrainingData)
        listed = [name for name in meanings if f", {name} " in lines and name not in ("config", "split")]
        return " ".join(f"{name}: {meanings[name].partition('. ')[0].rstrip('.')}." for name in listed)

    def _list_facts(self) -> dict[str, Any]:
        """What a training and its evaluation depend on beside their settings."""
        sweep = {f"sweep.{name}": values for name, values in self.sweep.items()}
        similarity = "cosine" if self.output == "vector" else "maxsim"
        data = tuple(map(describe_training_data, self.data))
        return {"data": data, **sweep, "seed": SEED, "evaluation.similarity": similarity}

    def _replaces_data(self, data: Sequence[LocatedTraining]) -> bool:
        """Whether a user's own data is in the place of the recipe's."""
        return any(part.own for part in data)

    def _fit_settings(self, backbone: Artifact) -> SettingsT:
        """The settings for a backbone as `list_sourced_settings` has them."""
        return self._resolve_settings(backbone)

    @abstractmethod
    def _plan_description(self, description: Description) -> Description:
        """The description of the planned model, from that of its backbone."""

    @abstractmethod
    def _count_row_texts(self, data: Sequence[LocatedTraining]) -> int:
        """The texts that a row of the data has in training."""

    def _estimate_work(
        self, settings: SettingsT, data: Sequence[LocatedTraining]
    ) -> tuple[int | None, int | None]:
        """The steps of a training on some sets and the rows that it reads; None where it is not known."""
        counts = count_set_rows(data)
        if counts is None:
            return None, None
        return settings.count_optimizer_steps(sum(counts)), settings.count_training_rows(sum(counts))

    def _count_training_texts(self, _steps: int, rows: int, data: Sequence[LocatedTraining]) -> int:
        """The texts of a training that takes so many steps and reads so many rows."""
        return rows * self._count_row_texts(data)

    def _find_selections(self) -> tuple[Selection, ...]:
        return ()

    def _resolve_settings(self, _backbone: Artifact) -> SettingsT:
        """The settings for a backbone."""
        return self.settings

    def _check_backbone_fit(self, backbone: Artifact, description: Description) -> None:
        if description.two_stage is not None and not self.trains_two_stages:
            raise build_two_stage_error(backbone.name, self.name)
        if [module.class_name for module in list_input_modules(backbone.folder)] != ["Transformer"]:
            raise UsageError(
                f"{backbone.name} does not begin with one Transformer module, which {self.name} trains.",
                hint="Give the bare backbone.",
            )

    def _check_training_data(self, data: Sequence[LocatedTraining]) -> None:
        size = self.settings.batch_size
        for part in data:
            if not part.data.plain and not part.data.passages:
                raise UsageError(
                    f"{part.name} has a {part.data.form} in each row, and {self.name} reads columns of text.",
                    hint="Give a column for each negative; --recipe unified-contrastive takes lists.",
                )
        if len({len(part.data.columns) for part in data}) > 1:
            raise UsageError(
                "The data sets differ in their number of columns.", hint="Give sets of one form."
            )
        counts = count_set_rows(data)
        if counts is not None and sum(counts) < size:
            rows = sum(counts)
            names = ", ".join(part.name for part in data)
            raise DataError(
                f"{names} has {rows} row{'s' if rows != 1 else ''}, and a batch has {size}.",
                hint="Give more data, or a smaller batch: --set batch_size=…",
            )

    def _build_lineage(
        self, backbone: Artifact, settings: SettingsT, data: Sequence[LocatedTraining], seed: int
    ) -> Lineage:
        plain = asdict(self.settings.identity)
        # Compared as typed, before a backbone decides: a group size of its own is no change by the user.
        before = asdict(self.defaults.identity)
        own_names = [part.name for part in data if part.own]
        typed = ({"data"} if own_names else set()) | ({"seed"} if seed != SEED else set())
        return Lineage(
            recipe=self.name.partition(":")[0],
            variant=self.variant,
            source=self.source,
            settings=json.loads(serialize_canonical(settings.identity)),
            changed={name: value for name, value in plain.items() if value != before[name]},
            parents=(ParentPart.of(backbone),),
            data=tuple(part.data.identity for part in data),
            seed=seed,
            # What the paper leaves open on its data says nothing about the user's own.
            assumed=(
                *(() if self._replaces_data(data) else self.list_assumptions()),
                *describe_notes([row for row in self.list_sourced_settings() if row.name not in typed]),
            ),
            selected_on=tuple(choice.task for choice in self._find_selections()),
            own_data=", ".join(own_names),
        )

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, _settings: SettingsT
    ) -> tuple[str, ...]:
        if description.pooling is None:
            return ()
        return (f"{backbone.name} is already an embedding model: its weights are trained further",)


EmbeddingT = TypeVar("EmbeddingT", bound=EmbeddingSettings)


@dataclass(frozen=True, kw_only=True)
class EmbeddingRecipe(TrainerRecipe[EmbeddingT]):
    """A recipe that trains a model with one vector for each text.

    Attributes:
        loss: The loss of a batch.
        selections: The data that `selection` can name.
        caches: Whether the loss gives the same step with fewer rows in a pass.
    """

    loss: Loss
    selections: Mapping[str, Selection] = field(default_factory=dict)
    caches: bool = True

    @property
    def output(self) -> Output:
        """The output of the model: one vector for each text."""
        return "vector"

    @property
    def all_data(self) -> tuple[TrainingData, ...]:
        """The data sets of the recipe, and those of every selection."""
        return (*self.data, *(choice.data for choice in self.selections.values()))

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""
        from finetune.embedding.trainer import run_trainer

        settings = self._resolve_settings(spec.backbone)
        run_trainer(spec, settings, self._open_setup(spec, settings))

    def _open_setup(self, _spec: TrainingSpec, settings: EmbeddingT) -> Any:
        """The parts of the training that depend on the kind of model (finetune.embedding.setups.Setup)."""
        from finetune.embedding.setups import EmbeddingSetup

        return EmbeddingSetup(settings, self.loss, caches=self.caches)

    def check_recipe_settings(self) -> None:
        """Refuse settings that no training can have, whatever its data.

        Raises:
            UsageError: A value is out of its range, or the selection is unknown.
        """
        super().check_recipe_settings()
        name = self.settings.selection
        if name and not self.selections:
            raise UsageError(
                f"{self.name} has no data to choose checkpoints by.", hint="Leave out --set selection=…"
            )
        if name and name not in self.selections:
            raise explain_unknown("selection", name, self.selections, then="Choose one of these, or none.")

    def _plan_description(self, description: Description) -> Description:
        return replace(
            description,
            pooling=self.settings.pooling,
            normalize=False,
            similarity_fn_name="cosine",
            late_interaction=None,
        )

    def _list_facts(self) -> dict[str, Any]:
        return {**super()._list_facts(), "loss": (inspect.getdoc(self.loss) or "").partition("\n")[0]}

    def _count_row_texts(self, data: Sequence[LocatedTraining]) -> int:
        return max(part.data.texts_per_row for part in data)

    def _fit_settings(self, backbone: Artifact) -> EmbeddingT:
        settings = self._resolve_settings(backbone)
        limit = describe(backbone.folder, own_code=backbone.trust_remote_code).max_length
        return replace(settings, max_length=min(settings.max_length or limit, limit))

    def _find_selections(self) -> tuple[Selection, ...]:
        name = self.settings.selection
        return (self.selections[name],) if name else ()

    def _resolve_settings(self, backbone: Artifact) -> EmbeddingT:
        settings = self.settings.resolve_group_size(_read_token_width(backbone))
        settings.check_values()
        return settings

    def _check_backbone_fit(self, backbone: Artifact, description: Description) -> None:
        super()._check_backbone_fit(backbone, description)
        width, heads = _read_token_width(backbone), self.settings.heads
        if self.settings.pooling == ATTENTION and width is not None and width % heads:
            raise UsageError(
                f"{heads} heads do not divide the {width} dimensions of {backbone.name}.",
                hint=f"Give a divisor of {width}: --set heads=…",
            )

    def _check_training_data(self, data: Sequence[LocatedTraining]) -> None:
        for part in data:
            if part.data.score:
                scored = "documents with scores" if part.data.texts else "pairs with a score"
                raise UsageError(
                    f"{part.name} has {scored}, which the loss of {self.name} does not take.",
                    hint="Give pairs, triplets, or rows with several negatives.",
                )
        super()._check_training_data(data)

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: EmbeddingT
    ) -> tuple[str, ...]:
        notes = []
        if self.settings.group_size is None:
            width = _read_token_width(backbone)
            notes.append(
                f"{backbone.name} with token vectors of {width or 'unknown'} dimensions is trained in groups "
                f"of {settings.group_size} rows: 16 from {LARGE} dimensions on, 64 below"
            )
        if description.normalize and not self._plan_description(description).normalize:
            notes.append(
                f"the Normalize module of {backbone.name} is left out, as the recipe's models have none; "
                "--normalize evaluates with normalized vectors"
            )
        if description.pooling not in (None, settings.pooling):
            return (
                *notes,
                f"{backbone.name} is already an embedding model: its weights are trained further, and its "
                f"pooling ({description.pooling}) is replaced by {settings.pooling}",
            )
        return (*notes, *super()._collect_plan_notes(backbone, description, settings))


def _read_token_width(backbone: Artifact) -> int | None:
    """The dimensions of a backbone's token vectors, if its config tells them."""
    config = read_object(find_backbone_folder(backbone.folder) / "config.json")
    return next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)


@dataclass(frozen=True, kw_only=True)
class Variant(Generic[SettingsT]):
    """The settings of a recipe under a name of their own.

    Attributes:
        summary: The variant in words.
        settings: All its settings.
        data: Its data sets, where they are not those of the recipe.
    """

    summary: str
    settings: SettingsT
    data: tuple[TrainingData, ...] = ()


def entry(
    recipe: TrainerRecipe[SettingsT],
    summary: str,
    variants: Mapping[str, Variant[SettingsT]] | None = None,
    sources: Sources | None = None,
    evaluations: Mapping[str, EvaluationSettings] | None = None,
    printed: Sequence[PrintedRow] = (),
) -> RecipeEntry:
    """The entry of a recipe in the catalog.

    Args:
        recipe: The recipe with the settings that hold without a variant.
        summary: The recipe in words.
        variants: Further settings by the name of a variant.
        sources: The sources of settings by variant; a variant shares those of values that are the same.
        evaluations: How its models are evaluated (see RecipeEntry).
        printed: The printed rows that it comes near to.
    """
    named = {"": Variant(summary=summary, settings=recipe.settings), **(variants or {})}
    return RecipeEntry(
        name=recipe.name,
        summary=summary,
        kind="model",
        settings={name: variant.settings for name, variant in named.items()},
        open=partial(_open_variant, recipe, named, sources or {}, evaluations or {}),
        variants={name: variant.summary for name, variant in named.items() if name},
        evaluations=evaluations or {},
        printed=tuple(printed),
    )


def _open_variant(
    recipe: TrainerRecipe[SettingsT],
    variants: Mapping[str, Variant[SettingsT]],
    sources: Sources,
    evaluations: Mapping[str, EvaluationSettings],
    variant: str,
    settings: SettingsT,
) -> TrainerRecipe[SettingsT]:
    base = replace(
        recipe,
        settings=recipe.settings.normalize_settings(),
        sources=sources.get("", {}),
        evaluation_settings=evaluations.get(""),
    )
    variant_recipe = replace(
        recipe,
        name=f"{recipe.name}:{variant}" if variant else recipe.name,
        variant=variant,
        settings=variants[variant].settings.normalize_settings(),
        defaults=variants[variant].settings,
        data=variants[variant].data or recipe.data,
        sources=sources.get(variant, {}),
        evaluation_settings=evaluations.get(variant, base.evaluation_settings),
    )
    inherited = inherit_sources(variant_recipe.list_sourced_settings(), base.list_sourced_settings())
    variant_recipe = replace(variant_recipe, sources=inherited, settings=settings.normalize_settings())
    variant_recipe.check_recipe_settings()
    return variant_recipe
