"""GLUE as MosaicBERT has it (Portes et al. 2023, appendices B and F; code mosaicml/examples v0.0.4)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.protocol import ClassifierHead, Dropout, Grid, Protocol
from finetune.glue.schedule import Schedule
from finetune.origins import MOSAICBERT
from finetune.recipes import glue_modernbert
from harness.core.sources import Source

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

_JOBS, _LAYERS = f"{MOSAICBERT}src/glue/finetuning_jobs.py#L", f"{MOSAICBERT}src/bert_layers.py#L"
_YAML = f"{MOSAICBERT}yamls/finetuning/glue/mosaic-bert-base-uncased.yaml#L"
_TABLE, _LENGTH = "MosaicBERT, table S2", "MosaicBERT, appendix B"

SOURCES = {
    "": {
        "data": Source("MosaicBERT, appendix F", f"{MOSAICBERT}src/glue/data.py#L51"),
        "loss": Source("", f"{_LAYERS}1030"),
        "learning_rates": Source(_TABLE, f"{_JOBS}297"),
        "batch_sizes": Source("", f"{_JOBS}270"),
        "weight_decays": Source(_TABLE, f"{_JOBS}300"),
        "epochs": Source(_TABLE, f"{_JOBS}269"),
        "seeds": Source(_TABLE, f"{_YAML}61", "their numbers are the code's"),
        "optimizer.betas": Source("", f"{_JOBS}298", "0.988 for QQP and SST-2 in table S2"),
        "optimizer.eps": Source(_TABLE, f"{_JOBS}299"),
        "optimizer.decay": Source("", f"{_JOBS}296"),
        "optimizer.undecayed": Source("", f"{_JOBS}296"),
        "schedule.name": Source("", f"{_YAML}44"),
        "schedule.warmup": Source("", f"{_YAML}45"),
        "max_length": Source(_LENGTH, f"{_JOBS}268"),
        "autocast": Source("", f"{_YAML}10"),
        "float32_tasks": Source("", f"{_JOBS}817"),
        "dropout.embedding": Source("", f"{_LAYERS}92"),
        "dropout.attention": Source("", f"{MOSAICBERT}src/configuration_bert.py#L12", "0.1 for BERT"),
        "dropout.attention_out": Source("", f"{_LAYERS}261"),
        "dropout.mlp": Source("", f"{_LAYERS}333"),
        "dropout.mlp_out": Source("", f"{_LAYERS}333", "MosaicBERT drops inside, BERT behind"),
        "head.pooling": Source("", f"{_LAYERS}561"),
        "head.dense": Source("", f"{_LAYERS}553"),
        "head.dense_bias": Source("", f"{_LAYERS}553"),
        "head.activation": Source("", f"{_LAYERS}554"),
        "head.dropout_before": Source("", f"{_LAYERS}562"),
        "head.dropout": Source("", f"{_LAYERS}939"),
        "head.initializer_range": Source("", f"{MOSAICBERT}src/mosaic_bert.py#L186"),
        "head.last": Source("", f"{MOSAICBERT}src/mosaic_bert.py#L186"),
        "clip": Source("", f"{_JOBS}231", "the jobs name no algorithm"),
        "shuffled": Source("", f"{_JOBS}34"),
        "cadence": Source("", f"{_JOBS}266"),
        "stopping": Source("", f"{_JOBS}231", "the value at the end of the training"),
        "transfer": Source("MosaicBERT, appendix F.2", f"{MOSAICBERT}glue.py#L368"),
        "selection": Source(_LENGTH, other="one configuration a task"),
        "view": Source("MosaicBERT, appendix F.1", other="the code takes the mean of both sets of MNLI"),
        "final_seeds": Source(_TABLE),
    },
    "bert-large": {"learning_rates": Source(_TABLE)},
}

RECIPE = entry(PROTOCOL, "GLUE as MosaicBERT has it: one cell a task, up to five seeds", SOURCES)
