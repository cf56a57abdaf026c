"""Records: the outcome of one task on disk, its schema, and the migrations from older schemas."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, TypeGuard

from pydantic import Field

from harness.core.documents import DocumentKind, DocumentPart, FileName, Migration
from harness.core.keys import Lineage
from harness.core.types import OWN_UNITS, Task, is_number

SCHEMA = 6
"""The schema that this version writes; a newer one is refused, an older one migrated step by step."""

MIGRATIONS: dict[int, Migration] = {number: lambda record: record for number in (1, 2, 3, 4, 5)}
"""`MIGRATIONS[n]` turns a record of schema n into one of schema n + 1 (a golden file each); schema 2 added
`training`, which is empty without a recipe, schema 3 the digest of a record's content on disk, schema 4
`lineage`, which only models that a recipe made have, schema 5 `run` and a lineage's `sweep`, and schema 6 the
`folder` of a model."""

EXAMPLE_COLUMNS = ("split", "subset", "example_id", "replicate", "prediction", "gold", "metric")
"""Columns of the per-example file, described in results/README.md."""


RUN_COLUMNS = ("split", "subset", "query_id", "document_id", "rank", "score")
"""Columns of the run file, described in results/README.md."""

RUN_DEPTH = 100
"""The documents of a query in a run file of a search; a reranking task has all its candidates there."""


class ModelPart(DocumentPart):
    """The model of a record."""

    name: str
    """A name fit for a table: a catalog name, a hub id or a folder's name."""
    source: str
    """The requested model: a catalog name, `org/name`, or `local` for a folder."""
    folder: str | None = None
    """The end of a folder's path, which tells it from another of its name; None for any other model."""
    artifact: str
    """The ArtifactKey."""
    weights: str
    """The hash of the weights alone."""
    revision: str | None = None
    """The pinned commit of a hub model."""
    parameters: int | None = None
    dimension: int | None = None


class TaskPart(DocumentPart):
    """The task of a record."""

    name: str
    type: str
    metric: str
    """The name of the main metric."""


class ExamplesPart(DocumentPart):
    """The per-example file beside the record."""

    file: FileName
    rows: int
    sha256: str


class RunPart(ExamplesPart):
    """The run file beside the record of a retrieval task: the best documents of each query."""

    depth: int
    """The largest rank: the most documents of a query."""


class ErrorPart(DocumentPart):
    """The failure of a task."""

    kind: str
    message: str
    hint: str | None = None
    traceback: str = ""


class Record(DocumentPart):
    """The outcome of one task: scores, every raw metric, identity, provenance, or the error."""

    # On disk `schema`, which is a method of pydantic's models and cannot be a field's name.
    schema_version: int = Field(default=SCHEMA, alias="schema")
    key: str
    """The EvaluationKey: the digest of `identity`."""
    purpose: Literal["final", "trial"] = "final"
    status: Literal["done", "failed"]
    model: ModelPart
    task: TaskPart
    identity: Mapping[str, Any]
    """Everything the score depends on, as it was hashed (harness.core.keys)."""
    main_score: float | None = None
    """The mean of the main metric over splits and subsets, in the metric's own unit; of a metric that has no
    mean that of the first."""
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
    """split → subset → metric → value: every raw metric that the task's code gave."""
    examples: ExamplesPart | None = None
    run: RunPart | None = None
    lineage: Lineage | None = None
    """What a recipe made the model of; None for any other model."""
    training: Mapping[str, Any] = {}
    """The training runs behind the score (results/README.md); empty without a recipe."""
    provenance: Mapping[str, Any] = {}
    """The circumstances of the run, never part of the identity (harness.core.provenance)."""
    error: ErrorPart | None = None

    @property
    def retrieves(self) -> bool:
        """Whether it is of a task that searches documents for queries, or puts given ones in order."""
        return self.task.type.endswith(("Retrieval", "Reranking"))

    @property
    def subset_metrics(self) -> list[Mapping[str, Any]]:
        """The raw metrics of each split and subset."""
        return [metrics for split in self.scores.values() for metrics in split.values()]

    def to_json(self) -> str:
        """The record as indented JSON with a final newline, its last field the digest of all others."""
        return RECORDS.serialize_document(self)


def is_same_score(one: float, other: float) -> bool:
    """Whether two means are the same, as far as the order of summing lets them."""
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


_MOST_METRICS = 8
"""The most metrics whose every mean is compared with a main score, which are 255."""


def find_score_problem(record: Record) -> str:
    """Why a record's main score does not follow from its own metrics; empty if it does."""
    main, parts = record.main_score, list[float]()
    for metrics in record.subset_metrics:
        score, named = metrics.get("main_score"), metrics.get(record.task.metric)
        if _is_value(score) and _is_value(named) and not is_same_score(score, named):
            return f"a `main_score` is {score}, but its {record.task.metric} is {named}"
        parts += [score] if _is_value(score) else []
    if not _is_value(main):
        return ""
    if parts:
        # Speeds have no mean.
        mean = parts[0] if record.task.metric in OWN_UNITS else sum(parts) / len(parts)
        problem = f"its main score is {main}, but the mean over splits and subsets is {mean}"
        return "" if is_same_score(main, mean) else problem
    values = [value for metrics in record.subset_metrics for value in metrics.values() if _is_value(value)]
    problem = f"its main score is {main}, which no mean of its metrics is"
    return "" if _is_mean_of_some(main, values) else problem


def _is_value(value: Any) -> TypeGuard[float]:
    return is_number(value) and not math.isnan(value)


def _is_mean_of_some(main: float, values: list[float]) -> bool:
    """Whether a number by a paper's convention is the mean of some metrics; of very many, lies among them."""
    if len(values) > _MOST_METRICS:
        return min(values) <= main <= max(values)
    some = (part for size in range(1, len(values) + 1) for part in combinations(values, size))
    return any(is_same_score(main, sum(part) / len(part)) for part in some)


RECORDS = DocumentKind(
    name="record",
    type=Record,
    schema=SCHEMA,
    migrations=MIGRATIONS,
    newer="Update the harness, or choose another folder with --results DIR.",
    digest_since=3,
    find_problem=find_score_problem,
)


# The files of a record

Examples = Mapping[str, Sequence[Any]]
"""The columns of a per-example file, or of a run file."""


def build_task_part(task: Task) -> TaskPart:
    """The task's part of a record."""
    return TaskPart(name=task.name, type=task.type, metric=task.metric)


def build_record_output(
    record: Record, examples: Examples, run: Examples | None = None
) -> Mapping[str, bytes]:
    """The output of a job that makes a record: the record, which names the files beside it, and those files.

    Args:
        record: Without the entries for the files.
        examples: The columns of the per-example file; without any there is none.
        run: The columns of the run file; without any there is none.
    """
    contents: dict[str, bytes] = {}
    parts: dict[str, ExamplesPart | RunPart] = {}
    if examples:
        contents["examples"] = _serialize_parquet({name: list(examples[name]) for name in EXAMPLE_COLUMNS})
        # The store names the files when it writes them.
        sha256 = _hash_content(contents["examples"])
        parts["examples"] = ExamplesPart(file="", rows=len(examples["example_id"]), sha256=sha256)
    if run:
        contents["run"] = _run_bytes(run)
        sha256, depth = _hash_content(contents["run"]), max(run["rank"])
        parts["run"] = RunPart(file="", rows=len(run["rank"]), sha256=sha256, depth=depth)
    return {"record": record.model_copy(update=parts).to_json().encode(), **contents}


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _run_bytes(run: Examples) -> bytes:
    """The run file of an outcome, whose columns have types of their own."""
    import pyarrow as pa

    types = (pa.string(), pa.string(), pa.string(), pa.string(), pa.int32(), pa.float32())
    columns = zip(RUN_COLUMNS, types, strict=True)
    return _serialize_parquet({name: pa.array(run[name], kind) for name, kind in columns})


def _serialize_parquet(columns: Mapping[str, Any]) -> bytes:
    """A Parquet file of columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression="zstd")
    return buffer.getvalue()


APPROXIMATE = "approximate"
"""The mark of scores from an approximate search, in settings and in tables."""


def collect_notes(records: Iterable[Record]) -> tuple[str, ...]:
    """The notes of records, such as on data that was left out; each once, with its tasks."""
    task_notes = [(record.task.name, record.provenance.get("notes", ())) for record in records]
    tasks: dict[str, list[str]] = {}
    for task, notes in task_notes:
        for note in dict.fromkeys(notes):
            tasks.setdefault(note, []).append(task)
    everywhere = [note for note, names in tasks.items() if 1 < len(task_notes) == len(names)]
    rest = [(note, names) for note, names in tasks.items() if note not in everywhere]
    return (*everywhere, *(f"{', '.join(dict.fromkeys(names))}: {note}" for note, names in rest))
