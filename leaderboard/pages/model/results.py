"""The task results of an entry: filtered, sorted, in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.scores import score_text
from leaderboard.filters import Control, Form, form
from leaderboard.page import missing
from leaderboard.pages.model.suites import Answers
from leaderboard.pages.suite.cells import leaks, texts_text
from leaderboard.pages.task.names import task_path
from leaderboard.paging import Paging, paging
from leaderboard.queries import Entry
from leaderboard.scopes import WHY, Scope
from leaderboard.tables import Cell, Column, Row, Sorted, Table
from leaderboard.words import over_seeds, some_seeds

if TYPE_CHECKING:
    from leaderboard.views.model import ModelState

UNKNOWN = "not known"
"""The type or metric of a task that only an import names."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The table of results, and what stands around it."""

    table: Table
    paging: Paging
    form: Form
    total: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """One result: its row of the index, what is said of its data, and whether it was chosen on."""

    row: Any
    data: str
    kind: str
    note: str
    leaks: Sequence[str]
    chosen: bool
    seeds: Sequence[int]


def results_of(
    entry: Entry,
    rows: Sequence[Any],
    answers: Answers,
    chosen: frozenset[int],
    state: ModelState,
    path: str,
) -> Results:
    """The results of an entry in a state.

    Args:
        entry: Whose they are.
        rows: Of the index.
        answers: What suites make of them.
        chosen: The results for which settings were chosen on the data they were measured on.
        state: The page's.
        path: The page's own.

    Raises:
        NotFound: The state names a type or a column that is none.
    """
    types = sorted({row.type or UNKNOWN for row in rows})
    if state.type and state.type not in types and rows:
        raise missing("task type", state.type, types, then="The page offers those there are.")
    lines = [_line(entry, row, answers, chosen) for row in rows]
    kept = _ordered([line for line in lines if _keeps(state, line)], state.sort)
    where = paging(len(kept), state, path)
    shown = kept[where.first - 1 : where.last] if kept else []
    dated = any(line.row.written for line in lines)
    return Results(
        table=Table(
            name="results",
            caption="Task results: main scores × 100",
            columns=[_heading(column, state, path) for column in _columns(dated)],
            rows=[Row(cells=_cells(line, dated), key=line.row.task) for line in shown],
        ),
        paging=where,
        form=form(state, path, _controls(state, types), chips=_chips(state, path)),
        total=len(rows),
    )


def _keeps(state: ModelState, line: Line) -> bool:
    return state.q.casefold() in line.row.task.casefold() and state.type in ("", line.row.type or UNKNOWN)


def _line(entry: Entry, row: Any, answers: Answers, chosen: frozenset[int]) -> Line:
    reasons = answers.by_result.get(row.id, frozenset())
    text, kind, note = _data(row, reasons)
    some = Scope(task=row.task, splits=(), subsets=(), data=row.data)  # a result may have several parts
    found = leaks(entry, [some], row.trained_on)
    if row.trained_on:
        text = f"{text}; {texts_text(row.trained_on)}"
    return Line(
        row=row, data=text, kind=kind, note=note, leaks=found, chosen=row.id in chosen, seeds=entry.seeds
    )


def _data(row: Any, reasons: frozenset[str]) -> tuple[str, str, str]:
    """Whether a result's data is what suites pin: text, kind and note."""
    said = f"On {row.data}." if row.data else "Its source proves no revision of the data."
    if row.status in ("failed", "part"):
        return "–", "", ""
    if not reasons:
        return "in no suite", "away", f"No suite asks for this task. {said}"
    if "" in reasons:
        return "as pinned", "", said
    if "other" in reasons:
        text = "other revision" if row.data else "not proven"
        return text, "other", f"{said} {WHY['other'].capitalize()}."
    if "part" in reasons:
        return "in part", "part", f"{WHY['part'].capitalize()}."
    return "–", "", said


SORTS: Mapping[str, Callable[[Line], Any]] = {
    "task": lambda line: line.row.task.casefold(),
    "type": lambda line: (line.row.type or UNKNOWN).casefold(),
    "metric": lambda line: (line.row.metric or UNKNOWN).casefold(),
    "score": lambda line: line.row.value,
    "data": lambda line: line.data,
    "written": lambda line: line.row.written,
}


def _ordered(lines: Sequence[Line], sort: str) -> list[Line]:
    """Lines in order, those without a value last."""
    key, down = sort.removeprefix("-"), sort.startswith("-")
    if key not in SORTS:
        raise missing("column", key, SORTS, then="Click a column's heading to sort by it.")
    value = SORTS[key]
    known = [line for line in lines if value(line) is not None]
    known.sort(key=value, reverse=down)
    return [*known, *(line for line in lines if value(line) is None)]


def _columns(dated: bool) -> list[Column]:
    return [
        Column(key="name", label="Task", sticky=True),
        Column(key="score", label="Score", numeric=True, note="The mean over all splits and subsets."),
        Column(key="data", label="Data", note="Whether it was scored on the data that suites pin."),
        Column(key="type", label="Type"),
        Column(key="metric", label="Main metric"),
        *([Column(key="written", label="Measured")] if dated else []),
        Column(key="result", label="Result"),
    ]


def _heading(column: Column, state: ModelState, path: str) -> Column:
    own = "task" if column.key == "name" else column.key
    if own not in SORTS:
        return column
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    first = "-" if column.numeric or own == "written" else ""
    other = "" if down else "-"
    wanted = f"{other}{own}" if own == key else f"{first}{own}"
    now: Sorted = ("descending" if down else "ascending") if own == key else ""
    return replace(column, sort=f"{path}?{state.query(sort=wanted, page=1)}", sorted=now)


def _cells(line: Line, dated: bool) -> list[Cell]:
    row = line.row
    written = [Cell(text=(row.written or "")[:10], value=row.written)] if dated else []
    return [
        Cell(text=row.task, value=row.task, href=task_path(row.task)),
        _score(line),
        Cell(text=line.data, value=line.data, kind=line.kind, note=line.note),
        Cell(text=row.type or UNKNOWN, value=row.type or None),
        Cell(text=row.metric or UNKNOWN, value=row.metric or None),
        *written,
        Cell(text="open", value=row.id, href=f"/results/{row.id}"),
    ]


def _score(line: Line) -> Cell:
    row = line.row
    if row.status == "failed":
        return Cell(text="×", kind="failed", note="It was run and failed: its result says why.")
    if row.status == "part":
        return some_seeds(row.seeds or 0, len(line.seeds))
    if row.value is None:
        return Cell(text="!", kind="bad", note="A score is impossible (above 1, or not a number) or missing.")
    kinds = [*line.leaks, *(["chosen"] if line.chosen else []), *(["other"] if line.kind == "other" else [])]
    cell = Cell(text=score_text(row.value), value=row.value, kind=" ".join(kinds))
    return over_seeds(cell, row.deviation, line.seeds)


def _controls(state: ModelState, types: Sequence[str]) -> list[Control]:
    found = [Control(kind="search", name="q", label="Task", value=state.q, placeholder="part of a name")]
    if len(types) > 1:
        kinds = [("", "any"), *((kind, kind) for kind in types)]
        found.append(Control(kind="select", name="type", label="Task type", value=state.type, options=kinds))
    return found


def _chips(state: ModelState, path: str) -> list[tuple[str, str]]:
    words = {"q": f"task has “{state.q}”", "type": f"only {state.type}"}
    return [
        (text, f"{path}?{state.query(**{name: '', 'page': 1})}")
        for name, text in words.items()
        if getattr(state, name)
    ]
