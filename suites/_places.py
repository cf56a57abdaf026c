"""Folders and files that a user names: what cannot be reached or read is said, with its path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import DataError, UsageError


def place(argument: str) -> Path:
    """The absolute path that is meant.

    Raises:
        UsageError: It leads nowhere: no such user's home, or links in a circle.
    """
    try:
        return Path(argument).expanduser().resolve()
    except RuntimeError as error:
        raise UsageError(f"{argument} leads nowhere: {error}.") from None


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder.

    Raises:
        DataError: That cannot be told, for example because this user may not enter what it is in.
    """
    with reading(path):
        return path.is_dir()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a DataError that names the file, else `path`."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{error.filename or path}: {error.strerror or error}.") from error
