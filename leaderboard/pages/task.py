"""Tasks: what each is with the ranking of every entry that has a result on it, and the list of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.results.scores import score_text
from harness.results.type_tasks import is_baseline, rank_type_tasks
from leaderboard.data.descriptions import describe_task
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import REASONS, WHY, Reason, SiteSuite
from leaderboard.views import sorting
from leaderboard.views.cells import build_score_cell
from leaderboard.views.reproductions import build_verdict_cell, join_models, load_comparisons
from leaderboard.views.suite_table import SuiteColumn, SuiteTable, TableState
from leaderboard.views.task_scores import (
    TRUST_TEXTS,
    Best,
    Question,
    build_default_question,
    find_task,
    format_task_key,
    format_task_path,
    list_site_tasks,
    load_best_scores,
    load_question_scores,
    load_questions,
    load_task_results,
)
from leaderboard.web.charts import Axis, Chart, Distribution, Point, build_chart
from leaderboard.web.filters import REVISIONS, SIZE_NAMES
from leaderboard.web.marks import format_part_mean
from leaderboard.web.page import Page, build_missing_error, check_name
from leaderboard.web.page_state import (
    Control,
    FilterForm,
    Options,
    State,
    Text,
    build_address,
    build_paging,
)
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, build_values_row, link, values_table

TRUST_NAMES = {"external": "by its makers", "none": "not stated", "other": "no commit"}
"""How the revision of a model is known, in short."""

MANY = 300
"""Subsets above which one is typed, not chosen from a list: all pairs of 204 languages take 2.5 MB."""

NO_INTERVALS = "No interval is known: only equal scores share a rank, and a small difference may be chance."
SOME_INTERVALS = (
    "No interval is known for {} of {} scores: those share a rank only where they are equal. Two with "
    "intervals share one where the intervals, combined, cover the difference."
)
OTHER_DATA = "{} ranked on another revision of the data than the pinned one, or on one that is not stated."
NO_SUITE = (
    "No suite of this site has this task. Ranked are the entries with the splits, the subsets and the data "
    "revision that most have."
)


SIZE_HEADS = {"size": "Parameters", "model": "Model", "score": "Score"}


class _TaskState(TableState):
    """The parameters of a task's page: those of a suite's table, and what is asked of the task."""

    scope: Text = Field(
        "",
        description="Whose question: a suite's name in URLs, with `:` and a convention where it has some. "
        "Suites may ask a task for other splits or subsets.",
    )
    subset: Text = Field("", description="Only this subset.")
    sort: Text = Field("-score", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")


@dataclass(frozen=True, kw_only=True, eq=False)
class _TaskTable(SuiteTable):
    """The ranking on a task: the table of a suite of one column, with what is known of each score.

    `data` are the revisions of the data by result, and `part_means` what the task's parts come to where that
    contradicts an entry's score. The question that `is_first` has the verdicts of other sources.
    """

    question: Question
    data: Mapping[int, str]
    part_means: Mapping[int, float]
    is_first: bool

    @cached_property
    def columns(self) -> list[SuiteColumn]:
        """Every column of the ranking."""
        shared = {one.key.partition(":")[0]: one for one in super().columns}
        entries, column = self.scores.entries, SuiteColumn
        columns = [
            replace(shared["rank"], note="Entries that no known interval tells apart share a rank."),
            shared["model"],
            replace(shared["task"], key="score", label="Score", group="", href="", note="", card="Score",
                    cell=self._build_score_cell),
            replace(shared["reproduced"], label="Reproduced?", numeric=False, optional=False,
                    note="Whether another source has the same score for the model."),
            column("interval", "95 %", self._build_interval_cell, card="95 %",
                   note="The interval over seeds and examples, where it is known."),
            replace(shared["parameters"], note="Parameters."),
            replace(shared["origin"], card="Origin", note="Where the score comes from."),
            column("trust", "Revision", self._build_trust_cell, numeric=False, card="Revision",
                   note="The weights that were scored, as far as they are known."),
            column("data", "Data", self._build_data_cell, numeric=False, card="Data",
                   note="The revision of the data."),
            column("released", "Released", sort=lambda row: entries[row].released, numeric=False,
                   card="Released"),
        ]  # fmt: skip
        has_values = {"reproduced": self.is_first, "interval": bool(self.scores.averages)}
        return [one for one in columns if has_values.get(one.key, True)]

    @cached_property
    def ranked(self) -> list[int]:
        """The rows with a rank that pass the filters, the best first."""
        rows = [row for row in self.rows if self.ranks.place[row]]
        return sorted(rows, key=lambda row: -self.scores.values[row, 0])

    @cached_property
    def best_of_sizes(self) -> dict[str, int]:
        """The first of the ranked rows of each size class, by the name of the class."""
        leaders = {self.scores.entries[row].size: row for row in reversed(self.ranked)}
        return {name: leaders[size] for size, name in SIZE_NAMES.items() if size in leaders}

    def find_reason(self, row: int) -> Reason:
        """Why a row has no score that counts."""
        return REASONS[int(self.scores.reasons[row, 0])]

    def _build_score_cell(self, row: int) -> Cell:
        cell, mean = self._build_marked_task(row, 0), self.part_means.get(self.scores.entries[row].id)
        if mean is not None and cell.value is not None:
            cell = cell.mark("contradicted", format_part_mean(mean))
        reason, href = self.find_reason(row), build_address(f"/results/{self.scores.results[row, 0]}")
        # In tables of suites this kind is that of a mean over some of the tasks.
        kind = "" if reason == "part" else cell.kind
        return replace(cell, note=cell.note or WHY[reason], kind=kind, href=href)

    def _build_interval_cell(self, row: int) -> Cell:
        ends = self.scores.averages.get(row, {}).get("interval", ())
        return link("–".join(map(score_text, ends))) if ends else EMPTY

    def _build_reproduced_cell(self, row: int) -> Cell:
        page = self.pages[self.scores.entries[row].id]
        pairs = [one for one in self.comparisons if one.model == page]
        return build_verdict_cell(pairs, self._find_source(row))

    def _find_source(self, row: int) -> Entry:
        """The single revision that was scored."""
        return self.entries.get(int(self.scores.sources[row, 0]), self.scores.entries[row])

    def _build_trust_cell(self, row: int) -> Cell:
        entry = self._find_source(row)
        name = TRUST_NAMES.get(entry.trust, entry.trust)
        text = (entry.revision or "")[:10] if entry.trust == "commit" else name
        return Cell(text=text, value=entry.trust, note=TRUST_TEXTS[entry.trust])

    def _build_data_cell(self, row: int) -> Cell:
        reason, scope = self.find_reason(row), self.question.scope
        if reason in ("failed", "none"):
            return EMPTY
        data = self.data.get(int(self.scores.results[row, 0]), "")
        if reason == "other":
            return Cell(text=data[:10] or "not stated", value=data or "not stated", note=WHY["other"])
        pinned = bool(scope.data) and data == scope.data
        return Cell(text="pinned" if pinned else data[:10], value=data or None, note=data)

    def describe_counts(self) -> str:
        """How many of the entries with a result are ranked, in a sentence."""
        ranked, count = self.count_ranked()
        what = "models" if self.state.each == "model" else "entries"
        text = f"{ranked} of {count} {what} with a result on it are ranked."
        return text if count else "No entry has a result on this task yet."

    def list_notes(self) -> list[str]:
        """The sentences below the ranking."""
        ranked, notes = self.ranked, list[str]()
        if unknown := sum(row not in self.scores.averages for row in ranked):
            several = SOME_INTERVALS.format(unknown, len(ranked))
            notes.append(NO_INTERVALS if unknown == len(ranked) else several)
        if other := sum(self.find_reason(row) == "other" for row in ranked):
            notes.append(OTHER_DATA.format(other))
        beside = Counter(self.find_reason(row) for row in self.rows if not self.ranks.place[row])
        return notes + [
            f"{beside[reason]} not ranked: {WHY[reason]}."
            for reason in ("other", "part", "bad", "failed", "seeds") if beside[reason]
        ]  # fmt: skip

    def build_size_table(self) -> Table:
        """The best of each size class."""
        rows = [
            build_values_row(name, self._build_model_cell(row), build_score_cell(self.scores.values[row, 0]),
                             key=self.scores.entries[row].slug)
            for name, row in self.best_of_sizes.items()
        ]  # fmt: skip
        return values_table("sizes", "Best per size class", SIZE_HEADS, rows, "score")

    def plot_spread(self) -> Chart:
        """The distribution of ranked scores, with the best of each size class."""
        values, entries = (100 * self.scores.values[:, 0]).tolist(), self.scores.entries
        marks = [
            Point(label=entries[row].model, x=values[row], y=None, note=name,
                  href=build_address(f"/models/{entries[row].model_slug}"))
            for name, row in self.best_of_sizes.items()
        ]  # fmt: skip
        plot = Distribution(
            axis=Axis(label="score × 100"), values=[values[row] for row in self.ranked], marks=marks
        )
        return build_chart("spread", "Models by their score; points: the best of each size class", plot)


@serve_page(
    "/tasks/{task}",
    "A task: ranking of all entries, and the distribution of their scores.",
    paths=lambda site: [f"/tasks/{format_task_key(name)}" for name in list_site_tasks(site.queries)],
)
def _show_task(site: Site, state: _TaskState, task: str) -> Page:
    queries, name = site.queries, find_task(task, list_site_tasks(site.queries))
    path, questions = format_task_path(name), load_questions(queries).get(name)
    questions = questions or [build_default_question(queries, name, load_task_results(queries, [name]))]
    question = _choose_question(questions, state)
    subsets = sorted({subset for one in questions for subset in one.scope.subsets})
    check_name("subset", state.subset, subsets, then="The task's page offers all subsets.")
    table = _load_task_table(queries, question, state, path, is_first=question == questions[0])
    where, scope = build_paging(len(table.ordered), state, path), table.question.scope
    values = table.scores.values[table.ranked, 0]
    ranking = table.build_suite_table(where.cut(table.ordered), table.list_notes())
    ranking = replace(ranking, name="ranking", caption=f"{name}: scores × 100")
    sizes = [table.build_size_table()] if len(table.best_of_sizes) > 1 else []
    metric = queries.tasks.get(name, ("", "", 0))[1]
    return Page(
        title=name, lead=table.describe_counts(), charts=[table.plot_spread()], crumbs=[("Tasks", "/tasks")],
        tables=[ranking, *sizes],
        # The convention of a paper may have another metric.
        data={
            "scope": question.name, "splits": list(scope.splits), "subsets": list(scope.subsets),
            "data": scope.data or None,
            "scopes": [{"name": one.name, "label": one.label} for one in questions],
            "quartiles": np.quantile(values, (0.25, 0.5, 0.75)).tolist() if len(values) else None,
            "models_ranked": table.count_ranked()[0], "metric": (not scope.view and metric) or None,
        },
        notes=[NO_SUITE] if table.scores.entries and not question.suites else [],
        context={
            "facts": _list_task_facts(queries, table.question), "about": describe_task(name),
            "suites": _list_task_suites(questions), "paging": where, "path": path,
            "form": table.build_form(_build_task_controls(state, questions, question, subsets)),
        },
    )  # fmt: skip


def _load_task_table(
    queries: Queries, question: Question, state: _TaskState, path: str, *, is_first: bool
) -> _TaskTable:
    """The ranking of a question, or of its subset that a state names."""
    name, narrowed = question.task.name, question.narrow_to_subset(state.subset)
    scores = load_question_scores(
        queries, narrowed, pinned=state.revisions == "pinned", revisions=state.each == "revision"
    )
    pairs = [one for one in load_comparisons(queries) if one.task == name]
    return _TaskTable(
        scores=scores, state=state, path=path, cards=queries.cards, entries=queries.entries,
        comparisons=pairs, pages=join_models(queries), question=narrowed, is_first=is_first,
        data={row.id: row.data for row in queries.find_results(task=name)},
        part_means=queries.find_part_means(name, scores.entries),
    )  # fmt: skip


def _choose_question(questions: Sequence[Question], state: _TaskState) -> Question:
    """The question of this name, or of this convention; any suite that asks it names it as well."""
    name, views = state.scope, {one.view for one in questions}
    check_name("view", state.view, views, then="The task's page offers all scopes.")
    exact = [one for one in questions if (name in one.names if name else state.view in ("", one.view))]
    by_suite = [one for one in questions if name in [suite.slug for suite in one.suites]]
    if exact or by_suite:
        return [*exact, *by_suite][0]
    names = [one.name for one in questions]
    raise build_missing_error("scope", name, names, then="The task's page offers all scopes.")


def _list_task_facts(queries: Queries, question: Question) -> list[tuple[str, ...]]:
    task, scope = question.task, question.scope
    path, results = task.data.path, queries.tasks.get(task.name, ("", "", 0))[2]
    pinned = "pinned by the suite" if question.suites else "that of most entries: no suite pins it"
    languages = describe_task(task.name).languages
    return [
        ("Type", task.type or "not stated"),
        ("Metric", f"as {scope.view} prints it" if scope.view else task.metric or "not stated"),
        *([("Languages", _format_name_list(languages, "language"))] if languages else []),
        ("Data set", path or ("local or built" if question.suites else "not stated"),
         f"https://huggingface.co/datasets/{path}" if path.count("/") == 1 and path.isascii() else ""),
        ("Data revision", scope.data or "none", "", pinned if scope.data else "nothing pins the data"),
        ("Splits", ", ".join(scope.splits) or "none", "", _mean_over(scope.splits)),
        ("Subsets", _format_name_list(scope.subsets, "subset") or "none", "", _mean_over(scope.subsets)),
        ("Results", f"{results:,}", "", "with any splits and subsets"),
    ]  # fmt: skip


def _format_name_list(names: Sequence[str], what: str) -> str:
    return f"{len(names)} {what}s" if len(names) > 6 else ", ".join(names)


def _mean_over(names: Sequence[str]) -> str:
    return "the score is the mean over them" if len(names) > 1 else ""


def _list_task_suites(questions: Sequence[Question]) -> list[tuple[str, str, str]]:
    """The suites of a task: title, URL, and what they ask of it."""
    texts: dict[tuple[str, str], dict[str, None]] = {}
    for question in questions:
        for suite in question.suites:
            texts.setdefault((suite.suite.title, suite.slug), {})[question.scope_text] = None
    return [
        (title, build_address(f"/suites/{slug}"),
         " and ".join(scopes) if len(scopes) < 4 else f"{len(scopes)} parts of it")
        for (title, slug), scopes in texts.items()
    ]  # fmt: skip


def _build_task_controls(
    state: _TaskState, questions: Sequence[Question], question: Question, subsets: Sequence[str]
) -> list[Control]:
    """The controls of what is asked of the task."""
    names = question.scope.subsets
    label = f"all {len(names)} that are asked for" if len(names) > 1 else f"as asked: {', '.join(names)}"
    is_choice = 1 < len(subsets) <= MANY
    offered: Options = {
        "scope": ("As asked by", [(one.name, one.label) for one in questions]),
        "subset": ("Subset", [("", label), *((n, n) for n in subsets)] if is_choice else ()),
        "revisions": ("Scores", REVISIONS),
    }
    choices = state.offer(offered, values={"scope": question.name})
    if len(subsets) > MANY:
        label = f"Subset, one of {len(subsets):,}"
        choices.append(state.ask("line", "subset", label, placeholder=subsets[0]))
    return choices


PATH = "/tasks"
HELD = (("", "any"), ("suite", "in a suite"), ("none", "in no suite"))
LIST_CHIPS = {"q": "name has “{}”", "type": "{}", "suite": "{}", "held": "{}", "scored": "with results"}
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
    scored = state.ask("check", "scored", "With results")
    controls = [state.ask_name("Task"), *state.offer(offered, always=offered), scored]
    values = {"suite": dict(offered["suite"][1])[state.suite], "held": dict(HELD)[state.held]}
    return state.build_form(PATH, controls, chips=LIST_CHIPS, values=values)
