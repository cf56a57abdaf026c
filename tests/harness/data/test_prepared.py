"""What the datasets library prepares: where it lies, and that what is damaged is prepared again."""

from __future__ import annotations

import errno
import gzip
import logging
import multiprocessing as mp
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets
import pytest
from datasets.arrow_writer import ArrowWriter

from harness.core import files
from harness.core.errors import StoreError
from harness.core.types import Data
from harness.data import prepared as module
from harness.data.locate import DataSettings, locate_data
from harness.data.prepared import MANIFEST, open_prepared_data

CONTENT = "sha256:" + "ab" * 32
TIME = (10**18, 10**18)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data" / "org" / "toy"
    made.mkdir(parents=True)
    (made / "train.jsonl").write_text("".join(f'{{"a": {value}}}\n' for value in range(100)))
    (made / "test.jsonl").write_text("".join(f'{{"a": {value}}}\n' for value in range(100, 200)))
    return made


def rows(folder: Path, split: str = "train") -> list[int]:
    return list(datasets.load_dataset(str(folder), split=split)["a"][:])


def read(folder: Path, cache: Path) -> list[int]:
    with open_prepared_data(CONTENT, cache):
        return [*rows(folder), *rows(folder, "test")]


def write(file: Path, value: int) -> None:
    text = f'{{"a": {value}}}\n'.encode()
    file.write_bytes(gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)
    os.utime(file, ns=TIME)


@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz"])
def test_a_changed_folder_is_never_answered_with_old_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The library alone gives the old rows: it looks at path and time, which are the same here."""
    settings = DataSettings(root=tmp_path / "data", cache=tmp_path / "cache", offline=True)
    folder = tmp_path / "data" / "org" / "toy"
    folder.mkdir(parents=True)
    shared = tmp_path / "shared"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", shared)
    monkeypatch.setattr(datasets.config, "EXTRACTED_DATASETS_PATH", shared / "extracted")
    seen, alone = [], []
    for value in (1, 2):
        write(folder / name, value)
        alone += rows(folder)
        located = locate_data(Data(path="org/toy", revision="r"), settings)
        with open_prepared_data(located.data.content, settings.cache):
            seen += rows(folder)
    assert alone == [1, 1]
    assert seen == [1, 2]


def test_the_place_is_named_by_content_and_restored(tmp_path: Path) -> None:
    before = (datasets.config.HF_DATASETS_CACHE, datasets.config.EXTRACTED_DATASETS_PATH)
    with open_prepared_data(CONTENT, tmp_path) as place:
        assert place == tmp_path / "datasets" / ("ab" * 8)
        assert place == datasets.config.HF_DATASETS_CACHE
    assert before == (datasets.config.HF_DATASETS_CACHE, datasets.config.EXTRACTED_DATASETS_PATH)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def swap(path: Path) -> None:
    other = next(p for p in sorted((path.parents[0]).rglob("*-test.arrow")) if p != path)
    shutil.copyfile(other, path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "flipped": flip,
    "swapped": swap,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
@pytest.mark.parametrize("name", ["*-train.arrow", "dataset_info.json", MANIFEST])
def test_damaged_data_is_prepared_again_and_named(
    folder: Path,
    tmp_path: Path,
    damage: Callable[[Path], object],
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole = read(folder, tmp_path)
    (path,) = (tmp_path / "datasets").rglob(name)
    damage(path)
    with caplog.at_level(logging.WARNING, logger="harness"):
        assert read(folder, tmp_path) == whole
        assert caplog.messages == ([] if not_said(damage, name) else caplog.messages[:1])
        assert not_said(damage, name) or f"{path} is damaged" in caplog.messages[0]
        assert read(folder, tmp_path) == whole
    assert len(caplog.messages) <= 1


def not_said(damage: Callable[[Path], object], name: str) -> bool:
    """Without its manifest a folder is as a killed preparation left it."""
    return damage is Path.unlink and name == MANIFEST


def test_what_a_killed_preparation_left_is_not_used(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not in list"), open_prepared_data(CONTENT, tmp_path):
        rows(folder).index(-1)
    (arrow,) = (tmp_path / "datasets").rglob("*-train.arrow")
    flip(arrow)
    assert read(folder, tmp_path) == [*range(200)]


@contextmanager
def in_use(cache: Path) -> Iterator[None]:
    """Another process that prepares in the same folder."""
    ready, end = mp.get_context("spawn").Event(), mp.get_context("spawn").Event()
    process = mp.get_context("spawn").Process(target=_use, args=(cache, ready, end))
    process.start()
    try:
        assert ready.wait(60)
        yield
    finally:
        end.set()
        process.join()


def _use(cache: Path, ready: object, end: object) -> None:
    with open_prepared_data(CONTENT, cache):
        ready.set()  # type: ignore[attr-defined]
        end.wait(60)  # type: ignore[attr-defined]


def test_what_another_process_prepares_is_left_to_it(folder: Path, tmp_path: Path) -> None:
    with in_use(tmp_path):
        made = tmp_path / "datasets" / ("ab" * 8) / "new"
        made.write_text("by the other one")
        assert read(folder, tmp_path) == [*range(200)]
        assert made.exists()
    assert read(folder, tmp_path) == [*range(200)]


def test_a_file_is_hashed_once_for_its_stamp(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    whole = read(folder, tmp_path)
    monkeypatch.setattr(files.hashlib, "file_digest", None)
    assert read(folder, tmp_path) == whole


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), RuntimeError("write: No space left on device")],
)
def test_a_full_disk_is_named_with_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(ArrowWriter, "write_table", full)
    with pytest.raises(StoreError) as caught:
        read(folder, tmp_path)
    assert f"Cannot prepare data in {tmp_path / 'datasets' / ('ab' * 8)}: the disk is full" in str(
        caught.value
    )
    assert "--cache DIR" in str(caught.value)
    with pytest.raises(StoreError, match="HF_HOME"), module.explain_disk_full():
        raise error


def test_a_cache_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "datasets").write_text("")
    with (
        pytest.raises(StoreError, match="a file stands where a folder should be"),
        open_prepared_data("c", tmp_path),
    ):
        pass
