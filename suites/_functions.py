"""Documented functions of a folder of Python source, chosen by CodeSearchNet's rules.

The rules are those of CodeSearchNet (Husain et al. 2019, arXiv:1909.09436, section 2): the
summary is the docstring's first paragraph; pairs whose summary has fewer than three words, whose
body has fewer than three lines, whose name contains "test", or whose function is a constructor or
another special method are left out, and so are duplicates. Two things differ: duplicates are
exact ones (up to case, blanks and the function's own name) where CodeSearchNet also drops near
ones, and every docstring inside the code is removed, so that no code holds its own summary. Of
CodeXGLUE's rules the longest summary (256 words) and code that parses are taken over.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataError
from suites._places import is_folder
from suites._source_files import Skip, python_files, read

MIN_WORDS, MAX_WORDS = 3, 256
MIN_LINES = 3

_URL = re.compile(r"\b(https?|ftp)://\S+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_MARKUP = re.compile(r"\s*(>>>|[:@](param|type|arg|returns?|rtype|raises?|yields?)\b)")

_Def = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method: where it stands, what its docstring says first, and its source.

    `name` is qualified within `module`, which is dotted and relative to the folder read.
    `docstring` is the first paragraph on one line; `code` starts with decorators and signature
    and holds no docstring.
    """

    name: str
    module: str
    docstring: str
    code: str

    @property
    def id(self) -> str:
        """What the function is called in a data set, e.g. "asyncio.queues:Queue.get"."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a folder of Python source holds: its functions, and how many files gave nothing and why.

    `closed` are the folders in it that could not be entered.
    """

    functions: tuple[Function, ...]
    files: int
    skipped: Mapping[str, int]
    closed: tuple[str, ...] = ()


def scan(root: Path, *, include_tests: bool = False) -> Source:
    """Read every Python file below `root`.

    Folders and files of tests, installed packages, virtual environments, build results and hidden
    folders are passed over; files over 1 MB, files this interpreter cannot parse, and folders this
    user cannot enter are counted.

    Raises:
        DataError: If `root` is not a folder that this user may list and enter.
    """
    if not is_folder(root):
        raise DataError(f"{root} is not a folder.", hint="Give the folder that holds the Python source.")
    functions: list[Function] = []
    skipped: Counter[str] = Counter()
    found = python_files(root, include_tests=include_tests)
    if "." in found.closed:
        raise DataError(f"{root}: Permission denied.")
    for path in found.files:
        try:
            functions += _functions(read(root / path), _module(path))
        except Skip as reason:
            skipped[str(reason)] += 1
    return Source(
        functions=tuple(_distinct(functions)),
        files=len(found.files),
        skipped=dict(skipped),
        closed=found.closed,
    )


def _module(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _functions(text: str, module: str) -> Iterator[Function]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in files that are not ours
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Skip("cannot be parsed") from None
    lines = text.split("\n")
    for name, node in _definitions(tree):
        docstring = summary(ast.get_docstring(node) or "")
        code = _code(lines, node) if docstring and _is_wanted(node.name) else None
        if docstring and code and _flat(docstring) not in _flat(code):
            yield Function(name=name, module=module, docstring=docstring, code=code)


def _definitions(parent: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Def]]:
    """Functions and methods with their qualified names; those inside functions belong to them."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, _Def):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _definitions(node, prefix)


def _is_wanted(name: str) -> bool:
    special = name.startswith("__") and name.endswith("__")
    return not special and "test" not in name.lower()


def summary(docstring: str) -> str | None:
    r"""The first paragraph of a docstring on one line, or None if it is no English sentence.

    It ends at the first blank line, doctest or field list. At least three words of Latin letters
    are needed beside any addresses, most characters must be ASCII, and it must not start with a
    call, as "pop([index]) -> item" does.

    >>> summary("Give the sum of two numbers.\n\nBoth may be negative.")
    'Give the sum of two numbers.'
    >>> summary("See https://example.org/a/b/c/d") is None
    True
    """
    lines: list[str] = []
    for line in docstring.strip().splitlines():
        if not line.strip() or _MARKUP.match(line):
            break
        lines.append(line)
    text = " ".join(" ".join(lines).split())
    words = len(_WORD.findall(_URL.sub(" ", text)))
    if "(" in text.partition(" ")[0]:
        return None
    if not MIN_WORDS <= words <= MAX_WORDS or sum(map(str.isascii, text)) * 2 < len(text):
        return None
    return text


def _code(lines: list[str], node: _Def) -> str | None:
    """The source of a function without docstrings, or None if it is too short or not separable."""
    if len(node.body) < 2:
        return None
    start = min((node.lineno, *(d.lineno for d in node.decorator_list)))
    kept = {n: lines[n - 1] for n in range(start, (node.end_lineno or start) + 1)}
    for inner in ast.walk(node):
        if isinstance(inner, _Def | ast.ClassDef) and ast.get_docstring(inner, clean=False) is not None:
            docstring = inner.body[0]
            if not _stands_alone(docstring, lines):
                return None
            for number in range(docstring.lineno, (docstring.end_lineno or 0) + 1):
                del kept[number]
            if len(inner.body) == 1:
                kept[docstring.lineno] = " " * docstring.col_offset + "pass"
    body = [kept[n] for n in sorted(kept) if n >= node.body[1].lineno]
    if sum(1 for line in body if line.strip() and not line.lstrip().startswith("#")) < MIN_LINES:
        return None
    return _dedent([kept[n] for n in sorted(kept)])


def _stands_alone(docstring: ast.stmt, lines: list[str]) -> bool:
    first, last = lines[docstring.lineno - 1], lines[(docstring.end_lineno or 1) - 1]
    before = first.encode()[: docstring.col_offset].strip()
    after = last.encode()[docstring.end_col_offset :].strip()
    return not before and (not after or after.startswith(b"#"))


def _dedent(lines: list[str]) -> str:
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return "\n".join(line.removeprefix(indent).rstrip() for line in lines)


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _distinct(functions: list[Function]) -> Iterator[Function]:
    """The first of every id, docstring and code; code that differs in its own name alone is one."""
    seen: set[tuple[str, str]] = set()
    for f in functions:
        own = re.compile(rf"\b{re.escape(f.name.rpartition('.')[2])}\b")
        words = " ".join(re.findall(r"\w+", f.docstring.casefold()))
        marks = {("id", f.id), ("docstring", words), ("code", _flat(own.sub("_", f.code)))}
        if not marks & seen:
            yield f
            seen |= marks
