"""The plan of compute-optimal contrastive trainings, whose steps a budget may choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from finetune.efficient.settings import EfficientSettings
from finetune.efficient.tuning import FEW_WEIGHTS, usual_rate
from finetune.embedding.plan import EmbeddingRecipe
from finetune.embedding.settings import EmbeddingSettings
from finetune.flops import backbone_parameters
from harness.core.errors import UsageError
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining
from harness.encoder.folder.description import Description
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import backbone_folder
from harness.training.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class EfficientRecipe(EmbeddingRecipe):
    """A recipe of contrastive pairs that trains a part of a backbone's weights, or all, within a budget."""

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""
        from finetune.efficient.training import train_efficient

        settings = self._fitted(spec.backbone)
        assert isinstance(settings, EfficientSettings)
        train_efficient(spec, settings, self.loss)

    @property
    def _own(self) -> EfficientSettings:
        assert isinstance(self.settings, EfficientSettings)
        return self.settings

    def _fitted(self, backbone: Artifact) -> EmbeddingSettings:
        """The settings for a backbone, with the paper's rate for its size."""
        settings = super()._fitted(backbone)
        if settings.learning_rate:
            return settings
        rate = usual_rate(self._own.method, backbone_parameters(backbone.folder))
        return replace(settings, learning_rate=rate)

    def _description(self, found: Description) -> Description:
        planned, length = super()._description(found), self._own.evaluation_length
        return planned if length is None else replace(planned, max_length=min(length, planned.max_length))

    def _work(
        self, settings: EmbeddingSettings, data: Sequence[LocatedTraining]
    ) -> tuple[int | None, int | None]:
        """The steps and rows of the epochs; those of a budget are known when the texts are read."""
        return (None, None) if self._own.budget is not None else super()._work(settings, data)

    def _check_backbone(self, backbone: Artifact, found: Description) -> None:
        super()._check_backbone(backbone, found)
        blocks = read_object(backbone_folder(backbone.folder) / "config.json").get("num_hidden_layers")
        if self._own.method == "freeze" and isinstance(blocks, int):
            self._own.tuning.frozen_blocks(blocks)
        if self._own.budget is not None and self._own.max_steps is not None:
            raise UsageError(
                "budget and max_steps both choose the number of steps.", hint="Leave one of them out."
            )

    def _notes(self, backbone: Artifact, found: Description, settings: EmbeddingSettings) -> tuple[str, ...]:
        notes = list(super()._notes(backbone, found, settings))
        if not self.settings.learning_rate:
            size = "" if self._own.method in FEW_WEIGHTS else " and the nearest size of Pythia"
            notes.append(
                f"the learning rate is {settings.learning_rate:g}, the paper's for {self._own.method}{size}"
            )
        if self._own.budget is not None:
            notes.append(f"a budget of {self._own.budget:g} FLOP chooses the steps when the texts are read")
        return tuple(notes)
