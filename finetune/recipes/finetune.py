"""One plain fine-tuning for each task, of GLUE or of one's own, whose classifier is kept; no paper's."""

from __future__ import annotations

from finetune.glue.plan import entry
from finetune.glue.schedule import Schedule
from finetune.glue.settings import Cadence, ClassifierHead, Grid, Optimizer, Protocol, Training
from finetune.origins import TRAINER
from harness.core.sources import read_sources
from suites.glue import TASKS

GRID = Grid(learning_rates=(2e-5,), batch_sizes=(32,), weight_decays=(0.0,), epochs=(3,), seeds=(42,))
"""Those of transformers' example run_glue.py, with the Trainer's own weight decay and seed."""

PROTOCOL = Protocol(
    name="finetune",
    source="our own: transformers' trainer as its example for GLUE sets it",
    training=Training(
        optimizer=Optimizer(betas=(0.9, 0.999), eps=1e-8, undecayed=("bias", "norm", "Norm", "_ln.", "ln_")),
        schedule=Schedule(name="linear", warmup=0.0),
        max_length=128,
        autocast="float32",
        head=ClassifierHead(pooling="first", dense="pooler", activation="tanh", dropout=0.1, library=True),
        clip=1.0,
        cadence=Cadence(batches=1),
    ),
    grids=dict.fromkeys(TASKS, GRID),
    selection="none",
    keeps=True,
)

TRAINER_SOURCES = {
    "optimizer": TRAINER["betas"],
    "schedule": TRAINER["schedule"],
    "clip": TRAINER["clip"],
    "weight_decay": TRAINER["weight_decay"],
    "shuffled": TRAINER["batches"],
    "seeds": TRAINER["seed"],
}

SOURCES = read_sources(
    "huggingface/transformers@05ce25bec3bf:examples/pytorch/text-classification/",
    """
    README.md: max_length 38, batch_size 39, learning_rate 40, epochs 41
    epochs = 5 for the example's own results of MRPC
    * := as transformers' example run_glue.py, or our own; no paper's
    """,
    {"": TRAINER_SOURCES},
)

RECIPE = entry(
    PROTOCOL, "One plain fine-tuning a task, GLUE's or your own, that keeps its classifiers", SOURCES
)
