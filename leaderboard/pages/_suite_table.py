"""Columns of a suite's page: how each is headed, sorted and filled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.scores import score_text
from harness.types import Column as TaskColumn
from leaderboard.data.queries import Entry
from leaderboard.data.scores import Floats, Means, Ranks, SuiteScores, UntouchedMeans
from leaderboard.data.suites import REASONS, Scope, scopes_of
from leaderboard.pages._task_scores import column_path
from leaderboard.web.formats import cell_html, over_seeds, parameters_text, seeds_text, some_seeds
from leaderboard.web.page import missing
from leaderboard.web.tables import Cell, Column, Row

if TYPE_CHECKING:
    from leaderboard.pages.suite import SuiteState


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
    grid: SuiteScores, ranks: Ranks, state: SuiteState, untouched: UntouchedMeans | None
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
        SuiteColumn(key="there", label="Columns", group="mean", sort=grid.over_tasks.count.astype(float),
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
             sort=grid.zero_shot,
             note="The share of the columns that the model was not trained on, by its makers' account.",
             cell=lambda r: unseen_cell(float(grid.zero_shot[r]))),
        *(_type_col(grid, means, kind) for kind, means in grid.by_type.items() if len(grid.by_type) > 1),
        *(_task_col(grid, at) for at in _by_type(grid)),
    ]  # fmt: skip


def _by_type(grid: SuiteScores) -> list[int]:
    """The columns, those of a type side by side."""
    types = [column.type for column in grid.site_suite.suite.columns]
    order = list(dict.fromkeys(types))
    return sorted(range(len(types)), key=lambda at: (order.index(types[at]), at))


def _mean_col(grid: SuiteScores, means: Means, group: str, key: str, note: str) -> SuiteColumn:
    whole = np.where(means.complete, means.values, np.nan)
    return SuiteColumn(
        key=key, label=f"over {key}", group=group, sort=whole, note=note,
        cell=lambda r: mean_of(
            mean_cell(means, r, _average(grid, r, key), grid.entries[r].seeds), grid, r
        ),
    )  # fmt: skip


def _untouched_cols(grid: SuiteScores, untouched: UntouchedMeans) -> list[SuiteColumn]:
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


def _untouched_col(grid: SuiteScores, means: Means, key: str, label: str, note: str) -> SuiteColumn:
    return SuiteColumn(
        key=key, label=label, group="mean", note=note, passing=True,
        sort=np.where(means.complete, means.values, np.nan),
        cell=lambda r: mean_cell(means, r, None, grid.entries[r].seeds),
    )  # fmt: skip


def _average(grid: SuiteScores, row: int, over: str) -> Mapping[str, Any] | None:
    """What is known of a mean beside its value: that of tasks has an interval, a printed one its print."""
    found = grid.averages.get(row)
    return found if found and (over == "tasks" or "printed" in found) else None


def _type_col(grid: SuiteScores, means: Means, kind: str) -> SuiteColumn:
    return SuiteColumn(
        key=f"type:{kind}", label=kind, group="mean within a type",
        note=f"The mean over {means.expected} columns.",
        sort=np.where(means.complete, means.values, np.nan),
        cell=lambda r: mean_of(
            mean_cell(means, r, _average(grid, r, kind), grid.entries[r].seeds), grid, r, kind
        ),
    )  # fmt: skip


def _task_col(grid: SuiteScores, at: int) -> SuiteColumn:
    column = grid.site_suite.suite.columns[at]
    tasks = [task.name for task in column.tasks]
    return SuiteColumn(
        key=f"task:{column.name}", label=_short(column), group=column.type,
        sort=np.where(grid.counted[:, at], grid.values[:, at], np.nan),
        href=column_path(grid.site_suite, column),
        note=f"{column.name}: the mean of {len(tasks)} tasks" if len(tasks) > 1 else column.name,
        cell=lambda r: task_cell(grid, r, at),
    )  # fmt: skip


def _short(column: TaskColumn) -> str:
    """A column's name without its type, which stands above it."""
    return column.name.removesuffix(column.type) or column.name


def by_key(grid: SuiteScores, state: SuiteState, untouched: UntouchedMeans | None) -> SuiteState:
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


def _only_tasks(grid: SuiteScores) -> dict[str, str]:
    """The keys of columns by the name of their only task, where no other column has that task."""
    found: dict[str, list[str]] = {}
    for column in grid.site_suite.suite.columns:
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


def ranks_of(grid: SuiteScores, state: SuiteState, untouched: UntouchedMeans | None) -> Ranks:
    """The ranks by the mean that the state names."""
    if untouched is not None and state.mean == "untouched":
        return grid.untouched_ranks(untouched, state.each)
    return grid.ranks(state.mean, state.each)


def is_shown(column: SuiteColumn, state: SuiteState, grid: SuiteScores) -> bool:
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


GONE = {"none": "–", "failed": "×", "bad": "!", "part": "–"}
"""What a cell without a number prints."""


def unseen_cell(share: float) -> Cell:
    """The share of columns that a model was not trained on; a question mark where nobody says."""
    return Cell(text=f"{100 * share:.0f} %", value=share) if share == share else Cell(text="?")


def rank_cell(ranks: Ranks, row: int) -> Cell:
    """A row's rank; empty for one that has none."""
    place = int(ranks.place[row])
    return Cell(text=str(place) if place else "", value=place or None)


def ranked_cell(ranks: Ranks, values: Floats, row: int, form: str) -> Cell:
    """A number that only ranked rows have."""
    if not ranks.place[row]:
        return Cell()
    return Cell(text=form.format(values[row]), value=float(values[row]))


def model_cell(entry: Entry) -> Cell:
    """A model's name, or that of a paper's row."""
    if entry.origin == "reported":
        text = f"{entry.model}: {entry.treatment.rpartition(';')[2].rpartition(': ')[2].strip()}"
        return Cell(text=text, value=entry.model, href=f"/papers/{entry.source}", note=entry.treatment)
    return Cell(
        text=entry.model, value=entry.model, href=f"/models/{entry.model_slug}", kind=kinds_of(entry),
        note=made_of(entry) or entry.treatment,
    )  # fmt: skip


def kinds_of(entry: Entry) -> str:
    """What must be known of the training of an entry's model, as kinds of a cell."""
    made = entry.lineage
    if made is None:
        return ""
    marks = (("own", made.all_own_data), ("changed", made.changed), ("selected", made.all_selected_on))
    return " ".join(kind for kind, there in marks if there)


def made_of(entry: Entry) -> str:
    """What a recipe made an entry's model of, under which seeds, and the treatment; empty for any other."""
    return f"{training_text(entry)}; {entry.treatment}" if entry.lineage else ""


def training_text(entry: Entry) -> str:
    """What a recipe made an entry's model of, and under which seeds; empty for any other."""
    made = entry.lineage
    if made is None:
        return ""
    parents = " and ".join(parent.text for parent in made.parents)
    chosen = [made.choices_text] if made.choices else []
    return "; ".join([f"{made.text} on {parents}", *chosen, seeds_text(entry.seeds)])


def origin_cell(entry: Entry) -> Cell:
    """Where the numbers of a row come from."""
    told = {"external": "by its makers", "none": "no revision"}.get(entry.trust, "")
    text = f"{entry.origin}, {told}" if told else entry.origin
    return Cell(text=text, value=entry.origin, kind=entry.origin)


def how_cell(entry: Entry) -> Cell:
    """An imported model's revision, a measured one's treatment, where a row is printed."""
    revision = entry.revision or ""
    text = (
        made_of(entry)
        or entry.treatment
        or (revision[:10] if entry.trust == "commit" else revision.replace("_", " "))
    )
    short = text if len(text) <= 36 else f"{text[:35]}…"
    return Cell(text=short, value=text, note=text if short != text else "")


def there_cell(grid: SuiteScores, means: Means, row: int) -> Cell:
    """How many of the suite's columns count."""
    if grid.averages.get(row, {}).get("types"):
        return Cell(text="by type", value=None, note="The paper prints means of types only.")
    return Cell(text=f"{means.count[row]}/{means.expected}", value=int(means.count[row]))


def mean_cell(means: Means, row: int, average: Mapping[str, Any] | None, seeds: Sequence[int] = ()) -> Cell:
    """A mean.

    Args:
        means: Of all rows.
        row: Which.
        average: What else is known of it (Grid.averages).
        seeds: Those that it is over.
    """
    value = float(means.values[row])
    if average and "printed" in average:
        return _printed_mean(means, row, average)
    if not means.count[row]:
        return Cell(text="–", kind="none")
    if not means.complete[row]:
        part = f"of {means.count[row]} of {means.expected}"
        cell = Cell(text=score_text(value), value=value, kind="part", note=part)
        return over_seeds(cell, float(means.deviations[row]), seeds)
    if average and average.get("interval"):
        low, high = average["interval"]
        return Cell(
            text=f"{score_text(value)} ± {50 * (high - low):.2f}",
            value=value,
            note="± half of the 95 % interval",
        )
    return over_seeds(Cell(text=score_text(value), value=value), float(means.deviations[row]), seeds)


def mean_of(cell: Cell, grid: SuiteScores, row: int, kind: str = "") -> Cell:
    """The cell of a mean (of all columns, or of a type's), marked where some of them chose the model."""
    chose = grid.chose(row, kind) if cell.value is not None else []
    if not chose:
        return cell
    note = f"{', '.join(chose)} chose the model, and {'is' if len(chose) == 1 else 'are'} in this mean"
    notes = [cell.note, note] if cell.note else [note]
    return replace(cell, kind=f"{cell.kind} selected".strip(), note="; ".join(notes))


def untouched_note(untouched: UntouchedMeans) -> str:
    """What the means over untouched columns leave out, and why."""
    part = untouched.part
    names, one = ", ".join(part.selected), len(part.selected) == 1
    return (
        f"The means over the {part.count} untouched leave out {names}: models of this table were chosen by "
        f"their scores there, which err upward. They are over the same columns for every model; the means "
        f"over all {part.count + len(part.selected)} have {'it' if one else 'them'}."
    )


def _printed_mean(means: Means, row: int, document: Mapping[str, Any]) -> Cell:
    """A mean of a paper's row: of a type as printed, else made of what is printed."""
    value = float(means.values[row])
    if not means.count[row]:
        return Cell(text="–", kind="none")
    if means.over not in ("tasks", "types"):
        return Cell(text=f"{100 * value:.1f}", value=value)
    printed = document.get("printed")
    note = "made of the printed numbers" + (f"; the paper prints {100 * printed:.1f}" if printed else "")
    kind = "" if means.complete[row] else "part"
    return Cell(text=score_text(value), value=value, kind=kind, note=note)


def task_cell(grid: SuiteScores, row: int, at: int) -> Cell:
    """A task's score, or why there is none."""
    reason, value, entry = REASONS[grid.reasons[row, at]], float(grid.values[row, at]), grid.entries[row]
    if reason == "seeds":
        return some_seeds(int(grid.seeds[row, at]), len(entry.seeds))
    if reason in GONE:
        return Cell(text=GONE[reason], kind=reason)
    if entry.origin == "reported":
        return Cell(text=f"{100 * value:.1f}", value=value)
    texts, column = int(grid.trained_on[row, at]), grid.site_suite.suite.columns[at]
    asked = scopes_of(column)
    kinds = [*leaks(entry, asked, texts, column.name), *(["other"] if reason == "other" else [])]
    low, high = float(grid.low[row, at]), float(grid.high[row, at])
    notes = [f"95 %: {score_text(low)} to {score_text(high)}"] if low == low else []
    notes += [*choices_made(entry, asked), *([texts_text(texts)] if texts else [])]
    cell = Cell(text=score_text(value), value=value, kind=" ".join(kinds), note="; ".join(notes))
    return over_seeds(cell, float(grid.deviations[row, at]), entry.seeds)


def leaks(entry: Entry, asked: Sequence[Scope], texts: int | None, column: str = "") -> list[str]:
    """Why a score flatters a model, as kinds.

    Args:
        entry: The model.
        asked: What the score is of.
        texts: How many texts of it are in the model's training data.
        column: The name of the column of several tasks.
    """
    trained = entry.trained_on or ()
    marks = (
        ("leak", any(name in trained for name in (column, *(scope.task for scope in asked)))),
        ("selected", choices_made(entry, asked)),
        ("texts", texts),
    )
    return [kind for kind, there in marks if there]


def choices_made(entry: Entry, asked: Sequence[Scope]) -> list[str]:
    """What the scores on what is asked for chose of a model, in a sentence; none where they chose nothing."""
    made = entry.lineage
    chosen = [what for one in asked if made for what in made.chosen_by(one.task, one.splits, one.subsets)]
    return [f"its scores chose: {', '.join(dict.fromkeys(chosen))}"] if chosen else []


def texts_text(count: int) -> str:
    """How many texts of a task are in the training data.

    >>> texts_text(1), texts_text(1200)
    ('1 text of it is in the training data', '1,200 texts of it are in the training data')
    """
    one = "1 text of it is" if count == 1 else f"{count:,} texts of it are"
    return f"{one} in the training data"


def columns_text(grid: SuiteScores) -> str:
    """How many columns a suite has, in words."""
    count = len(grid.site_suite.suite.columns)
    return f"{count} columns" if count != 1 else "its one column"


PRINTED = "Printed in papers, without rank"
"""The heading over rows of papers."""


def population(grid: SuiteScores, state: SuiteState) -> NDArray[np.bool_]:
    """The rows that there are before any filter."""
    return grid.first if state.each == "model" else np.ones(len(grid.entries), bool)


def rows_kept(grid: SuiteScores, state: SuiteState) -> list[int]:
    """The rows that pass the filters; of a model's several the one with most, unless all are asked for."""
    rows = [
        row
        for row, entry in enumerate(grid.entries)
        if state.keeps(entry) and _unseen_enough(grid, row, state)
    ]
    return grid.one_for_each_model(rows) if state.each == "model" else rows


def _unseen_enough(grid: SuiteScores, row: int, state: SuiteState) -> bool:
    share = grid.zero_shot[row]
    return not state.zero or bool(share == 1 if state.zero == "all" else share > 0.5)


def marks_of(grid: SuiteScores, rows: Sequence[int]) -> dict[tuple[int, str], str]:
    """The best and the second best cells of each task's column among some rows, by row and key."""
    rows = [row for row in rows if grid.entries[row].origin != "reported"]
    if not rows:
        return {}
    inside = np.where(grid.counted, grid.values, -np.inf)[rows]
    found = {}
    for at, column in enumerate(grid.site_suite.suite.columns):
        known = inside[np.isfinite(inside[:, at]), at]
        best = np.unique(known)[-2:][::-1]
        for kind, value in zip(("best", "second"), best, strict=False):
            for row in np.flatnonzero(inside[:, at] == value).tolist():
                found[rows[row], f"task:{column.name}"] = kind
    return found


def in_order(
    grid: SuiteScores, state: SuiteState, columns: Sequence[SuiteColumn], rows: Sequence[int]
) -> list[int]:
    """Rows in order, those of papers last; groups stand together in the order of their first rows."""
    printed = {row for row in rows if grid.entries[row].origin == "reported"}
    ordered = _sorted(grid, state, columns, [row for row in rows if row not in printed])
    ordered += _sorted(grid, state, columns, [row for row in rows if row in printed])
    if not state.group:
        return ordered
    groups: dict[str, list[int]] = {}
    for row in ordered:
        groups.setdefault(getattr(grid.entries[row], state.group) or "", []).append(row)
    return [row for members in groups.values() for row in members]


def _sorted(
    grid: SuiteScores, state: SuiteState, columns: Sequence[SuiteColumn], rows: Sequence[int]
) -> list[int]:
    """Rows in order; those without a value last, by how much of the suite they have."""
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    key = state.mean if key == "mean" else key
    if key in ("model", "origin"):
        return sorted(rows, key=lambda r: getattr(grid.entries[r], key).casefold(), reverse=down)
    by = {column.key: column.sort for column in columns if column.sort is not None}
    if key not in by:
        raise missing("column", key, [*by, "model", "origin"], then="Click a column's heading to sort by it.")
    values = by[key].tolist()
    order = [r for r in rows if values[r] == values[r]]
    order.sort(key=lambda r: values[r], reverse=down)
    rest = [r for r in rows if values[r] != values[r]]
    part = grid.mean("types" if state.mean == "types" else "tasks")
    there, means = part.count.tolist(), np.nan_to_num(part.values, nan=-1.0).tolist()
    rest.sort(key=lambda r: (-there[r], -means[r]))
    return [*order, *rest]


def rows_pinned(grid: SuiteScores, state: SuiteState) -> list[int]:
    """The rows that stay on top."""
    return [row for row, entry in enumerate(grid.entries) if entry.slug in state.pin]


def untouched_of(grid: SuiteScores, state: SuiteState) -> UntouchedMeans | None:
    """The means over the columns that chose no model of those shown; None where none was chosen so."""
    if not grid.selected.any():
        return None
    return grid.untouched([*rows_kept(grid, state), *rows_pinned(grid, state)])


Drawn = dict[int, tuple[Cell, str]]
"""Cells of a column with their HTML, by row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """What makes rows: the columns that are shown, and the cells that are marked."""

    grid: SuiteScores
    columns: Sequence[SuiteColumn]
    marks: Mapping[tuple[int, str], str]
    state: SuiteState
    path: str
    own: dict[str, dict[int, tuple[Cell, str]]] = field(default_factory=dict)

    def body(self, rows: Sequence[int]) -> list[Row]:
        """Some rows, put together where that is asked for."""
        if not self.state.group:
            own = [row for row in rows if self.grid.entries[row].origin != "reported"]
            printed = [self.row(row) for row in rows if self.grid.entries[row].origin == "reported"]
            head = [self._heading(PRINTED)] if printed else []
            return [*(self.row(row) for row in own), *head, *printed]
        groups: dict[str, list[int]] = {}
        for row in rows:
            name = getattr(self.grid.entries[row], self.state.group)
            groups.setdefault(name or f"no {self.state.group}", []).append(row)
        found = []
        for name, members in groups.items():
            found += [self._heading(name), *(self.row(row) for row in members)]
        return found

    def _heading(self, name: str) -> Row:
        cells = [Cell(text=name if column.key == "model" else "") for column in self.columns]
        return Row(kind="group", cells=cells)

    def row(self, row: int, *, pinned: bool = False) -> Row:
        """The row of an entry."""
        entry = self.grid.entries[row]
        kind = "pinned" if pinned else "" if self.grid.over_tasks.complete[row] else "part"
        drawn = [kept.get(row) or self._draw(column, row, kept) for column, kept in self._kept]
        if row in self._marked:
            drawn = [self._mark(one, column, row) for one, (column, _) in zip(drawn, self._kept, strict=True)]
        return Row(
            cells=[*(column.cell(row) for column in self.columns[:2]), *[cell for cell, _ in drawn]],
            key=entry.slug,
            kind=kind,
            pin=self._pin(entry.slug, pinned),
            drawn="".join([html for _, html in drawn]),
        )

    @cached_property
    def _kept(self) -> list[tuple[SuiteColumn, Drawn]]:
        """The columns behind the first two, each with its cells that were drawn before."""
        return [
            (column, self._drawn(column).setdefault(column.kept or column.key, {}))
            for column in self.columns[2:]
        ]

    def _drawn(self, column: SuiteColumn) -> dict[str, Drawn]:
        """Where a column's cells are kept: with the grid, or for this page alone."""
        return self.own

    @cached_property
    def _marked(self) -> set[int]:
        return {row for row, _ in self.marks}

    @cached_property
    def _query(self) -> str:
        return self.state.query()

    def _pin(self, slug: str, pinned: bool) -> str:
        """The URL that pins an entry, or lets it go; slugs need no escapes."""
        if pinned:
            return f"{self.path}?{self.state.query(pin=[one for one in self.state.pin if one != slug])}"
        return f"{self.path}?{self._query}{'&' if self._query else ''}pin={slug}"

    @staticmethod
    def _draw(column: SuiteColumn, row: int, kept: Drawn) -> tuple[Cell, str]:
        """A cell with its HTML, made once for all pages."""
        cell = column.cell(row)
        kept[row] = cell, cell_html(cell, numeric=column.numeric)
        return kept[row]

    def _mark(self, one: tuple[Cell, str], column: SuiteColumn, row: int) -> tuple[Cell, str]:
        mark = self.marks.get((row, column.key))
        if mark is None:
            return one
        cell = replace(one[0], kind=f"{one[0].kind} {mark}".strip())
        return cell, cell_html(cell, numeric=column.numeric)
