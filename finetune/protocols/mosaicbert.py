"""MosaicBERT's row: GLUE in 25 runs, one configuration a task (Portes et al. 2023)."""

from __future__ import annotations

from finetune.protocols._columns import SMALL_GLUE, list_glue_columns
from harness.jobs.protocol import ProtocolEntry, ProtocolStep, ProtocolTable

PROTOCOL = ProtocolEntry(
    name="mosaicbert",
    summary="MosaicBERT: GLUE in 25 runs, one configuration a task with up to five seeds",
    steps=(
        ProtocolStep(
            name="glue",
            request={"recipe": ("glue-mosaicbert",), "suites": ("glue",)},
            quick=SMALL_GLUE,
            differs=("the paper's rows are the best averages along the pretraining, task by task",),
        ),
    ),
    tables=(
        ProtocolTable(
            paper="mosaicbert", table="S3", columns=list_glue_columns("MNLI QNLI QQP RTE SST MRPC CoLA STS")
        ),
    ),
)
