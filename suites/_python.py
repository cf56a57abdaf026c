"""Tasks made from Python source: code search, and telling docstrings apart by their package.

What is found is thinned out by the hash of each docstring, so the same source gives the same
tasks on every machine, and two versions of one code base give samples that mostly agree.
"""

from __future__ import annotations

import hashlib
import platform
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataError
from suites._data import Clusters, Document, Labelled, Query, Retrieval, Row
from suites._functions import Function, Source, extract, scan

__all__ = [
    "Function",
    "Source",
    "Tasks",
    "build",
    "code_search",
    "docstring_classification",
    "docstring_clustering",
    "extract",
    "scan",
    "stdlib_revision",
    "stdlib_root",
]

MIN_PAIRS = 10
MAX_CODE = 1500
"""Characters of the longest function searched: about what an encoder of 512 tokens sees whole."""

MIN_DOCSTRINGS, MAX_LABELS, ENOUGH_LABELS = 20, 20, 5


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """What one folder of source gives; `notes` say what could not be made and why."""

    search: Retrieval
    classification: Labelled | None
    clustering: Clusters | None
    notes: tuple[str, ...] = ()


def build(root: Path) -> Tasks:
    """Every task that the Python source below `root` is enough for.

    Raises:
        DataError: If not even code search can be made.
    """
    source = scan(root)
    notes = [f"{count} of {source.files} files: {reason}." for reason, count in source.skipped.items()]
    try:
        search = code_search(source.functions)
        topics = _topics(source.functions, at_least=MIN_DOCSTRINGS)
    except _TooFewLabels as error:
        notes.append(f"No classification and no clustering: {error.message}")
        return Tasks(search=search, classification=None, clustering=None, notes=tuple(notes))
    except DataError as error:
        read = " ".join([f"{source.files} Python files were read.", *notes])
        raise DataError(f"{root}: {error.message} {read}", hint=error.hint) from None
    return Tasks(
        search=search,
        classification=_classification(topics, train=16, test=50),
        clustering=_clustering(topics, per_label=50),
        notes=tuple(notes),
    )


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
    kept = _shuffled(short)[: max(corpus, limit)]
    asked = kept[:limit]
    return Retrieval(
        documents=tuple(Document(id=f.id, text=f.code) for f in kept),
        queries=tuple(Query(id=_query_id(f), text=f.docstring) for f in asked),
        qrels={_query_id(f): {f.id: 1} for f in asked},
    )


def docstring_classification(
    functions: Iterable[Function], *, at_least: int = MIN_DOCSTRINGS, train: int = 16, test: int = 50
) -> Labelled:
    """Tell from a docstring which package it is from.

    Labels are the 20 largest packages with at least `at_least` docstrings. Of each, half of the
    docstrings but no more than `train` are for training, and up to `test` others for testing.

    Raises:
        DataError: If there are fewer than two such packages.
    """
    return _classification(_topics(functions, at_least=at_least), train=train, test=test)


def docstring_clustering(
    functions: Iterable[Function], *, at_least: int = MIN_DOCSTRINGS, per_label: int = 50
) -> Clusters:
    """Group docstrings by package: the labels of the classification, up to `per_label` of each.

    Raises:
        DataError: If there are fewer than two packages with `at_least` docstrings.
    """
    return _clustering(_topics(functions, at_least=at_least), per_label=per_label)


def stdlib_root() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def stdlib_revision() -> str:
    """Which standard library that is, e.g. "python-3.11.7"."""
    return f"python-{platform.python_version()}"


class _TooFewLabels(DataError):
    pass


def _topics(functions: Iterable[Function], *, at_least: int) -> Mapping[str, Sequence[Function]]:
    """The largest packages at the first level of nesting where there are several.

    The standard library has many top-level packages, a repository often only its own: then its
    subpackages are the labels.
    """
    found = tuple(functions)
    best: dict[str, Sequence[Function]] = {}
    for depth in range(1, 5):
        groups: defaultdict[str, list[Function]] = defaultdict(list)
        for function in found:
            groups[".".join(function.module.split(".")[:depth])].append(function)
        large: dict[str, Sequence[Function]] = {
            label: group for label, group in groups.items() if len(group) >= at_least
        }
        best = large if len(large) > len(best) else best
        if len(best) >= ENOUGH_LABELS:
            break
    if len(best) < 2:
        raise _TooFewLabels(
            f"of the packages and modules, {len(best)} have at least {at_least} docstrings; two are needed."
        )
    largest = sorted(best, key=lambda label: (-len(best[label]), label))[:MAX_LABELS]
    return {label: _shuffled(best[label]) for label in largest}


def _classification(topics: Mapping[str, Sequence[Function]], *, train: int, test: int) -> Labelled:
    learnt = {label: group[: min(train, len(group) // 2)] for label, group in topics.items()}
    asked = {label: group[len(learnt[label]) :][:test] for label, group in topics.items()}
    return Labelled(train=tuple(_rows(learnt)), test=tuple(_rows(asked)))


def _clustering(topics: Mapping[str, Sequence[Function]], *, per_label: int) -> Clusters:
    return Clusters(rows=tuple(_rows({label: group[:per_label] for label, group in topics.items()})))


def _rows(groups: Mapping[str, Sequence[Function]]) -> Iterator[Row]:
    labels = {f.id: label for label, group in groups.items() for f in group}
    for function in _shuffled([f for group in groups.values() for f in group]):
        yield Row(id=_query_id(function), text=function.docstring, label=labels[function.id])


def _query_id(function: Function) -> str:
    """Not the document's id: some evaluators drop a document that is called like the query."""
    return f"{function.id}.__doc__"


def _shuffled(functions: Iterable[Function]) -> Sequence[Function]:
    """In the order of the docstrings' hashes, which is the same wherever they were found."""
    return sorted(functions, key=lambda f: (hashlib.sha256(f.docstring.encode()).hexdigest(), f.id))
