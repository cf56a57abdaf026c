"""Long documents of MLDR in English, a second training after dpr; ModernBERT's settings are unpublished."""

from __future__ import annotations

from dataclasses import replace

from finetune.embedding.plan import EmbeddingRecipe, entry
from finetune.embedding.settings import SuggestedRows, info_nce
from finetune.recipes import dpr
from harness.core.sources import read_sources
from harness.data.training.sets import TrainingData
from harness.jobs.recipe import PrintedRow

MLDR = TrainingData(
    path="Shitao/MLDR",
    revision="d67138e705d963e346253a80e59676ddb418810a",
    columns=("query", "positive_passages", "negative_passages"),
    file="mldr-v1.0-en/train.jsonl.gz",
    passages=True,
    rows=10_000,
)
"""Questions on articles of Wikipedia, each with its article and others."""

SETTINGS = replace(dpr.SCRIPT, batch_size=64, chunk=SuggestedRows(2), max_length=8192)

SOURCES = read_sources(
    "",
    """
    [ModernBERT, section 3.1.3]: data, evaluation.max_length
    data := of the lists of passages the first positive and the first negative one count
    batch_size = ModernBERT publishes no settings of this training; 512 in dpr
    max_length = ModernBERT publishes no settings of this training
    max_length := documents are cut at 8,192 tokens, or the model's own limit, and queries are shorter
    * := as in dpr: ModernBERT publishes no settings of this training
    """,
    {"": dpr.SOURCES[""]},
)


PRINTED = PrintedRow(
    place="ModernBERT, table 1, ModernBERT base",
    recipe="dpr:authors+mldr",
    model="answerdotai/ModernBERT-base",
    suite="mldr",
    settings=("dpr.learning_rate=8e-5",),
    line="DPR MLDR-ID",
    differs=(
        "The paper prints no setting of this training: we take those of its script for DPR, with batches of "
        "64 and texts of 8,192 tokens",
    ),
)

RECIPE = entry(
    EmbeddingRecipe(
        name="mldr",
        source="ModernBERT, section 3.1.3 (MLDR in domain)",
        data=(MLDR,),
        loss=info_nce,
        settings=SETTINGS,
        defaults=SETTINGS,
    ),
    "Retrieval of long documents by InfoNCE on MLDR's training questions, as in dpr+mldr",
    sources=SOURCES,
    printed=[PRINTED],
)
