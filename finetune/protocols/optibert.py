"""OptiBERT's rows: GLUE with five seeds, and supervised SimCSE on both versions of MTEB in English."""

from __future__ import annotations

from finetune.protocols._columns import SMALL_GLUE, list_glue_columns, list_mteb_columns
from harness.jobs.protocol import ProtocolEntry, ProtocolStep, ProtocolTable
from suites.mteb_efficient8 import TASKS as ONE_EACH

NEWER = ("Banking77Classification", "TwentyNewsgroupsClustering.v2", "ArguAna", "SummEvalSummarization.v2")
"""Small tasks of MTEB(eng, v2) of the types whose small tasks in v1 it does not have."""

PROTOCOL = ProtocolEntry(
    name="optibert",
    summary="OptiBERT: GLUE with five seeds at each best cell, SimCSE on MTEB(eng, v1) and (eng, v2)",
    steps=(
        ProtocolStep(
            name="glue", request={"recipe": ("glue-optibert",), "suites": ("glue",)}, quick=SMALL_GLUE
        ),
        ProtocolStep(
            name="simcse",
            request={"recipe": ("simcse",), "suites": ("mteb-v1", "mteb")},
            quick={
                "recipe_settings": {"max_steps": 4, "batch_size": 16, "precision": "float32"},
                "tasks": (*ONE_EACH, *NEWER),
                "max_length": 128,
            },
            differs=(
                "the paper's rows of NeoBERT and ModernBERT, which it copied, print the mean over tasks; "
                "beside ours they stand with that over types, made of the types as they are printed",
            ),
        ),
    ),
    tables=(
        ProtocolTable(
            paper="optibert", table="3", columns=list_glue_columns("MNLI QNLI QQP RTE SST MRPC CoLA STS")
        ),
        ProtocolTable(
            paper="optibert", table="2", columns=list_mteb_columns("simcse", "mteb-v1", "Avg.", "types")
        ),
        ProtocolTable(
            paper="optibert", table="5", columns=list_mteb_columns("simcse", "mteb", "Avg.", "types")
        ),
    ),
)
