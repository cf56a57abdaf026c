"""The weight files of a model folder: which are loaded, and whether they are whole."""

from __future__ import annotations

import json
from pathlib import Path

from harness.encoder.folder import read_object
from harness.encoder.modules import WEIGHTED, all_modules, backbone_folder, library_class
from harness.errors import ModelError

OTHER_FORMATS = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.onnx", "openvino_model.xml")
"""Weights of other frameworks, which are never loaded."""

SHARDED = (None, "Transformer", "CLIPModel")
"""Modules that transformers loads, which knows indexes of parts; None is a module of the model's own."""


def weight_files(folder: Path) -> list[Path]:
    """The weight files that loading reads, those of every module, sorted by name.

    Of one module's, safetensors go before .bin, and an index stands for its parts.

    Raises:
        ModelError: If a module that has weights lacks them, or a part of a sharded checkpoint
            is missing.
    """
    root = backbone_folder(folder)
    found: set[Path] = set()
    for kind, sub in all_modules(folder) or [("", "")]:
        known = library_class(kind)
        paths = module_weights(folder / sub, sharded=known in SHARDED)
        if not paths and (known in WEIGHTED or (known is None and folder / sub == root)):
            raise _no_weights(folder, sub)
        found.update(paths)
    return sorted(found)


def module_weights(root: Path, *, sharded: bool = True) -> list[Path]:
    """The weight files of one module's own folder, in the order in which loading prefers them."""
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        whole, index = root / f"{stem}.{suffix}", root / f"{stem}.{suffix}.index.json"
        if whole.is_file():
            return [whole]
        if sharded and index.is_file():
            return _shards(index)
    return []


def check_safetensors(path: Path) -> None:
    """See that a safetensors file is whole: a readable header, and as many bytes as it promises.

    Raises:
        ModelError: If it is truncated or corrupt.
    """
    problem = _safetensors_problem(path)
    if problem:
        raise ModelError(
            f"{path} is not a whole safetensors file: {problem}.",
            hint="It was not copied or downloaded to its end. Fetch it again.",
        )


def _no_weights(folder: Path, sub: str) -> ModelError:
    prefix = f"{sub}/" if sub else ""
    other = [name for name in OTHER_FORMATS if (folder / sub / name).exists()]
    return ModelError(
        f"{folder} has no weights: neither {prefix}model.safetensors nor {prefix}pytorch_model.bin.",
        hint=f"It has {prefix}{other[0]}, which is for another framework: save the model with PyTorch."
        if other
        else "Fetch or write the model folder again.",
    )


def _shards(index: Path) -> list[Path]:
    mapping = read_object(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise ModelError(f"{index} names no weight file.", hint="Fetch the model again.")
    names = sorted({str(name) for name in mapping.values()})
    outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ModelError(f"{index} names a file outside of the model: {outside[0]}.")
    parts = [index.parent / name for name in names]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(
            f"{index.parent} lacks {len(missing)} of its {len(parts)} weight files, {missing[0]} first.",
            hint="Fetch the model again.",
        )
    return parts


def _safetensors_problem(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            return f"its header says {length} bytes, the file has {size}"
        raw = file.read(length)
    try:
        tensors = [value for name, value in json.loads(raw).items() if name != "__metadata__"]
        promised = 8 + length + max((int(t["data_offsets"][1]) for t in tensors), default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return "its header cannot be read"
    return None if promised == size else f"it has {size} bytes, its header promises {promised}"
