"""Tasks from Python source: code search, and docstrings classified or clustered by their package.

Functions are chosen by the rules of CodeSearchNet (Husain et al. 2019, arXiv:1909.09436, section 2): the
summary is the docstring's first paragraph; pairs whose summary has fewer than three words, whose body has
fewer than three lines, whose name contains "test", or whose function is a constructor or another special
method are left out, and so are duplicates. Two things differ: duplicates are exact ones (up to case, blanks
and the function's own name) where CodeSearchNet also drops near ones, and every docstring inside the code is
removed, so that no code holds its own summary. Of CodeXGLUE's rules the longest summary (256 words) and code
that parses are taken over.

Samples are drawn by the hash of each docstring, so the same source gives the same tasks on every machine, and
two versions of one code base give samples that mostly agree.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import re
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import DataError
from suites._content import Clusters, Content, Document, Labelled, Query, Retrieval, Row, content_hash
from suites._tables import is_readable_folder

MIN_WORDS, MAX_WORDS = 3, 256
MIN_LINES = 3

_URL = re.compile(r"\b(https?|ftp)://\S+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_MARKUP = re.compile(r"\s*(>>>|[:@](param|type|arg|returns?|rtype|raises?|yields?)\b)")

_Def = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class _Function:
    """A function or method: its place, the first paragraph of its docstring, and its source.

    `name` is qualified within `module`, which is dotted and relative to the folder. `docstring` is on one
    line; `code` starts with decorators and signature and holds no docstring.
    """

    name: str
    module: str
    docstring: str
    code: str

    @property
    def id(self) -> str:
        """The id of the function in a data set, e.g. "asyncio.queues:Queue.get"."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The functions of a folder, the unused files by reason, and the folders that could not be entered."""

    functions: tuple[_Function, ...]
    files: int
    skipped: Mapping[str, int]
    closed: tuple[str, ...] = ()


def _scan(root: Path, *, include_tests: bool = False) -> _Source:
    """Read every Python file below `root`.

    Tests, installed packages, virtual environments, build results and hidden folders are passed over; files
    over 1 MB, files that this interpreter cannot parse, and folders that this user cannot enter are counted.
    """
    if not is_readable_folder(root):
        raise DataError(f"{root} is not a folder.", hint="Give the folder that holds the Python source.")
    functions: list[_Function] = []
    skipped: Counter[str] = Counter()
    found = python_files(root, include_tests=include_tests)
    if "." in found.closed:
        raise DataError(f"{root}: Permission denied.")
    for path in found.files:
        try:
            functions += _functions(_read(root / path), _module(path))
        except _SkippedFileError as reason:
            skipped[str(reason)] += 1
    return _Source(
        functions=tuple(_without_duplicates(functions)),
        files=len(found.files),
        skipped=dict(skipped),
        closed=found.closed,
    )


def _module(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _functions(text: str, module: str) -> Iterator[_Function]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in files that are not ours
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _SkippedFileError("cannot be parsed") from None
    lines = text.split("\n")
    for name, node in _definitions(tree):
        docstring = _summary(ast.get_docstring(node) or "")
        code = _code(lines, node) if docstring and _is_wanted(node.name) else None
        if docstring and code and _flat(docstring) not in _flat(code):
            yield _Function(name=name, module=module, docstring=docstring, code=code)


def _definitions(parent: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Def]]:
    """Functions and methods with their qualified names; inner functions belong to the outer ones."""
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


def _summary(docstring: str) -> str | None:
    r"""The first paragraph of a docstring on one line, or None if it is no English sentence.

    It ends at the first blank line, doctest or field list. At least three words of Latin letters are needed
    beside any addresses, most characters must be ASCII, and it must not start with a call, as "pop([index])
    -> item" does.

    >>> _summary("Give the sum of two numbers.\n\nBoth may be negative.")
    'Give the sum of two numbers.'
    >>> _summary("See https://example.org/a/b/c/d") is None
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


def _without_duplicates(functions: list[_Function]) -> Iterator[_Function]:
    """The first function of every id, docstring and code; its own name does not tell code apart."""
    seen: set[tuple[str, str]] = set()
    for f in functions:
        own = re.compile(rf"\b{re.escape(f.name.rpartition('.')[2])}\b")
        words = " ".join(re.findall(r"\w+", f.docstring.casefold()))
        marks = {("id", f.id), ("docstring", words), ("code", _flat(own.sub("_", f.code)))}
        if not marks & seen:
            yield f
            seen |= marks


MAX_BYTES = 1_000_000

_TESTS = frozenset({"test", "tests", "idle_test"})
_INSTALLED = frozenset({"site-packages", "dist-packages", "__pycache__"})
_BUILT = frozenset({"build", "dist", "venv", "env", "node_modules"})
_TEST_FILE = re.compile(r"(test_.*|.*_test|tests?|conftest)\.py")


class _SkippedFileError(Exception):
    """An error for a file that gives no functions; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class _SourceFiles:
    """Sorted relative paths of files, and of folders that may not be entered ("." is the root)."""

    files: tuple[str, ...]
    closed: tuple[str, ...] = ()


def python_files(root: Path, *, include_tests: bool = False) -> _SourceFiles:
    """The Python files below `root`, without tests, installed packages and build results."""
    files: list[str] = []
    closed: list[str] = []

    def refused(error: OSError) -> None:
        closed.append(Path(error.filename).relative_to(root).as_posix())

    for folder, names, here in os.walk(root, onerror=refused):
        if not os.access(folder, os.X_OK):  # listed, but not reachable
            refused(PermissionError(0, "", folder))
            names.clear()
            continue
        names[:] = [name for name in names if _enters(Path(folder, name), include_tests)]
        paths = [Path(folder, name) for name in here if _is_read(name, include_tests)]
        files += [path.relative_to(root).as_posix() for path in paths if os.path.isfile(path)]
    return _SourceFiles(files=tuple(sorted(files)), closed=tuple(sorted(closed)))


def _read(path: Path) -> str:
    """The text of a Python file, in the encoding that it declares."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _SkippedFileError("larger than 1 MB")
        with tokenize.open(path) as file:
            return file.read()
    except OSError:
        raise _SkippedFileError("cannot be read") from None
    except (SyntaxError, ValueError, LookupError):  # an unknown encoding, or not a text encoding
        raise _SkippedFileError("cannot be parsed") from None


def _is_read(name: str, include_tests: bool) -> bool:
    return name.endswith(".py") and (include_tests or not _TEST_FILE.fullmatch(name))


def _enters(folder: Path, include_tests: bool) -> bool:
    name = folder.name
    if name.startswith(".") or name in _INSTALLED or os.path.exists(folder / "pyvenv.cfg"):
        return False
    if name in _BUILT and not os.path.exists(folder / "__init__.py"):  # a package may be called venv
        return False
    return include_tests or name not in _TESTS


PARTS = ("search", "classification", "clustering")
"""The tasks that a folder of source may give."""

MIN_PAIRS = 10
MAX_CODE = 1500
"""Most characters of a searched function: about what an encoder of 512 tokens sees whole."""


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The tasks of a folder of source, notes on those that are missing, and known content hashes by part."""

    search: Retrieval
    classification: Labelled | None
    clustering: Clusters | None
    notes: tuple[str, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    def content(self, part: str) -> Content | None:
        """The data of a part: search, classification or clustering."""
        found: Content | None = getattr(self, part)
        return found

    def hash(self, part: str) -> str:
        """The content hash of a part that is there."""
        content = self.content(part)
        assert content is not None
        return self.hashes.get(part) or content_hash(content)


def build(root: Path) -> Tasks:
    """Build every task that the Python source below `root` is large enough for.

    Raises:
        DataError: Not even code search can be made.
    """
    source = _scan(root)
    notes = _left_out(source)
    try:
        search = _code_search(source.functions)
        topics = _docstring_topics(source.functions)
    except _TooFewLabels as error:
        notes.append(f"No classification and no clustering: {error.message}")
        return Tasks(search=search, classification=None, clustering=None, notes=tuple(notes))
    except DataError as error:
        read = " ".join([f"{source.files} Python files were read.", *notes])
        raise DataError(f"{root}: {error.message} {read}", hint=error.hint) from None
    return Tasks(
        search=search,
        classification=_classification(topics),
        clustering=_clustering(topics),
        notes=tuple(notes),
    )


def _left_out(source: _Source) -> list[str]:
    notes = [f"{count} of {source.files} files: {reason}." for reason, count in source.skipped.items()]
    if source.closed:
        more = f" (and {len(source.closed) - 1} more)" if len(source.closed) > 1 else ""
        notes.append(f"The folder {source.closed[0]}{more} may not be entered: left out.")
    return notes


def _code_search(functions: Iterable[_Function], *, limit: int = 1000, corpus: int = 1250) -> Retrieval:
    """The task of finding the function of a docstring, as in CodeSearchNet.

    Documents are functions from their decorators and signature on, name included, as CodeSearchNet has them:
    a name that repeats the docstring's words makes a query easier. Functions of more than 1,500 characters
    are left out. `corpus` functions are documents, the first `limit` of them queries as well.
    """
    found = tuple(functions)
    short = [f for f in found if len(f.code) <= MAX_CODE]
    if len(short) < MIN_PAIRS:
        raise DataError(
            f"{len(found)} documented functions were found, {len(short)} of them short enough to search "
            f"(up to {MAX_CODE} characters); code search needs at least {MIN_PAIRS}.",
            hint="A function counts if it has a docstring of three words and a body of three lines, "
            "is no special method and has no 'test' in its name.",
        )
    kept = _shuffled(short)[: max(corpus, limit)]
    asked = kept[:limit]
    return Retrieval(
        documents=tuple(Document(id=f.id, text=f.code) for f in kept),
        queries=tuple(Query(id=_name(f), text=f.docstring) for f in asked),
        qrels={_name(f): {f.id: 1} for f in asked},
    )


def stdlib_revision() -> str:
    """The version of the standard library, e.g. "python-3.11.7"."""
    return f"python-{platform.python_version()}"


MIN_DOCSTRINGS, MAX_LABELS, ENOUGH_LABELS = 20, 20, 5
TRAIN, TEST, GROUP = 16, 50, 50
"""Most docstrings of a label for training, for testing, and for clustering."""

Topics = Mapping[str, Sequence[_Function]]
"""The documented functions of each package, in the order of their docstrings' hashes."""


class _TooFewLabels(DataError):
    """An error for fewer than two packages with enough docstrings."""


def _docstring_topics(functions: Iterable[_Function], *, at_least: int = MIN_DOCSTRINGS) -> Topics:
    """The 20 largest packages, at the first level of nesting with several of them.

    The standard library has many top-level packages, a repository often only its own: then its subpackages
    are the labels.
    """
    best = _best([*functions], at_least)
    if len(best) < 2:
        raise _TooFewLabels(
            f"of the packages and modules, {len(best)} have at least {at_least} docstrings; two are needed."
        )
    largest = sorted(best, key=lambda label: (-len(best[label]), label))[:MAX_LABELS]
    return {label: _shuffled(best[label]) for label in largest}


def _classification(found: Topics) -> Labelled:
    """Telling a docstring's package: up to 16 and at most half of each for training, up to 50 for testing."""
    learnt = {label: group[: min(TRAIN, len(group) // 2)] for label, group in found.items()}
    asked = {label: group[len(learnt[label]) :][:TEST] for label, group in found.items()}
    return Labelled(train=tuple(_rows(learnt)), test=tuple(_rows(asked)))


def _clustering(found: Topics) -> Clusters:
    """The task of grouping docstrings by package, up to 50 of each."""
    return Clusters(rows=tuple(_rows({label: group[:GROUP] for label, group in found.items()})))


def _name(function: _Function) -> str:
    """The id of a function's docstring; some evaluators drop a document with the same id as the query."""
    return f"{function.id}.__doc__"


def _shuffled(functions: Iterable[_Function]) -> Sequence[_Function]:
    """The functions in the order of their docstrings' hashes, which does not depend on the files."""
    return sorted(functions, key=lambda f: (hashlib.sha256(f.docstring.encode()).hexdigest(), f.id))


def _best(functions: Sequence[_Function], at_least: int) -> Topics:
    best: Topics = {}
    for depth in range(1, 5):
        groups: defaultdict[str, list[_Function]] = defaultdict(list)
        for function in functions:
            groups[".".join(function.module.split(".")[:depth])].append(function)
        large = {label: group for label, group in groups.items() if len(group) >= at_least}
        best = large if len(large) > len(best) else best
        if len(best) >= ENOUGH_LABELS:
            break
    return best


def _rows(groups: Topics) -> Iterator[Row]:
    labels = {f.id: label for label, group in groups.items() for f in group}
    for function in _shuffled([f for group in groups.values() for f in group]):
        yield Row(id=_name(function), text=function.docstring, label=labels[function.id])
