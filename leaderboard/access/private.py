"""Files of the site that only its own user may read, and one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from harness import files
from harness.errors import StoreError

MODE = 0o600
"""Read and written by the owner alone."""


def folder(results: Path) -> Path:
    """Where a site keeps its own files in a results folder."""
    return results / "site"


@contextlib.contextmanager
def exclusively(place: Path, name: str) -> Iterator[None]:
    """Hold the lock `name` of a folder; others of this machine wait, threads and processes alike.

    Raises:
        StoreError: The folder cannot be written.
    """
    with _explained(place):
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Write a file in place of what may be there, in one step; at no time may others read it.

    Raises:
        StoreError: It cannot be written.
    """
    name = f".{path.name}.{files.host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp"
    temporary = path.parent / name
    try:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        files.move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "The folder must belong to the user that runs this."
        raise StoreError(f"Cannot write {path}: {error.strerror or error}.", hint=hint) from error
