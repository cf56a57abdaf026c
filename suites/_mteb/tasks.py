"""Suites made of mteb's tasks and benchmarks, from the snapshot alone."""

from __future__ import annotations

from harness.errors import unknown
from harness.types import Column, Data, Suite, SuiteOptions, Task
from suites._mteb import snapshot
from suites._mteb.snapshot import TaskUse
from suites._mteb.source import MtebSource


def benchmark(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark `name` of mteb as a suite.

    Raises:
        UsageError: There is none of that name, or nothing is left of one of its tasks.
    """
    info = snapshot.load().benchmark(name)
    columns = tuple(column(use, options) for use in info.tasks)
    return Suite(name=called, title=info.name, columns=columns)


def benchmark_or_task(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark or the single task `name` of mteb as a suite."""
    known = snapshot.load()
    if name in known.tasks:
        info = known.task(name)
        splits, subsets = info.splits, tuple(info.subsets)
        use = TaskUse(name=name, splits=splits, subsets=subsets)
        return Suite(name=called, title=name, columns=(column(use, options),))
    names = {*known.benchmarks, *known.excluded}
    if any(name == n or name in known.benchmark(n).aliases for n in known.benchmarks) or name in names:
        return benchmark(name, called=called, options=options)
    raise unknown(
        "benchmark or task of mteb", name, [*names, *known.tasks], then="`harness list tasks` shows all."
    )


def column(use: TaskUse, options: SuiteOptions) -> Column:
    """One column: a task, or the members of an aggregate, which count once."""
    info = snapshot.load().task(use.name)
    members = info.aggregate_of or (use,)
    tasks = tuple(_task(member, options) for member in members)
    return Column(name=info.name, type=info.type, tasks=tasks)


def _task(use: TaskUse, options: SuiteOptions) -> Task:
    info = snapshot.load().task(use.name)
    within = TaskUse(name=info.name, splits=info.splits, subsets=use.subsets)
    splits, subsets = use.splits, use.subsets
    if options.languages or options.splits:
        kept, subsets = snapshot.narrow(info, options.languages, options.splits, within=within)
        splits = kept if options.splits else splits
    return Task(
        name=info.name,
        type=info.type,
        metric=info.metric,
        splits=tuple(splits),
        subsets=tuple(subsets),
        data=Data(path=info.path, revision=info.revision),
        source=MtebSource(),
        size=info.size(splits, subsets),
    )
