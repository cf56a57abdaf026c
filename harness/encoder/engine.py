"""The encoder engine: texts in, vectors out, as fast as the device allows and in the order given.

Texts are tokenized in windows, sorted by length, and cut into batches by a budget of padded tokens, which is
halved when memory runs out. Layers after the backbone run in float32. A Router has a tower for each side.
"""

from __future__ import annotations

import gc
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from itertools import chain
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Router, Transformer
from torch import Tensor, nn

from harness.core.encoding import Encoding
from harness.core.errors import ModelError
from harness.core.types import ROLES, Role
from harness.encoder.library_load import require_padding

WIDENED = ("token_embeddings", "sentence_embedding")
"""The outputs of a backbone that are converted to float32 for all further layers."""


def _list_routers(model: SentenceTransformer) -> list[Router]:
    return [module for module in model.modules() if isinstance(module, Router)]


def route(model: SentenceTransformer, role: Role) -> dict[str, str]:
    """The arguments of the library's `encode` that send a text to the tower of its side, if there is one."""
    return {"task": role} if any(role in router.sub_modules for router in _list_routers(model)) else {}


def list_roles(model: SentenceTransformer) -> list[Role]:
    """The sides whose texts take different ways through the model; [""] if there is a single way."""
    routers = _list_routers(model)
    if not routers:
        return [""]
    ways = {side: route(model, side).get("task", routers[0].default_route) for side in ROLES}
    # Reversed, so that of two sides that share a tower the first one stays in the dict.
    first = {way: side for side, way in reversed(ways.items()) if way is not None}
    return [side for side in ROLES if side in first.values()]


def collect_input_modules(model: SentenceTransformer) -> list[nn.Module]:
    """The first module, or the first module of each tower of a Router."""
    return list(_iter_first_modules(model[0]))


def collect_backbones(model: SentenceTransformer) -> list[nn.Module]:
    """The transformers models within the modules."""
    backbones = [getattr(module, "auto_model", None) for module in model.modules()]
    return [backbone for backbone in backbones if backbone is not None]


def _detect_backbone_dtype(model: SentenceTransformer) -> str:
    """The dtype in which the backbone computes, such as "float32"."""
    computing = [*collect_backbones(model), model]
    dtypes = (str(parameter.dtype) for module in computing for parameter in module.parameters())
    return next(dtypes, "torch.float32").split(".")[-1]


def _describe_attention(model: SentenceTransformer) -> str:
    """The names of the attention backends, "" where the model has none."""
    return "+".join(dict.fromkeys(filter(None, map(_find_attention_name, collect_backbones(model)))))


def _collect_backbone_notes(model: SentenceTransformer) -> list[str]:
    """The notes of the backbones on how they run, each once."""
    return list(
        dict.fromkeys(
            note for backbone in collect_backbones(model) for note in _read_backbone_notes(backbone)
        )
    )


def _read_backbone_notes(backbone: nn.Module) -> list[str]:
    notes = getattr(backbone, "notes", None)
    if isinstance(notes, list):
        return notes
    return [f"{type(backbone).__name__} ran through transformers' own class, with its padding"]


def _find_attention_name(backbone: nn.Module) -> str:
    """The attention backend of our network as it ran, or of a transformers model as it is set."""
    set_ = getattr(getattr(backbone, "config", None), "_attn_implementation", None)
    return str(getattr(backbone, "attention_as_run", set_) or "")


def _widen_outputs(features: dict[str, Any]) -> dict[str, Any]:
    """The same features, with those of WIDENED in float32."""
    for name in WIDENED:
        if name in features and features[name] is not None:
            features[name] = features[name].float()
    return features


def widen_towers(model: SentenceTransformer) -> None:
    """Make every module within a Router return features in float32."""
    for router in _list_routers(model):
        # A Router passes features from module to module itself, where `embed_features` cannot widen them.
        for module in chain.from_iterable(_list_towers(router)):
            module.register_forward_hook(lambda _module, _args, features: _widen_outputs(features))


def _iter_first_modules(module: nn.Module) -> Iterator[nn.Module]:
    if not isinstance(module, Router):
        yield module
        return
    for tower in _list_towers(module):
        yield from _iter_first_modules(tower[0])


def _list_towers(router: Router) -> list[nn.Sequential]:
    return cast("list[nn.Sequential]", list(router.sub_modules.values()))


Span = tuple[int, int]
"""The indices (start, stop) of texts in the order of falling length."""


class _Queue:
    """A thread-safe queue of spans of at most `budget` padded tokens; a longer text has its own span.

    Spans that run at the same time have at most `at_once` padded tokens together, or there is only one.
    """

    def __init__(self, lengths: NDArray[np.int64], budget: int, at_once: int | None = None) -> None:
        self.budget = budget
        self._at_once = at_once
        self._running = 0
        self._lengths = np.maximum(lengths, 1)
        self._open: list[Span] = [(0, len(lengths))] if len(lengths) else []
        self._changed = threading.Condition()

    def take(self) -> Span | None:
        """The next span, as soon as there is room for it; None if there is none."""
        with self._changed:
            while self._open:
                start, stop = self._open[-1]
                # Lengths fall, so every text of a span is padded to the length of its first.
                cut = min(stop, start + max(1, self.budget // int(self._lengths[start])))
                running = self._running + self._count_span_tokens((start, cut))
                # A span above `at_once` runs alone: it would wait forever for room beside others.
                if not self._running or self._at_once is None or running <= self._at_once:
                    self._open[-1:] = [(cut, stop)] if cut < stop else []
                    self._running = running
                    return start, cut
                self._changed.wait()
            return None

    def release_span(self, span: Span) -> None:
        """Give the room of a span that has run, or did not fit, to others."""
        with self._changed:
            self._running -= self._count_span_tokens(span)
            self._changed.notify_all()

    def retry_span(self, span: Span) -> int:
        """Return a span that did not fit, and set the budget to half of its size."""
        with self._changed:
            # Several threads may fail at once, each with another span: the smallest budget counts.
            self.budget = min(self.budget, self._count_span_tokens(span) // 2)
            self._open.append(span)
            self._changed.notify_all()
            return self.budget

    def clear(self) -> None:
        """Drop the spans that have not begun."""
        with self._changed:
            self._open.clear()
            self._changed.notify_all()

    def _count_span_tokens(self, span: Span) -> int:
        return (span[1] - span[0]) * int(self._lengths[span[0]])


def _run_queue(
    queue: _Queue, run: Callable[[Span], None], *, threads: int, halved: Callable[[int], None]
) -> None:
    """Run every span of a queue, on that many threads with one core each, or in this thread if 0.

    One batch per core is faster than all cores on one batch, and does not stall where other processes use
    some of the cores. A span that does not fit into memory is halved; `halved` receives the new budget.
    """
    if not threads:
        _run_spans(queue, run, halved)
        return

    def run_worker() -> None:
        # Else each of the threads would start torch's own on every core.
        torch.set_num_threads(1)
        try:
            _run_spans(queue, run, halved)
        except BaseException:
            # The other threads end after their present span; `worker.result()` below raises the error.
            queue.clear()
            raise

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    workers: list[Future[None]] = []
    try:
        workers += (pool.submit(run_worker) for _ in range(threads))
        wait(workers)
    finally:
        queue.clear()
        # After Ctrl-C what has begun is kept, and no thread is left where the process ends. The pool must not
        # wait itself: a `join` that Ctrl-C ends takes a living thread for a dead one.
        wait(workers)
        pool.shutdown(wait=False)
        torch.set_num_threads(before)
    for worker in workers:
        worker.result()


def _run_spans(queue: _Queue, run: Callable[[Span], None], halved: Callable[[int], None]) -> None:
    with torch.inference_mode():
        while (span := queue.take()) is not None:
            try:
                fits = _try_span(run, span)
            finally:
                queue.release_span(span)
            if fits:
                continue
            if span[1] - span[0] == 1:
                raise ModelError(
                    "A single text does not fit into memory.",
                    hint="Give a smaller maximum length, or bfloat16 as the dtype.",
                )
            halved(queue.retry_span(span))


def _try_span(run: Callable[[Span], None], span: Span) -> bool:
    # The error, with the tensors in its traceback, is freed when this function returns.
    try:
        run(span)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        return False
    return True


CHARACTERS_A_TOKEN = 4
"""The assumed characters of a token, for models that tokenize in their own way."""


class Inputs(Protocol):
    """The tokenized texts of a window; `order` lists them longest first, `lengths` are in that order."""

    order: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def build_features(self, span: Span) -> dict[str, Any]:
        """The first module's input for a span of `order`, on the CPU."""
        ...


def _prepare(model: SentenceTransformer, texts: Sequence[str], prompt: str, role: Role) -> Inputs:
    """The inputs for texts with a prompt before each, as in the model's own `encode`."""
    prompted = [prompt + text for text in texts]
    way = route(model, role)
    # As `encode` of sentence-transformers does: a pooling may leave the tokens of the prompt out.
    length = model._get_prompt_length(prompt, **way) if prompt else None
    extra: dict[str, Any] = {**way, **({} if length is None else {"prompt_length": length})}
    if _is_plain(model):
        return TokenizedTexts(model[0], prompted, extra)
    return _Untokenized(model, prompted, extra, way)


def _is_plain(model: SentenceTransformer) -> bool:
    """Whether the first module is the library's Transformer with a fast tokenizer."""
    first = model[0]
    return type(first) is Transformer and bool(getattr(first.tokenizer, "is_fast", False))


class TokenizedTexts:
    """Inputs of a plain transformer: flat arrays of token ids, one text after the other.

    Args:
        module: The library's Transformer.
        texts: The texts, each with its prompt.
        extra: Further features of every batch.
        before: Vectors that are computed before each text and take memory as tokens do.
    """

    def __init__(
        self, module: Any, texts: list[str], extra: dict[str, Any] | None = None, *, before: int = 0
    ) -> None:
        self._tokenizer = module.tokenizer
        self._extra = extra or {}
        require_padding(self._tokenizer)
        self._flat, lengths, _ = tokenize_texts(module, texts, module.max_seq_length)
        self.order = np.argsort(-lengths, kind="stable")
        self._own = lengths[self.order]
        self.lengths = self._own + before
        self._starts = (np.cumsum(lengths) - lengths)[self.order]

    def build_features(self, span: Span) -> dict[str, Any]:
        """Padded ids, the mask, and token types where the tokenizer has them: (texts, tokens)."""
        lengths = self._own[slice(*span)]
        columns = np.arange(max(int(lengths[0]), 1))
        left = self._tokenizer.padding_side == "left"
        offsets = columns - (len(columns) - lengths)[:, None] if left else columns[None, :]
        mask = (offsets >= 0) & (offsets < lengths[:, None])
        # Padding looks up place 0, which always exists; its token is replaced below.
        token_places = np.where(mask, self._starts[slice(*span)][:, None] + offsets, 0)
        fill = {
            "input_ids": self._tokenizer.pad_token_id,
            "token_type_ids": self._tokenizer.pad_token_type_id,
        }
        padded: dict[str, Tensor] = {
            name: torch.from_numpy(np.where(mask, flat[token_places], fill[name]).astype(np.int64))
            for name, flat in self._flat.items()
        }
        return {**padded, "attention_mask": torch.from_numpy(mask.astype(np.int64)), **self._extra}


def tokenize_texts(
    module: Any, texts: Sequence[str], max_length: int | None
) -> tuple[dict[str, NDArray[np.int32]], NDArray[np.int64], Sequence[Any]]:
    """The tokens of texts by the library's Transformer with a fast tokenizer.

    Args:
        module: The library's Transformer.
        texts: The texts, with their prompts.
        max_length: The most tokens of a text, special ones included; None to cut nothing.

    Returns:
        `input_ids`, and `token_type_ids` where the tokenizer has them, of one text after the other; the
        number of tokens of each text; and the tokenizer's encodings, which know what was cut off.
    """
    # As Transformer.tokenize does.
    stripped = [text.strip() for text in texts]
    tokens = module.tokenizer(
        [text.lower() for text in stripped] if module.do_lower_case else stripped,
        # Batches are cut after sorting, and each pads only to its own longest text.
        padding=False,
        truncation="longest_first",
        max_length=max_length,
        return_attention_mask=False,
    )
    lengths = np.fromiter(map(len, tokens["input_ids"]), dtype=np.int64, count=len(texts))
    total = int(lengths.sum())
    flat = {
        # int32 takes half of the memory of a window; a batch becomes int64 in `build_features`.
        name: np.fromiter(chain.from_iterable(tokens[name]), dtype=np.int32, count=total)
        for name in ("input_ids", "token_type_ids")
        if name in tokens
    }
    return flat, lengths, tokens.encodings


class _Untokenized:
    """Inputs of a model that tokenizes in its own way: texts sorted by their characters."""

    def __init__(
        self, model: SentenceTransformer, texts: list[str], extra: dict[str, Any], way: dict[str, str]
    ) -> None:
        self._model = model
        self._texts = texts
        self._extra = extra
        self._way = way
        # The guess only sorts texts and sizes batches: a wrong one costs time, and changes no vector.
        guess = np.array([1 + len(text) // CHARACTERS_A_TOKEN for text in texts], dtype=np.int64)
        cuts = [
            getattr(module, "max_seq_length", None) or guess.max() for module in collect_input_modules(model)
        ]
        guess = np.minimum(guess, min(max(cuts), guess.max()))
        self.order = np.argsort(-guess, kind="stable")
        self.lengths = guess[self.order]

    def build_features(self, span: Span) -> dict[str, Any]:
        batch = [self._texts[i] for i in self.order[slice(*span)]]
        features = self._model.tokenize(batch, **self._way)
        # Texts of unknown words alone have no tokens, and convolutions and LSTMs fail without any: each
        # gets the padding that it would have beside a longer text.
        padded = {
            name: nn.functional.pad(value, (0, 1))
            for name, value in features.items()
            if isinstance(value, Tensor) and value.dim() == 2 and not value.shape[1]
        }
        return {**features, **padded, **self._extra}


SAID = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Parts of torch's out-of-memory messages: on a GPU, on a CPU, and in a library on a GPU."""


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a forward pass means that the batch was too large.

    >>> _is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or any(s in str(error) for s in SAID)


CPU_BUDGET = 1024
"""Padded tokens of one batch on one CPU core, so that it stays in the cache."""

GPU_BUDGET = 65_536
"""Padded tokens of one batch on a GPU, and of all batches that run at once on a CPU with few cores."""

WINDOW = 32_768
"""The number of texts that are tokenized and sorted at a time, which bounds memory."""

SHORT_TEXT = "a text"
LONG_TEXT = " ".join(f"Sentence {number} goes on about something else." for number in range(120))
"""A text of some 1,000 tokens: block-sparse attention begins at 704."""

FIRST_TEXTS: ContextVar[tuple[str, ...]] = ContextVar("FIRST_TEXTS", default=(SHORT_TEXT,))
"""What a model encodes first, each text alone: the sanity gate lets a second load begin with a long one."""

Batch = TypeVar("Batch")

Finish: TypeAlias = Callable[["NDArray[np.int64]", Batch], None]
"""Called with the rows of a finished batch and the output of its pass."""

Progress = Callable[[int, int], None]
"""A callback after each batch with the numbers of finished texts and tokens."""


Kept = TypeVar("Kept", contravariant=True)


class VectorSink(Protocol[Kept]):
    """Keeps finished vectors while others are still being made."""

    @property
    def due(self) -> bool:
        """Whether it wants what is finished now; it gets the rest in the end."""
        ...

    def add_vectors(self, texts: Sequence[str], vectors: Kept) -> None:
        """Take the vectors of some texts."""
        ...


class Engine(ABC, Generic[Batch]):
    """A loaded model that turns batches of texts into vectors; `Batch` is what one pass gives.

    Attributes:
        model: The modules.
        roles: The sides whose texts are encoded in different ways; a single entry where there is one way.
        dimension: The length of a vector.
        device: The device of the model, such as "cpu" or "cuda:0".
        parameters: The number of parameters.
        dtype_as_run: The dtype in which the backbone computes, such as "float32".
        attention: The name of the attention backend, "" where the model has none.
        tokens_seen: Encoded tokens without padding; estimated for a model that tokenizes in its own way.
        batches: The number of batches so far.
        notes: Deviations from the requested settings, such as a halved budget.
        first_outputs: The outputs of the first texts, by side and text.
    """

    _before = 0
    """The vectors that are computed before each text, which are no tokens of it."""

    def __init__(
        self, model: SentenceTransformer, encoding: Encoding, *, batch_tokens: int | None = None
    ) -> None:
        """Take a model.

        Args:
            model: The modules.
            encoding: The settings.
            batch_tokens: Padded tokens that are encoded at once, which bounds memory; a longer text runs
                alone. None for the device's default.
        """
        self.encoding = encoding
        self.device = str(model.device)
        self.tokens_seen = 0
        self.batches = 0
        self.notes: list[str] = []
        self._on_cpu = model.device.type == "cpu"
        self._threads = torch.get_num_threads() if self._on_cpu else 0
        self._at_once = batch_tokens or max(GPU_BUDGET, self._threads * CPU_BUDGET)
        # On a CPU each thread runs a small batch, and `_at_once` bounds all of them together.
        self._budget = min(CPU_BUDGET, self._at_once) if self._on_cpu else self._at_once
        self._lock = threading.Lock()
        self._take_model(model)
        self.first_outputs = self._encode_first_texts()
        self.parameters = sum(p.numel() for p in model.parameters())
        self.dtype_as_run = _detect_backbone_dtype(model)
        self.dimension = self._measure_dimension()
        self.attention = _describe_attention(model)
        self.notes += _collect_backbone_notes(model)

    def _take_model(self, model: SentenceTransformer) -> None:
        self.model = model
        self.roles = self._list_sides(model)
        if self._on_cpu:
            _use_onednn(model)

    @abstractmethod
    def _list_sides(self, model: SentenceTransformer) -> list[Role]:
        """The sides whose texts are encoded in different ways."""

    @abstractmethod
    def _measure_dimension(self) -> int:
        """The length of a vector, after a first pass."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str], *, prompt: str = "", role: Role) -> Any:
        """The vectors of `texts` in one batch padded to the longest, finite or not."""

    def _encode_first_texts(self) -> dict[tuple[Role, str], Any]:
        return {
            (role, text): self.encode_batch([text], role=role)
            for role in self.roles
            for text in FIRST_TEXTS.get()
        }

    @abstractmethod
    def _prepare_inputs(self, texts: Sequence[str], prompt: str, role: Role) -> Inputs:
        """The tokenized texts of a side, each with `prompt` before it."""

    @abstractmethod
    def _pass(self, features: dict[str, Any]) -> Batch:
        """The vectors of one tokenized batch on the model's device."""

    def reload(self, load: Callable[[], Engine[Any]]) -> None:
        """Replace the model by a new load that begins with a long text.

        There are never two in memory, and no model is left if `load` fails.
        """
        # `_forward` puts a closure over a layer into that layer: only gc frees such a circle.
        del self.model
        gc.collect()
        if not self._on_cpu:
            torch.cuda.empty_cache()
        before = FIRST_TEXTS.set((LONG_TEXT, SHORT_TEXT))
        try:
            second = load()
        finally:
            FIRST_TEXTS.reset(before)
        self._take_model(second.model)
        self.first_outputs = second.first_outputs

    def count_tokens(self, texts: Sequence[str], *, prompt: str = "", role: Role = "") -> int:
        """The number of tokens of `texts` after truncation, special ones included."""
        counted = sum(
            int(self._prepare_inputs(texts[start : start + WINDOW], prompt, role).lengths.sum())
            for start in range(0, len(texts), WINDOW)
        )
        return counted - len(texts) * self._before

    def _run_padded_batch(self, inputs: Inputs, finish: Finish[Batch]) -> None:
        """Run all texts in one batch padded to the longest, halved where it does not fit into memory."""

        def run_span(span: Span) -> None:
            finish(inputs.order[slice(*span)], self._batch(inputs, span))

        # The budget is the size of the whole padded batch, so the first span has every text.
        queue = _Queue(inputs.lengths, len(inputs.lengths) * int(inputs.lengths[0]))
        _run_queue(queue, run_span, threads=min(self._threads, 1), halved=self._reduce_budget)

    def _run_batches(
        self,
        inputs: Inputs,
        copies: NDArray[np.int64],
        finish: Finish[Batch],
        progress: Progress | None,
    ) -> None:
        """Run a window's texts in batches; text i stands for `copies[i]` of the given texts."""
        # A small window is spread over all threads instead of filling one batch.
        share = -(-int(inputs.lengths.sum()) // max(1, self._threads))
        queue = _Queue(inputs.lengths, min(self._budget, share), self._at_once)

        def run_span(span: Span) -> None:
            rows = inputs.order[slice(*span)]
            outputs = self._batch(inputs, span)
            tokens = int(inputs.lengths[slice(*span)].sum()) - len(rows) * self._before
            # Threads share the counters and whatever `finish` and `progress` write to.
            with self._lock:
                finish(rows, outputs)
                self.tokens_seen += tokens
                self.batches += 1
                if progress:
                    progress(int(copies[rows].sum()), tokens)

        _run_queue(queue, run_span, threads=min(self._threads, len(copies)), halved=self._reduce_budget)

    def _batch(self, inputs: Inputs, span: Span) -> Batch:
        return self._pass(
            {name: self._move_tensor(value) for name, value in inputs.build_features(span).items()}
        )

    def _move_tensor(self, value: Any) -> Any:
        if self._on_cpu or not isinstance(value, torch.Tensor):
            return value
        if value.device.type == "cpu" and self.model.device.type == "cuda":
            # Only a copy from pinned memory runs beside the GPU's work; else non_blocking changes nothing.
            value = value.pin_memory()
        return value.to(self.model.device, non_blocking=True)

    def _reduce_budget(self, budget: int) -> None:
        with self._lock:
            self._budget = min(self._budget, budget)
            self.notes.append(f"memory ran out: batches of {budget} tokens from then on")
        if not self._on_cpu:
            torch.cuda.empty_cache()


class Encoder(Engine["Tensor"]):
    """A loaded model that turns a text into a vector."""

    def _list_sides(self, model: SentenceTransformer) -> list[Role]:
        return list_roles(model)

    def _measure_dimension(self) -> int:
        widths = {role: int(self.first_outputs[role, SHORT_TEXT].shape[1]) for role in self.roles}
        if len(set(widths.values())) > 1:
            raise ModelError(
                "The vectors of its sides cannot be compared: "
                + ", ".join(f"{role or 'no side'} has {width} dimensions" for role, width in widths.items())
            )
        return next(iter(widths.values()))

    def _prepare_inputs(self, texts: Sequence[str], prompt: str, role: Role) -> Inputs:
        return _prepare(self.model, texts, prompt, role)

    def _pass(self, features: dict[str, Any]) -> Tensor:
        return embed_features(self.model, features)

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        role: Role = "",
        progress: Progress | None = None,
        keeper: VectorSink[NDArray[np.float32]] | None = None,
    ) -> NDArray[np.float32]:
        """The vectors of `texts`, each with `prompt` before it.

        Equal texts are encoded once. The vectors equal those of `SentenceTransformer.encode` up to rounding.

        Args:
            texts: The texts.
            prompt: The text before each.
            role: The side of the texts, which chooses the tower.
            progress: Called after each batch.
            keeper: Gets every finite vector once, while others are still being computed.

        Returns:
            Shape (len(texts), dimension), float32, in the order of `texts`.

        Raises:
            ModelError: A vector is not finite, or a single text does not fit into memory.
        """
        places: dict[str, int] = {}
        inverse = np.fromiter((places.setdefault(t, len(places)) for t in texts), np.int64, len(texts))
        copies = np.bincount(inverse, minlength=len(places))
        unique = list(places)
        vectors = np.empty((len(unique), self.dimension), dtype=np.float32)
        for start in range(0, len(unique), WINDOW):
            part = slice(start, start + WINDOW)
            keep = _BatchSink(keeper, unique[part], vectors[part])
            inputs = self._prepare_inputs(unique[part], prompt, role)
            try:
                self._run_batches(inputs, copies[part], keep.add_vector_batch, progress)
            finally:
                keep.send_vectors()
        # After the loop: the keeper has every finite vector by now, so no work is lost.
        _require_finite(vectors, unique, inverse)
        return vectors[inverse]

    def encode_batch(self, texts: Sequence[str], *, prompt: str = "", role: Role = "") -> NDArray[np.float32]:
        """The vectors of `texts` in one batch padded to the longest, (texts, dimension), finite or not."""
        done: Batches = []
        inputs = self._prepare_inputs(texts, prompt, role)
        self._run_padded_batch(inputs, lambda rows, vectors: done.append((rows, vectors)))
        # Spans end in any order, and their rows are those of the texts sorted by length.
        order = np.argsort(np.concatenate([rows for rows, _ in done]))
        return np.concatenate([vectors.cpu().numpy() for _, vectors in done])[order]


Batches = list[tuple[NDArray[np.int64], "Tensor"]]
"""For each batch its rows, and its vectors on the model's device."""


class _BatchSink:
    """The finished batches of a window: they go to the rows of `out`, and to a keeper where there is one."""

    def __init__(
        self, keeper: VectorSink[NDArray[np.float32]] | None, texts: list[str], out: NDArray[np.float32]
    ) -> None:
        self._keeper = keeper
        self._texts = texts
        self._out = out
        self._done: Batches = []

    def add_vector_batch(self, rows: NDArray[np.int64], vectors: Tensor) -> None:
        # Vectors stay on the device until they are due, because a copy waits for the GPU.
        self._done.append((rows, vectors))
        if self._keeper is not None and self._keeper.due:
            self.send_vectors()

    def send_vectors(self) -> None:
        done, self._done = self._done, []
        for rows, vectors in done:
            self._out[rows] = vectors.cpu().numpy()
        if self._keeper is None or not done:
            return
        rows = np.concatenate([rows for rows, _ in done])
        # A vector that is not finite must not reach the cache; `encode` reports it at the end.
        rows = rows[np.isfinite(self._out[rows]).all(axis=1)]
        self._keeper.add_vectors([self._texts[row] for row in rows], self._out[rows])


def _require_finite(vectors: NDArray[np.float32], texts: list[str], inverse: NDArray[np.int64]) -> None:
    """Refuse vectors that are not finite; `inverse` maps each given text to its place in `texts`."""
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if not bad.size:
        return
    shown = texts[bad[0]] if len(texts[bad[0]]) <= 60 else texts[bad[0]][:60] + "…"
    raise ModelError(
        f"{bad.size} of {len(texts)} vectors are not finite; the first is that of text "
        f"{int(np.argmax(inverse == bad[0]))}, {shown!r}.",
        hint="Half precision overflows in some models: ask for float32. If it was, the weights are damaged.",
    )


def embed_features(model: SentenceTransformer, features: dict[str, Any]) -> Tensor:
    """The vectors of one tokenized batch, shape (texts, dimension), float32, on the model's device.

    The backbone runs in its loaded dtype, later layers in float32; feature "task" chooses a Router's tower.
    """
    task = {"task": features.pop("task")} if "task" in features else {}
    for place, module in enumerate(model):
        features = module(features, **(task if "task" in getattr(module, "forward_kwargs", ()) else {}))
        # Only the backbone runs in the loaded dtype; towers of a Router are widened by hooks.
        features = features if place else _widen_outputs(features)
    vectors: Tensor = features["sentence_embedding"]
    return vectors.float()


def _use_onednn(model: nn.Module) -> None:
    """Compute the float32 linear layers of a model on the CPU with oneDNN if available; without gradients.

    torch uses MKL, which uses half of an AMD core's vector width; oneDNN uses all of it and is as fast
    elsewhere. The sums are of the same float32 products in another order.
    """
    backend: Any = torch.backends.mkldnn
    # `_linear_pointwise` is private in torch, and may be missing in another version.
    if not backend.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return
    for layer in model.modules():
        # Exactly Linear: a subclass, such as one with an adapter, computes something else.
        if type(layer) is torch.nn.Linear and layer.weight.dtype == torch.float32:
            layer.forward = _forward(layer)  # type: ignore[assignment, method-assign]


def _forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    pointwise = torch.ops.mkldnn._linear_pointwise

    def apply_linear(x: Tensor) -> Tensor:
        # The last three arguments: no function is fused after the product.
        product: Tensor = pointwise(x, layer.weight, layer.bias, "none", [], "")
        return product

    return apply_linear
