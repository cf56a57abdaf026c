"""The encoder engine: texts in, vectors out, as fast as the device allows and in the order given.

Texts are tokenized in windows, sorted by length, and cut into batches by a budget of padded tokens, which is
halved when memory runs out. A GPU's windows are cut into chunks by the number of characters: while the card
works on a chunk, the next is tokenized. Layers after the backbone run in float32. A Router has a tower for
each side.
"""

from __future__ import annotations

import gc
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from contextvars import ContextVar
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Router
from torch import Tensor, nn

from harness.core.encoding import Encoding
from harness.core.errors import ModelError
from harness.core.types import ROLES, Role
from harness.encoder.batches import (
    Arrival,
    Inputs,
    Span,
    SpanQueue,
    TokenizedTexts,
    UntokenizedTexts,
    is_plain,
    iterate_ahead,
    move_features,
    run_spans,
)
from harness.encoder.library_load import count_prompt_tokens, get_max_length, tokenize_batch

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


def _describe_attention(model: SentenceTransformer) -> str:
    """The attention backends as our network ran, or as a transformers model is set; "" for none."""
    names = []
    for backbone in collect_backbones(model):
        library_name = getattr(getattr(backbone, "config", None), "_attn_implementation", None)
        names.append(str(getattr(backbone, "attention_as_run", library_name) or ""))
    return "+".join(dict.fromkeys(filter(None, names)))


def _collect_backbone_notes(model: SentenceTransformer) -> list[str]:
    """The notes of the backbones on how they run, each once."""
    notes: dict[str, None] = {}
    for backbone in collect_backbones(model):
        library_note = f"{type(backbone).__name__} ran through transformers' own class, with its padding"
        library_notes = [library_note, *getattr(backbone, "adapter_notes", ())]
        own_notes = getattr(backbone, "notes", None)
        notes |= dict.fromkeys(own_notes if isinstance(own_notes, list) else library_notes)
    return list(notes)


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


def _prepare(model: SentenceTransformer, texts: Sequence[str], prompt: str, role: Role) -> Inputs:
    """The inputs for texts with a prompt before each, as in the model's own `encode`."""
    prompted = [prompt + text for text in texts]
    way = route(model, role)
    # As `encode` of sentence-transformers does: a pooling may leave the tokens of the prompt out.
    first = model[0]
    if isinstance(first, Router) and (task := way.get("task", first.default_route)) is not None:
        first = cast("nn.Sequential", first.sub_modules[task])[0]
    length = count_prompt_tokens(model, first, prompt, **way) if prompt else None
    extra: dict[str, Any] = {**way, **({} if length is None else {"prompt_length": length})}
    if is_plain(first):
        return TokenizedTexts(first, prompted, extra)
    guess = _guess_lengths(model, prompted)
    return UntokenizedTexts(lambda batch: tokenize_batch(model, batch, **way), prompted, guess, extra)


CHARACTERS_A_TOKEN = 4
"""The assumed characters of a token, where texts are ordered before they are tokenized."""


def _guess_lengths(model: SentenceTransformer, texts: Sequence[str], before: str = "") -> NDArray[np.int64]:
    """The number of tokens of each text by its characters, cut to the model's length."""
    guess = [1 + (len(before) + len(text)) // CHARACTERS_A_TOKEN for text in texts]
    modules = collect_input_modules(model)
    cut = max(get_max_length(module) or max(guess) for module in modules)
    return np.array([min(tokens, cut) for tokens in guess], dtype=np.int64)


CPU_BUDGET = 1024
"""Padded tokens of one batch on one CPU core, so that it stays in the cache."""

GPU_BUDGET = 65_536
"""Padded tokens of a GPU's first batches, and of all batches that run at once on a CPU with few cores."""

LARGEST_BUDGET = 524_288
"""The most padded tokens of a batch on a GPU, where nobody has said how many."""

GAIN = 1.05
"""How much faster a GPU must be with batches twice as large, so that they are taken."""

WINDOW = 32_768
"""The number of texts that are tokenized and sorted at a time, which bounds memory."""

CHUNK = 2
"""The number of a GPU's batches whose texts are tokenized at a time, while it works on those before."""

AHEAD = 2
"""The number of batches whose vectors a GPU may still owe when another one is sent to it."""

SHORT_TEXT = "a text"
LONG_TEXT = " ".join(f"Sentence {number} goes on about something else." for number in range(120))
"""A text of some 1,000 tokens: block-sparse attention begins at 704."""

FIRST_TEXTS: ContextVar[tuple[str, ...]] = ContextVar("FIRST_TEXTS", default=(SHORT_TEXT,))
"""What a model encodes first, each text alone: the sanity gate lets a second load begin with a long one."""

Batch = TypeVar("Batch")

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


class BatchSink(ABC):
    """Takes the outputs of batches, from their devices as they arrive; a keeper gets what is finished.

    Text i stands for `copies[i]` of the given texts.
    """

    def __init__(self, keeper: VectorSink[Any] | None, texts: list[str], inverse: NDArray[np.int64]) -> None:
        self.copies = np.bincount(inverse, minlength=len(texts))
        self._keeper, self._texts = keeper, texts
        self._coming: deque[tuple[NDArray[np.int64], Arrival, NDArray[np.int64] | None]] = deque()

    def add_vector_batch(
        self, rows: NDArray[np.int64], outputs: Tensor | tuple[Tensor, NDArray[np.int64]]
    ) -> None:
        """Take the vectors of a batch of these texts, and how many each text has if it may have several."""
        vectors, counts = outputs if isinstance(outputs, tuple) else (outputs, None)
        self._coming.append((rows, Arrival(vectors), counts))
        self._take_vectors(AHEAD)
        if self._keeper is not None and self._keeper.due:
            self.send_vectors()

    @abstractmethod
    def send_vectors(self) -> None:
        """Wait for what is computed, and give it to a keeper where there is one."""

    @abstractmethod
    def _keep_batch(
        self, rows: NDArray[np.int64], vectors: NDArray[Any], counts: NDArray[np.int64] | None
    ) -> None:
        """Store the vectors of a batch that have arrived."""

    def _take_vectors(self, left: int) -> None:
        """Take vectors from the device, until no more than so many batches are under way."""
        while len(self._coming) > left:
            rows, vectors, counts = self._coming.popleft()
            self._keep_batch(rows, vectors.read(), counts)


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
        # The budget of a GPU doubles while that pays; see `_grow_budget`.
        self._grows = model.device.type == "cuda" and batch_tokens is None
        self._rate: float | None = None
        self._lock = threading.Lock()
        self._take_model(model)
        self.first_outputs: dict[tuple[Role, str], Any] = {
            (role, text): self.encode_batch([text], role=role)
            for role in self.roles
            for text in FIRST_TEXTS.get()
        }
        self.parameters = sum(p.numel() for p in model.parameters())
        computing = chain.from_iterable(one.parameters() for one in (*collect_backbones(model), model))
        dtype = next((parameter.dtype for parameter in computing), torch.float32)
        self.dtype_as_run = str(dtype).removeprefix("torch.")
        self.dimension = self._measure_dimension()
        self.attention = _describe_attention(model)
        self.notes += _collect_backbone_notes(model)

    @property
    def input_modules(self) -> list[nn.Module]:
        """The first module, or that of each tower."""
        return collect_input_modules(self.model)

    @property
    def backbones(self) -> list[nn.Module]:
        """The transformers models within the modules."""
        return collect_backbones(self.model)

    def _take_model(self, model: SentenceTransformer) -> None:
        self.model = model
        self.roles = self._list_sides(model)
        if self._on_cpu:
            use_onednn(model)

    @abstractmethod
    def _list_sides(self, model: SentenceTransformer) -> list[Role]:
        """The sides whose texts are encoded in different ways."""

    @abstractmethod
    def _measure_dimension(self) -> int:
        """The length of a vector, after a first pass."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str], *, prompt: str = "", role: Role) -> Any:
        """The vectors of `texts` in one batch padded to the longest, finite or not."""

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

    def _run_padded_batch(self, inputs: Inputs, finish: Callable[[NDArray[np.int64], Batch], None]) -> None:
        """Run all texts in one batch padded to the longest, halved where it does not fit into memory.

        `finish` is called with the rows of a batch and the output of its pass.
        """

        def run_span(span: Span) -> None:
            finish(inputs.order[slice(*span)], self._batch(inputs, span))

        # The budget is the size of the whole padded batch, so the first span has every text.
        queue = SpanQueue(inputs.lengths, len(inputs.lengths) * int(inputs.lengths[0]))
        run_spans(queue, run_span, threads=min(self._threads, 1), halved=self._reduce_budget)

    def _encode_texts(
        self,
        texts: Sequence[str],
        prompt: str,
        role: Role,
        sink: BatchSink,
        progress: Progress | None,
    ) -> None:
        """Run different texts in batches; the sink gets the output of each.

        Args:
            texts: The texts.
            prompt: The text before each.
            role: The side of the texts.
            sink: It knows for how many of the given texts each stands.
            progress: Called after each batch.
        """
        chunks, pending = self._iter_chunks(texts, prompt, role), 0
        # On a CPU both would share the cores, and a window sorted as a whole has less padding.
        with closing(chunks if self._on_cpu else iterate_ahead(chunks)) as prepared:
            try:
                for places, inputs in prepared:
                    begun, tokens = time.monotonic(), int(inputs.lengths.sum())
                    self._run_batches(inputs, places, sink, progress)
                    if self._grows and tokens >= self._budget:
                        torch.cuda.synchronize(self.device)
                        self._grow_budget(tokens / (time.monotonic() - begun))
                    pending += len(places)
                    if pending >= WINDOW:
                        sink.send_vectors()
                        pending = 0
            finally:
                sink.send_vectors()

    def _iter_chunks(
        self, texts: Sequence[str], prompt: str, role: Role
    ) -> Generator[tuple[NDArray[np.int64], Inputs]]:
        """The tokenized texts in chunks, each with the places of its texts among all."""
        for start in range(0, len(texts), WINDOW):
            window = np.arange(start, min(start + WINDOW, len(texts)))
            for places in [window] if self._on_cpu else self._split_window(texts, window, prompt):
                yield places, self._prepare_inputs([texts[i] for i in places], prompt, role)

    def _split_window(
        self, texts: Sequence[str], window: NDArray[np.int64], prompt: str
    ) -> Iterator[NDArray[np.int64]]:
        """The places of texts in chunks of some batches, the longest texts first as far as is known."""
        guess = _guess_lengths(self.model, [texts[i] for i in window], prompt)
        order = np.argsort(-guess, kind="stable")
        ends, start = np.cumsum(guess[order]), 0
        while start < len(order):
            most = ends[start] - guess[order[start]] + CHUNK * self._budget
            stop = max(start + 1, int(np.searchsorted(ends, most, side="right")))
            yield window[order[start:stop]]
            start = stop

    def _run_batches(
        self, inputs: Inputs, places: NDArray[np.int64], sink: BatchSink, progress: Progress | None
    ) -> None:
        """Run the texts of a chunk in batches."""
        queue = SpanQueue(inputs.lengths, min(self._budget, self._compute_share(inputs)), self._at_once)

        def run_span(span: Span) -> None:
            rows = places[inputs.order[slice(*span)]]
            outputs: Any = self._batch(inputs, span)
            tokens = int(inputs.lengths[slice(*span)].sum()) - len(rows) * self._before
            # Threads share the counters and whatever the sink and `progress` write to.
            with self._lock:
                sink.add_vector_batch(rows, outputs)
                self.tokens_seen += tokens
                self.batches += 1
                if progress:
                    progress(int(sink.copies[rows].sum()), tokens)

        run_spans(queue, run_span, threads=min(self._threads, len(places)), halved=self._reduce_budget)

    def _compute_share(self, inputs: Inputs) -> int:
        """The padded tokens of a batch of a chunk that is spread evenly over threads, or a GPU's batches."""
        # A text may have no token at all, where a tokenizer adds none of its own.
        tokens = max(1, int(inputs.lengths.sum()))
        if self._threads:
            return -(-tokens // self._threads)
        # With some room for padding: else a few texts would be left for a batch of their own.
        return tokens // -(-tokens // self._budget) * 21 // 20 + int(inputs.lengths[0])

    def _batch(self, inputs: Inputs, span: Span) -> Batch:
        features = inputs.build_features(span)
        return self._pass(features if self._on_cpu else move_features(features, self.model.device))

    def _grow_budget(self, rate: float) -> None:
        """Double the tokens of a GPU's batches while that is faster and leaves most of its memory free.

        Args:
            rate: The tokens a second with the present budget.
        """
        before, self._rate = self._rate, rate
        if before is None:
            # The first chunk loads kernels, which tells nothing.
            self._rate = 0.0
            return
        spare = torch.cuda.mem_get_info(self.device)[0] + torch.cuda.memory_reserved(self.device)
        fits = 3 * torch.cuda.max_memory_allocated(self.device) < spare
        if rate < GAIN * before:
            self._budget, self._grows = self._budget // 2, False
        elif fits and 2 * self._budget <= LARGEST_BUDGET:
            self._budget *= 2
        else:
            self._grows = False

    def _reduce_budget(self, budget: int) -> None:
        with self._lock:
            self._budget, self._grows = min(self._budget, budget), False
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
        unique, inverse = find_unique_texts(texts)
        vectors = np.empty((len(unique), self.dimension), dtype=np.float32)
        sink = _TextSink(keeper, unique, inverse, vectors)
        self._encode_texts(unique, prompt, role, sink, progress)
        # In the end: the keeper has every finite vector by now, so no work is lost.
        _require_finite(vectors, unique, inverse)
        return vectors[inverse]

    def list_token_ids(self, texts: Sequence[str], *, prompt: str = "", role: Role = "") -> list[list[int]]:
        """The token ids of each text with `prompt` before it; none of a model without tokens."""
        way = route(self.model, role)
        features = (tokenize_batch(self.model, [prompt + text], **way) for text in texts)
        return [one["input_ids"].flatten().tolist() if "input_ids" in one else [] for one in features]

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


def find_unique_texts(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The different ones among texts, and the place of each given text among them."""
    places: dict[str, int] = {}
    inverse = np.fromiter((places.setdefault(t, len(places)) for t in texts), np.int64, len(texts))
    return list(places), inverse


class _TextSink(BatchSink):
    """The finished batches of one vector a text: they go to the rows of `out`."""

    def __init__(
        self,
        keeper: VectorSink[NDArray[np.float32]] | None,
        texts: list[str],
        inverse: NDArray[np.int64],
        out: NDArray[np.float32],
    ) -> None:
        super().__init__(keeper, texts, inverse)
        self._out = out
        self._done: list[NDArray[np.int64]] = []

    def _keep_batch(self, rows: NDArray[np.int64], vectors: NDArray[Any], _counts: Any) -> None:
        self._out[rows] = vectors
        self._done.append(rows)

    def send_vectors(self) -> None:
        self._take_vectors(0)
        done, self._done = self._done, []
        if self._keeper is None or not done:
            return
        rows = np.concatenate(done)
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
        hint="Half precision overflows in some models: try --dtype float32. In float32, weights are damaged.",
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


def use_onednn(model: nn.Module) -> None:
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
