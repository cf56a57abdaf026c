"""The list of all tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from harness.results.scores import score_text
from leaderboard.data.queries import Queries
from leaderboard.data.suites import SiteSuite
from leaderboard.views import sorting
from leaderboard.views.task_scores import Best, all_questions, best_of, known_tasks, task_path
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.page import Page, PageRoute, missing
from leaderboard.web.parameters import Paging, State, Text, address, paging
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Table

PATH = "/tasks"
HELD = (("", "any"), ("suite", "in a suite"), ("none", "in no suite"))
NOTE = (
    "The best score is that of the first suite’s question; of a task in no suite, that among the entries "
    "with the splits, subsets and data that most have."
)


class _TasksState(State):
    """The parameters of the list of tasks."""

    q: Text = Field("", description="Part of a task's name.")
    type: Text = Field("", description="Only tasks of this type; `not stated` for those without one.")
    suite: Text = Field("", description="Only tasks of this suite.")
    held: Literal["", "suite", "none"] = Field("", description="Only tasks in a suite, or in none.")
    scored: bool = Field(False, description="Only tasks with results.")
    sort: Text = Field("-results", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


@dataclass(frozen=True, kw_only=True)
class _TasksPage:
    """The parts of the list of tasks beside its table: the filters, and the rows that are shown."""

    form: Form
    paging: Paging


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    name: str
    type: str
    metric: str
    results: int
    suites: Sequence[SiteSuite]
    best: Best = None

    @property
    def titles(self) -> str:
        """The titles of its suites."""
        return ", ".join(one.suite.title for one in self.suites)


def _tasks(queries: Queries, *, scored: bool) -> list[_Task]:
    """Every task; with its best score where rows are sorted by it."""
    names = known_tasks(queries)
    best = best_of(queries, names) if scored else {}
    rows = []
    for name in names:
        kind, metric, results = queries.tasks.get(name, ("", "", 0))
        questions = all_questions(queries).get(name, [])
        task = questions[0].task if questions else None
        suites = {one.slug: one for question in questions for one in question.suites}
        rows.append(
            _Task(
                name=name, type=(task.type if task else kind) or "not stated",
                metric=task.metric if task else metric, results=results, suites=list(suites.values()),
                best=best.get(name),
            )
        )  # fmt: skip
    return rows


def _fields(queries: Queries, shown: Sequence[_Task]) -> list[sorting.Field[_Task]]:
    """The columns; `shown` are the rows whose best score is to be read."""
    best = best_of(queries, [one.name for one in shown])

    def score(one: _Task) -> Cell:
        first = best.get(one.name)
        return Cell(text=score_text(first[1]), value=first[1]) if first else Cell(text="–")

    def model(one: _Task) -> Cell:
        entry = (best.get(one.name) or (None,))[0]
        href = address(f"/models/{entry.model_slug}") if entry else ""
        return Cell(text=entry.model, value=entry.model, href=href) if entry else Cell()

    def suites(one: _Task) -> Cell:
        more = f" +{len(one.suites) - 1}" if len(one.suites) > 1 else ""
        text = one.suites[0].suite.title + more if one.suites else ""
        href = address(f"/suites/{one.suites[0].slug}") if len(one.suites) == 1 else ""
        return Cell(text=text, value=one.titles or None, href=href, note=one.titles if more else "")

    column = sorting.Field[_Task]
    return [
        column(key="name", label="Task", sticky=True, sort=lambda one: one.name.casefold(),
               cell=lambda one: Cell(text=one.name, value=one.name, href=task_path(one.name))),
        column(key="results", label="Results", numeric=True, note="Results of all entries, with any splits.",
               sort=lambda one: one.results),
        column(key="best", label="Best", numeric=True, note="The best ranked score.", cell=score,
               sort=lambda one: one.best and one.best[1]),
        column(key="model", label="Best model", note="The model with the best score.", cell=model,
               sort=lambda one: one.best and one.best[0].model.casefold()),
        column(key="type", label="Type", sort=lambda one: one.type),
        column(key="metric", label="Metric", note="The main metric.", sort=lambda one: one.metric or None),
        column(key="suites", label="Suites", note="The suites of this site that have it.", cell=suites,
               sort=lambda one: len(one.suites)),
    ]  # fmt: skip


def _view(site: Site, state: _TasksState) -> Page:
    """The list of tasks."""
    queries = site.queries
    if state.suite and state.suite not in queries.suites:
        raise missing("suite", state.suite, queries.suites, then="The page /suites lists all.")
    tasks = _tasks(queries, scored=state.sort.removeprefix("-") in ("best", "model"))
    types = Counter(one.type for one in tasks)
    if state.type and state.type not in types:
        raise missing("task type", state.type, types, then="The page /tasks offers those there are.")
    rows = sorting.in_order([one for one in tasks if _fits(state, one)], _fields(queries, ()), state.sort)
    where = paging(len(rows), state, PATH)
    shown = rows[max(where.first - 1, 0) : where.last]
    fields = _fields(queries, shown)
    return Page(
        title="Tasks",
        template="tasks.html",
        lead=f"{len(tasks):,} tasks, {sum(bool(one.suites) for one in tasks):,} in a suite of this site.",
        tables=[
            Table(
                name="tasks", caption="Tasks; scores × 100", notes=[NOTE],
                columns=[field.head(state, PATH, page=1) for field in fields],
                rows=[sorting.row_of(one, fields, one.name) for one in shown],
            )
        ],
        context=_TasksPage(form=_form(queries, state, types), paging=where),
    )  # fmt: skip


def _fits(state: _TasksState, one: _Task) -> bool:
    suites = [suite.slug for suite in one.suites]
    return (
        state.q.casefold() in one.name.casefold()
        and state.type in ("", one.type)
        and (not state.suite or state.suite in suites)
        and (not state.held or (state.held == "suite") == bool(suites))
        and (not state.scored or one.results > 0)
    )


def _form(queries: Queries, state: _TasksState, types: Counter[str]) -> Form:
    selects = {
        "type": ("Type", [("", "any"), *((kind, f"{kind} ({n})") for kind, n in sorted(types.items()))]),
        "suite": ("Suite", [("", "any"), *((slug, one.suite.title) for slug, one in queries.suites.items())]),
        "held": ("In a suite", HELD),
    }
    controls = [
        Control(kind="search", name="q", label="Task", value=state.q, placeholder="part of a name"),
        *(Control(kind="select", name=name, label=label, value=getattr(state, name), options=options)
          for name, (label, options) in selects.items()),
        Control(kind="check", name="scored", label="With results", checked=state.scored),
    ]  # fmt: skip
    texts = {
        "q": f"name has “{state.q}”", "type": state.type, "suite": dict(selects["suite"][1])[state.suite],
        "held": dict(HELD)[state.held], "scored": "with results",
    }  # fmt: skip
    chips = [
        (texts[name], f"{PATH}?{state.query(**{name: field.get_default(), 'page': 1})}")
        for name, field in _TasksState.model_fields.items()
        if name in texts and getattr(state, name) != field.get_default()
    ]
    return form(state, PATH, controls, chips=chips)


PAGES = (
    PageRoute(
        path=PATH,
        state=_TasksState,
        view=_view,
        summary="All tasks, with the number of results, the best score, and the suites that have each.",
        all_paths=lambda site: [PATH],
    ),
)
