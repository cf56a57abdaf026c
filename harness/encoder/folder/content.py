"""The content of a model folder: the files that form its key, its own code, and references elsewhere.

Settings that would load anything other than the folder's own files are refused.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError
from harness.core.files import hash_file, hash_files, require_size
from harness.core.identity import digest
from harness.core.lineage import ModelDocument, read_document
from harness.encoder.folder.files import (
    LARGEST,
    StoredTensor,
    list_module_weights,
    read_json,
    read_object,
    read_safetensors_metadata,
    read_tensor_headers,
)
from harness.encoder.folder.modules import list_module_folders, weight_files

CONFIGS = frozenset(
    {
        "config.json",
        "modules.json",
        "config_sentence_transformers.json",
        "special_tokens_map.json",
        "added_tokens.json",
    }
)
"""Configuration files, compared as JSON without VOLATILE, like every *_config.json except LEFTOVERS."""

LEFTOVERS = frozenset({"data_config.json", "generation_config.json", "preprocessor_config.json"})
"""Configuration files without effect on a text's vector."""

TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "*.model", "*.tiktoken")
"""Tokenizer files, compared byte by byte."""

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
"""Fields on the origin of a model or the program that saved it; a dtype is always requested."""


def list_content_files(folder: Path) -> list[Path]:
    """The files that decide what the model computes, sorted: weights, configs, tokenizers, Python files.

    The README, other formats' weights, training leftovers and model.json are left out.

    Raises:
        ModelError: There are no weights, or a config cannot be read.
    """
    paths = set(weight_files(folder))
    for root in {folder, *list_module_folders(folder)}:
        if root.is_dir():
            paths.update(p for p in root.iterdir() if _is_config(p))
            paths.update(p for pattern in TOKENIZERS for p in root.glob(pattern))
            # transformers loads an adapter that lies beside a model without being asked.
            paths.update(root.glob("adapter_model.*"))
    # A model's own code may import any file of its folder.
    paths.update(folder.rglob("*.py"))
    content_files = sorted(p for p in paths if p.exists() and not p.is_dir())
    for path in content_files:
        _require_size(path)
    return content_files


def _require_size(path: Path) -> None:
    weights = path.suffix in (".safetensors", ".bin", ".pt", ".h5")
    try:
        require_size(path, sys.maxsize if weights else LARGEST)
    except ValueError as error:
        raise ModelError(f"{path} cannot be read: {error}.") from None


@dataclass(frozen=True, kw_only=True)
class FolderIdentity:
    """The identity of a model folder.

    Attributes:
        key: Its ArtifactKey, 64 hex digits.
        weights: The hash of its weights, 64 hex digits.
        document: Its model.json, where the key comes from there.
    """

    key: str
    weights: str
    document: ModelDocument | None = None


def compute_content_key(
    folder: Path, cache_dir: Path | None = None, *, trust_remote_code: bool = False
) -> tuple[str, str]:
    """The ArtifactKey of a folder and the hash of its weights (see `compute_folder_identity`)."""
    identity = compute_folder_identity(folder, cache_dir, trust_remote_code=trust_remote_code)
    return identity.key, identity.weights


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

    Raises:
        ModelError: There are no weights, or a config cannot be read.
    """
    hashes = _hash_files(folder, list_content_files(folder), cache_dir)
    content = digest(sorted(hashes.items()))
    own_code = trust_remote_code and bool(RemoteClass.list_replacements(folder))
    weights = {name: sha for name, sha in hashes.items() if name.endswith((".safetensors", ".bin"))}
    weights_hash = next(iter(weights.values())) if len(weights) == 1 else digest(sorted(weights.items()))
    document = read_document(folder)
    if document is not None and document.content != content:
        document = None
    key = content if document is None else document.key
    return FolderIdentity(
        key=digest({"content": key, "own code": True}) if own_code else key,
        weights=weights_hash,
        document=document,
    )


def _hash_files(folder: Path, files: Sequence[Path], cache_dir: Path | None) -> dict[str, str]:
    """The hash of each file by its place in the folder; parts of a sharded checkpoint are one file."""
    hashes: dict[str, str] = {}
    for path in files:
        parts = list_module_weights(path.parent) if path.suffix == ".safetensors" else []
        if path in parts and path.name != WHOLE:
            path = path.with_name(WHOLE)
        name = path.relative_to(folder).as_posix()
        if name not in hashes:
            is_single_file = path.is_file()
            hashes[name] = _hash(path, cache_dir) if is_single_file else _hash_shards(parts, cache_dir)
    return hashes


WHOLE = "model.safetensors"
"""The weights of a module in one file."""

ORDER = (
    "U64",
    "I64",
    "F64",
    "C64",
    "F32",
    "U32",
    "I32",
    "BF16",
    "F16",
    "U16",
    "I16",
    "F8_E8M0",
    "F8_E4M3",
    "F8_E5M2",
    "I8",
    "U8",
    "BOOL",
)
"""The types of tensors in the order in which safetensors writes them, those of one type by name."""


def _hash_shards(parts: Sequence[Path], cache_dir: Path | None) -> str:
    """The SHA-256 of the file that safetensors would write of the tensors in several parts."""
    return hash_files(parts, lambda: _digest_shards(parts), cache_dir)


def _digest_shards(parts: Sequence[Path]) -> str:
    tensors = read_tensor_headers(parts) or {}
    names = sorted(tensors, key=lambda name: (_rank(tensors[name].dtype), name.encode()))
    header: dict[str, Any] = {}
    metadata = read_safetensors_metadata(parts[0])
    if metadata is not None:
        header["__metadata__"] = metadata
    end = 0
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.end - tensor.begin
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # safetensors fills its header up with blanks to a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    hasher = hashlib.sha256(len(text).to_bytes(8, "little") + text)
    for name in names:
        _read_into(hasher, tensors[name])
    return hasher.hexdigest()


def _rank(dtype: str) -> int:
    return ORDER.index(dtype) if dtype in ORDER else len(ORDER)


BLOCK = 1 << 24
"""Bytes that are read at once."""


def _read_into(hasher: Any, tensor: StoredTensor) -> None:
    with tensor.path.open("rb") as file:
        file.seek(tensor.begin)
        left = tensor.end - tensor.begin
        while left and (block := file.read(min(left, BLOCK))):
            hasher.update(block)
            left -= len(block)


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

    @staticmethod
    def list_references(folder: Path) -> list[RemoteClass]:
        """Every class that the files of any module name.

        Raises:
            ModelError: A config cannot be read.
        """
        return [
            found
            for place in list_module_folders(folder)
            for file in NAMING
            for found in _iter_remote_classes(place, file)
        ]

    @staticmethod
    def list_replacements(folder: Path) -> list[RemoteClass]:
        """The declared classes that replace a class the model is loaded with.

        Raises:
            ModelError: A config cannot be read.
        """
        return [
            found for found in RemoteClass.list_references(folder) if found.name in LOADED.get(found.file, ())
        ]


def _iter_remote_classes(place: Path, file: str) -> Iterator[RemoteClass]:
    named = read_object(place / file).get("auto_map") or {}
    # The old form for a tokenizer: the slow and the fast class.
    if not isinstance(named, dict):
        named = {"AutoTokenizer": named}
    for name, references in named.items():
        for reference in references if isinstance(references, list) else [references]:
            if reference is not None:
                yield RemoteClass(folder=place, file=file, name=name, reference=str(reference))


REFUSED = {
    "variant": "names other weight files",
    "use_safetensors": "chooses the weight files",
    "gguf_file": "names other weight files",
    "from_tf": "names other weight files",
    "from_flax": "names other weight files",
    "state_dict": "brings other weights",
    "adapter_kwargs": "adds an adapter",
    "transformers_weights": "names other weight files",
    "tokenizer_name_or_path": "takes the tokenizer from elsewhere",
    "tokenizer_file": "takes the tokenizer from elsewhere",
    "vocab_file": "takes the vocabulary from elsewhere",
    "auto_map": "names code",
    "use_kernels": "fetches code",
    "kernel_config": "fetches code",
}
"""Arguments of sentence-transformers and transformers that are refused, and their effect."""

NOTHING: tuple[Any, ...] = (None, False, {}, [], "")
"""Values with which an argument has no effect."""


def check_external_references(folder: Path) -> None:
    """Refuse a folder whose settings, or those of its modules, would load files from elsewhere.

    Raises:
        ModelError: A setting names other weights, an adapter, another tokenizer or a kernel.
    """
    for place in list_module_folders(folder):
        _check_settings(place / "config.json", ["transformers_weights"])
        for path in sorted(place.glob("sentence_*_config.json")):
            _check_settings(path, REFUSED)
        if (place / "adapter_config.json").is_file() and (place / "config.json").is_file():
            raise ModelError(
                f"{place} holds an adapter, whose base model lies elsewhere.",
                hint="Merge it into its base model first, or remove adapter_config.json if it is merged.",
            )


def _check_settings(path: Path, names: Iterable[str]) -> None:
    """Refuse settings of these names, and an attention named like a repository: it is code from the hub."""
    for part in _walk_objects(read_object(path)):
        for name in names:
            if name in part and not _is_harmless(name, part[name]):
                raise _build_setting_error(path, name, REFUSED[name])
        for name in ("attn_implementation", "_attn_implementation"):
            if "/" in str(part.get(name)):
                raise _build_setting_error(path, name, "fetches code")


def _is_harmless(name: str, value: Any) -> bool:
    # Loading prefers safetensors in any case.
    if name == "use_safetensors":
        return value is None or value is True
    return value in NOTHING


def _walk_objects(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The object, and every object within it."""
    yield content
    for value in content.values():
        if isinstance(value, dict):
            yield from _walk_objects(value)


def _build_setting_error(path: Path, name: str, what: str) -> ModelError:
    return ModelError(
        f"{path} sets {name}, which {what}: what would be loaded is not what lies in the folder.",
        hint="Save the model with what it names in place, without this setting.",
    )
