"""A recipe that makes models without a gradient: mean pooling less the mean of the training texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from harness.plugins import (
    Artifact,
    DataError,
    Description,
    Lineage,
    LocatedTraining,
    Output,
    ParentPart,
    PlannedModel,
    RecipeEntry,
    TrainingData,
    TrainingSpec,
    describe,
    load_training,
)


@dataclass(frozen=True, kw_only=True)
class CenteringSettings:
    """The texts whose mean is taken off, and the share of it that is."""

    texts: int = 1000
    share: float = 1.0


@dataclass(frozen=True, kw_only=True)
class CenteringRecipe:
    """The recipe with a user's settings (harness.plugins.ModelRecipe)."""

    settings: CenteringSettings
    name: str = "sample-centered"
    source: str = "ours: a mean is taken off"
    output: Output = "vector"
    data: tuple[TrainingData, ...] = (TrainingData(path="sample/texts", revision="1" * 40, rows=8),)
    selection: tuple[TrainingData, ...] = ()

    @property
    def all_data(self) -> tuple[TrainingData, ...]:
        """The texts."""
        return self.data

    def devices(self, most: int, backbone: Artifact) -> int:
        """One, however many there are."""
        return 1

    def plan(
        self,
        backbone: Artifact,
        data: Sequence[LocatedTraining],
        *,
        seed: int,
        planned: Description | None = None,
    ) -> PlannedModel:
        """The model with mean pooling and one dense layer."""
        if data[0].rows == 0:
            raise DataError(f"{data[0].name} has no rows.")
        lineage = Lineage(
            recipe=self.name,
            source=self.source,
            settings=asdict(self.settings),
            parents=(ParentPart.of(backbone),),
            data=tuple(one.data.identity for one in data),
            seed=seed,
            own_data=", ".join(one.name for one in data if one.own),
        )
        description = replace(planned or describe(backbone.folder), pooling="mean", normalize=False)
        return PlannedModel(lineage=lineage, description=description, steps=1, texts=data[0].rows)

    def train(self, spec: TrainingSpec) -> None:
        """Encode texts in the order of the seed, and put the negative of their mean into the bias."""
        import torch
        from sentence_transformers import SentenceTransformer, models

        spec.log.begin(steps=1, done=0)
        rows = load_training(spec.data[0], cache=spec.cache).shuffle(seed=spec.seed)
        texts = list(rows[: self.settings.texts][rows.column_names[0]])
        transformer = models.Transformer(str(spec.backbone.folder))
        width = transformer.get_word_embedding_dimension()
        model = SentenceTransformer(modules=[transformer, models.Pooling(width, "mean")], device=spec.device)
        mean = torch.from_numpy(model.encode(texts)).mean(0)
        dense = models.Dense(width, width, activation_function=torch.nn.Identity())
        with torch.no_grad():
            dense.linear.weight.copy_(torch.eye(width))
            dense.linear.bias.copy_(-self.settings.share * mean)
        model.append(dense)
        spec.log.steps([{"step": 1, "loss": float(mean.norm())}])
        model.save(str(spec.output), create_model_card=False)


RECIPE = RecipeEntry(
    name="sample-centered",
    summary="Mean pooling less the mean of the training texts",
    kind="model",
    settings={"": CenteringSettings()},
    open=lambda _variant, settings: CenteringRecipe(settings=settings),
)
