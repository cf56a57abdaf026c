"""The suite `code:<folder>`: search over a repository's functions, by documentation and by commits."""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

from harness.errors import DataError, UsageError
from harness.types import Suite, SuiteEntry, SuiteOptions
from suites._code import SourceFolder, code_suite
from suites._tables import absolute_path, is_readable_folder


def _open(argument: str, options: SuiteOptions) -> Suite:
    root, name = _parts(argument)
    made = Suite(name=f"code:{argument}", title=f"code of {name}", columns=())
    folder = SourceFolder(root=root, cache=options.cache)
    try:
        return code_suite(folder, made, prefix=f"{name}.", options=options)
    except DataError as error:
        if isinstance(error.__cause__, OSError):  # not the folder's fault
            raise
        raise UsageError(error.message, hint=error.hint) from error


def _parts(argument: str) -> tuple[Path, str]:
    """The folder of `FOLDER` or `NAME=FOLDER`, and the project's name."""
    root = absolute_path(argument)
    if is_readable_folder(root):
        return root, _project_name(root)
    name, _, rest = argument.partition("=")
    root = absolute_path(rest)
    if not (rest and is_readable_folder(root)):
        raise UsageError(f"{argument} is not a folder.", hint="Type --suite code:/path/to/repository.")
    return root, _required_name(name)


SUITE = SuiteEntry(
    name="code",
    summary="Code search over a repository of yours, by documentation and by commits (docs/code.md)",
    open=_open,
    argument="folder",
    alone=False,
)


# The name of a project, the same in every checkout


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _project_name(root: Path) -> str:
    """The name in a folder's metadata, else the folder's own.

    Tried in this order: pyproject.toml, setup.cfg, setup.py, package.json, Cargo.toml, go.mod, pom.xml,
    CMakeLists.txt. A name gets a hyphen for what cannot stand in the name of a task.
    """
    for file, read in _READERS.items():
        try:
            name = _plain(read((root / file).read_text(encoding="utf-8")))
        except _UNREADABLE:
            continue
        if name:
            return name
    return _plain(root.name) or "code"


_UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, SyntaxError, configparser.Error),
    *(RecursionError, MemoryError),
)
"""The errors of metadata that cannot be read, or is of another form."""


def _required_name(name: str) -> str:
    """A name that a user gave.

    Raises:
        UsageError: It cannot stand in the name of a task.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a project.",
            hint="It may have letters, digits, dots, hyphens and underscores, a letter or digit first.",
        )
    return name


def _plain(name: object) -> str:
    """A name for tasks.

    >>> _plain("@scope/pkg"), _plain("my lib"), _plain(None)
    ('scope-pkg', 'my-lib', '')
    """
    text = name if isinstance(name, str) else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")


def _pyproject(text: str) -> object:
    found = tomllib.loads(text)
    return found.get("project", {}).get("name") or found["tool"]["poetry"]["name"]


def _setup_cfg(text: str) -> object:
    found = configparser.ConfigParser(interpolation=None)
    found.read_string(text)
    return found["metadata"]["name"]


def _setup_py(text: str) -> object:
    """The literal name in a call of `setup`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "setup":
            for keyword in node.keywords:
                if keyword.arg == "name":
                    return ast.literal_eval(keyword.value)
    return ""


def _go_mod(text: str) -> object:
    r"""The last part of the module's path that is no version.

    >>> _go_mod("module github.com/org/tool/v2\n")
    'tool'
    """
    found = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
    parts = found.group(1).split("/") if found else [""]
    return parts[-2] if len(parts) > 1 and re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


def _pom(text: str) -> object:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # a project's file has none; entities can fill the memory
        return ""
    try:
        return ElementTree.fromstring(text).findtext("{*}artifactId")
    except ElementTree.ParseError:
        return ""


def _cmake(text: str) -> object:
    found = re.search(r"^\s*project\s*\(\s*\"?([A-Za-z0-9._-]+)", text, re.MULTILINE | re.IGNORECASE)
    return found.group(1) if found else ""


_READERS: dict[str, Callable[[str], object]] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "setup.py": _setup_py,
    "package.json": lambda text: json.loads(text)["name"],
    "Cargo.toml": lambda text: tomllib.loads(text)["package"]["name"],
    "go.mod": _go_mod,
    "pom.xml": _pom,
    "CMakeLists.txt": _cmake,
}
