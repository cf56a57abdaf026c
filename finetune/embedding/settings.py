"""The settings of a recipe that makes an embedding model, and the form of its loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

from harness.core.errors import UsageError, explain_unknown
from harness.core.keys import AlwaysHashed
from harness.encoder.folder.modules_and_pooling import POOLING_FLAGS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer
    from torch import nn

ATTENTION = "attention"
"""The pooling with learned weights."""

POOLINGS = (ATTENTION, *POOLING_FLAGS.values())

LARGE = 1024
"""The dimensions of a token vector from which on a backbone is a large one."""


Rule = tuple[str, bool, str]
"""A setting, whether its value is in its range, and the range in words."""


class SuggestedRows(int):
    """A recipe's own rows in a pass: a GPU takes more where its memory allows. A user's number is an int."""


@dataclass(frozen=True, kw_only=True)
class TrainerSettings(AlwaysHashed):
    """The settings that every training of a model has; each one is in the model's key.

    Attributes:
        learning_rate: The highest learning rate.
        batch_size: Rows of an optimizer step, over all processes.
        epochs: Passes over the data.
        max_steps: The optimizer steps after which the training ends; none for those of all epochs.
        weight_decay: AdamW's decay, of all weights but biases and norms unless `decay_all`.
        decay_all: Whether biases and norms decay as well.
        betas: AdamW's betas.
        eps: AdamW's epsilon.
        warmup: The steps w, of all T, in which the learning rate rises: their share, rounded up, or above 1
            their number; 0 for no rise. Step t, counted from 0, has t / w of the highest rate, the first 0.
        schedule: The share of the highest rate from step w on: "linear" (T - t) / (T - w), "cosine" c =
            (1 + cos(pi (t - w) / (T - w))) / 2, "cosine_to_tenth" 0.1 + 0.9 c, "constant" 1.
        clip: The largest norm of a gradient; 0 for no clipping.
        precision: The dtype of autocast in the model, with its pooling or projection; weights, scaling to
            length 1, similarities and loss are float32. float16 scales the loss, at first by 65,536, doubled
            after 2,000 steps and halved by an overflow, whose step is skipped: it counts, but the schedule
            waits; on a CPU it is float32. "tf32" is float32 whose matrix products a GPU rounds to TF32.
        batches: "shuffled": in each pass over the data a new order; "no_duplicates": also, no two rows in a
            group of rows (`group_size`, or the whole batch) have a text in common, of whatever columns: a row
            that repeats one waits for the next group (its own texts may be equal); "contextual": pairs that a
            guide finds similar share a batch (not every recipe has these).
        last_batch: Whether the incomplete last batch of an epoch is trained on.
        chunk: Rows in a pass through the network, which change no result and so are not in the key: 0 for
            all; none for those of a group.
    """

    learning_rate: float = 5e-5
    batch_size: int = 512
    epochs: int = 3
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    warmup: float = 0.0
    schedule: Literal["linear", "cosine", "cosine_to_tenth", "constant"] = "linear"
    clip: float = 1.0
    precision: Literal["float32", "tf32", "bfloat16", "float16"] = "float16"
    batches: Literal["shuffled", "no_duplicates", "contextual"] = "shuffled"
    # Settings marked "later" came after the first models: at their default they are not in the key, so that
    # the keys of older models stay.
    last_batch: Literal["dropped", "kept"] = field(default="dropped", metadata={"later": True})
    max_steps: int | None = field(default=None, metadata={"later": True})
    decay_all: bool = field(default=False, metadata={"later": True})
    chunk: int | None = field(default=0, metadata={"later": True})

    orders: ClassVar[tuple[str, ...]] = ("shuffled", "no_duplicates")
    """The kinds of batches that the recipe has."""

    @property
    def identity(self) -> Self:
        """The settings that are in the key: those that change the result."""
        # The gradient of a batch is the same in passes of any rows, but for rounding and the draw of dropout.
        return replace(self, chunk=0)

    def normalize_settings(self) -> Self:
        """The settings in one form, where several values mean the same."""
        return self

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that change nothing beside the others."""
        return frozenset({"chunk"} | ({"max_steps"} if self.max_steps is None else set()))

    @property
    def group(self) -> int:
        """Rows that depend on each other in the loss; 0 for all of a batch."""
        return 0

    @property
    def longest(self) -> int | None:
        """The most tokens of a text in training; None where the model alone decides."""
        return None

    def limit_devices(self, most: int) -> int:
        """The number of devices that can share each batch, at most `most`.

        An incomplete batch of one group cannot be shared: its negatives come from all devices.
        """
        if not self.group and self.last_batch == "kept":
            return 1
        parts = self.batch_size // (self.group or 1) or 1
        return next(count for count in range(most, 0, -1) if parts % count == 0)

    def compute_pass_size(self, rows: int, limit: int | None) -> int | None:
        """The rows of each pass through the network, of a batch with `rows` rows; None for one pass."""
        chunk = limit or self.chunk or rows
        return chunk if chunk < rows else None

    def count_optimizer_steps(self, rows: int) -> int:
        """The optimizer steps of a training on `rows` rows, if no two of them share a text."""
        full_batches, rest = divmod(rows, self.batch_size)
        return self.limit_steps(self.epochs * (full_batches + (rest > 0 and self.last_batch == "kept")))

    def limit_steps(self, steps: int) -> int:
        """The steps of a training whose epochs have `steps`: no more than `max_steps`."""
        return min(steps, self.max_steps or steps)

    def count_flop_tokens(self, _rows: int, tokens: int) -> int:
        """The tokens by which the operations of a step are counted."""
        return tokens

    def count_warmup_steps(self, steps: int) -> int:
        """The steps in which the learning rate rises, of a training with `steps` steps."""
        return math.ceil(self.warmup * steps if self.warmup <= 1 else self.warmup)

    def count_training_rows(self, rows: int) -> int:
        """The rows that a training on `rows` rows reads; a row counts in each epoch."""
        read = self.count_optimizer_steps(rows) * self.batch_size
        return min(read, self.epochs * rows) if self.last_batch == "kept" else read

    def check_values(self) -> None:
        """Refuse values that no training can have.

        Raises:
            UsageError: One of them is out of its range.
        """
        for name, right, range_text in self._iter_rules():
            if not right:
                raise UsageError(
                    f"{name} is {getattr(self, name)}, which no training can have.",
                    hint=f"Give {range_text}: --set {name}=…",
                )

    def _iter_rules(self) -> Iterator[Rule]:
        """The rules in the order in which they are looked at; one that compares settings raises itself."""
        for name in ("batch_size", "epochs"):
            yield name, getattr(self, name) >= 1, "1 or more"
        yield "max_steps", self.max_steps is None or self.max_steps >= 1, "1 or more, or none"
        yield "chunk", (self.chunk or 0) >= 0, "0 or more, or none"
        for name in ("learning_rate", "eps"):
            yield name, 0 < getattr(self, name) < math.inf, "a number above 0"
        for name in ("weight_decay", "clip"):
            yield name, 0 <= getattr(self, name) < math.inf, "0 or more"
        share = 0 <= self.warmup <= 1
        # 1 is the share of all steps, not one step.
        counted = self.warmup > 1 and self.warmup % 1 == 0
        yield "warmup", share or counted, "a share from 0 to 1, or a number of steps"
        if self.batches not in self.orders:
            raise UsageError(
                f"batches is {self.batches}, which this recipe does not have.",
                hint=f"Give {' or '.join(self.orders)}; --recipe cde-batching has contextual ones.",
            )
        yield "betas", all(0 <= beta < 1 for beta in self.betas), "two numbers from 0 to below 1"


@dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(TrainerSettings):
    """Every setting of the training of an embedding model.

    Attributes:
        pooling: "attention", or a mode of sentence-transformers' Pooling.
        heads: Heads of attentive pooling; without effect on others.
        max_length: The most tokens of a text in training, with special ones and what stands before the text;
            its end is cut, not a special token behind it. At most the backbone's own length (its folder's
            max_seq_length, else its tokenizer's, or its positions if they are fewer); none for the backbone's
            own. The finished model has the backbone's own length, unless `evaluation_length` is set.
        scale: The factor of cosines in the loss: 1 / temperature.
        selection: The data whose score chooses a checkpoint, first of equals; none for the last weights.
        evaluate_every: Steps from one evaluation of the selection to the next.
        group_size: Rows whose texts are compared with each other, a divisor of the batch; 0 for the whole
            batch; none for 16 with token vectors of 1,024 dimensions or more, else 64.
    """

    pooling: str = "mean"
    heads: int = 1
    max_length: int | None = 32
    scale: float = 20.0
    selection: str = ""
    evaluate_every: int = 125
    group_size: int | None = field(default=0, metadata={"later": True})

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that change nothing beside the others."""
        unused = {"heads": self.pooling != ATTENTION, "evaluate_every": not self.selection}
        return super().inert | {name for name, holds in unused.items() if holds}

    def normalize_settings(self) -> Self:
        """The settings with no selection where it is "none"."""
        return replace(self, selection="") if self.selection.lower() == "none" else self

    @property
    def group(self) -> int:
        """Rows whose texts are candidates for each other; 0 for all of a batch."""
        return self.group_size or 0

    @property
    def longest(self) -> int | None:
        """The tokens at which texts are cut in training."""
        return self.max_length

    def resolve_group_size(self, width: int | None) -> Self:
        """The settings for a backbone whose token vectors have `width` dimensions."""
        size = self.group_size
        if size is None:
            size = 16 if width is not None and width >= LARGE else 64
        return replace(self, group_size=size, chunk=SuggestedRows(size) if self.chunk is None else self.chunk)

    def _iter_rules(self) -> Iterator[Rule]:
        if self.pooling not in POOLINGS:
            raise explain_unknown("pooling", self.pooling, POOLINGS, then="Choose one of these.")
        yield from super()._iter_rules()
        for name in ("heads", "evaluate_every"):
            yield name, getattr(self, name) >= 1, "1 or more"
        yield "max_length", self.max_length is None or self.max_length >= 1, "1 or more, or none"
        yield "scale", 0 < self.scale < math.inf, "a number above 0"
        group = self.group_size
        yield (
            "group_size",
            group is None or group == 0 or (group > 0 and self.batch_size % group == 0),
            f"a divisor of batch_size, {self.batch_size}, or 0",
        )


class Loss(Protocol):
    """A function at the top of a module that makes a recipe's loss; it imports torch inside."""

    def __call__(
        self,
        model: SentenceTransformer,
        settings: EmbeddingSettings,
        *,
        micro_batch: int | None,
        gather: bool,
    ) -> nn.Module:
        """The loss of a batch of tokenized columns, as sentence-transformers' losses compute it.

        Args:
            model: The model in training.
            settings: The settings of the training.
            micro_batch: The most rows in a pass; None for all of a batch.
            gather: Whether texts of other processes are negatives too.
        """


def info_nce(
    model: SentenceTransformer, settings: EmbeddingSettings, *, micro_batch: int | None, gather: bool
) -> nn.Module:
    """InfoNCE, the cross-entropy of an anchor's positive among all positives and negatives of its group.

    Source: van den Oord et al. (2018), with in-batch negatives. For the arguments see Loss.
    """
    from sentence_transformers.losses import CachedMultipleNegativesRankingLoss, MultipleNegativesRankingLoss

    if settings.group_size:
        from finetune.embedding.losses import build_grouped_loss

        return build_grouped_loss(model, settings.scale, group=settings.group_size, micro_batch=micro_batch)
    if micro_batch is None:
        return MultipleNegativesRankingLoss(model, scale=settings.scale, gather_across_devices=gather)
    return CachedMultipleNegativesRankingLoss(
        model, scale=settings.scale, mini_batch_size=micro_batch, gather_across_devices=gather
    )


def compute_set_probabilities(rows: Sequence[int], alpha: float) -> NDArray[np.float64]:
    """The probability of each set: its rows to the power of alpha, over the sum of all.

    >>> compute_set_probabilities([100, 1, 25], 0.5).tolist()
    [0.625, 0.0625, 0.3125]
    """
    import numpy as np

    powers = np.array(rows, dtype=np.float64) ** alpha
    return np.asarray(powers / powers.sum(), dtype=np.float64)
