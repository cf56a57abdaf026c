"""What lies in a model folder: its JSON, its modules, its weights. Reads no tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.errors import ModelError

OTHER_FORMATS = ("tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.onnx", "openvino_model.xml")
"""Weights of other frameworks, which are never loaded."""


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ModelError: If it cannot be read as JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as JSON: {error}", hint="Fetch or write the model folder again."
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object; empty where there is no such file.

    Raises:
        ModelError: If it cannot be read as a JSON object.
    """
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object.", hint="Fetch or write the model folder again.")
    return content


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """(type, subfolder) of each sentence-transformers module in order; empty for a bare backbone.

    Raises:
        ModelError: If modules.json does not hold a list of modules.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return []
    content = read_json(path)
    try:
        modules = [(str(m["type"]), str(m["path"])) for m in content]
    except (TypeError, KeyError) as error:
        raise ModelError(f"{path} is not a list of modules.") from error
    if not modules:
        raise ModelError(f"{path} lists no module.")
    outside = [sub for _, sub in modules if Path(sub).is_absolute() or ".." in Path(sub).parts]
    if outside:
        raise ModelError(f"{path} names a folder outside of the model: {outside[0]}.")
    return modules


def is_module(kind: str, name: str) -> bool:
    """Whether a module's type is that class of sentence-transformers.

    >>> is_module("sentence_transformers.models.Pooling", "Pooling")
    True
    """
    return kind.startswith("sentence_transformers.") and kind.rsplit(".", 1)[-1] == name


def all_modules(folder: Path) -> list[tuple[str, str]]:
    """The modules of `read_modules`, with those that a Router holds in its place."""
    found = []
    for kind, sub in read_modules(folder):
        inner = _routed(folder / sub) if is_module(kind, "Router") or is_module(kind, "Asym") else {}
        found += [(str(k), f"{sub}/{name}".lstrip("/")) for name, k in inner.items()] or [(kind, sub)]
    return found


def backbone_folder(folder: Path) -> Path:
    """The folder of the first module: where the backbone's config and weights lie."""
    modules = all_modules(folder)
    return folder / modules[0][1] if modules else folder


def weight_files(folder: Path) -> list[Path]:
    """The weight files that loading reads, those of every module, sorted by name.

    Of one module's, safetensors go before .bin, and an index stands for its parts.

    Raises:
        ModelError: If the backbone has none, or a part of a sharded checkpoint is missing.
    """
    root = backbone_folder(folder)
    if weights_in(root):
        roots = {folder / sub for _, sub in all_modules(folder)} or {folder}
        return sorted(path for place in roots for path in weights_in(place))
    other = [name for name in OTHER_FORMATS if (root / name).exists()]
    raise ModelError(
        f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin.",
        hint=f"It has {other[0]}, which is for another framework: save the model with PyTorch."
        if other
        else "Fetch or write the model folder again.",
    )


def weights_in(root: Path) -> list[Path]:
    """The weight files of one module's own folder, in the order in which loading prefers them."""
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        whole, index = root / f"{stem}.{suffix}", root / f"{stem}.{suffix}.index.json"
        if whole.is_file():
            return [whole]
        if index.is_file():
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


def _routed(folder: Path) -> dict[str, Any]:
    config = read_object(folder / "router_config.json") or read_object(folder / "config.json")
    types = config.get("types")
    return types if isinstance(types, dict) else {}


def _shards(index: Path) -> list[Path]:
    mapping = read_object(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise ModelError(f"{index} names no weight file.", hint="Fetch the model again.")
    parts = [index.parent / name for name in sorted(set(mapping.values()))]
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
