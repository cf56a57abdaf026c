"""GLUE as OptiBERT has it (compute-optimal encoders, appendix D.1 and table 4; no code is public)."""

from __future__ import annotations

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.settings import Protocol
from finetune.origins import NEOBERT
from finetune.recipes import glue_neobert
from harness.core.sources import read_sources
from harness.jobs.recipe import PrintedRow
from suites.glue import TASKS

GRID = replace(glue_neobert.GRID, epochs=(2, 10))

SHORT = ("MNLI", "QQP")
"""Tasks for which table 4 has 2 epochs in every row; the others have 10."""

FULL = Protocol(
    name="glue-optibert",
    source="OptiBERT, appendix D.1",
    training=glue_neobert.TRAINING,
    grids=dict.fromkeys(TASKS, GRID),
    transfer=glue_neobert.TRANSFER,
    view="optibert",
    final_seeds=(1, 2, 3, 4, 5),
    assumed=(
        "All but the grid and the seeds is as in NeoBERT's appendix C, to which the paper refers. "
        "Evaluations and patience are those of its text; what the text leaves open (optimizer, schedule, "
        "lengths, precision, dropout) is that of its code.",
    ),
)

PROTOCOL = replace(
    FULL,
    variants={
        "table4": replace(
            FULL,
            source="OptiBERT, table 4: epochs fixed by the task",
            grids={name: replace(GRID, epochs=(2,) if name in SHORT else (10,)) for name in TASKS},
        )
    },
)

SOURCES = read_sources(
    NEOBERT,
    """
    jobs/glue/launcher.sh: seeds 65
    [OptiBERT, appendix D.1]: learning_rate, batch_size, weight_decay, epochs
    [OptiBERT, table 3]: final_seeds
    [OptiBERT, appendix D.1, table 4]: selection
    learning_rate = for QQP at 130B tokens table 4 has 6e-5, which is none of them
    seeds = OptiBERT does not say which
    final_seeds = five, whose numbers are not told
    :table4
    [OptiBERT, table 4]: epochs
    """,
    {"": glue_neobert.SOURCES[""]},
)
"""What the paper does not say it takes from NeoBERT's appendix C (appendix D.1)."""

PRINTED = PrintedRow(
    place="OptiBERT, table 3, OptiBERT_neo",
    recipe="glue-optibert",
    model="MODEL",
    suite="glue",
    line="tokens 130B",
    differs=(
        "The weights of OptiBERT are not public: we take MODEL, a backbone of yours",
        "The paper tries several numbers of epochs, and table 4 prints one a task: we take all; "
        "glue-optibert:table4 takes the printed ones",
    ),
)

RECIPE = entry(
    PROTOCOL, "GLUE as OptiBERT has it: a grid a task, then five seeds at its best cell", SOURCES, [PRINTED]
)
