"""The source files of a folder by language, without tests, vendored and generated code, and their history.

Git's plumbing is read; nothing is checked out, written or fetched.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


# The history of a folder in git

NEWEST, SHARE = 1000, 4
"""The test set is the newest commits: at most NEWEST of them, and at most one in SHARE of all."""

Blob = str
"""The id of a file's content in git."""


class NoHistoryError(Exception):
    """A folder without a history that can be read; the text is the reason."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Commit:
    """A commit: its id, subject, and by path the content before and after of the files that it changed."""

    id: str
    subject: str
    files: Mapping[str, tuple[Blob, Blob]]


@dataclass(frozen=True, kw_only=True)
class History:
    """A folder's files before its newest commits, by path, and these commits, newest first."""

    root: Path
    files: Mapping[str, Blob]
    commits: tuple[Commit, ...]

    def read_blobs(self, blobs: Collection[Blob]) -> Iterator[tuple[Blob, bytes]]:
        """The contents of files."""
        blob_ids = sorted({*blobs})
        for start in range(0, len(blob_ids), _AT_ONCE):
            part = blob_ids[start : start + _AT_ONCE]
            # One process for many files, and the contents of no more than these in memory.
            data = _run_git(self.root, "cat-file", "--batch", given="\n".join(part) + "\n")
            end = 0
            for blob in part:
                head, end = data[end : data.index(b"\n", end)], data.index(b"\n", end) + 1
                size = int(head.rpartition(b" ")[2])  # "<id> blob <size>"
                yield blob, data[end : end + size]
                end += size + 1


_AT_ONCE = 200


def read_head_commit(root: Path) -> str:
    """The commit that a folder is at, "" without one."""
    try:
        return _resolve_head(root)[0]
    except NoHistoryError:
        return ""


def read_history(root: Path) -> History:
    """The files before the newest commits, and these commits without merges.

    The newest commits are those that the newest commit holds and an older one on its first-parent line does
    not, so no content of theirs is in the files.

    Raises:
        NoHistoryError: git is not installed, or the folder has no history or only a part of it.
    """
    commit, shallow = _resolve_head(root)
    if shallow:
        raise NoHistoryError("the git history is shallow (`git fetch --unshallow` gets the rest)")
    # Commits of merged branches lie beside this line: a base on it holds whole merges or none of them.
    line = _run_git(root, "rev-list", "--first-parent", commit).decode().split()
    most = min(NEWEST, int(_run_git(root, "rev-list", "--count", "--no-merges", commit)) // SHARE)
    base = _find_base_commit(root, line, most)
    if base is None:
        raise NoHistoryError(f"the git history has only {len(line)} commits")
    return History(
        root=root,
        files=dict(_list_commit_files(root, base)),
        commits=tuple(_list_new_commits(root, base, commit)),
    )


def _resolve_head(root: Path) -> tuple[str, bool]:
    """The commit that a folder is at, and whether its history is shallow."""
    if not any(os.path.exists(place / ".git") for place in (root, *root.parents)):
        raise NoHistoryError("the folder has no git history")
    commit, shallow = _run_git(root, "rev-parse", "HEAD", "--is-shallow-repository").decode().split()
    return commit, shallow == "true"


def _find_base_commit(root: Path, line: list[str], most: int) -> str | None:
    """The oldest commit of a line (newest first) that is followed by at most `most` others."""
    low, high = 0, len(line) - 1
    while low < high:  # the count grows along the line
        middle = (low + high + 1) // 2
        count = int(_run_git(root, "rev-list", "--count", "--no-merges", f"{line[middle]}..{line[0]}"))
        low, high = (middle, high) if count <= most else (low, middle - 1)
    return line[low] if low else None


def _list_commit_files(root: Path, commit: str) -> Iterator[tuple[str, Blob]]:
    for entry in _run_git(root, "ls-tree", "-r", "-z", commit, ".").decode(errors="replace").split("\0"):
        # Regular files only: 120000 is a link, 160000 a submodule.
        if match := re.fullmatch(r"100\d{3} blob ([0-9a-f]+)\t(.*)", entry, re.DOTALL):
            yield match.group(2), match.group(1)


def _list_new_commits(root: Path, base: str, newest: str) -> Iterator[Commit]:
    """The commits after `base` that change a file, newest first."""
    form = "--format=%H%x00%s%x00"
    listed = _run_git(
        root, "rev-list", "--no-merges", "--topo-order", "--encoding=UTF-8", form, f"{base}..{newest}"
    )
    subjects = dict(re.findall(r"^([0-9a-f]{40,64})\0(.*)\0$", listed.decode(errors="replace"), re.MULTILINE))
    # Without renames a moved file is no change of its functions. --relative leaves out what is outside of the
    # folder, which may be a part of a repository.
    raw = _run_git(
        root, "diff-tree", "--stdin", "-r", "-z", "--raw", "--relative", "--no-renames", "--diff-filter=M",
        given="\n".join(subjects) + "\n",
    )  # fmt: skip
    files: dict[str, dict[str, tuple[Blob, Blob]]] = {}
    commit = ""
    parts = iter(raw.decode(errors="replace").split("\0"))
    for part in parts:
        if match := re.fullmatch(r":100\d{3} 100\d{3} ([0-9a-f]+) ([0-9a-f]+) M", part):
            files[commit][next(parts)] = (match.group(1), match.group(2))
        elif part.startswith(":"):
            next(parts)
        elif part:
            commit = part.strip()
            files[commit] = {}
    yield from (
        Commit(id=name, subject=subject, files=files[name])
        for name, subject in subjects.items()
        if files.get(name)
    )


def _run_git(root: Path, *arguments: str, given: str = "") -> bytes:
    """What git prints; no configuration of the repository may run a program or reach the network."""
    # GIT_DIR and others, which a hook of git sets, would name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # No lock in a repository that is only read, and no download of what a partial clone lacks.
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    # core.fsmonitor can name a program that git then runs.
    safe = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--no-replace-objects", "--no-pager")
    try:
        done = subprocess.run(
            ["git", *safe, *arguments],
            cwd=root, env=environment, input=given.encode(), capture_output=True, check=False,
        )  # fmt: skip
    except OSError:
        raise NoHistoryError("git is not installed") from None
    if done.returncode:
        message = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise NoHistoryError(f"git says: {message.removeprefix('fatal: ')}")
    return done.stdout
