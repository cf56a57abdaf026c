"""GLUE as NeoBERT has it (Le Breton et al. 2025, appendix C; code chandar-lab/NeoBERT)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.protocol import (
    Cadence,
    ClassifierHead,
    Dropout,
    Grid,
    Optimizer,
    Protocol,
    Stopping,
    Training,
)
from finetune.glue.schedule import Schedule
from finetune.origins import NEOBERT
from harness.core.sources import Source
from suites.glue import TASKS

TRANSFER = ("RTE", "STS-B", "MRPC", "QNLI")

TRAINING = Training(
    optimizer=Optimizer(betas=(0.9, 0.95), eps=1e-8, undecayed=("bias", "LayerNorm.weight")),
    schedule=Schedule(name="neobert", warmup=0.06),
    max_length=1024,
    autocast="float16",
    dropout=Dropout(embedding=0.0, attention=0.0, attention_out=0.0, mlp=0.0, mlp_out=0.0),
    head=ClassifierHead(pooling="first", dense="fresh", activation="tanh", dropout_before=0.1, dropout=0.1),
    cadence=Cadence(at_most=500, batches=0.1),
    stopping=Stopping(patience=15, counts="best"),
)

GRID = Grid(
    learning_rates=(5e-6, 6e-6, 1e-5, 2e-5, 3e-5),
    batch_sizes=(4, 8, 16, 32),
    weight_decays=(1e-2, 1e-5),
    epochs=(10,),
)

ABLATION = Grid(learning_rates=(1e-5, 2e-5, 3e-5), batch_sizes=(16, 32), weight_decays=(1e-2,), epochs=(10,))

CODE_CADENCE = Cadence(at_most=1000, full_batches=1, places=0.1)
"""The evaluations of the code: once an epoch or more seldom than its text says."""

TEXT = Protocol(
    name="glue-neobert",
    source="NeoBERT, appendix C (text); what the text leaves open from the code",
    training=TRAINING,
    grids=dict.fromkeys(TASKS, GRID),
    transfer=TRANSFER,
    assumed=(
        "The best of a run's evaluations is its score: the code writes one file for each and says no more.",
    ),
)

TABLE6 = replace(
    TEXT,
    source="NeoBERT, table 6, and the code's launcher and evaluations",
    training=replace(TRAINING, cadence=CODE_CADENCE),
    grids=dict.fromkeys(
        TASKS,
        replace(GRID, learning_rates=(5e-6, 6e-6, 8e-6, 1e-5, 2e-5, 3e-5), batch_sizes=(2, 4, 8, 16, 32)),
    ),
)

PROTOCOL = replace(
    TEXT,
    variants={
        "table6": TABLE6,
        "ablation": replace(
            TEXT,
            source="NeoBERT, appendix C, for the ablated models",
            training=replace(TRAINING, max_length=512),
            grids=dict.fromkeys(TASKS, ABLATION),
            assumed=(*TEXT.assumed, "The ablated models have a weight decay of 1e-2 and 10 epochs."),
        ),
        "code": replace(
            TEXT,
            source="NeoBERT, appendix C, with the evaluations of the code",
            training=replace(TRAINING, cadence=CODE_CADENCE),
        ),
    },
)

_TRAIN, _MODEL = f"{NEOBERT}src/neobert/glue/train.py#L", f"{NEOBERT}src/neobert/model/model.py#L"
_CONF, _LAUNCHER = f"{NEOBERT}conf/", f"{NEOBERT}jobs/glue/launcher.sh#L"
_TEXT, _CADENCE = "NeoBERT, appendix C", Source("", f"{_TRAIN}576", "the text has min(500, batches // 10)")
_TABLE = Source("NeoBERT, table 6")

SOURCES = {
    "": {
        "data": Source(_TEXT, f"{_TRAIN}292"),
        "loss": Source("", f"{_TRAIN}482"),
        "learning_rates": Source(_TEXT, f"{_LAUNCHER}63", "8e-6 as well in table 6 and the launcher"),
        "batch_sizes": Source(_TEXT, f"{_LAUNCHER}62", "2 as well in table 6 and the launcher"),
        "weight_decays": Source(_TEXT, f"{_LAUNCHER}64"),
        "epochs": Source(_TEXT, f"{_CONF}trainer/glue.yaml#L8"),
        "seeds": Source("", f"{_LAUNCHER}65"),
        "optimizer.betas": Source("", f"{_CONF}optimizer/adamw.yaml#L4"),
        "optimizer.eps": Source("", f"{_CONF}optimizer/adamw.yaml#L5"),
        "optimizer.decay": Source("", f"{_TRAIN}438"),
        "optimizer.undecayed": Source("", f"{_TRAIN}427"),
        "schedule.name": Source("", f"{NEOBERT}src/neobert/scheduler/scheduler.py#L53"),
        "schedule.warmup": Source("", f"{_CONF}scheduler/glue.yaml#L1"),
        "max_length": Source("", f"{_LAUNCHER}30", "512 for the ablated models (L28)"),
        "autocast": Source("", f"{_LAUNCHER}16"),
        "float32_tasks": Source("", f"{_LAUNCHER}16"),
        "dropout": Source("", f"{_MODEL}41"),
        "head.pooling": Source("", f"{_MODEL}445"),
        "head.dense": Source("", f"{_MODEL}430"),
        "head.dense_bias": Source("", f"{_MODEL}430"),
        "head.activation": Source("", f"{_MODEL}448"),
        "head.dropout_before": Source("", f"{_MODEL}446"),
        "head.dropout": Source("", f"{_CONF}glue.yaml#L38"),
        "head.initializer_range": Source("", f"{_CONF}glue.yaml#L37"),
        "head.last": Source("", f"{_MODEL}438"),
        "clip": Source("", f"{_TRAIN}565", "nothing stands between the backward pass and the step"),
        "shuffled": Source("", f"{_TRAIN}351"),
        "cadence": Source(_TEXT, other="the code (train.py#L576) evaluates more seldom"),
        "stopping.patience": Source(_TEXT, f"{_LAUNCHER}17"),
        "stopping.counts": Source(other="the code writes every evaluation (train.py#L633) and says no more"),
        "transfer": Source(_TEXT, f"{_TRAIN}58"),
        "selection": _TABLE,
        "view": Source(_TEXT),
        "final_seeds": Source("", f"{_LAUNCHER}65"),
    },
    "table6": {"learning_rates": _TABLE, "batch_sizes": _TABLE, "cadence": _CADENCE},
    "ablation": {
        "max_length": Source("", f"{_LAUNCHER}28"),
        "learning_rates": Source("NeoBERT, section 4"),
        "batch_sizes": Source("NeoBERT, section 4"),
        "weight_decays": Source(other="the text names none for the ablated models"),
    },
    "code": {"cadence": _CADENCE},
}

RECIPE = entry(
    PROTOCOL, "GLUE as NeoBERT has it: a grid a task, RTE, MRPC, STS-B and QNLI from MNLI", SOURCES
)
