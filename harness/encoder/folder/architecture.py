"""The architecture of the backbone in a folder, as its config names it, and whether our network runs it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError
from harness.encoder import backbones
from harness.encoder.family import MODEL_TYPE, Architecture, Family
from harness.encoder.folder.files import read_object


def family_in(folder: Path) -> Family | None:
    """The family of the backbone in a folder, None if the catalog has none."""
    return backbones.family_of(read_object(folder / "config.json"))


def own_architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture in a config.json under our own model type.

    Raises:
        ModelError: It has none, or one that is not known here.
    """
    values = config.get("architecture")
    if not isinstance(values, Mapping):
        raise ModelError(
            "The config.json of the model has no architecture.", hint="Fetch or write the model folder again."
        )
    return Architecture.of({**values, "vocab_size": config.get("vocab_size", values.get("vocab_size"))})


def architecture_in(folder: Path) -> Architecture:
    """The architecture of a backbone that our network runs, as its config.json has it.

    Raises:
        ModelError: The config makes no network.
    """
    family, config = family_in(folder), read_object(folder / "config.json")
    return own_architecture(config) if family is None else family.outline(config)


def has_network(folder: Path, *, own_code: bool = False) -> bool:
    """Whether our network runs the backbone in a folder; not if it runs its own classes (`own_code`)."""
    config = read_object(folder / "config.json")
    if runs_remote_code(config, own_code) or (folder / "adapter_config.json").is_file():
        return False
    family = family_in(folder)
    return config.get("model_type") == MODEL_TYPE or (family is not None and family.shape is not None)


def runs_remote_code(config: Mapping[str, Any], allowed: bool) -> bool:
    """Whether the classes in a config's `auto_map` run: they exist, and code is allowed."""
    return allowed and bool(config.get("auto_map"))


def max_positions(config: Mapping[str, Any]) -> int | None:
    """The most tokens of a text in our network, None if unlimited or left to the table of positions."""
    if config.get("model_type") == MODEL_TYPE:
        shape = config.get("architecture", {})
        return None if shape.get("positions") == "alibi" else shape.get("max_position_embeddings")
    family = backbones.family_of(config)
    if family is None or family.shape is None:
        return None
    if family.native:
        rotary = any("rope" in name or "rotary" in name for name in config)
        return config.get("max_position_embeddings") if rotary else None
    known = family.architecture(config)
    return None if known.positions == "alibi" else known.max_position_embeddings
