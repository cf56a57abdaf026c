"""Suites of mteb's tasks and benchmarks, from the snapshot alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from harness.errors import UsageError, unknown
from harness.types import ROLES, SIDES, Column, Data, Offer, Role, Suite, SuiteOptions, Task
from suites._mteb import snapshot
from suites._mteb.snapshot import TaskInfo, TaskUse, nothing_left
from suites._mteb.source import MtebSource


def benchmark(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark `name` of mteb as a suite.

    Raises:
        UsageError: No benchmark has this name, or nothing is left of any of its tasks.
    """
    info = snapshot.load().benchmark(name)
    _require_subsets(info.name, info.tasks, options.subsets)
    columns = tuple(_column_or_empty(use, options) for use in info.tasks)
    if not any(column.tasks for column in columns):
        _column(info.tasks[0], options)
    return Suite(name=called, title=info.name, columns=columns)


def _require_subsets(of: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse names of subsets that none of the tasks has."""
    if not wanted:
        return
    members = [member for use in uses for member in snapshot.load().task(use.name).aggregate_of or (use,)]
    known = {subset for member in members for subset in member.subsets}
    for name in wanted:
        if name not in known:
            raise unknown(f"subset of {of}", name, known, then="--subsets takes names of subsets.")


def _column(use: TaskUse, options: SuiteOptions) -> Column:
    """A column: a task, or the members of an aggregate, which count once."""
    info = snapshot.load().task(use.name)
    members = info.aggregate_of or (use,)
    tasks = tuple(_task(member, options) for member in members)
    return Column(name=info.name, type=info.type, tasks=tasks)


def _column_or_empty(use: TaskUse, options: SuiteOptions) -> Column:
    try:
        return _column(use, options)
    except UsageError:
        info = snapshot.load().task(use.name)
        return Column(name=info.name, type=info.type, tasks=())


def _task(use: TaskUse, options: SuiteOptions) -> Task:
    info = snapshot.load().task(use.name)
    within = TaskUse(name=info.name, splits=info.splits, subsets=use.subsets)
    splits, subsets = use.splits, use.subsets
    if options.languages or options.splits or options.subsets:
        if options.subsets:
            subsets = tuple(s for s in subsets if s in options.subsets)
            if not subsets:
                raise nothing_left(info.name, "subset", options.subsets, use.subsets)
            within = replace(within, subsets=subsets)
        kept, subsets = _narrow(info, options.languages, options.splits, within=within)
        splits = kept if options.splits else splits
    return Task(
        name=info.name,
        type=info.type,
        metric=info.metric,
        splits=tuple(splits),
        subsets=tuple(subsets),
        data=Data(path=info.path, revision=info.revision),
        source=MtebSource(),
        roles=_roles(info),
        size=info.size(splits, subsets),
    )


def _roles(info: TaskInfo) -> tuple[Role, ...]:
    if info.abstask == "AbsTaskRetrieval":
        return SIDES
    return ROLES if info.roles else ("",)


def _narrow(
    info: TaskInfo,
    languages: Collection[str] = (),
    splits: Collection[str] = (),
    *,
    within: TaskUse | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The requested splits and subsets of a task; an empty request means all.

    A subset stays when any of its languages is requested. As in mteb, the script of a language decides
    nothing: `zho-Hant` requests all of `zho`.
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


def _code(language: str) -> str:
    return language.partition("-")[0]


def benchmark_or_task(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark or the single task `name` of mteb as a suite."""
    known = snapshot.load()
    if name in known.tasks:
        info = known.task(name)
        splits, subsets = info.splits, tuple(info.subsets)
        use = TaskUse(name=name, splits=splits, subsets=subsets)
        _require_subsets(name, [use], options.subsets)
        return Suite(name=called, title=name, columns=(_column(use, options),))
    if known.resolve(name):
        return benchmark(name, called=called, options=options)
    raise unknown(
        "benchmark or task of mteb",
        name,
        [*known.benchmark_rows, *known.tasks],
        then="`harness list benchmarks` and `harness list tasks` show all.",
    )


def offers() -> list[Offer]:
    """Every benchmark and task of mteb that a user can name."""
    known = snapshot.load()
    benchmarks = [
        Offer(kind="benchmark", name=name, facts={"tasks": len(known.benchmark(name).tasks)})
        for name in known.benchmarks
    ]
    return [*benchmarks, *(_offer(known.task(name), known.similar(name)) for name in known.tasks)]


def _offer(info: TaskInfo, similar: tuple[str, ...]) -> Offer:
    facts = {"type": info.type, "metric": info.metric, "splits": info.splits}
    more = {"subsets": len(info.subsets), "superseded_by": info.superseded_by}
    others = {"similar": similar} if similar else {}
    return Offer(kind="task", name=info.name, facts={**facts, **more, **others})
