"""The context of a job: device, loaded model, cached vectors, context documents, events for the driver."""

from __future__ import annotations

import functools
import gc
import hashlib
import heapq
import json
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from harness.core.encoding import ContextDraw, Encoding, TextTask
from harness.core.errors import DataError
from harness.core.keys import digest
from harness.core.types import Artifact, CorpusSource, Role, Task
from harness.search.plaid import KEEP_GIGABYTES
from harness.storage.remote_and_leases import Remote

if TYPE_CHECKING:
    from harness.encoder.engine import Encoder
    from harness.encoder.token_encoder import TokenEncoder
    from harness.encoder.two_stage import ContextualEncoder
    from harness.storage.vectors import EmbeddingCache, TokenVectors, Vectors

Made = TypeVar("Made")

EventKind = Literal[
    "placed",
    "stage",
    "encoding",
    "encoded",
    "ranking",
    "ranked",
    "training",
    "trained",
    "failed",
    "finished",
    "note",
    "vectors",
]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A message from a running job to the driver.

    `placed` says on which machine (`text`) and devices a job begins, `stage` names the step that begins,
    `encoding`, `ranking` and `training` announce texts (with all their tokens, about) and steps, `encoded`,
    `ranked` and `trained` count finished ones (`text` has the loss of a training), `failed` says why a run
    has no record, `finished` what a training has made, `note` is for the user and the record, and `vectors`
    carries a shard to be written. `log` has lines of a training's log, where the driver follows them.
    """

    kind: EventKind
    text: str = ""
    log: Sequence[Mapping[str, Any]] = ()
    texts: int = 0
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    devices: tuple[str, ...] = ()
    space: Mapping[str, object] = field(default_factory=dict)
    content: bytes = b""

    def write_shard(self, cache: Path, remote: Remote | None) -> None:
        """Write the shard of `vectors` to a cache and a remote.

        Raises:
            StoreError: It cannot be written or sent.
        """
        from harness.storage.vectors import EmbeddingCache

        EmbeddingCache.write_shard(cache, self.space, self.content, remote)


@dataclass(kw_only=True)
class EncodedTexts:
    """The cost of encoding: texts, their characters and tokens, seconds, and notes for the record."""

    texts: int = 0
    characters: int = 0
    tokens: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def add_counts(self, more: EncodedTexts) -> None:
        """Add the counts of `more`."""
        self.texts += more.texts
        self.characters += more.characters
        self.tokens += more.tokens
        self.seconds += more.seconds
        self.notes += more.notes


FEW_TEXTS = 100_000
"""The texts up to which vectors stay in memory until they are written: 0.3 GB at 768 dimensions."""


class DeviceNeeded(BaseException):
    """A job needs the model, in a process without a device.

    Not an Exception, so that no task code swallows it. `work` goes on where a device is; None for the job's
    own work from its beginning.
    """

    def __init__(self, work: Any = None) -> None:
        super().__init__()
        self.work = work


def load_model(
    artifact: Artifact, encoding: Encoding, *, device: str, batch_tokens: int | None = None
) -> Encoder | TokenEncoder:
    """Load a model; arguments and errors as in `harness.encoder.loading.load_any`."""
    from harness.encoder.loading import load_any

    return load_any(artifact, encoding, device=device, batch_tokens=batch_tokens)


@dataclass(frozen=True, kw_only=True)
class WorkerLimits:
    """What a worker may use.

    Attributes:
        threads: CPU threads, None for torch's own choice.
        batch_tokens: Padded tokens that are encoded at once, None for the device's default.
        keep_vectors: Gigabytes of token vectors up to which those of a corpus with an index are kept.
        remote: The URL of the storage that has the vectors and models of other machines, None without any.
        logs_steps: Whether the driver is told every line of the logs of trainings.
    """

    threads: int | None = None
    batch_tokens: int | None = None
    keep_vectors: float = KEEP_GIGABYTES
    remote: str | None = None
    logs_steps: bool = False


class JobContext:
    """The resources of one process on one device that its jobs use in turn: the model, known vectors.

    Attributes:
        device: The device in torch's words.
        has_device: Whether models are loaded here, and not by the worker of a device beside this process.
        cache: The cache folder.
        limits: The threads and tokens that its jobs may use.
        inputs: The outputs of the jobs that the present job needs, by key.
        devices: The devices that the present job may use.
        halvings: How often its batches were halved for lack of memory.
        counted: The moment up to which the seconds of texts and steps are counted.
    """

    def __init__(
        self,
        *,
        device: str,
        cache: Path,
        emit: Callable[[Event], None],
        limits: WorkerLimits,
        has_device: bool = True,
    ) -> None:
        self.device = device
        self.has_device = has_device
        self.cache = cache
        self.limits = limits
        self._emit = emit
        self.counted = time.monotonic()
        self.inputs: Mapping[str, Mapping[str, bytes]] = {}
        self.devices: tuple[str, ...] = (device,)
        self.halvings = 0
        self._loaded: tuple[tuple[str, Encoding], Encoder | TokenEncoder] | None = None
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._spaces: dict[tuple[str, ...], EmbeddingCache] = {}
        self._exchanged: set[Path] = set()

    def emit(self, event: Event) -> None:
        """Tell the driver, the only one that writes to disk; counts get the seconds of what is counted."""
        if event.kind in ("training", "encoded", "trained"):
            before, self.counted = self.counted, time.monotonic()
            if event.kind in ("encoded", "trained"):
                event = replace(event, seconds=self.counted - before)
        self._emit(event)

    @functools.cached_property
    def remote(self) -> Remote | None:
        """The storage that other machines share with this one, None without any."""
        return Remote(self.limits.remote) if self.limits.remote else None

    def start_job(
        self, inputs: Mapping[str, Mapping[str, bytes]], devices: tuple[str, ...], *, halvings: int = 0
    ) -> None:
        """Begin a job.

        Args:
            inputs: The outputs of the jobs that it needs, by key.
            devices: The devices that it may use.
            halvings: How often its batches were halved for lack of memory.
        """
        if halvings != self.halvings:
            # The loaded model has batches of another size.
            self.forget()
        self.inputs, self.devices, self.halvings = inputs, devices, halvings

    def reduce_batch_size(self, count: int) -> int:
        """A number of rows or tokens that are computed at once, halved as often as memory did not suffice.

        >>> context = JobContext(device="cpu", cache=Path(), emit=print, limits=WorkerLimits())
        >>> context.start_job({}, ("cpu",), halvings=2)
        >>> context.reduce_batch_size(16), context.reduce_batch_size(3)
        (4, 1)
        """
        return max(1, count >> self.halvings)

    def get_encoder(self, artifact: Artifact, encoding: Encoding) -> Encoder | TokenEncoder:
        """The loaded model; a single model stays loaded at a time.

        Raises:
            DeviceNeeded: Models are not loaded in this process.
        """
        if not self.has_device:
            raise DeviceNeeded
        model_key = (artifact.key, encoding.loaded)
        if self._loaded is None or self._loaded[0] != model_key:
            # Dropped before the next load, so that two models are never in memory together.
            self._loaded = None
            self._loaded = (model_key, self.load_encoder(artifact, encoding))
            self.tell(self._loaded[1].notes)
        return self._loaded[1]

    def read_input(self, name: str) -> dict[str, Any]:
        """The output of an earlier job under a name, as JSON; empty if there is none."""
        return next(self.iter_inputs(name), {})

    def iter_inputs(self, name: str) -> Iterator[dict[str, Any]]:
        """The outputs of all earlier jobs under a name, as JSON."""
        yield from (dict(json.loads(output[name])) for output in self.inputs.values() if name in output)

    def get_cached_value(self, name: str, wanted: Hashable, make: Callable[[], Made]) -> Made:
        """The last value made under a name, or a new one.

        Args:
            name: What the value is, such as tokenized rows.
            wanted: What the value depends on; a change makes a new value.
            make: Makes the value.
        """
        if name not in self._kept or self._kept[name][0] != wanted:
            self._kept.pop(name, None)
            self._kept[name] = (wanted, make())
        value: Made = self._kept[name][1]
        return value

    def forget(self) -> None:
        """Drop the loaded model and other large values, and give their memory back."""
        self._loaded = None
        self._kept.clear()
        gc.collect()
        # Not imported for this: without torch in the process, nothing is to be given back.
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def load_encoder(self, artifact: Artifact, encoding: Encoding) -> Encoder | TokenEncoder:
        """A new load of the model."""
        self.set_threads()
        batch_tokens = self.limits.batch_tokens
        if self.halvings:
            batch_tokens = self.reduce_batch_size(batch_tokens or (2**11 if self.device == "cpu" else 2**16))
        return load_model(artifact, encoding, device=self.device, batch_tokens=batch_tokens)

    def set_threads(self) -> None:
        """Set torch's number of threads to the requested one."""
        if self.limits.threads:
            import torch

            torch.set_num_threads(self.limits.threads)

    def open_space(
        self,
        artifact: Artifact,
        encoding: Encoding,
        task: TextTask,
        role: Role,
        *,
        documents: ContextDocuments | None = None,
    ) -> EmbeddingCache:
        """The cached vectors of the texts of a task on one side.

        Args:
            artifact: The model.
            encoding: Its settings.
            task: The task, which may have a prompt of its own.
            role: The side of the texts.
            documents: The context of a two-stage model; None for the null context.
        """
        prompt = encoding.resolve_prompt(task, role)
        sided = encoding.late_interaction is not None or _is_asymmetric(artifact.folder)
        tower: Role = role if sided else ""
        behind = NULL if documents is None else documents.digest
        return self._open_identity_space(artifact, encoding, prompt=prompt, role=tower, context=behind)

    def _open_identity_space(
        self,
        artifact: Artifact,
        encoding: Encoding,
        *,
        prompt: str,
        context: str,
        role: Role = "",
        **changed: object,
    ) -> EmbeddingCache:
        """The cached vectors of an identity, with some of its values changed."""
        from harness.storage.vectors import EmbeddingCache

        base_identity = EmbeddingCache.build_space_identity(
            artifact, encoding, prompt=prompt, role=role, context=context
        )
        identity = {**base_identity, **changed}
        space_key = tuple(f"{name} {identity[name]}" for name in sorted(identity))
        if space_key not in self._spaces:
            mine = {k: s for k, s in self._spaces.items() if s.identity["artifact"] == artifact.key}
            # Open files of another model would keep its disk after it is removed.
            self._spaces = mine
            self._spaces[space_key] = EmbeddingCache(self.cache, identity)
        return self._spaces[space_key]

    def _find_missing_texts(self, space: EmbeddingCache, texts: Sequence[str]) -> list[str]:
        """The texts without vectors, neither here nor on other machines, whose vectors are fetched.

        The remote is asked where texts are missing, and once for each space, to send what it lacks.
        """
        space.refresh()
        missing = space.find_missing_texts(texts)
        if self.remote is None or (not missing and space.folder in self._exchanged):
            return missing
        self._exchanged.add(space.folder)
        space.sync_shards(self.remote)
        return space.find_missing_texts(texts)

    def encode_missing(
        self,
        artifact: Artifact,
        encoding: Encoding,
        task: TextTask,
        role: Role,
        texts: list[str],
        *,
        hold: bool = False,
        documents: ContextDocuments | None = None,
    ) -> EncodedTexts:
        """Encode the texts that have no cached vector, and emit their vectors in shards.

        Args:
            artifact: The model.
            encoding: Its settings.
            task: The task of the texts.
            role: Their side.
            texts: The texts, each once.
            hold: Whether this process can use the vectors at once, before the driver has written them; it can
                in any case where they are few.
            documents: The context of a two-stage model; None for the null context.

        Returns:
            What it has cost.
        """
        space = self.open_space(artifact, encoding, task, role, documents=documents)
        missing = self._find_missing_texts(space, texts)
        text_encoding = TextEncoding(self, artifact, encoding, task, role, documents)
        text_encoding.start_encoding(len(missing), missing)
        # The next side of a task may have some of these texts.
        text_encoding.write_shards(missing, space, self.emit, hold=hold or len(missing) <= FEW_TEXTS)
        text_encoding.finish_encoding()
        space.refresh()
        return text_encoding.cost

    def use_context(
        self,
        encoder: ContextualEncoder,
        artifact: Artifact,
        encoding: Encoding,
        documents: ContextDocuments | None,
    ) -> None:
        """Give a two-stage model its context, whose vectors are cached.

        Args:
            encoder: The loaded model.
            artifact: The model.
            encoding: Its settings.
            documents: The context documents; None for the null context.
        """
        if documents is None or not documents.texts:
            encoder.set_context(None)
        elif encoder.context != documents.digest:
            space = self._open_identity_space(
                artifact,
                encoding,
                prompt=documents.prompt,
                context=documents.digest,
                output="context",
                vectors="float32",
            )
            if self._find_missing_texts(space, documents.texts):
                unique = list(dict.fromkeys(documents.texts))
                self.emit(Event(kind="stage", text=f"encoding {len(unique):,} context documents"))
                with _Shards(space, self.emit, hold=True) as shards:
                    encoder.compute_context_vectors(unique, prompt=documents.prompt, keeper=shards)
            encoder.set_context(space.get(documents.texts), documents.digest)

    def tell(self, notes: Sequence[str]) -> None:
        """Emit notes for the user."""
        for note in notes:
            self.emit(Event(kind="note", text=note))


class TextEncoding:
    """The encoding of texts of one side, in one portion or several.

    Attributes:
        cost: What it has cost so far; the notes are added at the end.
    """

    def __init__(
        self,
        context: JobContext,
        artifact: Artifact,
        encoding: Encoding,
        task: TextTask,
        role: Role,
        documents: ContextDocuments | None = None,
    ) -> None:
        self.cost = EncodedTexts()
        self._documents = documents
        self._context = context
        self._model = (artifact, encoding)
        self._how: dict[str, Any] = {"prompt": encoding.resolve_prompt(task, role), "role": role}
        self._of_tokens = encoding.late_interaction is not None
        # Any: an Encoder or a TokenEncoder, and the shards take what either gives.
        self._encoder: Any = None
        self._noted = 0

    def start_encoding(self, count: int, texts: Sequence[str] = ()) -> None:
        """Announce a number of texts, and load the model unless the number is 0.

        Where the texts are given, an estimate of their tokens is announced as well.
        """
        if not count:
            return
        if self._encoder is None:
            self._encoder = self._context.get_encoder(*self._model)
            self._noted = len(self._encoder.notes)
        if self._model[1].context is not None:
            self._context.use_context(self._encoder, *self._model, self._documents)
        tokens = self._count_tokens(texts) if texts else 0
        self._context.emit(Event(kind="encoding", text=self._how["role"], texts=count, tokens=tokens))

    def _count_tokens(self, texts: Sequence[str]) -> int:
        """An estimate of the tokens of texts: their characters times the tokens a character of a sample.

        Long texts are encoded first, so that only tokens say how far an encoding is.
        """
        # Every n-th text, since data is often sorted.
        some = texts[:: -(-len(texts) // SAMPLE)]
        each: float = self._encoder.count_tokens(some, **self._how) / max(1, sum(map(len, some)))
        return max(1, round(each * sum(map(len, texts))))

    def write_shards(
        self,
        texts: Sequence[str],
        space: EmbeddingCache,
        emit: Callable[[Event], None],
        *,
        hold: bool = False,
    ) -> None:
        """Encode texts into shards of a space.

        Args:
            texts: The texts.
            space: The cached vectors to which they belong.
            emit: Called with each shard.
            hold: Whether this process can use the vectors at once, before they are written.
        """
        if not texts:
            return
        # Characters on a GPU; a vector for each token takes far more memory than one for each text.
        many = 2_000_000 if self._of_tokens else 32_000_000
        with _Shards(space, emit, hold=hold) as shards:
            for part in split_portions(
                texts, characters=CPU_CHARACTERS if self._context.device == "cpu" else many
            ):
                self.encode_texts(part, shards)

    def encode_texts(self, texts: Sequence[str], keeper: _Shards | None = None) -> Vectors | TokenVectors:
        """The vectors of announced texts; a keeper gets them as they are made."""
        # What came before, such as a part of an index, was no encoding.
        started = self._context.counted = time.monotonic()
        tokens = 0

        def report_progress(done: int, count: int) -> None:
            nonlocal tokens
            tokens += count
            self._context.emit(Event(kind="encoded", texts=done, tokens=count))

        vectors: Vectors | TokenVectors = self._encoder.encode(
            texts, **self._how, progress=report_progress, keeper=keeper
        )
        characters, seconds = sum(map(len, texts)), time.monotonic() - started
        self.cost.add_counts(
            EncodedTexts(texts=len(texts), characters=characters, tokens=tokens, seconds=seconds)
        )
        return vectors

    def finish_encoding(self) -> None:
        """Give the notes on the model, to the user and to `cost`."""
        if self._encoder is None:
            return
        self._context.tell(self._encoder.notes[self._noted :])
        self.cost.notes += self._encoder.notes


SAMPLE = 256
"""The texts of an encoding whose tokens are counted before it begins."""

CPU_CHARACTERS = 500_000
"""The characters of texts that are tokenized at a time on a CPU, which bounds memory."""

KEPT_SECONDS = 15.0
"""The time after which encoded vectors are written: the most work that a killed process loses."""

KEPT_BYTES = 2**28
"""The size at which they are written before that time, which bounds memory."""


class _Shards:
    """Encoded vectors on their way to the driver: a shard every KEPT_SECONDS, and one in the end."""

    def __init__(self, space: EmbeddingCache, emit: Callable[[Event], None], *, hold: bool) -> None:
        self._space = space
        self._emit = emit
        self._hold = hold
        self._texts: list[str] = []
        self._vectors: list[Vectors | TokenVectors] = []
        self._since = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the last shard is KEPT_SECONDS old."""
        return time.monotonic() - self._since >= KEPT_SECONDS

    def add_vectors(self, texts: Sequence[str], vectors: Vectors | TokenVectors) -> None:
        """Take the vectors of some texts, or of their tokens; writes a shard when one is due."""
        # Before the texts are noted: rounding may fail, and what is left is written then.
        rounded = self._space.round_vectors(vectors)
        self._texts += texts
        self._vectors.append(rounded)
        if self.due or sum(part.nbytes for part in self._vectors) >= KEPT_BYTES:
            self._write_shard()

    def __enter__(self) -> _Shards:
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is left, also when encoding failed."""
        self._write_shard()

    def _write_shard(self) -> None:
        self._since = time.monotonic()
        if not self._texts:
            return
        keys = self._space.hash_texts(self._texts)
        vectors = self._space.join(self._vectors)
        # Emptied before the shard is sent: if that fails, `__exit__` must not send it again.
        self._texts, self._vectors = [], []
        content = self._space.serialize_shard(keys, vectors)
        self._emit(Event(kind="vectors", space=self._space.identity, content=content))
        if self._hold:
            self._space.hold(keys, vectors, content)
            # Vectors that the driver has written meanwhile leave memory.
            self._space.refresh()


def _is_asymmetric(folder: Path) -> bool:
    """Whether a model has separate towers for queries and documents."""
    modules = folder / "modules.json"
    return modules.exists() and any(word in modules.read_text() for word in ("Router", "Asym"))


def split_portions(texts: Sequence[str], *, characters: int) -> list[list[str]]:
    """Consecutive portions of about `characters` characters, which bound the memory of tokenization."""
    portions: list[list[str]] = [[]]
    filled = 0
    for text in texts:
        if filled > characters:
            portions.append([])
            filled = 0
        portions[-1].append(text)
        filled += len(text)
    return portions


NULL = "null"
"""The digest of the null context."""


@dataclass(frozen=True, kw_only=True)
class ContextDocuments:
    """The context documents of a task, on which the vectors of a two-stage model depend.

    They are drawn from the task's own texts by hashes of seed and text, so that a draw depends on nothing
    else, such as the order of the data or the version of a library.

    Attributes:
        draw: How they were drawn.
        texts: The documents, in the order of their vectors; none for the null context.
        prompt: The text before each.
        corpus: The number of different texts that there were to draw from.
        without_corpus: Whether the task has no corpus, so that the null context stands in.
    """

    draw: ContextDraw
    texts: tuple[str, ...] = ()
    prompt: str = ""
    corpus: int = 0
    without_corpus: bool = False

    @property
    def digest(self) -> str:
        """The hash of the documents with their prompt, in their order; "null" for the null context."""
        return digest({"prompt": self.prompt, "texts": self.texts}) if self.texts else NULL

    @property
    def notes(self) -> tuple[str, ...]:
        """What the record says of a context that is not as it was asked for."""
        if self.without_corpus:
            return ("the task names no texts to draw a context from: the null context stands in",)
        if self.texts and self.corpus < self.draw.size:
            return (
                f"the context repeats the {self.corpus:,} different texts of the task, because it has "
                f"{self.draw.size:,} documents",
            )
        return ()

    def to_json(self) -> dict[str, Any]:
        """The context as a record has it."""
        return {
            "hash": self.digest,
            "documents": len(self.texts),
            "different": len({*self.texts}),
            "corpus": self.corpus,
            "prompt": self.prompt,
        }

    @staticmethod
    def draw_task_documents(
        task: Task, encoding: Encoding, *, seed: int, data: Path | None
    ) -> ContextDocuments | None:
        """The context documents of a task; None where the vectors depend on none.

        Args:
            task: The task, whose documents are drawn from, or all its texts where it has no documents.
            encoding: The encoding, which says how to draw, and the prompt.
            seed: The seed of the task's own samples.
            data: The local folder of its data; None to load from the hub.

        Raises:
            DataError: The task has a corpus without a text.
        """
        draw = encoding.context
        if draw is None or draw.documents == NULL:
            return None if draw is None else ContextDocuments(draw=draw)
        source = task.source
        corpus_texts = source.corpus(task, seed=seed, data=data) if isinstance(source, CorpusSource) else None
        if corpus_texts is None:
            return ContextDocuments(draw=draw, without_corpus=True)
        role: Role = "document" if task.retrieves else ""
        return _draw_documents(corpus_texts, draw, encoding.resolve_prompt(task, role), task.name)


def _draw_documents(
    corpus_texts: Sequence[Any], draw: ContextDraw, prompt: str, name: str
) -> ContextDocuments:
    texts = [text for text in corpus_texts if isinstance(text, str) and text.strip()]
    different = list(dict.fromkeys(texts))
    if not different:
        raise DataError(
            f"{name} has no text to draw context documents from.",
            hint="Check its data, or evaluate without a context: --context null.",
        )
    if draw.documents == "task-with-replacement":
        chosen = [texts[_hash_seed_text(draw.seed, str(n)) % len(texts)] for n in range(draw.size)]
    else:
        once = heapq.nsmallest(draw.size, different, key=lambda text: _hash_seed_text(draw.seed, text))
        chosen = [once[n % len(once)] for n in range(draw.size)]
    return ContextDocuments(draw=draw, texts=tuple(chosen), prompt=prompt, corpus=len(different))


def _hash_seed_text(seed: int, text: str) -> int:
    """A number of 128 bits that a seed and a text have."""
    # A text may hold half of a surrogate pair, which plain UTF-8 refuses.
    content = f"{seed}\n{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "big")
