"""Which files decide what a model computes, and the key of their content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from harness.encoder.folder import read_json, read_object
from harness.encoder.modules import module_folders
from harness.encoder.own_code import own_classes
from harness.encoder.weights import weight_files
from harness.filehash import sha256_file
from harness.identity import digest

CONFIGS = frozenset(
    {
        "config.json",
        "modules.json",
        "config_sentence_transformers.json",
        "special_tokens_map.json",
        "added_tokens.json",
    }
)
"""Configuration files, compared as JSON without VOLATILE; so is every *_config.json but for LEFTOVERS."""

LEFTOVERS = frozenset({"data_config.json", "generation_config.json", "preprocessor_config.json"})
"""Configuration files that say nothing about a text's vector."""

TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "*.model", "*.tiktoken")
"""Files a tokenizer is read from, compared byte by byte."""

VOLATILE = frozenset(
    {
        "_name_or_path",
        "name_or_path",
        "_commit_hash",
        "transformers_version",
        "__version__",
        "special_tokens_map_file",
        "tokenizer_file",
        "dtype",
        "torch_dtype",
    }
)
"""Fields that say where a model came from or what it was saved with; a dtype is always asked for."""


def content_files(folder: Path) -> list[Path]:
    """Every file that decides what the model computes, sorted by name.

    Weights, configs, tokenizer files, module folders and Python files; not the README, other
    formats' weights, training leftovers, or model.json.

    Raises:
        ModelError: If there are no weights, or a config cannot be read.
    """
    found = set(weight_files(folder))
    for root in {folder, *module_folders(folder)}:
        if root.is_dir():
            found.update(p for p in root.iterdir() if _is_config(p))
            found.update(p for pattern in TOKENIZERS for p in root.glob(pattern))
            found.update(root.glob("adapter_model.*"))
    found.update(folder.rglob("*.py"))
    return sorted(p for p in found if p.is_file())


def content_key(
    folder: Path, cache_dir: Path | None = None, *, trust_remote_code: bool = False
) -> tuple[str, str]:
    """The ArtifactKey of a folder and the hash of its weights, each 64 hex digits.

    The key covers the name and content of every file of `content_files`, so a copy elsewhere has
    the same key, and another weight, pooling or tokenizer another one. A folder whose model.json
    names the key it was made under has that key, as long as its content is what was written
    then. The weights' hash is the file's own SHA-256 where there is one file. Hashes of files
    are remembered in `cache_dir`. A folder that names classes of its own for those of
    transformers has another key with `trust_remote_code`, for then it is another program.

    Raises:
        ModelError: If there are no weights, or a config cannot be read.
    """
    files = content_files(folder)
    hashes = {p.relative_to(folder).as_posix(): _hash(p, cache_dir) for p in files}
    content = digest(sorted(hashes.items()))
    own_code = trust_remote_code and bool(own_classes(folder))
    weights = {name: sha for name, sha in hashes.items() if name.endswith((".safetensors", ".bin"))}
    weights_hash = next(iter(weights.values())) if len(weights) == 1 else digest(sorted(weights.items()))
    made = read_object(folder / "model.json")
    if isinstance(made.get("key"), str) and made.get("content") == content:
        return made["key"], weights_hash
    return digest({"content": content, "own code": True}) if own_code else content, weights_hash


def _is_config(path: Path) -> bool:
    return path.name in CONFIGS or (path.name.endswith("_config.json") and path.name not in LEFTOVERS)


def _hash(path: Path, cache_dir: Path | None) -> str:
    if not _is_config(path):
        return sha256_file(path, cache_dir)
    content = read_json(path)
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name not in VOLATILE}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
