"""ColBERT by distillation on MS MARCO, as ModernBERT has it (Warner et al. 2024); the settings of PyLate."""

from __future__ import annotations

from dataclasses import replace

from finetune.colbert.plan import ColBERTRecipe
from finetune.colbert.settings import ColBERTSettings
from finetune.embedding.plan import Variant, entry
from finetune.recipes.dpr import MSMARCO
from harness.data.scored_tables import IDS, SCORES, TEXTS
from harness.data.training.sets import TrainingData

SCORED = TrainingData(
    path="lightonai/ms-marco-en-bge",
    revision="11e6ffa1d22f461579f451eb31bdc964244cb61f",
    config="train",
    columns=IDS,
    score=SCORES,
    texts=TEXTS,
    rows=808_728,
)
"""Queries of MS MARCO, each with 32 passages and the scores of a teacher."""

SCRIPT = ColBERTSettings(
    loss="distillation",
    dimension=128,
    query_length=32,
    document_length=180,
    expansion=True,
    attends_to_expansion=False,
    documents=32,
    learning_rate=8e-5,
    batch_size=16,
    epochs=1,
    weight_decay=0.0,
    betas=(0.9, 0.999),
    eps=1e-8,
    warmup=0.05,
    schedule="linear",
    clip=1.0,
    precision="bfloat16",
    last_batch="kept",
)
"""The values of the released script, the rest being the defaults of PyLate and of transformers' trainer."""

CONTRASTIVE = replace(
    SCRIPT,
    loss="contrastive",
    learning_rate=3e-6,
    batch_size=32,
    warmup=0.0,
    batches="no_duplicates",
    chunk=32,
)
"""The values of PyLate's example of a contrastive training."""


def _assumed(settings: ColBERTSettings) -> tuple[str, ...]:
    """What paper and script leave open, and the reading taken."""
    rate = (
        "The learning rate is that of ModernBERT's script; the paper chooses one of six for each backbone, "
        "by the scores on four test sets (1e-5 to 1e-4)."
    )
    distilled = settings.loss == "distillation"
    return (
        *([rate] if distilled and settings.learning_rate == SCRIPT.learning_rate else []),
        "The order of rows follows from the seed; that of the script's sampler does not.",
        *(
            []
            if distilled
            else [
                "ModernBERT has no contrastive ColBERT: values of PyLate's example, with a batch without "
                "texts that occur twice, in bfloat16, on the triplets of dpr.",
                "PyLate's cached loss has the gradient of the sum over a batch, not of its mean; with a "
                "limit of the gradient's norm that is another step.",
            ]
        ),
    )


RECIPE = entry(
    ColBERTRecipe(
        name="colbert",
        source="ModernBERT, section 3.1.2; examples/train_pylate.py of its code",
        data=(SCORED,),
        settings=SCRIPT,
        defaults=SCRIPT,
        assumed=_assumed,
        assumed_data=(
            "The paper's 810 k rows with the scores of BGE-M3 are those of lightonai/ms-marco-en-bge "
            "(808,728), whose card names bge-reranker-v2-m3 as the teacher.",
        ),
    ),
    "ColBERT by distillation from a teacher's scores of 32 passages a query, a vector for each token",
    {
        "contrastive": Variant(
            summary="ColBERT by contrast with all documents of a batch, on the triplets of dpr",
            settings=CONTRASTIVE,
            data=(MSMARCO,),
        )
    },
)
