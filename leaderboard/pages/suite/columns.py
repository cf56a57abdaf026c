"""Columns of a suite's page: how each is headed, sorted and filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.types import Column as TaskColumn
from leaderboard.grid import Floats, Grid, Means, Ranks, UntouchedMeans
from leaderboard.page import missing
from leaderboard.pages.suite.cells import (
    columns_text,
    how_cell,
    mean_cell,
    mean_of,
    model_cell,
    origin_cell,
    rank_cell,
    ranked_cell,
    task_cell,
    there_cell,
    unseen_cell,
    untouched_note,
)
from leaderboard.pages.task.names import column_path
from leaderboard.tables import Cell, Column
from leaderboard.words import parameters_text

if TYPE_CHECKING:
    from leaderboard.views.suite import SuiteState

FOLDED = ("borda", "mean_rank")
"""Columns that are shown when they are picked."""

UNTOUCHED = {"untouched": "tasks", "untouched_types": "types"}
"""Columns that are there when a model shown was chosen by tasks of the suite, with the means they narrow."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteColumn:
    """A column: how it is headed, what it sorts by, and its cell of a row.

    `kept` is what its cells are kept under where that is not its key; `passing` ones depend on what is shown
    beside them and are not kept.
    """

    key: str
    label: str
    group: str = ""
    sort: Floats | None = None
    numeric: bool = True
    href: str = ""
    note: str = ""
    sticky: bool = False
    kept: str = ""
    passing: bool = False
    cell: Callable[[int], Cell]


def columns_of(
    grid: Grid, ranks: Ranks, state: SuiteState, untouched: UntouchedMeans | None
) -> list[SuiteColumn]:
    """Every column that the page of a suite can show."""
    passing = state.mean in UNTOUCHED
    entries = grid.entries
    place = ranks.place.astype(float)
    place[place == 0] = np.nan
    size = np.array([np.nan if e.parameters is None else float(e.parameters) for e in entries])
    means = [
        _mean_col(grid, grid.over_tasks, "mean", "tasks", f"The mean over {columns_text(grid)}, all alike."),
        _mean_col(grid, grid.over_types, "mean", "types", "The mean of the task types' own means."),
    ]
    return [
        SuiteColumn(key="rank", label="Rank", sort=-place, sticky=True, cell=lambda r: rank_cell(ranks, r),
             note="Models that cannot be told apart from the first of their group share its rank."),
        SuiteColumn(key="model", label="Model", numeric=False, sticky=True,
             cell=lambda r: model_cell(entries[r])),
        SuiteColumn(key="parameters", label="Size", sort=size, note="Parameters.",
             cell=lambda r: Cell(text=parameters_text(entries[r].parameters), value=entries[r].parameters)),
        SuiteColumn(key="origin", label="Origin", numeric=False, cell=lambda r: origin_cell(entries[r])),
        SuiteColumn(key="how", label="How", numeric=False, cell=lambda r: how_cell(entries[r]),
             note="An imported model's revision, a measured one's treatment, where a row is printed."),
        *means,
        *(_untouched_cols(grid, untouched) if untouched else ()),
        SuiteColumn(key="there", label="Columns", group="mean", sort=grid.over_tasks.there.astype(float),
             note="How many of the suite's columns count.",
             cell=lambda r: there_cell(grid, grid.over_tasks, r)),
        SuiteColumn(key="borda", label="Borda", group="mean", kept=f"borda {state.mean} {state.each}",
             passing=passing,
             sort=np.where(ranks.place > 0, ranks.borda, np.nan),
             note="For each column, the number of ranked models that are worse, ties half.",
             cell=lambda r: ranked_cell(ranks, ranks.borda, r, "{:.0f}")),
        SuiteColumn(key="mean_rank", label="Mean rank", group="mean",
             kept=f"mean_rank {state.mean} {state.each}", passing=passing,
             sort=-ranks.mean_rank,
             note="The mean of the ranks in the columns, among ranked models.",
             cell=lambda r: ranked_cell(ranks, ranks.mean_rank, r, "{:.1f}")),
        SuiteColumn(key="unseen", label="Unseen", group="mean",
             sort=grid.unseen,
             note="The share of the columns that the model was not trained on, by its makers' account.",
             cell=lambda r: unseen_cell(float(grid.unseen[r]))),
        *(_type_col(grid, means, kind) for kind, means in grid.by_type.items() if len(grid.by_type) > 1),
        *(_task_col(grid, at) for at in _by_type(grid)),
    ]  # fmt: skip


def _by_type(grid: Grid) -> list[int]:
    """The columns, those of a type side by side."""
    types = [column.type for column in grid.listed.suite.columns]
    order = list(dict.fromkeys(types))
    return sorted(range(len(types)), key=lambda at: (order.index(types[at]), at))


def _mean_col(grid: Grid, means: Means, group: str, key: str, note: str) -> SuiteColumn:
    whole = np.where(means.complete, means.values, np.nan)
    return SuiteColumn(
        key=key, label=f"over {key}", group=group, sort=whole, note=note,
        cell=lambda r: mean_of(
            mean_cell(means, r, _average(grid, r, key), grid.entries[r].seeds), grid, r
        ),
    )  # fmt: skip


def _untouched_cols(grid: Grid, untouched: UntouchedMeans) -> list[SuiteColumn]:
    """The means over the columns that chose none of the models shown: over tasks, and over several types."""
    count, note = untouched.part.count, untouched_note(untouched)
    several = len(grid.by_type) > 1
    labels = {"untouched": f"over {count} untouched", "untouched_types": f"over types of {count} untouched"}
    means = {"untouched": untouched.over_tasks, "untouched_types": untouched.over_types}
    return [
        _untouched_col(grid, means[key], key, labels[key], note)
        for key in UNTOUCHED
        if several or key == "untouched"
    ]


def _untouched_col(grid: Grid, means: Means, key: str, label: str, note: str) -> SuiteColumn:
    return SuiteColumn(
        key=key, label=label, group="mean", note=note, passing=True,
        sort=np.where(means.complete, means.values, np.nan),
        cell=lambda r: mean_cell(means, r, None, grid.entries[r].seeds),
    )  # fmt: skip


def _average(grid: Grid, row: int, over: str) -> Mapping[str, Any] | None:
    """What is known of a mean beside its value: that of tasks has an interval, a printed one its print."""
    found = grid.averages.get(row)
    return found if found and (over == "tasks" or "printed" in found) else None


def _type_col(grid: Grid, means: Means, kind: str) -> SuiteColumn:
    return SuiteColumn(
        key=f"type:{kind}", label=kind, group="mean within a type",
        note=f"The mean over {means.wanted} columns.",
        sort=np.where(means.complete, means.values, np.nan),
        cell=lambda r: mean_of(
            mean_cell(means, r, _average(grid, r, kind), grid.entries[r].seeds), grid, r, kind
        ),
    )  # fmt: skip


def _task_col(grid: Grid, at: int) -> SuiteColumn:
    column = grid.listed.suite.columns[at]
    tasks = [task.name for task in column.tasks]
    return SuiteColumn(
        key=f"task:{column.name}", label=_short(column), group=column.type,
        sort=np.where(grid.counted[:, at], grid.values[:, at], np.nan),
        href=column_path(grid.listed, column),
        note=f"{column.name}: the mean of {len(tasks)} tasks" if len(tasks) > 1 else column.name,
        cell=lambda r: task_cell(grid, r, at),
    )  # fmt: skip


def _short(column: TaskColumn) -> str:
    """A column's name without its type, which stands above it."""
    return column.name.removesuffix(column.type) or column.name


def by_key(grid: Grid, state: SuiteState, untouched: UntouchedMeans | None) -> SuiteState:
    """The state with columns by their keys: the name of a type, a column or its only task stands for it.

    Where no model shown was chosen by tasks of the suite, a mean over untouched ones is that over all.

    Raises:
        NotFound: It picks a column that is none.
    """
    if untouched is None and state.mean in UNTOUCHED:
        state = state.changed(mean=UNTOUCHED[state.mean])
    if not state.cols and state.sort == type(state).model_fields["sort"].get_default():
        return state
    columns = columns_of(grid, ranks_of(grid, state, untouched), state, untouched)
    keys = [column.key for column in columns]
    tasks = _only_tasks(grid)

    def key_of(name: str) -> str:
        found = _key(name, keys, state)
        return found if found in keys else tasks.get(name.removeprefix("task:"), found)

    unknown = next((name for name in state.cols if key_of(name) not in keys), None)
    if unknown is not None:
        known = [key.partition(":")[2] or key for key in keys]
        raise missing("column", unknown, known, then="The suite's page offers those there are.")
    sort, sign = state.sort.removeprefix("-"), "-" if state.sort.startswith("-") else ""
    key = sort if sort == "mean" else key_of(sort)
    return state.changed(cols=[key_of(name) for name in state.cols], sort=f"{sign}{key}")


def _only_tasks(grid: Grid) -> dict[str, str]:
    """The keys of columns by the name of their only task, where no other column has that task."""
    found: dict[str, list[str]] = {}
    for column in grid.listed.suite.columns:
        if len(column.tasks) == 1:
            found.setdefault(column.tasks[0].name, []).append(f"task:{column.name}")
    return {task: keys[0] for task, keys in found.items() if len(keys) == 1}


def _key(name: str, keys: Sequence[str], state: SuiteState) -> str:
    """The key that a name stands for; the name itself where it stands for none."""
    if name == "mean":
        return state.mean
    if name in UNTOUCHED and name not in keys:
        return UNTOUCHED[name]
    return next((key for key in (name, f"task:{name}", f"type:{name}") if key in keys), name)


def ranks_of(grid: Grid, state: SuiteState, untouched: UntouchedMeans | None) -> Ranks:
    """The ranks by the mean that the state names."""
    if untouched is not None and state.mean == "untouched":
        return grid.untouched_ranks(untouched, state.each)
    return grid.ranks(state.mean, state.each)


def is_shown(column: SuiteColumn, state: SuiteState, grid: Grid) -> bool:
    """Whether a column is shown.

    Raises:
        NotFound: The state asks for a task type that the suite has not.
    """
    if column.key in ("rank", "model"):
        return True
    if state.type and column.key.startswith(("task:", "type:")):
        if state.type not in grid.by_type:
            raise missing(
                "task type", state.type, grid.by_type, then="The suite's page offers those there are."
            )
        kind = column.group if column.key.startswith("task:") else column.key.removeprefix("type:")
        return kind == state.type
    if state.cols:
        return column.key in state.cols
    return is_usual(column.key, state)


def is_usual(key: str, state: SuiteState) -> bool:
    """Whether a column is shown where nothing is picked."""
    if key == "how":
        return state.each == "entry" or state.origin == "reported"
    return key not in FOLDED


def heading(column: SuiteColumn, state: SuiteState, path: str) -> Column:
    """A column as the table takes it, with the URL that sorts by it."""
    key = state.sort.removeprefix("-")
    key = state.mean if key == "mean" else key
    down = state.sort.startswith("-")
    by = column.key
    wanted = by if column.key == key and down else f"-{by}"
    if column.key in ("model", "origin", "rank"):
        wanted = f"-{by}" if column.key == key and not down else by
    sortable = column.sort is not None or column.key in ("model", "origin")
    return Column(
        key=column.key,
        label=column.label,
        group=column.group,
        numeric=column.numeric,
        href=column.href,
        sort=f"{path}?{state.query(sort=wanted, page=1)}" if sortable else "",
        sorted=("descending" if down else "ascending") if column.key == key else "",
        note=column.note,
        sticky=column.sticky,
    )
