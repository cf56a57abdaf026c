"""What mteb's text tasks and benchmarks are, read from a committed file instead of from mteb.

Importing mteb takes ten seconds and needs torch; a list, a plan or a page needs neither. The file
next to this module, `snapshot.json`, is written by `python -m suites._mteb.make_snapshot` and a
test compares it with the installed mteb.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError, unknown
from suites._mteb.info import BenchmarkInfo, TaskInfo, TaskUse, sizes_of, subsets_of
from suites._mteb.rows import sections
from suites._narrowed import nothing_left

PATH = Path(__file__).with_name("snapshot.json")
THEN = "`harness list tasks` shows all."


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The text tasks and benchmarks of one version of mteb; `load()` gives it.

    `rows` and `benchmark_rows` are as they lie in the file; a row becomes a TaskInfo when asked for.
    `similar_rows` holds groups of similar tasks: the first name of each, with the others.
    """

    version: str
    rows: Mapping[str, Mapping[str, Any]] = field(repr=False)
    benchmark_rows: Mapping[str, Mapping[str, Any]] = field(repr=False)
    similar_rows: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
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

    @functools.cached_property
    def _groups(self) -> Mapping[str, Sequence[str]]:
        groups = ((first, *others) for first, others in self.similar_rows.items())
        return {name: group for group in groups for name in group}

    def similar(self, name: str) -> tuple[str, ...]:
        """What is similar to a task by mteb: other versions, parts and languages of its data.

        A model that was trained on one of them was trained on the task too. Names that are no text
        task, or no task at all, are among them.
        """
        return tuple(other for other in self._groups.get(name, ()) if other != name)

    def resolve(self, name: str) -> str | None:
        """The own name of the benchmark that is called `name` or has it as an alias, None without one."""
        if name in self.benchmark_rows:
            return name
        rows = self.benchmark_rows.items()
        return next((own for own, row in rows if name in row.get("aliases", ())), None)

    def benchmark(self, name: str) -> BenchmarkInfo:
        """The benchmark called `name`, or that has `name` as an alias in mteb.

        Raises:
            UsageError: There is none, or it has tasks that are not text only.
        """
        found = self.resolve(name)
        if found is None:
            raise unknown("benchmark", name, self.benchmarks, then="`harness list benchmarks` shows all.")
        row = self.benchmark_rows[found]
        if "other_tasks" in row:
            others = f"{row['other_tasks']} of its tasks take more than text"
            raise UsageError(f"{name} is not a benchmark of texts: {others}.", hint=THEN)
        return BenchmarkInfo(
            name=found,
            tasks=tuple(self._use(use) for use in row["tasks"]),
            aliases=tuple(row.get("aliases", ())),
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
        return TaskInfo(**{**rest, **read, "subsets": subsets_of(row), "sizes": sizes_of(row)})


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
        raise nothing_left(info.name, "split", splits, has_splits)
    wanted = {_code(language) for language in languages}
    codes = {subset: {_code(language) for language in info.subsets[subset]} for subset in has_subsets}
    kept_subsets = tuple(s for s in has_subsets if not wanted or wanted & codes[s])
    if not kept_subsets:
        raise nothing_left(info.name, "language", languages, sorted(set().union(*codes.values())))
    return kept_splits, kept_subsets


@functools.cache
def load() -> Snapshot:
    """The committed snapshot, read once."""
    content = sections(PATH.read_text(encoding="utf-8"))
    return Snapshot(
        version=content["mteb_version"],
        rows=content["tasks"],
        benchmark_rows=content["benchmarks"],
        similar_rows=content["similar"],
    )


def _code(language: str) -> str:
    return language.partition("-")[0]
