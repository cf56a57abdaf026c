"""The parameters of a network that a training computes with, and the operations that they cost.

Embeddings are left out, since looking up a row computes nothing, and so is a pooler, whose vector of the
first token no model here uses. What attention computes without parameters is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.folder.modules import find_backbone_folder
from harness.results.compute import is_embedding, is_used, read_backbone_shapes

if TYPE_CHECKING:
    from torch import nn

FINAL_NORMS = ("final_norm", "final_layer_norm", "final_layernorm", "norm", "ln_f")
"""Names of the norm after the last block, beside the list of blocks."""


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """The numbers of parameters that have a part in a training.

    Attributes:
        forward: Those that compute the output, adapters among them.
        backward: Those that gradients pass through: all from the first block on that has a trained parameter.
        updated: Those that get a gradient.
    """

    forward: int
    backward: int
    updated: int

    @staticmethod
    def count_parameters(network: nn.Module) -> ParameterCount:
        """The counts of a network as it is trained; a parameter of two modules counts once."""
        stages, tables = _split_stages(network), collect_embedding_parameters(network)
        trained = [any(weight.requires_grad for weight in stage) for stage in stages]
        # Gradients pass from the output back to the first stage that is trained, and no further.
        begin = trained.index(True) if any(trained) else len(stages)
        sizes = [sum(weight.numel() for weight in stage - tables) for stage in stages]
        updated = {weight for stage in stages for weight in stage - tables if weight.requires_grad}
        return ParameterCount(
            forward=sum(sizes), backward=sum(sizes[begin:]), updated=sum(weight.numel() for weight in updated)
        )

    def compute_flops(self, tokens: float, *, scored: float = 0.0) -> float:
        """The operations of a training on `tokens` tokens, and of a forward pass over `scored` others.

        >>> ParameterCount(forward=10, backward=6, updated=5).compute_flops(100)
        4200.0
        """
        # A multiplication and an addition for each parameter and token, once forward, once for the gradients
        # of activations and once for those of weights (Kaplan et al. 2020).
        return 2.0 * (self.forward * (tokens + scored) + (self.backward + self.updated) * tokens)


def list_blocks(network: nn.Module) -> list[nn.Module]:
    """The blocks of a network in their order; empty where it has no list of them."""
    return [*_find_block_list(network)[1]]


def find_final_norms(network: nn.Module) -> list[nn.Module]:
    """The norm after the last block, or none."""
    place = _find_block_list(network)[0].rpartition(".")[0]
    beside = network.get_submodule(place).named_children()
    return [module for name, module in beside if name in FINAL_NORMS]


def collect_embedding_parameters(network: nn.Module) -> set[nn.Parameter]:
    """The weights of embeddings and of their adapters."""
    from torch import nn

    tables = (
        module
        for module in network.modules()
        # peft wraps an embedding with an adapter; base_layer is the embedding itself.
        if isinstance(getattr(module, "base_layer", module), nn.Embedding)
    )
    return {weight for table in tables for weight in table.parameters()}


def _find_block_list(network: nn.Module) -> tuple[str, nn.ModuleList]:
    """The name of the largest list of modules, and the list; it may be within an inner network."""
    from torch import nn

    # The largest: some networks have short lists of other modules beside their blocks.
    lists = [(name, found) for name, found in network.named_modules() if isinstance(found, nn.ModuleList)]
    sizes = [sum(weight.numel() for weight in found.parameters()) for _, found in lists]
    return lists[sizes.index(max(sizes))] if lists else ("", nn.ModuleList())


def _split_stages(network: nn.Module) -> list[set[nn.Parameter]]:
    """The used parameters in the order of a forward pass: before the blocks, of each block, after them."""
    later: list[set[nn.Parameter]] = []
    for module in (*list_blocks(network), *find_final_norms(network)):
        # A weight that two blocks share belongs to the first.
        later.append({*module.parameters()}.difference(*later))
    used = {weight for name, weight in network.named_parameters() if is_used(name)}
    return [used.difference(*later), *later]


def count_backbone_parameters(folder: Path) -> int | None:
    """The parameters of a model's backbone without its embeddings, from JSON and headers of weight files.

    Of a backbone that our network does not run, embeddings are known by their names.

    Args:
        folder: The folder of a model or of a bare backbone.

    Returns:
        Their number; None where the files do not tell it.

    Raises:
        ModelError: The config makes no network, or a weight file is corrupt.
    """
    place = find_backbone_folder(folder)
    shapes = read_backbone_shapes(place)
    if not shapes:
        return None
    counted = (size for name, size in shapes.items() if is_used(name) and not is_embedding(name, size))
    return sum(map(math.prod, counted))


def count_gpt_neox_parameters(config: Mapping[str, Any]) -> int:
    """The parameters of the blocks and of the final norm of a GPT-NeoX.

    >>> count_gpt_neox_parameters({"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6})
    18915328
    """
    width, inside = config["hidden_size"], config["intermediate_size"]
    attention = 4 * width * (width + 1)
    feed_forward = 2 * width * inside + inside + width
    norm = 2 * width
    return int(config["num_hidden_layers"] * (attention + feed_forward + 2 * norm) + norm)
