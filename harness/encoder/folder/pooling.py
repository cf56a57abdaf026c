"""The pooling of a model folder: how token vectors become one vector, and its size."""

from __future__ import annotations

from pathlib import Path

from harness.core.errors import ModelError
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    ATTENTIVE,
    Module,
    find_backbone_folder,
    find_library_class,
    list_modules,
    read_family,
)

POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags of a Pooling config and their modes, in the order of the name: "cls+mean+max" is the library's
name for these three, although its vector has the maximum before the mean."""

OWN_POOLING = "own"
"""The pooling of a model that has no Pooling module."""

ATTENTION = "attention"
"""The pooling whose weights over the tokens are learned, which only a model that has it can use."""

WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
"""The names under which configs have the width of a backbone."""


def infer_vector_size(folder: Path, pooling: str) -> int | None:
    """The dimension of a model's vectors, from its configs; None where these do not say.

    Args:
        folder: The model, which need not be loaded.
        pooling: The pooling of its Encoding; "cls+mean" has twice the width.
    """
    try:
        config = read_object(find_backbone_folder(folder) / "config.json")
        dense = [sub for kind, sub in list_modules(folder) if find_library_class(kind) == "Dense"]
        out = read_object(folder / dense[-1] / "config.json").get("out_features") if dense else None
    except (ModelError, OSError):
        return None
    width = next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)
    if isinstance(out, int):
        return out
    return None if width is None else width * len(pooling.split("+"))


def find_family_pooling(folder: Path) -> str:
    """The pooling of a bare backbone: that of its family, the mean for a family that is unknown."""
    family = read_family(find_backbone_folder(folder))
    return "mean" if family is None else family.pooling


def read_pooling(folder: Path, modules: list[Module]) -> str | None:
    """The pooling of the modules, ATTENTION or OWN_POOLING without modes; None for a bare backbone."""
    if not modules:
        return None
    classes = [(find_library_class(kind), sub) for kind, sub in modules]
    path = next((sub for kind, sub in classes if kind == "Pooling"), None)
    if path is None:
        return ATTENTION if ATTENTIVE in (kind for kind, _ in classes) else OWN_POOLING
    config = read_object(folder / path / "config.json")
    # A missing flag means off, but for the mean on.
    modes = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag, mode == "mean")]
    return str(config.get("pooling_mode") or "+".join(modes))
