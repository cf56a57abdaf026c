"""The pooling of a model folder: how token vectors become one vector, and its size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError
from harness.encoder.folder.configs import explain_not_run, read_module_config
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    ATTENTIVE,
    MODEL2VEC,
    Module,
    find_backbone_folder,
    find_library_class,
    is_model2vec,
    locate_modules,
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

ORDER = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""The modes in the order in which the library joins their vectors."""

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
        dense = [place for class_name, place in locate_modules(folder) if class_name == "Dense"]
        out = read_object(dense[-1] / "config.json").get("out_features") if dense else None
    except (ModelError, OSError):
        return None
    width = next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)
    if isinstance(out, int):
        return out
    return None if width is None else width * len(split_pooling(pooling))


def read_pooling(folder: Path, modules: list[Module]) -> str | None:
    """The pooling of the modules, ATTENTION or OWN_POOLING without modes; None for a bare backbone."""
    if not modules:
        return None
    classes = [(find_library_class(kind), sub) for kind, sub in modules]
    path = next((sub for kind, sub in classes if kind == "Pooling"), None)
    if path is None:
        if any(kind == "StaticEmbedding" and is_model2vec(folder / sub) for kind, sub in classes):
            return MODEL2VEC
        return ATTENTION if ATTENTIVE in (kind for kind, _ in classes) else OWN_POOLING
    return name_pooling(read_module_config(folder / path, "Pooling"), folder / path / "config.json")


def name_pooling(config: Mapping[str, Any], path: Path | str) -> str:
    """The pooling of a Pooling config of any version: by flags, a name, or a list of modes.

    Modes are joined by "+" where their vectors are in the library's order, and by "," in any other.

    >>> [name_pooling({"pooling_mode": modes}, "") for modes in (["cls", "max", "mean"], ["mean", "cls"])]
    ['cls+mean+max', 'mean,cls']

    Raises:
        ModelError: The modes are no texts, or would leave the prompt out in a way that is not run here.
    """
    named = config.get("pooling_mode")
    if named is None:
        # A missing flag means off, but for the mean on.
        return "+".join(mode for flag, mode in POOLING_FLAGS.items() if config.get(flag, mode == "mean"))
    text = named.lower() if isinstance(named, str) else ""
    modes = text.split("+") if text else named if isinstance(named, list) else []
    if not modes or not all(isinstance(mode, str) for mode in modes):
        raise explain_not_run(path, "pooling_mode", named, "mean")
    if "cls" in modes and config.get("include_prompt") is False:
        # Since 5.4 that is the first token behind the prompt, before it was the first of all.
        raise explain_not_run(path, "include_prompt", False, True)
    if text and {*modes} <= {*ORDER}:
        # "+" is the library's own way to name flags, which have no order.
        modes = sorted({*modes}, key=ORDER.index)
    if modes == sorted(set(modes) & {*ORDER}, key=ORDER.index):
        return "+".join(mode for mode in POOLING_FLAGS.values() if mode in modes)
    return ",".join(modes)


def split_pooling(name: str) -> list[str]:
    """The modes of a pooling's name."""
    return re.split("[+,]", name)


def counts_places(name: str) -> bool:
    """Whether a pooling counts places from the first, and would take padding on the left for tokens."""
    return not {"cls", "weightedmean"}.isdisjoint(split_pooling(name))
