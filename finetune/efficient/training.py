"""The training of a part of a backbone's weights, or of all, in as many steps as a budget allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from torch import nn

from finetune.efficient.settings import SAMPLE, EfficientSettings, FreezeSettings, LoraSettings
from finetune.embedding.settings import Loss
from finetune.embedding.setups import EmbeddingSetup, Order, batch_order
from harness.core.errors import HarnessError, UsageError
from harness.encoder.library_load import enable_checkpointing, tokenize_batch
from harness.encoder.network.pretrained import merge_adapters
from harness.results.cost.compute import (
    ParameterCount,
    collect_embedding_parameters,
    find_final_norms,
    is_used,
    list_blocks,
)
from harness.training.training import TrainingSpec


class EfficientSetup(EmbeddingSetup):
    """The training of a part of a backbone's weights.

    Args:
        settings: The settings of the recipe.
        loss: The loss of the recipe.
        spec: The training.
    """

    def __init__(self, settings: EfficientSettings, loss: Loss, spec: TrainingSpec) -> None:
        super().__init__(settings, loss, caches=True)
        self._efficient, self._spec = settings, spec

    def build_order(self, data: Any, spec: TrainingSpec) -> Order:
        """The batches that the settings name, as many as the budget allows, in as many epochs as they need.

        Raises:
            HarnessError: The budget is below that of a step, or the rows fill no batch.
        """
        settings, budget = self._efficient, self._efficient.budget
        if budget is None:
            return batch_order(data, spec, settings)
        # One pass is enough to draw a sample; epochs are added until they have the steps.
        once = batch_order(data, spec, replace(settings, epochs=1))
        tokens = self._estimate_row_tokens(data, once) * settings.batch_size
        count = ParameterCount.count_parameters(self._model[0].auto_model)
        each = count.compute_flops(tokens)
        steps = math.floor(budget / each)
        if steps < 1:
            raise HarnessError(
                f"A budget of {budget:g} FLOP is below one step, which takes {each:g}.",
                hint="Give a larger one, or smaller batches: --set budget=… --set batch_size=…",
            )
        spec.log.note(
            f"a budget of {budget:g} FLOP is {steps:,} steps of {tokens:,.0f} tokens: {count.forward:,} "
            f"parameters forward, {count.backward:,} backward, {count.updated:,} updated"
        )
        epochs = math.ceil(steps / once.steps)
        return batch_order(data, spec, replace(settings, epochs=epochs, max_steps=steps))

    def build_model(self, spec: TrainingSpec) -> Any:
        """The backbone with a new pooling; only the weights that the method names are trained."""
        # The order of batches has counted the parameters of this very model.
        return self._model

    def save_model_folder(self, model: Any, folder: Path) -> None:
        """Write the model with its adapters merged."""
        merge_adapters(model[0].auto_model)
        length = self._efficient.evaluation_length
        if length is not None:
            self._length = min(length, self._length or length)
        super().save_model_folder(model, folder)

    @cached_property
    def _model(self) -> Any:
        model: Any = super().build_model(self._spec)
        backbone = model[0].auto_model
        apply_tuning(backbone, self._efficient)
        if self._efficient.gradient_checkpointing:
            # The older form of checkpointing gives no gradients where the input needs none, as with frozen
            # embeddings.
            enable_checkpointing(backbone, reentrant=False)
        return model

    def _estimate_row_tokens(self, data: Any, order: Order) -> float:
        """The mean number of tokens of a row by which operations are counted."""
        if self._efficient.tokens_per_pair is not None:
            return float(self._efficient.tokens_per_pair)
        token_count = rows = 0
        for numbers in islice(order.iter_batches(0), math.ceil(SAMPLE / self._efficient.batch_size)):
            columns = data[numbers.tolist()]
            rows += len(numbers)
            for texts in columns.values():
                token_count += int(tokenize_batch(self._model, texts)["attention_mask"].sum())
        return token_count / rows


def apply_tuning(backbone: nn.Module, settings: EfficientSettings) -> None:
    """Leave only the weights of the method trained; with "lora" adapters are put into the backbone.

    Args:
        backbone: Our network, or a model of transformers.
        settings: The settings of the method.

    Raises:
        UsageError: The backbone has no such layers or no biases, or its blocks are not divided by the share.
    """
    if isinstance(settings, LoraSettings):
        _add_adapters(backbone, settings)
        return
    trained = _select_trainable_weights(backbone, settings)
    backbone.requires_grad_(False)
    for weight in trained:
        weight.requires_grad_(True)


def _select_trainable_weights(backbone: nn.Module, settings: EfficientSettings) -> Sequence[nn.Parameter]:
    if settings.method == "bias":
        return _find_biases(backbone)
    if not isinstance(settings, FreezeSettings):
        return [*backbone.parameters()]
    blocks, tables = list_blocks(backbone), collect_embedding_parameters(backbone)
    last = blocks[settings.count_frozen_blocks(len(blocks)) :]
    weights = [weight for part in (*last, *find_final_norms(backbone)) for weight in part.parameters()]
    # An embedding within a block (of relative positions, e.g. T5's) stays frozen like the others.
    return [weight for weight in weights if weight not in tables]


def _find_biases(backbone: nn.Module) -> Sequence[nn.Parameter]:
    weights = dict(backbone.named_parameters())
    biases = [weights[name] for name in weights if is_used(name) and "bias" in name.rpartition(".")[2]]
    if not biases:
        raise UsageError("The backbone has no biases to train.", hint="Use another method, such as lora.")
    return biases


def _add_adapters(backbone: nn.Module, settings: LoraSettings) -> None:
    """Put an adapter beside each layer; only adapters are trained, and the output is as before."""
    from peft import LoraConfig, inject_adapter_in_model

    names = [*_find_dense_layers(backbone, settings.lora_modules)]
    if settings.lora_embeddings:
        tokens = backbone.get_input_embeddings()  # type: ignore[operator]
        names += [name for name, module in backbone.named_modules() if module is tokens]
    # Full names, since peft takes every module whose name ends with one of these.
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.lora_alpha, lora_dropout=0.0, target_modules=names
    )
    inject_adapter_in_model(config, backbone)


def _find_dense_layers(backbone: nn.Module, ends: Sequence[str]) -> Sequence[str]:
    """The names of the dense layers with one of these ends, or of all dense layers."""
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
