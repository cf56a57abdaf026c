"""The suite `glue`: eight tasks that a recipe trains a model for (no WNLI), and the papers' conventions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.core.errors import DataError, UsageError
from harness.core.types import (
    REGRESSION,
    Column,
    Convention,
    Data,
    DataTable,
    LabelledData,
    LabelledSplit,
    Size,
    Suite,
    SuiteEntry,
    SuiteOptions,
    Task,
)
from harness.data.locate import explain_unreachable
from harness.data.schema import resolve_readable_folder
from suites._mteb.snapshot import filter_suite_splits


def _open_glue_suite(_argument: str, options: SuiteOptions) -> Suite:
    if options.splits:
        raise UsageError(
            "--splits says nothing about glue: a recipe scores every development set.",
            hint="Leave out --splits; `harness show --view modernbert` takes MNLI's matched set alone.",
        )
    columns = tuple(Column(name=name, type=task.type, tasks=(task,)) for name, task in GLUE.items())
    return filter_suite_splits(Suite(name="glue", title="GLUE", columns=columns, conventions=VIEWS), options)


SUITE = SuiteEntry(
    name="glue",
    summary="GLUE's development sets, 8 tasks; needs a recipe (`harness list recipes`)",
    open=_open_glue_suite,
)

PATH, REVISION = "nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"
"""The data set on the hub."""

Metric = str
"""The name of a metric: accuracy, f1 (of class 1), mcc, pearson or spearman."""


@dataclass(frozen=True)
class _GlueTask:
    """A task of the hub's `nyu-mll/glue`, under the name that papers print.

    `type` is its group in the paper of GLUE (Wang et al. 2018, table 1). `columns` are in the order in which
    the model reads them. Labels go from 0 to `classes` - 1, REGRESSION for numbers. The first of `metrics` is
    that of early stopping. The splits in `dev` are scored each on its own. `names` are those of the classes
    in a submission; GLUE takes the numbers themselves of most tasks.
    """

    name: str
    subset: str
    type: str
    columns: tuple[str, ...]
    train_rows: int
    dev_rows: tuple[int, ...]
    classes: int = 2
    metrics: tuple[Metric, ...] = ("accuracy",)
    dev: tuple[str, ...] = ("validation",)
    names: tuple[str, ...] = ("0", "1")


SINGLE, SIMILARITY, INFERENCE = "Single sentence", "Similarity and paraphrase", "Inference"

SENTENCES, PREMISES = ("sentence1", "sentence2"), ("premise", "hypothesis")

ACCURACY_F1, CORRELATIONS = ("accuracy", "f1"), ("pearson", "spearman")

MATCHED, MISMATCHED, DEV = "validation_matched", "validation_mismatched", "validation"

NLI, ENTAILED = ("entailment", "neutral", "contradiction"), ("entailment", "not_entailment")

MNLI = "MNLI"
"""The task whose model other tasks start from."""

_ALL = (
    _GlueTask("CoLA", "cola", SINGLE, ("sentence",), 8551, (1043,), metrics=("mcc",)),
    _GlueTask("SST-2", "sst2", SINGLE, ("sentence",), 67_349, (872,)),
    _GlueTask("MRPC", "mrpc", SIMILARITY, SENTENCES, 3668, (408,), metrics=ACCURACY_F1),
    _GlueTask("STS-B", "stsb", SIMILARITY, SENTENCES, 5749, (1500,), REGRESSION, CORRELATIONS, names=()),
    _GlueTask("QQP", "qqp", SIMILARITY, ("question1", "question2"), 363_846, (40_430,), metrics=ACCURACY_F1),
    _GlueTask(
        MNLI, "mnli", INFERENCE, PREMISES, 392_702, (9815, 9832), 3, dev=(MATCHED, MISMATCHED), names=NLI
    ),
    _GlueTask("QNLI", "qnli", INFERENCE, ("question", "sentence"), 104_743, (5463,), names=ENTAILED),
    _GlueTask("RTE", "rte", INFERENCE, SENTENCES, 2490, (277,), names=ENTAILED),
)

TASKS: Mapping[str, _GlueTask] = MappingProxyType({task.name: task for task in _ALL})
"""The tasks by name, in the order in which papers print them."""

TRAIN = "train"


@dataclass(frozen=True, kw_only=True)
class GlueSource:
    """The source of the GLUE task of this name."""

    name: str

    @property
    def scoring(self) -> str:
        """The scoring code's name and version."""
        return "glue 1"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every raw metric, that of early stopping first."""
        return TASKS[self.name].metrics

    @property
    def like(self) -> str:
        """The task itself."""
        return self.name

    @property
    def from_mnli(self) -> None:
        """None: the recipe decides."""
        return

    def list_data_tables(self, task: Task) -> tuple[DataTable, ...]:
        """The table that the task reads (see harness.core.types.TableSource); one scored split is enough."""
        glue_task = TASKS[self.name]
        texts = tuple((name,) for name in glue_task.columns)
        # MNLI without one of its two sets can still be scored.
        splits = (TRAIN, *task.splits[:1])
        return (DataTable(config=(glue_task.subset,), splits=splits, texts=texts, values=(("label",),)),)

    def estimate_size(self, task: Task) -> Size:
        """The size of the task (see harness.core.types.TableSource)."""
        return task.size

    def load_with_test(self, task: Task, *, data: Path | None) -> LabelledData:
        """The rows of the task with those that GLUE's server scores, as far as the data has them."""
        dataset, glue_task = self._read_splits(data), TASKS[self.name]
        names = [split.replace("validation", "test") for split in task.splits]
        test = {
            name: _split(dataset[name], glue_task, f"{data or PATH}, {name}", hidden=True)
            for name in names
            if name in dataset
        }
        return replace(self._build_rows(task, data, dataset), test=test)

    def _read_splits(self, data: Path | None) -> Any:
        """The data set of the task, with all of its splits."""
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError

        glue_task = TASKS[self.name]
        hub, where = {"path": PATH, "revision": REVISION}, str(data or PATH)
        place: dict[str, Any] = hub if data is None else {"path": str(resolve_readable_folder(data))}
        try:
            return load_dataset(**place, name=glue_task.subset)
        except ConnectionError as error:
            raise explain_unreachable(PATH, error) from error
        except (ValueError, OSError, DatasetsError) as error:
            # The library ends its message with a list of all extensions that it knows.
            reason = str(error.__cause__ or error).partition(" with any supported extension")[0]
            raise DataError(
                f"{where}: {glue_task.subset} cannot be read: {reason}",
                hint="A data root holds the hub's files with its README.md, which names them by subset.",
            ) from error

    def load(self, task: Task, *, data: Path | None) -> LabelledData:
        """The rows of the task (see harness.core.types.LabelSource)."""
        return self._build_rows(task, data, self._read_splits(data))

    def _build_rows(self, task: Task, data: Path | None, dataset: Any) -> LabelledData:
        glue_task, where = TASKS[self.name], str(data or PATH)
        splits = {
            name: _split(dataset[name], glue_task, f"{where}, {glue_task.subset}, {name}")
            for name in (TRAIN, *task.splits)
            if name in dataset
        }
        missing = [name for name in (TRAIN, *task.splits) if name not in splits]
        if TRAIN in missing or len(missing) == len(task.splits):
            raise DataError(
                f"{where} has no {' and no '.join(missing)} of {glue_task.subset}.",
                hint=f"It has: {', '.join(dataset)}. "
                "Type `harness data pull --suite glue --data DIR` to fetch all.",
            )
        notes = [f"not scored on {name}, which the data does not have" for name in missing]
        dev = {name: split for name, split in splits.items() if name != TRAIN}
        sizes = {TRAIN: glue_task.train_rows, **dict(zip(glue_task.dev, glue_task.dev_rows, strict=True))}
        notes += [
            f"{name} has {len(split):,} of GLUE's {sizes[name]:,} rows"
            for name, split in splits.items()
            if len(split) != sizes[name]
        ]
        return LabelledData(
            train=splits[TRAIN],
            dev=dev,
            classes=glue_task.classes,
            notes=tuple(notes),
            names=glue_task.names,
        )


def format_submission_name(task: str, split: str) -> str:
    """The name of a file of predictions, without its ending: GLUE's own of a split that its server scores.

    >>> format_submission_name("MNLI", "test_mismatched"), format_submission_name("RTE", "validation")
    ('MNLI-mm', 'RTE-validation')
    """
    server_names = {"test": task, "test_matched": f"{task}-m", "test_mismatched": f"{task}-mm"}
    return server_names.get(split, f"{task}-{split}")


def _split(rows: Any, task: _GlueTask, where: str, *, hidden: bool = False) -> LabelledSplit:
    lacking = [name for name in (*task.columns, "label") if name not in rows.column_names]
    if lacking:
        raise DataError(f"{where} has no column {', '.join(lacking)}.")
    if len(rows) == 0:
        raise DataError(f"{where} is empty.")
    labels = [0] * len(rows) if hidden else list(rows["label"])
    # The test splits of GLUE have -1 in place of labels.
    if task.classes > 1 and not set(labels) <= set(range(task.classes)):
        raise DataError(f"{where} has labels outside of 0 to {task.classes - 1}: they are hidden ones.")
    ids = list(rows["idx"]) if "idx" in rows.column_names else range(len(rows))
    texts = tuple(list(rows[name]) for name in task.columns)
    return LabelledSplit(texts=texts, labels=labels, ids=[str(i) for i in ids])


def _build_glue_task(glue_task: _GlueTask) -> Task:
    return Task(
        name=glue_task.name,
        type=glue_task.type,
        metric=", ".join(glue_task.metrics),
        splits=glue_task.dev,
        subsets=(glue_task.subset,),
        data=Data(path=PATH, revision=REVISION),
        source=GlueSource(name=glue_task.name),
        output="label",
        roles=("",),
    )


GLUE: Mapping[str, Task] = MappingProxyType({name: _build_glue_task(known) for name, known in TASKS.items()})
"""The tasks in the form of a plan, by name."""


def _build_convention_parts(
    **changed: tuple[tuple[str, str], ...],
) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The first metric of every task, apart from those given by the subset's name."""
    return {name: changed.get(task.subset, ((task.dev[0], task.metrics[0]),)) for name, task in TASKS.items()}


BOTH_SETS = ((MATCHED, "accuracy"), (MISMATCHED, "accuracy"))
ACCURACY_AND_F1 = ((DEV, "accuracy"), (DEV, "f1"))
PEARSON, SPEARMAN = ((DEV, "pearson"),), ((DEV, "spearman"),)
MEANS_OF_ALL = _build_convention_parts(
    mnli=BOTH_SETS, mrpc=ACCURACY_AND_F1, qqp=ACCURACY_AND_F1, stsb=(*PEARSON, *SPEARMAN)
)

_ALL_TASKS = (
    Convention(
        name="neobert",
        says="NeoBERT, appendix C: the mean of both metrics where there are two, and of MNLI's two sets",
        parts=MEANS_OF_ALL,
    ),
    Convention(
        name="optibert",
        says="OptiBERT, appendix D.1, as NeoBERT: the mean of both metrics, and of MNLI's two sets",
        parts=MEANS_OF_ALL,
    ),
    Convention(
        name="modernbert",
        says="ModernBERT, table 5: accuracy for MRPC and QQP (its QQP can be nothing else), Spearman for "
        "STS-B, MNLI matched; the paper names none of them",
        parts=_build_convention_parts(stsb=SPEARMAN),
    ),
    Convention(
        name="mosaicbert",
        # Runs with its code (mosaicml/examples: examples/bert/results/glue-best-results.ipynb) have for a
        # BERT-base 91.3 accuracy and 88.3 F1 on QQP, 88.7 and 91.9 on MRPC; table S3 has 91.4 and 89.5.
        says="MosaicBERT: MNLI matched (the paper), Spearman for STS-B (its code), accuracy for MRPC and QQP "
        "(figure S2, from which table S3 is). Its code has their mean with F1, about 1.5 lower for QQP, too "
        "low for the table, and 1.6 higher for MRPC, which the table does not settle",
        parts=_build_convention_parts(stsb=SPEARMAN),
    ),
)

VIEWS: Mapping[str, Convention] = {view.name: view for view in _ALL_TASKS}
"""The conventions by name."""
