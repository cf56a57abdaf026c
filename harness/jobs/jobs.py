"""The jobs of a run on a finished model: resolve it, encode a task's texts, score the task.

A job is a small picklable object. `run` takes models and vectors from a JobContext and returns named bytes;
it writes nothing. An encode job runs the task's own code with a `_Collector`, which records texts and returns
placeholders; the first use of a placeholder's values ends that run. So the texts that the task encodes before
it looks at a vector are known exactly and encoded in one go. The score job runs the same code with `_Known`
vectors, and has texts that come later encoded on the way.

Beside a device both begin in a process of the CPU, which collects texts and scores while the device encodes
those of another task. A job that needs the model there ends with DeviceNeeded, and goes on beside the model.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from filelock import FileLock, Timeout

from harness.core import provenance
from harness.core.encoding import Encoding
from harness.core.errors import DataError, ModelError
from harness.core.files import resolve_home_path, shorten_folder
from harness.core.keys import Lineage, read_document
from harness.core.provenance import hold_collector
from harness.core.types import (
    Artifact,
    DataReport,
    MeasuredModel,
    MeasuredSource,
    ObjectEncoder,
    Outcome,
    Purpose,
    Role,
    Similarity,
    Task,
    TextModel,
    VectorSource,
)
from harness.data.counting import count_task_data
from harness.data.prepared import explain_disk_full, open_prepared_data
from harness.data.training.loading import count_trained, read_text_hashes
from harness.jobs.context import ContextDocuments, DeviceNeeded, EncodedTexts, Event, JobContext, load_model
from harness.results.cost.duration import Speed, estimate_non_embedding
from harness.storage.record import ModelPart, Record, build_record_output, build_task_part
from harness.storage.remote_and_leases import Remote
from harness.training.model_store import ModelStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


JobKind = Literal["train", "finetune", "select", "resolve", "encode", "score", "rank"]


class _Work(Protocol):
    def run(self, context: JobContext) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, kw_only=True)
class RecordLocation:
    """The place of the record that a job makes: the folder of the artifact (`Artifact.slug`) and the task."""

    artifact: str
    task: str
    purpose: Purpose = "final"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a job takes while it runs, which is never part of a key.

    Attributes:
        devices: The devices that it has to itself; 0 for one that it shares with others.
        memory: The bytes of main memory; None where they are not known.
        needs_device: Whether it works on a device, or is over in a moment without one.
        begins_on_cpu: Whether it begins without the model, and perhaps ends without it.
        seconds: The longest that the plan expects it to take; None where that is not known.
    """

    devices: int = 0
    memory: int | None = None
    needs_device: bool = True
    begins_on_cpu: bool = False
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One unit of work in a plan.

    `inputs` are the keys of the jobs whose output it reads. `claim` is the key by which processes share work:
    jobs of one claim run in one process. A job with a `place` makes the record of its own key; if that record
    exists, the job is done. `resources` are what it takes while it runs. Its batches were halved
    `halvings` times for lack of memory. A `member` is the value of a sweep for which the job works, and its
    model is one of several.
    """

    key: str
    kind: JobKind
    label: str
    work: _Work
    inputs: tuple[str, ...] = ()
    claim: str | None = None
    place: RecordLocation | None = None
    resources: Resources = Resources()
    halvings: int = 0
    member: str = ""

    @property
    def model(self) -> str:
        """The key of the model that it works with; empty where there is none."""
        artifact = getattr(self.work, "artifact", None)
        return artifact.key if isinstance(artifact, Artifact) else ""

    def replace_resources(self, **changes: Any) -> Job:
        """The job with other values of its resources."""
        return replace(self, resources=replace(self.resources, **changes))


def resolve_weights(artifact: Artifact, remote: Remote | None = None) -> Artifact:
    """A trained model with the folder and the weights that it has now; the same where it is not there.

    One that is not on this machine is fetched from the remote, where it is there.
    """
    if artifact.trained and remote is not None and not artifact.folder.is_dir():
        store = ModelStore(artifact.folder.parents[1], remote)
        store.fetch_model(artifact.key, artifact.slug)
    if not artifact.trained or artifact.weights:
        return artifact
    document = read_document(artifact.folder)
    if document is not None and document.key == artifact.key:
        return replace(artifact, weights=document.weights)
    # It may have been trained elsewhere, under another name.
    stored_model = ModelStore(artifact.folder.parents[1]).find(artifact.key)
    if stored_model is None:
        return artifact
    return replace(artifact, folder=stored_model[0], weights=stored_model[1].weights)


@dataclass(frozen=True, kw_only=True)
class Resolve:
    """Load a model and run the sanity gate; the output is the model's facts and speed as JSON."""

    artifact: Artifact
    encoding: Encoding
    gate: bool = True

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Load the model, refuse it if it loads wrongly, and return its facts."""
        began = time.monotonic()
        context.emit(Event(kind="stage", text=f"loading {self.artifact.name}"))
        with hold_collector():
            from harness.encoder import sanity

        # The import above takes seconds, and is measured apart from the load.
        started = time.monotonic()
        artifact = resolve_weights(self.artifact, context.remote)
        encoder = context.get_encoder(artifact, self.encoding)
        try:
            report = sanity.check_encoder(
                encoder,
                lambda: context.load_encoder(artifact, self.encoding),
                folder=artifact.folder,
                allow=artifact.allow,
            )
            if self.gate:
                sanity.require_sane(report)
        except BaseException:
            # A refused model must not stay loaded for the next job.
            context.forget()
            raise
        for failure in () if self.gate else report.failures:
            context.emit(Event(kind="note", text=f"the sanity gate was overruled: {failure}"))
        context.tell(report.accepted)
        facts = {
            "device": provenance.collect_provenance(device=context.device)["device"],
            "parameters": encoder.parameters,
            "dimension": encoder.dimension,
            "dtype_as_run": encoder.dtype_as_run,
            "attention": encoder.attention,
            "gate": {"passed": not report.failures, "failures": [str(f) for f in report.failures]},
            "observed": report.observed,
            "notes": [*encoder.notes, *report.accepted],
        }
        output = {"facts": json.dumps(facts).encode()}
        if report.speed is not None:
            speed = replace(
                self._compute_speed(encoder, context, report.speed),
                load_seconds=time.monotonic() - started,
                import_seconds=started - began,
            )
            output["speed"] = json.dumps(asdict(speed)).encode()
        return output

    def _compute_speed(self, encoder: Any, context: JobContext, measured: tuple[int, float]) -> Speed:
        """The measured tokens and seconds as a speed, from which later plans expect times."""
        device = provenance.collect_provenance(device=context.device)["device"]
        return Speed(
            model=self.artifact.key,
            parameters=estimate_non_embedding(encoder.parameters, encoder.dimension),
            device=(device["kind"], device["name"]),
            dtype=self.encoding.dtype,
            tokens=measured[0],
            seconds=measured[1],
        )


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

    def draw_context_documents(self, encoding: Encoding) -> ContextDocuments | None:
        """The context documents of the task; None where vectors depend on none."""
        return ContextDocuments.draw_task_documents(self.task, encoding, seed=self.seed, data=self.data)


@dataclass(frozen=True, kw_only=True)
class _CollectedTexts:
    """The texts of a task by side, each once, its context documents, and the seconds that this took."""

    texts: Mapping[Role, list[str]]
    documents: ContextDocuments | None
    seconds: float

    @property
    def characters(self) -> int:
        return sum(len(text) for texts in self.texts.values() for text in texts)


SENT_CHARACTERS = 100_000_000
"""The most characters that are sent from one process to another, rather than read from the data again."""


@dataclass(frozen=True, kw_only=True)
class Encode(_TaskJob):
    """Encode the texts of a task whose vectors are not cached; the output is counts as JSON.

    Attributes:
        encoding: The settings of the model.
        part: The place among how many jobs that share the texts.
        collected: The texts, where another process has collected them.
    """

    encoding: Encoding
    part: tuple[int, int] = (0, 1)
    collected: _CollectedTexts | None = None

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Collect the task's texts with the task's own code, then encode those without a cached vector."""
        collected = self.collected or self._collect_texts(context)
        encoded_texts, artifact = EncodedTexts(), resolve_weights(self.artifact, context.remote)
        try:
            for role, texts in collected.texts.items():
                encoded_texts.add_counts(
                    context.encode_missing(
                        artifact, self.encoding, self.task, role, texts, documents=collected.documents
                    )
                )
        except DeviceNeeded:
            sent = collected if collected.characters <= SENT_CHARACTERS else None
            raise DeviceNeeded(replace(self, collected=sent)) from None
        counts = {
            "texts": sum(map(len, collected.texts.values())),
            "load_seconds": collected.seconds,
            "encoded": asdict(encoded_texts),
            "peak_memory_bytes": provenance.measure_peak_memory(),
        }
        return {"counts": json.dumps(counts).encode()}

    def _collect_texts(self, context: JobContext) -> _CollectedTexts:
        started, (number, count) = time.monotonic(), self.part
        context.emit(Event(kind="stage", text=f"loading {self.task.name}"))
        collector = _Collector(self.encoding)
        with prepare_task_data(self.task, self.data, context.cache), contextlib.suppress(_VectorsNeeded):
            documents = self.draw_context_documents(self.encoding)
            self.run_task(collector)
        # Every n-th text, as data is often sorted.
        texts = {role: list(texts)[number::count] for role, texts in collector.texts.items()}
        return _CollectedTexts(texts=texts, documents=documents, seconds=time.monotonic() - started)


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

    def compute_outcome(self, model: TextModel, context: JobContext) -> Outcome:
        """Run the task's code on its data; its notes, and those on the data, become events."""
        with prepare_task_data(self.task, self.data, context.cache):
            outcome = self.run_task(model)
        report = count_scored_data(self.task, self.data, context.cache)
        notes = tuple(dict.fromkeys((*outcome.notes, *report.gaps, *report.notes)))
        for note in notes:
            context.emit(Event(kind="note", text=note))
        return replace(outcome, notes=notes, data={**report.counts, **outcome.data})

    def build_output(
        self,
        outcome: Outcome,
        artifact: Artifact,
        facts: Mapping[str, Any],
        provenance: Mapping[str, Any],
    ) -> Mapping[str, bytes]:
        """The record of an outcome and the files beside it.

        Args:
            outcome: The scores of the task.
            artifact: The model with the weights that it has now.
            facts: What was measured of the model when it was loaded; empty of a ranking.
            provenance: How the score was made.
        """
        record = Record(
            key=self.key,
            purpose=self.purpose,
            status="done",
            model=build_model_part(artifact, facts),
            lineage=read_model_lineage(artifact),
            task=build_task_part(self.task),
            identity=self.identity,
            main_score=outcome.main_score,
            scores=outcome.scores,
            provenance={**provenance, **({"data": outcome.data} if outcome.data else {})},
        )
        return build_record_output(record, outcome.examples, outcome.run)


@dataclass(frozen=True, kw_only=True)
class Score(ScoreJob):
    """Score a task with the task's own code; the output is the record and the files beside it."""

    encoding: Encoding

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Run the task with cached vectors and return the record of the outcome."""
        started = datetime.now(tz=UTC)
        context.emit(Event(kind="stage", text=f"scoring {self.task.name}"))
        artifact = resolve_weights(self.artifact, context.remote)
        with prepare_task_data(self.task, self.data, context.cache):
            behind = self.draw_context_documents(self.encoding)
        cached_model = _Known(context, artifact, self.encoding, self.task, behind)
        outcome = self.compute_outcome(cached_model, context)
        if behind is not None:
            outcome = replace(outcome, notes=(*outcome.notes, *behind.notes))
        ran = self._build_score_provenance(context, cached_model, outcome, started)
        return self.build_output(outcome, artifact, context.read_input("facts"), ran)

    def _build_score_provenance(
        self, context: JobContext, cached_model: _Known, outcome: Outcome, started: datetime
    ) -> dict[str, Any]:
        counts, encoded_texts = [*context.iter_inputs("counts")], EncodedTexts()
        for encoded in (*(EncodedTexts(**part["encoded"]) for part in counts), cached_model.encoded):
            encoded_texts.add_counts(encoded)
        seconds = (datetime.now(tz=UTC) - started).total_seconds() - cached_model.encoded.seconds
        load = sum(part["load_seconds"] for part in counts)
        spent = {"load": load, "encode": encoded_texts.seconds, "score": seconds}
        texts = max(sum(part["texts"] for part in counts), cached_model.count)
        ran = build_encoding_provenance(context, self.encoding, encoded_texts, outcome, started, texts=texts)
        peak = Counter(ran["peak_memory_bytes"])
        for part in counts:
            peak |= Counter(part["peak_memory_bytes"])
        return {
            **ran,
            "peak_memory_bytes": dict(peak),
            "prompts_applied": cached_model.applied,
            **({} if cached_model.documents is None else {"context": cached_model.documents.to_json()}),
            **cached_model.measure_contamination(),
            "seconds": {name: round(value, 3) for name, value in spent.items()},
        }


@dataclass(frozen=True, kw_only=True)
class ScoreObject(ScoreJob):
    """Score a task with an encoder that is an object of this process; the output is that of a Score."""

    encoder: ObjectEncoder

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Run the task with the object's own code and return the record of the outcome."""
        started = datetime.now(tz=UTC)
        context.emit(Event(kind="stage", text=f"scoring {self.task.name}"))
        outcome = self.compute_outcome(self.encoder, context)
        ran = {
            **provenance.collect_provenance(device=context.device, started=started),
            "notes": ["an object in Python: measured once, not repeatable from files", *outcome.notes],
            "seconds": {"score": round((datetime.now(tz=UTC) - started).total_seconds(), 3)},
            "peak_memory_bytes": provenance.measure_peak_memory(),
        }
        return self.build_output(outcome, self.artifact, outcome.facts, ran)


@contextlib.contextmanager
def hold_device(device: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold a device of this machine against other measurements; `tell` hears that it waits for one."""
    # In the system's own place: results and caches of two measurements may lie apart.
    # A GPU by its own name: its number is another one in a process that sees other GPUs.
    place = provenance.read_gpu_uuid(device) or device.replace(":", "-")
    name = f"encoder-harness-{os.getuid()}-{place}.lock"
    lock = FileLock(Path(tempfile.gettempdir(), name))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        tell(f"another measurement uses {device}: this one waits until it has ended")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True, kw_only=True)
class Measure(ScoreJob):
    """Measure a model; the output is the record. What is finished is kept in the cache until then."""

    encoding: Encoding

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Measure on a device that is held, and return the record of the outcome."""
        started, artifact = datetime.now(tz=UTC), resolve_weights(self.artifact, context.remote)
        source, work = self.task.source, context.cache / "measured" / self.key
        assert isinstance(source, MeasuredSource)
        context.emit(Event(kind="stage", text=f"measuring {self.task.name}"))
        # The source loads the model itself: there shall not be two in memory.
        context.forget()
        context.set_threads()
        machine = provenance.describe_machine(context.device)
        if source.per_machine and machine != self.identity["machine"]:
            raise ModelError(
                f"{context.device} is not the device that this was planned for: {machine['device']['name']}.",
                hint="Name one device: --devices cuda:0.",
            )
        load = functools.partial(load_model, artifact, self.encoding, device=context.device)
        model = MeasuredModel(
            artifact=artifact,
            dtype=self.encoding.dtype,
            encoding=self.encoding,
            device=context.device,
            load=load,
            batch_tokens=context.limits.batch_tokens,
            work=work,
            announce=lambda steps: context.emit(Event(kind="training", steps=steps)),
            count=lambda steps: context.emit(Event(kind="trained", steps=steps)),
            tell=lambda note: context.tell([note]),
        )
        with hold_device(context.device, model.tell):
            work.mkdir(parents=True, exist_ok=True)
            outcome = source.measure_model(self.task, model, seed=self.seed, data=self.data)
        context.tell(outcome.notes)
        ran = build_encoding_provenance(context, self.encoding, EncodedTexts(), outcome, started, texts=0)
        seconds = (datetime.now(tz=UTC) - started).total_seconds()
        # What the loading of an encoder left out is not told: the source has loaded the model as it needs it.
        ran["notes"] = [*outcome.notes]
        ran |= {"measured": dict(outcome.facts), "seconds": {"measure": round(seconds, 3)}}
        output = self.build_output(outcome, artifact, context.read_input("facts"), ran)
        shutil.rmtree(work, ignore_errors=True)
        return output


def build_encoding_provenance(
    context: JobContext,
    encoding: Encoding,
    encoded_texts: EncodedTexts,
    outcome: Outcome,
    started: datetime,
    *,
    texts: int,
) -> dict[str, Any]:
    """The provenance of a score whose texts a model encoded.

    Args:
        context: The context of the job, with the facts of the model.
        encoding: The settings of the model.
        encoded_texts: The texts that were encoded for it.
        outcome: The outcome of the task.
        started: The time when the job began.
        texts: The number of texts of the task.
    """
    facts = context.read_input("facts")
    return {
        **provenance.collect_provenance(
            device=context.device, threads=context.limits.threads, started=started
        ),
        # Beside a device it is the one that the model was loaded on.
        **({} if context.has_device else {"device": facts["device"]}),
        "dtype_as_run": facts.get("dtype_as_run"),
        "attention": facts.get("attention"),
        **({"batch_tokens": context.limits.batch_tokens} if context.limits.batch_tokens else {}),
        "gate": facts.get("gate"),
        "observed": facts.get("observed"),
        "notes": [*dict.fromkeys([*facts.get("notes", ()), *encoded_texts.notes, *outcome.notes])],
        "prompts_asked": {"named": dict(encoding.prompts), "default": encoding.default_prompt},
        "texts": texts,
        "texts_encoded": encoded_texts.texts,
        "characters_encoded": encoded_texts.characters,
        "tokens_encoded": encoded_texts.tokens,
        "tokens_per_second": round(encoded_texts.tokens / encoded_texts.seconds)
        if encoded_texts.tokens
        else None,
        "peak_memory_bytes": provenance.measure_peak_memory(),
    }


def count_contamination(artifact: Artifact, texts: Iterable[set[str]]) -> dict[str, int]:
    """The number of texts that a model was trained on; empty where that is not known."""
    trained = read_text_hashes(artifact.folder) if artifact.trained else None
    return {} if trained is None else {"texts_trained_on": count_trained([*set().union(*texts)], trained)}


def count_scored_data(task: Task, data: Path | None, cache: Path) -> DataReport:
    """What was counted in the data of a task; of data at a pinned revision only numbers.

    Args:
        task: The task.
        data: The local folder of its data; None to load from the hub.
        cache: The cache folder.
    """
    # The plan has refused what cannot be counted, except of pinned data, which the task's own code has read.
    with contextlib.suppress(DataError):
        report = count_task_data(task, data, cache)
        return report if task.data.content else replace(report, gaps=(), notes=())
    return DataReport()


def prepare_task_data(
    task: Task, data: Path | None, cache: Path
) -> contextlib.AbstractContextManager[object]:
    """A context in which the datasets library caches data from a local folder by the data's content.

    Args:
        task: The task.
        data: The local folder of its data; None to load from the hub.
        cache: The cache folder.
    """
    content = task.data.content or task.data.revision
    return open_prepared_data(content, cache) if data else explain_disk_full()


def build_model_part(artifact: Artifact, facts: Mapping[str, Any]) -> ModelPart:
    """The model's part of a record; of the path of a local folder it has the end, if that is its name."""
    name, place = artifact.recorded or artifact.name, resolve_home_path(artifact.source).resolve()
    local = artifact.revision is None and place.exists()
    return ModelPart(
        name=name,
        source="local" if local else artifact.source,
        folder=(shorten_folder(place) or None) if local and place.name == name else None,
        artifact=artifact.key,
        weights=artifact.weights,
        revision=artifact.revision,
        parameters=facts.get("parameters"),
        dimension=facts.get("dimension"),
    )


def read_model_lineage(artifact: Artifact) -> Lineage | None:
    """The lineage of a trained model; None of any other."""
    document = read_document(resolve_weights(artifact).folder) if artifact.trained else None
    return None if document is None else document.lineage


class _VectorsNeeded(BaseException):
    """The end of a collecting run; not an Exception, so that no task code swallows it."""


class _Placeholder:
    """A placeholder for vectors that do not exist yet; any use of it ends the collecting run."""

    def _require_vectors(self, *_: Any, **__: Any) -> NoReturn:
        raise _VectorsNeeded

    # Python looks special methods up on the class, so __getattr__ does not cover them.
    __array__ = __getitem__ = __len__ = __iter__ = __getattr__ = _require_vectors
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = _require_vectors


class _Collector:
    """A TextEncoder that records the texts of a task, by side and in order, each once."""

    def __init__(self, encoding: Encoding) -> None:
        self.similarity: Similarity = encoding.similarity
        self.texts: dict[Role, dict[str, None]] = {}

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        check_texts(texts, role)
        self.texts.setdefault(role, {}).update(dict.fromkeys(texts))

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """Record texts and return a placeholder for their vectors."""
        self.require(texts, role=role)
        return _Placeholder()  # type: ignore[return-value]


class _Known:
    """A TextEncoder that returns cached vectors and encodes missing ones on the way."""

    def __init__(
        self,
        context: JobContext,
        artifact: Artifact,
        encoding: Encoding,
        task: Task,
        documents: ContextDocuments | None = None,
    ) -> None:
        self.similarity: Similarity = encoding.similarity
        self.documents = documents
        self.encoded = EncodedTexts()
        self.applied: dict[str, str] = {}
        self._context = context
        self._asked: dict[Role, set[str]] = {}
        self._of = (artifact, encoding, task)

    @property
    def count(self) -> int:
        return sum(map(len, self._asked.values()))

    def measure_contamination(self) -> dict[str, int]:
        """The number of texts so far that the model was trained on; empty where that is not known."""
        return count_contamination(self._of[0], self._asked.values())

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        check_texts(texts, role)
        unique = list(dict.fromkeys(texts))
        self.encoded.add_counts(
            self._context.encode_missing(*self._of, role, unique, hold=True, documents=self.documents)
        )

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """The vectors of `texts`, shape (len(texts), dimension), float32."""
        check_texts(texts, role)
        _, encoding, task = self._of
        self.applied[role or "text"] = encoding.resolve_prompt(task, role)
        self._asked.setdefault(role, set()).update(texts)
        space = self._context.open_space(*self._of, role, documents=self.documents)
        try:
            return space.get(texts)
        except KeyError:
            # A text that the task asks for only after it has seen vectors (see the module's docstring).
            self.require(texts, role=role)
            return space.get(texts)


def check_texts(texts: Sequence[str], role: Role) -> None:
    """Refuse rows that are not text, naming the row."""
    side = role or "text"
    if not len(texts):
        raise DataError(f"The data set is empty: it has no {side} at all.", hint=_LOOK)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            what = "nothing" if text is None else f"a {type(text).__name__}"
            raise DataError(
                f"A row of the data set cannot be read: its {side} is {what} instead of text "
                f"(number {row + 1} of {len(texts)}).",
                hint=_LOOK,
            )


_LOOK = "Look into the data, or leave the task out with --tasks; docs/data-root.md says what data must be."
