"""GLUE as NeoBERT has it (Le Breton et al. 2025, appendix C; code chandar-lab/NeoBERT)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.schedule import Schedule
from finetune.glue.settings import (
    Cadence,
    ClassifierHead,
    Dropout,
    Grid,
    Optimizer,
    Protocol,
    Stopping,
    Training,
)
from finetune.origins import NEOBERT
from harness.core.sources import read_sources
from harness.jobs.recipe import PrintedRow
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
"""The evaluations of the code, as often as its text says or more seldom."""

TEXT = Protocol(
    name="glue-neobert",
    source="NeoBERT, appendix C (text); what the text leaves open from the code",
    training=TRAINING,
    grids=dict.fromkeys(TASKS, GRID),
    transfer=TRANSFER,
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
        ),
        "code": replace(
            TEXT,
            source="NeoBERT, appendix C, with the evaluations of the code",
            training=replace(TRAINING, cadence=CODE_CADENCE),
        ),
    },
)

SOURCES = read_sources(
    NEOBERT,
    """
    src/neobert/glue/train.py: data 292, loss 482, optimizer.decay 438, optimizer.undecayed 427, clip 565,
        shuffled 351, transfer 58
    jobs/glue/launcher.sh: learning_rate 63, batch_size 62, weight_decay 64, seeds 65, max_length 30,
        dtype 16, float32_tasks 16, stopping.patience 17, final_seeds 65
    conf/trainer/glue.yaml: epochs 8
    conf/optimizer/adamw.yaml: optimizer.betas 4, optimizer.eps 5
    src/neobert/scheduler/scheduler.py: schedule.name 53
    conf/scheduler/glue.yaml: schedule.warmup 1
    src/neobert/model/model.py: dropout 41, head.pooling 445, head.dense 430, head.dense_bias 430,
        head.activation 448, head.dropout_before 446, head.last 438
    conf/glue.yaml: head.dropout 38, head.initializer_range 37
    [NeoBERT, appendix C]: data, learning_rate, batch_size, weight_decay, epochs, cadence,
        stopping.patience, transfer, view
    [NeoBERT, table 6]: selection
    learning_rate = 8e-6 as well in table 6 and the launcher
    batch_size = 2 as well in table 6 and the launcher
    max_length = 512 for the ablated models (L28)
    dtype = TF32 outside of autocast (conf/trainer/glue.yaml#L1)
    dtype := float32 outside of autocast
    transfer = the code has MNLI from SNLI as well
    clip = nothing stands between the backward pass and the step
    cadence = the code (train.py#L576) evaluates more seldom
    stopping.counts = the code writes every evaluation (train.py#L633), and says no more
    stopping.counts := the best is a run's score
    :table6
    src/neobert/glue/train.py: cadence 576
    [NeoBERT, table 6]: learning_rate, batch_size
    cadence = the text has min(500, batches // 10)
    :ablation
    jobs/glue/launcher.sh: max_length 28
    [NeoBERT, section 4]: learning_rate, batch_size
    weight_decay = the text names none for the ablated models
    :code
    src/neobert/glue/train.py: cadence 576
    cadence = the text has min(500, batches // 10)
    """,
)

PRINTED = PrintedRow(
    place="NeoBERT, table 3, NeoBERT_4096 medium",
    recipe="glue-neobert:table6",
    model="chandar-lab/NeoBERT",
    suite="glue",
    settings=("fresh_seeds=0",),
    differs=(
        "NeoBERT_4096 is the final, public model, of medium size as the table has it",
        "The paper prints two grids: we take table 6's with 480 runs, as 8e-6 and batches of 2, which it "
        "chose, are not in the other",
        "The paper prints the maximum of its grid: we take it too, with fresh_seeds=0",
    ),
)

RECIPE = entry(
    PROTOCOL, "GLUE as NeoBERT has it: a grid a task, RTE, MRPC, STS-B and QNLI from MNLI", SOURCES, [PRINTED]
)
