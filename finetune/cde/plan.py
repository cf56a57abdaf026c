"""The plan of recipes that train on contextual batches, with one stage or two."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

from finetune.cde.prefixes import (
    PrefixTable,
    build_evaluation_prompts,
    describe_prefixes,
    list_trained_prefixes,
    parse_prefix,
)
from finetune.cde.settings import RULES, TWO_STAGE_RULES, ContextualSettings, Guide, TwoStageTrainingSettings
from finetune.embedding.plan import EmbeddingRecipe, count_set_rows
from harness.core.encoding import Encoding
from harness.core.errors import DataError, UsageError
from harness.core.keys import Lineage, ParentPart, serialize_canonical
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining
from harness.encoder.backbones import require_network
from harness.encoder.folder.description import TWO_BACKBONES, Description, compute_text_limits
from harness.encoder.folder.modules_and_pooling import OWN_POOLING, find_backbone_folder
from harness.encoder.two_stage_settings import TwoStageSettings
from harness.jobs.recipe import PlannedModel
from harness.training.training import TrainingSpec

ContextualT = TypeVar("ContextualT", bound=ContextualSettings)


@dataclass(frozen=True, kw_only=True)
class ContextualRecipe(EmbeddingRecipe[ContextualT]):
    """A recipe that trains a model with one vector for each text on contextual batches.

    Attributes:
        prefixes: The prefixes of the recipe's own data sets by their paths.
        found: The guide that the settings name, once it is found; None too where they need none.
    """

    prefixes: Mapping[str, PrefixTable] = field(default_factory=dict)
    found: Guide | None = None

    facts: ClassVar[Mapping[str, str]] = {
        **EmbeddingRecipe.facts,
        "clusters": "of each data set (a line of `data`, or a file of --train-data, with all its sources) on "
        "its own, of pairs that repeat no earlier one: ceil(pairs / "
        "cluster_size) by spherical k-means of at most max(500,000, 32 * clusters) pairs, drawn if there are "
        "more, begun by greedy k-means++ (2 + floor(ln(clusters)) tries, among 8 * clusters of these pairs) "
        "and ended when the mean similarity rises by less than 1e-6; "
        "a pair is in that of the centroid nearest to [query; document], both halves of length 1; "
        "the clusters, in each the pairs in a drawn order, are put one behind the other and cut into groups, "
        "or batches without group_size; each epoch has these groups in a new order, and the pairs of each",
    }

    @property
    def guide(self) -> str:
        """The guide as a user types it; empty where the settings need none."""
        return self.settings.guide

    def attach_guide(self, artifact: Artifact, encoding: Encoding) -> Self:
        """The recipe with its guide.

        Raises:
            UsageError: The guide has a vector for each token.
        """
        if encoding.late_interaction is not None:
            raise UsageError(
                f"{artifact.name} has a vector for each token, and a guide has one for each text.",
                hint="Name a model of single vectors: --set guide=MODEL.",
            )
        return replace(self, found=Guide(artifact=artifact, encoding=encoding))

    def list_prefix_tables(self, data: Sequence[LocatedTraining]) -> list[PrefixTable]:
        """The prefixes of each data set by the source of a row.

        Raises:
            UsageError: The settings name fewer or more prefixes than there are data sets.
        """
        settings, defaults = self.settings, self.defaults
        if settings.prefix:
            count = len(settings.prefix)
            named: list[PrefixTable] = [{"": parse_prefix(name)} for name in settings.prefix]
            if count not in (1, len(data)):
                names = ", ".join(part.name for part in data)
                raise UsageError(
                    f"prefix has {count} values, and there are {len(data)} data sets: {names}.",
                    hint="Give one for all of them, or one for each: --set prefix=search,clustering",
                )
            return named if count > 1 else named * len(data)
        pair = settings.query_prefix, settings.document_prefix
        is_changed = pair != (defaults.query_prefix, defaults.document_prefix)
        same = {"": pair}
        return [same if part.own or is_changed else self.prefixes.get(part.data.path, same) for part in data]

    def _list_facts(self) -> dict[str, Any]:
        data = [LocatedTraining(data=part, name=part.path) for part in self.data]
        # Where a user names prefixes, they may be for other data.
        tables = [] if self.settings.prefix else self.list_prefix_tables(data)
        prefixes: dict[str, str] = {}
        for part, table in zip(data, tables, strict=False):
            for source, pair in table.items():
                texts = " and ".join(dict.fromkeys(map(repr, pair)))
                prefixes[texts] = ", ".join(filter(None, (prefixes.get(texts), source or part.name)))
        facts = {"prefixes": prefixes, "prompts": build_evaluation_prompts(list_trained_prefixes(tables))}
        return {**super()._list_facts(), **{name: fact for name, fact in facts.items() if fact}}

    def plan(
        self,
        backbone: Artifact,
        data: Sequence[LocatedTraining],
        *,
        seed: int,
        planned: Description | None = None,
    ) -> PlannedModel:
        """The model that the training would make, with the prompts that the training has had.

        Without prefixes a backbone's own prompts stay. For the arguments see ModelRecipe.
        """
        model = super().plan(backbone, data, seed=seed, planned=planned)
        settings, description, tables = self.settings, model.description, self.list_prefix_tables(data)
        if prompts := build_evaluation_prompts(list_trained_prefixes(tables)):
            # A default prompt would go before texts of both sides.
            description = replace(description, prompts=prompts, default_prompt_name=None)
        steps = f"steps of {settings.batch_size:,} pairs, with negatives from groups of {settings.unit:,}"
        if model.steps is not None:
            steps += f", and a warmup of {settings.count_warmup_steps(model.steps):,} steps"
        prefixes = describe_prefixes([part.name for part in data], tables)
        return replace(model, description=description, notes=(*model.notes, steps, prefixes))

    def train(self, spec: TrainingSpec) -> None:
        """Cluster the pairs, train, in a process of its own, and write the model to `spec.output`."""
        from finetune.cde.training import train_contextual

        settings = self._resolve_settings(spec.backbone)
        tables = self.list_prefix_tables(spec.data)
        train_contextual(spec, settings, self.loss, self.found, tables, caches=self.caches)

    def _build_lineage(
        self, backbone: Artifact, settings: ContextualT, data: Sequence[LocatedTraining], seed: int
    ) -> Lineage:
        """The lineage with the prefixes, and with the guide beside the backbone.

        The guide's name is not in the key, how it encodes is.
        """
        lineage = super()._build_lineage(backbone, settings, data, seed)
        tables = self.list_prefix_tables(data)
        same = {"": (settings.query_prefix, settings.document_prefix)}
        # Left out where the two settings say all, so that models of before the tables keep their keys.
        prefixes = {} if all(table == same for table in tables) else {"prefixes": tables}
        typed = {"prefix": ",".join(settings.prefix)} if settings.prefix else {}
        lineage = lineage.model_copy(
            update={
                "settings": {**lineage.settings, **json.loads(serialize_canonical(prefixes))},
                "changed": {**lineage.changed, **typed},
            }
        )
        if self.found is None and not self.settings.guided:
            return lineage
        if self.found is None:
            raise UsageError(f"The guide of {self.name} is not known.", hint="Name one: --set guide=MODEL.")
        return lineage.model_copy(
            update={
                "settings": {**lineage.settings, "guide": self.found.how, "cluster_rules": RULES},
                "parents": (*lineage.parents, ParentPart.of(self.found.artifact)),
            }
        )

    def _estimate_work(
        self, settings: ContextualT, data: Sequence[LocatedTraining]
    ) -> tuple[int | None, int | None]:
        """The steps and rows without the pairs of each set that fill no batch."""
        counts = count_set_rows(data)
        if settings.batches != "contextual" or counts is None:
            return super()._estimate_work(settings, data)
        # The clusters themselves are not known in a plan; repeated pairs, which are left out, can make it
        # fewer.
        groups = sum(count // self.settings.unit for count in counts)
        steps = settings.limit_steps(
            settings.epochs * (groups // (settings.batch_size // self.settings.unit))
        )
        return steps, steps * settings.batch_size

    def _check_training_data(self, data: Sequence[LocatedTraining]) -> None:
        super()._check_training_data(data)
        size = self.settings.unit
        for part in data if self.settings.batches == "contextual" else ():
            if part.rows is not None and part.rows < size:
                raise DataError(
                    f"{part.name} has {part.rows:,} rows, and a batch has {size} of one set.",
                    hint="Give more of them, leave the set out, or type --set batch_size=…",
                )
        counts = count_set_rows(data)
        groups, needed = sum(count // size for count in counts or ()), self.settings.batch_size // size
        if self.settings.batches == "contextual" and counts is not None and groups < needed:
            raise DataError(
                f"The data has {groups:,} groups of {size} pairs of one set, and a batch has {needed}.",
                hint="Give more data, or a smaller batch: --set batch_size=…",
            )

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: ContextualT
    ) -> tuple[str, ...]:
        recipe_settings, uses = self.settings, list[str]()
        if recipe_settings.batches == "contextual":
            uses.append(f"batches of clusters of about {recipe_settings.cluster_size} pairs")
        if recipe_settings.filters:
            uses.append("a filter of false negatives")
        notes = super()._collect_plan_notes(backbone, description, settings)
        if self.found is None:
            return notes
        return (*notes, f"the guide {self.found.artifact.name} makes {' and '.join(uses)}")


@dataclass(frozen=True, kw_only=True)
class TwoStageRecipe(ContextualRecipe[TwoStageTrainingSettings]):
    """A recipe that trains a two-stage model on contextual batches, from a backbone or a two-stage model."""

    trains_two_stages: ClassVar[bool] = True
    facts: ClassVar[Mapping[str, str]] = {
        **ContextualRecipe.facts,
        "network": " ".join((inspect.getdoc(TwoStageSettings) or "").split("\n\n")[1].split()),
        "start": "both stages from the backbone's weights, a second training from the model of the first",
        "context": "in training the documents of a group behind their prefixes; of an evaluation as many "
        "different texts of the task's scored splits, documents if it has any, as context_size says, behind "
        "the prefix of its documents or of its type, drawn by hashes of seed and text",
    }

    def _count_training_texts(self, steps: int, rows: int, data: Sequence[LocatedTraining]) -> int:
        """Context documents count as texts."""
        # Each group of a step encodes a context of its own.
        context = self.settings.context_size * (self.settings.batch_size // self.settings.unit)
        return super()._count_training_texts(steps, rows, data) + steps * context

    def _build_lineage(
        self,
        backbone: Artifact,
        settings: TwoStageTrainingSettings,
        data: Sequence[LocatedTraining],
        seed: int,
    ) -> Lineage:
        lineage = super()._build_lineage(backbone, settings, data, seed)
        return lineage.model_copy(
            update={"settings": {**lineage.settings, "two_stage_rules": TWO_STAGE_RULES}}
        )

    def _plan_description(self, description: Description) -> Description:
        length = self.settings.max_length or description.max_length
        return describe_two_stage(description, self.settings.stages, max_length=length)

    def _check_backbone_fit(self, backbone: Artifact, description: Description) -> None:
        if description.two_stage is None:
            super()._check_backbone_fit(backbone, description)
            return
        for name, setting in (("prompts", "soft_prompts"), ("tied", "tied")):
            backbone_value = getattr(description.two_stage, name)
            recipe_value = getattr(self.settings.stages, name)
            if backbone_value != recipe_value:
                raise UsageError(
                    f"{backbone.name} has {setting} = {backbone_value}, and {self.name} would train it with "
                    f"{recipe_value}.",
                    hint=f"Type --set {setting}={str(backbone_value).lower()}, or start from a bare "
                    "backbone.",
                )

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: TwoStageTrainingSettings
    ) -> tuple[str, ...]:
        size, documents = self.settings.context_size, self.settings.unit
        # Without its pooling: the note of one stage on a model's old pooling does not hold for two.
        notes = super()._collect_plan_notes(backbone, replace(description, pooling=None), settings)
        if documents < size:
            repeats = (
                f"the context has {size} places, and a group of rows {documents} documents, which "
                f"are repeated: --set context_size={documents} has each of them once"
            )
            notes = (*notes, repeats)
        if description.two_stage is not None:
            return (*notes, f"{backbone.name} already has two stages: both are trained further")
        if description.pooling is not None and not backbone.trained:
            return (
                *notes,
                f"{backbone.name} is already an embedding model: both stages start from its weights",
            )
        return notes


def describe_two_stage(backbone: Description, stages: TwoStageSettings, *, max_length: int) -> Description:
    """The description of a two-stage model that is to be made of a backbone, for both stages.

    Args:
        backbone: The description of the backbone; ModelError if our network does not run it.
        stages: The settings of the two stages.
        max_length: The most tokens of a text; ModelError if there are too few positions.
    """
    place = find_backbone_folder(backbone.folder)
    require_network(place)
    limits = replace(backbone.lengths[0], most=max_length, named=max_length)
    length = compute_text_limits(place, stages, limits)
    return replace(
        backbone,
        pooling=OWN_POOLING,
        normalize=False,
        max_length=max_length,
        position_limit=length.limit,
        lengths=(length,),
        prompts={},
        default_prompt_name=None,
        similarity_fn_name="cosine",
        late_interaction=None,
        two_stage=stages,
        unscalable=TWO_BACKBONES,
    )
