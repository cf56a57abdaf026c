"""From a folder of published weights to our network, loudly where a tensor is missing or left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.family import Family
from harness.encoder.network.configuring import build, configured, shape_of
from harness.encoder.network.tensors import read_tensors
from harness.errors import ModelError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

    from harness.encoder.network.masked import EncoderForMaskedLM
    from harness.encoder.network.model import EncoderModel


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A network, and the tensors of its folder that are not in it, each with the reason."""

    model: EncoderModel | EncoderForMaskedLM
    ignored: Mapping[str, str]


def load_network(
    folder: Path,
    family: Family | None,
    *,
    dtype: torch.dtype,
    head: bool = False,
    config: PreTrainedConfig | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Loaded:
    """The network that lies in a folder.

    Args:
        folder: With config.json and weights.
        family: Of its published form; None for a folder we saved under our own model type.
        dtype: Of its parameters.
        head: Whether with the masked-language head.
        config: From `configured`, where it is known already.
        changes: Fields of the Architecture that are to be other than the config says.

    Raises:
        ModelError: If a tensor is missing, or one is there that nothing accounts for.
    """
    import torch

    from harness.encoder.network.config import EncoderConfig

    if config is None:
        config, shape = configured(folder, family)
    else:
        shape = shape_of(config, family)
    found = read_tensors(folder, None if family is None else family.names, head=head)
    pooled = shape.pooler and any("pooler." in name for name in found.state)
    shape = replace(shape, pooler=pooled, **(changes or {}))
    if isinstance(config, EncoderConfig):
        config.adopt(shape)
    with torch.device("meta"):
        model = build(config, shape, family, head=head)
    problems = found.problems(model.state_dict(), shape)
    if problems:
        raise ModelError(
            f"{folder.name} is not loaded whole: {'; '.join(problems)}.",
            hint="Its config and its weights do not belong together, or the weights are of another "
            "architecture.",
        )
    state = {name: tensor.to(dtype) for name, tensor in found.state.items()}
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    model.eval()  # type: ignore[no-untyped-call]
    return Loaded(model=model, ignored=found.ignored)
