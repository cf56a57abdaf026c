"""What a model folder says about itself, read from its JSON alone: no torch, no transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from harness.encoder.content import content_files, content_key
from harness.encoder.elsewhere import check_elsewhere
from harness.encoder.folder import read_object
from harness.encoder.found import family_in
from harness.encoder.lengths import Length, lengths, longest, most_asked
from harness.encoder.modules import Module, all_modules, backbone_folder, library_class, read_modules
from harness.encoder.settle import NO_LIMIT, OWN_POOLING, POOLING_FLAGS, resolve_encoding
from harness.encoder.weights import check_safetensors, weight_files
from harness.errors import ModelError
from harness.types import Similarity

__all__ = [
    "NO_LIMIT",
    "OWN_POOLING",
    "Description",
    "content_files",
    "content_key",
    "describe",
    "resolve_encoding",
    "weight_files",
]

TRANSFORMER = "sentence_transformers.models.Transformer"
"""The type of the one module of a bare backbone."""


VOCABULARIES = ("tokenizer.json", "*vocab*", "*.model", "*.bpe", "*.codes", "merges.txt")
"""Files one of which a tokenizer is read from."""

OF_CHARACTERS = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
"""Tokenizers without a vocabulary."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model folder as its files describe it.

    `pooling` is named as in sentence-transformers, "+" between modes that are concatenated; None
    for a bare backbone, which then has `usual_pooling`, that of its family; OWN_POOLING where the
    model has no Pooling module of its own.
    `normalize` says whether the last module normalizes. `max_length` is in tokens, special ones
    included, and is what SentenceTransformer would use, that of the longest tower where there are
    several; `position_limit` is the most there are positions for, None where the files name no
    limit; `lengths` are those of each tower. `prompts` may be empty texts, which stand for none.
    """

    folder: Path
    pooling: str | None = None
    usual_pooling: str = "mean"
    normalize: bool = False
    max_length: int
    position_limit: int | None = None
    lengths: tuple[Length, ...]
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: Similarity = "cosine"


def describe(folder: Path, *, own_code: bool = False) -> Description:
    """Read what the model in `folder` is; with `own_code`, code that it brings is run.

    Raises:
        ModelError: If it is not a model folder, its JSON or its weights are unreadable, or there
            are no weights.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder.", hint="Give the folder that holds config.json.")
    modules = read_modules(folder)
    _require_configs(folder)
    check_elsewhere(folder)
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            check_safetensors(path)
    library = read_object(folder / "config_sentence_transformers.json") if modules else {}
    if library.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise ModelError(f"{folder} is a {library['model_type']}, which gives no dense vector of a text.")
    _require_tokenizers(folder)
    found = lengths(folder, own_code=own_code)
    return Description(
        folder=folder,
        pooling=_pooling(folder, modules),
        usual_pooling=_usual_pooling(folder),
        normalize=bool(modules) and library_class(modules[-1][0]) == "Normalize",
        max_length=longest(found),
        position_limit=most_asked(found),
        lengths=found,
        prompts=_prompts(library),
        default_prompt_name=library.get("default_prompt_name"),
        similarity_fn_name=_similarity(folder, library.get("similarity_fn_name")),
    )


def _require_configs(folder: Path) -> None:
    """See that every transformer has its config."""
    for kind, sub in all_modules(folder) or [(TRANSFORMER, "")]:
        if library_class(kind) != "Transformer" or (folder / sub / "config.json").is_file():
            continue
        adapter = (folder / sub / "adapter_config.json").is_file()
        raise ModelError(
            f"{folder / sub} has no config.json.",
            hint="It is an adapter: merge it into its base model first."
            if adapter
            else "Give the folder of a transformers or sentence-transformers model.",
        )


def _require_tokenizers(folder: Path) -> None:
    """See that every transformer has a tokenizer: without its files transformers makes an empty one."""
    for kind, sub in all_modules(folder) or [(TRANSFORMER, "")]:
        root = folder / sub
        if library_class(kind) != "Transformer" or any(any(root.glob(name)) for name in VOCABULARIES):
            continue
        config = read_object(root / "tokenizer_config.json")
        if config.get("auto_map") or config.get("tokenizer_class") in OF_CHARACTERS:
            continue
        family = family_in(root)
        known = None if family is None else family.tokenizer
        raise ModelError(
            f"{root} brings no tokenizer: it has neither tokenizer.json nor a vocabulary.",
            hint=f"Copy {f'that of {known}' if known else 'the one it was trained with'} into it "
            "(`tokenizer.save_pretrained(folder)`).",
        )


def _usual_pooling(folder: Path) -> str:
    family = family_in(backbone_folder(folder))
    return "mean" if family is None else family.pooling


def _pooling(folder: Path, modules: list[Module]) -> str | None:
    if not modules:
        return None
    path = next((sub for kind, sub in modules if library_class(kind) == "Pooling"), None)
    if path is None:
        return OWN_POOLING
    config = read_object(folder / path / "config.json")
    # A mode that the file leaves out is off, but for the mean, which is then on.
    modes = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag, mode == "mean")]
    return str(config.get("pooling_mode") or "+".join(modes))


def _prompts(library: Mapping[str, Any]) -> dict[str, str]:
    """The named prompts, as the library completes them: a side without one has an empty prompt.

    That counts only beside a default prompt, which is then not put before the texts of that side.
    """
    sides = {"query": "", "document": ""} if library.get("default_prompt_name") is not None else {}
    named = {name: text or "" for name, text in (library.get("prompts") or {}).items()}
    return {**sides, **named}


def _similarity(folder: Path, name: str | None) -> Similarity:
    known = get_args(Similarity)
    if name is not None and name not in known:
        raise ModelError(
            f"{folder} compares vectors with {name!r}, which is unknown here.",
            hint=f"There is: {', '.join(known)}.",
        )
    return cast(Similarity, name or "cosine")
