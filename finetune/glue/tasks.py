"""The eight tasks of GLUE that every protocol scores (WNLI is left out by all of them)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.labelled import REGRESSION

PATH, REVISION = "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
"""The hub's data set."""

Metric = str
"""accuracy, f1 (of class 1), mcc, pearson or spearman."""


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task, as the hub's `nyu-mll/glue` has it.

    Attributes:
        name: As papers print it.
        subset: Its subset of the data set.
        type: Its group in the paper of GLUE (Wang et al. 2018, table 1).
        columns: The sentences, in the order in which the model reads them.
        classes: Labels 0 to classes - 1; REGRESSION for numbers.
        metrics: Every raw metric, that of early stopping first.
        dev: The splits scored, each on its own.
        train_rows: Rows of the training split.
        dev_rows: Rows of each split in `dev`.
    """

    name: str
    subset: str
    type: str
    columns: tuple[str, ...]
    classes: int = 2
    metrics: tuple[Metric, ...] = ("accuracy",)
    dev: tuple[str, ...] = ("validation",)
    train_rows: int
    dev_rows: tuple[int, ...]


SINGLE, SIMILARITY, INFERENCE = "Single sentence", "Similarity and paraphrase", "Inference"

SENTENCES = ("sentence1", "sentence2")

_ALL = (
    GlueTask(
        name="CoLA",
        subset="cola",
        type=SINGLE,
        columns=("sentence",),
        metrics=("mcc",),
        train_rows=8551,
        dev_rows=(1043,),
    ),
    GlueTask(
        name="SST-2", subset="sst2", type=SINGLE, columns=("sentence",), train_rows=67_349, dev_rows=(872,)
    ),
    GlueTask(
        name="MRPC",
        subset="mrpc",
        type=SIMILARITY,
        columns=SENTENCES,
        metrics=("accuracy", "f1"),
        train_rows=3668,
        dev_rows=(408,),
    ),
    GlueTask(
        name="STS-B",
        subset="stsb",
        type=SIMILARITY,
        columns=SENTENCES,
        classes=REGRESSION,
        metrics=("pearson", "spearman"),
        train_rows=5749,
        dev_rows=(1500,),
    ),
    GlueTask(
        name="QQP",
        subset="qqp",
        type=SIMILARITY,
        columns=("question1", "question2"),
        metrics=("accuracy", "f1"),
        train_rows=363_846,
        dev_rows=(40_430,),
    ),
    GlueTask(
        name="MNLI",
        subset="mnli",
        type=INFERENCE,
        columns=("premise", "hypothesis"),
        classes=3,
        dev=("validation_matched", "validation_mismatched"),
        train_rows=392_702,
        dev_rows=(9815, 9832),
    ),
    GlueTask(
        name="QNLI",
        subset="qnli",
        type=INFERENCE,
        columns=("question", "sentence"),
        train_rows=104_743,
        dev_rows=(5463,),
    ),
    GlueTask(name="RTE", subset="rte", type=INFERENCE, columns=SENTENCES, train_rows=2490, dev_rows=(277,)),
)

TASKS: Mapping[str, GlueTask] = MappingProxyType({task.name: task for task in _ALL})
"""By name, in the order in which papers print them."""

MNLI = "MNLI"
"""The task that others start from."""
