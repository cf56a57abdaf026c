"""NeoBERT's rows: GLUE, and MTEB after one contrastive training and after CDE (Le Breton et al. 2025)."""

from __future__ import annotations

from finetune.protocols._columns import MAXIMUM, SMALL_GLUE, list_glue_columns, list_mteb_columns
from harness.jobs.protocol import ProtocolEntry, ProtocolStep, ProtocolTable
from suites.mteb_efficient8 import TASKS as ONE_EACH

MTEB = ("mteb-v1",)

AVERAGE = "Avg. (56 tasks)"

PROTOCOL = ProtocolEntry(
    name="neobert",
    summary="NeoBERT: GLUE, then MTEB(eng, v1) by unified-contrastive, by CDE, and of the bare backbone",
    steps=(
        ProtocolStep(
            name="glue",
            request={
                "recipe": ("glue-neobert:table6",),
                "suites": ("glue",),
                "recipe_settings": {"fresh_seeds": 0},
            },
            quick=SMALL_GLUE,
            differs=(
                MAXIMUM,
                "the grid of table 6, 480 runs, which has the values that the paper chose; its text has 320",
            ),
        ),
        ProtocolStep(
            name="unified-contrastive",
            request={"recipe": ("unified-contrastive",), "suites": MTEB},
            quick={"recipe_settings": {"max_steps": 4}, "tasks": ONE_EACH, "max_length": 128},
        ),
        ProtocolStep(
            name="cde",
            request={"recipe": ("cde",), "suites": MTEB},
            slow="its clusters read all of 239 M pairs",
        ),
        ProtocolStep(
            name="bare",
            request={"suites": MTEB, "pooling": "mean"},
            quick={"tasks": ONE_EACH, "max_length": 128},
            differs=("figure 4 evaluates backbones without training, and names no pooling: mean here",),
        ),
    ),
    tables=(
        ProtocolTable(
            paper="neobert", table="3", columns=list_glue_columns("MNLI QNLI QQP RTE SST MRPC CoLA STS")
        ),
        ProtocolTable(
            paper="neobert",
            table="4",
            columns=list_mteb_columns("unified-contrastive", *MTEB, AVERAGE, "tasks"),
            lines={"unified contrastive": "unified-contrastive", "mean pooling, no training": "bare"},
        ),
        ProtocolTable(paper="neobert", table="5", columns=list_mteb_columns("cde", *MTEB, AVERAGE, "tasks")),
    ),
)
