"""Settings of a model folder that would load something other than what lies in it: refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.encoder.folder import read_object
from harness.encoder.modules import module_folders
from harness.errors import ModelError

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
"""Arguments of sentence-transformers and transformers, and what each does."""

NOTHING: tuple[Any, ...] = (None, False, {}, [], "")
"""Values with which an argument does nothing."""


def check_elsewhere(folder: Path) -> None:
    """See that the files of the folder, and of each of its modules, are what will be loaded.

    Raises:
        ModelError: If a setting names other weights, an adapter, another tokenizer or a kernel.
    """
    for place in module_folders(folder):
        _check_config(place / "config.json")
        for path in sorted(place.glob("sentence_*_config.json")):
            _check_arguments(path)
        if (place / "adapter_config.json").is_file() and (place / "config.json").is_file():
            raise ModelError(
                f"{place} holds an adapter, whose base model lies elsewhere.",
                hint="Merge it into its base model first, or remove adapter_config.json if it is merged.",
            )


def _check_config(path: Path) -> None:
    for part in _parts(read_object(path)):
        if part.get("transformers_weights") is not None:
            raise _refusal(path, "transformers_weights", REFUSED["transformers_weights"])
        _check_attention(path, part)


def _check_arguments(path: Path) -> None:
    for part in _parts(read_object(path)):
        for name, what in REFUSED.items():
            if name in part and not _is_harmless(name, part[name]):
                raise _refusal(path, name, what)
        _check_attention(path, part)


def _is_harmless(name: str, value: Any) -> bool:
    if name == "use_safetensors":  # they are what is taken anyway, where there are any
        return value is None or value is True
    return value in NOTHING


def _check_attention(path: Path, part: Mapping[str, Any]) -> None:
    """An attention named like a repository is compiled code fetched from the hub."""
    for name in ("attn_implementation", "_attn_implementation"):
        if "/" in str(part.get(name)):
            raise _refusal(path, name, "fetches code")


def _parts(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The object, and every object in it."""
    yield content
    for value in content.values():
        if isinstance(value, dict):
            yield from _parts(value)


def _refusal(path: Path, name: str, what: str) -> ModelError:
    return ModelError(
        f"{path} sets {name}, which {what}: what would be loaded is not what lies in the folder.",
        hint="Save the model with what it names in place, without this setting.",
    )
