"""The table of a suite's page: which rows, in which order, which columns, and what each cell says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.types import Column as SuiteColumn
from leaderboard.filters import Control, chips, controls
from leaderboard.grid import Floats, Grid, Means, Ranks
from leaderboard.page import missing
from leaderboard.paging import Paging, paging
from leaderboard.queries import Entry
from leaderboard.render import cell_html
from leaderboard.scopes import REASONS, WHY, views
from leaderboard.tables import Cell, Column, Row, Table
from leaderboard.task_names import task_path
from leaderboard.words import parameters_text, score_text

if TYPE_CHECKING:
    from leaderboard.views.suite import SuiteState

FOLDED = ("borda", "mean_rank")
"""Columns that are shown when they are picked."""

GONE = {"none": "–", "failed": "×", "bad": "!", "part": "–"}
"""What a cell without a number prints."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The column picker: groups of (key, label, shown, shown where nothing is picked)."""

    name: str
    groups: Sequence[tuple[str, Sequence[tuple[str, str, bool, bool]]]]


@dataclass(frozen=True, kw_only=True)
class SuitePage:
    """What the template of a suite takes.

    Attributes:
        table: The table.
        lead: What is there, in a sentence.
        warnings: What must be read with it.
        controls: The form.
        hidden: State that the form keeps.
        chips: Filters in force.
        choices: The column picker.
        paging: Where in the rows this page is.
        path: The page's own path.
        reset: The page without any filter.
        tabs: Which mean ranks: label, URL, current.
        data: For the JSON twin.
    """

    table: Table
    lead: str
    warnings: Sequence[str]
    controls: Sequence[Control]
    hidden: Sequence[tuple[str, str]]
    chips: Sequence[tuple[str, str]]
    choices: Choices
    paging: Paging
    path: str
    reset: str
    tabs: Sequence[tuple[str, str, bool]]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Col:
    """A column: how it is headed, what it sorts by, and its cell of a row.

    `kept` is what its cells are kept under where that is not its key.
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
    cell: Callable[[int], Cell]


def suite_page(grid: Grid, state: SuiteState, path: str) -> SuitePage:
    """The page of a suite in a state.

    Raises:
        NotFound: The state sorts by a column that is none, or names a column or a type that is none.
    """
    ranks = grid.ranks(state.mean, state.each)
    rows = _kept(grid, state)
    columns = _columns(grid, ranks, state, rows)
    shown = [c for c in columns if _is_shown(c, state, grid)]
    ordered = _ordered(grid, state, columns, rows)
    pinned = [row for row in _pinned(grid, state) if row not in set(ordered)] + [
        row for row in ordered if grid.entries[row].slug in state.pin
    ]
    rest = [row for row in ordered if row not in set(pinned)]
    where = paging(len(rest), state, path)
    made = _Rows(grid=grid, columns=shown, marks=_marks(grid, rows), state=state, path=path)
    body = [made.row(row, pinned=True) for row in pinned]
    body += made.body(rest[where.first - 1 : where.last] if rest else [])
    unprinted = np.array([entry.origin != "reported" for entry in grid.entries], bool)
    population = _population(grid, state) & unprinted
    complete, seen = int((grid.over_tasks.complete & population).sum()), int(population.sum())
    return SuitePage(
        table=Table(
            name="suite",
            caption=f"{grid.listed.suite.title}: scores × 100",
            columns=[_heading(c, state, path) for c in shown],
            rows=body,
            notes=_notes(grid, state),
        ),
        lead=_lead(grid, state, seen, complete),
        warnings=_warnings(grid, state),
        controls=[*controls(state, grid.entries), *_more_controls(grid, state)],
        hidden=[
            (n, v) for n, v in state.pairs(page=1) if n in ("sort", "pin", "mean", "theme", "density", "rows")
        ],
        chips=_chips(grid, state, path),
        choices=_choices(columns, shown, state),
        paging=where,
        path=path,
        reset=path if state.pairs() else "",
        tabs=_tabs(state, path),
        data=_data(grid, state, complete, seen),
    )


def _lead(grid: Grid, state: SuiteState, seen: int, complete: int) -> str:
    printed = sum(entry.origin == "reported" for entry in grid.entries)
    more = f" Papers print {printed} {'rows' if printed > 1 else 'row'} of it." if printed else ""
    return f"{seen} {_rows_of(state)} with a score, {complete} of them with all {_tasks(grid)}.{more}"


def _tasks(grid: Grid) -> str:
    count = len(grid.listed.suite.columns)
    return f"{count} columns" if count != 1 else "its one column"


def _rows_of(state: SuiteState) -> str:
    return "models" if state.each == "model" else "entries"


def _population(grid: Grid, state: SuiteState) -> NDArray[np.bool_]:
    """The rows that there are before any filter."""
    return grid.first if state.each == "model" else np.ones(len(grid.entries), bool)


def _kept(grid: Grid, state: SuiteState) -> list[int]:
    """The rows that pass the filters; of a model's several the one with most, unless all are asked for."""
    rows = [
        row
        for row, entry in enumerate(grid.entries)
        if state.keeps(entry) and _unseen_enough(grid, row, state)
    ]
    return grid.one_for_each_model(rows) if state.each == "model" else rows


def _unseen_enough(grid: Grid, row: int, state: SuiteState) -> bool:
    share = grid.unseen[row]
    return not state.zero or bool(share == 1 if state.zero == "all" else share > 0.5)


def _columns(grid: Grid, ranks: Ranks, state: SuiteState, rows: Sequence[int]) -> list[_Col]:
    entries = grid.entries
    place = ranks.place.astype(float)
    place[place == 0] = np.nan
    size = np.array([np.nan if e.parameters is None else float(e.parameters) for e in entries])
    means = [
        _mean_col(grid, grid.over_tasks, "mean", "tasks", f"The mean over {_tasks(grid)}, all alike."),
        _mean_col(grid, grid.over_types, "mean", "types", "The mean of the task types' own means."),
    ]
    return [
        _Col(key="rank", label="Rank", sort=-place, sticky=True, cell=lambda r: _rank_cell(ranks, r),
             note="Models that cannot be told apart from the first of their group share its rank."),
        _Col(key="model", label="Model", numeric=False, sticky=True, cell=lambda r: _model_cell(entries[r])),
        _Col(key="parameters", label="Size", sort=size, note="Parameters.",
             cell=lambda r: Cell(text=parameters_text(entries[r].parameters), value=entries[r].parameters)),
        _Col(key="origin", label="Origin", numeric=False, cell=lambda r: _origin_cell(entries[r])),
        _Col(key="how", label="How", numeric=False, cell=lambda r: _how_cell(entries[r]),
             note="An imported model's revision, a measured one's treatment, where a row is printed."),
        *means,
        _Col(key="there", label="Columns", group="mean", sort=grid.over_tasks.there.astype(float),
             note="How many of the suite's columns count.",
             cell=lambda r: _there_cell(grid, grid.over_tasks, r)),
        _Col(key="borda", label="Borda", group="mean", kept=f"borda {state.mean} {state.each}",
             sort=np.where(ranks.place > 0, ranks.borda, np.nan),
             note="For each column, the number of ranked models that are worse, ties half.",
             cell=lambda r: _ranked_cell(ranks, ranks.borda, r, "{:.0f}")),
        _Col(key="mean_rank", label="Mean rank", group="mean", kept=f"mean_rank {state.mean} {state.each}",
             sort=-ranks.mean_rank,
             note="The mean of the ranks in the columns, among ranked models.",
             cell=lambda r: _ranked_cell(ranks, ranks.mean_rank, r, "{:.1f}")),
        _Col(key="unseen", label="Unseen", group="mean",
             sort=grid.unseen,
             note="The share of the columns that the model was not trained on, by its makers' account.",
             cell=lambda r: _unseen_cell(float(grid.unseen[r]))),
        *(_type_col(grid, means, kind) for kind, means in grid.by_type.items() if len(grid.by_type) > 1),
        *(_task_col(grid, at) for at in _by_type(grid)),
    ]  # fmt: skip


def _unseen_cell(share: float) -> Cell:
    return Cell(text=f"{100 * share:.0f} %", value=share) if share == share else Cell(text="?")


def _by_type(grid: Grid) -> list[int]:
    """The columns, those of a type side by side."""
    types = [column.type for column in grid.listed.suite.columns]
    order = list(dict.fromkeys(types))
    return sorted(range(len(types)), key=lambda at: (order.index(types[at]), at))


def _marks(grid: Grid, rows: Sequence[int]) -> dict[tuple[int, str], str]:
    """The best and the second best cells of each task's column among some rows, by row and key."""
    rows = [row for row in rows if grid.entries[row].origin != "reported"]
    if not rows:
        return {}
    inside = np.where(grid.counted, grid.values, -np.inf)[rows]
    found = {}
    for at, column in enumerate(grid.listed.suite.columns):
        known = inside[np.isfinite(inside[:, at]), at]
        best = np.unique(known)[-2:][::-1]
        for kind, value in zip(("best", "second"), best, strict=False):
            for row in np.flatnonzero(inside[:, at] == value).tolist():
                found[rows[row], f"task:{column.name}"] = kind
    return found


def _rank_cell(ranks: Ranks, row: int) -> Cell:
    place = int(ranks.place[row])
    return Cell(text=str(place) if place else "", value=place or None)


def _ranked_cell(ranks: Ranks, values: Floats, row: int, form: str) -> Cell:
    if not ranks.place[row]:
        return Cell()
    return Cell(text=form.format(values[row]), value=float(values[row]))


def _model_cell(entry: Entry) -> Cell:
    href = f"/papers/{entry.source}" if entry.origin == "reported" else f"/models/{entry.model_slug}"
    return Cell(text=entry.model, value=entry.model, href=href, note=entry.treatment)


def _origin_cell(entry: Entry) -> Cell:
    return Cell(text=entry.origin, value=entry.origin, kind=entry.origin)


def _how_cell(entry: Entry) -> Cell:
    revision = entry.revision or ""
    text = entry.treatment or (revision[:10] if entry.trust == "commit" else revision.replace("_", " "))
    short = text if len(text) <= 36 else f"{text[:35]}…"
    return Cell(text=short, value=text, note=text if short != text else "")


def _there_cell(grid: Grid, means: Means, row: int) -> Cell:
    if grid.averages.get(row, {}).get("types"):
        return Cell(text="by type", value=None, note="The paper prints means of types only.")
    return Cell(text=f"{means.there[row]}/{means.wanted}", value=int(means.there[row]))


def _mean_col(grid: Grid, means: Means, group: str, key: str, note: str) -> _Col:
    whole = np.where(means.complete, means.values, np.nan)
    return _Col(
        key=key, label=f"over {key}", group=group, sort=whole, note=note,
        cell=lambda r: _mean_cell(means, r, _average(grid, r, key)),
    )  # fmt: skip


def _average(grid: Grid, row: int, over: str) -> Mapping[str, Any] | None:
    """What is known of a mean beside its value: that of tasks has an interval, a printed one its print."""
    found = grid.averages.get(row)
    return found if found and (over == "tasks" or "printed" in found) else None


def _mean_cell(means: Means, row: int, average: Mapping[str, Any] | None) -> Cell:
    value = float(means.values[row])
    if average and "printed" in average:
        return _printed_mean(means, row, average)
    if not means.there[row]:
        return Cell(text="–", kind="none")
    if not means.complete[row]:
        return Cell(
            text=score_text(value), value=value, kind="part", note=f"of {means.there[row]} of {means.wanted}"
        )
    if average and average.get("interval"):
        low, high = average["interval"]
        return Cell(
            text=f"{score_text(value)} ± {50 * (high - low):.2f}",
            value=value,
            note="± half of the 95 % interval",
        )
    return Cell(text=score_text(value), value=value)


def _printed_mean(means: Means, row: int, document: Mapping[str, Any]) -> Cell:
    """A mean of a paper's row: of a type as printed, else made of what is printed."""
    value = float(means.values[row])
    if not means.there[row]:
        return Cell(text="–", kind="none")
    if means.over not in ("tasks", "types"):
        return Cell(text=f"{100 * value:.1f}", value=value)
    printed = document.get("printed")
    note = "made of the printed numbers" + (f"; the paper prints {100 * printed:.1f}" if printed else "")
    kind = "" if means.complete[row] else "part"
    return Cell(text=score_text(value), value=value, kind=kind, note=note)


def _type_col(grid: Grid, means: Means, kind: str) -> _Col:
    return _Col(
        key=f"type:{kind}", label=kind, group="mean within a type",
        note=f"The mean over {means.wanted} columns.",
        sort=np.where(means.complete, means.values, np.nan),
        cell=lambda r: _mean_cell(means, r, _average(grid, r, kind)),
    )  # fmt: skip


def _task_col(grid: Grid, at: int) -> _Col:
    column = grid.listed.suite.columns[at]
    tasks = [task.name for task in column.tasks]
    return _Col(
        key=f"task:{column.name}", label=_short(column), group=column.type,
        sort=np.where(grid.counted[:, at], grid.values[:, at], np.nan),
        href=task_path(tasks[0]) if len(tasks) == 1 else "",
        note=f"{column.name}: the mean of {len(tasks)} tasks" if len(tasks) > 1 else column.name,
        cell=lambda r: _task_cell(grid, r, at, tasks),
    )  # fmt: skip


def _short(column: SuiteColumn) -> str:
    """A column's name without its type, which stands above it."""
    return column.name.removesuffix(column.type) or column.name


def _task_cell(grid: Grid, row: int, at: int, tasks: Sequence[str]) -> Cell:
    reason, value = REASONS[grid.reasons[row, at]], float(grid.values[row, at])
    if reason in GONE:
        return Cell(text=GONE[reason], kind=reason)
    if grid.entries[row].origin == "reported":
        return Cell(text=f"{100 * value:.1f}", value=value)
    trained = grid.entries[row].trained_on
    kinds = ["leak"] if trained and any(task in trained for task in tasks) else []
    kinds += ["other"] if reason == "other" else []
    low, high = float(grid.low[row, at]), float(grid.high[row, at])
    note = f"95 %: {score_text(low)} to {score_text(high)}" if low == low else ""
    return Cell(text=score_text(value), value=value, kind=" ".join(kinds), note=note)


def _is_shown(column: _Col, state: SuiteState, grid: Grid) -> bool:
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
    return _is_usual(column.key, state)


def _is_usual(key: str, state: SuiteState) -> bool:
    """Whether a column is shown where nothing is picked."""
    if key == "how":
        return state.each == "entry" or state.origin == "reported"
    return key not in FOLDED


def _ordered(grid: Grid, state: SuiteState, columns: Sequence[_Col], rows: Sequence[int]) -> list[int]:
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
    part = grid.mean(state.mean)
    there, means = part.there.tolist(), np.nan_to_num(part.values, nan=-1.0).tolist()
    rest.sort(key=lambda r: (-there[r], -means[r]))
    return [*order, *rest]


def _pinned(grid: Grid, state: SuiteState) -> list[int]:
    return [row for row, entry in enumerate(grid.entries) if entry.slug in state.pin]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """What makes rows: the columns that are shown, and the cells that are marked."""

    grid: Grid
    columns: Sequence[_Col]
    marks: Mapping[tuple[int, str], str]
    state: SuiteState
    path: str

    def body(self, rows: Sequence[int]) -> list[Row]:
        """Some rows, put together where that is asked for."""
        if not self.state.group:
            return [self.row(row) for row in rows]
        groups: dict[str, list[int]] = {}
        for row in rows:
            name = getattr(self.grid.entries[row], self.state.group)
            groups.setdefault(name or f"no {self.state.group}", []).append(row)
        found = []
        for name, members in groups.items():
            cells = [Cell(text=name if c.key == "model" else "") for c in self.columns]
            found += [Row(kind="group", cells=cells), *(self.row(row) for row in members)]
        return found

    def row(self, row: int, *, pinned: bool = False) -> Row:
        """The row of an entry."""
        entry, state = self.grid.entries[row], self.state
        pins = [slug for slug in state.pin if slug != entry.slug] if pinned else [*state.pin, entry.slug]
        kind = "pinned" if pinned else "" if self.grid.over_tasks.complete[row] else "part"
        drawn = [self._drawn(column, row) for column in self.columns[2:]]
        return Row(
            cells=[*(column.cell(row) for column in self.columns[:2]), *(cell for cell, _ in drawn)],
            key=entry.slug,
            kind=kind,
            pin=f"{self.path}?{state.query(pin=pins)}",
            drawn="".join([html for _, html in drawn]),
        )

    def _drawn(self, column: _Col, row: int) -> tuple[Cell, str]:
        """A cell with its HTML; one that is not marked is made once for all pages."""
        kept = self.grid.drawn.setdefault(column.kept or column.key, {})
        if row not in kept:
            cell = column.cell(row)
            kept[row] = cell, cell_html(cell, numeric=column.numeric)
        mark = self.marks.get((row, column.key))
        if mark is None:
            return kept[row]
        cell = replace(kept[row][0], kind=f"{kept[row][0].kind} {mark}".strip())
        return cell, cell_html(cell, numeric=column.numeric)


def _heading(column: _Col, state: SuiteState, path: str) -> Column:
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


def _notes(grid: Grid, state: SuiteState) -> list[str]:
    other = int((grid.reasons == REASONS.index("other")).sum())
    bad = int((grid.reasons == REASONS.index("bad")).sum())
    notes = []
    if other and state.revisions == "pinned":
        notes.append(f"{other:,} scores are {WHY['other']}: shown, and in no mean.")
    if any(entry.origin == "reported" for entry in grid.entries):
        notes.append(
            "Rows of papers have no rank: what a paper prints was made by its own treatment. Where it prints "
            "means of types, both means are made of those here, whichever one the paper prints."
        )
    if bad:
        notes.append(f"{bad} cells hold {WHY['bad']} (above 1, or not a number): not shown, and in no mean.")
    return notes


def _warnings(grid: Grid, state: SuiteState) -> list[str]:
    if state.revisions == "any":
        return [
            "Scores on other revisions of the data count here: models may have been scored on other texts."
        ]
    return []


ZERO = (("", "any"), ("all", "none of the tasks"), ("most", "under half of the tasks"))
GROUPS = (("", "nothing"), ("backbone", "backbone"), ("recipe", "recipe"), ("organisation", "organisation"))
EACH = (("model", "each model"), ("entry", "each revision and treatment"))
REVISIONS = (("pinned", "the suite's own"), ("any", "any (not comparable)"))


def _more_controls(grid: Grid, state: SuiteState) -> list[Control]:
    selects = [("zero", "Trained on", ZERO), ("group", "Group by", GROUPS), ("each", "A row for", EACH)]
    found = [
        Control(kind="select", name=name, label=label, value=getattr(state, name), options=options, more=True)
        for name, label, options in [*selects, ("revisions", "Data revisions", REVISIONS)]
    ]
    if len(grid.by_type) > 1:
        kinds = [("", "all"), *((kind, kind) for kind in grid.by_type)]
        found.insert(
            0, Control(kind="select", name="type", label="Task type", value=state.type, options=kinds)
        )
    names = views(grid.listed.suite)
    if len(names) > 1:
        kinds = [(name, f"as {name} prints") for name in names]
        found.insert(0, Control(kind="select", name="view", label="Numbers", value=grid.view, options=kinds))
    return found


def _chips(grid: Grid, state: SuiteState, path: str) -> list[tuple[str, str]]:
    own = {"zero": "trained on {} tasks", "type": "only {}", "revisions": "{} data revision"}
    words = {"all": "no", "most": "under half of the"}
    found = chips(state, path)
    for name, label in own.items():
        default = type(state).model_fields[name].get_default()
        value = getattr(state, name)
        if value != default:
            found.append(
                (label.format(words.get(value, value)), f"{path}?{state.query(**{name: default, 'page': 1})}")
            )
    return found


def _choices(columns: Sequence[_Col], shown: Sequence[_Col], state: SuiteState) -> Choices:
    keys = {column.key for column in shown}
    groups: dict[str, list[tuple[str, str, bool, bool]]] = {}
    for column in columns:
        if column.key not in ("rank", "model"):
            groups.setdefault(column.group, []).append(
                (column.key, column.label, column.key in keys, _is_usual(column.key, state))
            )
    return Choices(name="cols", groups=list(groups.items()))


def _tabs(state: SuiteState, path: str) -> list[tuple[str, str, bool]]:
    labels = {"tasks": "Rank by the mean over tasks", "types": "Rank by the mean over types"}
    return [
        (label, f"{path}?{state.query(mean=over, sort='-mean', page=1)}", state.mean == over)
        for over, label in labels.items()
    ]


def _data(grid: Grid, state: SuiteState, complete: int, seen: int) -> dict[str, Any]:
    suite = grid.listed.suite
    return {
        "suite": suite.name,
        "typed": grid.listed.typed,
        "view": grid.view or None,
        "revisions": state.revisions,
        "rows_seen": seen,
        "rows_complete": complete,
        "columns": [
            {
                "name": c.name,
                "type": c.type,
                "tasks": [
                    {"name": t.name, "splits": list(t.splits), "data": t.data.revision or t.data.content}
                    for t in c.tasks
                ],
            }
            for c in suite.columns
        ],
    }
