"""What a model folder says about itself, read from its JSON alone: no torch, no transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from harness.encoder.content import content_files, content_key
from harness.encoder.folder import (
    all_modules,
    backbone_folder,
    check_safetensors,
    is_module,
    read_modules,
    read_object,
    weight_files,
)
from harness.encoder.lengths import max_length, own_length, position_limit
from harness.encoder.settle import NO_LIMIT, OWN_POOLING, POOLING_FLAGS, resolve_encoding
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


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model folder as its files describe it.

    `pooling` is named as in sentence-transformers, "+" between modes that are concatenated; None
    for a bare backbone, OWN_POOLING where the model has no Pooling module of its own.
    `normalize` says whether the last module normalizes. `max_length` is in tokens, special ones
    included, and is what SentenceTransformer would use; `position_limit` is the most the
    backbone has positions for, None where its files name no limit. `prompts` are those that are
    not empty. `modules` are the (type, subfolder) of modules.json. `remote_code` is true if the
    folder names Python files of its own, in `auto_map` or as a module.
    """

    folder: Path
    kind: Literal["sentence-transformers", "transformers"]
    model_type: str
    architectures: tuple[str, ...] = ()
    pooling: str | None = None
    include_prompt: bool = True
    normalize: bool = False
    max_length: int
    position_limit: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: Similarity = "cosine"
    modules: tuple[tuple[str, str], ...] = ()
    remote_code: bool = False


def describe(folder: Path) -> Description:
    """Read what the model in `folder` is.

    Raises:
        ModelError: If it is not a model folder, its JSON or its weights are unreadable, or there
            are no weights.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder.", hint="Give the folder that holds config.json.")
    modules = read_modules(folder)
    root = backbone_folder(folder)
    inner = all_modules(folder)
    tokenizes = not inner or is_module(inner[0][0], "Transformer")
    config = _config(folder, root, needed=tokenizes)
    for path in weight_files(folder):
        if path.suffix == ".safetensors":
            check_safetensors(path)
    library = read_object(folder / "config_sentence_transformers.json") if modules else {}
    if library.get("model_type", "SentenceTransformer") != "SentenceTransformer":
        raise ModelError(f"{folder} is a {library['model_type']}, which gives no dense vector of a text.")
    own = own_length(root) if modules else None
    limit = position_limit(config, own)
    return Description(
        folder=folder,
        kind="sentence-transformers" if modules else "transformers",
        model_type=str(config.get("model_type", "")),
        architectures=tuple(config.get("architectures") or ()),
        normalize=bool(modules) and is_module(modules[-1][0], "Normalize"),
        max_length=max_length(root, limit, own, tokenizer=tokenizes),
        position_limit=limit,
        prompts={k: v for k, v in (library.get("prompts") or {}).items() if v},
        default_prompt_name=library.get("default_prompt_name"),
        similarity_fn_name=_similarity(folder, library.get("similarity_fn_name")),
        modules=tuple(modules),
        remote_code="auto_map" in config
        or any(not kind.startswith("sentence_transformers.") for kind, _ in inner),
        **_pooling(folder, modules),
    )


def _config(folder: Path, root: Path, *, needed: bool) -> dict[str, Any]:
    if needed and not (root / "config.json").is_file():
        adapter = (folder / "adapter_config.json").is_file()
        raise ModelError(
            f"{folder} has no config.json.",
            hint="It is an adapter: merge it into its base model first."
            if adapter
            else "Give the folder of a transformers or sentence-transformers model.",
        )
    return read_object(root / "config.json")


def _pooling(folder: Path, modules: list[tuple[str, str]]) -> dict[str, Any]:
    if not modules:
        return {"pooling": None}
    path = next((sub for kind, sub in modules if is_module(kind, "Pooling")), None)
    if path is None:
        return {"pooling": OWN_POOLING}
    config = read_object(folder / path / "config.json")
    # A mode that the file leaves out is off, but for the mean, which is then on.
    modes = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag, mode == "mean")]
    named = config.get("pooling_mode")
    return {"pooling": named or "+".join(modes), "include_prompt": bool(config.get("include_prompt", True))}


def _similarity(folder: Path, name: str | None) -> Similarity:
    known = get_args(Similarity)
    if name is not None and name not in known:
        raise ModelError(
            f"{folder} compares vectors with {name!r}, which is unknown here.",
            hint=f"There is: {', '.join(known)}.",
        )
    return cast(Similarity, name or "cosine")
