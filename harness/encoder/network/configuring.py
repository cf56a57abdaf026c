"""From a config to the network it stands for, without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.family import Family
from harness.encoder.folder import read_object
from harness.encoder.network.architecture import MODEL_TYPE, Architecture
from harness.encoder.network.saving import Published
from harness.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from harness.encoder.network.masked import EncoderForMaskedLM
    from harness.encoder.network.model import EncoderModel


def build(
    config: PreTrainedConfig, shape: Architecture, family: Family | None, *, head: bool = False
) -> EncoderModel | EncoderForMaskedLM:
    """A network without weights worth keeping."""
    from harness.encoder.network.masked import EncoderForMaskedLM
    from harness.encoder.network.model import EncoderModel

    published = None
    if family is not None and family.native and family.names is not None:
        published = Published(names=family.names, with_head=head)
    return (EncoderForMaskedLM if head else EncoderModel)(config, shape, published)


def configured(
    folder: Path, family: Family | None, changes: Mapping[str, Any] | None = None
) -> tuple[PreTrainedConfig, Architecture]:
    """The config a network of this folder carries, and its shape.

    Args:
        folder: With a config.json.
        family: Of its published form; None for a folder we saved under our own model type.
        changes: Values in place of those of the config.json, by its own names.

    Raises:
        ModelError: If the family has no network of ours, or cannot read the config.
    """
    from harness.encoder.network.config import EncoderConfig

    content = read_object(folder / "config.json")
    if family is None and content.get("model_type") != MODEL_TYPE:
        raise ModelError(
            f"{folder.name}, a {content.get('model_type', 'model of no type')}, is of no family here.",
            hint="`harness list backbones` shows the families; others load with transformers' AutoModel.",
        )
    if family is not None:
        config, shape = configured_from({**content, **(changes or {})}, family)
    else:
        config = EncoderConfig.from_dict(_changed(content, changes or {}))
        shape = config.shape
    config.name_or_path = str(folder)
    return config, shape


def _changed(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config.json of ours with other values, by the names of Architecture or its own."""
    inside = {field.name for field in fields(Architecture)}
    unknown = sorted(changes.keys() - inside - content.keys())
    if unknown:
        raise ModelError(
            f"The config of the model has no {', '.join(unknown)}.",
            hint="It was saved under our own model type: see `harness/encoder/network/architecture.py`.",
        )
    within = {name: value for name, value in changes.items() if name in inside}
    outside = {name: value for name, value in changes.items() if name in content}
    return {**content, **outside, "architecture": {**content["architecture"], **within}}


def configured_from(content: Mapping[str, Any], family: Family) -> tuple[PreTrainedConfig, Architecture]:
    """The config and the shape that the content of a published config.json stands for."""
    from transformers import CONFIG_MAPPING

    from harness.encoder.network.config import EncoderConfig

    if not family.native:
        shape = family.architecture(content)
        return EncoderConfig.of(shape), shape
    config: PreTrainedConfig = CONFIG_MAPPING[str(content["model_type"])].from_dict(dict(content))
    shape = shape_of(config, family)
    # A CamembertConfig that says nothing of it has no default, and transformers then ties nothing.
    config.tie_word_embeddings = shape.tie_word_embeddings
    return config, shape


def shape_of(config: PreTrainedConfig, family: Family | None) -> Architecture:
    """The architecture that a config of `configured` stands for."""
    from harness.encoder.network.config import EncoderConfig

    if isinstance(config, EncoderConfig):
        return config.shape
    assert family is not None
    return family.architecture(config.to_dict())
