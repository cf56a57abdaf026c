"""Models in memory, such as a SentenceTransformer: saved to the cache, and then folders like any other."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from harness.core import paths
from harness.core.arguments import Folder, Table, check_value
from harness.core.errors import ModelError, UsageError
from harness.core.files import write_error
from harness.encoder.folder.content import compute_folder_identity
from harness.encoder.folder.files import SETTINGS, read_object
from harness.encoder.folder.modules import find_sentence_config, weight_files
from harness.executors.local import end_repetition


class SavableModel(Protocol):
    """A SentenceTransformer, a ColBERT of PyLate, or a model of another class that saves itself like them."""

    def save_pretrained(self, path: str, *, create_model_card: bool) -> None:
        """Write weights, tokenizer and settings to a folder."""


def save_objects(models: Any, name: str | None, request: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The models of a request with a text for each object, and the request with their names.

    Args:
        models: As the user gave them: texts and objects, alone, in a list or in a mapping of names.
        name: The name of a single model; None for its own.
        request: Other fields of the request, of which `cache` and `names` are read.

    Raises:
        UsageError: An object cannot be saved or has no name, or one name is for several models.
        StoreError: The cache cannot be written.
    """
    if name is not None and isinstance(models, list | tuple | Mapping):
        raise UsageError("name is for one model.", hint='Give names as a mapping: {"first": a, "second": b}.')
    if isinstance(models, list | tuple):
        texts = []
        for model in models:
            text, request = save_objects(model, None, request)
            texts.append(text)
        return texts, dict(request)
    cache = paths.resolve_cache_folder(check_value("cache", request.get("cache"), Folder | None))
    if isinstance(models, Mapping):
        return {own: _save_model(one, cache)[0] for own, one in models.items()}, dict(request)
    text, own = _save_model(models, cache)
    own = own if name is None else name
    if own is None:
        return text, dict(request)
    if own == "":
        raise UsageError(
            "The model was made in memory, and has no name.",
            hint='Give it one: name="my-model", or {"my-model": model} in place of the model.',
        )
    paths.require_plain_name(check_value("name", own, str), "a model's name", hint="Give another name.")
    names = check_value("names", request.get("names", {}), Table)
    return text, {**request, "names": {**names, str(text): own}}


def _save_model(model: Any, cache: Path) -> tuple[Any, str | None]:
    """The text for a model, and its own name, empty where it has none; None where the text has one.

    An object that has not changed since it was loaded is the folder or the commit of the hub it came from.
    """
    saves, encodes = hasattr(model, "save_pretrained"), hasattr(model, "encode")
    if isinstance(model, str | os.PathLike | type) or not (saves or encodes):
        return model, None
    if not (saves and encodes):
        raise UsageError(
            f"An object of the class {type(model).__name__} cannot be evaluated: a model in memory must be a "
            "SentenceTransformer or a PyLate ColBERT, as it is saved and loaded again.",
            hint="Give the SentenceTransformer in it (of mteb's wrappers `.model`), or make one of it: "
            "SentenceTransformer(modules=[...]).",
        )
    from huggingface_hub import snapshot_download

    from harness.encoder.library_load import hide_library_output
    from harness.encoder.trial_load import LARGEST

    end_repetition()
    root = cache / "objects"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with hide_library_output(), tempfile.TemporaryDirectory(dir=root) as scratch:
            key = _write_folder(model, new := Path(scratch, "new", type(model).__name__))
            place, commit = _find_source(model)
            is_small = sum(path.stat().st_size for path in weight_files(new)) <= LARGEST
            # Whatever may be wrong with the source by now, the model itself is here.
            with suppress(Exception):
                source = snapshot_download(place, revision=commit, local_files_only=True) if commit else place
                # A bare backbone is another model for the library than for the harness.
                if place and is_small and Path(source, "modules.json").is_file():
                    again = type(model)(place, device="cpu", revision=commit, local_files_only=True)
                    if _write_folder(again, Path(scratch, "again")) == key:
                        return f"{place}@{commit}" if commit else place, None
            try:
                os.rename(new.parent, root / key)
            except OSError:
                # It is there, perhaps from another process.
                if not (root / key).is_dir():
                    raise
    except OSError as error:
        raise write_error(root, error) from error
    return str(root / key / new.name), _find_name(model)


def _write_folder(model: Any, folder: Path) -> str:
    """Save a model; returns the key of the folder, which does not tell what the model has encoded before."""
    from tokenizers import Tokenizer

    try:
        model.save_pretrained(str(folder), create_model_card=False)
        # The last call leaves its padding and truncation, which transformers sets anew at each.
        for path in folder.rglob("tokenizer.json"):
            if path.with_name("tokenizer_config.json").is_file():
                tokenizer = Tokenizer.from_file(str(path))
                tokenizer.no_padding()
                tokenizer.no_truncation()
                tokenizer.save(str(path))
        # The first is not saved by sentence-transformers before 6; the second PyLate overwrites at each call.
        for path, setting, attribute in (
            (folder / SETTINGS, "truncate_dim", "truncate_dim"),
            (find_sentence_config(folder), "max_seq_length", "document_length"),
        ):
            if (value := getattr(model, attribute, None)) is not None:
                path.write_text(json.dumps({**read_object(path), setting: value}, indent=2), encoding="utf-8")
        return compute_folder_identity(folder).key
    # The code of any module may fail in its own way.
    except Exception as error:
        reason = error.message if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
        raise ModelError(
            f"The {type(model).__name__} in memory cannot be saved as a model folder: {reason}",
            hint="Merge an adapter first. A module of your own needs `save` and `load`, as those of "
            "sentence-transformers have.",
        ) from error


def _find_source(model: Any) -> tuple[str, str | None]:
    """The folder, or the hub's name and commit, that a model's backbone was loaded from; empty if unknown."""
    config = getattr(getattr(model, "transformers_model", None), "config", None)
    place, commit = getattr(config, "_name_or_path", ""), getattr(config, "_commit_hash", None)
    return (os.path.abspath(place), None) if place and os.path.isdir(place) else (place, commit)


def _find_name(model: Any) -> str:
    card, (place, commit) = getattr(model, "model_card_data", None), _find_source(model)
    names = [getattr(card, field, None) for field in ("model_id", "model_name", "base_model")]
    return next(filter(None, names), place if commit else Path(place).name)
