"""Contextual batches for an ordinary embedding model (Morris and Rush 2024), with the numbers of NeoBERT."""

from __future__ import annotations

from dataclasses import replace

from finetune.cde.plan import ContextualRecipe
from finetune.cde.settings import ContextualSettings
from finetune.embedding.plan import Variant, entry
from finetune.embedding.settings import info_nce
from finetune.origins import CDE, TRAINER, read_sources
from finetune.recipes.dpr import MSMARCO
from finetune.recipes.simcse import NLI

GTR = "sentence-transformers/gtr-t5-base@7027e9594267928589816394bdd295273ddc0739"
"""The guide of the authors' clusters."""

PAPER = ContextualSettings(
    guide=GTR,
    cluster_size=512,
    packing="random",
    margin=0.0,
    query_prefix="search_query: ",
    document_prefix="search_document: ",
    pooling="mean",
    learning_rate=5e-5,
    batch_size=512,
    epochs=3,
    max_length=512,
    scale=50.0,
    weight_decay=0.0,
    betas=(0.9, 0.999),
    eps=1e-8,
    warmup=1_000,
    schedule="linear",
    clip=1.0,
    precision="bfloat16",
    batches="contextual",
)
"""The values of NeoBERT's appendix G; scale, prefixes, and how clusters are packed are those of the code."""

AUTHORS = replace(
    PAPER,
    iterations=100,
    starts=3,
    margin=None,
    learning_rate=2e-5,
    epochs=5,
    warmup=200,
    schedule="constant",
    weight_decay=0.01,
    dropout=False,
)
"""The authors' command for their second stage, the rest being the defaults of their code."""

VARIANTS: dict[str, Variant[ContextualSettings]] = {
    "authors": Variant(
        summary="the authors' command: 5 epochs at 2e-5 without dropout and filter, k-means 100 × 3",
        settings=AUTHORS,
    ),
    "large-guide": Variant(
        summary="the paper's numbers with its kind of guide, GTE-large",
        settings=replace(PAPER, guide="thenlper/gte-large"),
    ),
}

SOURCES = read_sources(
    CDE,
    """
    README.md: batches 45, precision 45
    cde/trainer.py: last_batch 219, loss 376, margin 639
    cde/run_args.py: pooling 79, max_length 47, scale 103, guide 175, packing 194, dropout 29
    cde/lib/cluster.py: dimensions 433
    cde/lib/cluster_faiss.py: cluster_seed 19
    cde/dataset.py: query_prefix 192, document_prefix 196
    [NeoBERT, appendix G.2]: weight_decay, warmup, schedule, learning_rate, batch_size, epochs, max_length,
        group_size, cluster_size, margin
    [NeoBERT, appendix G.1]: batches
    weight_decay = its optimizer is Adam; 0.01 in the code
    data = the triplets of dpr and simcse; NeoBERT has Nomic's pairs (appendix G.2)
    group_size = none are shared between devices
    guide = NeoBERT has a GTE-large (appendix G.2)
    cluster_size = 256 by default in the code (cde/run_args.py#L206)
    iterations = 100 in the code (cde/lib/cluster_faiss.py#L17)
    starts = 3 in the code (cde/lib/cluster_faiss.py#L18)
    margin = no filter by default in the code
    dropout = off in the authors' commands
    :authors
    cde/run_args.py: weight_decay 372, margin 275
    cde/lib/cluster_faiss.py: iterations 17, starts 18
    [answer in jxmorris12/cde#7]: learning_rate, epochs, warmup, schedule, dropout
    :large-guide
    [NeoBERT, appendix G.2]: guide
    """,
    {"": TRAINER},
)


def list_batching_assumptions(settings: ContextualSettings) -> tuple[str, ...]:
    """What paper and code leave open, and the reading taken."""
    iterations = (
        "NeoBERT does not say how its clusters are made; k-means has 25 iterations and one start in place of "
        "the code's 100 and 3."
    )
    return (
        *([iterations] if settings.iterations == PAPER.iterations else []),
        "A batch has pairs of one set; the code can also let it run from one set into the next.",
        "Pairs that repeat an earlier one are left out of the batches.",
        "NeoBERT's Adam is AdamW with a decay of 0 here."
        if not settings.weight_decay
        else "The code's AdamW.",
        "Negatives come from the whole batch, whatever the devices.",
    )


RECIPE = entry(
    ContextualRecipe(
        name="cde-batching",
        source="NeoBERT, appendix G; contextual batches of Contextual Document Embeddings and its code",
        data=(MSMARCO, NLI),
        loss=info_nce,
        settings=PAPER,
        defaults=PAPER,
        assumed=list_batching_assumptions,
        assumed_data=(
            "NeoBERT trains on 235 M and then 1.5 M pairs of Nomic, in one stage here on the triplets of dpr "
            "and of simcse.",
        ),
    ),
    "Embedding models on contextual batches: pairs that a guide finds alike, without false negatives",
    VARIANTS,
    SOURCES,
)
