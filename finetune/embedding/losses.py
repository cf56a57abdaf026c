"""Contrastive losses of sentence-transformers over groups of rows that are candidates for each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss
from torch import Tensor, cat, nn

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def info_nce_loss(
    model: SentenceTransformer, scale: float, *, group: int, micro_batch: int | None, gather: bool
) -> nn.Module:
    """InfoNCE over cosines times `scale`, in groups of rows, or of all rows where `group` is 0.

    Args:
        model: The model in training.
        scale: The factor of cosines.
        group: Rows that are candidates for each other.
        micro_batch: The most rows in a pass; None for all of a batch.
        gather: Whether texts of other processes are candidates too, without groups.
    """
    if group:
        if micro_batch is None:
            return _GroupedLoss(model, scale, group)
        return _CachedGroupedLoss(model, scale, group, micro_batch)
    if micro_batch is None:
        return MultipleNegativesRankingLoss(model, scale=scale, gather_across_devices=gather)
    return CachedMultipleNegativesRankingLoss(
        model, scale=scale, mini_batch_size=micro_batch, gather_across_devices=gather
    )


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
        groups = [*_groups(embeddings, self.group)]
        parts = [super(_GroupedLoss, self).compute_loss_from_embeddings(one, labels) for one in groups]
        return sum(parts[1:], parts[0]) * (self.share / len(parts))


class _CachedGroupedLoss(CachedMultipleNegativesRankingLoss):
    """The same loss with `chunk` rows in a pass."""

    share = 1.0

    def __init__(self, model: SentenceTransformer, scale: float, group: int, chunk: int) -> None:
        super().__init__(model, scale=scale, mini_batch_size=chunk)
        self.group = group

    def calculate_loss(self, reps: list[list[Tensor]], with_backward: bool = False) -> Tensor:
        """The loss of embeddings that are there, of each column in chunks."""
        groups = [*_groups([cat(column) for column in reps], self.group)]
        total = reps[0][0].new_zeros(())
        for group in groups:
            loss = super().calculate_loss([[column] for column in group]) * (self.share / len(groups))
            if with_backward:
                loss.backward()
                loss = loss.detach()
            total = total + loss
        return total


def _groups(columns: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    """The columns of each group; the last one may have fewer rows."""
    yield from map(list, zip(*(column.split(size) for column in columns), strict=True))
