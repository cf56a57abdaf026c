"""SHA-256 of files, remembered on disk so that a large file is read once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

CACHE_FILE = "file-hashes.jsonl"
"""One line a file: [path, size, mtime_ns, ctime_ns, inode, sha256]."""

SETTLED_NS = 100_000_000
"""A file changed this recently is not remembered: a second change might leave the same times."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass
class _Read:
    """What of a cache file has been read."""

    inode: int
    size: int = 0
    known: dict[tuple[str | int, ...], str] = field(default_factory=dict)


_read_so_far: dict[Path, _Read] = {}
_reading = threading.Lock()


def sha256_file(path: Path, cache_dir: Path | None = None) -> str:
    """The SHA-256 of a file's bytes, 64 hex digits.

    With `cache_dir` the result is remembered there under the file's real path, size, times and
    inode. The cache only ever saves time: lines that cannot be read are skipped, any number of
    processes may add to it at once, and a cache that cannot be written is done without.

    Raises:
        OSError: If the file cannot be read.
    """
    key = _stat_key(path)
    cache = cache_dir / CACHE_FILE if cache_dir else None
    if cache and (known := _lookup(cache, key)):
        return known
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if cache and _stat_key(path) == key and time.time_ns() - max(key[2], key[3]) > SETTLED_NS:
        _remember(cache, key, found)
    return found


def _stat_key(path: Path) -> tuple[str, int, int, int, int]:
    real = path.resolve()
    stat = real.stat()
    return (str(real), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def _lookup(cache: Path, key: tuple[str, int, int, int, int]) -> str | None:
    try:
        stat = cache.stat()
    except OSError:
        return None
    with _reading:
        read = _read_so_far.get(cache)
        if read is None or read.inode != stat.st_ino or read.size > stat.st_size:
            read = _read_so_far[cache] = _Read(inode=stat.st_ino)
        if read.size < stat.st_size:
            _read_on(cache, read)
        return read.known.get(key)


def _read_on(cache: Path, read: _Read) -> None:
    """Take in the whole lines that were added since."""
    try:
        with cache.open("rb") as file:
            file.seek(read.size)
            added = file.read()
    except OSError:
        return
    whole = added[: added.rfind(b"\n") + 1]
    read.size += len(whole)
    for line in whole.decode("utf-8", errors="replace").splitlines():
        try:
            *stored, sha = json.loads(line)
        except (ValueError, TypeError):
            continue
        if isinstance(sha, str) and _SHA256.fullmatch(sha) and all(isinstance(s, str | int) for s in stored):
            read.known[tuple(stored)] = sha


def _remember(cache: Path, key: tuple[str, int, int, int, int], sha: str) -> None:
    # One write to a file opened for appending is one piece even with several writers; the line
    # feed in front ends whatever a writer that died has left behind.
    line = f"\n{json.dumps([*key, sha])}\n".encode()
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(cache, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError:
        return
