"""Files: their hashes, and how they are written."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing as mp
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core import files
from harness.core.errors import StoreError
from harness.core.files import CACHE_FILE, hash_file

# Writing


def test_the_first_writer_wins(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    assert files.write_once(path, b"first")
    assert not files.write_once(path, b"second")
    assert path.read_bytes() == b"first"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_replace_takes_the_place(tmp_path: Path) -> None:
    files.replace(tmp_path / "f", b"1")
    files.replace(tmp_path / "f", b"2")
    assert (tmp_path / "f").read_bytes() == b"2"


def _race(folder: Path, start: float, won: object) -> None:
    time.sleep(max(0.0, start - time.time()))
    for number in range(200):
        if files.write_once(folder / str(number), os.getpid().to_bytes(4, "little")):
            won.put(number)  # type: ignore[attr-defined]
    won.put(None)  # type: ignore[attr-defined]


def test_of_two_processes_exactly_one_writes_each_file(tmp_path: Path) -> None:
    context = mp.get_context("spawn")
    won = context.Queue()
    start = time.time() + 2
    racers = [context.Process(target=_race, args=(tmp_path, start, won)) for _ in range(2)]
    for racer in racers:
        racer.start()
    found: list[int] = []
    ended = 0
    while ended < 2:
        number = won.get(timeout=60)
        ended += number is None
        found += [] if number is None else [number]
    assert sorted(found) == list(range(200))
    for racer in racers:
        racer.join()


def test_sweep_removes_only_what_dead_processes_of_this_machine_left(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = tmp_path / f".a.json.{files.get_host_name()}-{dead.pid}-00000000.tmp"
    mine = tmp_path / f".b.json.{files.get_host_name()}-{os.getpid()}-00000000.tmp"
    elsewhere = tmp_path / f".c.json.another-{dead.pid}-00000000.tmp"
    for path in (gone, mine, elsewhere):
        path.touch()
    files.sweep(tmp_path, ".c.json.*.tmp")
    assert gone.exists()
    files.sweep(tmp_path, ".a.json.*.tmp")
    assert not gone.exists()
    gone.mkdir()
    assert files.sweep(tmp_path) == 1
    assert not gone.exists()
    assert mine.exists()
    assert elsewhere.exists()


def test_a_full_disk_is_one_clear_error_and_leaves_no_half_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(StoreError, match="larger than this process may write") as caught:
            files.write_once(tmp_path / "big", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "What was finished before is kept" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "Free some room, or choose another folder"),
        (errno.EROFS, "kept. Choose another folder"),
        (errno.EACCES, "Make it writable, or choose another folder"),
        (errno.EIO, "kept. Choose another folder"),
    ],
)
def test_only_a_full_disk_is_told_to_free_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(StoreError) as caught:
        files.replace(tmp_path / "f", b"")
    assert hint in str(caught.value)


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(StoreError, match="a file stands where a folder should be"):
        files.require_writable(tmp_path / "results")


# Hashes


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time a file is really hashed."""
    found: list[str] = []
    real = hashlib.file_digest

    def counting(handle: object, name: str) -> object:
        found.append(name)
        return real(handle, name)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counting)
    return found


ABC = hashlib.sha256(b"abc").hexdigest()


def test_a_file_is_read_once(file: Path, tmp_path: Path, reads: list[str]) -> None:
    assert hash_file(file) == hash_file(file, tmp_path) == hash_file(file, tmp_path) == ABC
    assert len(reads) == 2


def test_a_link_counts_as_its_target(file: Path, tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "link").symlink_to(file)
    hash_file(file, tmp_path)
    assert hash_file(tmp_path / "link", tmp_path) == ABC
    assert len(reads) == 1


def test_a_changed_file_is_read_again_even_with_its_old_time(file: Path, tmp_path: Path) -> None:
    hash_file(file, tmp_path)
    before = file.stat()
    time.sleep(0.02)
    file.write_bytes(b"abd")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hash_file(file, tmp_path) == hashlib.sha256(b"abd").hexdigest()


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path, reads: list[str]) -> None:
    path = tmp_path / "fresh"
    path.write_bytes(b"abc")
    hash_file(path, tmp_path)
    hash_file(path, tmp_path)
    assert len(reads) == 2
    assert not (tmp_path / CACHE_FILE).exists()


@pytest.mark.parametrize(
    "junk", [b"\xff\xfe\x00", b"{", b"[1, 2", b'["x"]\n', b"null\n", b"7\n", b'{"a": 1}\n']
)
def test_a_damaged_cache_is_done_without_and_goes_on(
    file: Path, tmp_path: Path, junk: bytes, reads: list[str]
) -> None:
    (tmp_path / CACHE_FILE).write_bytes(junk)
    assert hash_file(file, tmp_path) == hash_file(file, tmp_path) == ABC
    assert len(reads) == 1


def test_a_line_with_no_hash_in_it_is_not_believed(file: Path, tmp_path: Path) -> None:
    hash_file(file, tmp_path)
    cache = tmp_path / CACHE_FILE
    cache.write_text(cache.read_text().replace(ABC, "nonsense"))
    assert hash_file(file, tmp_path) == ABC


def test_a_cache_that_cannot_be_written_is_done_without(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    assert hash_file(file, tmp_path / "taken") == ABC


def test_many_writers_leave_every_line_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    paths = [tmp_path / f"file-{i}" for i in range(40)]
    for path in paths:
        path.write_text(path.name)
    workers = [threading.Thread(target=lambda p=part: [hash_file(f, tmp_path) for f in p]) for part in
               (paths[0::4], paths[1::4], paths[2::4], paths[3::4])]  # fmt: skip
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    reads.clear()
    assert [hash_file(p, tmp_path) for p in paths] == [
        hashlib.sha256(p.name.encode()).hexdigest() for p in paths
    ]
    assert not reads


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hash_file(tmp_path / "none", tmp_path)


def test_a_changed_line_of_the_cache_is_not_believed(file: Path, tmp_path: Path, reads: list[str]) -> None:
    """One hex digit would give a model another identity."""
    truth = hash_file(file, tmp_path / "first")
    other = truth.replace(truth[0], "0" if truth[0] != "0" else "1", 1)
    # A cache in a folder of its own, since a process reads a line once.
    copy_cache(tmp_path, "first", "second", lambda lines: lines.replace(truth.encode(), other.encode()))
    assert hash_file(file, tmp_path / "second") == truth
    copy_cache(tmp_path, "second", "third", bytes)
    reads.clear()
    assert hash_file(file, tmp_path / "third") == truth
    assert not reads


def test_a_line_of_another_machine_is_not_believed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(files, "_read_machine_identity", lambda: b"another")
        truth = hash_file(file, tmp_path / "first")
        copy_cache(tmp_path, "first", "second", bytes)
        reads.clear()
        assert hash_file(file, tmp_path / "second") == truth
        assert not reads
    copy_cache(tmp_path, "first", "third", bytes)
    assert hash_file(file, tmp_path / "third") == truth
    assert reads


def copy_cache(folder: Path, source: str, target: str, change: Callable[[bytes], bytes]) -> None:
    (folder / target).mkdir()
    (folder / target / CACHE_FILE).write_bytes(change((folder / source / CACHE_FILE).read_bytes()))
