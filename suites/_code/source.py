"""The source files of a folder by language, without tests, vendored code and generated files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from harness.core.errors import DataError
from harness.data.tables import is_readable_folder

MAX_BYTES = 1_000_000


class UnreadableError(Exception):
    """A file that gives no functions; the text is the reason."""


@dataclass(frozen=True, kw_only=True)
class Language:
    """A programming language: its names for people and in names of tasks, and what its files are called.

    A path is left out if `tests` matches the name of its file.
    """

    title: str
    suffix: str
    endings: tuple[str, ...]
    tests: re.Pattern[str]


def _compile_pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


LANGUAGES = {
    "python": Language(
        title="Python",
        suffix="",
        endings=(".py",),
        tests=_compile_pattern(r"(test_.*|.*_test|tests?|conftest)\.py"),
    ),
    "javascript": Language(
        title="JavaScript",
        suffix="-javascript",
        endings=(".js", ".mjs", ".cjs", ".jsx"),
        tests=_compile_pattern(
            r"(test|.*[.-]test|.*[.-]spec|test[_-].*)\.\w+|.*[.-]min\.\w+|.*\.bundle\.\w+"
        ),
    ),
    "java": Language(
        title="Java",
        suffix="-java",
        endings=(".java",),
        tests=_compile_pattern(r"(Test[A-Z0-9_].*|.*Tests?|.*TestCase|.*IT)\.java"),
    ),
    "go": Language(
        title="Go",
        suffix="-go",
        endings=(".go",),
        tests=_compile_pattern(r".*_test\.go|.*\.pb(\.\w+)?\.go|.*[._]gen(erated)?\.go"),
    ),
    "rust": Language(
        title="Rust", suffix="-rust", endings=(".rs",), tests=_compile_pattern(r"(tests?|.*_tests?)\.rs")
    ),
    "cpp": Language(
        title="C++",
        suffix="-cpp",
        endings=(".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".h"),
        tests=_compile_pattern(r"(test|tests|test[_-].*|.*[_-](unit)?tests?)\.\w+|.*\.pb\.(cc|h)"),
    ),
}
"""The languages that are read, by name; Python's tasks have no suffix."""

_BY_ENDING = {ending: name for name, language in LANGUAGES.items() for ending in language.endings}

_TESTS = frozenset({"test", "tests", "idle_test"})
_INSTALLED = frozenset({"site-packages", "dist-packages", "__pycache__"})
_BUILT = frozenset({"build", "dist", "venv", "env", "node_modules"})
_OTHERS = frozenset(
    {
        "target",
        "out",
        "vendor",
        "vendored",
        "third_party",
        "third-party",
        "thirdparty",
        "external",
        "bower_components",
        "Godeps",
        "testdata",
        "__tests__",
        "__mocks__",
        "spec",
        "generated",
    }
)
"""Further folders that are skipped, but for Python."""

_MADE = re.compile(r"code generated .*do not edit|@generated|auto-?generated|automatically generated", re.I)
_LONG_LINES = 200
"""Characters of a mean line from which a file counts as minified."""


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """The source files below a folder by language, and its folders that could not be entered."""

    files: dict[str, tuple[str, ...]]
    closed: tuple[str, ...] = ()


def find_source_files(
    root: Path, languages: Collection[str] = tuple(LANGUAGES), *, installed: bool = False
) -> SourceFiles:
    """The source files below `root`, without tests and build results.

    Args:
        root: A folder.
        languages: The names of the languages that count.
        installed: Whether files of installed packages (site-packages) count.

    Raises:
        DataError: `root` is not a folder, or this user may not read it.
    """
    if not is_readable_folder(root):
        raise DataError(f"{root} is not a folder.", hint="Give the folder that holds the source.")
    files: list[str] = []
    closed: list[str] = []

    def add_closed_folder(error: OSError) -> None:
        closed.append(Path(error.filename).relative_to(root).as_posix())

    def is_there(path: str) -> bool:
        return os.path.exists(root / path)

    for folder, names, file_names in os.walk(root, onerror=add_closed_folder):
        if not os.access(folder, os.X_OK):  # listed, but not reachable
            add_closed_folder(PermissionError(0, "", folder))
            names.clear()
            continue
        place = os.path.relpath(folder, root)
        start = "" if place == os.curdir else f"{place}/"
        # In place: os.walk goes on into the names that are left in this list.
        names[:] = [name for name in names if _can_enter(start + name, is_there, installed)]
        files += [start + name for name in file_names if os.path.isfile(f"{folder}/{name}")]
    if "." in closed:
        raise DataError(f"{root}: Permission denied.") from PermissionError(
            errno.EACCES, os.strerror(errno.EACCES)
        )
    return SourceFiles(files=_group_source_paths(files, languages), closed=tuple(sorted(closed)))


def filter_commit_paths(paths: Collection[str], languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Those of a commit's paths that `find_source_files` would give, by language."""
    all_paths = {*paths, *(str(folder) for path in paths for folder in PurePosixPath(path).parents)}
    entered = {folder: _can_enter(folder, all_paths.__contains__) for folder in all_paths}
    open_ = (p for p in paths if all(entered[str(f)] for f in PurePosixPath(p).parents if str(f) != "."))
    return _group_source_paths(open_, languages)


def read_source(root: Path, path: str) -> bytes:
    """The bytes of a file.

    Raises:
        UnreadableError: It is too large, or cannot be read.
    """
    try:
        if (root / path).stat().st_size > MAX_BYTES:
            raise UnreadableError("larger than 1 MB")
        return (root / path).read_bytes()
    except OSError:
        raise UnreadableError("cannot be read") from None


def require_written(text: str) -> None:
    """Refuse a generated or minified text.

    Raises:
        UnreadableError: It is generated or minified.
    """
    # Generators say so at the top of a file.
    if _MADE.search(text[:2000]):
        raise UnreadableError("generated")
    if len(text) > _LONG_LINES * (text.count("\n") + 1):
        raise UnreadableError("minified")


def _group_source_paths(paths: Iterable[str], languages: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Source files by language, sorted; headers (.h) are C++ only beside other files of it."""
    groups: dict[str, list[str]] = {}
    for path, language in _iter_source_paths(sorted(paths)):
        if language in languages:
            groups.setdefault(language, []).append(path)
    # Without a C++ file beside them they are most likely C.
    if all(path.endswith(".h") for path in groups.get("cpp", [])):
        groups.pop("cpp", None)
    return {name: tuple(groups[name]) for name in LANGUAGES if name in groups}


def _iter_source_paths(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        *folders, name = path.split("/")
        language = _BY_ENDING.get(name[name.rfind(".") :] if "." in name else "")
        if language is None or LANGUAGES[language].tests.fullmatch(name):
            continue
        if language == "python" or not _OTHERS.intersection(folders):
            yield path, language


def _can_enter(folder: str, is_there: Callable[[str], bool], installed: bool = False) -> bool:
    name = folder.rpartition("/")[2]
    if name in _INSTALLED:
        return installed and name != "__pycache__"
    if name.startswith(".") or is_there(f"{folder}/pyvenv.cfg"):
        return False
    if name in _BUILT and not is_there(f"{folder}/__init__.py"):  # a package may be called venv
        return False
    return name not in _TESTS
