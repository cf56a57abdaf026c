"""The store of trained models: each is there whole or not at all, whenever a process is killed."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import save_file

import fakes
from harness.cli import invoke
from harness.core import files
from harness.core.errors import StoreError
from harness.core.keys import ModelDocument
from harness.encoder.folder.description import compute_folder_identity
from harness.results.audit import audit
from harness.training.model_store import ModelStore, find_model_problem

LINEAGE = fakes.lineage()
SLUG = f"tiny-contrast-{LINEAGE.key[:12]}"


def trained(store: ModelStore, weight: float = 1.0, *, steps: int = 3) -> Path:
    """The folder of a training that has just written its model."""
    work = store.start_training(LINEAGE.key, name="tiny-contrast", lineage=LINEAGE, steps=4)
    (work / "model").mkdir()
    (work / "model" / "config.json").write_text('{"model_type": "bert"}')
    save_file({"w": np.full((2, 2), weight, np.float32)}, work / "model" / "model.safetensors")
    lines = [json.dumps({"step": n, "loss": 1 / n}) + "\n" for n in range(1, steps + 1)]
    (work / "log.jsonl").write_text("".join(lines))
    (work / "output.log").write_text("said\n")
    (work / "checkpoints").mkdir(exist_ok=True)
    return work / "model"


def put(store: ModelStore, weight: float = 1.0) -> Path:
    model = trained(store, weight)
    return store.put(model, fakes.document(model), SLUG)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "results")


def test_a_model_comes_into_its_place_with_its_log(store: ModelStore) -> None:
    assert store.find(LINEAGE.key) is None
    model = trained(store)
    (half,) = store.list_unfinished_models()
    assert (half.name, half.key, half.seed, half.done, half.steps) == ("tiny-contrast", LINEAGE.key, 42, 3, 4)
    assert store.list_stored_models() == []
    document = fakes.document(model)
    folder = store.put(model, document, SLUG)
    assert folder == store.locate_model(SLUG)
    assert store.find(LINEAGE.key) == (folder, document)
    assert [path.name for path in store.root.iterdir()] == [SLUG]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there == {
        *("config.json", "model.json", "model.safetensors"),
        *("training/log.jsonl", "training/output.log"),
    }
    assert compute_folder_identity(folder).key == LINEAGE.key
    assert [(one.folder, one.document, one.problem) for one in store.list_stored_models()] == [
        (folder, document, "")
    ]
    assert store.list_unfinished_models() == store.list_leftovers() == []


def weight(folder: Path) -> None:
    save_file({"w": np.zeros((2, 2), np.float32)}, folder / "model.safetensors")


def seed(folder: Path) -> None:
    path = folder / "model.json"
    path.write_text(path.read_text().replace('"seed": 42', '"seed": 43'))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (weight, "content is not that"),
        (seed, "does not follow from its lineage"),
        (lambda folder: (folder / "model.json").unlink(), "has no model.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
        (lambda folder: (folder / "config.json").write_text("[]"), "holds no JSON object"),
        (lambda folder: (folder / "modules.json").write_text("3"), "is not a list of modules"),
    ],
)
def test_a_damaged_model_counts_as_absent(
    store: ModelStore, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object], reason: str,
) -> None:  # fmt: skip
    folder = put(store)
    damage(folder)
    with caplog.at_level(logging.WARNING):
        assert store.find(LINEAGE.key) is None
        assert store.find(LINEAGE.key) is None
    assert [reason in one.getMessage() for one in caplog.records] == [True]
    assert reason in store.list_stored_models()[0].problem
    # The audit names it and moves it aside; a second training does so by itself.
    (fault,) = audit(store.root.parent, tmp_path / "cache").faults
    assert (fault.area, fault.file, fault.repair) == ("models", folder, "move aside")
    kept = shutil.copytree(folder, tmp_path / "kept")
    assert audit(store.root.parent, tmp_path / "cache", repair=True).clean
    assert store.list_stored_models() == []
    shutil.copytree(kept, folder)
    assert put(store, 2.0) == folder
    assert store.find(LINEAGE.key) is not None
    names = {path.name for path in store.root.iterdir()}
    assert names == {SLUG, f"{SLUG}.broken", f"{SLUG}.broken1"}


def test_a_whole_model_stays(store: ModelStore) -> None:
    """Of two processes that train one model, the first has made it."""
    folder = put(store, 1.0)
    weights = compute_folder_identity(folder).weights
    assert put(store, 2.0) == folder
    assert compute_folder_identity(folder).weights == weights
    assert [path.name for path in store.root.iterdir()] == [SLUG]


class Killed(BaseException):
    """The end of a process."""


@contextmanager
def killed_at(number: int) -> Iterator[list[int]]:
    """Kill this process before the call of that number that changes a disk; lists the calls."""
    calls: list[int] = []

    def counted(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(len(calls))
            if len(calls) > number:
                raise Killed
            return original(*args, **kwargs)

        return call

    names = ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync", "link")
    with contextlib_stack(mock.patch.object(os, name, counted(getattr(os, name))) for name in names):
        yield calls


@contextmanager
def contextlib_stack(patches: Any) -> Iterator[None]:
    import contextlib

    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def test_a_kill_at_any_moment_leaves_the_training_or_the_model(tmp_path: Path) -> None:
    ends = {"training": 0, "model": 0}
    for number in itertools.count():
        store = ModelStore(tmp_path / str(number))
        model = trained(store)
        document = fakes.document(model)
        try:
            with killed_at(number):
                store.put(model, document, SLUG)
        except Killed:
            pass
        else:
            break
        in_place = store.find(LINEAGE.key) is not None
        ends["model" if in_place else "training"] += 1
        if not in_place:
            assert store.list_stored_models() == []
            assert (store.locate_training_folder(LINEAGE.key) / "checkpoints").is_dir()
            assert (store.locate_training_folder(LINEAGE.key) / "log.jsonl").is_file()
        store.sweep()
        if store.find(LINEAGE.key) is None:  # the same training, gone on with from its checkpoint
            put(store)
        assert [path.name for path in store.root.iterdir()] == [SLUG]
        assert store.find(LINEAGE.key) is not None
        assert find_model_problem(store.locate_model(SLUG)) == ""
    assert min(ends.values()) >= 3


def test_removing_leaves_no_half(store: ModelStore) -> None:
    folder = put(store)
    with pytest.raises(Killed), killed_at(2):
        store.remove(LINEAGE.key)
    assert not folder.exists()
    assert store.list_stored_models() == []
    (fault,) = audit(store.root.parent, store.root).faults
    assert fault.area == "left"
    store.sweep()
    assert list(store.root.iterdir()) == []
    trained(store)
    store.remove(LINEAGE.key)
    assert list(store.root.iterdir()) == []


@pytest.mark.parametrize("call", ["shutil.copyfile", "os.replace", "os.fsync", "os.rename"])
def test_a_full_disk_is_one_error_and_loses_nothing(store: ModelStore, call: str) -> None:
    model = trained(store)
    document: ModelDocument = fakes.document(model)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with mock.patch(call, side_effect=full), pytest.raises(StoreError, match="the disk is full"):
        store.put(model, document, SLUG)
    assert store.find(LINEAGE.key) is None
    assert store.put(model, document, SLUG) == store.locate_model(SLUG)


def test_two_keys_that_begin_alike_are_two_models(store: ModelStore) -> None:
    folder = put(store)
    other = LINEAGE.key[:12] + "0" * 52
    assert store.find(other) is None
    assert store.find(LINEAGE.key) is not None
    folder.rename(folder.with_name("another-name-" + LINEAGE.key[:12]))
    assert store.find(LINEAGE.key) is not None
    (there,) = store.list_model_folders()
    there.rename(there.with_name("x-" + "0" * 12))
    assert store.find(LINEAGE.key) is None
    assert "another key" in find_model_problem(store.list_model_folders()[0])


def test_a_cache_that_is_pruned_keeps_the_models(store: ModelStore) -> None:
    put(store)
    assert invoke(["cache", "prune", "--cache", str(store.root.parent)]) == 0
    assert store.find(LINEAGE.key) is not None
    assert files.find_leftovers(store.root) == []
