"""Telling docstrings apart by their package: classification and clustering.

What is found is thinned out by the hash of each docstring, so the same source gives the same
tasks on every machine, and two versions of one code base give samples that mostly agree.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.errors import DataError
from suites._data import Clusters, Labelled, Row
from suites._functions import Function

MIN_DOCSTRINGS, MAX_LABELS, ENOUGH_LABELS = 20, 20, 5
TRAIN, TEST, GROUP = 16, 50, 50
"""The most docstrings of a label: to learn from, to be tested on, to be grouped."""

Topics = Mapping[str, Sequence[Function]]
"""The documented functions of each package, in the order of their docstrings' hashes."""


class TooFewLabels(DataError):
    """There are not two packages with enough docstrings."""


def topics(functions: Iterable[Function], *, at_least: int = MIN_DOCSTRINGS) -> Topics:
    """The 20 largest packages at the first level of nesting where there are several.

    The standard library has many top-level packages, a repository often only its own: then its
    subpackages are the labels.

    Raises:
        TooFewLabels: Fewer than two packages have `at_least` docstrings.
    """
    best = _best([*functions], at_least)
    if len(best) < 2:
        raise TooFewLabels(
            f"of the packages and modules, {len(best)} have at least {at_least} docstrings; two are needed."
        )
    largest = sorted(best, key=lambda label: (-len(best[label]), label))[:MAX_LABELS]
    return {label: shuffled(best[label]) for label in largest}


def classification(found: Topics) -> Labelled:
    """Tell from a docstring which package it is from.

    Of each package, half of the docstrings but no more than 16 are for training, and up to 50
    others for testing.
    """
    learnt = {label: group[: min(TRAIN, len(group) // 2)] for label, group in found.items()}
    asked = {label: group[len(learnt[label]) :][:TEST] for label, group in found.items()}
    return Labelled(train=tuple(_rows(learnt)), test=tuple(_rows(asked)))


def clustering(found: Topics) -> Clusters:
    """Group docstrings by package, up to 50 of each."""
    return Clusters(rows=tuple(_rows({label: group[:GROUP] for label, group in found.items()})))


def name(function: Function) -> str:
    """What a function's docstring is called: not as the function is.

    Some evaluators drop a document that is called like the query.
    """
    return f"{function.id}.__doc__"


def shuffled(functions: Iterable[Function]) -> Sequence[Function]:
    """In the order of the docstrings' hashes, which is the same wherever they were found."""
    return sorted(functions, key=lambda f: (hashlib.sha256(f.docstring.encode()).hexdigest(), f.id))


def _best(functions: Sequence[Function], at_least: int) -> Topics:
    best: Topics = {}
    for depth in range(1, 5):
        groups: defaultdict[str, list[Function]] = defaultdict(list)
        for function in functions:
            groups[".".join(function.module.split(".")[:depth])].append(function)
        large = {label: group for label, group in groups.items() if len(group) >= at_least}
        best = large if len(large) > len(best) else best
        if len(best) >= ENOUGH_LABELS:
            break
    return best


def _rows(groups: Topics) -> Iterator[Row]:
    labels = {f.id: label for label, group in groups.items() for f in group}
    for function in shuffled([f for group in groups.values() for f in group]):
        yield Row(id=name(function), text=function.docstring, label=labels[function.id])
