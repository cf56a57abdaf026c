"""GLUE as ModernBERT has it (Warner et al. 2024, appendix E.1, table 6; code AnswerDotAI/ModernBERT)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.protocol import Cadence, ClassifierHead, Dropout, Grid, Optimizer, Protocol, Training
from finetune.glue.schedule import Schedule
from finetune.origins import MODERNBERT
from harness.core.sources import Source
from suites.glue import TASKS

INTERVALS = {
    **{"MNLI": 2300, "RTE": 100, "QQP": 2000, "CoLA": 250},
    **{"MRPC": 100, "QNLI": 1000, "SST-2": 500, "STS-B": 200},
}
"""Batches from one evaluation to the next, as in the code's jobs."""

SHORT = ("SST-2", "MNLI", "RTE")

TRAINING = Training(
    optimizer=Optimizer(betas=(0.9, 0.98), eps=1e-6, decay="composer"),
    schedule=Schedule(name="composer", warmup=0.1),
    max_length=256,
    autocast="bfloat16",
    float32_tasks=("STS-B",),
    dropout=Dropout(embedding=0.0, attention=0.0, attention_out=0.1, mlp=0.0, mlp_out=0.0),
    head=ClassifierHead(pooling="first", dense="mlm", dense_bias=False, activation="gelu", last="megatron"),
    cadence=Cadence(steps=INTERVALS),
)

GRID = Grid(
    learning_rates=(1e-5, 3e-5, 5e-5, 8e-5),
    batch_sizes=(64,),
    weight_decays=(1e-6, 5e-6, 8e-6, 1e-5),
    epochs=(2, 5, 10),
    seeds=(1618,),
)

PAPER = Protocol(
    name="glue-modernbert",
    source="ModernBERT, appendix E.1 and table 6; what they leave open from the code",
    training=TRAINING,
    grids={name: replace(GRID, epochs=(1, 2, 3)) if name in SHORT else GRID for name in TASKS},
    transfer=("RTE", "MRPC", "STS-B"),
    view="modernbert",
    assumed=(
        "One seed, the first of the code's list.",
        "The evaluation at the end counts, as in the code; the paper speaks of early stopping, for which "
        "there is no code.",
        "RTE, MRPC and STS-B start from the MNLI run of the grid that is best on the matched set; the code "
        "takes that of the same sweep.",
        "The batch size of 64 is the authors' answer to a question; the paper has none.",
        "Warmup, dropout, activation and the first weights of the last layer are those of the code's "
        "generate_eval_config.py; the warmup of its yaml files for other models is 6 %.",
    ),
)

PROTOCOL = replace(
    PAPER,
    variants={
        "warmup6": replace(
            PAPER,
            source="ModernBERT, with the warmup of the code's yaml files for other models",
            training=replace(TRAINING, schedule=Schedule(name="composer", warmup=0.06)),
        )
    },
)

_CONFIG, _MODEL = f"{MODERNBERT}generate_eval_config.py#L", f"{MODERNBERT}src/bert_layers/model.py#L"
_JOBS, _RUN = f"{MODERNBERT}src/evals/glue_jobs.py#L", f"{MODERNBERT}src/evals/finetuning_jobs.py#L"
_DEFAULTS = f"{MODERNBERT}src/bert_layers/configuration_bert.py#L"
_TABLE = "ModernBERT, table 6"

SOURCES = {
    "": {
        "data": Source("ModernBERT, section 3.1.1", f"{MODERNBERT}src/evals/data.py#L88"),
        "loss": Source("", f"{MODERNBERT}src/bert_layers/model.py#L1344"),
        "learning_rates": Source(_TABLE, other="one a task in the code's jobs"),
        "batch_sizes": Source("answer in AnswerDotAI/ModernBERT#196", other="16 to 64 in the code's jobs"),
        "weight_decays": Source(_TABLE),
        "epochs": Source(_TABLE),
        "seeds": Source("", f"{_CONFIG}227", "three of the list, or more; the paper does not say"),
        "optimizer.betas": Source("", f"{_JOBS}72"),
        "optimizer.eps": Source("", f"{_JOBS}73"),
        "optimizer.decay": Source("", f"{_JOBS}69"),
        "optimizer.undecayed": Source("", f"{_JOBS}70"),
        "schedule.name": Source("", f"{_CONFIG}363"),
        "schedule.warmup": Source("", f"{_CONFIG}364", "6 % in yaml files for other models"),
        "max_length": Source("", f"{_JOBS}38"),
        "autocast": Source("", f"{MODERNBERT}yamls/ablations/example-config.yaml#L4"),
        "float32_tasks": Source("", f"{_JOBS}630"),
        "dropout.embedding": Source("", f"{_CONFIG}76"),
        "dropout.attention": Source("", f"{_CONFIG}71"),
        "dropout.attention_out": Source("", f"{_CONFIG}73"),
        "dropout.mlp": Source("", f"{_CONFIG}83"),
        "dropout.mlp_out": Source("", f"{_CONFIG}83"),
        "head.pooling": Source("", f"{_DEFAULTS}74", "mean in the published checkpoints' files"),
        "head.dense": Source("", f"{_RUN}299"),
        "head.dense_bias": Source("", f"{_DEFAULTS}67"),
        "head.activation": Source("", f"{_CONFIG}332"),
        "head.dropout_before": Source("", f"{_MODEL}769"),
        "head.dropout": Source("", f"{_DEFAULTS}68"),
        "head.initializer_range": Source("", f"{_DEFAULTS}83"),
        "head.last": Source("", f"{MODERNBERT}src/bert_layers/initialization.py#L127"),
        "clip": Source("", f"{_RUN}281", "the jobs name no algorithm"),
        "shuffled": Source("", f"{_RUN}60"),
        "cadence": Source("", f"{_JOBS}35"),
        "stopping.patience": Source("", f"{_RUN}281", "the paper stops early, without a patience"),
        "stopping.counts": Source("", f"{_RUN}281"),
        "transfer": Source("", f"{MODERNBERT}glue.py#L503"),
        "selection": Source("ModernBERT, appendix E.1, table 6"),
        "view": Source(other="neither paper nor code says which of two metrics is printed"),
        "final_seeds": Source("ModernBERT, table 6", other="none are told"),
    },
    "warmup6": {
        "schedule.warmup": Source("", f"{MODERNBERT}yamls/finetuning/glue/mosaic-bert-base-uncased.yaml#L47")
    },
}

RECIPE = entry(PROTOCOL, "GLUE as ModernBERT has it: a grid a task, RTE, MRPC and STS-B from MNLI", SOURCES)
