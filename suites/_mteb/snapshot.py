"""The text tasks and benchmarks of mteb, from a committed file instead of from mteb.

Importing mteb takes ten seconds and needs torch; a list, a plan or a page needs neither. `snapshot.json`
beside this module is written by `python -m suites._mteb.make_snapshot`, and a test compares it with the
installed mteb. It is JSON with one row a line, in sections. It names the version of mteb that scores, and
only that version may run.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError, explain_unknown
from harness.core.types import DataTable, Size, Suite, SuiteOptions


@dataclass(frozen=True, kw_only=True)
class TaskUse:
    """The splits and subsets of a task that a benchmark or an aggregate scores."""

    name: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """A text task of mteb.

    Attributes:
        name: The task's name in mteb.
        type: The kind of task, e.g. "Retrieval"; the means over types group by it.
        metric: The name of the main score.
        abstask: The class of mteb that scores it, e.g. "AbsTaskRetrieval".
        path: The data set on the hub, empty for an aggregate, which has no data of its own.
        revision: The revision of the data set that mteb pins: a commit, for a few tasks cut short, for one
            task ("PublicHealthQA") a branch.
        splits: The scored splits.
        subsets: The languages of each subset by name, e.g. {"en": ("eng-Latn",)}; a task without subsets has
            a single one called "default".
        aggregate_of: The tasks whose mean it is, none for a task with data of its own.
        superseded_by: The task that mteb recommends in its place.
        roles: Whether its texts stand on a query or a document side.
        fixed_data: Whether its own loading code names the data set without a revision, so that another path
            or revision has no effect.
        parallel: Whether a subset "a-b" pairs columns a and b, each encoded once for all subsets.
        loader: The way in which its data is loaded: a configuration for each subset (empty), the "parts" of a
            retrieval task, those of CodeSearchNet in "coir", a table of all subsets that are "merged", one
            with "columns" for languages, or its "own" code.
        config: The configuration of a task without subsets, empty for the default one.
        train: The split that a classifier is trained on.
        texts: The columns of text in its data, none where its own code decides.
        values: Further columns, such as labels and scores.
        lists: Whether a row holds lists of texts and labels.
        sizes: (texts, characters) to encode for each known (split, subset); an upper estimate. For a parallel
            task the second key is a column.
        shared: (texts, characters) among these, by subset, of the documents that are the same in every split.
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
    loader: str = ""
    config: str = ""
    train: str = ""
    texts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    lists: bool = False
    sizes: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict, repr=False)
    shared: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    @property
    def on_a_branch(self) -> bool:
        """Whether its revision names no commit, so that the data behind it can change."""
        return bool(self.revision) and not re.fullmatch("[0-9a-f]{7,}", self.revision)

    def estimate_size(self, splits: Collection[str], subsets: Collection[str]) -> Size:
        """The size of the texts to encode in these splits and subsets; an empty Size where it is unknown.

        Documents that the splits share count once.
        """
        # Joined first, as some tasks have ten thousand pairs of languages.
        parts = set("-".join(subsets).split("-") if self.parallel else subsets)
        cells = [self.sizes.get(cell) for cell in itertools.product(splits, parts)]
        # Half a sum would look like the size of all.
        amounts = [cell for cell in cells if cell]
        if not amounts or len(amounts) < len(cells):
            return Size()
        # Documents that are the same in every split are encoded once; the cache has them for the others.
        again = [self.shared[subset] for subset in parts & self.shared.keys()] * (len(splits) - 1)
        return Size(
            texts=sum(t for t, _ in amounts) - sum(t for t, _ in again),
            characters=sum(c for _, c in amounts) - sum(c for _, c in again),
        )

    def select_splits_and_subsets(
        self, languages: Collection[str] = (), splits: Collection[str] = (), *, within: TaskUse | None = None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The requested splits and subsets; an empty request means all.

        Args:
            languages: Codes such as "eng" or "eng-Latn".
            splits: Names of splits.
            within: The use whose splits and subsets there are to choose from; None for all of the task.

        A subset stays when any of its languages is requested. As in mteb, the script of a language decides
        nothing: `zho-Hant` requests all of `zho`.
        """
        has_splits = within.splits if within else self.splits
        has_subsets = within.subsets if within else tuple(self.subsets)
        # In the task's order, whatever the order of the request.
        kept_splits = tuple(s for s in has_splits if not splits or s in splits)
        if not kept_splits:
            raise explain_empty_selection(self.name, "split", splits, has_splits)
        language_codes = {_strip_script(language) for language in languages}
        kept_subsets = tuple(
            subset for subset in has_subsets
            if not language_codes or any(_strip_script(c) in language_codes for c in self.subsets[subset])
        )  # fmt: skip
        if not kept_subsets:
            codes = {_strip_script(language) for subset in has_subsets for language in self.subsets[subset]}
            raise explain_empty_selection(self.name, "language", languages, sorted(codes))
        return kept_splits, kept_subsets

    def list_data_tables(self, splits: Sequence[str], subsets: Sequence[str]) -> tuple[DataTable, ...]:
        """The tables that are read for splits and subsets; none, or without splits, if its code decides."""
        if self.loader == "own":
            return ()
        if self.loader == "coir":
            return tuple(table for subset in subsets for table in _iter_coir_tables(subset, splits))
        if self.loader == "parts":
            table_options = (tuple(splits), "Reranking" in self.type, len(self.splits) == 1)
            return tuple(
                table for subset in subsets for table in _iter_retrieval_tables(subset, *table_options)
            )
        configs: list[tuple[str, ...]] = [(subset,) for subset in subsets if subset != "default"]
        if self.loader or not configs:
            configs = [(self.config,) if self.config else ()]
        texts = self._list_text_columns(subsets)
        # A classifier is trained on a split that it may be scored on as well.
        table_splits = dict.fromkeys(filter(None, (*splits, self.train))) if texts else ()
        return tuple(
            DataTable(
                config=config,
                splits=tuple(table_splits),
                texts=_wrap_names(texts),
                values=_wrap_names(self.values),
                lists=self.lists,
                train=self.train if table_splits else "",
            )
            for config in configs
        )

    def _list_text_columns(self, subsets: Sequence[str]) -> list[str]:
        """The columns of text in a table, with that of the subset's name where all are merged into one."""
        if self.loader == "columns":
            return [*dict.fromkeys(part for subset in subsets for part in subset.split("-"))]
        return [*self.texts, *(["lang"] if self.loader == "merged" and self.texts else [])]


def _strip_script(language: str) -> str:
    return language.partition("-")[0]


_ID = ("_id", "id")


def _wrap_names(names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


_JUDGEMENT = (("query-id",), ("corpus-id",), ("score",))


def _iter_retrieval_tables(
    subset: str, wanted: tuple[str, ...], ranked: bool, lone: bool
) -> Iterator[DataTable]:
    """The tables of a subset of a retrieval task.

    `ranked` is whether each query has candidates, `lone` whether the only split of the judgements stands for
    any: not where the task has several, as one's judgements would be read for another.
    """
    before = "" if subset == "default" else f"{subset}-"
    qrels = ("default", "qrels") if subset == "default" else (f"{subset}-qrels",)
    yield DataTable(config=qrels, splits=wanted, values=_JUDGEMENT, lone_split=lone, part="judgements")
    if ranked:
        ids = _wrap_names(("query-id", "corpus-ids"))
        yield DataTable(config=(f"{before}top_ranked",), splits=wanted, values=ids, lone_split=True)
    table = DataTable(config=(), splits=wanted, texts=(("text",),), values=(_ID,), lone_split=True)
    yield replace(table, config=(f"{before}corpus",), part="documents")
    yield replace(table, config=(f"{before}queries", "query"), part="queries")


def _iter_coir_tables(subset: str, splits: Sequence[str]) -> Iterator[DataTable]:
    """The tables of a language of CodeSearchNet as CoIR publishes it; `partition` is a query's split."""
    yield DataTable(config=(f"{subset}-qrels",), splits=tuple(splits), values=_JUDGEMENT, part="judgements")
    table = DataTable(config=(), splits=(), texts=(("text",),))
    corpus, queries = f"{subset}-corpus", f"{subset}-queries"
    ids = _wrap_names(("_id", "title"))
    yield replace(table, config=(corpus,), splits=("corpus",), values=ids, part="documents")
    ids = _wrap_names(("_id", "partition"))
    yield replace(table, config=(queries,), splits=("queries",), values=ids, part="queries")


@dataclass(frozen=True, kw_only=True)
class _BenchmarkInfo:
    """A benchmark of mteb; an aggregate task counts as one of its `tasks`."""

    name: str
    tasks: tuple[TaskUse, ...]
    aliases: tuple[str, ...] = ()


def _parse_subsets(row: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The languages of each subset: the only subset, those listed, or every ordered pair of codes."""
    if "pairs_of" in row:
        codes = row["pairs_of"].items()
        return {f"{a}-{b}": (x, y) for (a, x), (b, y) in itertools.permutations(codes, 2)}
    languages = row["languages"]
    if isinstance(languages, list):
        return {"default": tuple(languages)}
    return {subset: tuple(codes.split()) for subset, codes in languages.items()}


def _parse_sizes(row: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """(texts, characters) of each (split, subset); a single subset has a plain pair in the file."""
    by_split = {
        split: cells if isinstance(cells, dict) else {"default": cells}
        for split, cells in row.get("size", {}).items()
    }
    return {(split, s): (t, c) for split, cells in by_split.items() for s, (t, c) in cells.items()}


PATH = Path(__file__).with_name("snapshot.json")
THEN = "`harness list tasks` shows all."


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """The text tasks and benchmarks of one version of mteb; `load_snapshot()` gives it.

    `rows` and `benchmark_rows` are as in the file; a row becomes a TaskInfo when it is read. `similar_rows`
    holds groups of similar tasks: the first name of each, with the others.
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
        """The excluded benchmarks, with the number of their tasks that are not text only."""
        rows = self.benchmark_rows.items()
        return {name: row["other_tasks"] for name, row in rows if "other_tasks" in row}

    def find_task_info(self, name: str) -> TaskInfo:
        """The task called `name`."""
        if name not in self.rows:
            raise explain_unknown("task", name, self.rows, then=THEN)
        if name not in self._built:
            # When it is asked for: most commands need a few of more than a thousand tasks.
            self._built[name] = self._build_task_info(name, self.rows[name])
        return self._built[name]

    @functools.cached_property
    def _groups(self) -> Mapping[str, Sequence[str]]:
        groups = ((first, *others) for first, others in self.similar_rows.items())
        return {name: group for group in groups for name in group}

    def list_similar_tasks(self, name: str) -> tuple[str, ...]:
        """The tasks that are similar to a task by mteb: other versions, parts and languages of its data.

        A model that was trained on any of them was trained on the task too. Some of the names are no text
        task, or no task at all.
        """
        return tuple(other for other in self._groups.get(name, ()) if other != name)

    def resolve(self, name: str) -> str | None:
        """The full name of the benchmark with this name or alias; None if it is unknown."""
        if name in self.benchmark_rows:
            return name
        rows = self.benchmark_rows.items()
        return next((own for own, row in rows if name in row.get("aliases", ())), None)

    def find_benchmark(self, name: str) -> _BenchmarkInfo:
        """The benchmark with this name or alias in mteb."""
        full_name = self.resolve(name)
        if full_name is None:
            raise explain_unknown(
                "benchmark", name, self.benchmarks, then="`harness list benchmarks` shows all."
            )
        row = self.benchmark_rows[full_name]
        if "other_tasks" in row:
            others = f"{row['other_tasks']} of its tasks take more than text"
            raise UsageError(f"{name} is not a benchmark of texts: {others}.", hint=THEN)
        return _BenchmarkInfo(
            name=full_name,
            tasks=tuple(self._use(use) for use in row["tasks"]),
            aliases=tuple(row.get("aliases", ())),
        )

    def _use(self, row: str | Mapping[str, Any]) -> TaskUse:
        """A benchmark's use of a task: the whole task for a plain name, else the given splits and subsets."""
        fields: Mapping[str, Any] = {"task": row} if isinstance(row, str) else row
        info = self.find_task_info(fields["task"])
        return TaskUse(
            name=info.name,
            splits=tuple(fields.get("splits", info.splits)),
            subsets=tuple(fields.get("subsets", info.subsets)),
        )

    def _build_task_info(self, name: str, row: Mapping[str, Any]) -> TaskInfo:
        rest = {k: v for k, v in row.items() if k not in ("class", "languages", "pairs_of", "size")}
        splits = tuple(row.get("splits", ("test",)))
        members = tuple(self._use(use) for use in row.get("aggregate_of", ()))
        read = {"name": name, "abstask": row["class"], "splits": splits, "aggregate_of": members}
        read |= {kind: tuple(row.get(kind, ())) for kind in ("texts", "values")}
        return TaskInfo(**{**rest, **read, "subsets": _parse_subsets(row), "sizes": _parse_sizes(row)})


@functools.cache
def load_snapshot() -> _Snapshot:
    """The committed snapshot, read once."""
    content = json.loads(PATH.read_bytes())
    return _Snapshot(
        version=content["mteb_version"],
        rows=content["tasks"],
        benchmark_rows=content["benchmarks"],
        similar_rows=content["similar"],
    )


def filter_suite_splits(suite: Suite, options: SuiteOptions) -> Suite:
    """The suite with only the requested splits; a column without any of them has no task left.

    Raises:
        UsageError: Languages or subsets are requested, which such data do not have, or no split is left.
    """
    if options.subsets:
        raise UsageError(
            f"--subsets says nothing about {suite.name}: these data have no subsets to choose from.",
            hint=f"Leave out --subsets, or run {suite.name} on its own.",
        )
    if options.languages:
        raise UsageError(
            f"--languages says nothing about {suite.name}: these data name no language.",
            hint=f"Leave out --languages, or run {suite.name} on its own.",
        )
    if not options.splits:
        return suite
    columns = []
    for column in suite.columns:
        left = [
            replace(task, splits=tuple(s for s in task.splits if s in options.splits))
            for task in column.tasks
        ]
        columns.append(replace(column, tasks=tuple(task for task in left if task.splits)))
    if not any(column.tasks for column in columns):
        has = dict.fromkeys(split for task in suite.tasks for split in task.splits)
        raise explain_empty_selection(suite.name, "split", options.splits, [*has])
    return replace(suite, columns=tuple(columns))


def explain_empty_selection(name: str, what: str, asked: Collection[str], has: Collection[str]) -> UsageError:
    """The error for requested splits or languages that a task or suite lacks.

    Args:
        name: The task or suite.
        what: "split", "language" or "subset".
        asked: What was requested.
        has: What it has; the hint lists up to 40.
    """
    shown = ", ".join(list(has)[:40]) + (f" and {len(has) - 40} more" if len(has) > 40 else "")
    return UsageError(
        f"{name} has no {what} {' or '.join(asked)}.",
        hint=f"It has {what}{'s' if len(has) != 1 else ''} {shown}.",
    )
