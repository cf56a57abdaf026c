"""What is known of a task and of a benchmark of mteb without mteb."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.types import Size


@dataclass(frozen=True, kw_only=True)
class TaskUse:
    """A task as a benchmark or an aggregate scores it: the splits and subsets it takes of it."""

    name: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """One text task of mteb.

    Attributes:
        name: Its name in mteb.
        type: Its kind, e.g. "Retrieval"; the means over types group by it.
        metric: The name of its main score.
        abstask: The class of mteb that scores it, e.g. "AbsTaskRetrieval".
        path: The data set on the hub, empty for an aggregate, which has no data of its own.
        revision: What mteb pins of that data set: a commit, for a few tasks cut short, for one
            ("PublicHealthQA") a branch.
        splits: The splits it is scored on.
        subsets: The name of each subset with its languages, e.g. {"en": ("eng-Latn",)}; a task
            without subsets has the one called "default".
        aggregate_of: The tasks whose mean it is, none for a task with data of its own.
        superseded_by: The task that mteb recommends in its place.
        roles: Whether its texts stand on a query or a document side.
        fixed_data: Whether its own loading code names the data set, at no revision, so that another
            path or revision is passed over.
        parallel: Whether a subset "a-b" pairs columns a and b, each encoded once for all subsets.
        sizes: (texts, characters) to encode for each (split, subset) known; an upper estimate. For
            a parallel task the second is a column.
    """

    name: str
    type: str
    metric: str
    abstask: str
    path: str = ""
    revision: str = ""
    splits: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]
    aggregate_of: tuple[TaskUse, ...] = ()
    superseded_by: str | None = None
    roles: bool = False
    fixed_data: bool = False
    parallel: bool = False
    sizes: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def on_a_branch(self) -> bool:
        """Whether its revision names no commit, so that the data behind it can change."""
        return bool(self.revision) and not re.fullmatch("[0-9a-f]{7,}", self.revision)

    def size(self, splits: Collection[str], subsets: Collection[str]) -> Size:
        """How much there is to encode in these; an empty Size where that is not known."""
        parts = {c for s in subsets for c in s.split("-")} if self.parallel else set(subsets)
        cells = [self.sizes.get(cell) for cell in itertools.product(splits, parts)]
        known = [cell for cell in cells if cell]
        if not known or len(known) < len(cells):
            return Size()
        return Size(texts=sum(t for t, _ in known), characters=sum(c for _, c in known))


@dataclass(frozen=True, kw_only=True)
class BenchmarkInfo:
    """One benchmark of mteb, an aggregate task being one of its `tasks`."""

    name: str
    tasks: tuple[TaskUse, ...]
    aliases: tuple[str, ...] = ()


def subsets_of(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The languages of each subset: of the only one, of each, or of every ordered pair of codes."""
    if "pairs_of" in row:
        codes = row["pairs_of"].items()
        return {f"{a}-{b}": (x, y) for (a, x), (b, y) in itertools.permutations(codes, 2)}
    languages = row["languages"]
    if isinstance(languages, list):
        return {"default": tuple(languages)}
    return {subset: tuple(codes.split()) for subset, codes in languages.items()}


def sizes_of(row: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """(texts, characters) of each (split, subset): a pair in the file where there is one subset."""
    by_split = {
        split: cells if isinstance(cells, dict) else {"default": cells}
        for split, cells in row.get("size", {}).items()
    }
    return {(split, s): (t, c) for split, cells in by_split.items() for s, (t, c) in cells.items()}
