"""A ColBERT folder as PyLate writes it: how it is recognised, and its settings."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.core.encoding import LateInteraction
from harness.core.errors import ModelError
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    Module,
    find_library_class,
)
from harness.encoder.folder.pooling import infer_vector_size

Default = TypeVar("Default", bool, int, str, list[str])


SETTINGS = "config_sentence_transformers.json"
"""The file with the settings of a model of several modules."""

COLBERT = "ColBERT"
"""The type of a PyLate model in its settings."""


def require_colbert_files(folder: Path, modules: Sequence[Module]) -> None:
    """Refuse a PyLate folder without one of its files, which would be another model by defaults."""
    is_late = any(kind.startswith("pylate.") for kind, _ in modules)
    if modules and not (is_late and not (folder / SETTINGS).is_file()):
        return
    lost = SETTINGS if modules else "modules.json"
    if modules or read_object(folder / SETTINGS).get("model_type") == COLBERT:
        raise ModelError(
            f"{folder} is a PyLate model without {lost}, which PyLate writes.",
            hint="Copy or fetch the whole model folder again.",
        )


def read_colbert_settings(
    folder: Path, modules: Sequence[Module], library: Mapping[str, Any]
) -> LateInteraction | None:
    """The settings of a PyLate model as its files have them; None for a model with one vector a text.

    Models saved before PyLate 1.3 name no type, but MaxSim or a module of PyLate. Settings that they do not
    name have PyLate's defaults.

    Args:
        folder: The model folder.
        modules: Its modules, as in modules.json.
        library: The content of its config_sentence_transformers.json.

    Raises:
        ModelError: Its modules are not a backbone and projections, or a setting has an invalid value.
    """
    marks = (library.get("model_type") == COLBERT, library.get("similarity_fn_name") == "MaxSim")
    if not (any(marks) or any(kind.startswith("pylate.") for kind, _ in modules)):
        return None
    path = folder / SETTINGS
    classes = [find_library_class(kind) for kind, _ in modules]
    if len(modules) < 2 or classes != ["Transformer", *["Dense"] * (len(modules) - 1)]:
        class_names = ", ".join(kind.rpartition(".")[2] for kind, _ in modules)
        raise ModelError(
            f"{folder} is a PyLate model of {class_names}: "
            "it must be a backbone followed by projections of token vectors.",
            hint="Save it with PyLate: `models.ColBERT(folder).save_pretrained(new_folder)`.",
        )
    words = _read_late_setting(path, library, "skiplist_words", [*string.punctuation])
    expansion = _read_late_setting(path, library, "do_query_expansion", True)
    return LateInteraction(
        query_length=_read_late_setting(path, library, "query_length", 32),
        document_length=_read_late_setting(path, library, "document_length", 180),
        expansion=expansion,
        attends_to_expansion=expansion
        and _read_late_setting(path, library, "attend_to_expansion_tokens", False),
        query_prefix=_read_late_setting(path, library, "query_prefix", "[Q] "),
        document_prefix=_read_late_setting(path, library, "document_prefix", "[D] "),
        skiplist=tuple(map(str, words)),
        dimension=infer_vector_size(folder, "") or 0,
    )


def _read_late_setting(path: Path, library: Mapping[str, Any], name: str, default: Default) -> Default:
    """A setting of a PyLate model, its default where the file has none."""
    value = library.get(name)
    if value is None:
        return default
    if type(value) is not type(default) or (type(value) is int and value < 1):
        raise ModelError(
            f"{path} has {name} = {value!r}.",
            hint=f"A valid value is {default!r}: correct the file, or save the model again.",
        )
    setting: Default = value
    return setting
