"""The training on a mix of data sets: its rows, their instructions, and batches of one set each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from finetune.embedding.instructions import InstructionFormat
from finetune.embedding.losses import build_mix_loss
from finetune.embedding.settings import info_nce
from finetune.embedding.setups import DrawnSet, EmbeddingSetup, MixOrder, Rows, hash_table_texts, set_dropout
from finetune.mix.settings import MixSet, MixSettings, split_set_parts
from harness.core.errors import HarnessError
from harness.data.training.loading import add_text_hashes, load_rows
from harness.data.training.text_rows import TextRow, TextRows, join_rows
from harness.encoder.library_load import (
    build_pooling,
    count_prompt_tokens,
    get_pooled_dimension,
    tokenize_batch,
)
from harness.training.training import TrainingSpec

SAMPLE = 1_000
"""The first rows, whose mean number of texts stands for that of all rows."""

_PART = 1_000
"""Rows that are read at once to hash their texts."""


class MixRows:
    """The rows of all sets of a mix, numbered one set after the other.

    Args:
        sets: The rows of each set.
    """

    def __init__(self, sets: Sequence[TextRows]) -> None:
        self.sets = sets
        self._ends = np.cumsum([len(one) for one in sets])

    def __len__(self) -> int:
        """The number of rows of all sets."""
        return int(self._ends[-1])

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[int, TextRow]]:
        """The rows of a batch, which are of one set, each with the number of the set."""
        # From the right: the row with the number of an end is the first one of the next set.
        number = int(np.searchsorted(self._ends, numbers[0], side="right"))
        begin = int(self._ends[number]) - len(self.sets[number])
        return [(number, row) for row in self.sets[number].read_text_rows([one - begin for one in numbers])]


class MixSetup(EmbeddingSetup):
    """The training of a model with one vector for each text on a mix of sets.

    Args:
        settings: The settings of the recipe.
        sets: The sets of the mix, whose parts are the spec's data, one after the other.
        prompts: The prompts of the finished model.
    """

    labels_on_host = True

    def __init__(self, settings: MixSettings, sets: Sequence[MixSet], prompts: Mapping[str, str]) -> None:
        super().__init__(settings, info_nce, caches=True)
        self._mix, self._sets, self._prompts = settings, sets, prompts
        self._order: MixOrder
        self._rows: MixRows
        self._spec: TrainingSpec

    def load_training_rows(self, spec: TrainingSpec) -> MixRows:
        """The rows of all sets; those that have no query or no positive are left out, and a note says so."""
        set_rows = []
        for mix_set, located in split_set_parts(self._sets, spec.data):
            parts = [load_rows(part, cache=spec.cache) for part in located]
            rows = join_rows(parts) if len(parts) > 1 else parts[0]
            if rows.left_out:
                spec.log.note(f"{rows.left_out:,} rows of {mix_set.name} without a text are left out")
            set_rows.append(rows)
        self._rows, self._spec = MixRows(set_rows), spec
        return self._rows

    def build_order(self, data: Any, spec: TrainingSpec) -> MixOrder:
        """Batches of one set each.

        Raises:
            HarnessError: A set has fewer rows than a batch of it, or fewer classes than a group.
            UsageError: A group of a set has no rows.
        """
        settings, drawn = self._mix, []
        for mix_set, rows in zip(self._sets, data.sets, strict=True):
            divisor = mix_set.divisor or _estimate_row_texts(rows)
            size = settings.count_group_rows(divisor)
            if not size:
                raise settings.explain_empty_group(mix_set.name, divisor)
            if len(rows) < size * settings.groups:
                raise HarnessError(
                    f"{mix_set.name} has {len(rows):,} rows, and a batch of it has "
                    f"{size * settings.groups:,}.",
                    hint="Give more of them, leave the set out (--set sets=…), or type --set batch_size=…",
                )
            if 0 < rows.class_count < size:
                raise HarnessError(
                    f"{mix_set.name} has {rows.class_count} classes, and a group of it {size} rows, no two "
                    "of one class.",
                    hint="Type a smaller --set batch_size=…, or leave the set out: --set sets=…",
                )
            labels = partial(_hash_row_labels, rows) if settings.distinct or rows.class_count else None
            drawn.append(DrawnSet(name=mix_set.name, rows=len(rows), size=size, labels=labels))
        # The steps follow from the mean rows of a step, which an order without any step already knows.
        order_factory = partial(
            MixOrder,
            drawn,
            seed=spec.seed,
            alpha=settings.alpha,
            draws=settings.draws,
            groups=settings.groups,
        )
        self._order = order_factory(
            steps=settings.max_steps or order_factory(steps=0).count_mix_steps(settings.epochs)
        )
        return self._order

    def build_model(self, spec: TrainingSpec) -> Any:
        """The backbone with a new pooling, the prompts of the recipe and its dropout."""
        model: Any = super().build_model(spec)
        if self._mix.instructions != "none":
            model.prompts, model.default_prompt_name = dict(self._prompts), None
        if not self._mix.pool_instruction:
            # include_prompt=False leaves out the first `prompt_length` tokens, which the collator counts.
            model[1] = build_pooling(get_pooled_dimension(model[1]), ["mean"], include_prompt=False)
        if self._mix.dropout is not None:
            set_dropout(model, self._mix.dropout)
        return model

    def build_collator(self, model: Any) -> _MixCollator:
        """Tokenizes the rows of a batch with the instructions of their set."""
        form = InstructionFormat.read_instruction_format(self._spec.backbone.folder)
        texts = [form.format_prompt(one.instruction) for one in self._sets]
        sides = (self._mix.instructions != "none", self._mix.instructions == "both")
        prompts = [(text if sides[0] else "", text if sides[1] else "") for text in texts]
        return _MixCollator(model, prompts, lengths=not self._mix.pool_instruction)

    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """InfoNCE over the texts of each group, which no other process shares."""
        return build_mix_loss(
            model,
            self._mix.scale,
            groups=self._mix.groups // self._spec.ranks,
            summed=self._mix.reduction == "sum",
            micro_batch=micro_batch,
        )

    def describe_step(self, step: int) -> Mapping[str, Any]:
        """The set of a step."""
        return {"set": self._order.name(step)}

    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the model with its own length, and the hashes of the texts that were drawn."""
        super().save_model_folder(model, folder)
        add_text_hashes(self._iter_batch_texts(), folder, parents=[self._spec.backbone.folder])

    def _iter_batch_texts(self) -> Iterator[list[str]]:
        """The texts of each batch."""
        # The order is drawn once more, from the first step on: a resumed process has not seen all batches.
        for numbers in self._order.iter_batches(0):
            rows = self._rows.__getitems__(numbers.tolist())
            yield [text for _, row in rows for text in (row.query, row.positive, *row.negatives)]


class _MixCollator:
    """Makes the inputs of a step of rows of one set.

    The columns are queries, positives, and all negatives row after row, which are left out where there are
    none; the labels are the numbers of negatives of the rows.

    Args:
        model: The model in training.
        prompts: The prompts of queries and documents of each set.
        lengths: Whether the lengths of prompts are given, for a pooling that leaves them out.

    Raises:
        HarnessError: The library takes a prompt for longer or shorter than it is.
    """

    def __init__(self, model: Any, prompts: Sequence[tuple[str, str]], *, lengths: bool) -> None:
        self._model, self._prompts, self._lengths = model, prompts, lengths
        self.valid_label_columns = ["label"]
        for pair in prompts if lengths else ():
            for prompt in filter(None, pair):
                _require_length(model, prompt)

    def __call__(self, rows: Sequence[tuple[int, TextRow]]) -> dict[str, Tensor]:
        """The tokens of the columns, `{column}_{feature}`, and `label`, (rows,)."""
        query, document = self._prompts[rows[0][0]]
        texts = [row for _, row in rows]
        columns = {
            "query": (query, [row.query for row in texts]),
            "positive": (document, [row.positive for row in texts]),
            "negative": (document, [text for row in texts for text in row.negatives]),
        }
        features = {"label": torch.tensor([len(row.negatives) for row in texts])}
        for name, (prompt, column) in columns.items():
            if column:
                features |= {
                    f"{name}_{key}": value for key, value in self._tokenize_column(prompt, column).items()
                }
        return features

    def _tokenize_column(self, prompt: str, texts: Sequence[str]) -> dict[str, Tensor]:
        features: dict[str, Tensor] = tokenize_batch(self._model, [prompt + text for text in texts])
        if self._lengths and prompt:
            length: Any = count_prompt_tokens(self._model, self._model[0], prompt)
            features["prompt_length"] = torch.full((len(texts),), length, dtype=torch.int)
        return features


def _require_length(model: Any, prompt: str) -> None:
    """Refuse a prompt whose length the library counts wrongly; it is left out of vectors by that length."""
    # The tokens up to the first that differs between two texts are those of the prompt.
    ids = [tokenize_batch(model, [prompt + text])["input_ids"][0].tolist() for text in ("one", "other")]
    same = next((at for at, pair in enumerate(zip(*ids, strict=False)) if pair[0] != pair[1]), None)
    counted = count_prompt_tokens(model, model[0], prompt)
    if same != counted:
        raise HarnessError(
            f"The prompt {prompt!r} has {same} tokens, and sentence-transformers counts {counted}, so that "
            "it cannot be left out of the mean.",
            hint="Leave its tokens in: --set pool_instruction=true.",
        )


def _estimate_row_texts(rows: TextRows) -> int:
    """The mean number of texts of the first rows, rounded up."""
    sample = rows.read_text_rows(range(min(SAMPLE, len(rows))))
    return math.ceil(sum(2 + len(row.negatives) for row in sample) / len(sample))


def _hash_row_labels(rows: TextRows, numbers: Rows) -> NDArray[np.uint64]:
    """The hashes of what two rows of a group must not share: query, positive, and a class if there is one."""
    # Part by part: the rows that are drawn of a large set need not fit into memory.
    parts = (
        rows.read_text_rows(numbers[start : start + _PART].tolist())
        for start in range(0, len(numbers), _PART)
    )
    columns = (
        {
            "query": [row.query for row in part],
            "positive": [row.positive for row in part],
            "class": [f"class {row.label}" for row in part],
        }
        for part in parts
    )
    return hash_table_texts(columns, ("query", "positive", *(["class"] if rows.class_count else [])))
