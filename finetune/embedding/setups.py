"""The parts of a training that depend on the kind of model: rows and their order, batches, network, folder.

The order of the rows is a pure function of seed, epoch and step.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer as LibrarySentenceTransformer
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from torch import nn

from finetune.embedding.settings import (
    ATTENTION,
    EmbeddingSettings,
    Loss,
    TrainerSettings,
    compute_set_probabilities,
)
from harness.core.arguments import list_allowed_tensors
from harness.core.errors import HarnessError
from harness.core.types import Artifact
from harness.data.training.loading import load_training
from harness.encoder.attentive_pooling import AttentivePooling
from harness.encoder.folder.description import describe
from harness.encoder.library_load import build_pooling, get_dimension
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.training.training import TrainingSpec

Rows = NDArray[np.int64]


class Order(Protocol):
    """The batches of a training; each one depends on the seed and its step alone."""

    @property
    def steps(self) -> int:
        """The number of batches."""

    def iter_batches(self, done: int) -> Iterator[Rows]:
        """The row numbers of each batch after the first `done`, group after group."""

    def count_epochs(self, step: int) -> float:
        """The epochs that have passed after a number of steps."""

    def count_batch_rows(self, step: int) -> int:
        """The number of rows of the batch of a step; steps count from 1."""

    def group(self, step: int) -> int:
        """The rows of a group of a batch, which one process computes; 0 where all share the batch."""


class BatchOrder:
    """The batches of a training, epoch after epoch, each of one or more groups of rows.

    Args:
        rows: The number of rows.
        size: Rows of a batch.
        epochs: Passes over the rows.
        seed: The seed of the training.
        texts: Numbers of the rows' texts, (rows, columns); rows that share one are not put into one group.
            None for plain shuffling.
        group: Rows of a group, which divides `size`; 0 for batches that all processes share.
        keeps_last: Whether the incomplete last batch of an epoch is kept.
        max_steps: The most batches; None for those of all epochs.
    """

    def __init__(
        self,
        rows: int,
        size: int,
        *,
        epochs: int,
        seed: int,
        texts: NDArray[np.uint64] | None = None,
        group: int = 0,
        keeps_last: bool = False,
        max_steps: int | None = None,
    ) -> None:
        self._rows, self._size, self._seed, self._texts = rows, size, seed, texts
        self._group, self._keeps_last = group, keeps_last
        self._built: tuple[int, list[Rows]] = (-1, [])
        # Epochs can differ in length where rows that share a text are kept apart.
        last = [self._measure_epoch(epoch) for epoch in range(epochs)]
        self._ends = list(accumulate(count for count, _ in last))
        self._sizes = [size for _, size in last]
        self.steps = min(self._ends[-1], max_steps or self._ends[-1])
        """The number of batches."""

    def iter_batches(self, done: int) -> Iterator[Rows]:
        """The row numbers of each batch after the first `done`, group after group."""
        return islice(self._iter_epoch_batches(done), max(0, self.steps - done))

    def _iter_epoch_batches(self, done: int) -> Iterator[Rows]:
        begin = 0
        for epoch, end in enumerate(self._ends):
            if done < end:
                yield from self._get_epoch_batches(epoch)[max(0, done - begin) :]
            begin = end

    def count_epochs(self, step: int) -> float:
        """The epochs that have passed after a number of steps."""
        begin = 0
        for epoch, end in enumerate(self._ends):
            if step < end:
                return epoch + (step - begin) / (end - begin)
            begin = end
        return float(len(self._ends))

    def count_batch_rows(self, step: int) -> int:
        """The number of rows of the batch of a step; steps count from 1."""
        epoch = bisect_left(self._ends, step)
        return self._sizes[epoch] if step == self._ends[epoch] else self._size

    def group(self, step: int) -> int:
        """The rows of a group; 0 where all processes share a batch."""
        return self._group

    def _measure_epoch(self, epoch: int) -> tuple[int, int]:
        """The number of batches of an epoch, and the rows of its last one."""
        if self._texts is None:
            full_batches, rest = divmod(self._rows, self._size)
            return (full_batches + 1, rest) if rest and self._keeps_last else (full_batches, self._size)
        # How many batches distinct texts allow is known only once they are built.
        batches = self._get_epoch_batches(epoch)
        return len(batches), len(batches[-1]) if batches else 0

    def _get_epoch_batches(self, epoch: int) -> list[Rows]:
        """The batches of an epoch; the last ones that were built are kept."""
        if self._built[0] != epoch:
            self._built = (epoch, self._build_epoch_batches(epoch))
        return self._built[1]

    def _build_epoch_batches(self, epoch: int) -> list[Rows]:
        # A generator for each epoch: a resumed training builds its epoch without those before it.
        order = np.random.default_rng([self._seed, epoch]).permutation(self._rows)
        if self._texts is not None:
            order = _group_distinct_rows(order, self._texts, self._group or self._size)
        full_rows = len(order) // self._size * self._size
        batches = [*order[:full_rows].reshape(-1, self._size)]
        return [*batches, order[full_rows:]] if self._keeps_last and full_rows < len(order) else batches


class PackedOrder(BatchOrder):
    """Batches of groups that were packed in advance, in an order of its own in each epoch, shuffled inside.

    Groups that are left at the end of an epoch are left out of it.

    Args:
        groups: (groups, size), the rows of each; see `pack_clusters`.
        epochs: Passes over the groups.
        seed: The seed of the training.
        each: Groups of a batch.
        max_steps: The most batches; None for those of all epochs.
    """

    def __init__(
        self, groups: Rows, *, epochs: int, seed: int, each: int = 1, max_steps: int | None = None
    ) -> None:
        self._packed, size = groups, groups.shape[1]
        group = size if each > 1 else 0
        super().__init__(groups.size, each * size, epochs=epochs, seed=seed, group=group, max_steps=max_steps)

    def _build_epoch_batches(self, epoch: int) -> list[Rows]:
        draw = np.random.default_rng([self._seed, epoch])
        order = draw.permutation(len(self._packed))
        rows = draw.permuted(self._packed[order], axis=1).ravel()
        return [*rows[: len(rows) // self._size * self._size].reshape(-1, self._size)]


@dataclass(frozen=True, kw_only=True)
class DrawnSet:
    """A set of a mix, as its batches are drawn.

    Attributes:
        name: The name in the log.
        rows: The number of rows.
        size: Rows of a group.
        labels: The numbers of what two rows of a group must not share, (rows, columns) of some rows; None
            where any rows may meet.
    """

    name: str
    rows: int
    size: int
    labels: Callable[[Rows], NDArray[np.uint64]] | None = None


class MixOrder:
    """The batches of a mix of sets, each of the rows of one set, which is drawn for every step.

    A set with n rows is drawn with a probability proportional to n^alpha. Rows are numbered from the first
    set's on. What a step draws follows from the seed and the step; with `turns`, also from the number of
    its set's batches before.

    Args:
        sets: The sets.
        steps: The number of batches.
        seed: The seed of the training.
        alpha: The exponent: 1 for batches in proportion to the rows, 0 for as many of each set.
        draws: "replacement": each batch has rows of the whole set; "turns": each pass over a set has every
            row once, but for those that fill no batch.
        groups: Groups of a batch.
    """

    def __init__(
        self,
        sets: Sequence[DrawnSet],
        *,
        steps: int,
        seed: int,
        alpha: float,
        draws: Literal["replacement", "turns"] = "replacement",
        groups: int = 1,
    ) -> None:
        self._sets, self._seed, self._groups = sets, seed, groups
        self._turns = draws == "turns"
        self._begins = [0, *accumulate(one.rows for one in sets)]
        chances = compute_set_probabilities([one.rows for one in sets], alpha)
        self._rows_of_step = float(sum(c * one.size * groups for c, one in zip(chances, sets, strict=True)))
        # The number behind the seed keeps draws apart: 0 of sets, 1 of batches, 2 of passes.
        self.drawn: Rows = np.random.default_rng([seed, 0]).choice(len(sets), size=steps, p=chances)
        """The number of the set of each batch."""
        sizes = np.array([one.size * groups for one in sets])[self.drawn]
        self._read = np.concatenate([[0], np.cumsum(sizes)])
        self._passes: dict[int, tuple[int, int, Rows]] = {}
        """Of each set the batches of a pass, with the number of those before and of the passes before."""

    @property
    def steps(self) -> int:
        """The number of batches."""
        return len(self.drawn)

    def count_mix_steps(self, epochs: int) -> int:
        """The number of batches that read, on average, as many rows as `epochs` passes over all sets."""
        return max(1, round(epochs * self._begins[-1] / self._rows_of_step))

    def name(self, step: int) -> str:
        """The name of the set of a step; steps count from 1."""
        return self._find_step_set(step).name

    def iter_batches(self, done: int) -> Iterator[Rows]:
        """The row numbers of each batch after the first `done`, group after group."""
        counts = np.bincount(self.drawn[:done], minlength=len(self._sets))
        for step in range(done + 1, self.steps + 1):
            number = int(self.drawn[step - 1])
            rows = (
                self._take_turn_batch(number, int(counts[number]))
                if self._turns
                else self._draw(number, step)
            )
            counts[number] += 1
            yield rows + self._begins[number]

    def count_epochs(self, step: int) -> float:
        """The rows that have been read after a number of steps, in passes over all sets."""
        return float(self._read[step] / self._begins[-1])

    def count_batch_rows(self, step: int) -> int:
        """The number of rows of the batch of a step; steps count from 1."""
        return self.group(step) * self._groups

    def group(self, step: int) -> int:
        """The rows of a group of a batch, which one process computes."""
        return self._find_step_set(step).size

    def _find_step_set(self, step: int) -> DrawnSet:
        return self._sets[int(self.drawn[step - 1])]

    def _draw(self, number: int, step: int) -> Rows:
        """The batch of a step: rows of the whole set, none of them twice."""
        drawn_set, draw = self._sets[number], np.random.default_rng([self._seed, 1, step])
        size = drawn_set.size * self._groups
        if drawn_set.rows < size:
            raise self._explain_row_shortage(number, drawn_set.rows)
        if drawn_set.labels is None:
            return draw.choice(drawn_set.rows, size=size, replace=False)
        # Twice as many rows as needed, since some share a text with their group; more where that is not
        # enough. Reading the labels of the whole set for every batch would take too long.
        tried = min(drawn_set.rows, 2 * size)
        while True:
            rows = draw.choice(drawn_set.rows, size=tried, replace=False)
            distinct_rows = rows[
                _group_distinct_rows(np.arange(tried), drawn_set.labels(rows), drawn_set.size)
            ]
            if len(distinct_rows) >= size:
                return distinct_rows[:size]
            if tried == drawn_set.rows:
                raise self._explain_row_shortage(number, len(distinct_rows))
            tried = min(drawn_set.rows, 4 * tried)

    def _take_turn_batch(self, number: int, before: int) -> Rows:
        """The batch of a set that follows `before` others of the set."""
        # A second iteration begins with the first batch again, as a mix does to hash the texts that were
        # drawn.
        if number not in self._passes or before < self._passes[number][0]:
            self._passes[number] = 0, 0, self._pass(number, 0)
        begin, done, batches = self._passes[number]
        while before >= begin + len(batches):
            begin, done = begin + len(batches), done + 1
            batches = self._pass(number, done)
        self._passes[number] = begin, done, batches
        batch: Rows = batches[before - begin]
        return batch

    def _pass(self, number: int, done: int) -> Rows:
        """The batches of a pass over a set, (batches, rows)."""
        drawn_set, size = self._sets[number], self._sets[number].size * self._groups
        rows = np.random.default_rng([self._seed, 2, number, done]).permutation(drawn_set.rows)
        if drawn_set.labels is not None:
            rows = rows[
                _group_distinct_rows(np.arange(drawn_set.rows), drawn_set.labels(rows), drawn_set.size)
            ]
        if len(rows) < size:
            raise self._explain_row_shortage(number, len(rows))
        return rows[: len(rows) // size * size].reshape(-1, size)

    def _explain_row_shortage(self, number: int, usable_rows: int) -> HarnessError:
        drawn_set, size = self._sets[number], self._sets[number].size * self._groups
        why = ", as no two of a group may have a text or a class in common" if drawn_set.labels else ""
        return HarnessError(
            f"{drawn_set.name}: of {drawn_set.rows:,} rows {usable_rows:,} can be in one batch of "
            f"{size}{why}.",
            hint="Give more data, or a smaller batch: --set batch_size=…",
        )


def pack_clusters(clusters: NDArray[np.int32], size: int, *, seed: int, tour: Sequence[int] = ()) -> Rows:
    """The rows of a set in batches: its clusters one after the other, cut at every `size` rows.

    So a batch has rows of one cluster, or of a few that follow each other. The rows that are left at the end
    are left out; those of each cluster come in a drawn order.

    Args:
        clusters: The cluster of each row, (rows,); -1 for a row that is left out.
        size: Rows of a batch.
        seed: The seed of the training.
        tour: The order of the clusters, which begins at a drawn one of them; empty for a drawn order.

    Returns:
        The rows of each batch, (batches, size).
    """
    # No epoch has this number, by which a BatchOrder with the same seed draws.
    draw = np.random.default_rng([seed, 2**32])
    cluster_numbers = np.unique(clusters[clusters >= 0])
    # A tour is followed as a ring, so that seeds differ in the pairs that are left at its end.
    order = np.roll(tour, -int(draw.integers(len(tour)))) if len(tour) else draw.permutation(cluster_numbers)
    places = np.full(int(cluster_numbers.max(initial=0)) + 1, -1, np.int64)
    places[order] = np.arange(len(order))
    rows = draw.permutation(np.flatnonzero(clusters >= 0))
    # Stable: the drawn order of a cluster's rows stays.
    rows = rows[np.argsort(places[clusters[rows]], kind="stable")]
    return rows[: len(rows) // size * size].reshape(-1, size)


def _group_distinct_rows(order: Rows, texts: NDArray[np.uint64], size: int) -> Rows:
    """Groups in the given order; a row that shares a text with its group waits for a later one.

    The last group may be incomplete; the rows that wait for one more are left out.
    """
    begin, waiting, groups = 0, order[:0], list[Rows]()
    while True:
        rows = np.concatenate([waiting, order[begin : begin + size]])
        group, passed = rows[:size], order[:0]
        # Most groups repeat no text: one call of np.unique is far cheaper than the loop over rows.
        if len(group) < size or len(np.unique(texts[group])) < texts[group].size:
            group, passed = _collect_distinct_group(chain(waiting, order[begin:]), texts, size)
        groups.append(group)
        if len(group) < size:
            return np.concatenate(groups)
        read = len(group) + len(passed)
        begin += max(0, read - len(waiting))
        waiting = np.concatenate([passed, waiting[read:]])


def _collect_distinct_group(
    rows: Iterable[np.int64], texts: NDArray[np.uint64], size: int
) -> tuple[Rows, Rows]:
    """The first rows that fit together, and those that were skipped on the way."""
    group: list[np.int64] = []
    passed: list[np.int64] = []
    seen: set[int] = set()
    for row in rows:
        text_hashes = texts[row].tolist()
        if seen.isdisjoint(text_hashes):
            group.append(row)
            seen.update(text_hashes)
        else:
            passed.append(row)
        if len(group) == size:
            break
    return np.array(group, dtype=np.int64), np.array(passed, dtype=np.int64)


def hash_table_texts(
    parts: Iterable[Mapping[str, Sequence[str]]], columns: Sequence[str]
) -> NDArray[np.uint64]:
    """A 64-bit hash of each text of a table that is read part by part, (rows, columns)."""
    hashes = [
        np.array([[_hash_text_number(text) for text in part[name]] for name in columns], dtype=np.uint64).T
        for part in parts
    ]
    return np.concatenate(hashes)


def _hash_text_number(text: str) -> int:
    # 64 bits: among 10 million texts two share a hash with a probability of 3e-6, which only keeps two rows
    # out of one group. Python's own hash differs from process to process.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


# The rows of one process


class NumberedRows:
    """Rows with their numbers, under the name that the library takes for labels."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, numbers: list[int]) -> list[dict[str, Any]]:
        columns = self._rows[numbers]
        # The library passes labels through to the loss as they are.
        values = zip(*columns.values(), numbers, strict=True)
        return [dict(zip((*columns, "label"), row, strict=True)) for row in values]


class Slices:
    """The rows of one process in each batch; as long as the whole training, also after a resume."""

    def __init__(self, order: Order, done: int, spec: TrainingSpec) -> None:
        self._order, self._done, self._spec = order, done, spec

    def __len__(self) -> int:
        return self._order.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step, rows in enumerate(self._order.iter_batches(self._done), self._done + 1):
            size = self._order.group(step) or len(rows) // self._spec.ranks
            groups = assign_groups(len(rows), size, self._spec)
            # A process without a group computes one row, which does not count.
            yield (rows[groups.start * size : groups.stop * size] if groups else rows[:1]).tolist()


def assign_groups(rows: int, size: int, spec: TrainingSpec) -> range:
    """The numbers of the groups that this process computes, in a batch of `rows` rows."""
    count = math.ceil(rows / size)
    return range(count * spec.rank // spec.ranks, count * (spec.rank + 1) // spec.ranks)


class Setup(ABC):
    """The parts of a training that depend on the kind of model: data, network, loss and folder.

    Args:
        settings: The settings of the recipe.

    Attributes:
        caches: Whether a step is the same with fewer rows in a pass.
        evaluate_every: Steps from one evaluation of the selection to the next.
        numbered: Whether the loss is given the numbers of the rows, as its labels.
        labels_on_host: Whether the loss reads its labels on the CPU.
    """

    caches = True
    evaluate_every = 1
    numbered = False
    labels_on_host = False

    def __init__(self, settings: TrainerSettings) -> None:
        self._trainer_settings = settings

    def load_training_rows(self, spec: TrainingSpec) -> Any:
        """The training rows: a table, or what gives rows by their numbers (`__getitems__`).

        By default those of all training sets, under the column names of the first.
        """
        first, *others = [load_training(part, cache=spec.cache) for part in spec.data]
        names = first.column_names
        renamed = [part.rename_columns(dict(zip(part.column_names, names, strict=True))) for part in others]
        return concatenate_datasets([first, *renamed]) if others else first

    def build_order(self, data: Any, spec: TrainingSpec) -> Order:
        """The batches of the rows, by default those that the settings name."""
        return batch_order(data, spec, self._trainer_settings)

    @abstractmethod
    def build_model(self, spec: TrainingSpec) -> LibrarySentenceTransformer:
        """The model before its first step."""

    @abstractmethod
    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """The loss of a batch.

        Args:
            model: The model in training.
            micro_batch: The most rows in a pass; None for a whole batch.
            gather: Whether texts of other processes are candidates too.
        """

    def build_collator(self, model: Any) -> Any:
        """A function that turns rows into the inputs of a step; None for sentence-transformers' own."""
        return None

    def score_selection(self, model: Any, data: Dataset) -> float:
        """The score of a model on the data by which the best checkpoint is chosen."""
        raise NotImplementedError

    def describe_step(self, step: int) -> Mapping[str, Any]:
        """Further values of a step for the log, beside those that are measured."""
        return {}

    @abstractmethod
    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the trained model."""


class EmbeddingSetup(Setup):
    """The training of a model with one vector for each text: a backbone with a new pooling.

    Args:
        settings: The settings of the recipe.
        loss: The loss of the recipe.
        caches: Whether the loss gives the same step with fewer rows in a pass.
    """

    def __init__(self, settings: EmbeddingSettings, loss: Loss, *, caches: bool) -> None:
        super().__init__(settings)
        self.caches, self.evaluate_every = caches, settings.evaluate_every
        self._settings, self._loss = settings, loss
        self._length: int | None = None

    def build_model(self, spec: TrainingSpec) -> LibrarySentenceTransformer:
        """The backbone with a new pooling and its prompts; texts are cut at the training's length."""
        settings, transformer = self._settings, open_backbone(spec)
        width = get_dimension(transformer)
        pooling: nn.Module = (
            AttentivePooling(width, heads=settings.heads)
            if settings.pooling == ATTENTION
            else build_pooling(width, [settings.pooling])
        )
        model = SentenceTransformer(
            modules=[transformer, pooling],
            device=spec.device,
            similarity_fn_name="cosine",
            local_files_only=True,
        )
        keep_prompts(model, spec)
        # Only the training cuts texts shorter; the finished model keeps this length.
        self._length = model.max_seq_length or settings.max_length
        model.max_seq_length = min(filter(None, (settings.max_length, self._length)), default=None)
        return model

    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """The loss of the recipe."""
        return self._loss(model, self._settings, micro_batch=micro_batch, gather=gather)

    def score_selection(self, model: Any, data: Dataset) -> float:
        """Spearman's correlation of cosines with the scores of pairs, at the model's own length."""
        first, second, gold = (list(data[name]) for name in data.column_names[:3])
        evaluator = EmbeddingSimilarityEvaluator(
            first, second, gold, main_similarity="cosine", batch_size=64, write_csv=False
        )
        cut, model.max_seq_length = model.max_seq_length, self._length
        score = float(evaluator(model)["spearman_cosine"])
        model.max_seq_length = cut
        # NaN, where all cosines are equal, counts as the worst score.
        return score if math.isfinite(score) else -1.0

    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the model with its own length."""
        model.max_seq_length = self._length
        model.save(str(folder), create_model_card=False)


def batch_order(data: Dataset, spec: TrainingSpec, settings: TrainerSettings) -> BatchOrder:
    """The shuffled batches of rows; with "no_duplicates" no text of any column occurs twice in a batch.

    Args:
        data: The training rows.
        spec: The training, for its seed.
        settings: The size and kind of batches, and the epochs.

    Raises:
        HarnessError: The rows do not fill a batch.
    """
    texts = None
    if settings.batches == "no_duplicates":
        texts = hash_table_texts(data.iter(batch_size=10_000), data.column_names)
    order = BatchOrder(
        len(data),
        settings.batch_size,
        epochs=settings.epochs,
        seed=spec.seed,
        texts=texts,
        group=settings.group,
        keeps_last=settings.last_batch == "kept",
        max_steps=settings.max_steps,
    )
    if order.steps == 0:
        raise HarnessError(
            f"The data has {len(data)} rows, which do not fill a batch of {settings.batch_size}.",
            hint="Give more data, or a smaller batch: --set batch_size=…",
        )
    return order


def open_backbone(spec: TrainingSpec) -> Any:
    """The Transformer module of a spec's backbone in float32, on the training's device."""
    return open_whole(spec)[0]


def open_whole(spec: TrainingSpec) -> Any:
    """The model of a spec's backbone with all its modules, as `open_backbone` opens the first one."""
    backbone = spec.backbone
    return SentenceTransformer(
        str(backbone.folder),
        device=spec.device,
        local_files_only=True,
        trust_remote_code=backbone.trust_remote_code,
        model_kwargs=build_backbone_args(backbone),
    )


def build_backbone_args(backbone: Artifact) -> dict[str, Any]:
    """The arguments with which the weights of a backbone are loaded to be trained."""
    extra = {"allow_extra": patterns} if (patterns := list_allowed_tensors(backbone.allow)) else {}
    return {"dtype": torch.float32, "weights_only": True, **extra}


def keep_prompts(model: LibrarySentenceTransformer, spec: TrainingSpec) -> None:
    """Give a model the prompts of its backbone; the library would add empty ones."""
    described = describe(spec.backbone.folder, own_code=spec.backbone.trust_remote_code)
    model.prompts = dict(described.prompts)
    model.default_prompt_name = described.default_prompt_name


def set_dropout(model: nn.Module, share: float) -> None:
    """Set every dropout of a model: the modules, and the shares that attention has as plain numbers."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        for name in ("dropout", "attention_dropout", "dropout_prob"):
            # By type: some families have a module or a method under these names.
            if type(getattr(module, name, None)) in (int, float):
                setattr(module, name, share)
