"""GLUE in one declared cell a task with three seeds: a quick check of checkpoints, no paper's."""

from __future__ import annotations

from finetune.glue.plan import entry
from finetune.glue.schedule import Schedule
from finetune.glue.settings import Cadence, ClassifierHead, Grid, Optimizer, Protocol, Training
from harness.core.sources import Source
from suites.glue import TASKS

GRID = Grid(learning_rates=(5e-5,), batch_sizes=(16,), weight_decays=(1e-2,), epochs=(1,), seeds=(0, 1, 2))

PROTOCOL = Protocol(
    name="glue-quick",
    source="our own: one epoch at 5e-5, with the optimizer and the clipping of transformers' trainer",
    training=Training(
        optimizer=Optimizer(betas=(0.9, 0.999), eps=1e-8, undecayed=("bias", "norm", "Norm", "_ln.", "ln_")),
        schedule=Schedule(name="linear", warmup=0.06),
        max_length=256,
        autocast="float32",
        head=ClassifierHead(pooling="first", dense="pooler", activation="tanh", dropout=0.1),
        clip=1.0,
        cadence=Cadence(batches=1),
    ),
    grids=dict.fromkeys(TASKS, GRID),
    selection="none",
)

SOURCES = {"": {"": Source(here="no paper's: a quick check of our own")}}

RECIPE = entry(PROTOCOL, "GLUE in one cell a task and three seeds, for checkpoints in training", SOURCES)
