"""Tokenize, sort, cut by token budget, halve on out-of-memory.

Spans of sorted texts, cut so that a batch keeps to a budget of tokens, and who runs them.

What a model's first module is fed: texts tokenized once, sorted, padded batch by batch.

Telling that memory ran out from any other error.

The token that fills batches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.encoder.family import Family
from harness.encoder.towers import input_modules, route
from harness.errors import ModelError
from harness.types import Role

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor


Span = tuple[int, int]
"""Texts start to stop, in the order of falling length."""


class Queue:
    """Hands out spans of texts whose padded size keeps to a budget of tokens; safe across threads.

    Which spans there are depends on the lengths and the budget alone, not on who takes them.

    Args:
        lengths: Tokens of each text, falling, so the first of a span is its longest.
        budget: Padded tokens of a span; a longer text is a span of its own.
    """

    def __init__(self, lengths: NDArray[np.int64], budget: int) -> None:
        self.budget = budget
        self._lengths = np.maximum(lengths, 1)
        self._open: list[Span] = [(0, len(lengths))] if len(lengths) else []
        self._lock = threading.Lock()

    def take(self) -> Span | None:
        """The next span, None if there is nothing left to do."""
        with self._lock:
            if not self._open:
                return None
            start, stop = self._open.pop()
            cut = min(stop, start + max(1, self.budget // int(self._lengths[start])))
            if cut < stop:
                self._open.append((cut, stop))
            return start, cut

    def halve(self, span: Span) -> int:
        """Put back a span that did not fit, and make half its size the budget from now on.

        Returns:
            The new budget.
        """
        start, stop = span
        with self._lock:
            self.budget = min(self.budget, (stop - start) * int(self._lengths[start]) // 2)
            self._open.append(span)
            return self.budget

    def clear(self) -> None:
        """Forget all that is left."""
        with self._lock:
            self._open.clear()


def drain(queue: Queue, run: Callable[[Span], None], *, threads: int, halved: Callable[[int], None]) -> None:
    """Run every span of a queue, on that many threads with one core each; 0 is in this thread.

    A batch a core is faster than all cores on one batch, and does not stall where other
    processes hold some of the cores. A span that does not fit into memory is cut in two and run
    again; `halved` is told the new budget.

    Raises:
        ModelError: If a single text does not fit into memory.
    """
    if not threads:
        _loop(queue, run, halved)
        return
    import torch

    errors: list[BaseException] = []

    def worker() -> None:
        torch.set_num_threads(1)
        try:
            _loop(queue, run, halved)
        except BaseException as error:
            errors.append(error)
            queue.clear()

    before = torch.get_num_threads()
    workers = [threading.Thread(target=worker, daemon=True) for _ in range(threads)]
    try:
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
    finally:
        queue.clear()
        torch.set_num_threads(before)
    if errors:
        raise errors[0]


def _loop(queue: Queue, run: Callable[[Span], None], halved: Callable[[int], None]) -> None:
    import torch

    with torch.inference_mode():
        while (span := queue.take()) is not None:
            if _fits(run, span):
                continue
            if span[1] - span[0] == 1:
                raise ModelError(
                    "A single text does not fit into memory.",
                    hint="Give a smaller maximum length, or bfloat16 as the dtype.",
                )
            halved(queue.halve(span))


def _fits(run: Callable[[Span], None], span: Span) -> bool:
    # The error, and with it the tensors its traceback holds, is gone once this returns.
    try:
        run(span)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


CHARACTERS_A_TOKEN = 4
"""A guess at how many tokens a text has, for models that tokenize in their own way."""


class Inputs(Protocol):
    """Texts of one window, ready to be encoded.

    `order` lists the texts, longest first; `lengths` are their tokens in that order.
    """

    order: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def features(self, span: Span) -> dict[str, Any]:
        """The first module's input for a span of `order`, on the CPU."""
        ...


def prepare(model: SentenceTransformer, texts: Sequence[str], prompt: str, role: Role) -> Inputs:
    """Tokenize texts with a prompt before each, as the model's own `encode` would.

    `role` chooses the tower of a model that has one for each side.
    """
    prompted = [prompt + text for text in texts]
    way = route(model, role)
    length = model._get_prompt_length(prompt, **way) if prompt else None
    extra: dict[str, Any] = {**way, **({} if length is None else {"prompt_length": length})}
    if _is_plain(model):
        return Tokenized(model, prompted, extra)
    return Untokenized(model, prompted, extra, way)


def _is_plain(model: SentenceTransformer) -> bool:
    """Whether the first module is a transformer with a fast tokenizer and nothing of its own."""
    from sentence_transformers.models import Transformer

    first = model[0]
    return type(first) is Transformer and bool(getattr(first.tokenizer, "is_fast", False))


class Tokenized:
    """Inputs of a plain transformer: flat arrays of token ids, one text behind the other."""

    def __init__(self, model: SentenceTransformer, texts: list[str], extra: dict[str, Any]) -> None:
        first: Any = model[0]
        self._tokenizer = first.tokenizer
        self._extra = extra
        require_padding(self._tokenizer)
        stripped = [text.strip() for text in texts]  # as Transformer.tokenize does
        found = self._tokenizer(
            [text.lower() for text in stripped] if first.do_lower_case else stripped,
            padding=False,
            truncation="longest_first",
            max_length=first.max_seq_length,
            return_attention_mask=False,
        )
        lengths = np.fromiter(map(len, found["input_ids"]), dtype=np.int64, count=len(texts))
        total = int(lengths.sum())
        self._flat = {
            name: np.fromiter(chain.from_iterable(found[name]), dtype=np.int32, count=total)
            for name in ("input_ids", "token_type_ids")
            if name in found
        }
        self.order = np.argsort(-lengths, kind="stable")
        self.lengths = lengths[self.order]
        self._starts = (np.cumsum(lengths) - lengths)[self.order]

    def features(self, span: Span) -> dict[str, Any]:
        """Padded ids, the mask, and token types where the tokenizer has them: (texts, tokens)."""
        import torch

        lengths = self.lengths[slice(*span)]
        columns = np.arange(max(int(lengths[0]), 1))
        left = self._tokenizer.padding_side == "left"
        offsets = columns - (len(columns) - lengths)[:, None] if left else columns[None, :]
        mask = (offsets >= 0) & (offsets < lengths[:, None])
        at = np.where(mask, self._starts[slice(*span)][:, None] + offsets, 0)
        fill = {
            "input_ids": self._tokenizer.pad_token_id,
            "token_type_ids": self._tokenizer.pad_token_type_id,
        }
        padded: dict[str, Tensor] = {
            name: torch.from_numpy(np.where(mask, flat[at], fill[name]).astype(np.int64))
            for name, flat in self._flat.items()
        }
        return {**padded, "attention_mask": torch.from_numpy(mask.astype(np.int64)), **self._extra}


class Untokenized:
    """Inputs of a model that tokenizes in its own way: texts sorted by their characters."""

    def __init__(
        self, model: SentenceTransformer, texts: list[str], extra: dict[str, Any], way: dict[str, str]
    ) -> None:
        self._model = model
        self._texts = texts
        self._extra = extra
        self._way = way
        guess = np.array([1 + len(text) // CHARACTERS_A_TOKEN for text in texts], dtype=np.int64)
        cuts = [getattr(module, "max_seq_length", None) or guess.max() for module in input_modules(model)]
        guess = np.minimum(guess, min(max(cuts), guess.max()))
        self.order = np.argsort(-guess, kind="stable")
        self.lengths = guess[self.order]

    def features(self, span: Span) -> dict[str, Any]:
        """Whatever the model's own tokenize gives."""
        batch = [self._texts[i] for i in self.order[slice(*span)]]
        return {**self._model.tokenize(batch, **self._way), **self._extra}


SAID = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What torch says on a GPU, on a CPU, and in a library on a GPU."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a forward pass means that the batch was too large.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or any(s in str(error) for s in SAID)


def let_end_pad(tokenizer: Any, family: Family | None) -> None:
    """Let the end token fill batches where a family has it so and the tokenizer names none."""
    if family is not None and family.end_pads and tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


def require_padding(tokenizer: Any) -> None:
    """Refuse a tokenizer that cannot fill a batch.

    Raises:
        ModelError: It has no padding token.
    """
    if tokenizer.pad_token_id is None:
        raise ModelError(
            "The model's tokenizer has no padding token, so texts of different lengths make no batch.",
            hint='Name the one it was trained with in a copy of the folder: "pad_token" in '
            "tokenizer_config.json.",
        )
