"""A multi-vector folder of PyLate or sentence-transformers: how it is recognised, and its settings."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.encoding import LateInteraction
from harness.core.errors import DamagedModelError, ModelError
from harness.encoder.folder.files import SETTINGS, read_object
from harness.encoder.folder.modules import (
    MASK,
    TOKENS,
    Module,
    explain_not_run,
    find_library_class,
    find_sentence_config,
)
from harness.encoder.folder.pooling import infer_vector_size

COLBERT, MULTI_VECTOR = "ColBERT", "MultiVectorEncoder"
"""The types of a PyLate model in its settings, and of sentence-transformers' own multi-vector model."""


def require_late_files(folder: Path, modules: Sequence[Module]) -> None:
    """Refuse a multi-vector folder without one of its files, which would be another model by defaults."""
    is_late = any(kind.startswith("pylate.") or find_library_class(kind) == MASK for kind, _ in modules)
    if not modules:
        is_late = read_object(folder / SETTINGS).get("model_type") in (COLBERT, MULTI_VECTOR)
    lost = SETTINGS if modules else "modules.json"
    if is_late and not (folder / lost).is_file():
        raise DamagedModelError(f"{folder} is a multi-vector model without {lost}, which belongs to it.")


def read_late_interaction(
    folder: Path, modules: Sequence[Module], library: Mapping[str, Any], length: int
) -> LateInteraction | None:
    """The settings of a multi-vector model as its files have them; None for a model with one vector a text.

    Models saved before PyLate 1.3 name no type, but MaxSim or a module of PyLate.

    Args:
        folder: The model folder.
        modules: Its modules, as in modules.json.
        library: The content of its config_sentence_transformers.json.
        length: The most tokens of a text where sentence-transformers' model has no length of its own.

    Raises:
        ModelError: Its modules are not those that run here, or a setting has another value than runs here.
    """
    is_pylate = any(kind.startswith("pylate.") for kind, _ in modules)
    if library.get("model_type") == MULTI_VECTOR:
        return _read_multi_vector_settings(folder, modules, library, length)
    if is_pylate or library.get("model_type") == COLBERT or library.get("similarity_fn_name") == "MaxSim":
        return _read_pylate_settings(folder, modules, library)
    return None


def _read_pylate_settings(
    folder: Path, modules: Sequence[Module], library: Mapping[str, Any]
) -> LateInteraction:
    """The settings of a PyLate model; those that its files do not name have PyLate's defaults."""
    classes = [find_library_class(kind) for kind, _ in modules]
    if len(modules) < 2 or classes != ["Transformer", *["Dense"] * (len(modules) - 1)]:
        raise ModelError(
            f"{folder} is a PyLate model of {_name_classes(modules)}: "
            "it must be a backbone followed by projections of token vectors.",
            hint="Save it with PyLate: `models.ColBERT(folder).save_pretrained(new_folder)`.",
        )
    named = {name: value for name, value in library.items() if value is not None}
    expansion = named.get("do_query_expansion", True)
    return LateInteraction(
        query_length=named.get("query_length", 32),
        document_length=named.get("document_length", 180),
        expansion=expansion,
        attends_to_expansion=expansion and named.get("attend_to_expansion_tokens", False),
        query_prefix=named.get("query_prefix", "[Q] "),
        document_prefix=named.get("document_prefix", "[D] "),
        skiplist=tuple(map(str, named.get("skiplist_words", string.punctuation))),
        dimension=infer_vector_size(folder, "") or 0,
    )


def _name_classes(modules: Sequence[Module]) -> str:
    return ", ".join(kind.rpartition(".")[2] for kind, _ in modules)


def _read_multi_vector_settings(
    folder: Path, modules: Sequence[Module], library: Mapping[str, Any], length: int
) -> LateInteraction:
    """The settings of a MultiVectorEncoder of sentence-transformers; its prefixes are prompts."""
    similarity = library.get("similarity_fn_name")
    if similarity not in (None, "maxsim"):
        raise explain_not_run(folder / SETTINGS, "similarity_fn_name", similarity, "maxsim")
    places = [(find_library_class(kind), folder / sub) for kind, sub in modules]
    order = [name for name, _ in places if name != MASK]
    masks = [place / "config.json" for name, place in places if name == MASK]
    inputs = [
        read_object(place / "config.json").get("module_input_name", TOKENS if name == "Dense" else None)
        for name, place in places
        if name in ("Dense", "Normalize")
    ]
    wanted = ["Transformer", *["Dense"] * (len(order) - 2), "Normalize"]
    if order != wanted or len(masks) != 1 or {*inputs} != {TOKENS}:
        raise ModelError(
            f"{folder} is a {MULTI_VECTOR} of {_name_classes(modules)}: what runs here is a backbone, "
            "projections of token vectors, their normalisation and one mask.",
            hint="Run it with sentence-transformers itself, or save it without the other modules.",
        )
    mask = read_object(masks[0])
    if mask.get("keep_only_token_ids"):
        raise explain_not_run(masks[0], "keep_only_token_ids", mask["keep_only_token_ids"], None)
    words, tasks = mask.get("skiplist_words") or [], mask.get("skiplist_tasks") or ["document"]
    if words and tasks not in (["document"], "document"):
        raise explain_not_run(masks[0], "skiplist_tasks", tasks, ["document"])
    config = read_object(path := find_sentence_config(places[0][1]))
    expansion, query_length = config.get("query_expansion"), config.get("query_length") or length
    if expansion is not None:
        _require_fixed_expansion(path, expansion, query_length)
    return LateInteraction(
        query_length=query_length if expansion is None else expansion["length"],
        document_length=config.get("document_length") or length,
        expansion=expansion is not None,
        attends_to_expansion=bool(expansion and expansion.get("attend")),
        query_prefix="",
        document_prefix="",
        skiplist=tuple(map(str, words)),
        skips_unknown=False,
        dimension=infer_vector_size(folder, "") or 0,
    )


def _require_fixed_expansion(path: Path, expansion: Any, query_length: int) -> None:
    """Refuse an expansion of queries other than that of ColBERT, with mask tokens up to one length."""
    run = {"strategy": "fixed", "attend": False, "token": None, "length": 32}
    known = (
        isinstance(expansion, dict)
        and expansion.keys() <= run.keys()
        and expansion.get("token") is None
        and isinstance(expansion.get("attend"), bool | None)
    )
    length = expansion.get("length") if known else None
    # At least and at most the same length is that length.
    is_fixed = known and (expansion.get("strategy") == "fixed" or query_length == length)
    if not is_fixed or type(length) is not int or length < 1:
        raise explain_not_run(path, "query_expansion", expansion, run)
    tokenizer = path.with_name("tokenizer_config.json")
    if read_object(tokenizer).get("padding_side") == "left":
        raise explain_not_run(tokenizer, "padding_side", "left", "right")
