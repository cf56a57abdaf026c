"""The plan of a recipe that trains a model with a vector for each token (ColBERT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from finetune.colbert.settings import ColBERTSettings
from finetune.embedding.plan import TrainerRecipe
from harness.core.encoding import LateInteraction
from harness.core.errors import UsageError
from harness.core.types import Artifact, Output
from harness.data.training.sets import LocatedTraining
from harness.encoder.folder.description import Description
from harness.training.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class ColBERTRecipe(TrainerRecipe[ColBERTSettings]):
    """A recipe that trains a model with a vector for each token."""

    @property
    def output(self) -> Output:
        """The output of the model: a vector for each token."""
        return "multivector"

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""
        from finetune.colbert.training import ColBERTSetup
        from finetune.embedding.trainer import train

        train(spec, self.settings, ColBERTSetup(self.settings))

    def _description(self, found: Description) -> Description:
        return replace(
            found,
            pooling=None,
            normalize=False,
            similarity_fn_name="maxsim",
            late_interaction=self.settings.late_interaction,
        )

    def _texts_per_row(self, data: Sequence[LocatedTraining]) -> int:
        if self.settings.loss == "distillation":
            return 1 + self.settings.documents
        return max(len(part.data.columns) for part in data)

    def _check_backbone(self, backbone: Artifact, found: Description) -> None:
        super()._check_backbone(backbone, found)
        before, settings = found.late_interaction, self.settings
        if before is not None and before.dimension != settings.dimension:
            raise UsageError(
                f"{backbone.name} has token vectors of {before.dimension} dimensions, and {self.name} trains "
                f"{settings.dimension}.",
                hint=f"Type --set dimension={before.dimension}, or give the bare backbone.",
            )
        if before is not None and _prefixes(before) != _prefixes(settings.late_interaction):
            raise UsageError(
                f"{backbone.name} has the prefixes {_prefixes(before)}, and {self.name} trains "
                f"{_prefixes(settings.late_interaction)}.",
                hint="Give the bare backbone, or a PyLate model with its default prefixes.",
            )
        limit = found.position_limit
        for name in ("query_length", "document_length"):
            length = getattr(settings, name)
            if limit is not None and length > limit:
                raise UsageError(
                    f"{name} is {length}, and {backbone.name} has positions for {limit} tokens.",
                    hint=f"Type --set {name}={limit}, or less.",
                )

    def _check_data(self, data: Sequence[LocatedTraining]) -> None:
        distills = self.settings.loss == "distillation"
        for part in data:
            if distills and not part.data.texts:
                raise UsageError(
                    f"{part.name} has no documents with a teacher's scores (each row is a {part.data.form}).",
                    hint="Make such data with `harness data score --teacher MODEL`, or train on pairs with "
                    "--recipe colbert:contrastive.",
                )
            if not distills and part.data.score:
                raise UsageError(
                    f"{part.name} has scores in each row ({part.data.form}), which {self.name} does not "
                    "take.",
                    hint="Give pairs, triplets, or rows with several negatives.",
                )
        if distills and len(data) > 1:
            raise UsageError("Distillation takes one data set.", hint="Give one, with all rows.")
        super()._check_data(data)

    def _notes(self, backbone: Artifact, found: Description, settings: ColBERTSettings) -> tuple[str, ...]:
        if found.late_interaction is not None:
            return (
                f"{backbone.name} has a vector for each token already: it is trained further, with its "
                "projection",
            )
        return super()._notes(backbone, found, settings)


def _prefixes(late: LateInteraction) -> tuple[str, str]:
    return late.query_prefix, late.document_prefix
