"""What was measured here of the models and scores that a paper's table prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.scores import score_text
from leaderboard.grid import Grid, Means, SuiteMeans, UntouchedMeans
from leaderboard.pages.suite.cells import choices_made, mean_of, untouched_note
from leaderboard.queries import Entry, Queries
from leaderboard.reported.layout import Measured
from leaderboard.reported.printed import (
    AVERAGE,
    SCORES,
    Paper,
    PaperTable,
    Printed,
    column_of,
    plain,
    same_queries,
)
from leaderboard.reported.recompute import OVER_TYPES, SUITES, TYPES
from leaderboard.scopes import scopes_of, views
from leaderboard.tables import Cell

OVER_TASKS = "mean over tasks"


def measured_lines(queries: Queries, paper: Paper, table: PaperTable) -> list[Measured]:
    """The cells of each measured entry of a table's models, or made of one; in the paper's unit, times 100.

    Only entries of the kind that the table is of: fine-tuned ones for GLUE, several vectors a text for
    ColBERT, one vector a text for the rest. Imported scores are none of these.
    """
    rows = [row for row in _clear(table.rows) if row.hub_id and row.unit in SCORES and row.suite in SUITES]
    found: dict[int, dict[tuple[str, str, str, str], Cell]] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        grid = _grid(queries, suite, paper.slug)
        if grid is None:
            continue
        own = {at: _own([row for row in rows if row.suite == suite], e) for at, e in _measured(grid)}
        shown = {at: rows for at, rows in own.items() if rows}
        beside = _Beside(grid=grid, untouched=grid.untouched(shown))
        for at, mine in shown.items():
            found.setdefault(grid.entries[at].id, {}).update(beside.cells(mine, at))
    return [cells for cells in found.values() if cells]


def _own(rows: Sequence[Printed], entry: Entry) -> list[Printed]:
    """The rows that an entry is measured for: of its model, or of what it was made of."""
    models = {entry.model, entry.backbone if entry.lineage else entry.model}
    return [row for row in rows if row.hub_id in models and _fits(row, entry)]


def _clear(rows: Sequence[Printed]) -> list[Printed]:
    """Rows without columns that have one plain name, such as the averages of two treatments of BEIR."""
    columns: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        columns.setdefault((row.suite, plain(row.suite, row.metric)), set()).add(row.metric)
    return [row for row in rows if len(columns[row.suite, plain(row.suite, row.metric)]) == 1]


def _grid(queries: Queries, printed: str, view: str) -> Grid | None:
    """A printed suite of ours, by the paper's own convention where it has one."""
    listed = queries.suites.get(SUITES[printed])
    if listed is None:
        return None
    known = views(listed.suite)
    return queries.grid(listed, view if view in known else known[0])


def _measured(grid: Grid) -> Iterator[tuple[int, Entry]]:
    return ((at, entry) for at, entry in enumerate(grid.entries) if entry.origin == "measured")


def _fits(row: Printed, entry: Entry) -> bool:
    if row.suite.startswith("GLUE"):
        return entry.output == "label"
    several = "ColBERT" in f"{row.setting} {row.metric}"
    return entry.output == ("multivector" if several else "vector")


def _head(entry: Entry) -> Cell:
    made = entry.lineage.text if entry.lineage else entry.recipe or "as published"
    text = f"measured here, {made}"
    return Cell(text=text, value=text, note=entry.treatment, href=f"/models/{entry.model_slug}")


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What a suite has for the rows of a table; `untouched` are the means without columns that chose one."""

    grid: Grid
    untouched: UntouchedMeans | None

    def cells(self, rows: Sequence[Printed], at: int) -> dict[tuple[str, str, str, str], Cell]:
        """What an entry has of what `rows` print, and the head of its line."""
        others = self._other_queries(rows)
        found: dict[tuple[str, str, str, str], Cell] = {}
        for row in rows:
            own = {plain(row.suite, row.metric), OVER_TYPES, OVER_TASKS}
            cells = {
                (row.model, row.size_class, row.suite, name): self._cell(row, at, name, others)
                for name in own
            }
            known = {key: cell for key, cell in cells.items() if cell is not None}
            if known:
                head = (row.model, row.size_class, "", "")
                found |= {**known, head: _head(self.grid.entries[at])}
        return found

    @cached_property
    def _names(self) -> list[str]:
        return [column.name for column in self.grid.listed.suite.columns]

    def _column(self, row: Printed) -> str | None:
        metric = plain(row.suite, row.metric)
        return None if metric == AVERAGE else column_of(metric, self._names)

    def _other_queries(self, rows: Sequence[Printed]) -> list[str]:
        """The columns whose printed numbers are of other queries than ours."""
        columns = ((row, self._column(row)) for row in rows)
        return list(dict.fromkeys(name for row, name in columns if name and not same_queries(row, name)))

    def _cell(self, row: Printed, at: int, name: str, others: Sequence[str]) -> Cell | None:
        if name in (OVER_TASKS, OVER_TYPES):
            mteb = row.suite.startswith("MTEB(")
            return self._mean("tasks" if name == OVER_TASKS else "types", at) if mteb else None
        if row.suite.startswith("MTEB("):
            kind = TYPES.get(name, "")
            return self._mean(kind, at) if kind in self.grid.by_type else None
        if name == AVERAGE:
            cell = self._mean("tasks", at)
            return _of_others(cell, others) if cell and others else cell
        column = self._column(row)
        cell = self._score(at, self._names.index(column)) if column else None
        return _of_others(cell, [column]) if cell and column and column in others else cell

    def _mean(self, over: str, at: int) -> Cell | None:
        """A mean over tasks, types, or within a type, with that over the untouched columns in its text."""
        means, kind = _means(self.grid, over), "" if over in ("tasks", "types") else over
        if not means.complete[at]:
            return None
        cell = mean_of(_number(float(means.values[at]), ""), self.grid, at, kind)
        found = self.untouched
        if found is None or (kind and kind not in found.by_type):
            return cell
        other = _means(found, over)
        if not other.complete[at] or (kind and other.wanted == means.wanted):
            return cell
        notes = [*([cell.note] if cell.note else []), untouched_note(found)]
        text = f"{cell.text} ({score_text(float(other.values[at]))} untouched)"
        return replace(cell, text=text, note="; ".join(notes))

    def _score(self, at: int, column: int) -> Cell | None:
        grid = self.grid
        if not grid.counted[at, column]:
            return None
        low, high = float(grid.low[at, column]), float(grid.high[at, column])
        notes = [f"95 %: {score_text(low)} to {score_text(high)}."] if low == low else []
        notes += choices_made(grid.entries[at], scopes_of(grid.listed.suite.columns[column]))
        cell = _number(float(grid.values[at, column]), "; ".join(notes))
        return replace(cell, kind="selected") if grid.selected[at, column] else cell


def _of_others(cell: Cell, columns: Sequence[str]) -> Cell:
    """A number that the printed one is not to be compared with, as columns are of other queries there."""
    names = ", ".join(columns)
    note = f"measured here on {names}; the printed number is of other queries"
    notes = [*([cell.note] if cell.note else []), note]
    return replace(
        cell, text=f"{cell.text}, on {names}", kind=f"{cell.kind} other".strip(), note="; ".join(notes)
    )


def _means(means: SuiteMeans | Grid, over: str) -> Means:
    named = {"tasks": means.over_tasks, "types": means.over_types}
    return named[over] if over in named else means.by_type[over]


def _number(value: float, note: str) -> Cell:
    return Cell(text=score_text(value), value=round(100 * value, 4), note=note)
