"""Tasks made from Python source: code search, and telling docstrings apart by their package."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import DataError
from suites import _docstrings
from suites._data import Clusters, Content, Document, Labelled, Query, Retrieval, content_hash
from suites._functions import Function, Source, scan

PARTS = ("search", "classification", "clustering")
"""The tasks that source may give."""

MIN_PAIRS = 10
MAX_CODE = 1500
"""Characters of the longest function searched: about what an encoder of 512 tokens sees whole."""


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """What one folder of source gives; `notes` say what could not be made and why.

    `hashes` are the content hashes of its parts by name, as far as they are known.
    """

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
    """Every task that the Python source below `root` is enough for.

    Raises:
        DataError: If not even code search can be made.
    """
    source = scan(root)
    notes = _left_out(source)
    try:
        search = code_search(source.functions)
        topics = _docstrings.topics(source.functions)
    except _docstrings.TooFewLabels as error:
        notes.append(f"No classification and no clustering: {error.message}")
        return Tasks(search=search, classification=None, clustering=None, notes=tuple(notes))
    except DataError as error:
        read = " ".join([f"{source.files} Python files were read.", *notes])
        raise DataError(f"{root}: {error.message} {read}", hint=error.hint) from None
    return Tasks(
        search=search,
        classification=_docstrings.classification(topics),
        clustering=_docstrings.clustering(topics),
        notes=tuple(notes),
    )


def _left_out(source: Source) -> list[str]:
    notes = [f"{count} of {source.files} files: {reason}." for reason, count in source.skipped.items()]
    if source.closed:
        more = f" (and {len(source.closed) - 1} more)" if len(source.closed) > 1 else ""
        notes.append(f"The folder {source.closed[0]}{more} may not be entered: left out.")
    return notes


def code_search(functions: Iterable[Function], *, limit: int = 1000, corpus: int = 1250) -> Retrieval:
    """Find the function that a docstring belongs to, as in CodeSearchNet.

    Documents are functions from their decorators and signature on, name included, as CodeSearchNet
    has them: a name that repeats the docstring's words makes a query easier. Functions of more than
    1,500 characters are left out. `corpus` functions are kept, and the first `limit` are asked for.
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
    kept = _docstrings.shuffled(short)[: max(corpus, limit)]
    asked = kept[:limit]
    return Retrieval(
        documents=tuple(Document(id=f.id, text=f.code) for f in kept),
        queries=tuple(Query(id=_docstrings.name(f), text=f.docstring) for f in asked),
        qrels={_docstrings.name(f): {f.id: 1} for f in asked},
    )


def stdlib_root() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def stdlib_revision() -> str:
    """Which standard library that is, e.g. "python-3.11.7"."""
    return f"python-{platform.python_version()}"
