"""The form above a suite's table, its chips, its column picker and its tabs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from leaderboard.data.scores import OTHER, SuiteScores, UntouchedMeans
from leaderboard.data.suites import REASONS, WHY, views
from leaderboard.pages._suite_table import (
    Rows,
    SuiteColumn,
    by_key,
    columns_of,
    columns_text,
    heading,
    in_order,
    is_shown,
    is_usual,
    marks_of,
    population,
    ranks_of,
    rows_kept,
    untouched_note,
    untouched_of,
)
from leaderboard.web.filters import Choices, Control, EntryState, Form, chips, controls, form
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import Paging, Text, Texts, paging
from leaderboard.web.tables import Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


ZERO = (("", "any"), ("all", "none of the tasks"), ("most", "under half of the tasks"))


GROUPS = (("", "nothing"), ("backbone", "backbone"), ("recipe", "recipe"), ("organisation", "organisation"))


EACH = (("model", "each model"), ("entry", "each revision and treatment"))


REVISIONS = (("pinned", "the suite's own"), ("any", "any (not comparable)"))


def more_controls(grid: SuiteScores, state: SuiteState) -> list[Control]:
    """What the form of a suite has beside the filters over entries."""
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
    names = views(grid.site_suite.suite)
    if len(names) > 1:
        kinds = [(name, f"as {name} prints") for name in names]
        found.insert(
            0, Control(kind="select", name="view", label="Numbers", value=grid.convention, options=kinds)
        )
    return found


def suite_chips(grid: SuiteScores, state: SuiteState, path: str) -> list[tuple[str, str]]:
    """The filters in force, each with the URL without it."""
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


def choices_of(columns: Sequence[SuiteColumn], shown: Sequence[SuiteColumn], state: SuiteState) -> Choices:
    """The column picker."""
    keys = {column.key for column in shown}
    groups: dict[str, list[tuple[str, str, bool, bool]]] = {}
    for column in columns:
        if column.key not in ("rank", "model"):
            groups.setdefault(column.group, []).append(
                (column.key, column.label, column.key in keys, is_usual(column.key, state))
            )
    return Choices(name="cols", groups=list(groups.items()))


def mean_tabs(state: SuiteState, path: str, untouched: UntouchedMeans | None) -> list[tuple[str, str, bool]]:
    """The tabs that choose the mean that ranks."""
    labels = {"tasks": "Rank by the mean over tasks", "types": "Rank by the mean over types"}
    if untouched is not None:
        labels["untouched"] = f"Rank by the mean over the {untouched.part.count} untouched"
    return [
        (label, f"{path}?{state.query(mean=over, sort='-mean', page=1)}", state.mean == over)
        for over, label in labels.items()
    ]


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


def suite_page(
    grid: SuiteScores, state: SuiteState, path: str, untouched: UntouchedMeans | None
) -> SuitePage:
    """The page of a suite in a state; `untouched` are the means without columns that chose a model shown.

    Raises:
        NotFound: The state sorts by a column that is none, or names a column or a type that is none.
    """
    ranks = ranks_of(grid, state, untouched)
    rows = rows_kept(grid, state)
    columns = columns_of(grid, ranks, state, untouched)
    shown = [c for c in columns if is_shown(c, state, grid)]
    ordered = in_order(grid, state, columns, rows)
    where = paging(len(ordered), state, path)
    made = Rows(grid=grid, columns=shown, marks=marks_of(grid, rows), state=state)
    body = made.body(ordered[where.first - 1 : where.last] if ordered else [])
    unprinted = np.array([entry.origin != "reported" for entry in grid.entries], bool)
    rows_there = population(grid, state) & unprinted
    complete, seen = int((grid.over_tasks.complete & rows_there).sum()), int(rows_there.sum())
    return SuitePage(
        table=Table(
            name="suite",
            caption=f"{grid.site_suite.suite.title}: scores × 100",
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


def _lead(grid: SuiteScores, state: SuiteState, seen: int, complete: int) -> str:
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


def _notes(grid: SuiteScores, state: SuiteState) -> list[str]:
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
    grid: SuiteScores, state: SuiteState, rows: Sequence[int], untouched: UntouchedMeans | None
) -> list[str]:
    """What is to be known where models of the table were chosen by scores on its columns."""
    if untouched is not None:
        what = "the untouched" if state.mean == "untouched" else state.mean
        return [f"{untouched_note(untouched)} Ranks are by the mean over {what}."]
    if any(grid.chose(row) for row in rows):
        return ["Models of this table were chosen by scores on every column in its means: none is untouched."]
    return []


def _warnings(grid: SuiteScores, state: SuiteState) -> list[str]:
    if state.revisions == "any":
        return [
            "Scores on other revisions of the data count here: models may have been scored on other texts."
        ]
    return []


def _data(
    grid: SuiteScores, state: SuiteState, complete: int, seen: int, untouched: UntouchedMeans | None
) -> dict[str, Any]:
    suite = grid.site_suite.suite
    return {
        "suite": suite.name,
        "typed": grid.site_suite.typed,
        "view": grid.convention or None,
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


class SuiteState(EntryState):
    """What the page of a suite can be asked."""

    zero: Literal["", "all", "most"] = Field(
        "",
        description="Only models that by their makers' account were trained on none of the tasks (all) or "
        "on under half of them (most).",
    )
    type: Text = Field("", description="Only columns of this task type.")
    cols: Texts = Field([], description="Only these columns; none named shows all.")
    sort: Text = Field("-mean", description="A column's key; with - in front the highest first.")
    mean: Literal["tasks", "types", "untouched"] = Field(
        "tasks",
        description="The mean that ranks: over tasks, over types, or over the tasks that chose no model "
        "shown (untouched).",
    )
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    revisions: Literal["pinned", "any"] = Field(
        "pinned", description="Whether scores on other revisions of the data count (any)."
    )
    group: Literal["", "backbone", "recipe", "organisation"] = Field(
        "", description="What rows are put together by."
    )
    each: Literal["model", "entry"] = Field(
        "model", description="One row for each model, or for each revision and treatment."
    )
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: SuiteState, suite: str) -> Page:
    """The page of a suite."""
    queries = site.queries
    if suite not in queries.suites:
        raise missing("suite", suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[suite]
    known = views(listed.suite)
    if state.view and state.view not in known:
        raise missing("view", state.view, known, then="The suite's page offers those there are.")
    chosen = state.view or known[0]
    grid = queries.suite_scores(listed, chosen, pinned=state.revisions != "any")
    untouched = untouched_of(grid, state)
    found: SuitePage = suite_page(grid, by_key(grid, state, untouched), f"/suites/{suite}", untouched)
    return Page(
        title=listed.suite.title,
        template="suite.html",
        lead=found.lead,
        crumbs=[Crumb(label="Suites", href="/suites")],
        tables=[found.table],
        data=found.data,
        context=found,
        notes=[*listed.suite.notes, *found.warnings],
    )


def all_paths(site: Site) -> Iterable[str]:
    """The page of every suite that has scores."""
    return [f"/suites/{slug}" for slug in site.queries.suites]


PAGE = PageRoute(
    path="/suites/{suite}",
    state=SuiteState,
    view=view,
    summary="A suite: models x tasks, both means, completeness, and ranks with ties.",
    all_paths=all_paths,
    formats=("json", "csv", "md", "tex"),
)

PAGES = (PAGE,)
