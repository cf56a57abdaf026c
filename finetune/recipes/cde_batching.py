"""Contextual batches for an ordinary embedding model (Morris and Rush 2024), with the numbers of NeoBERT."""

from __future__ import annotations

from dataclasses import replace

from finetune.cde.plan import ContextualRecipe
from finetune.cde.prefixes import parse_prefix
from finetune.cde.settings import ContextualSettings
from finetune.embedding.plan import Variant, entry
from finetune.embedding.settings import info_nce
from finetune.origins import CDE, MTEB, NEOBERT, TRAINER
from finetune.recipes.dpr import MSMARCO
from finetune.recipes.simcse import NLI
from harness.core.encoding import EvaluationSettings
from harness.core.sources import read_sources

GTR = "sentence-transformers/gtr-t5-base@7027e9594267928589816394bdd295273ddc0739"
"""The guide of the authors' clusters."""

GTE = "thenlper/gte-large@4bef63f39fcc5e2d6b0aae83089f307af4970164"
"""The guide of NeoBERT's clusters and filter."""

PAPER = ContextualSettings(
    guide=GTE,
    cluster_size=512,
    iterations=100,
    starts=3,
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
    warmup=1_000,
    precision="bfloat16",
    batches="contextual",
)
"""The values of NeoBERT's appendix G; scale, prefixes and clusters are the code's, the rest the trainer's."""

AUTHORS = replace(
    PAPER,
    guide=GTR,
    margin=None,
    learning_rate=2e-5,
    # 8 GPUs with 512 pairs each, which share no negatives.
    batch_size=4096,
    group_size=512,
    chunk=None,
    epochs=5,
    # The code divides the command's 200 by the number of GPUs.
    warmup=25,
    schedule="constant",
    weight_decay=0.01,
    dropout=False,
)
"""The authors' command for their second stage, the rest being the defaults of their code."""

VARIANTS: dict[str, Variant[ContextualSettings]] = {
    "authors": Variant(
        summary="the authors' command: 5 epochs of 4,096 pairs in groups of 512, at 2e-5 without filter",
        settings=AUTHORS,
    ),
}

PREFIXES = {MSMARCO.path: {"": parse_prefix("search")}, NLI.path: {"": parse_prefix("classification")}}
"""The prefixes of msmarco and nli_triplets in the code."""


EVALUATION = EvaluationSettings(max_length=512, dtype="float16")
"""The length of NeoBERT's training, and the float16 of its run on MTEB."""

AUTHORS_EVALUATION = replace(EVALUATION, dtype="bfloat16", normalized_types=("Clustering",))
"""The authors' `evaluate_mteb.py`, whose vectors have length 1 for clustering alone."""

EVALUATIONS = {"": EVALUATION, "authors": AUTHORS_EVALUATION}

SOURCES = read_sources(
    CDE,
    f"""
    README.md: batches 45, precision 45
    cde/trainer.py: last_batch 219, loss 376, margin 639
    cde/run_args.py: pooling 79, max_length 47, scale 103, packing 194, dropout 29
    cde/lib/cluster.py: dimensions 433
    cde/lib/cluster_faiss.py: cluster_seed 19, iterations 17, starts 18
    cde/dataset.py: query_prefix 490, document_prefix 491
    cde/config/nomic_supervised.yaml: prefixes 4
    cde/lib/eval/mteb.py: prompts 106
    evaluate_mteb.py: evaluation.max_length 73
    {NEOBERT}scripts/evaluation/run_mteb.py: evaluation.dtype 180
    [NeoBERT, appendix G.2]: weight_decay, warmup, schedule, learning_rate, batch_size, epochs, max_length,
        group_size, guide, cluster_size, margin
    [NeoBERT, appendix G.1]: batches
    weight_decay = its optimizer is Adam; 0.01 in the code
    data = NeoBERT has 235 M and then 1.5 M of Nomic's pairs (appendix G.2)
    data := the triplets of dpr and simcse in one training
    batches = in the code clusters are of one source, and a batch can run from one source into the next
    batches := clusters are of a data set with all its sources, and so is a group, or a batch without groups
        (--train-data with a source each is as the code has it); pairs that repeat an earlier one are left out
    precision = the autocast of the code's gradient caching names no type, and is float16
    batch_size = on how many GPUs, each with negatives of its own, NeoBERT does not say
    group_size = texts of other devices are no negatives
    guide = gtr_base in the code; which of the models called GTE-large is not said
    cluster_size = 256 by default in the code (cde/run_args.py#L206)
    margin = no filter by default in the code
    evaluation.dtype = the authors of CDE have bfloat16, and vectors of length 1 for clustering alone
        (evaluation authors)
    evaluation.dtype := NeoBERT's for its other models, as it names none for these
    dropout = off in the authors' commands
    prefixes := those of msmarco and nli_triplets in the code
    prompts := a type of tasks whose prefix was not trained, as clustering, has those of a search
    :authors
    cde/run_args.py: weight_decay 372, margin 275, guide 175, warmup 469
    evaluate_mteb.py: evaluation.max_length 73, evaluation.dtype 77, evaluation.normalized_types 171
    [answer in jxmorris12/cde#7]: batch_size, group_size, guide, learning_rate, epochs, warmup, schedule,
        dropout
    batch_size = 512 on each of 8 GPUs
    warmup = 200, which the code divides by 8 GPUs
    """,
    {"": {**TRAINER, **MTEB}},
)


RECIPE = entry(
    ContextualRecipe(
        name="cde-batching",
        source="NeoBERT, appendix G; contextual batches of Contextual Document Embeddings and its code",
        data=(MSMARCO, NLI),
        loss=info_nce,
        prefixes=PREFIXES,
        settings=PAPER,
        defaults=PAPER,
    ),
    "Embedding models on contextual batches: pairs that a guide finds alike, without false negatives",
    VARIANTS,
    SOURCES,
    EVALUATIONS,
)
