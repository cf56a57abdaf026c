"""The list of all tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.results.type_tasks import is_baseline, rank_type_tasks
from leaderboard.data.queries import Queries
from leaderboard.data.suites import SiteSuite
from leaderboard.views import sorting
from leaderboard.views.cells import build_score_cell
from leaderboard.views.task_scores import (
    Best,
    format_task_path,
    list_site_tasks,
    load_best_scores,
    load_questions,
)
from leaderboard.web.filters import (
    Control,
    FilterForm,
    Options,
    ask_name,
    build_filter_chips,
    build_form,
    offer,
)
from leaderboard.web.page import Page, check_name, serve_page
from leaderboard.web.page_state import State, Text, build_address, build_paging
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, link, values_table

PATH = "/tasks"
HELD = (("", "any"), ("suite", "in a suite"), ("none", "in no suite"))
CHIPS = {"q": "name has “{}”", "type": "{}", "suite": "{}", "held": "{}", "scored": "with results"}
"""The filters in force, as texts."""
NOTE = (
    "The best score is that of the first suite’s question; of a task in no suite, that among the entries "
    "with the splits, subsets and data that most have."
)
TYPES = (
    "ρ is Spearman’s correlation with its 95 % interval, over imported and measured models with all tasks "
    "of its type, as if independent. The mean has the task itself in it, as in Efficient-Embeddings; "
    "“the others” are without it. Level: its interval holds the first’s ρ. Revisions of a model count "
    "together here; `harness proxy types` takes one of each."
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


class _Task(NamedTuple):
    name: str
    type: str
    metric: str
    results: int
    suites: Sequence[SiteSuite]
    best: Best = None


def _collect_task_rows(queries: Queries, *, scored: bool) -> list[_Task]:
    """Every task; with its best score where rows are sorted by it."""
    names = list_site_tasks(queries)
    best = load_best_scores(queries, names) if scored else {}
    rows = []
    for name in names:
        kind, metric, results = queries.tasks.get(name, ("", "", 0))
        questions = load_questions(queries).get(name, [])
        task = questions[0].task if questions else None
        suites = {one.slug: one for question in questions for one in question.suites}
        kind, metric = (task.type, task.metric) if task else (kind, metric)
        rows.append(_Task(name, kind or "not stated", metric, results, [*suites.values()], best.get(name)))
    return rows


def _build_tasks_fields(queries: Queries, shown: Sequence[_Task]) -> list[sorting.Field[_Task]]:
    """The columns; `shown` are the rows whose best score is to be read."""
    best = load_best_scores(queries, [one.name for one in shown])

    def link_best_model(one: _Task) -> Cell:
        entry = (best.get(one.name) or (None,))[0]
        return link(entry.model, build_address(f"/models/{entry.model_slug}")) if entry else EMPTY

    def build_suites_cell(one: _Task) -> Cell:
        more = f" +{len(one.suites) - 1}" if len(one.suites) > 1 else ""
        text = one.suites[0].suite.title + more if one.suites else ""
        href = build_address(f"/suites/{one.suites[0].slug}") if len(one.suites) == 1 else ""
        titles = ", ".join(suite.suite.title for suite in one.suites)
        return Cell(text=text, value=titles or None, href=href, note=titles if more else "")

    column = sorting.Field[_Task]
    return [
        column("name", "Task", lambda one: link(one.name, format_task_path(one.name)),
               lambda one: one.name.casefold(), sticky=True),
        column("results", "Results", sort=lambda one: one.results, numeric=True,
               note="Results of all entries, with any splits.", card="Results"),
        column("best", "Best", lambda one: build_score_cell((best.get(one.name) or (None, None))[1]),
               lambda one: one.best and one.best[1], numeric=True, note="The best ranked score.",
               card="Best"),
        column("model", "Best model", link_best_model, lambda one: one.best and one.best[0].model.casefold(),
               note="The model with the best score.", card="by"),
        column("type", "Type", sort=lambda one: one.type, card="Type"),
        column("metric", "Metric", sort=lambda one: one.metric or None, note="The main metric."),
        column("suites", "Suites", build_suites_cell, lambda one: len(one.suites),
               note="The suites of this site that have it.", card="Suites"),
    ]  # fmt: skip


@serve_page(PATH, "All tasks, with the number of results, the best score, and the suites that have each.")
def _show_tasks(site: Site, state: _TasksState) -> Page:
    queries = site.queries
    check_name("suite", state.suite, queries.suites, then="The page /suites lists all.")
    tasks = _collect_task_rows(queries, scored=state.sort.removeprefix("-") in ("best", "model"))
    types = Counter(one.type for one in tasks)
    check_name("task type", state.type, types, then="The page /tasks offers all types.")
    rows = sorting.sort_rows(
        [one for one in tasks if _should_show_task(state, one)], _build_tasks_fields(queries, ()), state.sort
    )
    where = build_paging(len(rows), state, PATH)
    shown = where.cut(rows)
    table = sorting.fill_table(
        "tasks", "Tasks; scores × 100", _build_tasks_fields(queries, shown), shown, state=state,
        key=lambda one: one.name, notes=[NOTE], cards=True,
    )  # fmt: skip
    types_tables = [_build_types_table(queries, queries.suites[state.suite])] if state.suite else []
    return Page(
        title="Tasks",
        lead=f"{len(tasks):,} tasks, {sum(bool(one.suites) for one in tasks):,} in a suite of this site.",
        tables=[table, *types_tables],
        context={"form": _build_tasks_form(queries, state, types), "paging": where},
    )


def _build_types_table(queries: Queries, site_suite: SiteSuite) -> Table:
    """For each type of a suite's tasks the one that follows the type's mean best."""
    scores, names = queries.load_suite_scores(site_suite), [one.name for one in site_suite.suite.columns]
    kept = [
        e.origin == "measured" or (e.origin == "imported" and not is_baseline(e.model))
        for e in scores.entries
    ]
    values = np.where(scores.counted, scores.values, np.nan)[kept]
    rankings = rank_type_tasks(
        site_suite.suite, lambda part: values[:, [names.index(one.name) for one in part.columns]]
    )
    heads = {"type": "Type", "first": "Follows its mean best", "whole": "ρ", "other": "Follows others best",
             "others": "ρ ", "models": "Models", "level": "Level with the first"}  # fmt: skip
    rows = []
    for ranking in rankings:
        first, rival = next(iter(ranking.tasks), None), ranking.best_by_others
        cells = []
        for task, correlation in ((first, first and first.mean), (rival, rival and rival.others)):
            cells += [link(task.task, format_task_path(task.task)) if task else EMPTY, EMPTY]
            if correlation:
                text = f"{correlation.value:.3f} [{correlation.low:.3f}, {correlation.high:.3f}]"
                cells[-1] = Cell(text=text, value=correlation.value)
        rows.append([ranking.type, *cells, ranking.models, ranking.reason or ", ".join(ranking.level)])
    caption = "The task of each type that follows its mean best"
    return values_table("types", caption, heads, rows, "whole others models", notes=[TYPES])


def _should_show_task(state: _TasksState, one: _Task) -> bool:
    suites = [suite.slug for suite in one.suites]
    return (
        state.q.casefold() in one.name.casefold()
        and state.type in ("", one.type)
        and (not state.suite or state.suite in suites)
        and (not state.held or (state.held == "suite") == bool(suites))
        and (not state.scored or one.results > 0)
    )


def _build_tasks_form(queries: Queries, state: _TasksState, types: Counter[str]) -> FilterForm:
    offered: Options = {
        "type": ("Type", [("", "any"), *((kind, f"{kind} ({n})") for kind, n in sorted(types.items()))]),
        "suite": ("Suite", [("", "any"), *((slug, one.suite.title) for slug, one in queries.suites.items())]),
        "held": ("In a suite", HELD),
    }
    controls = [
        ask_name(state, "Task"),
        *offer(state, offered, always=offered),
        Control(kind="check", name="scored", label="With results", checked=state.scored),
    ]
    values = {"suite": dict(offered["suite"][1])[state.suite], "held": dict(HELD)[state.held]}
    return build_form(state, PATH, controls, chips=build_filter_chips(state, PATH, CHIPS, values))
