"""Trained models in a results folder: `models/<name>-<key12>/`, put in place whole by one rename.

A training works in a folder of its key beside them, which outlives a killed training and goes when its model
is in place. Models are results: nothing prunes them with a cache. One whose key does not follow from its
lineage, or whose content is not what its model.json says, is damaged and counts as absent. In a remote a
model's files are below a name with the hash of its content, and its model.json, which is there last, says
which content is the model.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import HarnessError, RecordError, StoreError, warn
from harness.core.keys import MODEL_DOCUMENTS, MODEL_FILE, Lineage, ModelDocument, read_document
from harness.core.types import build_artifact_slug
from harness.encoder.folder.description import compute_folder_identity
from harness.storage.remote_and_leases import Remote
from harness.training.training import LOG, MODEL, OUTPUT, read_log

TRAINING = "training"
"""The folder in a model with the circumstances of its training, which are no part of its content."""

PREDICTIONS = "predictions"
"""The folder in TRAINING with what a classifier predicts, a file for each split."""

MODELS = "models"
"""The folder of all models in a results folder."""

_BEGUN = "training.json"
_WORK = ".training-"
_REMOVED = ".removed-"
_BROKEN = re.compile(r"\.broken\d*$")

_FAULTS = (OSError, HarnessError, TypeError, ValueError, LookupError, AttributeError)
"""What reading a damaged folder may raise."""


@dataclass(frozen=True, kw_only=True)
class StoredModel:
    """A trained model in its place.

    Attributes:
        folder: The model's folder.
        document: Its model.json; None where that is missing or does not follow from itself.
        cache: Where hashes of files are cached; None where each is computed every time.
    """

    folder: Path
    document: ModelDocument | None
    cache: Path | None = None

    @staticmethod
    def read_stored_model(folder: Path, cache: Path | None = None) -> StoredModel:
        """The model in a folder."""
        return StoredModel(folder=folder, document=read_document(folder), cache=cache)

    @functools.cached_property
    def problem(self) -> str:
        """What is wrong with it, by its whole content; empty for a whole model."""
        if self.document is None:
            here = (self.folder / MODEL_FILE).is_file()
            return f"its {MODEL_FILE} does not follow from its lineage" if here else f"it has no {MODEL_FILE}"
        try:
            same = compute_folder_identity(self.folder, self.cache).document is not None
        except _FAULTS as error:
            reason = error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
            return reason.rstrip(".")
        return "" if same else f"its content is not that in its {MODEL_FILE}"

    @property
    def name(self) -> str:
        """The model's name, as far as it is known."""
        return self.folder.name.rpartition("-")[0] if self.document is None else self.document.name

    @property
    def key(self) -> str:
        """The ArtifactKey, or its first 12 digits where that is all that is known."""
        return self.folder.name.rpartition("-")[2] if self.document is None else self.document.key


@dataclass(frozen=True, kw_only=True)
class UnfinishedModel:
    """A training that has begun and has not finished.

    Attributes:
        folder: The folder of the training.
        name: The name that the model will have.
        key: Its ArtifactKey, or the first 12 digits where that is all that is known.
        recipe: The recipe in words.
        seed: The seed; None where it is not known.
        steps: The steps of the whole training; None where that is not known.
        done: The steps in its log.
        diverged: Why it diverged, empty if it did not.
    """

    folder: Path
    name: str
    key: str
    recipe: str = ""
    seed: int | None = None
    steps: int | None = None
    done: int = 0
    diverged: str = ""


class ModelStore:
    """The trained models of a results folder, and with a remote those that other machines have trained."""

    def __init__(self, results: Path, remote: Remote | None = None) -> None:
        self.root = results / MODELS
        self._remote = remote

    def locate_model(self, slug: str) -> Path:
        """The place of a model, whether it is there or not; `slug` is that of its Artifact."""
        return self.root / slug

    def locate_training_folder(self, key: str) -> Path:
        """The folder of a training, whether it is there or not."""
        return self.root / f"{_WORK}{key[:12]}"

    def start_training(self, key: str, *, name: str, lineage: Lineage, steps: int | None) -> Path:
        """Make the folder of a training, or find that of a killed one; a half-written model is removed.

        Args:
            key: The ArtifactKey of the model.
            name: The name that the model will have.
            lineage: What it is made of.
            steps: The steps of the whole training; None where that is not known.

        Raises:
            StoreError: The folder cannot be written.
        """
        work = self.locate_training_folder(key)
        about = {"name": name, "key": key, "recipe": lineage.text, "seed": lineage.seed, "steps": steps}
        # What fitted into memory still does; all else is said again by this start.
        before = {name: value for name, value in _read_training_facts(work).items() if name == "micro_batch"}
        write_content_file(work / _BEGUN, {"schema": 2, **about, **before})
        shutil.rmtree(work / MODEL, ignore_errors=True)
        return work

    def read_micro_batch(self, key: str) -> int | None:
        """The rows in a pass that fitted into memory in an earlier part of a training; None for no limit."""
        rows = _read_training_facts(self.locate_training_folder(key)).get("micro_batch")
        return rows if isinstance(rows, int) else None

    def set_micro_batch(self, key: str, rows: int) -> None:
        """Keep the rows in a pass for the next part of a training.

        Raises:
            StoreError: The folder cannot be written.
        """
        self._set_training_fact(key, "micro_batch", rows)

    def read_divergence(self, key: str) -> str:
        """Why a training diverged, which would do so again; empty for any other."""
        return str(_read_training_facts(self.locate_training_folder(key)).get("diverged", ""))

    def set_divergence(self, key: str, reason: str) -> None:
        """Keep that a training diverged.

        Raises:
            StoreError: The folder cannot be written.
        """
        self._set_training_fact(key, "diverged", reason)

    def _set_training_fact(self, key: str, name: str, value: object) -> None:
        work = self.locate_training_folder(key)
        write_content_file(work / _BEGUN, {**_read_training_facts(work), name: value})

    def find(self, key: str, cache: Path | None = None) -> tuple[Path, ModelDocument] | None:
        """The folder of a whole model and its document; None without one. A damaged one is warned of."""
        # Folder names have 12 digits of a key, which another key may share.
        for folder in self.list_model_folders(key):
            model = StoredModel.read_stored_model(folder, cache)
            if model.document is not None and model.document.key != key:
                continue
            if model.document is not None and not model.problem:
                return folder, model.document
            _warn_once(folder, model.problem)
        return None

    def fetch_model(
        self, key: str, slug: str, cache: Path | None = None
    ) -> tuple[Path, ModelDocument] | None:
        """A model as `find` gives it, which is fetched from the remote where it is only there.

        Args:
            key: Its ArtifactKey.
            slug: The name of the folder into which it is fetched.
            cache: Where hashes of files are cached; None to compute each.

        Raises:
            StoreError: The remote cannot be read, or the results folder cannot be written.
        """
        return self.find(key, cache) or (self.find(key) if self._fetch(key, slug) else None)

    def send(self, key: str, cache: Path | None = None) -> None:
        """Send a model to the remote, if there is one; another that was there first takes its place here.

        Raises:
            StoreError: The remote cannot be written, or the results folder cannot.
        """
        local_model = self.find(key, cache)
        if self._remote is None or local_model is None:
            return
        folder, document = local_model
        if (first := self._read_remote_document(key)) is None:
            name = _format_content_name(document)
            remote_objects = self._remote.list_objects(name)
            for path in _iter_folder_paths(folder):
                place = f"{name}/{path.relative_to(folder).as_posix()}"
                # The name holds the hash of the content, so that an object of the whole size is this file.
                sent = place in remote_objects and remote_objects[place].size == path.stat().st_size
                if path.is_file() and path != folder / MODEL_FILE and not sent:
                    self._remote.upload(place, path)
            # Last, and only where none is there: of two machines with this model the first one counts.
            if self._remote.create(_format_document_name(key), (folder / MODEL_FILE).read_bytes()):
                return
            first = self._read_remote_document(key)
        if first is not None and first.content != document.content:
            self.move_aside(folder)
            self._fetch(key, folder.name)

    def _read_remote_document(self, key: str) -> ModelDocument | None:
        """The model.json of a model in the remote; a damaged one is removed with a warning."""
        assert self._remote is not None
        name = _format_document_name(key)
        content = self._remote.read_object(name)
        if content is None:
            return None
        with contextlib.suppress(ValueError, RecordError):
            document = MODEL_DOCUMENTS.parse(content, where=f"{self._remote.url}/{name}")
            if document.key == key:
                return document
        self._remove_damaged(name)
        return None

    def _remove_damaged(self, name: str) -> None:
        assert self._remote is not None
        warn(f"{self._remote.url}/{name} is damaged, and is removed.")
        self._remote.remove(name)

    def _fetch(self, key: str, slug: str) -> bool:
        """Fetch a model from the remote, and put it in place whole; False where there is none."""
        document = None if self._remote is None else self._read_remote_document(key)
        if self._remote is None or document is None:
            return False
        target = self.locate_model(slug)
        staged = files.create_temporary_folder(target)
        try:
            start = _format_content_name(document)
            for name in self._remote.list_objects(start):
                place = PurePosixPath(name).relative_to(start)
                # Such a name leads out of the folder.
                if ".." in place.parts:
                    continue
                path = staged / place
                path.parent.mkdir(parents=True, exist_ok=True)
                self._remote.download(name, path)
            files.replace(staged / MODEL_FILE, document.to_json().encode())
            if StoredModel.read_stored_model(staged).problem:
                self._remove_damaged(_format_document_name(key))
                return False
            _sync(staged)
            self._place_model(staged, key, slug)
        except OSError as error:
            raise files.write_error(target, error) from error
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return True

    def put(self, model: Path, document: ModelDocument, slug: str) -> Path:
        """Put a model that a training has left into its place, with its log; the training's folder goes.

        A whole model that lies there already stays; what is damaged is moved aside.

        Args:
            model: The model's folder within that of its training.
            document: Its model.json.
            slug: The folder's name, that of the model's Artifact.

        Returns:
            The folder of the model with this key.

        Raises:
            StoreError: The results folder cannot be written; the training's folder is kept.
        """
        work = self.locate_training_folder(document.key)
        try:
            _copy_log(work, model / TRAINING)
            # On disk before model.json makes the folder a model.
            _sync(model)
            files.replace(model / MODEL_FILE, document.to_json().encode())
            placed = self._place_model(model, document.key, slug)
        except OSError as error:
            raise files.write_error(self.locate_model(slug), error) from error
        shutil.rmtree(work, ignore_errors=True)
        return placed

    def _place_model(self, model: Path, key: str, slug: str) -> Path:
        target = self.locate_model(slug)
        while (placed_model := self.find(key)) is None:
            if target.exists():
                self.move_aside(target)
            try:
                model.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                # Another process has put one there meanwhile.
                continue
            files.sync(self.root)
            return target
        return placed_model[0]

    def move_aside(self, folder: Path) -> Path:
        """Rename a damaged model, so that nothing finds it any more; gives its new place.

        Raises:
            StoreError: It cannot be renamed.
        """
        names = (f"{folder.name}.broken{number or ''}" for number in itertools.count())
        aside = next(path for name in names if not (path := folder.with_name(name)).exists())
        files.move(folder, aside)
        return aside

    def sweep(self) -> None:
        """Finish what a killed process has left: put a finished model into its place, remove leftovers."""
        for work in self.root.glob(f"{_WORK}*"):
            staged = StoredModel.read_stored_model(work / MODEL)
            if staged.document is not None and not staged.problem:
                slug = build_artifact_slug(staged.document.name, staged.document.key)
                # It fails where another process does the same, or the disk is full.
                with contextlib.suppress(StoreError):
                    self.put(staged.folder, staged.document, slug)
        for folder in self.list_leftovers():
            shutil.rmtree(folder, ignore_errors=True)

    def list_leftovers(self) -> list[Path]:
        """Folders that a killed process has left and nothing needs: of finished trainings, half removed."""
        removed = sorted(self.root.glob(f"{_REMOVED}*"))
        works = sorted(self.root.glob(f"{_WORK}*"))
        return [*removed, *(work for work in works if self._is_done(work))]

    def _is_done(self, work: Path) -> bool:
        models = (
            StoredModel.read_stored_model(folder)
            for folder in self.list_model_folders(work.name.removeprefix(_WORK))
        )
        key = _read_training_facts(work).get("key")
        return any(one.document is not None and not one.problem and key in (None, one.key) for one in models)

    def list_stored_models(self, cache: Path | None = None) -> list[StoredModel]:
        """Every model in its place, damaged ones among them, sorted by folder."""
        return [StoredModel.read_stored_model(folder, cache) for folder in self.list_model_folders()]

    def list_unfinished_models(self) -> list[UnfinishedModel]:
        """Every training that has not finished, sorted by key."""
        done = set(self.list_leftovers())
        return [
            _read_unfinished_model(work) for work in sorted(self.root.glob(f"{_WORK}*")) if work not in done
        ]

    def remove(self, key: str) -> None:
        """Remove a model, whole or damaged, and what its training has left.

        Raises:
            StoreError: It cannot be removed.
        """
        for folder in (*self.list_model_folders(key), self.locate_training_folder(key)):
            if folder.exists():
                gone = self.root / f"{_REMOVED}{secrets.token_hex(6)}"
                # Renamed first, so that nobody finds a model that is half removed.
                files.move(folder, gone)
                shutil.rmtree(gone, ignore_errors=True)

    def list_model_folders(self, key: str = "") -> list[Path]:
        """The folders of models, whole or damaged, sorted; of one key where it is given."""
        paths = self.root.glob(f"*-{key[:12]}" if key else "*")
        named = (path for path in paths if not (path.name.startswith(".") or _BROKEN.search(path.name)))
        return sorted(path for path in named if path.is_dir())


def _format_document_name(key: str) -> str:
    """The name in a remote of a model's model.json."""
    return f"models/{key[:12]}/{MODEL_FILE}"


def _format_content_name(document: ModelDocument) -> str:
    """The name in a remote below which a model's files are."""
    return f"models/{document.key[:12]}/{document.content[:16]}"


def copy_model(model: Path, target: Path) -> Path:
    """Copy a model's folder without its model.json; files are shared where the file system can do so.

    Raises:
        StoreError: The copy cannot be written.
    """

    def link(source: str, place: str) -> None:
        try:
            # A stored model is never changed in place, so that two models can share a file.
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)

    try:
        shutil.copytree(model, target, copy_function=link, ignore=shutil.ignore_patterns(MODEL_FILE))
    except OSError as error:
        raise files.write_error(target, error) from error
    return target


def find_model_problem(folder: Path) -> str:
    """What is wrong with a model in its place, every file read again; empty if nothing."""
    model = StoredModel.read_stored_model(folder)
    if not model.problem and not folder.name.endswith(f"-{model.key[:12]}"):
        return f"its folder has the name of another key than {model.key[:12]}"
    return model.problem


def _read_training_facts(work: Path) -> dict[str, Any]:
    try:
        facts = read_content_file(work / _BEGUN)
    except (OSError, ValueError):
        return {}
    return facts if str(facts.get("key")).startswith(work.name.removeprefix(_WORK)) else {}


def find_training_problem(path: Path) -> str:
    """What is wrong with the file of a training's facts; empty if nothing."""
    return "" if _read_training_facts(path.parent) else "it is damaged, or that of another training"


def _read_unfinished_model(work: Path) -> UnfinishedModel:
    about = _read_training_facts(work)
    log = read_log(work / LOG)
    return UnfinishedModel(
        folder=work,
        name=str(about.get("name", work.name)),
        key=str(about.get("key", work.name.removeprefix(_WORK))),
        recipe=str(about.get("recipe", "")),
        seed=about.get("seed"),
        steps=about.get("steps"),
        done=log[-1]["step"] if log else 0,
        diverged=str(about.get("diverged", "")),
    )


def _copy_log(work: Path, target: Path) -> None:
    """Copy the log of a training to the model; it stays in the training's folder until that goes."""
    target.mkdir(exist_ok=True)
    for path in (work / LOG, work / OUTPUT):
        if path.is_file():
            shutil.copyfile(path, target / path.name)


def _sync(folder: Path) -> None:
    """Have every file and folder below on disk."""
    for place in _iter_folder_paths(folder):
        files.sync(place)


def _iter_folder_paths(folder: Path) -> Iterator[Path]:
    for root, _, names in os.walk(folder):
        yield from (Path(root, name) for name in names)
        yield Path(root)


_warned: set[tuple[Path, str]] = set()


def _warn_once(folder: Path, problem: str) -> None:
    # A run looks a model up many times.
    if (folder, problem) not in _warned:
        _warned.add((folder, problem))
        warn(f"{folder} is damaged: {problem}. It counts as missing.")
