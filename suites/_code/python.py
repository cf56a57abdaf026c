"""Functions of Python source, read by Python's own parser."""

from __future__ import annotations

import ast
import io
import platform
import tokenize
import warnings
from collections.abc import Iterator
from itertools import chain

from suites._code.functions import MIN_LINES, Function, dedent, flat, is_wanted, summary
from suites._code.source import UnreadableError

_Def = ast.FunctionDef | ast.AsyncFunctionDef

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""The fields of a node that hold statements, handlers and cases, in their order."""


def python_functions(data: bytes, path: str) -> Iterator[Function]:
    """The functions and methods of a file whose body has three lines, in its order.

    Code starts with decorators and signature. A docstring that the code repeats does not count.

    Raises:
        UnreadableError: The file is no Python source of this interpreter's version.
    """
    text = _decoded(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in files that are not ours
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnreadableError("cannot be parsed") from None
    lines, module = text.split("\n"), _module(path)
    for name, node in _definitions(tree):
        code = _code(lines, node) if is_wanted(node.name) else None
        if code:
            docstring = summary(ast.get_docstring(node) or "") or ""
            told = flat(docstring) in flat(code)
            yield Function(name=name, module=module, docstring="" if told else docstring, code=code)


def python_version() -> str:
    """The version of the interpreter and of its standard library, e.g. "python-3.11.7"."""
    return f"python-{platform.python_version()}"


def _decoded(data: bytes) -> str:
    """The text of a Python file, in the encoding that it declares."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (SyntaxError, ValueError, LookupError):  # an unknown encoding, or not a text encoding
        raise UnreadableError("cannot be parsed") from None


def _module(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _definitions(parent: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Def]]:
    """Functions and methods with their qualified names; inner functions belong to the outer ones."""
    for node in _statements(parent):
        if isinstance(node, _Def):
            yield prefix + node.name, node
        else:
            yield from _definitions(
                node, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
            )


def _code(lines: list[str], node: _Def) -> str | None:
    """The source of a function without docstrings, or None if it is too short or not separable."""
    documented = ast.get_docstring(node, clean=False) is not None
    body = node.body[documented:]
    if not body:
        return None
    start = min((node.lineno, *(d.lineno for d in node.decorator_list)))
    kept = {n: lines[n - 1] for n in range(start, (node.end_lineno or start) + 1)}
    for inner in (node, *_all_statements(node)):
        if isinstance(inner, _Def | ast.ClassDef) and ast.get_docstring(inner, clean=False) is not None:
            docstring = inner.body[0]
            if not _stands_alone(docstring, lines):
                return None
            for number in range(docstring.lineno, (docstring.end_lineno or 0) + 1):
                del kept[number]
            if len(inner.body) == 1:
                kept[docstring.lineno] = " " * docstring.col_offset + "pass"
    inside = [kept[n] for n in sorted(kept) if n >= body[0].lineno]
    if sum(1 for line in inside if line.strip() and not line.lstrip().startswith("#")) < MIN_LINES:
        return None
    return dedent([kept[n] for n in sorted(kept)])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases directly within one; expressions hold none of them."""
    return chain.from_iterable(getattr(node, name, ()) for name in _BLOCKS)


def _all_statements(node: ast.AST) -> Iterator[ast.AST]:
    for inner in _statements(node):
        yield inner
        yield from _all_statements(inner)


def _stands_alone(docstring: ast.stmt, lines: list[str]) -> bool:
    first, last = lines[docstring.lineno - 1], lines[(docstring.end_lineno or 1) - 1]
    before = first.encode()[: docstring.col_offset].strip()
    after = last.encode()[docstring.end_col_offset :].strip()
    return not before and (not after or after.startswith(b"#"))
