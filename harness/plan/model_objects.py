"""Models in memory: saved to the cache, and then folders like any other, or encoders of a user's own code."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from harness.core import files
from harness.core.arguments import Folder, NamedPlaces, Table, check_value
from harness.core.encoding import is_bm25
from harness.core.errors import ModelError, UsageError
from harness.core.files import create_temporary_folder, write_error
from harness.core.provenance import end_repetition
from harness.core.types import Artifact, ObjectEncoder
from harness.encoder import backbones
from harness.encoder.folder.description import compute_folder_identity
from harness.encoder.folder.files import SETTINGS, read_object
from harness.encoder.folder.modules_and_pooling import find_sentence_config
from harness.plan.plan import ConfiguredModel
from harness.plan.request import Request
from harness.results.index import RecordIndex
from harness.results.results import open_stores


class SavableModel(Protocol):
    """A SentenceTransformer, a ColBERT of PyLate, or a model of another class that saves itself like them."""

    def save_pretrained(self, path: str, *, create_model_card: bool) -> None:
        """Write weights, tokenizer and settings to a folder."""


class OwnEncoder(Protocol):
    """An encoder of a user's own class, with mteb's EncoderProtocol."""

    def encode(self, *arguments: Any, **options: Any) -> Any:
        """The vectors (texts, dimension) of batches of texts, as mteb asks for them."""


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
    cache = files.resolve_cache_folder(check_value("cache", request.get("cache"), Folder | None))
    texts = [_save_model(model, cache) if _is_object(model) else model for model in models]
    # Reversed, as the first name of two identical models is to stay.
    named = {str(text): name for text, name in reversed([*zip(texts, chosen, strict=True)]) if name}
    return texts, {**request, "names": {**table, **named}} if named else dict(request)


def is_own_encoder(model: Any) -> bool:
    """Whether a model is an object with all that mteb's EncoderProtocol asks for."""
    return _is_object(model) and all(hasattr(model, name) for name in _PROTOCOL)


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
                f"An object of the class {kind} cannot be evaluated here: a model in memory must be a "
                "SentenceTransformer or a PyLate ColBERT, as it is saved and loaded again, or of mteb's "
                "EncoderProtocol and alone in harness.run.",
                hint="Give the SentenceTransformer in it, or type harness.run(encoder, ..., "
                f'name="my-encoder") with an encoder that has {", ".join(_PROTOCOL)}: '
                "a subclass of mteb's AbsEncoder.",
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
        files.require_plain_name(check_value("name", name, str), "a model's name", hint="Give another name.")
    return name


_SOURCE = "Python object of "
"""The start of the source of a model that is an encoder of a user's own code."""

_USABLE = {
    *("models", "suites", "options", "settings", "seed", "limit", "results", "cache", "data", "remote"),
    *("offline", "devices", "track", "allow", "force", "fail_fast", "purpose", "budget"),
}
"""The arguments of a run that such an encoder can use."""

_PROTOCOL = ("encode", "similarity", "similarity_pairwise", "mteb_model_meta")
"""What mteb's EncoderProtocol asks for."""


def resolve_encoder(encoder: Any, name: str | None, request: Request) -> ConfiguredModel:
    """An encoder of a user's own code as a model; its key is new at each call, as its content is not known.

    Raises:
        UsageError: The name is missing or another model's, or the request has what the object cannot use.
    """
    kind = type(encoder)
    if name is None:
        raise UsageError(f"This {kind.__name__} has no name.", hint='Give it one: name="my-encoder".')
    _require_own_name(name, request)
    if refused := _list_unusable_arguments(request):
        raise UsageError(f"{name} encodes by its own code, in this process: leave out {', '.join(refused)}.")
    source = f"{_SOURCE}{kind.__module__}.{kind.__qualname__}"
    artifact = Artifact(name=name, source=source, folder=Path(), key=secrets.token_hex(32), weights="")
    return ConfiguredModel(artifact=artifact, encoding=ObjectEncoder(encoder=encoder))


def _require_own_name(name: str, request: Request) -> None:
    files.require_plain_name(name, "a model's name", hint="Give another name.")
    cache = files.resolve_cache_folder(request.cache)
    rows = [row for one in open_stores(request.results) for row in RecordIndex(one.root, cache).list_models()]
    recorded = any(row.name == name and not row.source.startswith(_SOURCE) for row in rows)
    if recorded or is_bm25(name) or backbones.find_catalog_model(name):
        raise UsageError(f"Another model is called {name}.", hint="Give the encoder a name of its own.")


def _list_unusable_arguments(request: Request) -> list[str]:
    usual = Request(models=(), suites=())
    values, defaults = ({**vars(one), **vars(one.settings)} for one in (request, usual))
    usable = _USABLE - ({"devices"} if len(request.devices) > 1 else set())
    return [name for name in values if name not in usable and values[name] != defaults[name]]


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
