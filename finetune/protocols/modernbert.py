"""ModernBERT's row: retrieval by one and by several vectors a text, GLUE, code (Warner et al. 2024)."""

from __future__ import annotations

from finetune.protocols._columns import MAXIMUM, SMALL_GLUE, list_glue_columns
from finetune.recipes import dpr
from harness.jobs.protocol import ProtocolColumn, ProtocolEntry, ProtocolStep, ProtocolTable

SWEEP = {"sweep": {"learning_rate": dpr.SWEEP["learning_rate"]}, "select": dpr.SWEEP["select"]}

FEW = {"max_steps": 4, "batch_size": 16}

QUICK_SWEEP = {"recipe_settings": FEW, "select": ("beir:NFCorpus,SciFact",)}

SMALL = ("NFCorpus", "SciFact", "ArguAna")

LONG = "MLDR (test)"

STEPS = (
    ProtocolStep(
        name="dpr",
        request={
            "recipe": ("dpr:authors",),
            "suites": ("beir:dl19", "mldr", "codesearchnet", "stackqa"),
            **SWEEP,
        },
        quick={
            **QUICK_SWEEP,
            "recipe_settings": {**FEW, "group_size": 16},
            "tasks": (*SMALL, LONG, "ruby", "StackOverflowQA"),
            "max_length": 128,
        },
        differs=(
            "table 7 prints MSMARCO by the queries of TREC-DL 2019, as far as its numbers tell",
            "the paper names no training on code: CodeSearchNet and StackQA are of the DPR model",
            "trained in the batches that the authors say they ran; the paper prints 16, the script has 512",
        ),
    ),
    ProtocolStep(
        name="mldr",
        request={"recipe": ("mldr",), "suites": ("mldr",), "tasks": (LONG,)},
        quick={"recipe_settings": FEW, "max_length": 128},
        after="dpr",
    ),
    ProtocolStep(
        name="colbert",
        request={"recipe": ("colbert",), "suites": ("beir", "mldr"), **SWEEP},
        quick={
            **QUICK_SWEEP,
            "recipe_settings": {**FEW, "batch_size": 4},
            "tasks": (*SMALL, LONG),
            "max_length": 128,
        },
        differs=("table 8 prints MSMARCO by its development queries, as far as its numbers tell",),
    ),
    ProtocolStep(
        name="glue",
        request={"recipe": ("glue-modernbert",), "suites": ("glue",), "recipe_settings": {"fresh_seeds": 0}},
        quick=SMALL_GLUE,
        differs=(MAXIMUM,),
    ),
)

BEIR = (
    "NFCorpus SciFact TREC-COVID FiQA ArguAna Climate-FEVER DBPedia FEVER HotpotQA MSMARCO NQ Quora SciDocs "
    "Touche2020 CQADupstack Avg."
)
"""The columns of tables 7 and 8."""

SPELLED = {
    **{"TREC-COVID": "TRECCOVID", "FiQA": "FiQA2018", "Climate-FEVER": "ClimateFEVER"},
    **{"Quora": "QuoraRetrieval", "SciDocs": "SCIDOCS", "CQADupstack": "CQADupstackRetrieval"},
    "Avg.": "tasks",
}
"""Those that have another name in the suite."""


def _list_beir_columns(step: str, suite: str, msmarco: str) -> tuple[ProtocolColumn, ...]:
    spelled = {**SPELLED, "MSMARCO": msmarco}
    return tuple(
        ProtocolColumn(name=name, step=step, suite=suite, of=spelled.get(name, name)) for name in BEIR.split()
    )


PROTOCOL = ProtocolEntry(
    name="modernbert",
    summary="ModernBERT: DPR and ColBERT with six learning rates each on BEIR and MLDR, GLUE, code",
    steps=STEPS,
    tables=(
        ProtocolTable(
            paper="modernbert",
            table="1",
            rank="DPR BEIR",
            columns=(
                ProtocolColumn(name="DPR BEIR", step="dpr", suite="beir:dl19"),
                ProtocolColumn(name="DPR MLDR-OOD", step="dpr", suite="mldr", of=LONG),
                ProtocolColumn(name="DPR MLDR-ID", step="mldr", suite="mldr", of=LONG),
                ProtocolColumn(name="ColBERT BEIR", step="colbert", suite="beir"),
                ProtocolColumn(name="ColBERT MLDR-OOD", step="colbert", suite="mldr", of=LONG),
                ProtocolColumn(name="GLUE", step="glue", suite="glue"),
                ProtocolColumn(name="CodeSearchNet", step="dpr", suite="codesearchnet"),
                ProtocolColumn(name="StackQA", step="dpr", suite="stackqa"),
            ),
        ),
        ProtocolTable(
            paper="modernbert",
            table="7",
            columns=_list_beir_columns("dpr", "beir:dl19", "MSMARCO (TREC-DL 2019)"),
        ),
        ProtocolTable(
            paper="modernbert", table="8", columns=_list_beir_columns("colbert", "beir", "MSMARCO (dev)")
        ),
        ProtocolTable(
            paper="modernbert",
            table="5",
            columns=list_glue_columns("CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE"),
        ),
    ),
)
