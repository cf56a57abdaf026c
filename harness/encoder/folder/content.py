"""The content of a model folder: the files that form its key, its own code, and references elsewhere.

Settings that would load anything other than the folder's own files are refused. A folder with an adapter of
peft in place of weights is laid out beside its base model, by links.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.errors import DamagedModelError, ModelError
from harness.core.files import create_temporary_folder, hash_file, hash_files, require_size
from harness.core.keys import digest
from harness.core.lineage import ModelDocument, read_document
from harness.encoder.folder import files, layout

CONFIGS = ("config.json", "modules.json", files.SETTINGS, "special_tokens_map.json", "added_tokens.json")
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
    paths = set(layout.weight_files(folder))
    for root in {folder, *layout.list_module_folders(folder)}:
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
            require_size(path, sys.maxsize if is_weights else files.LARGEST)
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


@files.read_files_once()
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
        parts = files.list_module_weights(path.parent) if path.suffix == ".safetensors" else []
        # The parts of a sharded checkpoint are one file.
        is_part = path in parts and path.name != files.WHOLE
        name = (path.with_name(files.WHOLE) if is_part else path).relative_to(folder).as_posix()
        if not is_part:
            hashes[name] = _hash(path, cache_dir)
        elif name not in hashes:
            hashes[name] = hash_files(parts, partial(files.hash_shards, parts), cache_dir)
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
    content = files.read_json(path)
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name not in VOLATILE}
    # Written again from its values, so that the order and the blanks of a config do not count.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


LOADED = {"config.json": ("AutoConfig", "AutoModel"), "tokenizer_config.json": ("AutoTokenizer",)}
"""The classes that load a model, by the file in which transformers looks for replacements of them."""

NAMING = (*LOADED, "processor_config.json", "preprocessor_config.json")
"""The files that may name classes of a folder's own."""


class RemoteClass(NamedTuple):
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
    for place, file in product(layout.list_module_folders(folder), NAMING):
        named = files.read_object(place / file).get("auto_map") or {}
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
    for place in layout.list_module_folders(folder):
        for path in (place / "config.json", *sorted(place.glob("sentence_*_config.json"))):
            _check_settings(path, files.read_object(path))
        if (place / "adapter_config.json").is_file() and (place / "config.json").is_file():
            hint = "Merge it into its base model first, or remove adapter_config.json if it is merged."
            raise ModelError(f"{place} holds an adapter, whose base model lies elsewhere.", hint=hint)


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse arguments of REFUSED, and an attention named like a repository: it is code from the hub."""
    # Of a backbone's config transformers reads this one alone.
    names = ["transformers_weights"] if path.name == "config.json" else settings
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
    for value in settings.values():
        if isinstance(value, dict):
            _check_settings(path, value)


ADAPTER = "peft-adapter"
"""The subfolder of a backbone with the adapter that loading merges into it."""

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

MERGED = "ADALORA C3A FOURIERFT HRA IA3 LN_TUNING LOHA LOKR LORA MISS OFT SHIRA VBLORA VERA"
"""The kinds of adapters that peft merges into the layers beside which they stand, exact to rounding."""

UNMERGED = ("alora_invocation_tokens", "layer_replication", "megatron_config")
"""Settings of adapters that change some tokens alone, share layers, or have peft import a module by name."""

TASKS = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
"""The tasks of peft whose models have a head beside the backbone, which no vector needs."""

PREFIX = "base_model.model."
"""The prefix of names in peft's files."""

ORIGIN = ("base_model_name_or_path", "revision", "peft_version", "auto_mapping", "inference_mode")
"""Fields of an adapter's config without effect on a vector, once the base lies beside it."""


def lay_beside_base(folder: Path, cache: Path, find_base: Callable[[Path, str, str | None], Path]) -> Path:
    """A folder of links in which each adapter of a model lies in its base; the folder itself without any.

    Such a folder is made once, and is read as any other. The tokenizer is that of the adapter's folder, if it
    has one, as in sentence-transformers.

    Args:
        folder: The model folder.
        cache: The cache folder.
        find_base: The folder of a base model, by the adapter's config, the base's name and its revision.

    Raises:
        ModelError: An adapter cannot be merged, is damaged, or has no base.
    """
    backbones = layout.list_backbone_folders(folder)
    places = [at for at in backbones if (at / CONFIG).is_file() and not files.list_module_weights(at)]
    if not places:
        return folder
    roots = {folder, *layout.list_module_folders(folder)}
    paths = {*folder.rglob("*.py"), *(path for root in roots if root.is_dir() for path in root.iterdir())}
    links = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    texts = {}
    for place in places:
        prefix = "" if place == folder else f"{place.relative_to(folder).as_posix()}/"
        config = _read_config(place)
        base = find_base(place / CONFIG, config["base_model_name_or_path"], config.get("revision"))
        links |= {f"{prefix}{path.name}": path for path in _list_base_files(base, place)}
        del links[prefix + CONFIG]
        links[f"{prefix}{ADAPTER}/{WEIGHTS}"] = links.pop(prefix + WEIGHTS)
        kept = {name: value for name, value in config.items() if name not in ORIGIN}
        if config.get("task_type") in TASKS:
            names = [name.removeprefix(PREFIX) for name in files.read_tensor_headers([place / WEIGHTS]) or ()]
            modules = config.get("modules_to_save") or ()
            kept["modules_to_save"] = [m for m in modules if any(f".{m}." in name for name in names)]
        texts[f"{prefix}{ADAPTER}/{CONFIG}"] = json.dumps(kept, indent=2, sort_keys=True)
    targets = {name: str(path.absolute()) for name, path in sorted(links.items())}
    laid = cache / "adapters" / digest({"links": targets, "texts": texts}) / folder.resolve().name
    if not laid.is_dir():
        _write_links(laid, targets, texts)
    return laid


def _read_config(place: Path) -> dict[str, Any]:
    """The config of an adapter that can be merged, whose weights are whole and whose base has a name."""
    path = place / CONFIG
    config = files.read_object(path)
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    if kind is None or not base:
        lack = "base_model_name_or_path" if kind else "peft_type"
        raise DamagedModelError(f"{path} names no {lack}.", hint="Save the adapter again with peft.")
    settings = [name for name in UNMERGED if config.get(name)]
    if kind not in MERGED.split() or settings:
        what = f"with {settings[0]}" if settings else f"of the kind {kind}"
        hint = "Give the base model, or an adapter of another kind: LORA, IA3, LOHA, LOKR, OFT or VERA."
        lack = f"is an adapter {what}, which cannot be merged into its base model"
        raise ModelError(f"{place} {lack}.", hint=hint)
    if not (place / WEIGHTS).is_file():
        hint = "Fetch or write the folder again."
        if (place / "adapter_model.bin").is_file():
            hint = f"Save the adapter of adapter_model.bin as {WEIGHTS} with a newer peft."
        raise ModelError(f"{place} has no {WEIGHTS}.", hint=hint)
    files.check_file(place / WEIGHTS)
    return config


def _list_base_files(base: Path, place: Path) -> list[Path]:
    """The files of a base model that it is loaded from, for the adapter in `place`."""
    weights = files.list_module_weights(base)
    if not (base / "config.json").is_file() or not weights:
        lack = "an adapter itself" if (base / CONFIG).is_file() else "no folder with config.json and weights"
        hint = "Merge the adapter into its base model (`merge_and_unload()` of peft), and give the result."
        raise ModelError(f"{base}, the base model of the adapter in {place}, is {lack}.", hint=hint)
    has_own = any(any(place.glob(pattern)) for pattern in layout.VOCABULARIES)
    tokenizer = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
    patterns = ["config.json", "*.index.json", "*.py"]
    patterns += [] if has_own else [*tokenizer, *layout.VOCABULARIES]
    return [*weights, *(path for pattern in patterns for path in base.glob(pattern))]


def _write_links(laid: Path, targets: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Make a folder of links and texts, whole or not at all."""
    new = create_temporary_folder(laid)
    try:
        for name in (*targets, *texts):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
        for name, target in targets.items():
            (new / name).symlink_to(target)
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")
        new.rename(laid)
    except OSError:
        # Another process has made it.
        if not laid.is_dir():
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
