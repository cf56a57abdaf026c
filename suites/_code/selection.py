"""Selection of functions: which are searched for, how their names are hidden, and duplicates.

Functions are chosen by the rules of CodeSearchNet (Husain et al. 2019, arXiv:1909.09436, section 2): the
summary is the documentation's first paragraph; pairs whose summary has fewer than three words, whose body has
fewer than three lines, whose name contains "test", or whose function is a constructor or another special
method are left out, and so are duplicates. No code holds its own summary. Of CodeXGLUE's rules the longest
summary (256 words), code that parses, and `Func` in place of a name are taken over.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MIN_WORDS, MAX_WORDS = 3, 256
MIN_LINES = 3

NEUTRAL = "Func"
"""The word in place of a function's own name, as in CodeXGLUE's AdvTest (Lu et al. 2021)."""

_URL = re.compile(r"\b(https?|ftp)://\S+")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_MARKUP = re.compile(r"\s*(>>>|[:@](param|type|arg|returns?|rtype|raises?|yields?)\b)")
_STRING = r"""`(?:\\.|[^`\\])*`|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
_ASIDE = {
    True: re.compile(rf'#[^\n]*|"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|{_STRING}', re.DOTALL),
    False: re.compile(rf"//[^\n]*|/\*.*?\*/|{_STRING}", re.DOTALL),
}
"""Comments and strings, of Python and of languages with braces."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function or method: its place, the first paragraph of its documentation, and its source.

    `name` is qualified within `module`, which is dotted in Python and a path elsewhere, relative to the
    folder. `docstring` is on one line, "" without documentation; `code` holds none of it.
    """

    name: str
    module: str
    docstring: str
    code: str
    language: str = "python"

    @property
    def id(self) -> str:
        """The id of the function in a data set, e.g. "asyncio.queues:Queue.get"."""
        return f"{self.module}:{self.name}"

    @property
    def first(self) -> str:
        """The id of the first function of this name in the file."""
        return _REPEATED.sub("", self.id)

    @property
    def own(self) -> str:
        """The name without those of the classes and modules around it."""
        return _REPEATED.sub("", self.name).rpartition(".")[2].lstrip("#")

    @property
    def package(self) -> tuple[str, ...]:
        """The names of the folders and the module that the function is in."""
        if self.language == "python":
            return tuple(self.module.split("."))
        folder, _, file = self.module.rpartition("/")
        return (*(folder.split("/") if folder else ()), file.partition(".")[0])

    @functools.cached_property
    def hidden(self) -> str:
        """The code with `Func` wherever the function's own name is an identifier.

        In comments and strings a name is replaced only if it cannot be a plain word, as `get_json` and
        `toJson` cannot.
        """
        word = re.compile(rf"(?<![\w$]){re.escape(self.own)}(?![\w$])")
        if _is_compound(self.own):
            return word.sub(NEUTRAL, self.code)
        parts, end = [], 0
        for aside in _ASIDE[self.language == "python"].finditer(self.code):
            parts += [word.sub(NEUTRAL, self.code[end : aside.start()]), aside.group()]
            end = aside.end()
        return "".join([*parts, word.sub(NEUTRAL, self.code[end:])])

    @functools.cached_property
    def marks(self) -> set[tuple[str, str]]:
        """The marks that no two functions of a data set share: id, words of the documentation, and code."""
        name_pattern = re.compile(rf"\b{re.escape(self.own)}\b")
        words = " ".join(re.findall(r"\w+", self.docstring.casefold()))
        base_marks = {("id", self.id), ("code", normalize_text(name_pattern.sub("_", self.code)))}
        return base_marks | {("docstring", words)} if self.docstring else base_marks


_REPEATED = re.compile(r"~\d+$")
"""The number behind a name that a module has more than once."""


def _is_compound(name: str) -> bool:
    """Whether a name is more than a plain word.

    >>> _is_compound("get_json"), _is_compound("toJson"), _is_compound("get"), _is_compound("_Get")
    (True, True, False, False)
    """
    return bool(re.search(r"[^_]_+[^_]|[a-z0-9][A-Z]|\d", name))


def is_wanted(name: str) -> bool:
    """Whether a function of this name is neither a test nor a special method."""
    special = name.startswith("__") and name.endswith("__")
    return not special and "test" not in name.lower()


def extract_summary(docstring: str) -> str | None:
    r"""The first paragraph of a docstring on one line, or None if it is not an English sentence.

    It ends at the first blank line, doctest or field list. At least three words of Latin letters are needed
    beside any addresses, most characters must be ASCII, and it must not start with a call, as "pop([index])
    -> item" does.

    >>> extract_summary("Give the sum of two numbers.\n\nBoth may be negative.")
    'Give the sum of two numbers.'
    >>> extract_summary("See https://example.org/a/b/c/d") is None
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


def strip_indent(lines: Sequence[str]) -> str:
    """Lines of code without the indentation of the first and without blanks at their ends."""
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return "\n".join(line.removeprefix(indent).rstrip() for line in lines)


def normalize_text(text: str) -> str:
    """A text in one case with single blanks."""
    return " ".join(text.casefold().split())


def drop_duplicates(functions: Iterable[Function]) -> Iterator[Function]:
    """The first function of every id, docstring and code; its own name does not tell code apart."""
    seen: set[tuple[str, str]] = set()
    for function in functions:
        marks = function.marks
        if not marks & seen:
            yield function
            seen |= marks


def order_docstrings(functions: Iterable[Function]) -> list[Function]:
    """The functions in the order of their docstrings' hashes, which does not depend on the files."""
    return sorted(functions, key=lambda f: (_hash(f.docstring), f.id))


def order_code(functions: Iterable[Function]) -> list[Function]:
    """The functions in the order of their code's hashes, which says nothing about their documentation."""
    return sorted(functions, key=lambda f: (_hash(f.code), f.id))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


ALIKE = 0.8
"""The share of common shingles (Jaccard) from which two functions are near-duplicates."""

SHINGLE = 3
"""Tokens of a shingle."""

_BANDS, _ROWS = 32, 4
"""Of a MinHash of 128 values: a pair at the threshold is a candidate with a probability of 1 - 5e-8."""


def select_distinct(functions: Iterable[Function], limit: int) -> tuple[list[Function], dict[str, str]]:
    """Select functions, up to `limit`, so that no two are near-duplicates; the first of each group stays.

    Candidates come from MinHash signatures, seeded, of shingles of three tokens, names hidden; then their
    exact Jaccard similarity decides.

    Returns:
        The functions that stay; and for each other one, by its id, the id of its near-duplicate that stays.
    """
    from datasketch import MinHash, MinHashLSH

    # The numbers of bands and rows are given: datasketch would otherwise look for a balance of its own.
    index = MinHashLSH(num_perm=_BANDS * _ROWS, params=(_BANDS, _ROWS))
    # Copied for each function, as a new one would draw its permutations again.
    empty = MinHash(num_perm=_BANDS * _ROWS, seed=1)
    kept: list[Function] = []
    shingles: list[frozenset[bytes]] = []
    twins: dict[str, str] = {}
    for function in functions:
        if len(kept) == limit:
            break
        mine, signature = _extract_shingles(function.hidden), empty.copy()
        signature.update_batch(mine)
        # Sorted, since an index gives its matches in any order: the first function counts.
        twin = next(
            (at for at in sorted(index.query(signature)) if _is_near_duplicate(mine, shingles[at])), None
        )
        if twin is None:
            index.insert(len(kept), signature)
            kept.append(function)
            shingles.append(mine)
        else:
            twins[function.id] = kept[twin].id
    return kept, twins


def _extract_shingles(code: str) -> frozenset[bytes]:
    tokens = [token.encode() for token in re.findall(r"\w+|[^\w\s]", code)]
    starts = range(max(1, len(tokens) - SHINGLE + 1))
    return frozenset(b" ".join(tokens[start : start + SHINGLE]) for start in starts)


def _is_near_duplicate(first: frozenset[bytes], second: frozenset[bytes]) -> bool:
    # Jaccard without a union: |A ∩ B| / (|A| + |B| − |A ∩ B|) ≥ ALIKE.
    common = len(first & second)
    return common >= ALIKE * (len(first) + len(second) - common)
