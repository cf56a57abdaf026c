"""Multi-vector models, which have a vector for each token: how a ColBERT is recognised, and its settings."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.core.encoding import LateInteraction
from harness.core.errors import DamagedModelError, ModelError
from harness.encoder.folder.files import SETTINGS, read_object
from harness.encoder.folder.modules import MASK, TOKENS, Module, explain_not_run, find_sentence_config
from harness.encoder.folder.pooling import infer_vector_size

COLBERT, MULTI_VECTOR = "ColBERT", "MultiVectorEncoder"
"""The types of a PyLate model in its settings, and of sentence-transformers' own multi-vector model."""


def find_model_kind(folder: Path, modules: Sequence[Module], library: Mapping[str, Any]) -> str:
    """The class whose model a folder has: SentenceTransformer, COLBERT or MULTI_VECTOR.

    It is a ModelError for any other, and for a multi-vector model without one of its files, which would be
    another one by defaults.
    """
    names_type = read_object(folder / SETTINGS).get("model_type") in (COLBERT, MULTI_VECTOR)
    is_late = any(one.kind.startswith("pylate.") or one.class_name == MASK for one in modules)
    lost = SETTINGS if modules else "modules.json"
    if (is_late if modules else names_type) and not (folder / lost).is_file():
        raise DamagedModelError(f"{folder} is a multi-vector model without {lost}, which belongs to it.")
    kind = str(library.get("model_type") or "SentenceTransformer")
    # Models saved before PyLate 1.3 name no type, but MaxSim or a module of PyLate.
    is_pylate = any(module.kind.startswith("pylate.") for module in modules)
    if kind == "SentenceTransformer" and (is_pylate or library.get("similarity_fn_name") == "MaxSim"):
        kind = COLBERT
    for package, other in (("sparse_encoder", "SparseEncoder"), ("cross_encoder", "CrossEncoder")):
        if any(module.kind.startswith(f"sentence_transformers.{package}.") for module in modules):
            kind = other
    if kind not in ("SentenceTransformer", COLBERT, MULTI_VECTOR):
        raise ModelError(
            f"{folder} is a {kind}, which gives no dense vector of a text.",
            hint="Give a SentenceTransformer, a MultiVectorEncoder, or a bare backbone.",
        )
    return kind


def read_pylate_settings(
    folder: Path, modules: Sequence[Module], library: Mapping[str, Any], _length: int
) -> LateInteraction:
    """The settings of a PyLate model; those that its files do not name have PyLate's defaults."""
    first, *others = [module.class_name for module in modules]
    if first != "Transformer" or {*others} != {"Dense"}:
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
    return ", ".join(module.kind.rpartition(".")[2] for module in modules)


def read_multi_vector_settings(
    folder: Path, modules: Sequence[Module], library: Mapping[str, Any], length: int
) -> LateInteraction:
    """The settings of a MultiVectorEncoder of sentence-transformers; its prefixes are prompts.

    `length` is the most tokens of a text where it names none.
    """
    similarity = library.get("similarity_fn_name")
    if similarity not in (None, "maxsim"):
        raise explain_not_run(folder / SETTINGS, "similarity_fn_name", similarity, "maxsim")
    order = [module.class_name for module in modules if module.class_name != MASK]
    masks = [module.place / "config.json" for module in modules if module.class_name == MASK]
    defaults: dict[str | None, str | None] = {"Dense": TOKENS, "Normalize": None}
    inputs = {
        read_object(one.place / "config.json").get("module_input_name", defaults[one.class_name])
        for one in modules
        if one.class_name in defaults
    }
    wanted = ["Transformer", *["Dense"] * (len(order) - 2), "Normalize"]
    if order != wanted or len(masks) != 1 or inputs != {TOKENS}:
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
    config = read_object(path := find_sentence_config(modules[0].place))
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
    named = expansion if isinstance(expansion, dict) else {}
    length, attend = named.get("length"), named.get("attend")
    # At least and at most the same length is that length.
    is_fixed = named.get("strategy") == "fixed" or query_length == length
    is_known = named.keys() <= run.keys() and named.get("token") is None and isinstance(attend, bool | None)
    if not is_fixed or not is_known or type(length) is not int or length < 1:
        raise explain_not_run(path, "query_expansion", expansion, run)
    tokenizer = path.with_name("tokenizer_config.json")
    if read_object(tokenizer).get("padding_side") == "left":
        raise explain_not_run(tokenizer, "padding_side", "left", "right")
