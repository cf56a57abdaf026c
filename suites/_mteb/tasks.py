"""Suites of mteb's tasks and benchmarks, from the snapshot alone."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from harness.core.errors import UsageError, explain_unknown
from harness.core.types import ROLES, SIDES, Column, Data, Offer, Role, Suite, SuiteOptions, Task
from suites._mteb import snapshot
from suites._mteb.snapshot import TaskInfo, TaskUse, explain_empty_selection
from suites._mteb.source import MtebSource


def build_benchmark_suite(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark `name` of mteb as a suite.

    Args:
        name: Its name in mteb, or an alias.
        called: The name of the suite.
        options: The options that narrow it.

    Raises:
        UsageError: No benchmark has this name, or nothing is left of any of its tasks.
    """
    info = snapshot.load_snapshot().find_benchmark(name)
    return build_task_suite(
        {use.name: use for use in info.tasks}, called=called, title=info.name, options=options
    )


def list_task_uses(name: str) -> dict[str, TaskUse]:
    """The tasks of a benchmark of mteb by name, as it uses them."""
    return {use.name: use for use in snapshot.load_snapshot().find_benchmark(name).tasks}


def build_full_use(name: str) -> TaskUse:
    """The use of all scored splits and subsets of a task of mteb."""
    info = snapshot.load_snapshot().find_task_info(name)
    return TaskUse(name=name, splits=info.splits, subsets=tuple(info.subsets))


def build_task_suite(
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
    _require_subsets(title, [_merge_uses([*uses.values()])] if parts else [*uses.values()], options.subsets)
    columns = tuple(
        replace(
            _try_task_column(use, options, name, within=use if parts else None),
            shown_only=shown_only.get(name, ""),
        )
        for name, use in uses.items()
    )
    # An error is about the columns that the user asked for, if any of them is left empty.
    selected_uses = _select_uses(uses, options)
    if not any(column.tasks for column in columns if column.name in selected_uses):
        selection = [*selected_uses.values()]
        if parts:
            every = _merge_uses(selection)
            _require_splits(
                " and ".join(selected_uses) if len(selected_uses) < len(uses) else title,
                [every],
                options.splits,
            )
            _build_task_column(every, options, within=every)  # raises the reason
        else:
            _require_splits(
                next(iter(selected_uses)) if len(selected_uses) == 1 else title, selection, options.splits
            )
            _build_task_column(selection[0], options)  # raises the reason
    return Suite(name=called, title=title, columns=columns)


def _select_uses(uses: Mapping[str, TaskUse], options: SuiteOptions) -> Mapping[str, TaskUse]:
    """The uses whose columns the options name; all where they name none of them."""
    return {name: use for name, use in uses.items() if {name, use.name} & {*options.tasks}} or uses


def _merge_uses(uses: Sequence[TaskUse]) -> TaskUse:
    """The use of all splits and subsets of several uses of a task."""
    splits = dict.fromkeys(split for use in uses for split in use.splits)
    subsets = dict.fromkeys(subset for use in uses for subset in use.subsets)
    return replace(uses[0], splits=tuple(splits), subsets=tuple(subsets))


def _require_splits(title: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse a choice of splits that leaves no split of any task."""
    members = [
        member
        for use in uses
        for member in snapshot.load_snapshot().find_task_info(use.name).aggregate_of or (use,)
    ]
    valid_splits = dict.fromkeys(split for member in members for split in member.splits)
    if wanted and not valid_splits.keys() & set(wanted):
        raise explain_empty_selection(title, "split", wanted, [*valid_splits])


def _require_subsets(title: str, uses: Sequence[TaskUse], wanted: Sequence[str]) -> None:
    """Refuse the name of a subset that no task has."""
    if not wanted:
        return
    members = [
        member
        for use in uses
        for member in snapshot.load_snapshot().find_task_info(use.name).aggregate_of or (use,)
    ]
    valid_subsets = {subset for member in members for subset in member.subsets}
    for name in wanted:
        if name not in valid_subsets:
            raise explain_unknown(
                f"subset of {title}", name, valid_subsets, then="--subsets takes names of subsets."
            )


def _build_task_column(
    use: TaskUse, options: SuiteOptions, name: str = "", *, within: TaskUse | None = None
) -> Column:
    """A column: a task, or the members of an aggregate, which count once."""
    info = snapshot.load_snapshot().find_task_info(use.name)
    members = info.aggregate_of or (use,)
    tasks = tuple(_build_planned_task(member, options, within=within) for member in members)
    return Column(name=name or info.name, type=info.type, tasks=tasks)


def _try_task_column(
    use: TaskUse, options: SuiteOptions, name: str, *, within: TaskUse | None = None
) -> Column:
    try:
        return _build_task_column(use, options, name, within=within)
    # An empty column stays in the table; that all are empty is an error above.
    except UsageError:
        return Column(name=name, type=snapshot.load_snapshot().find_task_info(use.name).type, tasks=())


def _build_planned_task(use: TaskUse, options: SuiteOptions, *, within: TaskUse | None = None) -> Task:
    """A task; options choose among the splits and subsets of `within`, by default among all its splits."""
    info = snapshot.load_snapshot().find_task_info(use.name)
    within = within or TaskUse(name=info.name, splits=info.splits, subsets=use.subsets)
    splits, subsets = use.splits, use.subsets
    if options.languages or options.splits or options.subsets:
        if options.subsets:
            subsets = tuple(s for s in subsets if s in options.subsets)
            if not subsets:
                raise explain_empty_selection(info.name, "subset", options.subsets, use.subsets)
            within = replace(within, subsets=subsets)
        kept_splits, subsets = info.select_splits_and_subsets(
            options.languages, options.splits, within=within
        )
        # A choice of languages alone leaves a benchmark its own splits.
        splits = kept_splits if options.splits else splits
    return Task(
        name=info.name,
        type=info.type,
        metric=info.metric,
        splits=tuple(splits),
        subsets=tuple(subsets),
        data=Data(path=info.path, revision=info.revision),
        source=MtebSource(),
        roles=_resolve_roles(info),
        size=info.estimate_size(splits, subsets),
        query_length=_QUERY_LENGTHS.get(info.name),
    )


_QUERY_LENGTHS = {
    **dict.fromkeys(("SciFact", "TRECCOVID", "SCIDOCS"), 48),
    **dict.fromkeys(("ArguAna", "ClimateFEVER"), 64),
}
"""The tasks whose queries are longer than 32 tokens in PyLate's script for BEIR."""


def _resolve_roles(info: TaskInfo) -> tuple[Role, ...]:
    if info.abstask == "AbsTaskRetrieval":
        return SIDES
    return ROLES if info.roles else ("",)


def build_mteb_suite(name: str, *, called: str, options: SuiteOptions) -> Suite:
    """The benchmark or the single task `name` of mteb as a suite.

    Args:
        name: Its name in mteb, or an alias.
        called: The name of the suite.
        options: The options that narrow it.

    Raises:
        UsageError: The name is unknown, or the options leave nothing.
    """
    mteb_snapshot = snapshot.load_snapshot()
    if name in mteb_snapshot.tasks:
        return build_task_suite({name: build_full_use(name)}, called=called, title=name, options=options)
    if mteb_snapshot.resolve(name):
        return build_benchmark_suite(name, called=called, options=options)
    raise explain_unknown(
        "benchmark or task of mteb",
        name,
        [*mteb_snapshot.benchmark_rows, *mteb_snapshot.tasks],
        then="`harness list benchmarks` and `harness list tasks` show all.",
    )


@functools.cache
def list_offers() -> tuple[Offer, ...]:
    """Every benchmark and task of mteb that a user can name."""
    mteb_snapshot = snapshot.load_snapshot()
    benchmarks = [
        Offer(kind="benchmark", name=name, facts={"tasks": len(mteb_snapshot.find_benchmark(name).tasks)})
        for name in mteb_snapshot.benchmarks
    ]
    return (
        *benchmarks,
        *(
            _build_task_offer(mteb_snapshot.find_task_info(name), mteb_snapshot.list_similar_tasks(name))
            for name in mteb_snapshot.tasks
        ),
    )


def _build_task_offer(info: TaskInfo, similar: tuple[str, ...]) -> Offer:
    languages = next(iter(info.subsets.values()), ()) if len(info.subsets) < 2 else ()
    facts = {"type": info.type, "metric": info.metric, "languages": languages, "splits": info.splits}
    more = {"subsets": len(info.subsets), "superseded_by": info.superseded_by}
    others = {"similar": similar} if similar else {}
    return Offer(kind="task", name=info.name, facts={**facts, **more, **others})
