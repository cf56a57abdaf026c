"""The list of all tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.scores import score_text
from leaderboard.data.queries import Queries
from leaderboard.data.suites import SiteSuite
from leaderboard.pages._task_scores import asked, known_tasks, task_path
from leaderboard.pages.task import Best, best_of
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.page import Page, PageRoute, missing
from leaderboard.web.parameters import Paging, State, Text, address, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


PATH = "/tasks"
UNKNOWN = "not known"
"""The type of a task that nobody says anything of."""


@dataclass(frozen=True, kw_only=True)
class TaskList:
    """What the template of the list takes.

    Attributes:
        table: The tasks.
        lead: What is there, in a sentence.
        form: The form above it, with the filters in force.
        paging: Where in the rows this page is.
        data: For the JSON twin.
    """

    table: Table
    lead: str
    form: Form
    paging: Paging
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """A task with what is known of it without its scores."""

    name: str
    type: str
    metric: str
    results: int
    suites: Sequence[SiteSuite]


def task_list(queries: Queries, state: TasksState) -> TaskList:
    """The list in a state.

    Raises:
        NotFound: The state names a type, a suite or a column that is none.
    """
    all_paths = _listings(queries)
    if state.suite and state.suite not in queries.suites:
        raise missing("suite", state.suite, queries.suites, then="The page /suites lists all.")
    types = Counter(one.type for one in all_paths)
    if state.type and state.type not in types:
        raise missing("task type", state.type, types, then="The page /tasks offers those there are.")
    kept = _ordered(queries, [one for one in all_paths if _keeps(state, one)], state)
    where = paging(len(kept), state, PATH)
    shown = kept[max(where.first - 1, 0) : where.last]
    best = best_of(queries, [one.name for one in shown])
    held = sum(bool(one.suites) for one in all_paths)
    return TaskList(
        table=Table(
            name="tasks",
            caption="Tasks; scores × 100",
            columns=_columns(state),
            rows=[_row(one, best[one.name]) for one in shown],
            notes=[
                "The best score is that of the first suite’s question, on the data that the suite pins; of "
                "a task in no suite, among the entries with the splits, subsets and data that most have."
            ],
        ),
        lead=f"{len(all_paths):,} tasks, {held:,} of them in a suite of this site.",
        form=form(state, PATH, _controls(queries, state, types), chips=_chips(queries, state)),
        paging=where,
        data={
            "tasks": len(all_paths),
            "in_suites": held,
            "kept": len(kept),
            "types": dict(types.most_common()),
        },
    )


def _listings(queries: Queries) -> list[Listing]:
    return [_listing(queries, name) for name in known_tasks(queries)]


def _listing(queries: Queries, name: str) -> Listing:
    kind, metric, results = queries.tasks.get(name, ("", "", 0))
    questions = asked(queries).get(name, [])
    task = questions[0].task if questions else None
    suites = {one.slug: one for question in questions for one in question.holders}
    return Listing(
        name=name,
        type=(task.type if task else kind) or UNKNOWN,
        metric=(task.metric if task else metric) or "",
        results=results,
        suites=list(suites.values()),
    )


def _keeps(state: TasksState, one: Listing) -> bool:
    return all(
        (
            state.q.casefold() in one.name.casefold(),
            state.type in ("", one.type),
            not state.suite or state.suite in [suite.slug for suite in one.suites],
            state.held == "" or (state.held == "suite") == bool(one.suites),
            not state.scored or one.results > 0,
        )
    )


HEADS = (
    ("name", "Task", False, ""),
    ("type", "Type", False, ""),
    ("metric", "Metric", False, "The main metric."),
    ("results", "Results", True, "Results of all entries, whatever they were asked."),
    ("best", "Best", True, "The best ranked score."),
    ("model", "By", False, "The model with the best score."),
    ("suites", "Suites", False, "The suites of this site that hold it."),
)


def _columns(state: TasksState) -> list[Column]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    return [
        Column(
            key=name, label=label, numeric=numeric, note=note, sticky=name == "name",
            sort=f"{PATH}?{state.query(sort=_wanted(name, state, numeric=numeric), page=1)}",
            sorted=("descending" if down else "ascending") if name == key else "",
        )
        for name, label, numeric, note in HEADS
    ]  # fmt: skip


def _wanted(name: str, state: TasksState, *, numeric: bool) -> str:
    first, other = (f"-{name}", name) if numeric or name == "suites" else (name, f"-{name}")
    return other if state.sort == first else first


def _ordered(queries: Queries, rows: Sequence[Listing], state: TasksState) -> list[Listing]:
    """The tasks in order; those without a value last."""
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    best = best_of(queries, [one.name for one in rows]) if key in ("best", "model") else {}
    by: dict[str, Callable[[Listing], Any]] = {
        "name": lambda one: one.name.casefold(),
        "type": lambda one: one.type,
        "metric": lambda one: one.metric or None,
        "results": lambda one: one.results,
        "suites": lambda one: len(one.suites),
        "best": lambda one: (found := best[one.name]) and found.value,
        "model": lambda one: (found := best[one.name]) and found.entry.model.casefold(),
    }
    if key not in by:
        raise missing("column", key, by, then="Click a column's heading to sort by it.")
    there = [one for one in rows if by[key](one) is not None]
    there.sort(key=by[key], reverse=down)
    return [*there, *(one for one in rows if by[key](one) is None)]


def _row(one: Listing, best: Best | None) -> Row:
    titles = [suite.suite.title for suite in one.suites]
    told = titles[0] + (f" +{len(titles) - 1}" if len(titles) > 1 else "") if titles else ""
    href = address(f"/suites/{one.suites[0].slug}") if len(titles) == 1 else ""
    return Row(
        key=one.name,
        cells=[
            Cell(text=one.name, value=one.name, href=task_path(one.name)),
            Cell(text=one.type, value=one.type),
            Cell(text=one.metric, value=one.metric or None),
            Cell(text=f"{one.results:,}", value=one.results),
            *_best_cells(best),
            Cell(text=told, value=", ".join(titles) or None, href=href, note=", ".join(titles[1:])),
        ],
    )


def _best_cells(best: Best | None) -> tuple[Cell, Cell]:
    if best is None:
        return Cell(text="–"), EMPTY
    model = best.entry.model
    return (
        Cell(text=score_text(best.value), value=best.value),
        Cell(text=model, value=model, href=address(f"/models/{best.entry.model_slug}")),
    )


HELD = (("", "any"), ("suite", "in a suite"), ("none", "in no suite"))
"""Whether a task is held by a suite."""


def _controls(queries: Queries, state: TasksState, types: Mapping[str, int]) -> list[Control]:
    kinds = [("", "any"), *((kind, f"{kind} ({n})") for kind, n in sorted(types.items()))]
    suites = [("", "any"), *((slug, one.suite.title) for slug, one in queries.suites.items())]
    return [
        Control(kind="search", name="q", label="Task", value=state.q, placeholder="part of a name"),
        Control(kind="select", name="type", label="Type", value=state.type, options=kinds),
        Control(kind="select", name="suite", label="Suite", value=state.suite, options=suites),
        Control(kind="select", name="held", label="Held by", value=state.held, options=HELD),
        Control(kind="check", name="scored", label="With results", checked=state.scored),
    ]


def _chips(queries: Queries, state: TasksState) -> list[tuple[str, str]]:
    suite = queries.suites[state.suite].suite.title if state.suite else ""
    says = {
        "q": f"name has “{state.q}”", "type": state.type, "suite": suite,
        "held": dict(HELD)[state.held], "scored": "with results",
    }  # fmt: skip
    fields = type(state).model_fields
    return [
        (label, f"{PATH}?{state.query(**{name: fields[name].get_default(), 'page': 1})}")
        for name, label in says.items()
        if getattr(state, name) != fields[name].get_default()
    ]


class TasksState(State):
    """What the list of tasks can be asked."""

    q: Text = Field("", description="Part of a task's name.")
    type: Text = Field("", description="Only tasks of this type; `not known` for those without one.")
    suite: Text = Field("", description="Only tasks of this suite.")
    held: Literal["", "suite", "none"] = Field("", description="Only tasks in a suite, or in none.")
    scored: bool = Field(False, description="Only tasks with results.")
    sort: Text = Field("-results", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: TasksState) -> Page:
    """The list of tasks."""
    found: TaskList = task_list(site.queries, state)
    return Page(
        title="Tasks",
        template="tasks.html",
        lead=found.lead,
        tables=[found.table],
        data=found.data,
        context=found,
    )


def all_paths(site: Site) -> Iterable[str]:
    """The list itself."""
    return [PATH]


PAGE = PageRoute(
    path=PATH,
    state=TasksState,
    view=view,
    summary="All tasks, with the number of results, the best score, and the suites that hold each.",
    all_paths=all_paths,
)

PAGES = (PAGE,)
