"""What a model's first module is fed: texts tokenized once, sorted, padded batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.encoder.batching import Span
from harness.encoder.padding import require_padding
from harness.encoder.towers import input_modules, route
from harness.types import Role

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

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
