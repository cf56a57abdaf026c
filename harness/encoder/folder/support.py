"""The variants and settings of a backbone that nothing here computes, known from its config."""

from __future__ import annotations

from pathlib import Path

from harness.core.encoding import Encoding
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder import backbones
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import can_run_remote_code, has_network, list_module_folders, read_family

RELATIVE = ("relative_key", "relative_key_query")
"""Kinds of positions that older versions of transformers had for BERT."""

HAVE_RELATIVE = ("esm",)
"""Model types that still have them."""


def check_family(artifact: Artifact, encoding: Encoding) -> None:
    """Refuse backbones that cannot run with the requested settings, as far as their family knows.

    Raises:
        ModelError: It is a variant that nothing here computes.
        UsageError: It does not run in the requested dtype.
    """
    for folder in list_module_folders(artifact.folder):
        if not has_network(folder, own_code=artifact.trust_remote_code):
            _check_positions(artifact, folder)
        family = read_family(folder)
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
    positions = config.get("position_embedding_type")
    own_code = can_run_remote_code(config, artifact.trust_remote_code)
    if positions in RELATIVE and config.get("model_type") not in HAVE_RELATIVE and not own_code:
        raise ModelError(
            f"{artifact.name} has {positions} positions, which transformers 5 has dropped: "
            "it would run without.",
            hint="It cannot be evaluated with this version.",
        )


def _require_no_variant(artifact: Artifact, folder: Path) -> None:
    """Refuse a variant of a model type that only our network computes, if no family covers it."""
    kind = read_object(folder / "config.json").get("model_type")
    families = {n: e.family for n, e in backbones.list_backbones().items() if e.family is not None}
    named = {name: family for name, family in families.items() if kind in family.model_types}
    if named and not any(family.native or family.shape is None for family in named.values()):
        if artifact.trust_remote_code:
            return
        raise ModelError(
            f"{artifact.name} is a {kind}, but not one that the family {next(iter(named))} can run: its "
            "config.json lacks a field, or has a setting that changes the network.",
            hint="Compare it with the config.json of the published model. If its folder brings code of its "
            "own and you trust it, add --trust-remote-code.",
        )
