"""The jobs of a run: train a model, choose one of several, resolve it, encode a task, score it.

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
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from harness import provenance
from harness.context import EncodedTexts, Event, JobContext
from harness.data.prepared import naming_full_disk, prepared
from harness.data.training import count_trained, trained_texts
from harness.encoder.content import content_key
from harness.encoder.model_settings import Description, describe, resolve_encoding
from harness.errors import DataError, StoreError, TrainingError
from harness.lineage import Lineage, MemberPart, ModelDocument, read_document
from harness.model_store import ModelStore, copy_model
from harness.record import (
    EXAMPLE_COLUMNS,
    RUN_COLUMNS,
    ExamplesPart,
    ModelPart,
    Record,
    RunPart,
    TaskPart,
)
from harness.store import Store
from harness.training import MODEL, TrainingOutcome, TrainingSpec, read_log, run_training
from harness.types import (
    Artifact,
    Encoding,
    Outcome,
    Purpose,
    Role,
    Settings,
    Similarity,
    Task,
    TextModel,
    VectorSource,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


JobKind = Literal["train", "finetune", "select", "resolve", "encode", "score", "rank"]

Examples = Mapping[str, Sequence[Any]]
"""The columns of a per-example file, or of a run file."""


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
    exists, the job is done. A job runs beside others on a device; one with `devices` has that many to itself.
    A `member` is the value of a sweep for which the job works, and its model is one of several.
    """

    key: str
    kind: JobKind
    label: str
    work: _Work
    inputs: tuple[str, ...] = ()
    claim: str | None = None
    place: Place | None = None
    devices: int = 0
    member: str = ""


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model and put its folder in place; there is no output but the folder.

    Attributes:
        spec: The training, without its devices.
        artifact: The model as it was planned.
        lineage: What it is made of.
        description: The model folder as it was planned.
        steps, texts: Its steps and the texts in them; None where their number was not known.
        results: The results folder.
    """

    spec: TrainingSpec
    artifact: Artifact
    lineage: Lineage
    description: Description
    steps: int | None
    texts: int | None
    results: Path

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Train in a process group of its own, going on from what an earlier training left.

        Raises:
            TrainingError: The training failed; the message says why and where its log lies.
        """
        store = ModelStore(self.results)
        if store.find(self.artifact.key, context.cache) is not None:
            return {}  # another process has trained it meanwhile
        context.forget()
        context.emit(Event(kind="stage", text=f"training {self.artifact.name}"))
        store.begin(self.artifact.key, name=self.artifact.name, lineage=self.lineage, steps=self.steps)
        started = datetime.now(tz=UTC)
        spec = replace(self.spec, backbone=with_weights(self.spec.backbone), devices=context.devices)
        outcome, micro_batch = _train(replace(spec, micro_batch=store.micro_batch(spec.key)), context, store)
        self._require_as_planned()
        log = read_log(spec.log.path)
        facts = {
            "micro_batch": micro_batch,
            **provenance.snapshot(device=context.devices[0], threads=self.spec.threads, started=started),
            "devices": list(context.devices),
            "steps": max((line["step"] for line in log), default=0),
            "seconds": round(sum(line.get("seconds", 0.0) for line in log), 3),
            "tokens": sum(line.get("tokens", 0) for line in log),
            "texts": self.texts,
            "notes": list(outcome.notes),
        }
        folder = store.put(spec.output, self._document(spec.output, facts, context.cache), self.artifact.slug)
        context.emit(Event(kind="finished", text=str(folder), steps=facts["steps"], seconds=facts["seconds"]))
        return {}

    def _require_as_planned(self) -> None:
        """Refuse a model whose evaluation would not be the planned one."""
        made, planned = _plain(describe(self.spec.output)), _plain(self.description)
        differs = [
            f"{name} is {made[name]!r}, not {planned[name]!r}" for name in made if made[name] != planned[name]
        ]
        if differs:
            raise TrainingError(
                f"{self.artifact.name} is not the model that its recipe planned: {'; '.join(differs)}.",
                hint="This is a fault of the recipe: what `plan` says and what `train` writes must agree.",
            )

    def _document(self, folder: Path, facts: Mapping[str, Any], cache: Path) -> ModelDocument:
        content, weights = content_key(folder, cache)
        return ModelDocument(
            name=self.artifact.name,
            key=self.artifact.key,
            content=content,
            weights=weights,
            lineage=self.lineage,
            training=facts,
        )


def _plain(description: Description) -> dict[str, Any]:
    """The encoding of a model by its own defaults; an empty prompt is none."""
    encoding = resolve_encoding(description, Settings())
    named = tuple((name, text) for name, text in encoding.prompts if text)
    return asdict(replace(encoding, prompts=named))


def _train(spec: TrainingSpec, context: JobContext, store: ModelStore) -> tuple[TrainingOutcome, int | None]:
    """Run a training to its end, with fewer rows in a pass each time that memory runs out."""
    while True:
        outcome = run_training(spec, lambda message: _tell(message, context))
        if outcome.code == 0:
            return outcome, spec.micro_batch
        rows = int((outcome.memory or {}).get("rows", 0))
        if outcome.memory is None or not outcome.memory["halves"] or rows < 2:
            raise _failure(spec, outcome)
        spec = replace(spec, micro_batch=rows // 2)
        store.set_micro_batch(spec.key, rows // 2)
        context.emit(
            Event(kind="note", text=f"{rows} rows do not fit into memory at once: {rows // 2} in a pass now")
        )


def _tell(message: Mapping[str, Any], context: JobContext) -> None:
    """Pass on a message of a training process."""
    match message["kind"]:
        case "stage":
            context.emit(Event(kind="stage", text=message["text"]))
        case "begin":
            context.emit(Event(kind="training", steps=message["steps"]))
            context.emit(Event(kind="trained", steps=message["done"]))
        case "steps":
            context.emit(Event(kind="trained", steps=message["count"], tokens=message["tokens"]))
        case "note":
            context.emit(Event(kind="note", text=message["text"]))


def _failure(spec: TrainingSpec, outcome: TrainingOutcome) -> TrainingError | StoreError:
    """The error for a training that ended without a model."""
    error = outcome.error
    kept = f"The same command goes on from the last checkpoint. Its output: {spec.printed}"
    if outcome.memory is not None:
        rows = outcome.memory["rows"]
        return TrainingError(
            f"A pass over {rows} rows does not fit into memory.",
            hint="Type e.g. --set batch_size=N or --set max_length=N for a smaller one; it is another model.",
        )
    if error is None:
        killed = " (out of memory?)" if outcome.code == -9 else ""
        return TrainingError(f"The training process ended with code {outcome.code}{killed}.", hint=kept)
    if error["name"] == "StoreError":
        return StoreError(error["text"], hint=error["hint"])
    if error["own"]:
        return TrainingError(error["text"], hint=error["hint"] or kept)
    return TrainingError(f"The training failed: {error['name']}: {error['text']}", hint=kept)


@dataclass(frozen=True, kw_only=True)
class Choose:
    """Choose the best model of a sweep and put it in its place under the sweep's own key.

    Attributes:
        artifact: The model as it was planned.
        lineage: What it is made of; the choice is added to its sweep.
        members: The models of the sweep, in the order of its values.
        trials: For each member, by the column that chooses, the task and the key of its score.
        results: The results folder.
    """

    artifact: Artifact
    lineage: Lineage
    members: tuple[Artifact, ...]
    trials: tuple[Mapping[str, tuple[str, str]], ...]
    results: Path

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Copy the member with the highest mean score, the first of equals; the members' vectors go.

        Raises:
            TrainingError: A score is missing, or is of other weights than its model has now.
        """
        from harness.vectors import drop_vectors

        store = ModelStore(self.results)
        if store.find(self.artifact.key, context.cache) is not None:
            return {}  # another process has chosen it meanwhile
        context.emit(Event(kind="stage", text=f"choosing {self.artifact.name}"))
        members = [with_weights(replace(member, weights="")) for member in self.members]
        records = [self._records(*pair) for pair in zip(members, self.trials, strict=True)]
        best = best_member(records)
        there = store.find(members[best].key, context.cache)
        if there is None:
            raise TrainingError(f"{members[best].name} ({members[best].key[:12]}) is gone.", hint=_AGAIN)
        chosen, document = there
        work = store.begin(
            self.artifact.key,
            name=self.artifact.name,
            lineage=self.lineage,
            steps=document.training.get("steps"),
        )
        folder = copy_model(chosen, work / MODEL)
        made = document.model_copy(
            update={
                "name": self.artifact.name,
                "key": self.artifact.key,
                "lineage": self._lineage(records, best, document.lineage.assumed),
            }
        )
        for member in members:
            drop_vectors(context.cache, member.key)
        placed = store.put(folder, made, self.artifact.slug)
        text = f"{made.lineage.text}, by {', '.join(self.trials[0])}; {placed}"
        context.emit(Event(kind="finished", text=text))
        return {}

    def _records(self, member: Artifact, trials: Mapping[str, tuple[str, str]]) -> list[Record]:
        """The records of a member's scores, which must be of the weights that it has now."""
        store = Store(self.results)
        records = []
        for task, key in trials.values():
            record = store.get(member.slug, task, key, purpose="trial")
            if record is None or member.weights not in ("", record.model.weights):
                what = "is not there" if record is None else "is of other weights than the model has now"
                raise TrainingError(f"The score of {member.name} on {task} {what}.", hint=_AGAIN)
            records.append(record)
        return records

    def _lineage(self, records: Sequence[Sequence[Record]], best: int, assumed: tuple[str, ...]) -> Lineage:
        sweep = self.lineage.sweep
        assert sweep is not None
        curve = tuple(
            MemberPart(
                value=value,
                artifact=member.key,
                scores=dict(zip(sweep.tasks, map(_main_score, found), strict=True)),
                mean=_mean(found),
            )
            for value, member, found in zip(sweep.values, self.members, records, strict=True)
        )
        whole = sweep.model_copy(update={"chosen": sweep.values[best], "curve": curve})
        return self.lineage.model_copy(update={"sweep": whole, "assumed": assumed})


_AGAIN = "Run the same command again: what is missing is made anew."


def best_member(records: Sequence[Sequence[Record]]) -> int:
    """The place of the member of a sweep with the highest mean of main scores, the first of equals."""
    means = [mean if math.isfinite(mean := _mean(found)) else -math.inf for found in records]
    return means.index(max(means))


def _mean(records: Sequence[Record]) -> float:
    return fmean(map(_main_score, records))


def _main_score(record: Record) -> float:
    assert record.main_score is not None
    return record.main_score


def with_weights(artifact: Artifact) -> Artifact:
    """A trained model with the folder and the weights that it has now; the same where it is not there."""
    if not artifact.trained or artifact.weights:
        return artifact
    document = read_document(artifact.folder)
    if document is not None and document.key == artifact.key:
        return replace(artifact, weights=document.weights)
    there = ModelStore(artifact.folder.parents[1]).find(artifact.key)  # trained elsewhere, under another name
    return artifact if there is None else replace(artifact, folder=there[0], weights=there[1].weights)


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
        artifact = with_weights(self.artifact)
        encoder = context.encoder(artifact, self.encoding)
        try:
            report = check_encoder(encoder, lambda: context.load(artifact, self.encoding))
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
class _TaskJob:
    """A job on a task.

    Attributes:
        artifact: The model.
        task: The task.
        seed: The seed of its samples.
        data: The local folder of its data; None to load from the hub.
    """

    artifact: Artifact
    task: Task
    seed: int
    data: Path | None

    def run_task(self, model: TextModel) -> Outcome:
        """Run the task's own code on a model."""
        source = self.task.source
        assert isinstance(source, VectorSource)
        return source.evaluate(self.task, model, seed=self.seed, data=self.data)


@dataclass(frozen=True, kw_only=True)
class Encode(_TaskJob):
    """Encode the texts of a task whose vectors are not cached; the output is counts as JSON."""

    encoding: Encoding

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Collect the task's texts with the task's own code, then encode those without a cached vector."""
        started = time.monotonic()
        context.emit(Event(kind="stage", text=f"loading {self.task.name}"))
        collector = _Collector(self.encoding)
        with prepared_data(self.task, self.data, context.cache), contextlib.suppress(_VectorsNeeded):
            self.run_task(collector)
        loaded = time.monotonic() - started
        made, artifact = EncodedTexts(), with_weights(self.artifact)
        for role, texts in collector.texts.items():
            made.add(context.encode_missing(artifact, self.encoding, self.task, role, list(texts)))
        told = {
            "texts": collector.count,
            "load_seconds": loaded,
            "encoded": asdict(made),
        }
        return {"counts": json.dumps(told).encode()}


@dataclass(frozen=True, kw_only=True)
class ScoreJob(_TaskJob):
    """A job that scores a finished model on a task.

    Attributes:
        key: The key of the record.
        identity: What the score depends on.
        purpose: Whether the score enters tables.
    """

    key: str
    identity: Mapping[str, Any]
    purpose: Purpose = "final"

    def outcome(self, model: TextModel, context: JobContext) -> Outcome:
        """Run the task's code on its data; its notes become events."""
        with prepared_data(self.task, self.data, context.cache):
            outcome = self.run_task(model)
        for note in outcome.notes:
            context.emit(Event(kind="note", text=note))
        return outcome

    def output(
        self,
        outcome: Outcome,
        model: ModelPart,
        provenance: Mapping[str, Any],
        lineage: Lineage | None = None,
    ) -> Mapping[str, bytes]:
        """The record of an outcome and the files beside it."""
        record = Record(
            key=self.key,
            purpose=self.purpose,
            status="done",
            model=model,
            lineage=lineage,
            task=task_part(self.task),
            identity=self.identity,
            main_score=outcome.main_score,
            scores=outcome.scores,
            provenance=provenance,
        )
        return record_output(record, outcome.examples, outcome.run)


@dataclass(frozen=True, kw_only=True)
class Score(ScoreJob):
    """Score a task with the task's own code; the output is the record and the files beside it."""

    encoding: Encoding

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Run the task with cached vectors and return the record of the outcome."""
        started = datetime.now(tz=UTC)
        context.emit(Event(kind="stage", text=f"scoring {self.task.name}"))
        artifact = with_weights(self.artifact)
        known = _Known(context, artifact, self.encoding, self.task)
        outcome = self.outcome(known, context)
        model = model_part(artifact, context.input("facts"))
        ran = self._provenance(context, known, outcome, started)
        return self.output(outcome, model, ran, lineage_of(artifact))

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
            **({"batch_tokens": context.batch_tokens} if context.batch_tokens else {}),
            "gate": facts.get("gate"),
            "notes": [*dict.fromkeys([*facts.get("notes", ()), *made.notes, *outcome.notes])],
            "prompts_asked": {
                "named": dict(self.encoding.prompts),
                "default": self.encoding.default_prompt,
            },
            "prompts_applied": known.applied,
            "texts": max(counts.get("texts", 0), known.count),
            **known.trained_on(),
            "texts_encoded": made.texts,
            "characters_encoded": made.characters,
            "tokens_encoded": made.tokens,
            "seconds": {name: round(value, 3) for name, value in spent.items()},
            "tokens_per_second": round(made.tokens / made.seconds) if made.tokens else None,
            "peak_memory_bytes": provenance.peak_memory(),
        }


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


def lineage_of(artifact: Artifact) -> Lineage | None:
    """The lineage of a trained model; None of any other."""
    document = read_document(with_weights(artifact).folder) if artifact.trained else None
    return None if document is None else document.lineage


def task_part(task: Task) -> TaskPart:
    """The task's part of a record."""
    return TaskPart(name=task.name, type=task.type, metric=task.metric)


def record_output(record: Record, examples: Examples, run: Examples | None = None) -> Mapping[str, bytes]:
    """The output of a job that makes a record: the record, which names the files beside it, and those files.

    Args:
        record: Without the entries for the files.
        examples: The columns of the per-example file; without any there is none.
        run: The columns of the run file; without any there is none.
    """
    contents: dict[str, bytes] = {}
    parts: dict[str, ExamplesPart | RunPart] = {}
    if examples:
        contents["examples"] = _examples_bytes(examples)
        parts["examples"] = _examples_part(examples, contents["examples"])
    if run:
        contents["run"] = _run_bytes(run)
        parts["run"] = _run_part(run, contents["run"])
    return {"record": record.model_copy(update=parts).to_json().encode(), **contents}


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


def _run_part(run: Examples, content: bytes) -> RunPart:
    digest = hashlib.sha256(content).hexdigest()
    return RunPart(file="", rows=len(run["rank"]), sha256=digest, depth=max(run["rank"]))


def _run_bytes(run: Examples) -> bytes:
    """The run file (Parquet) of an outcome."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = (pa.string(), pa.string(), pa.string(), pa.string(), pa.int32(), pa.float32())
    table = pa.table({name: pa.array(run[name], kind) for name, kind in zip(RUN_COLUMNS, types, strict=True)})
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

    def trained_on(self) -> dict[str, int]:
        """The number of texts so far that the model was trained on; empty where that is not known."""
        artifact, *_ = self._of
        trained = trained_texts(artifact.folder) if artifact.trained else None
        if trained is None:
            return {}
        return {"texts_trained_on": count_trained([*set().union(*self._asked.values())], trained)}

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
