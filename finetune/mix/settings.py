"""The sets of a mix, the settings of a training on it, and instructions of a user's own."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator

from finetune.embedding.settings import EmbeddingSettings, Rule
from harness.core.errors import UsageError, ask_for_names
from harness.core.types import SIDES
from harness.data.training.sets import TrainingData

Part = TypeVar("Part")

Texts = tuple[tuple[str, str], ...]
"""Texts by name, sorted by name."""


@dataclass(frozen=True, kw_only=True)
class MixSet:
    """A set of a mix.

    Attributes:
        name: The name by which it is chosen and replaced.
        data: Its data, the rows of all parts together.
        instruction: The instruction of its texts.
        divisor: A group of it has batch_size // divisor rows; 0 for the mean number of texts of its rows,
            rounded up.
        own: The user's own data in place of `data`, as it was typed.
        note: What is not the paper's or the code's, if it is ours.
    """

    name: str
    data: tuple[TrainingData, ...] = ()
    instruction: str = ""
    divisor: int = 0
    own: str = ""
    note: str = ""

    @property
    def parts(self) -> tuple[TrainingData | str, ...]:
        """What is read: data sets, or the user's own as it was typed."""
        return (self.own,) if self.own else self.data


@dataclass(frozen=True, kw_only=True)
class _OwnInstructions:
    """Instructions of a user's own, which replace those of the recipe.

    Attributes:
        training: By the name of a set.
        evaluation: By the name of a prompt: a task or a type of tasks, perhaps with a side behind a hyphen.
    """

    training: Texts = ()
    evaluation: Texts = ()

    def __str__(self) -> str:
        """The names of the sets and prompts that have one."""
        return ", ".join(name for name, _ in (*self.training, *self.evaluation))

    @staticmethod
    def read(given: object) -> object:
        """The instructions in a JSON or TOML file with the tables `training` and `evaluation`.

        Raises:
            UsageError: It cannot be read, or has another form.
        """
        if not isinstance(given, str | os.PathLike):
            return given
        if not os.fspath(given) or os.fspath(given).lower() == "none":
            return _OwnInstructions()
        path = Path(given)
        try:
            text = path.read_text(encoding="utf-8")
            tables = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except (OSError, ValueError) as error:
            raise UsageError(f"The instructions in {path} cannot be read: {error}.", hint=_FORM) from None
        if not isinstance(tables, dict):
            raise UsageError(f"{path} has no tables training and evaluation.", hint=_FORM)
        if strange := [*tables.keys() - {"training", "evaluation"}]:
            raise UsageError(
                f"{path} has a table {strange[0]!r}; there are training and evaluation.", hint=_FORM
            )
        return _OwnInstructions(
            training=_parse_instruction_table(tables.get("training", {}), path, sided=False),
            evaluation=_parse_instruction_table(tables.get("evaluation", {}), path, sided=True),
        )


_FORM = (
    'As JSON e.g. {"training": {"QQP": "Find duplicates."}, "evaluation": {"STS": "Find similar text.", '
    '"SciFact": {"query": "Find evidence.", "document": "Read the abstract."}}}; TOML has the same tables.'
)


def _parse_instruction_table(table: Any, path: Path, *, sided: bool) -> Texts:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: a table of names and texts is needed.", hint=_FORM)
    texts: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, str):
            texts[name] = value
        elif sided and isinstance(value, dict) and value.keys() == set(SIDES):
            texts |= {f"{name}-{side}": value[side] for side in SIDES}
        else:
            also = f", nor one of {' and one of '.join(SIDES)}" if sided else ""
            raise UsageError(f"{path}: the instruction of {name} is not text{also}.", hint=_FORM)
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise UsageError(f"{path}: the instruction of {wrong[0]} is not text.", hint=_FORM)
    return tuple(sorted(texts.items()))


@dataclass(frozen=True, kw_only=True)
class MixSettings(EmbeddingSettings):
    """Every setting of a training on a mix of sets.

    Attributes:
        batch_size: A group has batch_size // divisor rows of its set (`data`).
        groups: Groups of an optimizer step. For each step one set is drawn, of which all its groups have
            rows; the loss of the step is the mean of theirs. Texts of other groups are no negatives. As many
            devices can share a step.
        alpha: A set with n rows is drawn with a probability proportional to n to the power of alpha; n counts
            the rows that a filter leaves and that have a query and a positive.
        draws: "replacement": each step has rows drawn from its whole set, none of them twice; "turns": a row
            comes again only after every other row of its set has come, or was left over because it filled no
            batch. Of a set of classes, or with `distinct`, no two rows of a group have a class, query or
            positive in common: a row that would repeat one waits for the step's next group. "replacement"
            then draws twice the rows of a step, and four times as many until enough fit; the rest is dropped.
        sets: The sets that are trained on; none for all.
        distinct: Whether no text of a query or positive occurs twice in a group.
        reduction: The loss of a group: the mean over its queries, or the sum.
        instructions: The texts that have an instruction before them, in training and in evaluation, as
            `[CLS] instruction [SEP] [CLS] text [SEP]` with the backbone's tokens, which max_length counts,
            all of the first token type: those of both sides (in training the one of their set), queries
            alone, or none. A blank is before the second [CLS], in training as in `prompts`, which a
            byte-level tokenizer, as ModernBERT's, makes a token of.
        pool_instruction: Whether the tokens of an instruction are part of the mean over a text's tokens.
        instruction_file: A file of instructions of one's own (docs/training.md); none for the recipe's.
        dropout: The probability of dropout of embeddings, of attention's weights and output, and of the MLP's
            inner values and output, in BERT, ModernBERT, NeoBERT and whatever else our network runs; in any
            other backbone of what its class in transformers has; none for the backbone's own.
    """

    groups: int = 1
    alpha: float = 0.5
    draws: Literal["replacement", "turns"] = "replacement"
    sets: tuple[str, ...] = ()
    distinct: bool = False
    reduction: Literal["mean", "sum"] = "mean"
    instructions: Literal["both", "query", "none"] = "both"
    pool_instruction: bool = True
    instruction_file: Annotated[_OwnInstructions, BeforeValidator(_OwnInstructions.read)] = field(
        default_factory=_OwnInstructions
    )
    dropout: float | None = None

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that change nothing beside the others; draws decide on batches."""
        unused = {
            "epochs": self.max_steps is not None,
            "sets": not self.sets,
            "instruction_file": self.instruction_file == _OwnInstructions(),
            "pool_instruction": self.instructions == "none",
        }
        always = {"batches", "last_batch", "group_size"}
        return super().inert | always | {name for name, holds in unused.items() if holds}

    @property
    def identity(self) -> Self:
        """The settings that are in the key: those that change the result and are not in the mix."""
        # Instructions of training are in the key with each set of the mix, in the lineage.
        own_instructions = replace(self.instruction_file, training=())
        # With a number of steps the epochs say nothing.
        epochs = self.epochs if self.max_steps is None else 1
        return replace(super().identity, sets=(), instruction_file=own_instructions, epochs=epochs)

    def limit_devices(self, most: int) -> int:
        """The number of devices that can share a step, which divides the number of its groups."""
        # One device always divides them.
        return next(count for count in range(min(most, self.groups), 0, -1) if self.groups % count == 0)

    def compute_pass_size(self, rows: int, limit: int | None) -> int | None:
        """The texts of each pass through the network; None for one pass of each column."""
        return limit or self.chunk or None

    def count_group_rows(self, divisor: int) -> int:
        """The rows of a group of a set, 0 where its divisor is larger than the texts of a group."""
        return self.batch_size // divisor

    def explain_empty_group(self, name: str, divisor: int) -> UsageError:
        """The error for a set whose groups would be empty."""
        return UsageError(
            f"A group of {name} has {self.batch_size} // {divisor} = 0 rows.",
            hint=f"Type --set batch_size={divisor} or more, or leave the set out: --set sets=…",
        )

    def _iter_rules(self) -> Iterator[Rule]:
        yield from super()._iter_rules()
        yield "groups", self.groups >= 1, "1 or more"
        yield "alpha", 0 <= self.alpha < math.inf, "0 or more"
        yield "dropout", self.dropout is None or 0 <= self.dropout < 1, "a share below 1, or none"
        yield "group_size", self.group_size == 0, "0; groups is the number of groups of a step"
        yield ("pooling", self.pool_instruction or self.pooling == "mean", "mean, or pool_instruction=true")
        if twice := [name for name in self.sets if self.sets.count(name) > 1]:
            raise UsageError(f"sets names {twice[0]} twice.", hint="Name each set once.")


def explain_unknown_set(name: str, set_names: Sequence[str]) -> UsageError:
    """The error for a name of no set, with the nearest names and with all of them."""
    hint = f"{ask_for_names(name, set_names)}The sets are: {', '.join(set_names)}."
    return UsageError(f"No set of this mix is called {name!r}.", hint=hint)


def split_set_parts(sets: Sequence[MixSet], data: Sequence[Part]) -> list[tuple[MixSet, Sequence[Part]]]:
    """Split a sequence over the parts of all sets, in their order, into one slice for each set."""
    ends = [*accumulate(len(one.parts) for one in sets)]
    return [(one, data[end - len(one.parts) : end]) for one, end in zip(sets, ends, strict=True)]


def choose_sets(sets: Mapping[str, MixSet], names: tuple[str, ...]) -> tuple[MixSet, ...]:
    """The sets with the given names; all sets where none is given.

    Raises:
        UsageError: A name is unknown; the message lists the sets.
    """
    for name in names:
        if name not in sets:
            raise explain_unknown_set(name, [*sets])
    return tuple(one for name, one in sets.items() if not names or name in names)
