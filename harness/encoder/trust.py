"""What a model folder may make this process run. Checked before anything of it is imported."""

from __future__ import annotations

import re
from pathlib import Path

from harness.encoder.describe import Description
from harness.encoder.folder import read_object
from harness.errors import ModelError
from harness.types import Artifact

ALLOW = "--trust-remote-code"
"""What a user types to let a model's own code run."""

COMMIT = re.compile(r"[0-9a-f]{40}")

ACTIVATIONS = ("torch.nn.", "sentence_transformers.", "transformers.activations.")
"""Where the activation function of a module's config may be imported from."""


def check_trust(artifact: Artifact, description: Description) -> None:
    """See that the model runs no code of its own unless that was allowed, and then a pinned one.

    Raises:
        ModelError: If it would.
    """
    _check_activations(description)
    if artifact.trust_remote_code:
        _check_pinned(artifact, description)
        return
    foreign = [kind for kind, _ in description.modules if not kind.startswith("sentence_transformers.")]
    if foreign:
        raise ModelError(
            f"{artifact.name} needs code of its own: its module {foreign[0]}.", hint=_how_to(artifact)
        )
    if description.remote_code and not _is_native(description.model_type):
        raise ModelError(
            f"{artifact.name} needs code of its own: transformers knows no "
            f"{description.model_type or 'such model type'!r}.",
            hint=_how_to(artifact),
        )


def _how_to(artifact: Artifact) -> str:
    pin = "" if _is_local(artifact) or _is_pinned(artifact) else " and pin its revision to a commit"
    return f"Read that code; if you trust it, add {ALLOW}{pin}."


def _check_pinned(artifact: Artifact, description: Description) -> None:
    if not _is_local(artifact) and not _is_pinned(artifact):
        raise ModelError(
            f"{ALLOW} needs a pinned commit, and {artifact.name} has none.",
            hint="Give the revision as a commit of 40 hex digits.",
        )
    folders = [description.folder / sub for _, sub in description.modules] or [description.folder]
    for folder in folders:
        for name, place in (read_object(folder / "config.json").get("auto_map") or {}).items():
            if "--" in str(place):
                raise ModelError(
                    f"{artifact.name} takes its code ({name}) from {str(place).split('--')[0]}, at no pinned commit.",
                    hint="Copy that code into the model's folder, and name it there in config.json.",
                )


def _is_pinned(artifact: Artifact) -> bool:
    return bool(artifact.revision and COMMIT.fullmatch(artifact.revision))


def _is_local(artifact: Artifact) -> bool:
    return artifact.revision is None and Path(artifact.source).expanduser().is_dir()


def _is_native(model_type: str) -> bool:
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING


def _check_activations(description: Description) -> None:
    for _, sub in description.modules:
        name = read_object(description.folder / sub / "config.json").get("activation_function")
        if isinstance(name, str) and not name.startswith(ACTIVATIONS):
            raise ModelError(
                f"{description.folder / sub} wants to import {name!r} as its activation function: refused.",
                hint=f"It may come from {' or '.join(a.rstrip('.') for a in ACTIVATIONS)}.",
            )
