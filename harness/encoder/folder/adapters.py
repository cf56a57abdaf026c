"""Adapters of peft: a folder with one in place of weights is laid out beside its base model, by links."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError, ModelError
from harness.core.keys import digest
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import VOCABULARIES, list_backbone_folders, list_module_folders
from harness.encoder.folder.tensors import check_weights, list_module_weights, read_tensor_headers

ADAPTER = "peft-adapter"
"""The subfolder of a backbone with the adapter that loading merges into it."""

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

MERGED = ["ADALORA", "C3A", "FOURIERFT", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "LORA", "MISS", "OFT"]
MERGED += ["SHIRA", "VBLORA", "VERA"]
"""The kinds of adapters that peft merges into the layers beside which they stand, exact to rounding."""

UNMERGED = ("alora_invocation_tokens", "layer_replication", "megatron_config")
"""Settings of adapters that change some tokens alone, share layers, or have peft import a module by name."""

TASKS = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
"""The tasks of peft whose models have a head beside the backbone, which no vector needs."""

PREFIX = "base_model.model."
"""The prefix of names in peft's files."""

ORIGIN = ("base_model_name_or_path", "revision", "peft_version", "auto_mapping", "inference_mode")
"""Fields of an adapter's config without effect on a vector, once the base lies beside it."""


def lay_beside_base(folder: Path, cache: Path, find_base: Callable[[Path, str, str | None], Path]) -> Path:
    """A folder of links in which each adapter of a model lies in its base; the folder itself without any.

    Such a folder is made once, and is read as any other. The tokenizer is that of the adapter's folder, if it
    has one, as in sentence-transformers.

    Args:
        folder: The model folder.
        cache: The cache folder.
        find_base: The folder of a base model, by the adapter's config, the base's name and its revision.

    Raises:
        ModelError: An adapter cannot be merged, is damaged, or has no base.
    """
    backbones = list_backbone_folders(folder)
    places = [at for at in backbones if (at / CONFIG).is_file() and not list_module_weights(at)]
    if not places:
        return folder
    roots = {folder, *list_module_folders(folder)}
    files = {*folder.rglob("*.py"), *(path for root in roots if root.is_dir() for path in root.iterdir())}
    links = {path.relative_to(folder).as_posix(): path for path in files if path.is_file()}
    texts = {}
    for place in places:
        prefix = "" if place == folder else f"{place.relative_to(folder).as_posix()}/"
        config = _read_config(place)
        base = find_base(place / CONFIG, config["base_model_name_or_path"], config.get("revision"))
        links |= {f"{prefix}{path.name}": path for path in _list_base_files(base, place)}
        del links[prefix + CONFIG]
        links[f"{prefix}{ADAPTER}/{WEIGHTS}"] = links.pop(prefix + WEIGHTS)
        kept = {name: value for name, value in config.items() if name not in ORIGIN}
        if config.get("task_type") in TASKS:
            names = [name.removeprefix(PREFIX) for name in read_tensor_headers([place / WEIGHTS]) or ()]
            modules = config.get("modules_to_save") or ()
            kept["modules_to_save"] = [m for m in modules if any(f".{m}." in name for name in names)]
        texts[f"{prefix}{ADAPTER}/{CONFIG}"] = json.dumps(kept, indent=2, sort_keys=True)
    targets = {name: str(path.absolute()) for name, path in sorted(links.items())}
    laid = cache / "adapters" / digest({"links": targets, "texts": texts}) / folder.resolve().name
    if not laid.is_dir():
        _write_links(laid, targets, texts)
    return laid


def _read_config(place: Path) -> dict[str, Any]:
    """The config of an adapter that can be merged, whose weights are whole and whose base has a name."""
    path = place / CONFIG
    config = read_object(path)
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    if kind is None or not base:
        lack = "base_model_name_or_path" if kind else "peft_type"
        raise DamagedModelError(f"{path} names no {lack}.", hint="Save the adapter again with peft.")
    settings = [name for name in UNMERGED if config.get(name)]
    if kind not in MERGED or settings:
        what = f"with {settings[0]}" if settings else f"of the kind {kind}"
        hint = "Give the base model, or an adapter of another kind: LORA, IA3, LOHA, LOKR, OFT or VERA."
        raise ModelError(
            f"{place} is an adapter {what}, which cannot be merged into its base model.", hint=hint
        )
    if not (place / WEIGHTS).is_file():
        hint = "Fetch or write the folder again."
        if (place / "adapter_model.bin").is_file():
            hint = f"Save the adapter of adapter_model.bin as {WEIGHTS} with a newer peft."
        raise ModelError(f"{place} has no {WEIGHTS}.", hint=hint)
    check_weights(place / WEIGHTS)
    return config


def _list_base_files(base: Path, place: Path) -> list[Path]:
    """The files of a base model that it is loaded from, for the adapter in `place`."""
    weights = list_module_weights(base)
    if not (base / "config.json").is_file() or not weights:
        lack = "an adapter itself" if (base / CONFIG).is_file() else "no folder with config.json and weights"
        hint = "Merge the adapter into its base model (`merge_and_unload()` of peft), and give the result."
        raise ModelError(f"{base}, the base model of the adapter in {place}, is {lack}.", hint=hint)
    has_own = any(any(place.glob(pattern)) for pattern in VOCABULARIES)
    tokenizer = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", *VOCABULARIES)
    patterns = ("config.json", "*.index.json", "*.py", *(() if has_own else tokenizer))
    return [*weights, *(path for pattern in patterns for path in base.glob(pattern))]


def _write_links(laid: Path, targets: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Make a folder of links and texts, whole or not at all."""
    laid.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=laid.parent) as scratch:
        # Within it: the scratch folder itself is closed to the other users of a shared cache.
        new = Path(scratch, laid.name)
        for name in (*targets, *texts):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
        for name, target in targets.items():
            (new / name).symlink_to(target)
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")
        try:
            os.rename(new, laid)
        except OSError:
            # Another process has made it.
            if not laid.is_dir():
                raise
