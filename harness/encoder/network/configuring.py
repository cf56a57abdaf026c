"""From a config to the network it stands for, without weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.family import Family
from harness.encoder.folder import read_object
from harness.encoder.network.architecture import Architecture
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


def configured(folder: Path, family: Family | None) -> tuple[PreTrainedConfig, Architecture]:
    """The config a network of this folder carries, and its shape.

    Raises:
        ModelError: If the family has no network of ours.
    """
    from harness.encoder.network.config import EncoderConfig

    content = read_object(folder / "config.json")
    if family is None:
        own = EncoderConfig.from_pretrained(folder)
        return own, own.shape
    return configured_from(content, family)


def configured_from(content: Mapping[str, Any], family: Family) -> tuple[PreTrainedConfig, Architecture]:
    """The config and the shape that the content of a published config.json stands for."""
    from transformers import CONFIG_MAPPING

    from harness.encoder.network.config import EncoderConfig

    if family.shape is None:
        raise ModelError(f"A {content.get('model_type')} runs through transformers' own class.")
    if family.native:
        kind = CONFIG_MAPPING[str(content["model_type"])]
        config: PreTrainedConfig = kind.from_dict(dict(content))
        shape = family.shape(config.to_dict())
        # A CamembertConfig that says nothing of it has no default, and transformers then ties nothing.
        config.tie_word_embeddings = shape.tie_word_embeddings
        return config, shape
    shape = family.shape(content)
    return EncoderConfig.of(shape), shape
