"""Compute-optimal contrastive fine-tuning (Ziarko et al. 2024): what its four recipes share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from finetune.efficient.plan import EfficientRecipe
from finetune.efficient.settings import EfficientSettings, symmetric
from finetune.embedding.plan import Variant, entry
from finetune.embedding.settings import EmbeddingSettings
from finetune.recipes.simcse import NLI
from harness.jobs.recipe import RecipeEntry

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
    "chunk": 64,
    "pooling": "mean",
}
"""The values of the paper and of its code, which all four methods have."""

TOKENS = 78
"""The tokens of a pair in the code: 14 of a query and 64 of a document on average."""


def _assumed(settings: EmbeddingSettings) -> tuple[str, ...]:
    """What paper and code leave open or disagree on, and the reading taken."""
    assert isinstance(settings, EfficientSettings)
    ends = "The cosine ends at 0, as in appendix D and the code; section 4.1 has a tenth of the rate."
    return (
        *([ends] if settings.schedule == "cosine" else []),
        *(
            [
                "The rates are those of Pythia's sizes; another backbone has that of the nearest size. The "
                "sample configurations of the code have 1e-3 for every method."
            ]
            if not settings.learning_rate
            else []
        ),
        *(
            ["Operations are counted by the tokens of the texts; the code takes 78 for every pair."]
            if settings.tokens_per_pair is None
            else []
        ),
        *(
            [
                "Models are evaluated at their own length; the authors cut at 75 tokens, and divide the sum "
                "of token vectors by the padded length of its batch."
            ]
            if settings.evaluation_length is None
            else [
                "Vectors are means over the tokens; the authors divide by the padded length of a batch, so "
                "that classification and clustering depend on the batch."
            ]
        ),
    )


def efficient(settings: EfficientSettings, name: str, summary: str, code: EfficientSettings) -> RecipeEntry:
    """The entry of the recipe of a method.

    Args:
        settings: Its settings.
        name: Its name.
        summary: The recipe in words.
        code: The settings of the released code, where they differ.
    """
    variants: dict[str, Variant[EmbeddingSettings]] = {
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
            loss=symmetric,
            settings=settings,
            defaults=settings,
            assumed=_assumed,
            assumed_data=(
                "The paper trains on 200 M English pairs of BAAI-MTP, which are not on the hub: give them "
                "with --train-data. These are the pairs of the sample configurations, NLI.",
            ),
        ),
        summary,
        variants,
    )
