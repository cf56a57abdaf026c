from __future__ import annotations

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from harness import files
from harness.files import CACHE_FILE, sha256_file


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
    assert sha256_file(file) == sha256_file(file, tmp_path) == sha256_file(file, tmp_path) == ABC
    assert len(reads) == 2


def test_a_link_counts_as_its_target(file: Path, tmp_path: Path, reads: list[str]) -> None:
    (tmp_path / "link").symlink_to(file)
    sha256_file(file, tmp_path)
    assert sha256_file(tmp_path / "link", tmp_path) == ABC
    assert len(reads) == 1


def test_a_changed_file_is_read_again_even_with_its_old_time(file: Path, tmp_path: Path) -> None:
    sha256_file(file, tmp_path)
    before = file.stat()
    time.sleep(0.02)
    file.write_bytes(b"abd")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sha256_file(file, tmp_path) == hashlib.sha256(b"abd").hexdigest()


def test_a_file_that_has_just_changed_is_not_remembered(tmp_path: Path, reads: list[str]) -> None:
    path = tmp_path / "fresh"
    path.write_bytes(b"abc")
    sha256_file(path, tmp_path)
    sha256_file(path, tmp_path)
    assert len(reads) == 2
    assert not (tmp_path / CACHE_FILE).exists()


@pytest.mark.parametrize(
    "junk", [b"\xff\xfe\x00", b"{", b"[1, 2", b'["x"]\n', b"null\n", b"7\n", b'{"a": 1}\n']
)
def test_a_damaged_cache_is_done_without_and_goes_on(
    file: Path, tmp_path: Path, junk: bytes, reads: list[str]
) -> None:
    (tmp_path / CACHE_FILE).write_bytes(junk)
    assert sha256_file(file, tmp_path) == sha256_file(file, tmp_path) == ABC
    assert len(reads) == 1


def test_a_line_with_no_hash_in_it_is_not_believed(file: Path, tmp_path: Path) -> None:
    sha256_file(file, tmp_path)
    cache = tmp_path / CACHE_FILE
    cache.write_text(cache.read_text().replace(ABC, "nonsense"))
    assert sha256_file(file, tmp_path) == ABC


def test_a_cache_that_cannot_be_written_is_done_without(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the folder should be")
    assert sha256_file(file, tmp_path / "taken") == ABC


def test_many_writers_leave_every_line_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    paths = [tmp_path / f"file-{i}" for i in range(40)]
    for path in paths:
        path.write_text(path.name)
    workers = [threading.Thread(target=lambda p=part: [sha256_file(f, tmp_path) for f in p]) for part in
               (paths[0::4], paths[1::4], paths[2::4], paths[3::4])]  # fmt: skip
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    reads.clear()
    assert [sha256_file(p, tmp_path) for p in paths] == [
        hashlib.sha256(p.name.encode()).hexdigest() for p in paths
    ]
    assert not reads


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sha256_file(tmp_path / "none", tmp_path)
