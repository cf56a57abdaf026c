"""Which network a model folder runs through, from its JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import catalog
from harness.encoder.folder import read_object
from harness.encoder.modules import module_folders
from harness.encoder.network.architecture import MODEL_TYPE
from harness.errors import ModelError, UsageError
from harness.types import Artifact, Encoding

if TYPE_CHECKING:
    from harness.encoder.family import Family

TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model")
"""Files one of which a tokenizer is read from."""

RELATIVE = ("relative_key", "relative_key_query")
"""Kinds of positions that BERT once had in transformers."""

HAVE_RELATIVE = ("esm",)
"""Model types that still have them."""


def family_in(folder: Path) -> Family | None:
    """The family of the backbone in a folder, None if it is none of ours."""
    return catalog.family_of(read_object(folder / "config.json"))


def has_network(folder: Path, *, own_code: bool = False) -> bool:
    """Whether the backbone in a folder runs through our network, not through a class of transformers.

    With `own_code`, one that names classes of its own does not.
    """
    config = read_object(folder / "config.json")
    if (own_code and config.get("auto_map")) or (folder / "adapter_config.json").is_file():
        return False
    family = family_in(folder)
    return config.get("model_type") == MODEL_TYPE or (family is not None and family.shape is not None)


def check_family(artifact: Artifact, encoding: Encoding) -> None:
    """See that each backbone can be run as asked for, as far as its family knows.

    Raises:
        UsageError: If it does not run in the dtype.
        ModelError: If it brings no tokenizer, or asks for what transformers would leave out unsaid.
    """
    for folder in module_folders(artifact.folder):
        if not has_network(folder, own_code=artifact.trust_remote_code):
            _check_positions(artifact, folder)
        family = family_in(folder)
        if family is None:
            continue
        if family.float32_only is not None and encoding.dtype != "float32":
            raise UsageError(
                f"{artifact.name} is not run in {encoding.dtype}: {family.float32_only}.",
                hint="Leave the dtype out, or ask for float32.",
            )
        if family.tokenizer is not None and not any((folder / name).is_file() for name in TOKENIZERS):
            raise ModelError(
                f"{artifact.name} brings no tokenizer.",
                hint=f"Put that of {family.tokenizer} into a copy of its folder.",
            )


def _check_positions(artifact: Artifact, folder: Path) -> None:
    config = read_object(folder / "config.json")
    asked = config.get("position_embedding_type")
    own_code = artifact.trust_remote_code and config.get("auto_map")
    if asked in RELATIVE and config.get("model_type") not in HAVE_RELATIVE and not own_code:
        raise ModelError(
            f"{artifact.name} has {asked} positions, which transformers 5 has dropped: it would run without.",
            hint="It cannot be evaluated with this version.",
        )


def most_positions(config: Mapping[str, Any]) -> int | None:
    """The most tokens of a text in our network, as far as its own config says; None where it does not.

    Of transformers' own types, those with rotary positions say it here.
    """
    if config.get("model_type") == MODEL_TYPE:
        shape = config.get("architecture", {})
        return None if shape.get("positions") == "alibi" else shape.get("max_position_embeddings")
    family = catalog.family_of(config)
    if family is None or family.shape is None:
        return None
    if family.native:
        rotary = any("rope" in name or "rotary" in name for name in config)
        return config.get("max_position_embeddings") if rotary else None
    known = family.architecture(config)
    return None if known.positions == "alibi" else known.max_position_embeddings
