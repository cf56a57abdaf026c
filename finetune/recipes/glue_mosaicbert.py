"""GLUE as MosaicBERT has it (Portes et al. 2023, appendices B and F; code mosaicml/examples v0.0.4)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.protocol import ClassifierHead, Dropout, Grid, Protocol
from finetune.glue.schedule import Schedule
from finetune.recipes import glue_modernbert

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
    assumed=(
        "Betas are those of the code, (0.9, 0.98), for all tasks; the paper prints 0.988 for two.",
        "MNLI counts by its matched set, as in the paper; the code takes the mean of both.",
        "MRPC, RTE and STS-B start from the only MNLI run.",
        "Dropout in the MLP is that of the backbone's config: MosaicBERT has it inside, BERT behind.",
        "The head's dense layer is the backbone's pooler where it has one; the code's backbones have none.",
    ),
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

RECIPE = entry(PROTOCOL, "GLUE as MosaicBERT has it: one cell a task, up to five seeds")
