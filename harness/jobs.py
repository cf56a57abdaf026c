"""The jobs of a run: resolve a model, encode a task's texts, score a task.

A job is a small picklable object. `run` takes models and vectors from a JobContext and returns named bytes;
it writes nothing. An encode job runs the task's own code with a `_Collector`, which records texts and returns
placeholders; the first use of a placeholder's values ends that run. So the texts that the task encodes before
it looks at a vector are known exactly and encoded in one go. The score job runs the same code with `_Known`
vectors, and has texts that come later encoded on the way.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from harness import provenance
from harness.context import EncodedTexts, Event, JobContext
from harness.data.prepared import naming_full_disk, prepared
from harness.errors import DataError
from harness.record import EXAMPLE_COLUMNS, ExamplesPart, ModelPart, Record, TaskPart
from harness.types import (
    Artifact,
    Encoding,
    Outcome,
    Purpose,
    Role,
    Similarity,
    Task,
    TextEncoder,
    VectorSource,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


JobKind = Literal["train", "select", "resolve", "encode", "score"]

Examples = Mapping[str, Sequence[Any]]
"""The columns of a per-example file."""


class _Work(Protocol):
    def run(self, context: JobContext) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of the record that a job makes: the folder of the artifact (`Artifact.slug`) and the task."""

    artifact: str
    task: str
    purpose: Purpose = "final"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One unit of work in a plan.

    `inputs` are the keys of the jobs whose output it reads. `claim` is the key by which processes share work:
    jobs of one claim run in one process. A job with a `place` makes the record of its own key; if that record
    exists, the job is done.
    """

    key: str
    kind: JobKind
    label: str
    work: _Work
    inputs: tuple[str, ...] = ()
    claim: str | None = None
    place: Place | None = None


@dataclass(frozen=True, kw_only=True)
class Resolve:
    """Load a model and run the sanity gate; the output is the model's facts as JSON."""

    artifact: Artifact
    encoding: Encoding
    gate: bool = True

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Load the model, refuse it if it loads wrongly, and return its facts."""
        from harness.encoder.sanity import check_encoder, require_sane

        context.emit(Event(kind="stage", text=f"loading {self.artifact.name}"))
        encoder = context.encoder(self.artifact, self.encoding)
        try:
            report = check_encoder(encoder, lambda: context.load(self.artifact, self.encoding))
            if self.gate:
                require_sane(report)
        except BaseException:
            context.forget()
            raise
        for failure in () if self.gate else report.failures:
            context.emit(Event(kind="note", text=f"the sanity gate was overruled: {failure}"))
        facts = {
            "parameters": encoder.parameters,
            "dimension": encoder.dimension,
            "dtype_as_run": encoder.dtype_as_run,
            "attention": encoder.attention,
            "gate": {"passed": not report.failures, "failures": [str(f) for f in report.failures]},
            "notes": list(encoder.notes),
        }
        return {"facts": json.dumps(facts).encode()}


@dataclass(frozen=True, kw_only=True)
class Encode:
    """Encode the texts of a task whose vectors are not cached; the output is counts as JSON."""

    artifact: Artifact
    encoding: Encoding
    task: Task
    seed: int
    data: Path | None

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Collect the task's texts with the task's own code, then encode those without a cached vector."""
        started = time.monotonic()
        context.emit(Event(kind="stage", text=f"loading {self.task.name}"))
        collector = _Collector(self.encoding)
        with prepared_data(self.task, self.data, context.cache), contextlib.suppress(_VectorsNeeded):
            _evaluate(self, collector)
        loaded = time.monotonic() - started
        made = EncodedTexts()
        for role, texts in collector.texts.items():
            made.add(context.encode_missing(self.artifact, self.encoding, self.task, role, list(texts)))
        told = {"texts": collector.count, "load_seconds": loaded, "encoded": asdict(made)}
        return {"counts": json.dumps(told).encode()}


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score a task with the task's own code; the output is the record and its per-example file."""

    artifact: Artifact
    encoding: Encoding
    task: Task
    seed: int
    data: Path | None
    key: str
    identity: Mapping[str, Any]
    purpose: Purpose = "final"

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Run the task with cached vectors and return the record of the outcome."""
        started = datetime.now(tz=UTC)
        context.emit(Event(kind="stage", text=f"scoring {self.task.name}"))
        known = _Known(context, self.artifact, self.encoding, self.task)
        with prepared_data(self.task, self.data, context.cache):
            outcome = _evaluate(self, known)
        for note in outcome.notes:
            context.emit(Event(kind="note", text=note))
        record = Record(
            key=self.key,
            purpose=self.purpose,
            status="done",
            model=model_part(self.artifact, context.input("facts")),
            task=task_part(self.task),
            identity=self.identity,
            main_score=outcome.main_score,
            scores=outcome.scores,
            provenance=self._provenance(context, known, outcome, started),
        )
        return record_output(record, outcome.examples)

    def _provenance(
        self, context: JobContext, known: _Known, outcome: Outcome, started: datetime
    ) -> dict[str, Any]:
        facts, counts = context.input("facts"), context.input("counts")
        made = EncodedTexts(**counts.get("encoded", {}))
        made.add(known.encoded)
        seconds = (datetime.now(tz=UTC) - started).total_seconds() - known.encoded.seconds
        spent = {"load": counts.get("load_seconds", 0.0), "encode": made.seconds, "score": seconds}
        return {
            **provenance.snapshot(device=context.device, threads=context.threads, started=started),
            "dtype_as_run": facts.get("dtype_as_run"),
            "attention": facts.get("attention"),
            "gate": facts.get("gate"),
            "notes": [*dict.fromkeys([*facts.get("notes", ()), *made.notes, *outcome.notes])],
            "prompts_asked": {
                "named": dict(self.encoding.prompts),
                "default": self.encoding.default_prompt,
            },
            "prompts_applied": known.applied,
            "texts": max(counts.get("texts", 0), known.count),
            "texts_encoded": made.texts,
            "characters_encoded": made.characters,
            "tokens_encoded": made.tokens,
            "seconds": {name: round(value, 3) for name, value in spent.items()},
            "tokens_per_second": round(made.tokens / made.seconds) if made.tokens else None,
            "peak_memory_bytes": provenance.peak_memory(),
        }


def _evaluate(job: Encode | Score, encoder: TextEncoder) -> Outcome:
    """Run the task's code."""
    source = job.task.source
    assert isinstance(source, VectorSource)
    return source.evaluate(job.task, encoder, seed=job.seed, data=job.data)


def prepared_data(task: Task, data: Path | None, cache: Path) -> contextlib.AbstractContextManager[object]:
    """A context in which the datasets library caches data from a local folder by the data's content."""
    content = task.data.content or task.data.revision
    return prepared(content, cache) if data else naming_full_disk()


def model_part(artifact: Artifact, facts: Mapping[str, Any]) -> ModelPart:
    """The model's part of a record; the path of a local folder is left out."""
    return ModelPart(
        name=artifact.name,
        source="local" if Path(artifact.source).exists() else artifact.source,
        artifact=artifact.key,
        weights=artifact.weights,
        revision=artifact.revision,
        parameters=facts.get("parameters"),
        dimension=facts.get("dimension"),
    )


def task_part(task: Task) -> TaskPart:
    """The task's part of a record."""
    return TaskPart(name=task.name, type=task.type, metric=task.metric)


def record_output(record: Record, examples: Examples) -> Mapping[str, bytes]:
    """The output of a job that makes a record: the record, which names its per-example file, and that file.

    Args:
        record: Without the entry for the file.
        examples: The columns of the file; without any there is none.
    """
    if not examples:
        return {"record": record.to_json().encode()}
    content = _examples_bytes(examples)
    record = record.model_copy(update={"examples": _examples_part(examples, content)})
    return {"record": record.to_json().encode(), "examples": content}


def _examples_part(examples: Examples, content: bytes) -> ExamplesPart:
    rows = len(examples["example_id"])
    return ExamplesPart(file="", rows=rows, sha256=hashlib.sha256(content).hexdigest())


def _examples_bytes(examples: Examples) -> bytes:
    """The per-example file (Parquet) of an outcome."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: list(examples[name]) for name in EXAMPLE_COLUMNS})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


class _VectorsNeeded(BaseException):
    """The end of a collecting run; not an Exception, so that no task code swallows it."""


class _Placeholder:
    """A placeholder for vectors that do not exist yet; any use of it ends the collecting run."""

    def _needed(self, *_: Any, **__: Any) -> NoReturn:
        raise _VectorsNeeded

    __array__ = __getitem__ = __len__ = __iter__ = __getattr__ = _needed
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = _needed


class _Collector:
    """A TextEncoder that records the texts of a task, by side and in order, each once."""

    def __init__(self, encoding: Encoding) -> None:
        self.similarity: Similarity = encoding.similarity
        self.texts: dict[Role, dict[str, None]] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self.texts.values()))

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        _check_texts(texts, role)
        self.texts.setdefault(role, {}).update(dict.fromkeys(texts))

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """Record texts and return a placeholder for their vectors."""
        self.require(texts, role=role)
        return _Placeholder()  # type: ignore[return-value]


class _Known:
    """A TextEncoder that returns cached vectors and encodes missing ones on the way."""

    def __init__(self, context: JobContext, artifact: Artifact, encoding: Encoding, task: Task) -> None:
        self.similarity: Similarity = encoding.similarity
        self.encoded = EncodedTexts()
        self.applied: dict[str, str] = {}
        self._context = context
        self._asked: dict[Role, set[str]] = {}
        self._of = (artifact, encoding, task)

    @property
    def count(self) -> int:
        return sum(map(len, self._asked.values()))

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        _check_texts(texts, role)
        unique = list(dict.fromkeys(texts))
        self.encoded.add(self._context.encode_missing(*self._of, role, unique, hold=True))

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """The vectors of `texts`, shape (len(texts), dimension), float32."""
        _check_texts(texts, role)
        _, encoding, task = self._of
        self.applied[role or "text"] = encoding.prompt(task, role)
        self._asked.setdefault(role, set()).update(texts)
        space = self._context.space(*self._of, role)
        try:
            return space.get(texts)
        except KeyError:
            self.require(texts, role=role)
            return space.get(texts)


def _check_texts(texts: Sequence[str], role: Role) -> None:
    """Refuse rows that are not text, naming the row."""
    side = {"query": "query", "document": "document", "": "text"}[role]
    if not len(texts):
        raise DataError(f"The data set is empty: it has no {side} at all.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            what = "nothing" if text is None else f"a {type(text).__name__}"
            raise DataError(
                f"A row of the data set cannot be read: its {side} is {what} instead of text "
                f"(number {row + 1} of {len(texts)} that were to be encoded)."
            )


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide the progress bars of the datasets library."""
    import datasets

    hidden = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not hidden:
            datasets.enable_progress_bars()
