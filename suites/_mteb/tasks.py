"""Suites of mteb's tasks and benchmarks, from the snapshot alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from harness.core.errors import UsageError, unknown
from harness.core.types import ROLES, SIDES, Column, Data, Offer, Role, Suite, SuiteOptions, Task
from suites._mteb import snapshot
from suites._mteb.snapshot import TaskInfo, TaskUse, nothing_left
from suites._mteb.source import MtebSource


def benchmark(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark `name` of mteb as a suite.

    Raises:
        UsageError: No benchmark has this name, or nothing is left of any of its tasks.
    """
    info = snapshot.load().benchmark(name)
    return of_tasks({use.name: use for use in info.tasks}, called=called, title=info.name, options=options)


def uses_of(name: str) -> dict[str, TaskUse]:
    """The tasks of a benchmark of mteb by name, as it uses them."""
    return {use.name: use for use in snapshot.load().benchmark(name).tasks}


def whole(name: str) -> TaskUse:
    """The use of all scored splits and subsets of a task of mteb."""
    info = snapshot.load().task(name)
    return TaskUse(name=name, splits=info.splits, subsets=tuple(info.subsets))


def of_tasks(
    uses: Mapping[str, TaskUse],
    *,
    called: str,
    title: str,
    options: SuiteOptions,
    shown_only: Mapping[str, str] = MappingProxyType({}),
    parts: bool = False,
) -> Suite:
    """The suite of a column for each task, or for each of several parts of a task, which is run once.

    Args:
        uses: The task, or the splits and subsets of it, that each column shows, by the columns' names.
        called: The name of the suite.
        title: The title of its tables.
        options: The options that narrow it.
        shown_only: The columns outside of the mean, each with the reason.
        parts: Whether the columns are parts of one task.

    Raises:
        UsageError: Nothing is left of any column.
    """
    _require_subsets(title, [_joined([*uses.values()])] if parts else [*uses.values()], options.subsets)
    columns = tuple(
        replace(
            _column_or_empty(use, options, name, within=use if parts else None),
            shown_only=shown_only.get(name, ""),
        )
        for name, use in uses.items()
    )
    asked = _asked(uses, options)
    if not any(column.tasks for column in columns if column.name in asked):
        wanted = [*asked.values()]
        if parts:
            every = _joined(wanted)
            _require_splits(" and ".join(asked) if len(asked) < len(uses) else title, [every], options.splits)
            _column(every, options, within=every)  # raises the reason
        else:
            _require_splits(next(iter(asked)) if len(asked) == 1 else title, wanted, options.splits)
            _column(wanted[0], options)  # raises the reason
    return Suite(name=called, title=title, columns=columns)


def _asked(uses: Mapping[str, TaskUse], options: SuiteOptions) -> Mapping[str, TaskUse]:
    """The uses whose columns the options name; all where they name none of them."""
    return {name: use for name, use in uses.items() if {name, use.name} & {*options.tasks}} or uses


def _joined(uses: Sequence[TaskUse]) -> TaskUse:
    """The use of all splits and subsets of several uses of a task."""
    splits = dict.fromkeys(split for use in uses for split in use.splits)
    subsets = dict.fromkeys(subset for use in uses for subset in use.subsets)
    return replace(uses[0], splits=tuple(splits), subsets=tuple(subsets))


def _require_splits(of: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse splits of which none of the tasks has any."""
    members = [member for use in uses for member in snapshot.load().task(use.name).aggregate_of or (use,)]
    known = dict.fromkeys(split for member in members for split in member.splits)
    if wanted and not known.keys() & set(wanted):
        raise nothing_left(of, "split", wanted, [*known])


def _require_subsets(of: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse names of subsets that none of the tasks has."""
    if not wanted:
        return
    members = [member for use in uses for member in snapshot.load().task(use.name).aggregate_of or (use,)]
    known = {subset for member in members for subset in member.subsets}
    for name in wanted:
        if name not in known:
            raise unknown(f"subset of {of}", name, known, then="--subsets takes names of subsets.")


def _column(use: TaskUse, options: SuiteOptions, name: str = "", *, within: TaskUse | None = None) -> Column:
    """A column: a task, or the members of an aggregate, which count once."""
    info = snapshot.load().task(use.name)
    members = info.aggregate_of or (use,)
    tasks = tuple(_task(member, options, within=within) for member in members)
    return Column(name=name or info.name, type=info.type, tasks=tasks)


def _column_or_empty(
    use: TaskUse, options: SuiteOptions, name: str, *, within: TaskUse | None = None
) -> Column:
    try:
        return _column(use, options, name, within=within)
    except UsageError:
        return Column(name=name, type=snapshot.load().task(use.name).type, tasks=())


def _task(use: TaskUse, options: SuiteOptions, *, within: TaskUse | None = None) -> Task:
    """A task; options choose among the splits and subsets of `within`, by default among all its splits."""
    info = snapshot.load().task(use.name)
    within = within or TaskUse(name=info.name, splits=info.splits, subsets=use.subsets)
    splits, subsets = use.splits, use.subsets
    if options.languages or options.splits or options.subsets:
        if options.subsets:
            subsets = tuple(s for s in subsets if s in options.subsets)
            if not subsets:
                raise nothing_left(info.name, "subset", options.subsets, use.subsets)
            within = replace(within, subsets=subsets)
        kept, subsets = info.splits_and_subsets(options.languages, options.splits, within=within)
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
        query_length=_QUERY_LENGTHS.get(info.name),
    )


_QUERY_LENGTHS = {
    **dict.fromkeys(("SciFact", "TRECCOVID", "SCIDOCS"), 48),
    **dict.fromkeys(("ArguAna", "ClimateFEVER"), 64),
}
"""The tasks whose queries are longer than 32 tokens in PyLate's script for BEIR."""


def _roles(info: TaskInfo) -> tuple[Role, ...]:
    if info.abstask == "AbsTaskRetrieval":
        return SIDES
    return ROLES if info.roles else ("",)


def benchmark_or_task(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark or the single task `name` of mteb as a suite."""
    known = snapshot.load()
    if name in known.tasks:
        return of_tasks({name: whole(name)}, called=called, title=name, options=options)
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
