"""What mteb's text tasks and benchmarks are, read from a committed file instead of from mteb.

Importing mteb takes ten seconds and needs torch; a list, a plan or a page needs neither. The file
next to this module, `snapshot.json`, is written by `python -m suites._mteb.make_snapshot` and a
test compares it with the installed mteb.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError, unknown
from harness.types import Size

PATH = Path(__file__).with_name("snapshot.json")
THEN = "`harness list tasks` shows all."


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
        category: What is compared with what, e.g. "t2t" (texts) or "t2c" (text and class).
        abstask: The class of mteb that scores it, e.g. "AbsTaskRetrieval".
        path: The data set on the hub, empty for an aggregate, which has no data of its own.
        revision: What mteb pins of that data set: a commit, for one task a branch.
        splits: The splits it is scored on.
        subsets: The name of each subset with its languages, e.g. {"en": ("eng-Latn",)}; a task
            without subsets has the one called "default".
        prompt: The instruction mteb gives to models that take one, or one per role.
        aggregate_of: The tasks whose mean it is, none for a task with data of its own.
        superseded_by: The task that mteb recommends in its place.
        public: Whether its data can be downloaded without permission.
        roles: Whether its texts stand on a query or a document side.
        custom_load: Whether it brings its own loading code, which may ignore a replaced data path.
        parallel: Whether a subset "a-b" pairs columns a and b, each encoded once for all subsets.
        sizes: (texts, characters) to encode for each (split, subset) known; an upper estimate. For
            a parallel task the second is a column.
    """

    name: str
    type: str
    metric: str
    category: str = ""
    abstask: str
    path: str = ""
    revision: str = ""
    splits: tuple[str, ...]
    subsets: Mapping[str, tuple[str, ...]]
    prompt: str | Mapping[str, str] | None = None
    aggregate_of: tuple[TaskUse, ...] = ()
    superseded_by: str | None = None
    public: bool = True
    roles: bool = False
    custom_load: bool = False
    parallel: bool = False
    sizes: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def languages(self) -> tuple[str, ...]:
        """Every language of every subset once, sorted, e.g. ("deu-Latn", "eng-Latn")."""
        return tuple(sorted(set(itertools.chain.from_iterable(self.subsets.values()))))

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
    """One benchmark of mteb, an aggregate task being one of its `tasks`.

    `means` are the means over it that mteb prints: any of "task", "task_type" and "subset".
    """

    name: str
    tasks: tuple[TaskUse, ...]
    aliases: tuple[str, ...] = ()
    means: tuple[str, ...] = ("task", "task_type")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The text tasks and benchmarks of one version of mteb; `load()` gives it.

    `rows` and `benchmark_rows` are as they lie in the file; a row becomes a TaskInfo when asked for.
    """

    version: str
    rows: Mapping[str, Mapping[str, Any]] = field(repr=False)
    benchmark_rows: Mapping[str, Mapping[str, Any]] = field(repr=False)
    _built: dict[str, TaskInfo] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks, sorted."""
        return tuple(self.rows)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The names of the benchmarks that hold text tasks only, sorted."""
        return tuple(name for name, row in self.benchmark_rows.items() if "other_tasks" not in row)

    @property
    def excluded(self) -> Mapping[str, int]:
        """The benchmarks left out, with the number of their tasks that are not text only."""
        rows = self.benchmark_rows.items()
        return {name: row["other_tasks"] for name, row in rows if "other_tasks" in row}

    def task(self, name: str) -> TaskInfo:
        """The task called `name`.

        Raises:
            UsageError: There is none; it names the nearest.
        """
        if name not in self.rows:
            raise unknown("task", name, self.rows, then=THEN)
        if name not in self._built:
            self._built[name] = self._task(name, self.rows[name])
        return self._built[name]

    def benchmark(self, name: str) -> BenchmarkInfo:
        """The benchmark called `name`, or that has `name` as an alias in mteb.

        Raises:
            UsageError: There is none, or it has tasks that are not text only.
        """
        aliases = {a: n for n, row in self.benchmark_rows.items() for a in row.get("aliases", ())}
        row = self.benchmark_rows.get(aliases.get(name, name))
        if row is None:
            raise unknown("benchmark", name, self.benchmarks, then="`harness list benchmarks` shows all.")
        if "other_tasks" in row:
            others = f"{row['other_tasks']} of its tasks take more than text"
            raise UsageError(f"{name} is not a benchmark of texts: {others}.", hint=THEN)
        return BenchmarkInfo(
            name=aliases.get(name, name),
            tasks=tuple(self._use(use) for use in row["tasks"]),
            aliases=tuple(row.get("aliases", ())),
            means=tuple(row.get("means", BenchmarkInfo.means)),
        )

    def _use(self, row: str | Mapping[str, Any]) -> TaskUse:
        """A task of a benchmark: its name where the whole of it is used, else what is used of it."""
        fields: Mapping[str, Any] = {"task": row} if isinstance(row, str) else row
        info = self.task(fields["task"])
        return TaskUse(
            name=info.name,
            splits=tuple(fields.get("splits", info.splits)),
            subsets=tuple(fields.get("subsets", info.subsets)),
        )

    def _task(self, name: str, row: Mapping[str, Any]) -> TaskInfo:
        rest = {k: v for k, v in row.items() if k not in ("class", "languages", "pairs_of", "size")}
        splits = tuple(row.get("splits", ("test",)))
        members = tuple(self._use(use) for use in row.get("aggregate_of", ()))
        read = {"name": name, "abstask": row["class"], "splits": splits, "aggregate_of": members}
        return TaskInfo(**{**rest, **read, "subsets": _subsets(row), "sizes": _sizes(row)})


def narrow(
    info: TaskInfo,
    languages: Collection[str] = (),
    splits: Collection[str] = (),
    *,
    within: TaskUse | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The splits and subsets of a task that a user asked for; empty means all.

    A subset stays when any of its languages is asked for, as in mteb, where the script of a
    language decides nothing either: `zho-Hant` asks for all of `zho`.

    Args:
        info: The task.
        languages: Three-letter codes, with or without a script: `eng` or `eng-Latn`.
        splits: Names of splits; those that the task does not have are passed over.
        within: What a benchmark takes of the task, to stay inside of it.

    Returns:
        The splits and the subsets that are left, in the task's order.

    Raises:
        UsageError: Nothing is left; it says what there is.
    """
    has_splits = within.splits if within else info.splits
    has_subsets = within.subsets if within else tuple(info.subsets)
    kept_splits = tuple(s for s in has_splits if not splits or s in splits)
    if not kept_splits:
        raise _nothing_left(info, "split", splits, has_splits)
    wanted = {_code(language) for language in languages}
    codes = {subset: {_code(language) for language in info.subsets[subset]} for subset in has_subsets}
    kept_subsets = tuple(s for s in has_subsets if not wanted or wanted & codes[s])
    if not kept_subsets:
        raise _nothing_left(info, "language", languages, sorted(set().union(*codes.values())))
    return kept_splits, kept_subsets


@functools.cache
def load() -> Snapshot:
    """The committed snapshot, read once."""
    content = json.loads(PATH.read_text(encoding="utf-8"))
    return Snapshot(
        version=content["mteb_version"], rows=content["tasks"], benchmark_rows=content["benchmarks"]
    )


def _code(language: str) -> str:
    return language.partition("-")[0]


def _nothing_left(info: TaskInfo, what: str, asked: Collection[str], has: Collection[str]) -> UsageError:
    shown = ", ".join(list(has)[:40]) + (f" and {len(has) - 40} more" if len(has) > 40 else "")
    return UsageError(
        f"Nothing of {info.name} is left: no {what} of it is {' or '.join(asked)}.",
        hint=f"It has {what}{'s' if len(has) != 1 else ''} {shown}.",
    )


def _subsets(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The languages of each subset: of the only one, of each, or of every ordered pair of codes."""
    if "pairs_of" in row:
        codes = row["pairs_of"].items()
        return {f"{a}-{b}": (x, y) for (a, x), (b, y) in itertools.permutations(codes, 2)}
    languages = row["languages"]
    if isinstance(languages, list):
        return {"default": tuple(languages)}
    return {subset: tuple(codes.split()) for subset, codes in languages.items()}


def _sizes(row: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """(texts, characters) of each (split, subset): a pair in the file where there is one subset."""
    by_split = {
        split: cells if isinstance(cells, dict) else {"default": cells}
        for split, cells in row.get("size", {}).items()
    }
    return {(split, s): (t, c) for split, cells in by_split.items() for s, (t, c) in cells.items()}
