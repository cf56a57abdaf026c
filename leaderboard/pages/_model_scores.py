"""An entry in every suite: both means, how much is there, and its rank among those that are complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.scores import score_text
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import NONE, SuiteScores
from leaderboard.data.suites import REASONS, WHY, Scope, SiteSuite, views
from leaderboard.pages._suite_table import leaks, mean_of, texts_text
from leaderboard.pages._task_scores import task_path
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.formats import over_seeds, some_seeds
from leaderboard.web.page import missing
from leaderboard.web.parameters import Paging, address, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Sorted, Table

if TYPE_CHECKING:
    from leaderboard.pages.model import ModelState


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A place: the first of those that cannot be told apart from it, of how many, and how many share it."""

    place: int
    of: int
    tied: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Standing:
    """An entry in one suite by one convention: a grid of one row, and its rank where it has one."""

    grid: SuiteScores
    rank: Rank | None

    @property
    def listed(self) -> SiteSuite:
        """The suite."""
        return self.grid.site_suite


@dataclass(frozen=True, kw_only=True)
class Answers:
    """An entry's numbers: by scope, and why a result's number does not count, by result."""

    by_scope: Mapping[int, Any]
    by_result: Mapping[int, frozenset[str]]
    averages: Mapping[tuple[str, str], Mapping[str, Any]]


def answers_of(queries: Queries, entry: Entry) -> Answers:
    """Everything that suites ask of an entry."""
    rows, means = queries.scores(entry=entry.id), queries.averages([entry.id])
    reasons: dict[int, set[str]] = {}
    for row in rows:
        reasons.setdefault(row.result, set()).add(REASONS[row.reason])
    return Answers(
        by_scope={row.scope: row for row in rows},
        by_result={result: frozenset(found) for result, found in reasons.items()},
        averages={(suite, view): document for _, suite, view, document in means},
    )


def standings(queries: Queries, entry: Entry, answers: Answers) -> list[Standing]:
    """Every suite in which an entry has anything: main ones first, then by how much is there."""
    found = [
        Standing(grid=own, rank=_rank(queries, entry, own))
        for listed in queries.suites.values()
        for view in views(listed.suite)
        if (own := _own(queries, entry, answers, listed, view)) is not None
    ]
    return sorted(found, key=lambda one: (not one.listed.main, -_share(one.grid)))


def _share(own: SuiteScores) -> float:
    return float(own.over_tasks.count[0]) / own.over_tasks.expected


def _own(
    queries: Queries, entry: Entry, answers: Answers, listed: SiteSuite, view: str
) -> SuiteScores | None:
    """The grid of a suite with this entry alone; None where it has nothing."""
    average = answers.averages.get((listed.slug, view), {})
    printed = bool(average.get("columns") or average.get("types"))
    numbers = (queries.scope_ids[scope.form] for column in listed.scopes(view) for scope in column)
    if not printed and not any(number in answers.by_scope for number in numbers):
        return None
    return queries.scores_of([entry], listed, view, pinned=True)


def _rank(queries: Queries, entry: Entry, own: SuiteScores) -> Rank | None:
    """The place among models on the suite's page; None for what has none there."""
    if not own.over_tasks.complete[0] or entry.origin == "reported" or entry.member:
        return None
    whole = queries.suite_scores(own.site_suite, own.convention, pinned=True)
    row = next(at for at, other in enumerate(whole.entries) if other.id == entry.id)
    places = whole.ranks("tasks", "model").place
    place = int(places[row])
    if not place:
        return None
    return Rank(place=place, of=int((places > 0).sum()), tied=int((places == place).sum()) - 1)


def suites_tables(entry: Entry, found: Sequence[Standing]) -> list[Table]:
    """The main suites and those of which all is there; and the others."""
    first = [one for one in found if one.listed.main or one.grid.over_tasks.complete[0]]
    first = first if entry.origin != "reported" else list(found)
    rest = [one for one in found if one not in first]
    named = [
        ("suites", "The main suites, and all that are complete: means × 100", first),
        ("parts", "Other suites of which a part is there: means × 100", rest),
    ]
    return [_table(entry, some, name, caption) for name, caption, some in named if some]


def _table(entry: Entry, found: Sequence[Standing], name: str, caption: str) -> Table:
    several = any(one.grid.convention for one in found)
    chosen = any(one.grid.chose(0) for one in found)
    return Table(
        name=name,
        caption=caption,
        columns=[c for c in _columns() if (several or c.key != "view") and (chosen or c.key != "untouched")],
        rows=[
            Row(cells=_cells(entry, one, several=several, chosen=chosen), kind=_kind(one)) for one in found
        ],
        notes=list(_notes(entry, found)),
    )


def _columns() -> list[Column]:
    return [
        Column(key="name", label="Suite", sticky=True),
        Column(key="view", label="Numbers", note="The paper's convention that makes a task's number."),
        Column(key="tasks", label="over tasks", group="mean", numeric=True, note="The mean over columns."),
        Column(key="types", label="over types", group="mean", numeric=True,
               note="The mean of the task types' own means."),
        Column(key="untouched", label="over untouched tasks", group="mean", numeric=True,
               note="The mean over the columns whose scores did not choose this model."),
        Column(key="there", label="Columns", numeric=True, note="How many of the suite's columns count."),
        Column(key="rank", label="Rank", group="among complete models", numeric=True,
               note="By the mean over tasks; models that cannot be told apart from the first of their group "
               "share its rank."),
        Column(key="of", label="of", group="among complete models", numeric=True),
        Column(key="tied", label="Tied with", group="among complete models", numeric=True,
               note="How many other models share the rank."),
    ]  # fmt: skip


def _kind(one: Standing) -> str:
    return "" if one.grid.over_tasks.complete[0] else "part"


def _cells(entry: Entry, one: Standing, *, several: bool, chosen: bool) -> list[Cell]:
    own, view = one.grid, one.grid.convention
    query = {"view": view} if view and view != views(own.site_suite.suite)[0] else {}
    pin = {} if entry.member else {"pin": entry.slug}
    href = address(f"/suites/{own.site_suite.slug}", {**query, **pin})
    there = int(own.over_tasks.count[0])
    rank = (
        [Cell(text=str(n), value=n) for n in (one.rank.place, one.rank.of, one.rank.tied)] if one.rank else []
    )
    return [
        Cell(text=own.site_suite.suite.title, value=own.site_suite.slug, href=href),
        *([Cell(text=f"as {view} prints" if view else "main scores", value=view or None)] if several else []),
        mean_of(_mean(entry, own, "tasks"), own, 0),
        mean_of(_mean(entry, own, "types"), own, 0),
        *([_untouched(entry, own)] if chosen else []),
        Cell(text=f"{there}/{own.over_tasks.expected}", value=there),
        *(rank or [EMPTY] * 3),
    ]


def _mean(entry: Entry, own: SuiteScores, over: str) -> Cell:
    means = own.mean(over)
    value = float(means.values[0])
    if not means.count[0]:
        return Cell(text="–", kind="none", note=_why(own))
    if not means.complete[0]:
        what = "columns" if over == "tasks" else "types"
        note = f"of {means.count[0]} of {means.expected} {what}: not ranked"
        part = Cell(text=score_text(value), value=value, kind="part", note=note)
        return over_seeds(part, float(means.deviations[0]), entry.seeds)
    interval = (own.averages.get(0) or {}).get("interval") if over == "tasks" else None
    if interval:
        text = f"{score_text(value)} ± {50 * (interval[1] - interval[0]):.2f}"
        return Cell(text=text, value=value, note="± half of the 95 % interval")
    return over_seeds(Cell(text=score_text(value), value=value), float(means.deviations[0]), entry.seeds)


def _untouched(entry: Entry, own: SuiteScores) -> Cell:
    """The mean over the columns that did not choose the model, with their number; empty where none chose."""
    chose, found = own.chose(0), own.untouched([0])
    if not chose:
        return EMPTY
    if found is None:
        return Cell(text="none", kind="none", note="Scores on every column chose the model.")
    means, count = found.over_tasks, found.part.count
    value, note = float(means.values[0]), f"over {count} columns, without {', '.join(chose)}"
    if not means.count[0]:
        return Cell(text="–", kind="none", note=note)
    kind = "" if means.complete[0] else "part"
    note = note if means.complete[0] else f"{note}: {means.count[0]} of them are there"
    cell = over_seeds(
        Cell(text=score_text(value), value=value, kind=kind, note=note),
        float(means.deviations[0]),
        entry.seeds,
    )
    return replace(cell, text=f"{cell.text} ({means.count[0]})")


def _why(own: SuiteScores) -> str:
    """Why nothing counts, in the words of the commonest reason."""
    codes = [int(code) for code in own.reasons[0] if code not in (0, NONE)]
    return WHY[REASONS[max(set(codes), key=codes.count)]] if codes else ""


def _notes(entry: Entry, found: Sequence[Standing]) -> Iterator[str]:
    if entry.origin == "reported":
        yield "Printed in a paper: shown beside measured and imported models, and never ranked with them."
    elif entry.member:
        yield "One seed of a training: the entry over all of its seeds stands in the suite's table."
    elif any(one.rank is None and one.grid.over_tasks.complete[0] for one in found):
        yield (
            "Where a complete entry has no rank, another entry of the same model stands for it in the "
            "suite's table; that table can show a row for each entry."
        )
    if any(not one.grid.over_tasks.complete[0] for one in found):
        yield "A mean in italics is of a part of its columns: it is not ranked, and not to be compared."
    if any(one.grid.chose(0) for one in found):
        yield (
            "Scores on tasks chose this model, and err upward there: the mean over untouched tasks leaves "
            "these out, and stands with the number of the others. Ranks are by the mean over all."
        )
    if entry.output == "label":
        yield "A paper's convention decides which raw metrics make a task's number."


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
            columns=[_heading(column, state, path) for column in _results_columns(dated)],
            rows=[Row(cells=_results_cells(line, dated), key=line.row.task) for line in shown],
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


def _results_columns(dated: bool) -> list[Column]:
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


def _results_cells(line: Line, dated: bool) -> list[Cell]:
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
