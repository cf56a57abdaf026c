"""Gradient caching over the two stages of a model: a whole batch's gradients with few texts in a pass.

Exact: both stages run without gradients in chunks, the loss is computed of all vectors, and each chunk runs
again with gradients, the second stage first, under the random state of its first run. Source: Gao et al.,
Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (2021), and the code of Morris and
Rush (2024), whose autocast names no dtype and therefore is float16; here it is that of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.distributed as distributed
from sentence_transformers.losses.CachedMultipleNegativesRankingLoss import RandContext
from torch import Tensor

from harness.encoder.two_stage import Features, TwoStage

VectorLoss = Callable[[list[Tensor]], Tensor]
"""From the vectors of each column, (texts, dimension), to a scalar."""


class TwoStageGradients:
    """The loss of a batch of a two-stage model, whose gradients are computed chunk by chunk.

    All columns share the context. In an open autocast both runs are in its dtype. With several processes each
    has a batch, a context and candidates of its own; after `backward` every process has the mean of their
    gradients, which also needs no wrapper of torch: give the model itself, not DistributedDataParallel's.

    Args:
        model: The model, in training mode where dropout is wanted.

    Example:
        >>> gradients = TwoStageGradients(model)  # doctest: +SKIP
        >>> loss = gradients(context, [queries, documents], info_nce)  # doctest: +SKIP
        >>> loss.backward()  # doctest: +SKIP
    """

    def __init__(self, model: TwoStage) -> None:
        self.model = model

    def __call__(
        self, context: Sequence[Features], columns: Sequence[Sequence[Features]], loss: VectorLoss
    ) -> Tensor:
        """The loss of a batch; its `backward` adds to the gradients of the model and of the loss.

        Args:
            context: The tokenized context documents in chunks, as many as the model has context vectors;
                empty for the null context. Like all features on the model's device.
            columns: For each column (queries, documents, negatives) the tokenized texts in chunks.
            loss: From the vectors of the columns to a scalar.
        """
        passes = _Passes.run_passes(self.model, context, columns)
        # autograd calls the backward of a Function only if one of its inputs asks for gradients.
        leaves = [cached.requires_grad_() for cached in passes.vectors]
        vectors: tuple[Tensor, ...] = _Recomputed.apply(passes, *leaves)  # type: ignore[no-untyped-call]
        return loss(list(vectors))


def split_features(features: Features, most: int) -> list[Features]:
    """The features of a batch in chunks of at most `most` texts, in their order; padding is not computed."""
    count = len(features["input_ids"])
    return [
        {name: one[at : at + most] if isinstance(one, Tensor) else one for name, one in features.items()}
        for at in range(0, count, most)
    ]


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """A chunk of texts, and the random state before its first run."""

    features: Features
    random: RandContext


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """The first runs of a batch: its chunks, the context, and the vectors of each column, all detached."""

    model: TwoStage
    precision: Callable[[], Any]
    context_chunks: Sequence[_Chunk]
    column_chunks: Sequence[Sequence[_Chunk]]
    context: Tensor | None
    vectors: Sequence[Tensor]

    @staticmethod
    def run_passes(
        model: TwoStage, context: Sequence[Features], columns: Sequence[Sequence[Features]]
    ) -> _Passes:
        """Run both stages without gradients."""
        device = model.null.device
        # No copies of weights are kept: those of a run without gradients have none.
        precision = partial(
            torch.autocast,
            device.type,
            dtype=torch.get_autocast_dtype(device.type),
            enabled=torch.is_autocast_enabled(device.type),
            cache_enabled=False,
        )

        def run_chunks(
            chunks: Sequence[Features], stage: Callable[[Features], Tensor]
        ) -> tuple[list[_Chunk], list[Tensor]]:
            stage_chunks, stage_vectors = [], []
            for features in chunks:
                # Before the run: RandContext keeps the random state of the CPU and of this tensor's device,
                # so that dropout falls on the same places in both runs.
                stage_chunks.append(_Chunk(features=features, random=RandContext(features["input_ids"])))
                stage_vectors.append(stage(features))
            return stage_chunks, stage_vectors

        with torch.no_grad(), precision():
            first, parts = run_chunks(context, model.compute_context_vectors)
            shared = torch.cat(parts) if parts else None
            second = [
                run_chunks(chunks, lambda one: model.compute_text_vectors(one, shared)) for chunks in columns
            ]
        return _Passes(
            model=model,
            precision=precision,
            context_chunks=first,
            column_chunks=[chunks for chunks, _ in second],
            context=None if shared is None else shared.requires_grad_(),
            vectors=[torch.cat(found) for _, found in second],
        )

    def run_again(self, gradients: Sequence[Tensor]) -> None:
        """Add to the gradients of the model, from those of the vectors of each column."""
        # Every chunk of the second stage adds to this gradient; only when all have run is it whole, and the
        # first stage can run again.
        if self.context is not None:
            self.context.grad = None
        second = [
            _match_gradients(chunks, of) for chunks, of in zip(self.column_chunks, gradients, strict=True)
        ]
        for chunk, part in chain.from_iterable(second):
            self._backward(
                chunk, lambda features: self.model.compute_text_vectors(features, self.context), part
            )
        if self.context is not None and self.context.grad is not None:
            for chunk, part in _match_gradients(self.context_chunks, self.context.grad):
                self._backward(chunk, self.model.compute_context_vectors, part)
        _average(self.model)

    def _backward(self, chunk: _Chunk, stage: Callable[[Features], Tensor], gradient: Tensor) -> None:
        # `backward` runs outside of the caller's autocast, so that its settings are entered again here.
        with torch.enable_grad(), chunk.random, self.precision():
            vectors = stage(chunk.features)
        vectors.backward(gradient)


def _match_gradients(chunks: Sequence[_Chunk], gradients: Tensor) -> Iterator[tuple[_Chunk, Tensor]]:
    """Each chunk with the gradients of its vectors."""
    sizes = [len(chunk.features["input_ids"]) for chunk in chunks]
    return zip(chunks, gradients.split(sizes), strict=True)


class _Recomputed(torch.autograd.Function):
    """The cached vectors, for which `backward` runs the model again."""

    @staticmethod
    def forward(ctx: Any, passes: _Passes, *vectors: Tensor) -> tuple[Tensor, ...]:
        """The same vectors."""
        ctx.passes = passes
        return tuple(one.view_as(one) for one in vectors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        """Nothing for the vectors: the gradients of the model are added on the way."""
        ctx.passes.run_again(gradients)
        return (None, *(None for _ in gradients))


def _average(model: TwoStage) -> None:
    """The mean of the gradients over all processes; what they had in common before stays as it is."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    ranks = distributed.get_world_size()
    gradients = [one.grad for one in model.parameters() if one.grad is not None] if ranks > 1 else []
    # One exchange for each dtype in place of one for each weight: most weights are small.
    for same in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        grads = [one for one in gradients if one.dtype == same]
        if grads:
            flat = torch.cat([one.flatten() for one in grads])
            distributed.all_reduce(flat)
            flat /= ranks
            for gradient, mean in zip(grads, flat.split([one.numel() for one in grads]), strict=True):
                gradient.copy_(mean.view_as(gradient))
