"""The pooling of a model folder, by which token vectors become one vector, and the size of that vector."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError, find_similar_names
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    ATTENTIVE,
    MODEL2VEC,
    WIDTHS,
    Module,
    explain_not_run,
    is_model2vec,
    list_modules,
    read_module_config,
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

OWN_POOLING, ATTENTION = "own", "attention"
"""The pooling of a model without a Pooling module, and that whose weights over the tokens are learned, which
only a model that has it can use."""


def read_pooling(modules: Sequence[Module]) -> str | None:
    """The pooling of the modules, ATTENTION or OWN_POOLING without modes; None for a bare backbone."""
    if not modules:
        return None
    places = {module.class_name: module.place for module in reversed(modules)}
    if place := places.get("Pooling"):
        return name_pooling(read_module_config(place, "Pooling"), place / "config.json")
    if ATTENTIVE in places:
        return ATTENTION
    static = places.get("StaticEmbedding")
    return MODEL2VEC if static is not None and is_model2vec(static) else OWN_POOLING


def name_pooling(config: Mapping[str, Any], path: Path | str) -> str:
    """The pooling of a Pooling config of any version: by flags, a name, or a list of modes.

    Modes are joined by "+" where their vectors are in the library's order, and by "," in any other.

    >>> [name_pooling({"pooling_mode": modes}, "") for modes in (["cls", "max", "mean"], ["mean", "cls"])]
    ['cls+mean+max', 'mean,cls']

    Raises:
        ModelError: A mode or a flag is unknown, none is set, or the prompt would be left out.
    """
    named, flags = config.get("pooling_mode"), [name for name in config if name.startswith("pooling_mode_")]
    _require_known(path, "has the flag", flags, POOLING_FLAGS)
    # A missing flag means off, but for the mean on.
    by_flags = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag, mode == "mean")]
    if named is None:
        if not by_flags:
            raise ModelError(f"{path} sets no pooling.", hint="One of its flags must be true.")
        return "+".join(by_flags)
    text = named.lower() if isinstance(named, str) else ""
    modes = text.split("+") if text else named if isinstance(named, list) else []
    if not modes or not all(isinstance(mode, str) for mode in modes):
        raise explain_not_run(path, "pooling_mode", named, "mean")
    if "cls" in modes and config.get("include_prompt") is False:
        # Since 5.4 that is the first token behind the prompt, before it was the first of all.
        raise explain_not_run(path, "include_prompt", False, True)
    _require_known(path, "names the pooling", modes, ORDER)
    if flags and {*modes} != {*by_flags}:
        raise ModelError(
            f"{path} has pooling_mode = {named!r}, and flags of another pooling.",
            hint="Leave out the ones that the model was not trained with, in a copy of the folder.",
        )
    in_order = sorted({*modes}, key=ORDER.index)
    # "+" is the library's own way to name flags, which have no order.
    if text or modes == in_order:
        return "+".join(mode for mode in POOLING_FLAGS.values() if mode in modes)
    return ",".join(modes)


def _require_known(path: Path | str, what: str, names: Sequence[str], choices: Collection[str]) -> None:
    for name in names:
        if name not in choices:
            close = " or ".join(find_similar_names(name, choices))
            hint = f"Did you mean {close}?" if close else f"There is: {', '.join(sorted(choices))}."
            raise ModelError(f"{path} {what} {name!r}.", hint=hint)


def split_pooling(name: str) -> list[str]:
    """The modes of a pooling's name."""
    return re.split("[+,]", name)


def counts_places(name: str) -> bool:
    """Whether a pooling counts places from the first, and would take padding on the left for tokens."""
    return not {"cls", "weightedmean"}.isdisjoint(split_pooling(name))


def infer_vector_size(folder: Path, pooling: str) -> int | None:
    """The dimension of vectors with a pooling ("cls+mean" has twice the width), None if no config says it."""
    modules = list_modules(folder)
    config = read_object(modules[0].place / "config.json")
    dense = [module.place for module in modules if module.class_name == "Dense"]
    out = read_object(dense[-1] / "config.json").get("out_features") if dense else None
    width = next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)
    return out or (None if width is None else width * len(split_pooling(pooling)))
