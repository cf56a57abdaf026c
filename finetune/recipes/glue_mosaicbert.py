"""GLUE as MosaicBERT has it (Portes et al. 2023, appendices B and F; code mosaicml/examples v0.0.4)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.schedule import Schedule
from finetune.glue.settings import ClassifierHead, Dropout, Grid, Protocol
from finetune.origins import MOSAICBERT
from finetune.recipes import glue_modernbert
from harness.core.sources import read_sources
from harness.jobs.recipe import PrintedRow

SEEDS = (19, 8364, 717, 10_536, 90_166)

TRAINING = replace(
    glue_modernbert.TRAINING,
    schedule=Schedule(name="composer", warmup=0.06),
    dropout=Dropout(embedding=0.1, attention_out=0.1),
    head=ClassifierHead(pooling="first", dense="pooler", activation="tanh", dropout=0.1),
    shuffled=False,
)
"""Optimizer, length, precision and evaluations are as in ModernBERT's code."""


def _build_single_grid(
    learning_rate: float, batch_size: int, weight_decay: float, epochs: int, seeds: int
) -> Grid:
    """A grid of a single cell, with the first of SEEDS."""
    return Grid(
        learning_rates=(learning_rate,),
        batch_sizes=(batch_size,),
        weight_decays=(weight_decay,),
        epochs=(epochs,),
        seeds=SEEDS[:seeds],
    )


CODE = Protocol(
    name="glue-mosaicbert",
    source="MosaicBERT, appendices B (table S2) and F; batch sizes, betas and seeds from the code",
    training=TRAINING,
    grids={
        "CoLA": _build_single_grid(5e-5, 32, 5e-6, 10, 4),
        "SST-2": _build_single_grid(3e-5, 16, 3e-6, 3, 3),
        "MRPC": _build_single_grid(8e-5, 32, 8e-6, 10, 5),
        "STS-B": _build_single_grid(3e-5, 32, 3e-6, 10, 5),
        "QQP": _build_single_grid(3e-5, 16, 3e-6, 5, 1),
        "MNLI": _build_single_grid(5e-5, 48, 5e-6, 3, 1),
        "QNLI": _build_single_grid(1e-5, 16, 1e-6, 10, 1),
        "RTE": _build_single_grid(1e-5, 16, 1e-5, 3, 5),
    },
    transfer=("RTE", "MRPC", "STS-B"),
    selection="none",
    view="mosaicbert",
)

PROTOCOL = replace(
    CODE,
    variants={
        "bert-large": replace(
            CODE,
            source="MosaicBERT, table S2, for BERT-Large",
            grids={**CODE.grids, "QQP": _build_single_grid(1.5e-5, 16, 3e-6, 5, 1)},
        )
    },
)

SOURCES = read_sources(
    MOSAICBERT,
    """
    src/glue/data.py: data 51
    src/bert_layers.py: loss 1030, dropout.embedding 92, dropout.attention_out 261, dropout.mlp 333,
        dropout.mlp_out 333, head.pooling 561, head.dense 553, head.dense_bias 553, head.activation 554,
        head.dropout_before 562, head.dropout 939
    src/glue/finetuning_jobs.py: learning_rate 297, batch_size 270, weight_decay 300, epochs 269,
        optimizer.betas 298, optimizer.eps 299, optimizer.decay 296, optimizer.undecayed 296, max_length 268,
        float32_tasks 817, clip 231, shuffled 34, cadence 266, stopping 231
    yamls/finetuning/glue/mosaic-bert-base-uncased.yaml: seeds 61, schedule.name 44, schedule.warmup 45,
        dtype 10
    src/configuration_bert.py: dropout.attention 12
    src/mosaic_bert.py: head.initializer_range 186, head.last 186
    glue.py: transfer 368
    [MosaicBERT, appendix F]: data
    [MosaicBERT, table S2]: learning_rate, weight_decay, epochs, seeds, optimizer.eps, final_seeds
    [MosaicBERT, appendix B]: max_length, selection
    [MosaicBERT, appendix F.2]: transfer
    [MosaicBERT, appendix F.1, table S3]: view
    seeds = their numbers are the code's
    dtype = with LayerNorms in low precision as well (fused_layernorm, L50)
    optimizer.betas = 0.988 for QQP and SST-2 in table S2
    dtype := LayerNorms in float32 on a GPU, as torch's autocast has them
    optimizer.betas := 0.98 for every task, as in the code
    dropout.attention := by default 0 in a MosaicBERT's config, 0.1 in a BERT's
    dropout.mlp := by default 0.1 in a MosaicBERT, 0 in a BERT
    dropout.mlp_out := by default 0 in a MosaicBERT, 0.1 in a BERT
    head.dense = the code's backbones have no trained pooler
    head.dense := fresh, unless a tensor of the backbone's folder has "pooler." in its name
    transfer := the only MNLI run, of seed 19, after its last step
    clip = the jobs name no algorithm
    stopping = the value at the end of the training
    selection := one configuration a task
    view = the code takes the mean of both sets of MNLI, and of accuracy and F1
    :bert-large
    [MosaicBERT, table S2]: learning_rate
    """,
)

PRINTED = (
    PrintedRow(
        place="MosaicBERT, table S3, MosaicBERT-Base base",
        recipe="glue-mosaicbert",
        model="mosaicml/mosaic-bert-base",
        suite="glue",
        differs=(
            "The paper prints, task by task, the best average along a pretraining of 178,000 steps of 4,096 "
            "rows of 128 tokens, and not which checkpoint is public: we take the public one",
            "The paper's tokenizer is that of bert-base-uncased: if the model brings none, type `hf download "
            "mosaicml/mosaic-bert-base --local-dir mosaic`, `hf download google-bert/bert-base-uncased "
            "tokenizer.json tokenizer_config.json --local-dir mosaic`, and then --model ./mosaic",
        ),
    ),
    PrintedRow(
        place="MosaicBERT, table S3, BERT-Large (ours) large",
        recipe="glue-mosaicbert:bert-large",
        model="MODEL",
        suite="glue",
        differs=("The weights of this BERT-Large are not public: we take MODEL, a backbone of yours",),
    ),
)

RECIPE = entry(PROTOCOL, "GLUE as MosaicBERT has it: one cell a task, up to five seeds", SOURCES, PRINTED)
