"""Contrastive losses of sentence-transformers over groups of rows that are candidates for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from sentence_transformers.util import all_gather_with_grad, cos_sim
from torch import Tensor, cat, nn
from torch.nn.functional import cross_entropy, normalize

from finetune.gpu_steps import choose_sum_dtype


def build_grouped_loss(
    model: SentenceTransformer, scale: float, *, group: int, micro_batch: int | None
) -> nn.Module:
    """InfoNCE over cosines times `scale`, in groups of rows.

    Args:
        model: The model in training.
        scale: The factor of cosines.
        group: Rows that are candidates for each other.
        micro_batch: The most rows in a pass; None for all of a batch.
    """
    if micro_batch is None:
        return _GroupedLoss(model, scale, group)
    return _CachedGroupedLoss(model, scale, group, micro_batch)


class _GroupedLoss(MultipleNegativesRankingLoss):
    """The mean of the losses of all groups, each (group, dimensions) in every column.

    With several processes `share` is the part of this process in the mean, times the number of processes.
    """

    share = 1.0

    def __init__(self, model: SentenceTransformer, scale: float, group: int) -> None:
        super().__init__(model, scale=scale)
        self.group = group

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        """The loss of a batch, each column (rows, dimensions)."""
        groups = [*_iter_column_groups(embeddings, self.group)]
        # Before Python 3.12 a comprehension is a function of its own, in which plain super() fails.
        parts = [super(_GroupedLoss, self).compute_loss_from_embeddings(one, labels) for one in groups]
        return sum(parts[1:], parts[0]) * (self.share / len(parts))


class _CachedParts(CachedMultipleNegativesRankingLoss):
    """A loss that is the sum of parts, with `mini_batch_size` texts in a pass through the model."""

    def iter_loss_parts(self, columns: list[Tensor], labels: Tensor, chunk: int | None) -> Iterator[Tensor]:
        """The parts of the loss of a batch, each column (rows, dimensions)."""
        raise NotImplementedError

    def compute_library_loss(self, group: list[Tensor]) -> Tensor:
        """The mean loss of a group as the library computes it."""
        return super().calculate_loss([[column] for column in group])

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """The loss of a batch of tokenized columns."""
        # The library passes no labels on to calculate_loss.
        self._labels = labels
        return super().forward(sentence_features, labels)

    def calculate_loss(self, reps: list[list[Tensor]], *_labels: Any, with_backward: bool = False) -> Tensor:
        """The loss of embeddings that are computed already, each column in chunks; since 5.4 with labels."""
        total = reps[0][0].new_zeros(())
        for part in self.iter_loss_parts(
            [cat(column) for column in reps], self._labels, self.mini_batch_size
        ):
            # At once: the graph of a part is freed before the next one is built.
            if with_backward:
                part.backward()
            total = total + (part.detach() if with_backward else part)
        return total


class _CachedGroupedLoss(_CachedParts):
    """The same loss with `chunk` rows in a pass."""

    share = 1.0

    def __init__(self, model: SentenceTransformer, scale: float, group: int, chunk: int) -> None:
        super().__init__(model, scale=scale, mini_batch_size=chunk)
        self.group = group

    def iter_loss_parts(self, columns: list[Tensor], labels: Tensor, chunk: int | None) -> Iterator[Tensor]:
        """The losses of the groups with their weights in the mean."""
        groups = [*_iter_column_groups(columns, self.group)]
        yield from (self.compute_library_loss(group) * (self.share / len(groups)) for group in groups)


def _iter_column_groups(columns: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    """The columns of each group; the last one may have fewer rows."""
    yield from map(list, zip(*(column.split(size) for column in columns), strict=True))


# Both directions


def build_symmetric_loss(
    model: SentenceTransformer, scale: float, *, micro_batch: int, gather: bool
) -> CachedMultipleNegativesRankingLoss:
    """The mean of the cross-entropies of queries among documents and of documents among queries.

    Args:
        model: The model in training.
        scale: The factor of cosines.
        micro_batch: The most rows in a pass.
        gather: Whether texts of other processes are candidates too.
    """
    return CachedMultipleNegativesRankingLoss(
        model,
        scale=scale,
        mini_batch_size=micro_batch,
        gather_across_devices=gather,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )


# Any number of negatives


def build_mix_loss(
    model: SentenceTransformer, scale: float, *, groups: int, summed: bool, micro_batch: int | None
) -> nn.Module:
    """InfoNCE over cosines for rows with any number of negatives, the mean over groups of rows.

    The labels of a batch are the numbers of negatives of its rows; all negatives are one column, row after
    row, which is left out where there are none. The candidates of a query are the positives and the
    negatives of its group.

    Args:
        model: The model in training.
        scale: The factor of cosines.
        groups: Groups of this process's rows, all of one size.
        summed: Whether a group counts with the sum over its queries in place of their mean.
        micro_batch: The most texts in a pass; None for all of a column.
    """
    if micro_batch is None:
        return _MixLoss(model, scale, groups=groups, summed=summed)
    return _CachedMixLoss(model, scale, micro_batch, groups=groups, summed=summed)


class _MixParts:
    """The groups of a batch of rows with any number of negatives, and their weights in its loss."""

    share = 1.0

    def __init__(self, *, groups: int, summed: bool) -> None:
        self._groups, self._summed = groups, summed

    def iter_loss_parts(self, columns: list[Tensor], labels: Tensor, chunk: int | None) -> Iterator[Tensor]:
        """The loss of each group with its weight; the labels are the negatives of each row."""
        size = len(labels) // self._groups
        weight = self.share * (size if self._summed else 1) / self._groups
        parts = [column.split(size) for column in columns[:2]]
        if len(columns) > 2:
            parts.append(columns[2].split(labels.view(self._groups, size).sum(dim=1).tolist()))
        for group in zip(*parts, strict=True):
            yield cast(Any, self).compute_library_loss(list(group)) * weight


class _MixLoss(_MixParts, MultipleNegativesRankingLoss):
    """The loss of whole columns."""

    def __init__(self, model: SentenceTransformer, scale: float, **how: Any) -> None:
        MultipleNegativesRankingLoss.__init__(self, model, scale=scale)
        _MixParts.__init__(self, **how)

    def compute_library_loss(self, group: list[Tensor]) -> Tensor:
        """The mean loss of a group as the library computes it, without labels."""
        return super().compute_loss_from_embeddings(group, group[0])

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        """The loss of a batch: queries, positives (rows, dimensions), and all negatives."""
        return sum(self.iter_loss_parts(embeddings, labels, None), embeddings[0].new_zeros(()))


class _CachedMixLoss(_MixParts, _CachedParts):
    """The same loss with `chunk` texts in a pass."""

    def __init__(self, model: SentenceTransformer, scale: float, chunk: int, **how: Any) -> None:
        _CachedParts.__init__(self, model, scale=scale, mini_batch_size=chunk)
        _MixParts.__init__(self, **how)


# Without false negatives


@dataclass(frozen=True, kw_only=True)
class NegativeFilter:
    """A filter of false negatives: a frozen guide finds texts that are too similar to a query.

    Attributes:
        vectors: Called with row numbers; gives the guide's vectors of each column, (rows, dimensions).
        margin: A text is masked where the guide finds it at least as similar as the query's own positive
            plus this.
        threshold: In place of the margin, the similarity from which on a text is masked.
    """

    vectors: Callable[[Sequence[int]], Sequence[Tensor]]
    margin: float = 0.0
    threshold: float | None = None

    def mask(self, rows: Tensor, query_places: Tensor) -> Tensor:
        """Whether each text is masked for each query; its own texts never are.

        Cosines to equal texts are equal, as each text is multiplied once.

        Args:
            rows: The numbers of all rows whose texts are candidates, (rows,).
            query_places: The places in `rows` of the queries, (queries,).

        Returns:
            (queries, rows × columns but the first), on the device of `rows`.
        """
        queries, *columns = (part.to(rows.device) for part in self.vectors(rows.tolist()))
        # A matrix product may round equal columns differently, and the default margin is 0: a copy of the
        # positive has to have exactly its cosine.
        texts, places = torch.unique(cat(columns), dim=0, return_inverse=True)
        scores = (normalize(queries[query_places]) @ normalize(texts).T)[:, places]
        each = torch.arange(len(query_places), device=rows.device)
        limit = scores[each, query_places].unsqueeze(1) + self.margin
        mask = scores >= (limit if self.threshold is None else self.threshold)
        for number in range(len(columns)):
            mask[each, query_places + number * len(rows)] = False
        return mask


class InfoNCE:
    """InfoNCE over cosines of vectors, perhaps without false negatives.

    Args:
        negatives: The filter; None for none.
        scale: The factor of cosines.
        group: Rows that are candidates for each other; 0 for all.
        gather: Whether texts of other processes are candidates too, without groups.
    """

    share = 1.0

    def __init__(
        self, negatives: NegativeFilter | None, scale: float, *, group: int = 0, gather: bool = False
    ) -> None:
        self._negatives, self._factor, self._rows_of_group, self._gathers = negatives, scale, group, gather
        self.measures: dict[str, Tensor] = {}
        """What a batch has beside its loss, on the device, which is not waited for."""

    def iter_loss_parts(self, columns: list[Tensor], numbers: Tensor, chunk: int | None) -> Iterator[Tensor]:
        """The parts of the mean loss, which is their sum.

        Args:
            columns: The vectors of queries, positives and negatives, each (rows, dimensions).
            numbers: The numbers of the rows, (rows,).
            chunk: The most queries of a part; None for those of a group.
        """
        size = self._rows_of_group or len(numbers)
        groups = [*zip(_iter_column_groups(columns, size), numbers.split(size), strict=True)]
        masked, candidates = numbers.new_zeros((), dtype=choose_sum_dtype(numbers.device)), 0
        for group, rows in groups:
            query_places = torch.arange(len(rows), device=rows.device)
            if self._gathers:
                # Gathered rows stand in the order of the processes.
                query_places = query_places + torch.distributed.get_rank() * len(rows)
                group, rows = [all_gather_with_grad(part) for part in group], _gather_row_numbers(rows)
            mask = self._mask(rows, query_places, len(group) - 1)
            masked += mask.sum()
            # A query's own texts are never masked, and so are not counted.
            candidates += mask.numel() - len(query_places) * (len(group) - 1)
            weight = self.share / (len(query_places) * len(groups))
            for places, hidden in zip(
                query_places.split(chunk or size), mask.split(chunk or size), strict=True
            ):
                scores = cos_sim(group[0][places], cat(group[1:])) * self._factor
                # -inf takes a text out of the denominator of the softmax.
                loss = cross_entropy(scores.masked_fill(hidden, -torch.inf), places, reduction="sum")
                yield loss * weight
        self.measures = {"masked": masked / max(1, candidates)} if self._negatives else {}

    def mean(self, columns: list[Tensor], numbers: Tensor) -> Tensor:
        """The mean loss of rows with these numbers, each column (rows, dimensions)."""
        return sum(self.iter_loss_parts(columns, numbers, None), columns[0].new_zeros(()))

    def _mask(self, rows: Tensor, query_places: Tensor, columns: int) -> Tensor:
        if self._negatives is None:
            return rows.new_zeros((len(query_places), len(rows) * columns), dtype=torch.bool)
        return self._negatives.mask(rows, query_places)


class _FilteredLoss(InfoNCE, MultipleNegativesRankingLoss):
    """InfoNCE over cosines without false negatives; the labels are the numbers of the rows."""

    def __init__(
        self, model: SentenceTransformer, negatives: NegativeFilter, scale: float, **how: Any
    ) -> None:
        MultipleNegativesRankingLoss.__init__(self, model, scale=scale)
        InfoNCE.__init__(self, negatives, scale, **how)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor) -> Tensor:
        """The loss of a batch, each column (rows, dimensions)."""
        return self.mean(embeddings, labels)


class _CachedFilteredLoss(InfoNCE, _CachedParts):
    """The same loss with `chunk` rows in a pass."""

    def __init__(
        self, model: SentenceTransformer, negatives: NegativeFilter, scale: float, chunk: int, **how: Any
    ) -> None:
        _CachedParts.__init__(self, model, scale=scale, mini_batch_size=chunk)
        InfoNCE.__init__(self, negatives, scale, **how)


def build_filtered_loss(
    model: SentenceTransformer,
    negatives: NegativeFilter,
    scale: float,
    *,
    group: int,
    micro_batch: int | None,
    gather: bool,
) -> nn.Module:
    """InfoNCE as `info_nce` builds it, with false negatives masked; labels are row numbers.

    Args:
        model: The model in training.
        negatives: The filter.
        scale: The factor of cosines.
        group: Rows that are candidates for each other; 0 for all.
        micro_batch: The most rows in a pass; None for all of a batch.
        gather: Whether texts of other processes are candidates too, without groups.
    """
    # A group lies within one process.
    gather = gather and not group
    if micro_batch is None:
        return _FilteredLoss(model, negatives, scale, group=group, gather=gather)
    return _CachedFilteredLoss(model, negatives, scale, micro_batch, group=group, gather=gather)


def _gather_row_numbers(rows: Tensor) -> Tensor:
    """The numbers of the rows of all processes."""
    all_numbers = rows.new_empty(len(rows) * torch.distributed.get_world_size())
    torch.distributed.all_gather_into_tensor(all_numbers, rows.contiguous())
    return all_numbers
