"""The settings of contextual batches and of the filter of false negatives, and the guide of both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from finetune.cde.prefixes import parse_prefix
from finetune.embedding.settings import EmbeddingSettings, Rule
from harness.core.encoding import Encoding, OwnTexts
from harness.core.keys import build_encoding_identity
from harness.core.types import SIDES, Artifact
from harness.data.training.sets import LocatedTraining
from harness.encoder.two_stage_settings import Pooling, RotaryStart, TwoStageSettings
from harness.jobs.jobs import resolve_weights

RULES = 1
"""The version of how clusters are made, raised whenever it changes."""

TWO_STAGE_RULES = 2
"""The version of how two stages are trained, raised whenever it changes; in version 1 no weight changed."""


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A finished model whose vectors make clusters and filter false negatives."""

    artifact: Artifact
    encoding: Encoding

    @property
    def how(self) -> dict[str, Any]:
        """The identity of its encoding, with the prompts of both sides."""
        prompts = {side: self.encoding.resolve_prompt(OwnTexts(), side) for side in SIDES}
        return {**build_encoding_identity(self.encoding), "prompts": prompts}

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that its vectors depend on."""
        artifact = resolve_weights(self.artifact)
        # The key of a trained model names its training, which other hardware can end with other weights.
        weights = {"weights": artifact.weights} if artifact.trained else {}
        return {"artifact": artifact.key, **weights, "encoding": self.how}


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The settings that the clusters of pairs depend on, beside the data and the guide.

    Attributes:
        cluster_size: The pairs of a cluster on average.
        dimensions: The dimensions that the guide's vectors are reduced to.
        iterations: The most iterations of k-means.
        starts: Runs of k-means, the best of which counts.
        cluster_seed: The seed of all draws.
        sample: The pairs up to which k-means uses all of them; of more it uses a sample of this size.
    """

    cluster_size: int = 512
    dimensions: int = 128
    iterations: int = 25
    starts: int = 1
    cluster_seed: int = 42
    sample: int = 500_000


OF_CLUSTERS = frozenset({field.name for field in fields(ClusterSettings)} | {"packing"})
"""The settings that have an effect on contextual batches alone."""


@dataclass(frozen=True, kw_only=True)
class ContextualSettings(EmbeddingSettings):
    """Every setting of a training on contextual batches.

    The paper (NeoBERT, appendix G) and the authors' code differ; each default says whose it is.

    Attributes:
        guide: The finished model whose vectors make the clusters and the filter, as for --model. The authors'
            code has gtr-t5-base for the clusters, NeoBERT a "GTE-large". It reads texts behind its own
            prompts, without the prefixes of training, cut at its own length, in float32. Empty without
            contextual batches and a filter.
        cluster_size: Pairs of a cluster on average: 512 by NeoBERT, 256 by default in the code.
        dimensions: Dimensions that a truncated SVD of a data set's first 100,000 queries reduces the guide's
            vectors to before k-means, which sees a pair as two points, [query; document] and the reverse
            (code).
        iterations: The most iterations of k-means; the code has 100.
        starts: Runs of k-means, the best of which counts; the code has 3.
        cluster_seed: The seed of the clusters, which all seeds of the training share (code).
        packing: The order in which clusters become batches: "random", or a "tour" from each to its nearest
            neighbour that is left (both in the code, the former by default).
        margin: A document is no negative of a query if the guide, by its whole vectors, finds it at least as
            similar to the query as the query's own document, plus this margin; None for no filter. NeoBERT
            filters; the code by default does not.
        threshold: Instead of the margin: a document with at least this similarity to the query is no negative
            (code).
        query_prefix, document_prefix: Put before the texts of data sets without a prefix in the recipe; if
            you set it, before all texts. Empty for none.
        prefix: Replaces query_prefix, document_prefix and the prefixes of the recipe; one name for all data
            sets, or one for each. "search" has a prefix for each side; "classification", "clustering" and
            "search_query" have the same on both; "none" has none. The key has the prefixes themselves, not
            the names.
        dropout: Whether the backbone's own dropout (of a NeoBERT none) is applied; the authors train without.
    """

    guide: str = ""
    cluster_size: int = 512
    dimensions: int = 128
    iterations: int = 25
    starts: int = 1
    cluster_seed: int = 42
    packing: Literal["random", "tour"] = "random"
    margin: float | None = 0.0
    threshold: float | None = None
    query_prefix: str = ""
    document_prefix: str = ""
    dropout: bool = True
    prefix: tuple[str, ...] = field(default=(), metadata={"later": True})

    orders: ClassVar[tuple[str, ...]] = ("shuffled", "no_duplicates", "contextual")

    @property
    def identity(self) -> Self:
        """The settings that are in the key."""
        return replace(super().identity, prefix=())

    def normalize_settings(self) -> Self:
        """The settings in one form: those without effect have their defaults."""
        # Settings without effect get their defaults, so that one training has one key.
        unused: dict[str, Any] = {}
        if self.batches != "contextual":
            unused |= {field.name: field.default for field in fields(self) if field.name in OF_CLUSTERS}
        if self.threshold is not None:
            unused["margin"] = None
        if not self.guided:
            unused["guide"] = ""
        return replace(super().normalize_settings(), **unused)

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that change nothing beside the others."""
        clusters = OF_CLUSTERS if self.batches != "contextual" else frozenset()
        unused = {"margin" if self.threshold is not None else "threshold"}
        return super().inert | clusters | unused | (set() if self.prefix else {"prefix"})

    @property
    def clusters(self) -> ClusterSettings:
        """The part of the settings that the clusters depend on."""
        field_names = [field.name for field in fields(ClusterSettings) if hasattr(self, field.name)]
        return ClusterSettings(**{name: getattr(self, name) for name in field_names})

    @property
    def unit(self) -> int:
        """Rows that are cut from the clusters at once: those of a group, else of a batch."""
        return self.group or self.batch_size

    @property
    def filters(self) -> bool:
        """Whether false negatives are left out."""
        return self.margin is not None or self.threshold is not None

    @property
    def guided(self) -> bool:
        """Whether a guide is needed: for contextual batches, or for the filter."""
        return self.batches == "contextual" or self.filters

    def _iter_rules(self) -> Iterator[Rule]:
        yield from super()._iter_rules()
        for name in self.prefix:
            parse_prefix(name)
        for name in ("cluster_size", "dimensions", "iterations", "starts"):
            yield name, getattr(self, name) >= 1, "1 or more"
        yield "cluster_seed", self.cluster_seed >= 0, "0 or more"
        yield "guide", bool(self.guide.strip()) or not self.guided, "a model, e.g. minilm"
        for name in ("margin", "threshold"):
            value = getattr(self, name)
            yield name, value is None or math.isfinite(value), "a number, or none"
        contextual = self.batches == "contextual"
        yield (
            "last_batch",
            not contextual or self.last_batch == "dropped",
            "dropped: what is left of a set fills no contextual batch",
        )


@dataclass(frozen=True, kw_only=True)
class TwoStageTrainingSettings(ContextualSettings):
    """Every setting of the training of a two-stage model; see TwoStageSettings for those of the model.

    The documents of a group of rows, or of a batch, are its context; all texts of the group share it. With
    groups several devices can share a batch, none of which sees the negatives of another.

    Attributes:
        context_size: Context vectors before a text. Of more documents some are drawn, fewer are repeated.
        soft_prompts: Soft prompts after them.
        pooled: The vectors whose mean is the vector of the text: "text" for those of its tokens, prefix and
            special ones among them as in context documents, "all" for those of context and soft prompts too.
        rotary_from: Where rotary positions begin to count, in families that have them: at the text, or at the
            soft prompts. Everything before is at position 0.
        sequence_dropout: The share of context vectors that the null vector replaces in training.
        shuffle: Whether each text has the context vectors in an order of its own in training.
        tied: Whether both stages share one token embedding.
        replacement: Whether evaluations draw context documents with replacement.
    """

    context_size: int = 512
    soft_prompts: int = 8
    pooled: Pooling = "text"
    rotary_from: RotaryStart = "text"
    sequence_dropout: float = 0.0
    shuffle: bool = True
    tied: bool = False
    replacement: bool = False

    @property
    def stages(self) -> TwoStageSettings:
        """The settings of the model."""
        return TwoStageSettings(
            size=self.context_size,
            prompts=self.soft_prompts,
            pooling=self.pooled,
            rotary_from=self.rotary_from,
            sequence_dropout=self.sequence_dropout,
            shuffle=self.shuffle,
            tied=self.tied,
            replacement=self.replacement,
        )

    def compute_pass_size(self, rows: int, limit: int | None) -> int | None:
        """The texts of each pass through the network: a context may have more than a batch has rows."""
        return limit or self.chunk or None

    def limit_devices(self, most: int) -> int:
        """The devices that can share a batch: no more than groups, which have no negatives in common."""
        return super().limit_devices(most) if self.group else 1

    def _iter_rules(self) -> Iterator[Rule]:
        yield from super()._iter_rules()
        for name in ("context_size", "soft_prompts"):
            yield name, getattr(self, name) >= 1, "1 or more"
        yield "sequence_dropout", 0 <= self.sequence_dropout < 1, "a share from 0 to below 1"
        yield "pooling", self.pooling == "mean", "mean: both stages take the mean of token vectors"
        yield "last_batch", self.last_batch == "dropped", "dropped"
        yield "selection", not self.selection, "none: no data chooses among its checkpoints"


def build_clusters_identity(
    settings: ContextualSettings, guide: Guide, data: LocatedTraining
) -> dict[str, Any]:
    """Everything that the clusters of a set depend on.

    Args:
        settings: The settings of the training, whose cluster settings count.
        guide: The model whose vectors are clustered.
        data: The set.
    """
    return {
        "guide": guide.identity,
        "data": data.data.identity,
        "settings": asdict(settings.clusters),
        "rules": RULES,
    }
