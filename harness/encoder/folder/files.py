"""A model folder on disk: its JSON files, its sentence-transformers modules, and its weight files."""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ModelError: It cannot be read as JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as JSON: {error}", hint="Fetch or write the model folder again."
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object; empty if there is no such file.

    Raises:
        ModelError: It cannot be read as a JSON object.
    """
    if not path.is_file():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds no JSON object.", hint="Fetch or write the model folder again.")
    return content


Module = tuple[str, str]
"""The type of a module, and its subfolder."""

ATTENTIVE = "AttentivePooling"
"""Our own pooling, whose weights over the tokens are learned."""

TWO_STAGE = "TwoStage"
"""Our own module of two backbones, whose vectors depend on context documents."""

TEXT_STAGE, CONTEXT_STAGE = "text", "context"
"""The subfolders of its backbones: that of texts, and that of context documents."""

WEIGHTED = frozenset(
    {
        ATTENTIVE,
        TWO_STAGE,
        "CLIPModel",
        "CNN",
        "Dense",
        "LSTM",
        "LayerNorm",
        "StaticEmbedding",
        "Transformer",
        "WeightedLayerPooling",
        "WordEmbeddings",
    }
)
"""The modules that read weights from their folder."""

LIBRARY = (WEIGHTED - {ATTENTIVE, TWO_STAGE}) | {
    "Asym",
    "BoW",
    "Dropout",
    "Normalize",
    "Pooling",
    "Router",
    "WordWeights",
}
"""All sentence-transformers modules; Asym is the old name of Router."""

OWN = {
    "harness.encoder.attentive_pooling.AttentivePooling": ATTENTIVE,
    "harness.encoder.sentence_transformer.Transformer": "Transformer",
    "harness.encoder.two_stage.TwoStage": TWO_STAGE,
    "pylate.models.Dense.Dense": "Dense",
    "pylate.models.Dense": "Dense",
}
"""Modules of ours and of PyLate by their type; our Transformer stands for the library's, PyLate's projection
of token vectors for its Dense."""

TYPE = re.compile(r"sentence_transformers\.models\.(\w+)(?:\.\1)?")
"""The spelling of a library module's type: the class, or the class in the file of its name."""


def library_class(kind: str) -> str | None:
    """The class of sentence-transformers, or one in OWN, that a module's type names; None for any other.

    >>> library_class("sentence_transformers.models.Pooling")
    'Pooling'
    >>> library_class("sentence_transformers.models.Router.import_from_string")
    """
    found = TYPE.fullmatch(kind)
    return found[1] if found and found[1] in LIBRARY else OWN.get(kind)


def read_modules(folder: Path) -> list[Module]:
    """The modules in order, as in modules.json; empty for a bare backbone.

    Raises:
        ModelError: modules.json does not hold a list of modules.
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
    for _, sub in modules:
        _require_inside(path, sub)
    return modules


def all_modules(folder: Path) -> list[Module]:
    """The modules of `read_modules`, with each Router replaced by the modules within it, at any depth.

    The backbones of a two-stage module come before it, that of texts first.
    """
    return [(kind, sub) for kind, sub, router in _walked(folder) if not router]


def input_modules(folder: Path) -> list[Module]:
    """The first module, or the first module of each tower of a Router; of two stages that of texts."""
    modules = read_modules(folder)
    return list(_entered(folder, *modules[0])) if modules else []


def backbone_folder(folder: Path) -> Path:
    """The folder of the first module, with the backbone's config and weights."""
    modules = all_modules(folder)
    return folder / modules[0][1] if modules else folder


def module_folders(folder: Path) -> list[Path]:
    """The folder of every module, Routers included; the model's own folder for a bare backbone."""
    return list(dict.fromkeys(folder / sub for _, sub, _ in _walked(folder))) or [folder]


def _walked(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Every module at every depth, and whether it is a Router with modules."""
    for kind, sub in read_modules(folder):
        yield from _walked_from(folder, kind, sub)


def _walked_from(folder: Path, kind: str, sub: str) -> Iterator[tuple[str, str, bool]]:
    inner, staged = _inner(folder, kind, sub), library_class(kind) == TWO_STAGE
    if not staged:
        yield kind, sub, bool(inner)
    for name, inner_kind in inner.items():
        yield from _walked_from(folder, inner_kind, _joined(sub, name))
    if staged:
        yield kind, sub, False


def _entered(folder: Path, kind: str, sub: str) -> Iterator[Module]:
    inner = _inner(folder, kind, sub)
    if library_class(kind) == TWO_STAGE:
        inner = {TEXT_STAGE: inner[TEXT_STAGE]}
    towers = _router(folder / sub).get("structure") if inner else None
    firsts = [names[0] for names in towers.values() if names] if isinstance(towers, dict) else list(inner)
    if not inner:
        yield kind, sub
    for name in firsts:
        yield from _entered(folder, inner.get(name, ""), _joined(sub, name))


def _inner(folder: Path, kind: str, sub: str) -> dict[str, str]:
    """The types of the modules within a Router or of two stages, by the name of their subfolder."""
    if library_class(kind) == TWO_STAGE:
        return dict.fromkeys((TEXT_STAGE, CONTEXT_STAGE), "sentence_transformers.models.Transformer")
    if library_class(kind) not in ("Router", "Asym"):
        return {}
    types = _router(folder / sub).get("types")
    inner = {str(k): str(v) for k, v in types.items()} if isinstance(types, dict) else {}
    for name in inner:
        _require_inside(folder / sub / "router_config.json", name, deeper=True)
    return inner


def _router(place: Path) -> dict[str, Any]:
    return read_object(place / "router_config.json") or read_object(place / "config.json")


def _joined(sub: str, name: str) -> str:
    return f"{sub}/{name}".lstrip("/")


def _require_inside(path: Path, sub: str, *, deeper: bool = False) -> None:
    parts = Path(sub).parts
    if Path(sub).is_absolute() or ".." in parts or (deeper and not parts):
        raise ModelError(f"{path} names a folder outside of the model: {sub}.")


OTHER_FORMATS = {
    "tf_model.h5": "is for another framework: save the model with PyTorch",
    "flax_model.msgpack": "is for another framework: save the model with PyTorch",
    "rust_model.ot": "is for another framework: save the model with PyTorch",
    "openvino_model.xml": "is for another framework: save the model with PyTorch",
    "*.onnx": "is an exported program: take the model that it was exported from",
    "onnx/*.onnx": "is an exported program: take the model that it was exported from",
    "*.gguf": "is a quantised copy for llama.cpp: take the model that it was made of",
    "*-of-*.safetensors": "is a part of a sharded checkpoint, whose model.safetensors.index.json is not here",
    "*.safetensors": "has another name: call it model.safetensors if it holds the model",
    "*.ckpt": "is a training checkpoint: load it into its model and call `model.save_pretrained(folder)`",
    "*.pt": "is a training checkpoint: load it into its model and call `model.save_pretrained(folder)`",
    "*.pth": "is a training checkpoint: load it into its model and call `model.save_pretrained(folder)`",
}
"""Weights that never load, and what to do with them."""

SHARDED = (None, "Transformer", "CLIPModel")
"""Modules that transformers loads, which supports sharded weights; None is a module of the model's own."""


def weight_files(folder: Path) -> list[Path]:
    """The weight files that loading reads, of every module, sorted by name.

    In each module safetensors take precedence over .bin, and an index stands for its parts.

    Raises:
        ModelError: A module lacks its weights, or a part of a sharded checkpoint is missing.
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


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor as its file describes it; in a safetensors file its bytes lie from `begin` to `end`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0


def stored_tensors(paths: Sequence[Path]) -> dict[str, StoredTensor] | None:
    """The tensors of weight files by name, from headers alone; None where a file must be loaded to know.

    Raises:
        ModelError: A safetensors file is truncated or corrupt.
    """
    found: dict[str, StoredTensor] = {}
    for path in paths:
        some = _stored(path) if path.suffix == ".safetensors" else _pickled(path)
        if some is None:
            return None
        found |= some
    return found or None


def _stored(path: Path) -> dict[str, StoredTensor]:
    check_safetensors(path)
    header, start = _header(path)
    found = {}
    for name, value in header.items():
        if name != "__metadata__":
            begin, end = (start + int(place) for place in value["data_offsets"])
            shape = tuple(int(size) for size in value["shape"])
            dtype = str(value["dtype"])
            found[name] = StoredTensor(path=path, dtype=dtype, shape=shape, begin=begin, end=end)
    return found


def _pickled(path: Path) -> dict[str, StoredTensor] | None:
    """The tensors of a file of torch.save, from its pickle without the bytes of tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            content = _Unpickler(io.BytesIO(archive.read(name))).load()
    except Exception:  # an older form, or a pickle that loading looks at more closely
        return None
    if not isinstance(content, dict) or not all(isinstance(one, _Outline) for one in content.values()):
        return None
    return {
        str(name): StoredTensor(path=path, dtype=one.dtype, shape=one.shape) for name, one in content.items()
    }


@dataclass(frozen=True, kw_only=True)
class _Outline:
    """A tensor in a pickle, without its bytes."""

    dtype: str
    shape: tuple[int, ...]


STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
"""The storage classes of torch, with the types as safetensors spells them."""


class _Unpickler(pickle.Unpickler):
    """An unpickler that makes outlines of tensors and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, _offset, size, *_: _Outline(dtype=storage, shape=tuple(size))
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        return pid[1]


def safetensors_metadata(path: Path) -> dict[str, str] | None:
    """The metadata in the header of a safetensors file, None without any."""
    found: dict[str, str] | None = _header(path)[0].get("__metadata__")
    return found


POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of a file that git put in place of a large one."""


def check_present(path: Path) -> None:
    """Refuse a file that is empty, or that is a pointer of git-lfs in place of the file.

    Raises:
        ModelError: It is.
    """
    with path.open("rb") as file:
        start = file.read(len(POINTER))
    if start == POINTER:
        raise ModelError(
            f"{path} is a git-lfs pointer, not the file itself.",
            hint=f"Type `git lfs pull` in {path.parent}.",
        )
    if not start:
        raise ModelError(f"{path} is empty.", hint="Fetch or write the model folder again.")


def check_weights(path: Path) -> None:
    """Refuse a weight file that is absent in its content, or that is not whole.

    Raises:
        ModelError: It is a git-lfs pointer, empty, truncated or corrupt.
    """
    check_present(path)
    if path.suffix == ".safetensors":
        check_safetensors(path)


def check_safetensors(path: Path) -> None:
    """Refuse a safetensors file without a readable header or with another size than the header's.

    Raises:
        ModelError: It is truncated or corrupt.
    """
    problem = _safetensors_problem(path)
    if problem:
        raise ModelError(
            f"{path} is not a whole safetensors file: {problem}.",
            hint="It was not copied or downloaded to its end. Fetch it again.",
        )


def _no_weights(folder: Path, sub: str) -> ModelError:
    prefix, root = f"{sub}/" if sub else "", folder / sub
    other = ((path, why) for name, why in OTHER_FORMATS.items() for path in sorted(root.glob(name)))
    path, why = next(other, (None, ""))
    return ModelError(
        f"{folder} has no weights: neither {prefix}model.safetensors nor {prefix}pytorch_model.bin.",
        hint="Fetch or write the model folder again."
        if path is None
        else f"It has {prefix}{path.relative_to(root).as_posix()}, which {why}.",
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


def check_index(index: Path) -> None:
    """Refuse a sharded checkpoint whose parts do not hold the tensors that its index names.

    Raises:
        ModelError: A tensor is not in its part.
    """
    named = {str(name): str(part) for name, part in read_object(index).get("weight_map", {}).items()}
    lost = None
    for part in _shards(index):
        held = stored_tensors([part])
        if held is None:
            return
        lost = lost or next((n for n, at in named.items() if at == part.name and n not in held), None)
    if lost is not None:
        raise ModelError(
            f"{index} names {lost} in {named[lost]}, which does not hold it.",
            hint="The parts are of different saves. Fetch the model again.",
        )


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a whole safetensors file, and the place of its first tensor's bytes."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def _safetensors_problem(path: Path) -> str | None:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        return f"its header says {length} bytes, the file has {size}"
    try:
        header, start = _header(path)
        tensors = [value for name, value in header.items() if name != "__metadata__"]
        promised = start + max((int(t["data_offsets"][1]) for t in tensors), default=0)
        _ = [
            (int(t["data_offsets"][0]), str(t["dtype"]), [int(size) for size in t["shape"]]) for t in tensors
        ]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return "its header cannot be read"
    if not tensors:
        return "it holds no tensor"
    return None if promised == size else f"it has {size} bytes, its header promises {promised}"
