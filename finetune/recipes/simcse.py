"""Supervised SimCSE on NLI triplets, as OptiBERT has it; values of princeton-nlp/SimCSE."""

from __future__ import annotations

from dataclasses import replace

from finetune.embedding.plan import EmbeddingRecipe, Selection, Variant, entry
from finetune.embedding.settings import ATTENTION, EmbeddingSettings, info_nce
from finetune.origins import MTEB, SIMCSE, TRAINER
from harness.core.sources import read_sources
from harness.data.training.sets import TrainingData
from harness.jobs.recipe import PrintedRow

NLI = TrainingData(
    path="sentence-transformers/all-nli",
    revision="d482672c8e74ce18da116f430137434ba2e52fab",
    config="triplet",
    columns=("anchor", "positive", "negative"),
    rows=557_850,
)

PREMISES = replace(NLI, distinct="anchor", rows=275_601)
"""The first triplet of each premise; the rows are those of SimCSE's file, which are as many or nearly so."""

STSB = TrainingData(
    path="mteb/stsbenchmark-sts",
    revision="b0fddb56ed78048fa8b90373c8a3cfc37b684831",
    split="validation",
    columns=("sentence1", "sentence2"),
    score="score",
    rows=1_500,
)

SETTINGS = EmbeddingSettings(
    pooling=ATTENTION,
    heads=1,
    learning_rate=5e-5,
    batch_size=512,
    epochs=3,
    max_length=32,
    scale=20.0,
    precision="float16",
    evaluate_every=125,
)
"""The values of SimCSE's script and its table for base models, the rest being the trainer's defaults."""

SOURCES = read_sources(
    SIMCSE,
    """
    data/download_nli.sh: data 1
    simcse/models.py: loss 198, group_size 183
    run_sup_example.sh: learning_rate 24, epochs 22, precision 35, max_length 25, scale 32
    README.md: batch_size 242
    [OptiBERT, appendix D.2]: data, loss, epochs, pooling
    last_batch = transformers' trainer keeps it
    selection = SimCSE keeps the best checkpoint on STS-B, every 125 steps (selection=stsb-dev); OptiBERT
        does not say
    data = OptiBERT names MNLI and SNLI; these rows are all pairs of a positive and a negative of a premise,
        and SimCSE's file has one of each (275,601 rows), so that an epoch has twice its steps
    loss = the denominator of OptiBERT's formula has other anchors, a misprint
    learning_rate = 1e-5 for large models (README.md#L244)
    batch_size = the script has 128 on each of four GPUs, and compares with the texts of all, but without the
        gradients of the other GPUs' texts: its gradient is a quarter of that of one batch of 512
    pooling = OptiBERT's pooling head is not described; SimCSE has the first token with a dense layer
    pooling := for each head, with h its d = width / heads dimensions of a token's vector, sum(a h) with a the
        softmax of q·h/√d over the tokens, special ones too but not padding; q is learned, and 0 at the start
    heads = OptiBERT does not describe its head
    evaluation = OptiBERT says nothing of it
    :mean
    pooling := the mean in place of OptiBERT's head
    :large
    README.md: learning_rate 244
    :one-per-premise
    data/download_nli.sh: data 1
    [OptiBERT, appendix D.2]: data
    data = which triplet of a premise is in SimCSE's file is not known
    data := the first is read; the number of rows is that of SimCSE's file, and may differ a little
    """,
    {"": {**TRAINER, **MTEB}},
)


PRINTED = tuple(
    PrintedRow(
        place=f"OptiBERT, table {table}, OptiBERT_neo",
        recipe="simcse",
        model="MODEL",
        suite=suite,
        line="tokens 130B",
        differs=(
            "The weights of OptiBERT are not public: we take MODEL, a backbone of yours",
            "The paper does not print rate, batch, length, temperature and dropout: we take SimCSE's for "
            "base models, for every size of the table, and the backbone's own dropout; simcse:large has "
            "SimCSE's rate of large ones",
            "The paper does not print how many triplets of MNLI and SNLI: we take all 557,850; "
            "simcse:one-per-premise has SimCSE's 275,601, and half the steps",
            "The paper does not print its pooling head, nor which checkpoint is kept: we take attention with "
            "one head, and the last",
            "The paper does not print the length and the dtype of the evaluation: we take the backbone's "
            "length, and float32",
        ),
    )
    for table, suite in (("2", "mteb-v1"), ("5", "mteb"))
)

RECIPE = entry(
    EmbeddingRecipe(
        name="simcse",
        source="OptiBERT, fine-tuning for MTEB; settings of SimCSE's supervised script and table",
        data=(NLI,),
        loss=info_nce,
        settings=SETTINGS,
        defaults=SETTINGS,
        selections={"stsb-dev": Selection(task="STSBenchmark", data=STSB)},
    ),
    "Embedding models by supervised SimCSE on NLI triplets, with attentive pooling",
    {
        "mean": Variant(summary="SimCSE with mean pooling", settings=replace(SETTINGS, pooling="mean")),
        "large": Variant(
            summary="SimCSE with its learning rate of large models, 1e-5",
            settings=replace(SETTINGS, learning_rate=1e-5),
        ),
        "one-per-premise": Variant(
            summary="SimCSE on the first triplet of each premise, about as many rows as its file has",
            settings=SETTINGS,
            data=(PREMISES,),
        ),
    },
    SOURCES,
    printed=PRINTED,
)
