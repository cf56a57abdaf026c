"""The files of a folder of Python source: which are read, and what of them cannot be."""

from __future__ import annotations

import os
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1_000_000

_TESTS = frozenset({"test", "tests", "idle_test"})
_INSTALLED = frozenset({"site-packages", "dist-packages", "__pycache__"})
_BUILT = frozenset({"build", "dist", "venv", "env", "node_modules"})
_TEST_FILE = re.compile(r"(test_.*|.*_test|tests?|conftest)\.py")


class Skip(Exception):
    """A file that gives no functions; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What lies below a folder, as relative paths with "/" between the parts, sorted.

    `closed` are the folders that this user may not list or enter; "." is the folder itself.
    """

    files: tuple[str, ...]
    closed: tuple[str, ...] = ()


def python_files(root: Path, *, include_tests: bool = False) -> Found:
    """The Python files to read below `root`, without those of tests, of installations and of builds."""
    files: list[str] = []
    closed: list[str] = []

    def refused(error: OSError) -> None:
        closed.append(Path(error.filename).relative_to(root).as_posix())

    for folder, names, here in os.walk(root, onerror=refused):
        if not os.access(folder, os.X_OK):  # it can be listed, but nothing in it can be reached
            refused(PermissionError(0, "", folder))
            names.clear()
            continue
        names[:] = [name for name in names if _enters(Path(folder, name), include_tests)]
        paths = [Path(folder, name) for name in here if _is_read(name, include_tests)]
        files += [path.relative_to(root).as_posix() for path in paths if os.path.isfile(path)]
    return Found(files=tuple(sorted(files)), closed=tuple(sorted(closed)))


def read(path: Path) -> str:
    """The text of a Python file, in the encoding that it declares.

    Raises:
        Skip: It is too large, or cannot be read or decoded.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Skip("larger than 1 MB")
        with tokenize.open(path) as file:
            return file.read()
    except OSError:
        raise Skip("cannot be read") from None
    except (SyntaxError, ValueError, LookupError):  # no such encoding, or none of text
        raise Skip("cannot be parsed") from None


def _is_read(name: str, include_tests: bool) -> bool:
    return name.endswith(".py") and (include_tests or not _TEST_FILE.fullmatch(name))


def _enters(folder: Path, include_tests: bool) -> bool:
    name = folder.name
    if name.startswith(".") or name in _INSTALLED or os.path.exists(folder / "pyvenv.cfg"):
        return False
    if name in _BUILT and not os.path.exists(folder / "__init__.py"):  # a package may be called venv
        return False
    return include_tests or name not in _TESTS
