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
    if runs_own_code(config, own_code) or (folder / "adapter_config.json").is_file():
        return False
    family = family_in(folder)
    return config.get("model_type") == MODEL_TYPE or (family is not None and family.shape is not None)


def runs_own_code(config: Mapping[str, Any], allowed: bool) -> bool:
    """Whether the classes that a config names as its own run, which they do where that is allowed."""
    return allowed and bool(config.get("auto_map"))


def check_family(artifact: Artifact, encoding: Encoding) -> None:
    """See that each backbone can be run as asked for, as far as its family knows.

    Raises:
        UsageError: If it does not run in the dtype.
        ModelError: If it asks for what transformers would leave out unsaid, or for what no network computes.
    """
    for folder in module_folders(artifact.folder):
        if not has_network(folder, own_code=artifact.trust_remote_code):
            _check_positions(artifact, folder)
        family = family_in(folder)
        if family is None:
            _require_no_variant(artifact, folder)
            continue
        if family.float32_only is not None and encoding.dtype != "float32":
            raise UsageError(
                f"{artifact.name} is not run in {encoding.dtype}: {family.float32_only}.",
                hint="Leave the dtype out, or ask for float32.",
            )


def _check_positions(artifact: Artifact, folder: Path) -> None:
    config = read_object(folder / "config.json")
    asked = config.get("position_embedding_type")
    own_code = runs_own_code(config, artifact.trust_remote_code)
    if asked in RELATIVE and config.get("model_type") not in HAVE_RELATIVE and not own_code:
        raise ModelError(
            f"{artifact.name} has {asked} positions, which transformers 5 has dropped: it would run without.",
            hint="It cannot be evaluated with this version.",
        )


def _require_no_variant(artifact: Artifact, folder: Path) -> None:
    """See that a type which only we know is one of those that we know."""
    kind = read_object(folder / "config.json").get("model_type")
    families = {n: e.family for n, e in catalog.backbones().items() if e.family is not None}
    named = {name: family for name, family in families.items() if kind in family.model_types}
    if named and not any(family.native or family.shape is None for family in named.values()):
        if artifact.trust_remote_code:
            return
        raise ModelError(
            f"{artifact.name} is a {kind}, but none that the family {next(iter(named))} computes: its "
            "config.json lacks a field, or has a setting that makes another network of it.",
            hint="Hold it against the config.json of the published model. If its folder brings code of its "
            "own and you trust it, add --trust-remote-code.",
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
