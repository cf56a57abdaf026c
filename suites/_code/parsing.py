r"""Functions of source code with their documentation, Python's by its own parser, others' by tree-sitter.

In JavaScript, Java, Go, Rust and C++ a documentation comment stands directly above its function: `/** */` in
JavaScript and Java; this, `/*! */`, `///` and `//!` in C++; `/** */`, `///` and `#[doc]` in Rust; any comment
in Go. Its markers, HTML and inline tags (`{@code x}`) are taken away. It ends at the first block tag
(`@param`, `\return`), but for those that begin a description (`@brief`).
"""

from __future__ import annotations

import ast
import functools
import html
import importlib
import io
import platform
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from suites._code.selection import (
    MIN_LINES,
    Function,
    extract_summary,
    is_wanted,
    normalize_text,
    strip_indent,
)
from suites._code.source import UnreadableError, require_written

_Def = ast.FunctionDef | ast.AsyncFunctionDef

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""The fields of a node that hold statements, handlers and cases, in their order."""


def parse_python_functions(data: bytes, path: str) -> Iterator[Function]:
    """The functions and methods of a file whose body has three lines, in its order.

    Code starts with decorators and signature. A docstring that the code repeats does not count.

    Raises:
        UnreadableError: This version of Python cannot parse the file.
    """
    text = _decode_python_source(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in files that are not ours
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UnreadableError("cannot be parsed") from None
    # Not splitlines, which also cuts at form feeds and would shift the numbers of lines.
    lines, module = text.split("\n"), _build_module_name(path)
    for name, node in _iter_definitions(tree):
        code = _extract_code(lines, node) if is_wanted(node.name) else None
        if code:
            docstring = extract_summary(ast.get_docstring(node) or "") or ""
            is_repeated = normalize_text(docstring) in normalize_text(code)
            yield Function(name=name, module=module, docstring="" if is_repeated else docstring, code=code)


def format_python_version() -> str:
    """The version of the interpreter and of its standard library, e.g. "python-3.11.7"."""
    return f"python-{platform.python_version()}"


def _decode_python_source(data: bytes) -> str:
    """The text of a Python file, in the encoding that it declares."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        # It also makes one kind of line end, which ast counts lines by.
        return io.TextIOWrapper(io.BytesIO(data), encoding).read()
    except (SyntaxError, ValueError, LookupError):  # an unknown encoding, or not a text encoding
        raise UnreadableError("cannot be parsed") from None


def _build_module_name(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _iter_definitions(parent: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Def]]:
    """Functions and methods with their qualified names; inner functions belong to the outer ones."""
    for node in _iter_statements(parent):
        if isinstance(node, _Def):
            yield prefix + node.name, node
        else:
            yield from _iter_definitions(
                node, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix
            )


def _extract_code(lines: list[str], node: _Def) -> str | None:
    """The source of a function without docstrings, or None if it is too short or not separable."""
    documented = ast.get_docstring(node, clean=False) is not None
    body = node.body[documented:]
    if not body:
        return None
    start = min((node.lineno, *(d.lineno for d in node.decorator_list)))
    kept = {n: lines[n - 1] for n in range(start, (node.end_lineno or start) + 1)}
    for inner in (node, *_walk_statements(node)):
        if isinstance(inner, _Def | ast.ClassDef) and ast.get_docstring(inner, clean=False) is not None:
            docstring = inner.body[0]
            if not _is_separable(docstring, lines):
                return None
            for number in range(docstring.lineno, (docstring.end_lineno or 0) + 1):
                del kept[number]
            # A body needs a statement in place of its only one.
            if len(inner.body) == 1:
                kept[docstring.lineno] = " " * docstring.col_offset + "pass"
    inside = [kept[n] for n in sorted(kept) if n >= body[0].lineno]
    if sum(1 for line in inside if line.strip() and not line.lstrip().startswith("#")) < MIN_LINES:
        return None
    return strip_indent([kept[n] for n in sorted(kept)])


def _iter_statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases directly within one; expressions hold none of them."""
    return chain.from_iterable(getattr(node, name, ()) for name in _BLOCKS)


def _walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    for inner in _iter_statements(node):
        yield inner
        yield from _walk_statements(inner)


def _is_separable(docstring: ast.stmt, lines: list[str]) -> bool:
    first, last = lines[docstring.lineno - 1], lines[(docstring.end_lineno or 1) - 1]
    # ast counts columns in bytes of UTF-8.
    before = first.encode()[: docstring.col_offset].strip()
    after = last.encode()[docstring.end_col_offset :].strip()
    return not before and (not after or after.startswith(b"#"))


if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@dataclass(frozen=True, kw_only=True)
class _Grammar:
    """What matters of a grammar.

    Attributes:
        functions: The types of functions.
        comment: The start of a documentation comment.
        scopes: The types that qualify the names inside them, with the field of their own name.
        statements: The types of statements whose documentation and source are those of the function in them.
    """

    functions: frozenset[str]
    comment: re.Pattern[str]
    scopes: Mapping[str, str] = field(default_factory=dict)
    statements: frozenset[str] = frozenset()


_GRAMMARS = {
    "javascript": _Grammar(
        functions=frozenset(
            {
                "function_declaration",
                "generator_function_declaration",
                "method_definition",
                "function_expression",
                "generator_function",
                "arrow_function",
            }
        ),
        comment=re.compile(r"/\*\*(?!/)"),
        scopes={"class_declaration": "name", "class": "name"},
        statements=frozenset(
            {
                "variable_declarator",
                "lexical_declaration",
                "variable_declaration",
                "pair",
                "assignment_expression",
                "expression_statement",
                "export_statement",
                "field_definition",
            }
        ),
    ),
    "java": _Grammar(
        functions=frozenset({"method_declaration"}),
        comment=re.compile(r"/\*\*(?!/)"),
        scopes=dict.fromkeys(
            ("class_declaration", "interface_declaration", "enum_declaration", "record_declaration"), "name"
        ),
    ),
    "go": _Grammar(
        functions=frozenset({"function_declaration", "method_declaration"}),
        comment=re.compile(r"//(?![a-z0-9]+:[a-z0-9]|nolint|export )|/\*"),
    ),
    "rust": _Grammar(
        functions=frozenset({"function_item"}),
        comment=re.compile(r"///(?!/)|/\*\*(?![*/])|#\[doc\s*="),
        scopes={"impl_item": "type", "trait_item": "name", "mod_item": "name"},
    ),
    "cpp": _Grammar(
        functions=frozenset({"function_definition"}),
        comment=re.compile(r"//[/!](?![/<])|/\*[*!](?![/<])"),
        scopes=dict.fromkeys(
            ("class_specifier", "struct_specifier", "union_specifier", "namespace_definition"), "name"
        ),
        statements=frozenset({"template_declaration", "friend_declaration"}),
    ),
}

_COMMENTS = frozenset({"comment", "line_comment", "block_comment", "attribute_item"})


@functools.cache
def is_installed(language: str) -> bool:
    """Whether the grammar of a language, and tree-sitter, can be imported."""
    try:
        _load_parser(language)
    except ImportError:
        return False
    return True


@functools.cache
def _load_parser(language: str) -> Parser:
    from tree_sitter import Language, Parser

    return Parser(Language(importlib.import_module(f"tree_sitter_{language}").language()))


def parse_functions(data: bytes, path: str, language: str) -> Iterator[Function]:
    """The functions and methods of a file whose body has three lines, in its order.

    Code is the statement that defines the function. Inner functions belong to the outer ones; constructors,
    destructors, operators, tests and what the grammar cannot parse are left out. Of functions of one name
    the second is `name~2`.

    Args:
        data: The bytes of the file.
        path: Its path below the folder, which is the functions' module.
        language: A name in LANGUAGES other than "python".

    Raises:
        UnreadableError: The file is not UTF-8, or a program wrote it.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UnreadableError("cannot be parsed") from None
    require_written(text)
    count: Counter[str] = Counter()
    file = _File(source=text.encode(), language=language)
    for name, node in file.find_definitions():
        count[name] += 1
        statement = file.find_statement(node)
        code = file.extract_statement_code(statement)
        docstring = extract_summary(_extract_documentation(file.collect_comments(statement))) or ""
        yield Function(
            name=name if count[name] == 1 else f"{name}~{count[name]}",
            module=path,
            docstring="" if normalize_text(docstring) in normalize_text(code) else docstring,
            code=code,
            language=language,
        )


_MACRO = re.compile(
    rb"\b[A-Z][A-Z0-9]*_[A-Z0-9_]*\b(?=\s+[A-Za-z_~\[])|(?<=\bif )[A-Z][A-Z0-9]*_[A-Z0-9_]*(?= \()"
)
"""Macros before a declaration or a condition, which stop the grammar of C++."""


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file of one language."""

    source: bytes
    language: str

    @property
    def grammar(self) -> _Grammar:
        """The grammar of its language."""
        return _GRAMMARS[self.language]

    def get_node_text(self, node: Node) -> str:
        """The source of a node."""
        return self.source[node.start_byte : node.end_byte].decode()

    def find_definitions(self) -> Iterator[tuple[str, Node]]:
        """The functions that are searched for, with their qualified names, in the order of the file."""
        source = self.source
        if self.language == "cpp":
            # Blanks of the same length: nodes keep their places in the source.
            source = _MACRO.sub(lambda macro: b" " * len(macro.group()), source)
        # A stack in place of recursion, as code can be nested deeper than Python allows calls.
        left = [(_load_parser(self.language).parse(source).root_node, "")]
        while left:
            node, scope = left.pop()
            name = self._find_function_name(node) if node.type in self.grammar.functions else None
            if name is not None:
                if self._is_searched(node, f"{scope}{name}"):
                    yield f"{scope}{name}", node
            elif not (node.type == "mod_item" and self._is_rust_test(node)):
                name_field = self.grammar.scopes.get(node.type)
                named = node.child_by_field_name(name_field) if name_field else None
                scope += f"{self._strip_type_arguments(named)}." if named is not None else ""
                # Reversed, since the last one is taken first.
                left += [(child, scope) for child in reversed(node.named_children)]

    def _is_searched(self, node: Node, name: str) -> bool:
        *around, base_name = name.split(".")
        body = node.child_by_field_name("body")
        return not (
            body is None
            or node.has_error
            or not is_wanted(base_name)
            or base_name == ("constructor" if self.language == "javascript" else "")
            or (self.language == "cpp" and around[-1:] == [base_name])
            or (self.language == "rust" and self._is_rust_test(node))
            or self._count_code_lines(body) < MIN_LINES
        )

    def _count_code_lines(self, body: Node) -> int:
        """The number of lines of a body that hold a word and are not a comment."""
        lines = (line.strip() for line in self.get_node_text(body).strip("{}").split("\n"))
        return sum(bool(re.search(r"\w", line)) and not line.startswith(("//", "/*", "*")) for line in lines)

    def _is_rust_test(self, node: Node) -> bool:
        above = node.prev_named_sibling
        while above is not None and above.type in _COMMENTS:
            if above.type == "attribute_item" and re.search(r"\btest\b", self.get_node_text(above)):
                return True
            above = above.prev_named_sibling
        return False

    def _find_function_name(self, node: Node) -> str | None:
        """A function's name, with what its own signature qualifies it by; None without one."""
        if self.language == "javascript":
            return self._find_javascript_name(node)
        if self.language == "cpp":
            return self._find_cpp_name(node)
        named, receiver = node.child_by_field_name("name"), node.child_by_field_name("receiver")
        name = self.get_node_text(named) if named is not None else None
        receiver_type = (
            re.search(r"(\w+)\s*(\[[^]]*\])?\s*\)$", self.get_node_text(receiver))
            if receiver is not None
            else None
        )
        return f"{receiver_type.group(1)}.{name}" if receiver_type and name else name

    def _find_javascript_name(self, node: Node) -> str | None:
        """The name that a function is given, else its own."""
        if (parent := node.parent) is not None:
            for name_field in ("name", "left", "key", "property"):
                named = parent.child_by_field_name(name_field)
                value = parent.child_by_field_name("right" if name_field == "left" else "value")
                if (
                    named is not None
                    and value == node
                    and re.fullmatch(r"[\w$.#]+", self.get_node_text(named))
                ):
                    return re.sub(r"^(module\.)?exports\.", "", self.get_node_text(named))
        name_node = node.child_by_field_name("name")
        return None if name_node is None else self.get_node_text(name_node)

    def _find_cpp_name(self, node: Node) -> str | None:
        inner: Node | None = node
        while inner is not None and inner.type != "function_declarator":
            inner = inner.child_by_field_name("declarator") or next(
                (child for child in inner.named_children if child.type.endswith("_declarator")), None
            )
        name = inner.child_by_field_name("declarator") if inner is not None else None
        plain = self._strip_type_arguments(name) if name is not None else ""
        return plain if re.fullmatch(r"[\w.]*\w", plain) else None  # an operator or a destructor

    def _strip_type_arguments(self, named: Node) -> str:
        """A name without arguments of types, its parts with dots between them."""
        text = self.get_node_text(named)
        # From the inside out: one expression cannot match nested brackets.
        while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
            text = shorter
        return re.sub(r"\s*::\s*", ".", text.strip().lstrip("&").strip())

    def find_statement(self, node: Node) -> Node:
        """The statement that defines a function and nothing else."""
        while (parent := node.parent) is not None and parent.type in self.grammar.statements:
            if sum(child.type == "variable_declarator" for child in parent.named_children) > 1:
                break
            node = parent
        return node

    def extract_statement_code(self, statement: Node) -> str:
        """The source of a statement, not indented."""
        before = self.source[: statement.start_byte].rpartition(b"\n")[2].decode()
        return strip_indent(
            (
                before + self.get_node_text(statement)
                if not before.strip()
                else self.get_node_text(statement)
            ).split("\n")
        )

    def collect_comments(self, statement: Node) -> str:
        """The documentation comments above a statement, without their markers."""
        if self.language == "javascript":
            statement = _call(statement) or statement
        comments: list[str] = []
        row, above = statement.start_point.row, statement.prev_sibling
        while above is not None and above.type in _COMMENTS:
            text = self.get_node_text(above)
            if row - above.end_point.row > (2 if text.startswith("/*") and self.language != "go" else 1):
                break
            if self.grammar.comment.match(text):
                comments.append(_strip_comment_markers(text))
            elif above.type != "attribute_item":
                break
            row, above = above.start_point.row, above.prev_sibling
        return "\n".join(reversed(comments))


def _call(node: Node) -> Node | None:
    """The statement that calls another function with this one as its last argument."""
    arguments = node.parent
    if arguments is None or arguments.type != "arguments" or arguments.named_children[-1] != node:
        return None
    call = arguments.parent
    statement = call.parent if call is not None else None
    return statement if statement is not None and statement.type == "expression_statement" else None


def _strip_comment_markers(comment: str) -> str:
    r"""The text of a comment or of Rust's #[doc].

    >>> _strip_comment_markers("/** Adds\n  * both. */")
    'Adds\nboth. '
    >>> _strip_comment_markers("/// Adds both."), _strip_comment_markers('#[doc = "Adds both."]')
    ('Adds both.', 'Adds both.')
    """
    if comment.startswith("#"):
        return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', comment, re.DOTALL))
    if comment.startswith("//"):
        return re.sub(r"^//[/!]? ?", "", comment).rstrip("\n")
    inside = re.sub(r"^/\*[*!]*|\*+/$", "", comment)
    return "\n".join(re.sub(r"^\s*\*? ?", "", line) for line in inside.split("\n"))


_BEGINS = re.compile(r"^\s*[@\\](brief|description|desc|summary|short)\b:?\s*")
_TAG = re.compile(r"^\s*[@\\][A-Za-z]")
_INLINE = re.compile(r"\{@\w+\s*([^{}]*)\}")
_HTML = re.compile(
    r"</?(b|i|em|strong|code|tt|pre|ul|ol|li|a|h\d|blockquote|table|tr|td|div|span)\b[^>]*>", re.I
)


def _extract_documentation(text: str) -> str:
    r"""A documentation comment's own text: no block tags, HTML or inline tags.

    >>> _extract_documentation("@brief Adds {@code a} <b>and</b> b.\n@param a one\n  of both")
    'Adds a and b.'
    """
    kept: list[str] = []
    in_tag = False
    text = re.sub(r"<(p|br)\s*/?>", "\n\n", text, flags=re.I)
    for line in html.unescape(_HTML.sub("", _INLINE.sub(r"\1", text))).split("\n"):
        begins = _BEGINS.match(line)
        in_tag = not begins and bool(_TAG.match(line) or (in_tag and line.strip()))
        if in_tag and any(one.strip() for one in kept):
            break
        if not in_tag:
            kept.append(line[begins.end() :] if begins else line)
    return "\n".join(kept)
