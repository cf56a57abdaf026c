"""The classes of its own that a model folder names, to be loaded by transformers as code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.encoder.folder import read_object
from harness.encoder.modules import module_folders

LOADED = {"config.json": ("AutoConfig", "AutoModel"), "tokenizer_config.json": ("AutoTokenizer",)}
"""The classes a model is loaded with, by the file that transformers reads their own names from."""

NAMING = (*LOADED, "processor_config.json", "preprocessor_config.json")
"""The files that may name classes of a folder's own."""


@dataclass(frozen=True, kw_only=True)
class OwnClass:
    """A class that stands in the `auto_map` of a folder's `file` for the class `name` of transformers.

    `reference` is "module.Class", with "org/repository--" before it where the code lies elsewhere.
    """

    folder: Path
    file: str
    name: str
    reference: str


def named_classes(folder: Path) -> list[OwnClass]:
    """Every class that any module's files name.

    Raises:
        ModelError: If a config cannot be read.
    """
    return [found for place in module_folders(folder) for file in NAMING for found in _named(place, file)]


def own_classes(folder: Path) -> list[OwnClass]:
    """Those of `named_classes` that stand for a class the model is loaded with.

    Raises:
        ModelError: If a config cannot be read.
    """
    return [found for found in named_classes(folder) if found.name in LOADED.get(found.file, ())]


def _named(place: Path, file: str) -> Iterator[OwnClass]:
    named = read_object(place / file).get("auto_map") or {}
    if not isinstance(named, dict):  # the old way for a tokenizer: the slow and the fast class
        named = {"AutoTokenizer": named}
    for name, references in named.items():
        for reference in references if isinstance(references, list) else [references]:
            if reference is not None:
                yield OwnClass(folder=place, file=file, name=name, reference=str(reference))
