"""What was measured here of the models and scores that a paper's table prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.scores import score_text
from leaderboard.grid import Grid, Means, SuiteMeans
from leaderboard.pages.suite.cells import choices_made, mean_of
from leaderboard.queries import Entry, Queries
from leaderboard.reported.layout import Measured
from leaderboard.reported.printed import AVERAGE, SCORES, Paper, PaperTable, Printed, plain
from leaderboard.reported.recompute import OVER_TYPES, SUITES, TYPES
from leaderboard.scopes import scopes_of, views
from leaderboard.tables import Cell

OVER_TASKS = "mean over tasks"
COLUMNS: Mapping[str, str] = {
    "Climate-FEVER": "ClimateFEVER",
    "CQADupstack": "CQADupstackRetrieval",
    "FiQA": "FiQA2018",
    "Quora": "QuoraRetrieval",
    "SciDocs": "SCIDOCS",
    "TREC-COVID": "TRECCOVID",
}
"""Columns of the catalog that a paper spells differently."""


def measured_lines(queries: Queries, paper: Paper, table: PaperTable) -> list[Measured]:
    """The cells of each measured entry of a table's models, or made of one; in the paper's unit, times 100.

    Only entries of the kind that the table is of: fine-tuned ones for GLUE, several vectors a text for
    ColBERT, one vector a text for the rest. Imported scores are none of these.
    """
    rows = [row for row in _clear(table.rows) if row.hub_id and row.unit in SCORES and row.suite in SUITES]
    found: dict[int, dict[tuple[str, str, str, str], Cell]] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        grid = _grid(queries, suite, paper.slug)
        for at, entry in _measured(grid) if grid else ():
            models = {entry.model, entry.backbone if entry.lineage else entry.model}
            mine = [row for row in rows if row.suite == suite and row.hub_id in models]
            if mine and grid:
                cells = _cells([row for row in mine if _fits(row, entry)], grid, at)
                found.setdefault(entry.id, {}).update(cells)
    return [cells for cells in found.values() if cells]


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


def _cells(rows: Sequence[Printed], grid: Grid, at: int) -> dict[tuple[str, str, str, str], Cell]:
    """What an entry has of what `rows` print, and the head of its line."""
    found: dict[tuple[str, str, str, str], Cell] = {}
    for row in rows:
        own = {plain(row.suite, row.metric), OVER_TYPES, OVER_TASKS}
        cells = {(row.model, row.size_class, row.suite, name): _cell(row, grid, at, name) for name in own}
        known = {key: cell for key, cell in cells.items() if cell is not None}
        if known:
            head = (row.model, row.size_class, "", "")
            found |= {**known, head: _head(grid.entries[at])}
    return found


def _head(entry: Entry) -> Cell:
    made = entry.lineage.text if entry.lineage else entry.recipe or "as published"
    text = f"measured here, {made}"
    return Cell(text=text, value=text, note=entry.treatment, href=f"/models/{entry.model_slug}")


def _cell(row: Printed, grid: Grid, at: int, name: str) -> Cell | None:
    if name in (OVER_TASKS, OVER_TYPES):
        mteb = row.suite.startswith("MTEB(")
        return _mean(grid, "tasks" if name == OVER_TASKS else "types", at) if mteb else None
    if row.suite.startswith("MTEB("):
        kind = TYPES.get(name, "")
        return _mean(grid, kind, at) if kind in grid.by_type else None
    if name == AVERAGE:
        return _mean(grid, "tasks", at)
    names = [column.name for column in grid.listed.suite.columns]
    wanted = COLUMNS.get(name, name)
    return _score(grid, at, names.index(wanted)) if wanted in names else None


def _mean(grid: Grid, over: str, at: int) -> Cell | None:
    """A mean over tasks, types, or within a type, with that over the untouched columns in its text."""
    means = _means(grid, over)
    if not means.complete[at]:
        return None
    kind = "" if over in ("tasks", "types") else over
    cell = mean_of(_number(float(means.values[at]), ""), grid, at, kind)
    found = grid.untouched([at]) if grid.chose(at, kind) else None
    other = _means(found, over) if found and (not kind or kind in found.by_type) else None
    if other is None or not other.complete[at]:
        return cell
    return replace(cell, text=f"{cell.text} ({score_text(float(other.values[at]))} untouched)")


def _means(means: SuiteMeans | Grid, over: str) -> Means:
    named = {"tasks": means.over_tasks, "types": means.over_types}
    return named[over] if over in named else means.by_type[over]


def _score(grid: Grid, at: int, column: int) -> Cell | None:
    if not grid.counted[at, column]:
        return None
    low, high = float(grid.low[at, column]), float(grid.high[at, column])
    notes = [f"95 %: {score_text(low)} to {score_text(high)}."] if low == low else []
    notes += choices_made(grid.entries[at], scopes_of(grid.listed.suite.columns[column]))
    cell = _number(float(grid.values[at, column]), "; ".join(notes))
    return replace(cell, kind="selected") if grid.selected[at, column] else cell


def _number(value: float, note: str) -> Cell:
    return Cell(text=score_text(value), value=round(100 * value, 4), note=note)
