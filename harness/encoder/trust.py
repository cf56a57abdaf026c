"""What a model folder may make this process run. Checked before anything of it is imported."""

from __future__ import annotations

import re

from harness.encoder.describe import Description
from harness.encoder.folder import all_modules, read_object
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
    modules = all_modules(description.folder)
    foreign = [kind for kind, _ in modules if not kind.startswith("sentence_transformers.")]
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
    pin = "" if artifact.revision is None else f" and type {artifact.source}@<the commit you have read>"
    return f"Read that code; if you trust it, add {ALLOW}{pin}."


def _check_pinned(artifact: Artifact, description: Description) -> None:
    if artifact.revision is not None and not COMMIT.fullmatch(artifact.revision):
        raise ModelError(
            f"{ALLOW} needs a pinned commit, and {artifact.name} is at {artifact.revision!r}.",
            hint=f"Type {artifact.source}@<40 hex digits of the commit you have read>.",
        )
    folders = [description.folder / sub for _, sub in all_modules(description.folder)] or [description.folder]
    for folder in folders:
        for name, place in (read_object(folder / "config.json").get("auto_map") or {}).items():
            repository, _, inside = str(place).partition("--")
            if inside:
                raise ModelError(
                    f"{artifact.name} takes its code ({name}) from {repository}, at no pinned commit.",
                    hint="Copy that code into the model's folder, and name it there in config.json.",
                )


def _is_native(model_type: str) -> bool:
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING


def _check_activations(description: Description) -> None:
    for _, sub in all_modules(description.folder):
        name = read_object(description.folder / sub / "config.json").get("activation_function")
        if isinstance(name, str) and not name.startswith(ACTIVATIONS):
            raise ModelError(
                f"{description.folder / sub} wants to import {name!r} as its activation function: refused.",
                hint=f"It may come from {' or '.join(a.rstrip('.') for a in ACTIVATIONS)}.",
            )
