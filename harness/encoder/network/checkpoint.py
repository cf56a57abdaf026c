"""Loading of published weights into our network, with an error if a tensor is missing or left over.

Tensors are read, renamed to our names, and compared with those of a network that is built from the config
without weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from harness.core.errors import ModelError
from harness.encoder.family import MODEL_TYPE, Architecture, Family, Names
from harness.encoder.folder.files import module_weights, read_object
from harness.encoder.folder.tensors import FoundTensors
from harness.encoder.network.model import EncoderForMaskedLM, EncoderModel
from harness.encoder.network.pretrained import EncoderConfig, Published


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A network, and the tensors of its folder that were left out, each with the reason."""

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
    allow_extra: Sequence[str] = (),
) -> _Loaded:
    """The network in a folder.

    Args:
        folder: The folder with config.json and weights.
        family: The family of its published form; None for a folder under our own model type.
        dtype: The dtype of its parameters.
        head: Whether the masked-language head is loaded.
        config: The config from `configured`, if already known.
        changes: Fields of the Architecture that override the config.
        allow_extra: Tensors, with * and ?, that may have no place in the network.

    Raises:
        ModelError: A tensor is missing, or an unknown tensor exists.
    """
    import torch

    if config is None:
        config, shape = configured(folder, family)
    else:
        shape = _shape_of(config, family)
    found = read_tensors(folder, None if family is None else family.names, head=head, allowed=allow_extra)
    pooled = shape.pooler and any("pooler." in name for name in found.state)
    shape = replace(shape, pooler=pooled, **(changes or {}))
    if isinstance(config, EncoderConfig):
        config.adopt(shape)
    with torch.device("meta"):
        model = _build(config, shape, family, head=head)
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    found.check(wanted, shape, folder.name)
    state = {name: tensor.to(dtype) for name, tensor in found.state.items()}
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    model.eval()  # type: ignore[no-untyped-call]
    model.notes += found.notes
    return _Loaded(model=model, ignored=found.ignored)


def read_tensors(
    folder: Path, names: Names | None, *, head: bool, allowed: Sequence[str] = ()
) -> FoundTensors:
    """The tensors of a folder's weight files, on the CPU."""
    return FoundTensors.of(raw_tensors(folder), names, head=head, allowed=allowed)


def raw_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's weight files under their names there, on the CPU."""
    import torch
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in module_weights(folder):
        if path.suffix == ".safetensors":
            tensors.update(load_file(path))
        else:
            tensors.update(torch.load(path, map_location="cpu", weights_only=True))
    return tensors


def _build(
    config: PreTrainedConfig, shape: Architecture, family: Family | None, *, head: bool = False
) -> EncoderModel | EncoderForMaskedLM:

    published = None
    if family is not None and family.native and family.names is not None:
        published = Published(names=family.names, with_head=head)
    return (EncoderForMaskedLM if head else EncoderModel)(config, shape, published)


def configured(
    folder: Path, family: Family | None, changes: Mapping[str, Any] | None = None
) -> tuple[PreTrainedConfig, Architecture]:
    """The config of a network in this folder, and its architecture.

    Args:
        folder: The folder with config.json.
        family: The family of its published form; None for a folder under our own model type.
        changes: Values that override those of the config.json, by its own names.

    Raises:
        ModelError: The family has no network of ours, or cannot read the config.
    """
    content = read_object(folder / "config.json")
    if family is None and content.get("model_type") != MODEL_TYPE:
        raise ModelError(
            f"{folder.name}, a {content.get('model_type', 'model of no type')}, is of no family here.",
            hint="`harness list backbones` shows the families; others load with transformers' AutoModel.",
        )
    if family is not None:
        config, shape = _configured_from({**content, **(changes or {})}, family)
    else:
        config = EncoderConfig.from_dict(_changed(content, changes or {}))
        shape = config.shape
    config.name_or_path = str(folder)
    return config, shape


def _changed(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json of ours with changed values, by the names of Architecture or its own."""
    inside = {field.name for field in fields(Architecture)}
    unknown = sorted(changes.keys() - inside - content.keys())
    if unknown:
        raise ModelError(
            f"The config of the model has no {', '.join(unknown)}.",
            hint="It was saved under our own model type: see `harness/encoder/family.py`.",
        )
    within = {name: value for name, value in changes.items() if name in inside}
    outside = {name: value for name, value in changes.items() if name in content}
    return {**content, **outside, "architecture": {**content["architecture"], **within}}


def _configured_from(content: Mapping[str, Any], family: Family) -> tuple[PreTrainedConfig, Architecture]:
    from transformers import CONFIG_MAPPING

    if not family.native:
        shape = family.architecture(content)
        return EncoderConfig.of(shape), shape
    config: PreTrainedConfig = CONFIG_MAPPING[str(content["model_type"])].from_dict(dict(content))
    shape = _shape_of(config, family)
    # A CamembertConfig without this field has no default, and transformers then ties no weights.
    config.tie_word_embeddings = shape.tie_word_embeddings
    return config, shape


def _shape_of(config: PreTrainedConfig, family: Family | None) -> Architecture:
    """The architecture of a config from `configured`."""
    if isinstance(config, EncoderConfig):
        return config.shape
    assert family is not None
    return family.architecture(config.to_dict())
