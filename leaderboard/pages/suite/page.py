"""A suite's page: its table with all that stands around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from leaderboard.filters import Form, controls, form
from leaderboard.grid import OTHER, Grid, UntouchedMeans
from leaderboard.pages.suite.cells import columns_text, untouched_note
from leaderboard.pages.suite.columns import columns_of, heading, is_shown, ranks_of
from leaderboard.pages.suite.forms import choices_of, mean_tabs, more_controls, suite_chips
from leaderboard.pages.suite.rows import Rows, in_order, marks_of, population, rows_kept, rows_pinned
from leaderboard.paging import Paging, paging
from leaderboard.scopes import REASONS, WHY
from leaderboard.tables import Table

if TYPE_CHECKING:
    from leaderboard.views.suite import SuiteState


@dataclass(frozen=True, kw_only=True)
class SuitePage:
    """What the template of a suite takes.

    Attributes:
        table: The table.
        lead: What is there, in a sentence.
        warnings: What must be read with it.
        form: The form above it, with the filters in force.
        paging: Where in the rows this page is.
        path: The page's own path.
        tabs: Which mean ranks: label, URL, current.
        data: For the JSON twin.
    """

    table: Table
    lead: str
    warnings: Sequence[str]
    form: Form
    paging: Paging
    path: str
    tabs: Sequence[tuple[str, str, bool]]
    data: Mapping[str, Any] = field(default_factory=dict)


def suite_page(grid: Grid, state: SuiteState, path: str, untouched: UntouchedMeans | None) -> SuitePage:
    """The page of a suite in a state; `untouched` are the means without columns that chose a model shown.

    Raises:
        NotFound: The state sorts by a column that is none, or names a column or a type that is none.
    """
    ranks = ranks_of(grid, state, untouched)
    rows = rows_kept(grid, state)
    columns = columns_of(grid, ranks, state, untouched)
    shown = [c for c in columns if is_shown(c, state, grid)]
    ordered = in_order(grid, state, columns, rows)
    pinned = [row for row in rows_pinned(grid, state) if row not in set(ordered)] + [
        row for row in ordered if grid.entries[row].slug in state.pin
    ]
    rest = [row for row in ordered if row not in set(pinned)]
    where = paging(len(rest), state, path)
    made = Rows(grid=grid, columns=shown, marks=marks_of(grid, rows), state=state, path=path)
    body = [made.row(row, pinned=True) for row in pinned]
    body += made.body(rest[where.first - 1 : where.last] if rest else [])
    unprinted = np.array([entry.origin != "reported" for entry in grid.entries], bool)
    rows_there = population(grid, state) & unprinted
    complete, seen = int((grid.over_tasks.complete & rows_there).sum()), int(rows_there.sum())
    return SuitePage(
        table=Table(
            name="suite",
            caption=f"{grid.listed.suite.title}: scores × 100",
            columns=[heading(c, state, path) for c in shown],
            rows=body,
            notes=[*_notes(grid, state), *_selection_notes(grid, state, rows, untouched)],
        ),
        lead=_lead(grid, state, seen, complete),
        warnings=_warnings(grid, state),
        form=form(
            state,
            path,
            [*controls(state, grid.entries), *more_controls(grid, state)],
            chips=suite_chips(grid, state, path),
            columns=choices_of(columns, shown, state),
            reset=path if state.pairs() else "",
        ),
        paging=where,
        path=path,
        tabs=mean_tabs(state, path, untouched),
        data=_data(grid, state, complete, seen, untouched),
    )


def _lead(grid: Grid, state: SuiteState, seen: int, complete: int) -> str:
    """What is there, and what keeps the rest from being complete."""
    one, many = ("model", "models") if state.each == "model" else ("entry", "entries")
    printed = sum(entry.origin == "reported" for entry in grid.entries)
    more = f" Papers print {printed} {'rows' if printed > 1 else 'row'} of it." if printed else ""
    if not seen:
        return f"No {one} has a score yet.{more}"
    said = f"{seen} {one if seen == 1 else many} with a score, {complete} with all {columns_text(grid)}."
    known = (grid.reasons == 0) | (grid.reasons == OTHER)
    others = int(((known.all(axis=1)) & ~grid.over_tasks.complete & population(grid, state)).sum())
    if others:
        said += f" {others} more have all of them if scores on other revisions of the data count."
    return said + more


def _notes(grid: Grid, state: SuiteState) -> list[str]:
    other = int((grid.reasons == REASONS.index("other")).sum())
    bad = int((grid.reasons == REASONS.index("bad")).sum())
    notes = []
    if other and state.revisions == "pinned":
        notes.append(f"{other:,} scores are {WHY['other']}: shown, and in no mean.")
    if (grid.ranks("tasks", state.each).place > 0).any():
        notes.append(
            "Models share a rank where they cannot be told apart from the first of their group, which a "
            "filter may hide; the page About says how that is decided."
        )
    if any(entry.origin == "reported" for entry in grid.entries):
        notes.append(
            "Rows of papers have no rank: what a paper prints was made by its own treatment. Where it prints "
            "means of types, both means are made of those here, whichever one the paper prints."
        )
    if bad:
        notes.append(
            f"{bad} cells hold {WHY['bad']} (above 1, below −1, or not a number): not shown, and in no mean."
        )
    return notes


def _selection_notes(
    grid: Grid, state: SuiteState, rows: Sequence[int], untouched: UntouchedMeans | None
) -> list[str]:
    """What is to be known where models of the table were chosen by scores on its columns."""
    if untouched is not None:
        what = "the untouched" if state.mean == "untouched" else state.mean
        return [f"{untouched_note(untouched)} Ranks are by the mean over {what}."]
    if any(grid.chose(row) for row in rows):
        return ["Models of this table were chosen by scores on every column in its means: none is untouched."]
    return []


def _warnings(grid: Grid, state: SuiteState) -> list[str]:
    if state.revisions == "any":
        return [
            "Scores on other revisions of the data count here: models may have been scored on other texts."
        ]
    return []


def _data(
    grid: Grid, state: SuiteState, complete: int, seen: int, untouched: UntouchedMeans | None
) -> dict[str, Any]:
    suite = grid.listed.suite
    return {
        "suite": suite.name,
        "typed": grid.listed.typed,
        "view": grid.view or None,
        "revisions": state.revisions,
        "rows_seen": seen,
        "rows_complete": complete,
        "untouched": {"columns": untouched.part.count, "left_out": list(untouched.part.selected)}
        if untouched
        else None,
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
