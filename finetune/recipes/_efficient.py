"""Compute-optimal contrastive fine-tuning (Ziarko et al. 2024): what its four recipes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finetune.efficient.settings import (
    FEW_WEIGHTS,
    EfficientSettings,
    build_symmetric_info_nce,
    compute_usual_rate,
)
from finetune.embedding.plan import EmbeddingRecipe, Variant, entry, select_assumed
from finetune.embedding.settings import SuggestedRows
from finetune.flops import count_backbone_parameters
from finetune.origins import ADAMW, EFFICIENT, PEFT
from finetune.recipes.simcse import NLI
from harness.core.errors import UsageError
from harness.core.sources import Source
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining
from harness.encoder.folder.description import Description
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import find_backbone_folder
from harness.jobs.recipe import RecipeEntry
from harness.training.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class EfficientRecipe(EmbeddingRecipe[EfficientSettings]):
    """A recipe of contrastive pairs that trains a part of a backbone's weights, or all, within a budget."""

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""
        from finetune.efficient.training import train_efficient

        settings = self._resolve_settings(spec.backbone)
        train_efficient(spec, settings, self.loss)

    def _resolve_settings(self, backbone: Artifact) -> EfficientSettings:
        """The settings for a backbone, with the paper's rate for its size."""
        settings = super()._resolve_settings(backbone)
        if settings.learning_rate:
            return settings
        rate = compute_usual_rate(self.settings.method, count_backbone_parameters(backbone.folder))
        return replace(settings, learning_rate=rate)

    def _plan_description(self, description: Description) -> Description:
        planned, length = super()._plan_description(description), self.settings.evaluation_length
        return planned if length is None else replace(planned, max_length=min(length, planned.max_length))

    def _estimate_work(
        self, settings: EfficientSettings, data: Sequence[LocatedTraining]
    ) -> tuple[int | None, int | None]:
        """The steps and rows of the epochs; those of a budget are known when the texts are read."""
        # A plan reads JSON only, and the steps of a budget depend on the tokens of the texts.
        return (None, None) if self.settings.budget is not None else super()._estimate_work(settings, data)

    def _check_backbone_fit(self, backbone: Artifact, description: Description) -> None:
        super()._check_backbone_fit(backbone, description)
        # Already in the plan: a share that does not fit would otherwise end a queued training.
        blocks = read_object(find_backbone_folder(backbone.folder) / "config.json").get("num_hidden_layers")
        if self.settings.method == "freeze" and isinstance(blocks, int):
            self.settings.tuning.count_frozen_blocks(blocks)
        if self.settings.budget is not None and self.settings.max_steps is not None:
            raise UsageError(
                "budget and max_steps both choose the number of steps.", hint="Leave one of them out."
            )

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: EfficientSettings
    ) -> tuple[str, ...]:
        notes = list(super()._collect_plan_notes(backbone, description, settings))
        if not self.settings.learning_rate:
            method, rate = self.settings.method, settings.learning_rate
            size = "" if method in FEW_WEIGHTS else " and the nearest size of Pythia"
            notes.append(f"the learning rate is {rate:g}, the paper's for {method}{size}")
        if self.settings.budget is not None:
            notes.append(
                f"a budget of {self.settings.budget:g} FLOP chooses the steps when the texts are read"
            )
        return tuple(notes)


PAIRS = replace(NLI, columns=("anchor", "positive"))
"""The pairs of the authors' sample configurations: NLI, here in the form that is on the hub."""

VALUES: Mapping[str, Any] = {
    "batch_size": 1024,
    "epochs": 1,
    "max_length": 75,
    "scale": 40.0,
    "weight_decay": 0.1,
    "decay_all": True,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "warmup": 0.1,
    "schedule": "cosine",
    "clip": 0.0,
    "precision": "float32",
    "batches": "shuffled",
    "chunk": SuggestedRows(64),
    "pooling": "mean",
}
"""The values of the paper and of its code, which all four methods have."""

TOKENS = 78
"""The tokens of a pair in the code: 14 of a query and 64 of a document on average."""

_SAMPLE = f"{EFFICIENT}experiments/train_and_eval_full_fine_tuning.gin#L"
_LORA = f"{EFFICIENT}experiments/train_and_eval_lora.gin#L"
_JOB, _DATA = f"{EFFICIENT}effemb/jobs/train.py#L", f"{EFFICIENT}effemb/utils/data.py#L"
_SETUP = "Efficient-Embeddings, appendix D"

RATES = {
    "full": Source(f"{_SETUP}.1", f"{EFFICIENT}effemb/utils/pythia.py#L3", "the code's samples have 1e-3"),
    "freeze": Source(f"{_SETUP}.1", f"{EFFICIENT}effemb/utils/pythia.py#L3", "the code's samples have 1e-3"),
    "lora": Source("Efficient-Embeddings, table 3", f"{_LORA}9"),
    "bias": Source("Efficient-Embeddings, table 4", other="the code's samples have 1e-3"),
}
"""The sources of the highest learning rate by method."""

SOURCES = {
    "": {
        **ADAMW,
        "data": Source(
            "",
            f"{_SAMPLE}11",
            "the paper (section 4.1) has 200 M pairs of BAAI-MTP, not on the hub",
        ),
        "loss": Source("Efficient-Embeddings, section 3.3", f"{EFFICIENT}effemb/losses.py#L51"),
        "batch_size": Source(_SETUP, f"{_SAMPLE}17", "2,048 in appendix F"),
        "epochs": Source("Efficient-Embeddings, section 4.1", other="less than one, by a budget"),
        "weight_decay": Source(_SETUP, f"{_SAMPLE}5"),
        "decay_all": Source("", f"{_JOB}211"),
        "warmup": Source(f"{_SETUP}.1", f"{_JOB}162"),
        "schedule": Source(
            f"{_SETUP}.1", f"{EFFICIENT}effemb/schedulers.py#L27", "section 4.1 ends at a tenth"
        ),
        "clip": Source("", f"{_JOB}269", "nothing stands between the backward pass and the step"),
        "precision": Source("", f"{EFFICIENT}experiments/train_and_eval_full_fine_tuning.py#L17"),
        "batches": Source(other="the code reads its file in order (effemb/utils/data.py#L91)"),
        "last_batch": Source(other="the code ends by its number of pairs"),
        "pooling": Source("Efficient-Embeddings, section 3.2", f"{_SAMPLE}2"),
        "max_length": Source(_SETUP, f"{_DATA}24", "512 in appendix F"),
        "scale": Source(_SETUP, f"{_SAMPLE}15"),
        "selection": Source("", f"{_JOB}304", "models are evaluated at the end"),
        "group_size": Source("Efficient-Embeddings, section 3.3", f"{EFFICIENT}effemb/losses.py#L48"),
        "evaluation_length": Source(other="the code evaluates at 75 tokens"),
        "frozen": Source(other="the paper has 0/6 to 5/6, or 0/8 to 7/8 (section 4.2)"),
        "rank": Source("Efficient-Embeddings, section 4.2", f"{_LORA}20", "32 or 128 are best"),
        "lora_alpha": Source("default of peft", f"{PEFT}src/peft/tuners/lora/config.py#L64"),
        "lora_modules": Source("Efficient-Embeddings, section 4.2", f"{_LORA}21"),
        "lora_embeddings": Source(
            "Efficient-Embeddings, section 4.2", other="the code's sample has adapters of embeddings as well"
        ),
    },
    "text": {"schedule": Source("Efficient-Embeddings, section 4.1")},
    "code": {
        "evaluation_length": Source("", f"{_DATA}24"),
        "tokens_per_pair": Source("", f"{_DATA}20"),
        "lora_embeddings": Source("", f"{_LORA}21"),
    },
}


def _list_efficient_assumptions(settings: EfficientSettings) -> tuple[str, ...]:
    """What paper and code leave open or disagree on, and the reading taken."""
    counted, keeps_length = settings.tokens_per_pair is None, settings.evaluation_length is None
    return select_assumed(
        {
            "The cosine ends at 0, as in appendix D and the code; section 4.1 has a tenth of the rate.": (
                settings.schedule == "cosine"
            ),
            "The rates are those of Pythia's sizes; another backbone has that of the nearest size. The "
            "sample configurations of the code have 1e-3 for every method.": not settings.learning_rate,
            "Operations are counted by the tokens of the texts; the code takes 78 for every pair.": counted,
            "Models are evaluated at their own length; the authors cut at 75 tokens, and divide the sum of "
            "token vectors by the padded length of its batch.": keeps_length,
            "Vectors are means over the tokens; the authors divide by the padded length of a batch, so that "
            "classification and clustering depend on the batch.": not keeps_length,
        }
    )


def build_efficient_entry(
    settings: EfficientSettings, name: str, summary: str, code: EfficientSettings
) -> RecipeEntry:
    """The entry of the recipe of a method.

    Args:
        settings: Its settings.
        name: Its name.
        summary: The recipe in words.
        code: The settings of the released code, where they differ.
    """
    variants: dict[str, Variant[EfficientSettings]] = {
        "text": Variant(
            summary="the cosine of section 4.1, which ends at a tenth of the rate",
            settings=replace(settings, schedule="cosine_to_tenth"),
        ),
        "code": Variant(
            summary="the released code: 78 tokens counted a pair, evaluation at 75 tokens",
            settings=replace(code, tokens_per_pair=TOKENS, evaluation_length=75),
        ),
    }
    return entry(
        EfficientRecipe(
            name=name,
            source="Repurposing Language Models into Embedding Models, sections 3 and 4; its code",
            data=(PAIRS,),
            loss=build_symmetric_info_nce,
            settings=settings,
            defaults=settings,
            assumed=_list_efficient_assumptions,
            assumed_data=(
                "The paper trains on 200 M English pairs of BAAI-MTP, which are not on the hub: give them "
                "with --train-data. These are the pairs of the sample configurations, NLI.",
            ),
        ),
        summary,
        variants,
        {**SOURCES, "": {**SOURCES[""], "learning_rate": RATES[settings.method]}},
    )
