"""The modules of a sentence-transformers folder, as its JSON lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.encoder.folder import read_json, read_object
from harness.errors import ModelError

Module = tuple[str, str]
"""The type of a module and the subfolder it lies in."""

WEIGHTED = frozenset(
    {
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
"""Modules of sentence-transformers that read weights from their folder."""

LIBRARY = WEIGHTED | {"Asym", "BoW", "Dropout", "Normalize", "Pooling", "Router", "WordWeights"}
"""Every module of sentence-transformers; Asym is the old name of Router."""

TYPE = re.compile(r"sentence_transformers\.models\.(\w+)(?:\.\1)?")
"""How a module's type names one of them: the class, or the class in the file of its name."""


def library_class(kind: str) -> str | None:
    """The class of sentence-transformers that a module's type names, None if it names no such class.

    >>> library_class("sentence_transformers.models.Pooling")
    'Pooling'
    >>> library_class("sentence_transformers.models.Router.import_from_string")
    """
    found = TYPE.fullmatch(kind)
    return found[1] if found and found[1] in LIBRARY else None


def read_modules(folder: Path) -> list[Module]:
    """The modules in order, as modules.json lists them; empty for a bare backbone.

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
    for _, sub in modules:
        _require_inside(path, sub)
    return modules


def all_modules(folder: Path) -> list[Module]:
    """The modules of `read_modules`, with those that a Router holds, at any depth, in its place."""
    return [(kind, sub) for kind, sub, router in _walked(folder) if not router]


def input_modules(folder: Path) -> list[Module]:
    """The modules that texts enter by: the first one, or the first one of each tower of a Router."""
    modules = read_modules(folder)
    return list(_entered(folder, *modules[0])) if modules else []


def backbone_folder(folder: Path) -> Path:
    """The folder of the first module: where the backbone's config and weights lie."""
    modules = all_modules(folder)
    return folder / modules[0][1] if modules else folder


def module_folders(folder: Path) -> list[Path]:
    """The folder of every module, Routers included; the model's own for a bare backbone."""
    return list(dict.fromkeys(folder / sub for _, sub, _ in _walked(folder))) or [folder]


def _walked(folder: Path) -> Iterator[tuple[str, str, bool]]:
    """Every module at every depth, and whether it is a Router that holds others."""
    for kind, sub in read_modules(folder):
        yield from _walked_from(folder, kind, sub)


def _walked_from(folder: Path, kind: str, sub: str) -> Iterator[tuple[str, str, bool]]:
    inner = _inner(folder, kind, sub)
    yield kind, sub, bool(inner)
    for name, inner_kind in inner.items():
        yield from _walked_from(folder, inner_kind, _joined(sub, name))


def _entered(folder: Path, kind: str, sub: str) -> Iterator[Module]:
    inner = _inner(folder, kind, sub)
    towers = _router(folder / sub).get("structure") if inner else None
    firsts = [names[0] for names in towers.values() if names] if isinstance(towers, dict) else list(inner)
    if not inner:
        yield kind, sub
    for name in firsts:
        yield from _entered(folder, inner.get(name, ""), _joined(sub, name))


def _inner(folder: Path, kind: str, sub: str) -> dict[str, str]:
    """The types of the modules that a Router holds, by the name of their subfolder."""
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
