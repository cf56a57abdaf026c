"""Texts as batches of a model: their tokens, and spans of texts by a budget of tokens, packed, on the CPU.

One thread or several run the spans. One that runs out of memory is halved, and the budget of those behind it
with it.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.models import Transformer
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from harness.core.errors import ModelError
from harness.encoder.library_load import get_max_length, is_out_of_memory, require_padding
from harness.encoder.network.layers import Packing

Span = tuple[int, int]
"""The indices (start, stop) of texts in the order of falling length."""


class SpanQueue:
    """A thread-safe queue of spans of at most `budget` padded tokens; a longer text has its own span.

    Spans that run at the same time have at most `at_once` padded tokens together, or there is only one.
    """

    def __init__(self, lengths: NDArray[np.int64], budget: int, at_once: int | None = None) -> None:
        self.budget = budget
        self._at_once = at_once
        self._running = 0
        self._lengths = np.maximum(lengths, 1)
        self._open: list[Span] = [(0, len(lengths))] if len(lengths) else []
        self._cleared = False
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
            if not self._cleared:
                self._open.append(span)
            self._changed.notify_all()
            return self.budget

    def clear(self) -> None:
        """Drop the spans that have not begun."""
        with self._changed:
            self._cleared = True
            self._open.clear()
            self._changed.notify_all()

    def wait_for_running_spans(self) -> None:
        """Return when no span runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def _count_span_tokens(self, span: Span) -> int:
        return (span[1] - span[0]) * int(self._lengths[span[0]])


def run_spans(
    queue: SpanQueue, run: Callable[[Span], None], *, threads: int, halved: Callable[[int], None]
) -> None:
    """Run every span of a queue, on that many threads with one core each, or in this thread if 0.

    One batch per core is faster than all cores on one batch, and does not stall where other processes use
    some of the cores. A span that does not fit into memory is halved; `halved` receives the new budget.
    """
    if not threads:
        _run_open_spans(queue, run, halved)
        return

    def run_worker() -> None:
        # Else each of the threads would start torch's own on every core.
        torch.set_num_threads(1)
        try:
            _run_open_spans(queue, run, halved)
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
        # wait itself: a `join` that Ctrl-C ends takes a living thread for a dead one. Within `submit`, Ctrl-C
        # leaves a thread that `workers` lacks.
        queue.wait_for_running_spans()
        wait(workers)
        pool.shutdown(wait=False)
        torch.set_num_threads(before)
    for worker in workers:
        worker.result()


def _run_open_spans(queue: SpanQueue, run: Callable[[Span], None], halved: Callable[[int], None]) -> None:
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
        if not is_out_of_memory(error):
            raise
        return False
    return True


PART = 4096
"""The number of texts that the tokenizers library gets at a time: its own results take 100 bytes a token."""


class Inputs(Protocol):
    """The tokenized texts of a chunk; `order` lists them longest first, `lengths` are in that order."""

    order: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def build_features(self, span: Span) -> dict[str, Any]:
        """The first module's input for a span of `order`, on the CPU."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of texts, one text after the other, the longest first.

    Attributes:
        order: (texts,), the place of each text among the given ones.
        lengths: (texts,), its number of tokens, falling.
        bounds: (texts + 1,), its first token, and the number of tokens.
        flat: `input_ids`, and `token_type_ids` where the model needs them, by name: (tokens,) each. int32
            takes half of the memory; a batch becomes int64.
    """

    order: NDArray[np.int64]
    lengths: NDArray[np.int64]
    bounds: NDArray[np.int64]
    flat: Mapping[str, NDArray[np.int32]]

    @staticmethod
    def sort_texts(lengths: NDArray[np.int64], flat: Mapping[str, NDArray[np.int32]]) -> Tokens:
        """The tokens of texts that are given in any order."""
        order = np.argsort(-lengths, kind="stable")
        falling = lengths[order]
        bounds = np.concatenate([[0], np.cumsum(falling)])
        shifts = (np.cumsum(lengths) - lengths)[order] - bounds[:-1]
        places = np.arange(bounds[-1]) + np.repeat(shifts, falling)
        sorted_ids = {name: ids[places] for name, ids in flat.items()}
        return Tokens(order=order, lengths=falling, bounds=bounds, flat=sorted_ids)

    def insert_token(self, token: int) -> Tokens:
        """The same with a token behind the first one of each text, or at the front of a text without one."""
        after = self.bounds[:-1] + np.minimum(self.lengths, 1)
        flat = {
            name: np.insert(ids, after, token if name == "input_ids" else 0)
            for name, ids in self.flat.items()
        }
        bounds = self.bounds + np.arange(len(self.bounds))
        return replace(self, lengths=self.lengths + 1, bounds=bounds, flat=flat)

    def pad_span(
        self, span: Span, real: NDArray[np.bool_], fill: Mapping[str, int]
    ) -> dict[str, NDArray[np.int64]]:
        """The tokens of some texts at the places `real` of a padded batch: (texts, columns) by name."""
        padded = {name: np.full(real.shape, fill[name], np.int64) for name in self.flat}
        for name, ids in self.flat.items():
            padded[name][real] = ids[self.bounds[span[0]] : self.bounds[span[1]]]
        return padded


def is_plain(module: Any) -> bool:
    """Whether a module is the library's Transformer with a fast tokenizer."""
    return type(module) is Transformer and bool(getattr(module.tokenizer, "is_fast", False))


def takes_packing(module: Any) -> bool:
    """Whether a module of the library runs our network, which takes the packing of a batch."""
    # Since 5.4 the first set is missing where the network takes any argument.
    sets = ("model_forward_params", "_declared_forward_params")
    return any("packing" in (getattr(module, name, None) or ()) for name in sets)


def tokenize_texts(module: Any, texts: Sequence[str], max_length: int | None) -> Tokens:
    """The tokens of texts by the library's Transformer with a fast tokenizer.

    Args:
        module: The library's Transformer.
        texts: The texts, with their prompts.
        max_length: The most tokens of a text, special ones included; None to cut nothing.
    """
    cleaned, options = _clean_texts(module, texts), _build_options(max_length)
    # A call also sets the truncation of the backend, which is asked directly below.
    sample = module.tokenizer("a", **options)
    typed = "token_type_ids" in sample
    if takes_packing(module):
        # Types come from the tokenizer's template, not from the text; our network takes none as zeros.
        typed = typed and any(sample["token_type_ids"])
    names = ["input_ids", "token_type_ids"] if typed else ["input_ids"]
    flat, counts = {name: array("i") for name in names}, array("q")
    for start in range(0, len(cleaned), PART):
        columns = _encode_part(module.tokenizer, cleaned[start : start + PART], flat.keys(), options)
        counts.extend(map(len, columns["input_ids"]))
        for name, ids in flat.items():
            for row in columns[name]:
                ids.fromlist(row)
    lengths = np.array(counts, dtype=np.int64)
    return Tokens.sort_texts(lengths, {name: np.array(ids, dtype=np.int32) for name, ids in flat.items()})


def encode_texts(module: Any, texts: Sequence[str], max_length: int | None) -> Sequence[Any]:
    """The tokenizer's encodings, which know the places of tokens and what was cut; see `tokenize_texts`."""
    encodings: Sequence[Any] = module.tokenizer(
        _clean_texts(module, texts), **_build_options(max_length)
    ).encodings
    return encodings


def _clean_texts(module: Any, texts: Sequence[str]) -> list[str]:
    # As Transformer.tokenize does.
    stripped = [text.strip() for text in texts]
    return [text.lower() for text in stripped] if module.do_lower_case else stripped


def _build_options(max_length: int | None) -> dict[str, Any]:
    # Batches are cut after sorting, and each pads only to its own longest text.
    return {
        "padding": False,
        "truncation": "longest_first",
        "max_length": max_length,
        "return_attention_mask": False,
    }


def _encode_part(
    tokenizer: Any, texts: list[str], names: Iterable[str], options: dict[str, Any]
) -> Mapping[str, Iterable[list[int]]]:
    """The numbers of some texts by name, a list for each text."""
    kind = type(tokenizer)
    methods = kind.__call__, kind._encode_plus
    if methods != (PreTrainedTokenizerFast.__call__, PreTrainedTokenizerFast._encode_plus):
        columns: Mapping[str, Iterable[list[int]]] = tokenizer(texts, **options)
        return columns
    # Without the places of tokens, and without the Python lists that transformers makes of every encoding.
    encodings = tokenizer.backend_tokenizer.encode_batch_fast(texts)
    attributes = {"input_ids": "ids", "token_type_ids": "type_ids"}
    return {name: [getattr(one, attributes[name]) for one in encodings] for name in names}


class TokenizedTexts:
    """Inputs of a plain transformer.

    Args:
        module: The library's Transformer.
        texts: The texts, each with its prompt.
        extra: Further features of every batch.
        before: Vectors that are computed before each text and take memory as tokens do.
    """

    def __init__(
        self, module: Any, texts: Sequence[str], extra: dict[str, Any] | None = None, *, before: int = 0
    ) -> None:
        self._tokenizer = module.tokenizer
        self._extra = extra or {}
        self._before = before
        self._packs = takes_packing(module)
        require_padding(self._tokenizer)
        self._tokens = tokenize_texts(module, texts, get_max_length(module))
        self.order = self._tokens.order
        self.lengths = self._tokens.lengths + before

    def build_features(self, span: Span) -> dict[str, Any]:
        """Padded ids, the mask, and token types where the model takes them: (texts, tokens) each."""
        lengths = self._tokens.lengths[slice(*span)]
        columns = np.arange(max(int(lengths[0]), 1))
        left = self._tokenizer.padding_side == "left"
        real = (columns >= len(columns) - lengths[:, None]) if left else columns < lengths[:, None]
        fill = {
            "input_ids": self._tokenizer.pad_token_id,
            "token_type_ids": self._tokenizer.pad_token_type_id,
        }
        arrays = {**self._tokens.pad_span(span, real, fill), "attention_mask": real.astype(np.int64)}
        features: dict[str, Any] = {name: torch.from_numpy(padded) for name, padded in arrays.items()}
        if self._packs:
            computed = np.pad(real, ((0, 0), (self._before, 0)), constant_values=True)
            features["packing"] = Packing.from_sorted_masks(computed)
        return {**features, **self._extra}


class UntokenizedTexts:
    """Inputs of a model that tokenizes in its own way: texts sorted by their guessed lengths.

    Args:
        tokenize: The function from the texts of a batch to its features.
        texts: The texts, each with its prompt.
        guess: Their guessed lengths, which only sort texts and size batches: a wrong one changes no vector.
        extra: Further features of every batch.
    """

    def __init__(
        self, tokenize: Any, texts: Sequence[str], guess: NDArray[np.int64], extra: dict[str, Any]
    ) -> None:
        self._tokenize = tokenize
        self._texts = texts
        self._extra = extra
        self.order = np.argsort(-guess, kind="stable")
        self.lengths = guess[self.order]

    def build_features(self, span: Span) -> dict[str, Any]:
        """What the model's own tokenizer makes of the texts."""
        features = self._tokenize([self._texts[i] for i in self.order[slice(*span)]])
        # Texts of unknown words alone have no tokens, and convolutions and LSTMs fail without any: each
        # gets the padding that it would have beside a longer text.
        padded = {
            name: nn.functional.pad(value, (0, 1))
            for name, value in features.items()
            if isinstance(value, Tensor) and value.dim() == 2 and not value.shape[1]
        }
        return {**features, **padded, **self._extra}


Item = TypeVar("Item")


def iterate_ahead(
    items: Iterator[Item], count: int = 1, lock: AbstractContextManager[Any] | None = None
) -> Generator[Item]:
    """The same items, of which a thread makes the next ones while the present one is used.

    Args:
        items: The items, none of which is None.
        count: How many are made ahead.
        lock: Held while an item is made.
    """

    def take() -> Item | None:
        with lock or nullcontext():
            return next(items, None)

    pool = ThreadPoolExecutor(1)
    coming = deque(pool.submit(take) for _ in range(count))
    try:
        while (item := coming[0].result()) is not None:
            coming.popleft()
            coming.append(pool.submit(take))
            yield item
    finally:
        # The pool must not wait itself: a `join` that Ctrl-C ends takes a living thread for a dead one.
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for future in coming if not future.cancelled()])


def move_features(features: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The features of a batch on a device; the whole numbers among them travel in one copy."""
    numbers: list[Tensor] = []

    def is_joined(value: Tensor) -> bool:
        return value.dtype == torch.int64 and value.device.type == "cpu"

    _map_tensors(features, lambda value: numbers.append(value) if is_joined(value) else None)
    joined = torch.cat([value.flatten() for value in numbers]) if numbers else torch.empty(0)
    pieces = iter(_send_tensor(joined, device).split([value.numel() for value in numbers]))
    return _map_tensors(
        features,
        lambda value: next(pieces).view_as(value) if is_joined(value) else _send_tensor(value, device),
    )


def _map_tensors(features: Mapping[str, Any], function: Callable[[Tensor], Any]) -> dict[str, Any]:
    """The features, with the results of a function in place of their tensors and those of a packing."""
    mapped: dict[str, Any] = {}
    for name, value in features.items():
        if isinstance(value, Packing):
            mapped[name] = replace(value, **_map_tensors(vars(value), function))
        else:
            mapped[name] = function(value) if isinstance(value, Tensor) else value
    return mapped


def _send_tensor(value: Tensor, device: torch.device) -> Tensor:
    if value.device.type == "cpu" and device.type == "cuda":
        # Only a copy from pinned memory runs beside the GPU's work.
        value = value.pin_memory()
    return value.to(device, non_blocking=device.type == "cuda")


class Arrival:
    """A tensor on its way from its device to the host."""

    def __init__(self, tensor: Tensor) -> None:
        on_gpu = tensor.device.type == "cuda"
        # On a GPU into pinned memory, while further batches run.
        self._host = tensor.to("cpu", non_blocking=on_gpu)
        self._event = torch.cuda.current_stream(tensor.device).record_event() if on_gpu else None

    def read(self) -> NDArray[Any]:
        """Its numbers, as soon as they are there."""
        if self._event is None:
            return self._host.numpy()
        self._event.synchronize()
        # A copy, so that the pinned memory serves the next batch.
        return self._host.numpy().copy()
