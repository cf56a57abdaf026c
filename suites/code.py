"""The suite `code:<folder>`: search over a repository's functions, by documentation and by commits.

The functions of a folder are also training data, pairs of docstring and source.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import functools
import itertools
import json
import re
import sysconfig
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from harness.core.errors import DataError, UsageError
from harness.core.keys import digest
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from harness.data.tables import is_readable_folder, resolve_user_path
from harness.data.training.own_rows import TrainingSource
from suites._code.parsing import format_python_version, parse_python_functions
from suites._code.selection import Function, drop_duplicates
from suites._code.source import UnreadableError, find_source_files, read_source, require_written
from suites._code.tasks import SourceFolder, build_code_suite, read_file_stamp


def _open_code_suite(argument: str, options: SuiteOptions) -> Suite:
    root, name = _parse_code_argument(argument)
    empty_suite = Suite(name=f"code:{argument}", title=f"code of {name}", columns=())
    folder = SourceFolder(root=root, cache=options.cache)
    try:
        return build_code_suite(folder, empty_suite, prefix=f"{name}.", options=options)
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # not the folder's fault
            raise
        raise UsageError(error.message, hint=error.hint) from error


def _parse_code_argument(argument: str) -> tuple[Path, str]:
    """The folder of `FOLDER` or `NAME=FOLDER`, and the project's name."""
    root = resolve_user_path(argument)
    if is_readable_folder(root):
        return root, _read_project_name(root)
    name, _, rest = argument.partition("=")
    root = resolve_user_path(rest)
    if not (rest and is_readable_folder(root)):
        raise UsageError(f"{argument} is not a folder.", hint="Type --suite code:/path/to/repository.")
    return root, _require_project_name(name)


SUITE = SuiteEntry(
    name="code",
    summary="Code search over a repository of yours, by documentation and by commits (docs/code.md)",
    open=_open_code_suite,
    argument="folder",
    alone=False,
)


# Pairs to train on


_PAIRS = 1
"""The version of the pairs, raised whenever the same source would give others."""


def _iter_function_pairs(argument: str) -> Iterator[tuple[str, str]]:
    """The docstring and the source of each function in the Python files of a folder.

    Duplicates are left out, and functions with the documentation or the code of one of the running
    interpreter's standard library, since many packages hold copies of it.
    """
    root = _resolve_source_folder(argument)
    documented = (one for one in _iter_python_functions(root, _find_python_files(root)) if _is_described(one))
    pairs = drop_duplicates(o for o in documented if not {o.docstring, o.code} & _collect_stdlib_texts())
    # The first one is taken here, so that a folder without any is refused before the first row.
    first = next(pairs, None)
    if first is None:
        raise DataError(
            f"{root} has no Python function with a docstring.",
            hint="A function counts if it has a docstring of three words and a body of three lines, "
            "is no special method and has no 'test' in its name; the standard library's do not.",
        )
    yield from ((one.docstring, one.code) for one in itertools.chain([first], pairs))


def _iter_python_functions(root: Path, paths: Sequence[str] | None = None) -> Iterator[Function]:
    """The functions in Python files, by default all below the folder, without those of unreadable files."""
    for path in find_source_files(root, ("python",)).files.get("python", ()) if paths is None else paths:
        with contextlib.suppress(UnreadableError):
            data = read_source(root, path)
            require_written(data.decode("utf-8", "replace"))
            yield from parse_python_functions(data, path)


_SECTION = re.compile(
    r"(Parameters|Params|Args|Arguments|Returns?|Yields?|Raises|Notes?|Examples?) ?(:|-{3})"
)
"""The start of a docstring that has no sentence on the function."""


def _is_described(function: Function) -> bool:
    return bool(function.docstring) and not _SECTION.match(function.docstring)


@functools.cache
def _collect_stdlib_texts() -> frozenset[str]:
    """The documentation and the code of every function of the running interpreter's standard library."""
    functions = _iter_python_functions(Path(sysconfig.get_path("stdlib")))
    return frozenset(text for one in functions for text in (one.docstring, one.code) if text)


def _find_python_files(root: Path) -> list[str]:
    """The Python files below a folder, also of installed packages, but not those of a standard library."""
    paths = find_source_files(root, ("python",), installed=True).files.get("python", ())
    roots = {one for path in paths for one in PurePosixPath(path).parents}
    standard = {str(one) for one in roots if _is_standard_library(root / one)}
    # A folder inside of a standard library counts as that library, but for installed packages.
    above = any(map(_is_standard_library, root.parents)) and not _INSTALLED & set(root.parts)
    return [] if above else [path for path in paths if not _is_below(path, standard)]


_INSTALLED = {"site-packages", "dist-packages"}


def _is_standard_library(folder: Path) -> bool:
    return (folder / "os.py").is_file() and (folder / "__future__.py").is_file()


def _is_below(path: str, folders: Collection[str]) -> bool:
    """Whether a file is in one of the folders, and not in the installed packages there."""
    parents = PurePosixPath(path).parents
    return not _INSTALLED & {*PurePosixPath(path).parts} and any(str(one) in folders for one in parents)


def _resolve_source_folder(argument: str) -> Path:
    root = resolve_user_path(argument)
    if not is_readable_folder(root):
        raise UsageError(f"{argument} is not a folder.", hint="Type --train-data code:/path/to/source.")
    return root


def _compute_pairs_stamp(argument: str) -> str:
    root = _resolve_source_folder(argument)
    listed = [[path, *read_file_stamp(root / path)] for path in _find_python_files(root)]
    return digest([_PAIRS, format_python_version(), str(root), listed])


TRAINING = TrainingSource(
    name="code",
    title=lambda argument: _resolve_source_folder(argument).name,
    stamp=_compute_pairs_stamp,
    pairs=_iter_function_pairs,
)


# The name of a project, the same in every checkout


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def _read_project_name(root: Path) -> str:
    """The name in a folder's metadata, else the folder's own.

    Tried in this order: pyproject.toml, setup.cfg, setup.py, package.json, Cargo.toml, go.mod, pom.xml,
    CMakeLists.txt. A name gets a hyphen for what cannot stand in the name of a task.
    """
    for file, read in _READERS.items():
        try:
            name = _clean_project_name(read((root / file).read_text(encoding="utf-8")))
        except _UNREADABLE:
            continue
        if name:
            return name
    return _clean_project_name(root.name) or "code"


_UNREADABLE = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    SyntaxError,
    configparser.Error,
    RecursionError,
    MemoryError,
)
"""The errors of metadata that cannot be read, or is of another form."""


def _require_project_name(name: str) -> str:
    """A name that a user gave.

    Raises:
        UsageError: It cannot stand in the name of a task.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a project.",
            hint="It may have 200 letters, digits, dots, hyphens and underscores, a letter or digit first.",
        )
    return name


def _clean_project_name(name: object) -> str:
    """A name for tasks.

    >>> _clean_project_name("@scope/pkg"), _clean_project_name("my lib"), _clean_project_name(None)
    ('scope-pkg', 'my-lib', '')
    """
    text = name if isinstance(name, str) else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text[:200]).strip("-._")


def _parse_pyproject(text: str) -> object:
    document = tomllib.loads(text)
    return document.get("project", {}).get("name") or document["tool"]["poetry"]["name"]


def _setup_cfg(text: str) -> object:
    # A percent sign in any value would otherwise be an error.
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(text)
    return config["metadata"]["name"]


def _setup_py(text: str) -> object:
    """The literal name in a call of `setup`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            for keyword in node.keywords:
                if keyword.arg == "name":
                    return ast.literal_eval(keyword.value)
    return ""


def _parse_go_mod(text: str) -> object:
    r"""The last part of the module's path, apart from a version.

    >>> _parse_go_mod("module github.com/org/tool/v2\n")
    'tool'
    """
    match = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
    parts = match.group(1).split("/") if match else [""]
    # Go puts the major version behind the name from v2 on.
    return parts[-2] if len(parts) > 1 and re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _parse_pom(text: str) -> object:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # a project's file has none; entities can fill the memory
        return ""
    try:
        return ElementTree.fromstring(text).findtext("{*}artifactId")
    except ElementTree.ParseError:
        return ""


def _parse_cmake(text: str) -> object:
    match = re.search(r"^\s*project\s*\(\s*\"?([A-Za-z0-9._-]+)", text, re.MULTILINE | re.IGNORECASE)
    return match.group(1) if match else ""


_READERS: dict[str, Callable[[str], object]] = {
    "pyproject.toml": _parse_pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "package.json": lambda text: json.loads(text)["name"],
    "Cargo.toml": lambda text: tomllib.loads(text)["package"]["name"],
    "go.mod": _parse_go_mod,
    "pom.xml": _parse_pom,
    "CMakeLists.txt": _parse_cmake,
}
