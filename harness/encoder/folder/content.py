"""The content of a model folder: the files that form its key, its own code, and references elsewhere.

Settings that would load anything other than the folder's own files are refused.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.errors import ModelError
from harness.core.files import hash_file, hash_files, require_size
from harness.core.keys import ModelDocument, digest, read_document
from harness.encoder.folder.adapters import ADAPTER
from harness.encoder.folder.files import LARGEST, SETTINGS, read_files_once, read_json, read_object
from harness.encoder.folder.modules import list_module_folders, weight_files
from harness.encoder.folder.tensors import WHOLE, hash_shards, list_module_weights

CONFIGS = ("config.json", "modules.json", SETTINGS, "special_tokens_map.json", "added_tokens.json")
"""Configuration files, compared as JSON without VOLATILE, like every *_config.json except LEFTOVERS."""

LEFTOVERS = ("data_config.json", "generation_config.json", "preprocessor_config.json")
"""Configuration files without effect on a text's vector."""

TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "*.model", "*.tiktoken")
"""Tokenizer files, compared byte by byte."""

VOLATILE = (
    *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "__version__"),
    *("special_tokens_map_file", "tokenizer_file", "dtype", "torch_dtype"),
)
"""Fields on the origin of a model or the program that saved it; a dtype is always requested."""


def list_content_files(folder: Path) -> list[Path]:
    """The files that decide what the model computes, sorted: weights, configs, tokenizers, Python files.

    The README, other formats' weights, training leftovers and model.json are left out. It is a ModelError if
    there are no weights, or a config cannot be read.
    """
    paths = set(weight_files(folder))
    for root in {folder, *list_module_folders(folder)}:
        if root.is_dir():
            paths.update(p for p in root.iterdir() if _is_config(p))
            paths.update(p for pattern in TOKENIZERS for p in root.glob(pattern))
            # transformers loads an adapter that lies beside a model without being asked.
            paths.update(root.glob("adapter_model.*"))
            paths.update(root.glob(f"{ADAPTER}/*"))
    # A model's own code may import any file of its folder.
    paths.update(folder.rglob("*.py"))
    content_files = sorted(p for p in paths if p.exists() and not p.is_dir())
    for path in content_files:
        is_weights = path.suffix in (".safetensors", ".bin", ".pt", ".h5")
        try:
            require_size(path, sys.maxsize if is_weights else LARGEST)
        except ValueError as error:
            raise ModelError(f"{path} cannot be read: {error}.") from None
    return content_files


class FolderIdentity(NamedTuple):
    """The ArtifactKey of a folder and the hash of its weights, 64 hex digits each.

    `document` is its model.json, where the key comes from there.
    """

    key: str
    weights: str
    document: ModelDocument | None = None


@read_files_once()
def compute_folder_identity(
    folder: Path, cache_dir: Path | None = None, *, trust_remote_code: bool = False
) -> FolderIdentity:
    """The identity of a folder.

    The key covers name and content of every file of `list_content_files`; a copy elsewhere has the same key.
    That of a trained model is the key of its lineage, as long as the content is what model.json says. The
    hash of the weights is the file's own SHA-256 for a single file; safetensors in several parts count as the
    one file that their tensors make.

    Args:
        folder: The model folder.
        cache_dir: Where hashes of files are cached; None to compute each.
        trust_remote_code: Whether the folder's own classes run. With such classes it then has another key,
            because it is another program.
    """
    hashes: dict[str, str] = {}
    for path in list_content_files(folder):
        parts = list_module_weights(path.parent) if path.suffix == ".safetensors" else []
        # The parts of a sharded checkpoint are one file.
        is_part = path in parts and path.name != WHOLE
        name = (path.with_name(WHOLE) if is_part else path).relative_to(folder).as_posix()
        if not is_part:
            hashes[name] = _hash(path, cache_dir)
        elif name not in hashes:
            hashes[name] = hash_files(parts, partial(hash_shards, parts), cache_dir)
    content = digest(sorted(hashes.items()))
    own_code = trust_remote_code and any(one.is_replacement for one in list_remote_classes(folder))
    weights = {name: sha for name, sha in hashes.items() if name.endswith((".safetensors", ".bin"))}
    weights_hash = next(iter(weights.values())) if len(weights) == 1 else digest(sorted(weights.items()))
    document = read_document(folder)
    if document is not None and document.content != content:
        document = None
    key = content if document is None else document.key
    key = digest({"content": key, "own code": True}) if own_code else key
    return FolderIdentity(key=key, weights=weights_hash, document=document)


def _is_config(path: Path) -> bool:
    return path.name in CONFIGS or (path.name.endswith("_config.json") and path.name not in LEFTOVERS)


def _hash(path: Path, cache_dir: Path | None) -> str:
    if not _is_config(path):
        return hash_file(path, cache_dir)
    content = read_json(path)
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name not in VOLATILE}
    # Written again from its values, so that the order and the blanks of a config do not count.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


LOADED = {"config.json": ("AutoConfig", "AutoModel"), "tokenizer_config.json": ("AutoTokenizer",)}
"""The classes that load a model, by the file in which transformers looks for replacements of them."""

NAMING = (*LOADED, "processor_config.json", "preprocessor_config.json")
"""The files that may name classes of a folder's own."""


@dataclass(frozen=True, kw_only=True)
class RemoteClass:
    """A class of a model's own repository that `auto_map` in `file` sets for transformers' class `name`."""

    folder: Path
    file: str
    name: str
    reference: str

    @property
    def is_replacement(self) -> bool:
        """Whether it replaces a class that the model is loaded with."""
        return self.name in LOADED.get(self.file, ())


def list_remote_classes(folder: Path) -> list[RemoteClass]:
    """Every class of a model's own that its files name; ModelError if a config cannot be read."""
    classes = []
    for place, file in product(list_module_folders(folder), NAMING):
        named = read_object(place / file).get("auto_map") or {}
        # The old form for a tokenizer: the slow and the fast class.
        for name, references in (named if isinstance(named, dict) else {"AutoTokenizer": named}).items():
            for reference in references if isinstance(references, list) else [references]:
                if reference is not None:
                    classes.append(RemoteClass(folder=place, file=file, name=name, reference=str(reference)))
    return classes


REFUSED = {
    "names other weight files": ("variant", "gguf_file", "from_tf", "from_flax", "transformers_weights"),
    "chooses the weight files": ("use_safetensors",),
    "brings other weights": ("state_dict",),
    "adds an adapter": ("adapter_kwargs",),
    "takes the tokenizer from elsewhere": ("tokenizer_name_or_path", "tokenizer_file"),
    "takes the vocabulary from elsewhere": ("vocab_file",),
    "names code": ("auto_map",),
    "fetches code": ("use_kernels", "kernel_config"),
}
"""Arguments of sentence-transformers and transformers that are refused, by their effect."""


def check_external_references(folder: Path) -> None:
    """Refuse settings of any module that name other weights, an adapter, another tokenizer or a kernel."""
    for place in list_module_folders(folder):
        for path in (place / "config.json", *sorted(place.glob("sentence_*_config.json"))):
            for part in _walk_objects(read_object(path)):
                # Of a backbone's config transformers reads this one alone.
                _check_settings(path, part, ["transformers_weights"] if path.name == "config.json" else part)
        if (place / "adapter_config.json").is_file() and (place / "config.json").is_file():
            hint = "Merge it into its base model first, or remove adapter_config.json if it is merged."
            raise ModelError(f"{place} holds an adapter, whose base model lies elsewhere.", hint=hint)


def _check_settings(path: Path, settings: Mapping[str, Any], names: Container[str]) -> None:
    """Refuse arguments of REFUSED, and an attention named like a repository: it is code from the hub."""
    refused = [(name, effect) for effect, group in REFUSED.items() for name in group if name in names]
    # With these values a setting has no effect; loading prefers safetensors in any case.
    nothing: tuple[Any, ...] = (None, False, {}, [], "")
    harmless = {"use_safetensors": (None, True)}
    wrong = [pair for pair in refused if settings.get(pair[0]) not in harmless.get(pair[0], nothing)]
    attention = ("attn_implementation", "_attn_implementation")
    wrong += [(name, "fetches code") for name in attention if "/" in str(settings.get(name))]
    for name, effect in wrong:
        raise ModelError(
            f"{path} sets {name}, which {effect}: what would be loaded is not what lies in the folder.",
            hint="Save the model with what it names in place, without this setting.",
        )


def _walk_objects(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The object, and every object within it."""
    yield content
    for value in content.values():
        if isinstance(value, dict):
            yield from _walk_objects(value)
