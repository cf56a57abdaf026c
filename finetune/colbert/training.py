"""The training of a multi-vector (ColBERT) model, with PyLate's losses over our network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from pylate.losses import CachedContrastive, Distillation
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from finetune.colbert.settings import ColBERTSettings
from finetune.embedding.setups import Setup, build_backbone_args, keep_prompts, open_backbone
from harness.core.encoding import LateInteraction
from harness.core.errors import HarnessError
from harness.core.types import Role
from harness.data.training.loading import load_scored
from harness.encoder.folder.description import describe
from harness.encoder.library_load import get_dimension
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.encoder.token_encoder import (
    TokenProjection,
    build_side_features,
    list_skip_tokens,
    open_modules,
    save_model,
)
from harness.training.training import TrainingSpec

Features = dict[str, Tensor]
"""The features of the texts of a column in one batch, (texts, tokens) each."""


class ColBERTSetup(Setup):
    """The training of a backbone with a projection of its token vectors.

    Args:
        settings: The settings of the recipe.
    """

    def __init__(self, settings: ColBERTSettings) -> None:
        super().__init__(settings)
        self._settings = settings
        self._late = settings.late_interaction

    def load_training_rows(self, spec: TrainingSpec) -> Any:
        """The training rows: texts, or queries with documents and scores.

        Raises:
            HarnessError: A query has fewer documents than are trained on.
        """
        if self._settings.loss == "contrastive":
            return super().load_training_rows(spec)
        tables, document_count = load_scored(spec.data[0], cache=spec.cache), self._settings.documents
        counts = tables.count_row_documents()
        # All queries of a batch need as many documents: scores are one table, (queries, documents).
        if counts.min() < document_count:
            row, least = int(counts.argmin()) + 1, int(counts.min())
            raise HarnessError(
                f"{tables.name}: row {row} has {least} documents, and {document_count} of each query are "
                "trained on.",
                hint=f"Type --set documents={least}.",
            )
        if constant := tables.count_constant_rows():
            spec.log.note(
                f"{constant:,} of {len(counts):,} queries have one score for all documents: nothing is "
                "learned from them but that these are equal"
            )
        return tables.rows

    def build_model(self, spec: TrainingSpec) -> SentenceTransformer:
        """The backbone with its projections, new ones where it has none."""
        described = describe(spec.backbone.folder, own_code=spec.backbone.trust_remote_code)
        if described.late_interaction is not None:
            trusts = {"trust_remote_code": spec.backbone.trust_remote_code}
            model = open_modules(spec.backbone.folder, {**trusts, **build_backbone_args(spec.backbone)})
            model.to(spec.device)
        else:
            transformer = open_backbone(spec)
            _add_tokens(transformer, (self._late.query_prefix, self._late.document_prefix))
            width = get_dimension(transformer)
            projection = TokenProjection(
                width, self._settings.dimension, bias=False, activation_function=nn.Identity()
            )
            model = SentenceTransformer(modules=[transformer, projection], device=spec.device)
        keep_prompts(model, spec)
        # What PyLate's losses ask of a model.
        library_model: Any = model
        library_model.skiplist = list(list_skip_tokens(model.tokenizer, self._late))
        library_model.do_query_expansion = self._late.expansion
        return model

    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """PyLate's loss, with `micro_batch` queries in a pass.

        The contrastive loss is the cached one even for a single pass: its gradient is that of the sum over
        a batch, while the loss without a cache has that of the mean.
        """
        if self._settings.loss == "distillation":
            return _DistillationLoss(model, micro_batch=micro_batch)
        return CachedContrastive(
            model,
            mini_batch_size=micro_batch or self._settings.batch_size,
            gather_across_devices=gather,
            temperature=self._settings.temperature,
        )

    def build_collator(self, model: Any) -> Callable[[Sequence[Mapping[str, Any]]], Features]:
        """A function that tokenizes rows."""
        return _Collator(model, self._settings)

    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the model as a PyLate folder."""
        save_model(model, folder, self._late)


def _add_tokens(transformer: Any, tokens: Sequence[str]) -> None:
    """Add tokens with new embeddings, drawn around the mean of all, as PyLate does it."""
    network, tokenizer = transformer.auto_model, transformer.tokenizer
    network.resize_token_embeddings(len(tokenizer))
    tokenizer.add_tokens(list(tokens))
    network.resize_token_embeddings(len(tokenizer))


class _Collator:
    """Tokenizes rows into the features of PyLate's losses.

    Documents that are shorter than their length end with a token without a vector: its product, 0, is the
    least that a token of a query can have with them, as in PyLate, which fills all documents up.

    Args:
        model: The model in training.
        settings: The settings of the recipe.
    """

    def __init__(self, model: Any, settings: ColBERTSettings) -> None:
        self._model, self._settings = model, settings
        self._late: LateInteraction = settings.late_interaction

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """The features of each column, under its name; `label` has the scores, (queries, documents)."""
        if self._settings.loss == "distillation":
            most = self._settings.documents
            texts = {
                "query": [row["query"] for row in rows],
                "documents": list(chain.from_iterable(row["documents"][:most] for row in rows)),
            }
            labels = {"label": torch.tensor([row["scores"][:most] for row in rows], dtype=torch.float32)}
        else:
            texts, labels = {name: [row[name] for row in rows] for name in rows[0]}, {}
        query, *others = texts
        query_features = self._tokenize_side(texts[query], "query")
        documents = {name: self._tokenize_side(texts[name], "document") for name in others}
        longest = max(features["input_ids"].shape[1] for features in documents.values())
        # One place more than the longest document has, so that each one ends with a token without a vector.
        width = min(longest + 1, self._late.document_length)
        flat = {f"{query}_{key}": one for key, one in query_features.items()}
        for name, features in documents.items():
            for key, tensor in features.items():  # zeros are neither computed nor attended to
                flat[f"{name}_{key}"] = nn.functional.pad(tensor, (0, width - tensor.shape[1]))
        return {**flat, **labels}

    def _tokenize_side(self, texts: Sequence[str], role: Role) -> Features:
        features = build_side_features(self._model, texts, self._late, role)
        # The mask of the tokens that keep a vector in a finished index; PyLate's losses have their own skip
        # list.
        del features["kept"]
        return features


class _DistillationLoss(Distillation):
    """PyLate's loss, the mean over queries of the divergence from the teacher, some queries in a pass.

    With several processes `share` is the part of this process in the mean, times the number of processes.

    Args:
        model: The model in training.
        micro_batch: The most queries in a pass, whose activations are computed twice; None for all.
    """

    share = 1.0

    def __init__(self, model: Any, *, micro_batch: int | None = None) -> None:
        super().__init__(model)
        self._micro_batch = micro_batch

    def forward(self, sentence_features: Iterable[Features], labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            sentence_features: The features of the queries, then those of their documents, query after query.
            labels: The teacher's scores, (queries, documents).
        """
        queries, documents = sentence_features
        count, each = labels.shape
        most = self._micro_batch or count
        if most >= count:
            return super().forward([queries, documents], labels) * self.share
        total = labels.new_zeros(())
        for start in range(0, count, most):
            rows = slice(start, start + most)
            part = [
                _select_feature_rows(queries, rows),
                _select_feature_rows(documents, slice(rows.start * each, rows.stop * each)),
            ]
            # The activations of a part are dropped and computed again in the backward pass, so that memory is
            # that of one part.
            loss = checkpoint(super().forward, part, labels[rows], use_reentrant=False)
            # The library takes the mean over a part; the last one may have fewer queries.
            total = total + loss * (len(labels[rows]) / count)
        return total * self.share


def _select_feature_rows(features: Features, rows: slice) -> Features:
    return {name: one[rows] for name, one in features.items()}
