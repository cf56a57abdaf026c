"""The settings of compute-optimal contrastive trainings: the trained weights, their rate, and the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from finetune.embedding.settings import EmbeddingSettings, Rule
from harness.core.errors import UsageError
from harness.encoder.backbones import find_family
from harness.results.cost.compute import ParameterCount, count_gpt_neox_parameters

Method = Literal["full", "freeze", "lora", "bias"]


# Learning rates

ALL_WEIGHTS = {
    "pythia-14m": 1e-4,
    "pythia-31m": 1e-4,
    "pythia-70m": 1e-4,
    "pythia-160m": 6e-5,
    "pythia-410m": 3e-5,
    "pythia-1b": 3e-5,
    "pythia-1.4b": 2e-5,
    "pythia-2.8b": 1.6e-5,
}
"""The highest learning rate of "full" and "freeze", a tenth of that of pretraining."""

SAMPLE = 4_096
"""The first rows of the order, whose mean number of tokens stands for that of all rows."""

FEW_WEIGHTS = {"lora": 1e-3, "bias": 1e-2}
"""That of the other methods, for every size."""


def compute_usual_rate(method: Method, size: int | None) -> float:
    """The paper's highest learning rate for a method and a backbone.

    Args:
        method: The way of training.
        size: The backbone's parameters without embeddings, whose rate is that of the Pythia with the nearest
            logarithm; None where it is not known.

    Raises:
        UsageError: The rate depends on a size that is not known.

    Example:
        >>> compute_usual_rate("full", 110_000_000), compute_usual_rate("lora", None)
        (6e-05, 0.001)
    """
    if method in FEW_WEIGHTS:
        return FEW_WEIGHTS[method]
    if not size:
        raise UsageError(
            f"The size of the backbone is not known, on which the learning rate of {method} depends.",
            hint="Give it: --set learning_rate=…",
        )
    distances = {name: abs(math.log(size / count)) for name, count in count_pythia_parameters().items()}
    return ALL_WEIGHTS[min(distances, key=distances.__getitem__)]


GPT_NEOX = "gpt_neox"
"""The model type of a Pythia."""


def find_pythia_config(name: str) -> Mapping[str, Any]:
    """The config of the Pythia of a name, with an owner or without; empty for any other name."""
    pythia = find_family({"model_type": GPT_NEOX})
    assert pythia is not None
    return pythia.sizes.get(name.rpartition("/")[2].lower(), {})


def count_pythia_parameters() -> dict[str, int]:
    """The parameters of each Pythia without its embeddings."""
    return {name: count_gpt_neox_parameters(find_pythia_config(name)) for name in ALL_WEIGHTS}


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class EfficientSettings(EmbeddingSettings):
    """Every setting of a training of all weights.

    Attributes:
        learning_rate: The highest learning rate; 0 for the paper's, by method and size of the backbone.
        budget: The floating-point operations of the training, also as --budget. They set the number of steps;
            none for the steps of `epochs`.
        tokens_per_pair: The tokens of a pair when operations are counted; none for those of its texts.
        gradient_checkpointing: Whether activations are computed again in the backward pass, for less memory;
            it changes no result, and so is not in the key.
        evaluation_length: The finished model's own length (`evaluation.max_length`), at most the backbone's;
            none for the backbone's.
    """

    learning_rate: float = 0.0
    budget: float | None = None
    tokens_per_pair: int | None = None
    gradient_checkpointing: bool = False
    evaluation_length: int | None = None

    method: ClassVar[Method] = "full"
    """The weights that are trained."""

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that change nothing beside the others."""
        unused = {"budget", "tokens_per_pair"} if self.budget is None else {"epochs"}
        return super().inert | unused | {"gradient_checkpointing"}

    @property
    def identity(self) -> Self:
        """The settings that are in the key: those that change the result."""
        # With a budget the epochs say nothing, so that they are not in the key.
        epochs = self.epochs if self.budget is None else 1
        return replace(super().identity, gradient_checkpointing=False, epochs=epochs)

    def count_flop_tokens(self, rows: int, tokens: int) -> int:
        """The tokens of a step by which its operations are counted."""
        return tokens if self.tokens_per_pair is None else rows * self.tokens_per_pair

    def count_gpt_neox_parameters(self, config: Mapping[str, Any]) -> ParameterCount | None:
        """The parameters of a GPT-NeoX of a config as it is trained; None if these settings do not tell."""
        size = count_gpt_neox_parameters(config)
        return ParameterCount(forward=size, backward=size, updated=size)

    def _iter_rules(self) -> Iterator[Rule]:
        yield "learning_rate", 0 <= self.learning_rate < math.inf, "0 or more"
        # 0 stands for the paper's rate here, which the checks of other recipes refuse.
        usual = replace(self, learning_rate=self.learning_rate or 1.0)
        yield from super(EfficientSettings, usual)._iter_rules()
        yield ("budget", self.budget is None or 0 < self.budget < math.inf, "a number above 0, or none")
        for name in ("tokens_per_pair", "evaluation_length"):
            value = getattr(self, name)
            yield name, value is None or value >= 1, "1 or more, or none"


@dataclass(frozen=True, kw_only=True)
class FreezeSettings(EfficientSettings):
    """Every setting of a training of the last blocks.

    Attributes:
        frozen: The share of blocks that is frozen, from the first on, as 1/2 or 0.5; embeddings always are.
    """

    frozen: str = "1/2"

    method: ClassVar[Method] = "freeze"

    def normalize_settings(self) -> Self:
        """The settings with one spelling of each share: 1/2 for 0.5 and 3/6."""
        return replace(super().normalize_settings(), frozen=str(self._read_share()))

    def _iter_rules(self) -> Iterator[Rule]:
        yield from super()._iter_rules()
        self._read_share()

    def count_gpt_neox_parameters(self, config: Mapping[str, Any]) -> ParameterCount | None:
        """Those of the last blocks and of the final norm are trained."""
        blocks = config["num_hidden_layers"]
        last = {**config, "num_hidden_layers": blocks - self.count_frozen_blocks(blocks)}
        size = count_gpt_neox_parameters(last)
        return ParameterCount(forward=count_gpt_neox_parameters(config), backward=size, updated=size)

    def count_frozen_blocks(self, blocks: int) -> int:
        """The number of frozen blocks, of `blocks` in all.

        Raises:
            UsageError: The share is not that of a whole number of blocks; the hint has those that are.

        Example:
            >>> FreezeSettings(frozen="5/6").count_frozen_blocks(12)
            10
        """
        if not blocks:
            raise UsageError("The backbone has no list of blocks to freeze.", hint="Use another method.")
        count = self._read_share() * blocks
        if count.denominator == 1:
            return int(count)
        allowed = ", ".join(f"{number}/{blocks}" for number in range(blocks))
        raise UsageError(
            f"frozen is {self.frozen}, which is not a whole number of {blocks} blocks below all of them.",
            hint=f"Give one of these: --set frozen=… with {allowed}",
        )

    def _read_share(self) -> Fraction:
        try:
            # 0.1667 stands for 1/6: no backbone has a thousand blocks.
            share = Fraction(str(self.frozen)).limit_denominator(1000)
        except (ValueError, ZeroDivisionError):
            share = Fraction(-1)
        if not 0 <= share < 1:
            raise UsageError(
                f"frozen is {self.frozen}, which is not a share of the blocks.",
                hint="Give a number from 0 to below 1, or a fraction: --set frozen=1/6",
            )
        return share


@dataclass(frozen=True, kw_only=True)
class LoraSettings(EfficientSettings):
    """Every setting of a training of adapters.

    Attributes:
        rank: The rank of the adapters.
        lora_alpha: The output of an adapter is multiplied by lora_alpha / rank.
        lora_modules: The dense layers that get one, by the ends of their names (of a Pythia query_key_value,
            dense, dense_h_to_4h and dense_4h_to_h); none for all.
        lora_embeddings: Whether the token embedding gets one as well, whose operations are not counted.
    """

    rank: int = 32
    lora_alpha: int = 8
    lora_modules: tuple[str, ...] = ()
    lora_embeddings: bool = False

    method: ClassVar[Method] = "lora"

    def normalize_settings(self) -> Self:
        """The settings with the layers in the order of their names."""
        return replace(super().normalize_settings(), lora_modules=tuple(sorted(set(self.lora_modules))))

    def count_gpt_neox_parameters(self, config: Mapping[str, Any]) -> ParameterCount | None:
        """An adapter has its rank times the width of its layer's input and output."""
        if self.lora_modules:
            return None
        widths = 8 * config["hidden_size"] + 2 * config["intermediate_size"]
        adapters = config["num_hidden_layers"] * self.rank * widths
        size = count_gpt_neox_parameters(config) + adapters
        return ParameterCount(forward=size, backward=size, updated=adapters)

    def _iter_rules(self) -> Iterator[Rule]:
        yield from super()._iter_rules()
        for name in ("rank", "lora_alpha"):
            yield name, getattr(self, name) >= 1, "1 or more"


@dataclass(frozen=True, kw_only=True)
class BiasSettings(EfficientSettings):
    """Every setting of a training of biases."""

    method: ClassVar[Method] = "bias"

    def count_gpt_neox_parameters(self, config: Mapping[str, Any]) -> ParameterCount | None:
        """A block has biases of four layers and two norms, and the final norm has one."""
        width, size = config["hidden_size"], count_gpt_neox_parameters(config)
        biases = config["num_hidden_layers"] * (7 * width + config["intermediate_size"]) + width
        return ParameterCount(forward=size, backward=size, updated=biases)


def build_symmetric_info_nce(
    model: SentenceTransformer, settings: EmbeddingSettings, *, micro_batch: int | None, gather: bool
) -> nn.Module:
    """The mean of the cross-entropies of queries among documents and of documents among queries.

    Source: Ziarko et al. (2024) and its code. For the arguments see finetune.embedding.settings.Loss.
    """
    from finetune.embedding.losses import build_symmetric_loss

    return build_symmetric_loss(
        model, settings.scale, micro_batch=micro_batch or settings.batch_size, gather=gather
    )
