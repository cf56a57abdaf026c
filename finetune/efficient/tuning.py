"""Tuning of a part of a backbone's weights: its last blocks, its biases, or adapters (LoRA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, get_args

from finetune.flops import collect_embedding_parameters, find_final_norms, list_blocks
from harness.core.errors import UsageError, explain_unknown
from harness.results.compute import is_used

if TYPE_CHECKING:
    from torch import nn

Method = Literal["full", "freeze", "lora", "bias"]


@dataclass(frozen=True, kw_only=True)
class TuningSettings:
    """The settings that choose which weights of a backbone are trained.

    Attributes:
        method: "full" for all of them; "freeze" for those of the last blocks and of the final norm; "lora"
            for adapters of low rank beside the dense layers; "bias" for the biases.
        frozen: The share of blocks that "freeze" freezes, from the first on, as a number or as "1/6"; the
            embeddings and their norm are always frozen.
        rank: The rank of adapters.
        alpha: The output of an adapter is multiplied by alpha / rank; 8 is peft's default.
        lora_modules: The dense layers that get adapters, by the ends of their names; empty for all.
        lora_embeddings: Whether the token embedding gets an adapter as well.
    """

    method: Method = "full"
    frozen: float | str = 0.0
    rank: int = 32
    alpha: int = 8
    lora_modules: tuple[str, ...] = ()
    lora_embeddings: bool = False

    def check_tuning(self) -> None:
        """Refuse values that no backbone can be trained with.

        Raises:
            UsageError: One of them is out of its range.
        """
        if self.method not in get_args(Method):
            raise explain_unknown("method", self.method, get_args(Method), then="Choose one of these.")
        for name in ("rank", "alpha"):
            if getattr(self, name) < 1:
                raise UsageError(
                    f"{name} is {getattr(self, name)}, which no adapter can have.",
                    hint=f"Give a whole number, 1 or more: --set {name}=…",
                )
        if not 0 <= self._share() < 1:
            raise self._explain_bad_share()

    def count_frozen_blocks(self, blocks: int) -> int:
        """The number of frozen blocks, of `blocks` in all.

        Raises:
            UsageError: The share is not that of a whole number of blocks; the hint has those that are.

        Example:
            >>> TuningSettings(method="freeze", frozen="5/6").count_frozen_blocks(12)
            10
        """
        if not blocks:
            raise UsageError("The backbone has no list of blocks to freeze.", hint="Use another method.")
        count = self._share() * blocks
        if count.denominator == 1 and 0 <= count < blocks:
            return int(count)
        allowed = ", ".join(f"{number}/{blocks}" for number in range(blocks))
        raise UsageError(
            f"frozen is {self.frozen}, which is not a whole number of {blocks} blocks below all of them.",
            hint=f"Give one of these: --set frozen=… with {allowed}",
        )

    def share_text(self) -> str:
        """The share of frozen blocks as a fraction in its lowest terms, such as 1/2.

        Raises:
            UsageError: It is not a number.
        """
        return str(self._share())

    def _share(self) -> Fraction:
        try:
            # 0.1667 stands for 1/6: no backbone has a thousand blocks.
            return Fraction(str(self.frozen)).limit_denominator(1000)
        except (ValueError, ZeroDivisionError) as error:
            raise self._explain_bad_share() from error

    def _explain_bad_share(self) -> UsageError:
        return UsageError(
            f"frozen is {self.frozen}, which is not a share of the blocks.",
            hint="Give a number from 0 to below 1, or a fraction: --set frozen=1/6",
        )


def apply_tuning(backbone: nn.Module, tuning: TuningSettings) -> None:
    """Leave only the weights of the method trained; with "lora" adapters are put into the backbone.

    Args:
        backbone: Our network, or a model of transformers.
        tuning: The method and its settings.

    Raises:
        UsageError: The backbone has no such layers or no biases, or its blocks are not divided by the share.
    """
    tuning.check_tuning()
    if tuning.method == "lora":
        _add_adapters(backbone, tuning)
        return
    trained = _select_trainable_weights(backbone, tuning)
    backbone.requires_grad_(False)
    for weight in trained:
        weight.requires_grad_(True)


def _select_trainable_weights(backbone: nn.Module, tuning: TuningSettings) -> Sequence[nn.Parameter]:
    if tuning.method == "full":
        return [*backbone.parameters()]
    if tuning.method == "bias":
        return _find_biases(backbone)
    blocks, tables = list_blocks(backbone), collect_embedding_parameters(backbone)
    last = blocks[tuning.count_frozen_blocks(len(blocks)) :]
    weights = [weight for part in (*last, *find_final_norms(backbone)) for weight in part.parameters()]
    # An embedding within a block (of relative positions, e.g. T5's) stays frozen like the others.
    return [weight for weight in weights if weight not in tables]


def _find_biases(backbone: nn.Module) -> Sequence[nn.Parameter]:
    weights = dict(backbone.named_parameters())
    biases = [weights[name] for name in weights if is_used(name) and "bias" in name.rpartition(".")[2]]
    if not biases:
        raise UsageError("The backbone has no biases to train.", hint="Use another method, such as lora.")
    return biases


def _add_adapters(backbone: nn.Module, tuning: TuningSettings) -> None:
    """Put an adapter beside each layer; only adapters are trained, and the output is as before."""
    from peft import LoraConfig, inject_adapter_in_model

    names = [*_find_dense_layers(backbone, tuning.lora_modules)]
    if tuning.lora_embeddings:
        names.append(_find_token_embedding(backbone))
    # Full names, since peft takes every module whose name ends with one of these.
    config = LoraConfig(r=tuning.rank, lora_alpha=tuning.alpha, lora_dropout=0.0, target_modules=names)
    inject_adapter_in_model(config, backbone)


def _find_dense_layers(backbone: nn.Module, ends: Sequence[str]) -> Sequence[str]:
    """The names of the dense layers with one of these ends, or of all dense layers."""
    from torch import nn

    layers = backbone.named_modules()
    names = [name for name, layer in layers if isinstance(layer, nn.Linear) and is_used(name)]
    nowhere = [end for end in ends if not any(_has_ending(name, end) for name in names)]
    if nowhere or not names:
        last = dict.fromkeys(name.rpartition(".")[2] for name in names)
        raise UsageError(
            f"No dense layer of the backbone is called {' or '.join(nowhere) or 'anything'}.",
            hint=f"lora_modules are ends of names; its dense layers are: {', '.join(last) or 'none'}.",
        )
    return [name for name in names if not ends or any(_has_ending(name, end) for end in ends)]


def _has_ending(name: str, end: str) -> bool:
    # With a dot before it, so that "value" is not the end of "key_value".
    return f".{name}".endswith(f".{end}")


def _find_token_embedding(backbone: nn.Module) -> str:
    tokens = backbone.get_input_embeddings()  # type: ignore[operator]
    names: dict[nn.Module, str] = {module: name for name, module in backbone.named_modules()}
    return names[tokens]


def merge_adapters(backbone: nn.Module) -> None:
    """Add adapters to the weights that they stand beside, and put the plain layers back in their places.

    A backbone without adapters stays as it is.
    """
    if not hasattr(backbone, "peft_config"):
        return
    from peft.tuners.lora import LoraLayer

    adapted = [(name, layer) for name, layer in backbone.named_modules() if isinstance(layer, LoraLayer)]
    for name, layer in adapted:
        layer.merge()
        place, _, last = name.rpartition(".")
        setattr(backbone.get_submodule(place), last, layer.get_base_layer())
    # peft keeps its settings here: without them the backbone counts as a plain one again.
    del backbone.peft_config
