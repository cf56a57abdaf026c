"""Models in memory, such as a SentenceTransformer: saved to the cache, and then folders like any other."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from harness.core import paths
from harness.core.arguments import Folder, NamedPlaces, Table, check_value
from harness.core.errors import ModelError, UsageError
from harness.core.files import create_temporary_folder, write_error
from harness.encoder.folder.content import compute_folder_identity
from harness.encoder.folder.files import SETTINGS, read_object
from harness.encoder.folder.modules import find_sentence_config
from harness.executors.local import end_repetition


class SavableModel(Protocol):
    """A SentenceTransformer, a ColBERT of PyLate, or a model of another class that saves itself like them."""

    def save_pretrained(self, path: str, *, create_model_card: bool) -> None:
        """Write weights, tokenizer and settings to a folder."""


def save_objects(
    models: Any, names: str | Sequence[str | None] | None, request: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The models of a request with a folder for each object, and the request with their names.

    Args:
        models: As the user gave them: texts and objects, alone, in a list or in a mapping of names.
        names: The name of a single model, or those of a list; None for their own.
        request: Other fields of the request, of which `cache` and `names` are read.

    Raises:
        UsageError: An object cannot be saved, or a name is missing or cannot be used.
        StoreError: The cache cannot be written.
    """
    if isinstance(models, Mapping) and names is None:
        check_value("models", dict.fromkeys(models, "a model"), NamedPlaces)
        texts, _ = save_objects([*models.values()], [*models], request)
        return dict(zip(models, texts, strict=True)), dict(request)
    if isinstance(names, str) and isinstance(models, list | tuple | Mapping):
        raise UsageError("name is for one model.", hint='Give names as a mapping: {"first": a, "second": b}.')
    if not isinstance(models, list | tuple):
        (text,), request = save_objects([models], [names], request)  # type: ignore[list-item]
        return text, dict(request)
    # Before any weights are written.
    chosen = [_choose_name(*pair) for pair in zip(models, names or [None] * len(models), strict=True)]
    table = check_value("names", request.get("names", {}), Table)
    cache = paths.resolve_cache_folder(check_value("cache", request.get("cache"), Folder | None))
    texts = [_save_model(model, cache) if _is_object(model) else model for model in models]
    # Reversed, as the first name of two identical models is to stay.
    named = {str(text): name for text, name in reversed([*zip(texts, chosen, strict=True)]) if name}
    return texts, {**request, "names": {**table, **named}} if named else dict(request)


def _is_object(model: Any) -> bool:
    return not isinstance(model, str | os.PathLike | type) and (
        hasattr(model, "save_pretrained") or hasattr(model, "encode")
    )


def _choose_name(model: Any, name: str | None) -> str | None:
    """The name of a model, None where a text has none; a UsageError if an object cannot be evaluated."""
    if _is_object(model):
        kind, card = type(model).__name__, getattr(model, "model_card_data", None)
        if not (hasattr(model, "save_pretrained") and hasattr(model, "encode")):
            raise UsageError(
                f"An object of the class {kind} cannot be evaluated: a model in memory must be a "
                "SentenceTransformer or a PyLate ColBERT, as it is saved and loaded again.",
                hint="Give the SentenceTransformer in it (of mteb's wrappers `.model`), or make one of it: "
                "SentenceTransformer(modules=[...]).",
            )
        # Never that of the model it was loaded from, as it may have been trained further.
        card_name = getattr(card, "model_id", None) or getattr(card, "model_name", None)
        if name is None and not card_name:
            raise UsageError(
                f"The {kind} in memory has no name.",
                hint='Give it one: name="my-model", or model.model_card_data.model_name = "my-model".',
            )
        name = card_name if name is None else name
    if name is not None:
        paths.require_plain_name(check_value("name", name, str), "a model's name", hint="Give another name.")
    return name


def _save_model(model: Any, cache: Path) -> str:
    """Save a model to the folder of its key in the cache, unless that is there and sound."""
    end_repetition()
    scratch = create_temporary_folder(cache / "objects" / "model")
    try:
        key = _write_folder(model, scratch / "new")
        target = cache / "objects" / key
        if not _has_key(target, key):
            if target.exists():
                target.rename(scratch / "damaged")
            try:
                (scratch / "new").rename(target)
            except OSError:
                # Another process may have put it there in the meantime.
                if not _has_key(target, key):
                    raise
    except OSError as error:
        raise write_error(scratch.parent, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return str(target)


def _has_key(folder: Path, key: str) -> bool:
    try:
        return compute_folder_identity(folder).key == key
    except (ModelError, OSError):
        return False


def _write_folder(model: Any, folder: Path) -> str:
    """Save a model; returns the key of the folder, which does not tell what the model has encoded before."""
    from tokenizers import Tokenizer

    try:
        with _name_sides(model):
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
            settings = read_object(path) if path.is_file() else {}
            value = getattr(model, attribute, settings.get(setting))
            if value != settings.pop(setting, None):
                settings.update({} if value is None else {setting: value})
                path.write_text(json.dumps(settings, indent=2), encoding="utf-8")
        return compute_folder_identity(folder).key
    # The code of any module may fail in its own way.
    except Exception as error:
        # safetensors and tokenizers, which are written in Rust, have the number in the text of their errors.
        if match := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(match[1]), os.strerror(int(match[1]))) from error
        if isinstance(error, OSError):
            raise
        reason = error.message if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
        raise ModelError(
            f"The {type(model).__name__} in memory cannot be saved as a model folder: {reason}",
            hint="Merge an adapter first. A module of your own needs `save` and `load`, as those of "
            "sentence-transformers have.",
        ) from error


@contextmanager
def _name_sides(model: Any) -> Iterator[None]:
    """Let tokenizers save on which side they pad and cut, also where it was set after loading."""
    with ExitStack() as undo:
        for module in model.modules():
            tokenizer: Any = getattr(module, "tokenizer", None)
            for side in ("padding_side", "truncation_side"):
                value = getattr(tokenizer, side, None)
                if value != getattr(type(tokenizer), side, None) and side not in tokenizer.init_kwargs:
                    tokenizer.init_kwargs[side] = value
                    undo.callback(tokenizer.init_kwargs.pop, side)
        yield
