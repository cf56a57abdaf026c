"""Tasks: what each is with the ranking of every entry that has a result on it, and the list of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from harness.results.scores import score_text
from harness.results.type_tasks import is_baseline, rank_type_tasks
from leaderboard.data.descriptions import describe_task
from leaderboard.data.groups import group_by
from leaderboard.data.queries import Queries
from leaderboard.data.suites import WHY, Scope, SiteSuite
from leaderboard.views import sorting
from leaderboard.views.cells import build_score_cell, build_size_cell
from leaderboard.views.reproductions import build_verdict_cell, join_models, load_comparisons
from leaderboard.views.suite_table import GONE, format_entry_kinds
from leaderboard.views.task_scores import (
    TRUST_TEXTS,
    Best,
    Question,
    Scored,
    build_default_question,
    compute_result_scores,
    find_task,
    format_task_key,
    format_task_path,
    list_question_scores,
    list_site_tasks,
    load_best_scores,
    load_questions,
    load_task_results,
    rank_scores,
    select_model_rows,
)
from leaderboard.web.charts import Axis, Chart, Distribution, Point, build_chart
from leaderboard.web.filters import CHIPS, EACH, REVISIONS, SIZE_NAMES, EntryState
from leaderboard.web.formats import add_seed_deviation, build_seeds_cell
from leaderboard.web.marks import describe_score_choices, find_leak_kinds, format_leak_count, format_part_mean
from leaderboard.web.page import Page, build_missing_error, check_name
from leaderboard.web.page_state import FilterForm, Options, State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, build_values_row, link, values_table

TRUST_NAMES = {"external": "by its makers", "none": "not stated", "other": "no commit"}
"""How the revision of a model is known, in short."""

MANY = 300
"""Subsets above which one is typed, not chosen from a list: all pairs of 204 languages take 2.5 MB."""

OWN_CHIPS = {"subset": "subset {}", "revisions": "only on the suite’s data revisions"}
"""The filters of a task's page beside those over entries, as texts."""

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


class _TaskState(EntryState):
    """The parameters of a task's page."""

    scope: Text = Field(
        "",
        description="Whose question: a suite's name in URLs, with `:` and a convention where it has some. "
        "Suites may ask a task for other splits or subsets.",
    )
    subset: Text = Field("", description="Only this subset.")
    revisions: Literal["any", "pinned"] = Field(
        "any", description="Rank all scores, or only those on the pinned revision of the data."
    )
    each: Literal["model", "revision"] = Field(
        "model", description="One row for each model, or for each revision and treatment."
    )
    sort: Text = Field("-score", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Asked:
    """The question that a state asks of a task, the scope that is scored, and every entry's score."""

    questions: Sequence[Question]
    question: Question
    scope: Scope
    subsets: Sequence[str]
    rows: Sequence[Scored]


@serve_page(
    "/tasks/{task}",
    "A task: ranking of all entries, and the distribution of their scores.",
    paths=lambda site: [f"/tasks/{format_task_key(name)}" for name in list_site_tasks(site.queries)],
)
def _show_task(site: Site, state: _TaskState, task: str) -> Page:
    queries, name = site.queries, find_task(task, list_site_tasks(site.queries))
    inquiry, path, pinned = _ask(queries, state, name), format_task_path(name), state.revisions == "pinned"
    population = select_model_rows(inquiry.rows, pinned=pinned) if state.each == "model" else inquiry.rows
    metric = queries.tasks.get(name, ("", "", 0))[1]
    ranks = rank_scores([one for one in population if one.can_rank(pinned=pinned)])
    rows = [one for one in population if state.should_keep(one.entry)]
    rows.sort(key=lambda one: (one.value is None, -(one.value or 0.0), one.entry.model.casefold()))
    ranked = [one for one in rows if one.entry.id in ranks]
    fields = _build_ranking_fields(inquiry.scope, ranks, ranked)
    if inquiry.question == inquiry.questions[0]:
        fields.insert(3, _build_verdict_field(queries, name))
    rows = sorting.sort_rows(rows, fields, state.sort)
    where, leaders = build_paging(len(rows), state, path), {one.entry.size: one for one in reversed(ranked)}
    best = {name: leaders[size] for size, name in SIZE_NAMES.items() if size in leaders}
    scope, values = inquiry.scope, [one.value for one in ranked if one.value is not None]
    ranking = sorting.fill_table(
        "ranking", f"{name}: scores × 100", fields, where.cut(rows), state=state,
        key=lambda one: one.entry.slug, kind=lambda one: "" if one.entry.id in ranks else "part",
        notes=_list_ranking_notes(rows, ranked),
    )  # fmt: skip
    sizes = [
        build_values_row(size, _build_model_cell(one), build_score_cell(one.value), key=one.entry.slug)
        for size, one in best.items()
    ]
    size_table = values_table("sizes", "Best per size class", SIZE_HEADS, sizes, "score")
    return Page(
        title=name, lead=_describe_ranking(population, len(ranks), state),
        charts=[_plot_score_spread(ranked, best)], crumbs=[("Tasks", "/tasks")],
        tables=[ranking, *([size_table] if len(best) > 1 else [])],
        # The convention of a paper may have another metric.
        data={
            "scope": inquiry.question.name, "splits": list(scope.splits), "subsets": list(scope.subsets),
            "data": scope.data or None,
            "scopes": [{"name": one.name, "label": one.label} for one in inquiry.questions],
            "quartiles": np.quantile(values, (0.25, 0.5, 0.75)).tolist() if values else None,
            "models_ranked": len(ranks), "metric": (not scope.view and metric) or None,
        },
        notes=[NO_SUITE] if inquiry.rows and not inquiry.question.suites else [],
        context={
            "facts": _list_task_facts(queries, inquiry, name), "about": describe_task(name),
            "suites": _list_task_suites(inquiry.questions), "form": _build_task_form(state, path, inquiry),
            "paging": where, "path": path,
        },
    )  # fmt: skip


def _ask(queries: Queries, state: _TaskState, task: str) -> _Asked:
    questions: Sequence[Question] = load_questions(queries).get(task, ())
    revisions = state.each == "revision"
    # Main scores are read from Parquet files, which takes long: a suite has its own numbers stored.
    results = load_task_results(queries, [task], revisions=revisions) if state.subset or not questions else []
    questions = questions or [build_default_question(task, results)]
    question = _choose_question(questions, state.scope)
    subsets = sorted({subset for one in questions for subset in one.scope.subsets})
    check_name("subset", state.subset, subsets, then="The task's page offers all subsets.")
    scope = question.scope
    if state.subset and scope.subsets != (state.subset,):
        scope = replace(scope, subsets=(state.subset,), view="")
    if question.suites and scope == question.scope:
        rows = list_question_scores(queries, question, revisions=revisions)
    else:
        rows = compute_result_scores(queries, scope, results)
    return _Asked(questions=questions, question=question, scope=scope, subsets=subsets, rows=rows)


def _choose_question(questions: Sequence[Question], name: str) -> Question:
    """The question of this name; any suite that asks it names it as well."""
    exact = [one for one in questions if not name or name in one.names]
    by_suite = [one for one in questions if name in [suite.slug for suite in one.suites]]
    if exact or by_suite:
        return [*exact, *by_suite][0]
    names = [one.name for one in questions]
    raise build_missing_error("scope", name, names, then="The task's page offers all scopes.")


def _build_verdict_field(queries: Queries, task: str) -> sorting.Field[Scored]:
    """The column that says whether another source has the same score, or the score is broken."""
    pages, some = join_models(queries), [one for one in load_comparisons(queries) if one.task == task]
    compared = group_by(some, lambda one: one.model)
    return sorting.Field(
        "reproduced", "Reproduced?", note="Whether another source has the same score for the model.",
        cell=lambda one: build_verdict_cell(compared.get(pages[one.entry.id], ()), one.source or one.entry),
    )  # fmt: skip


def _build_ranking_fields(
    scope: Scope, ranks: Mapping[int, int], ranked: Sequence[Scored]
) -> list[sorting.Field[Scored]]:
    """The columns of the ranking."""
    # They come with the best first.
    best = [*dict.fromkeys(one.value for one in ranked if one.value is not None)][:2]
    marks = dict(zip(best, ("best", "second"), strict=False))

    def find_ranked_score(one: Scored) -> float | None:
        return one.value if one.entry.id in ranks else None

    column = sorting.Field[Scored]
    fields = [
        column("rank", "Rank", numeric=True, up=True, sticky=True, sort=lambda one: ranks.get(one.entry.id),
               note="Entries that no known interval tells apart share a rank."),
        column("model", "Model", _build_model_cell, lambda one: one.entry.model.casefold(), sticky=True),
        column("score", "Score", lambda one: _build_task_score(
            one, scope, marks.get(find_ranked_score(one) or -1.0, "")), find_ranked_score, numeric=True),
        column("interval", "95 %", lambda one: "" if one.half is None else
               link(f"{score_text(one.low)}–{score_text(one.high)}"), numeric=True,
               note="The interval over seeds and examples, where it is known."),
        column("parameters", "Size", lambda one: build_size_cell(one.entry.parameters),
               lambda one: one.entry.parameters, numeric=True, note="Parameters."),
        column("origin", "Origin", lambda one: link(one.entry.origin, kind=one.entry.origin),
               lambda one: one.entry.origin, note="Where the score comes from."),
        column("trust", "Revision", _build_trust_cell,
               note="The weights that were scored, as far as they are known."),
        column("data", "Data", lambda one: _build_data_cell(one, scope), note="The revision of the data."),
        column("released", "Released", sort=lambda one: one.entry.released),
    ]  # fmt: skip
    has_intervals = any(one.half is not None for one in ranked)
    return [field for field in fields if has_intervals or field.key != "interval"]


def _build_model_cell(one: Scored) -> Cell:
    entry, href = one.entry, build_address(f"/models/{one.entry.model_slug}")
    note = entry.lineage_text or entry.treatment
    return link(entry.model, href, kind=format_entry_kinds(entry), note=note)


def _build_task_score(one: Scored, scope: Scope, mark: str) -> Cell:
    href = build_address(f"/results/{one.result}")
    if one.reason == "seeds":
        return replace(build_seeds_cell(one.seeds or 0, len(one.entry.seeds)), href=href)
    if one.value is None:
        kind = "" if one.reason == "part" else one.reason
        return Cell(text=GONE.get(one.reason, "–"), kind=kind, note=WHY[one.reason], href=href)
    kinds = [*find_leak_kinds(one.entry, [scope], one.trained_on),
             "other" if one.reason == "other" else ""]  # fmt: skip
    notes = [WHY[one.reason], *describe_score_choices(one.entry, [scope])]
    notes += [format_leak_count(one.trained_on)] if one.trained_on else []
    if one.part_mean is not None:
        kinds, notes = [*kinds, "contradicted"], [*notes, format_part_mean(one.part_mean)]
    marks, note = " ".join(filter(None, [*kinds, mark])), "; ".join(filter(None, notes))
    cell = build_score_cell(one.value, href, kind=marks, note=note)
    return add_seed_deviation(cell, one.deviation, one.entry.seeds)


def _build_trust_cell(one: Scored) -> Cell:
    entry = one.source or one.entry
    name = TRUST_NAMES.get(entry.trust, entry.trust)
    text = (entry.revision or "")[:10] if entry.trust == "commit" else name
    return Cell(text=text, value=entry.trust, note=TRUST_TEXTS[entry.trust])


def _build_data_cell(one: Scored, scope: Scope) -> Cell:
    if one.reason in ("failed", "none"):
        return EMPTY
    if one.reason == "other":
        return Cell(text=one.data[:10] or "not stated", value=one.data or "not stated", note=WHY["other"])
    pinned = bool(scope.data) and one.data == scope.data
    return Cell(text="pinned" if pinned else one.data[:10], value=one.data or None, note=one.data)


def _list_ranking_notes(rows: Sequence[Scored], ranked: Sequence[Scored]) -> list[str]:
    unknown, notes = sum(one.half is None for one in ranked), []
    if ranked and unknown:
        several = SOME_INTERVALS.format(unknown, len(ranked))
        notes.append(NO_INTERVALS if unknown == len(ranked) else several)
    if other := sum(one.reason == "other" for one in ranked):
        notes.append(OTHER_DATA.format(other))
    if printed := sum(one.entry.origin == "reported" for one in rows):
        notes.append(f"{printed} not ranked: printed in a paper.")
    ids = {one.entry.id for one in ranked}
    for reason in ("other", "part", "bad", "failed", "seeds"):
        if count := sum(one.reason == reason and one.entry.id not in ids for one in rows):
            notes.append(f"{count} not ranked: {WHY[reason]}.")
    return notes


def _plot_score_spread(ranked: Sequence[Scored], best: Mapping[str, Scored]) -> Chart:
    """The distribution of ranked scores, with the best of each size class."""
    marks = [
        Point(label=one.entry.model, x=100 * (one.value or 0.0), y=None,
              href=build_address(f"/models/{one.entry.model_slug}"), note=size)
        for size, one in best.items()
    ]  # fmt: skip
    values = [100 * one.value for one in ranked if one.value is not None]
    plot = Distribution(axis=Axis(label="score × 100"), values=values, marks=marks)
    return build_chart("spread", "Models by their score; points: the best of each size class", plot)


def _describe_ranking(population: Sequence[Scored], ranked: int, state: _TaskState) -> str:
    if not population:
        return "No entry has a result on this task yet."
    what = "models" if state.each == "model" else "entries"
    subset = f", on its subset {state.subset}" if state.subset else ""
    return f"{ranked} of {len(population)} {what} with a result on it are ranked{subset}."


def _list_task_facts(queries: Queries, asked: _Asked, name: str) -> list[tuple[str, ...]]:
    kind, metric, results = queries.tasks.get(name, ("", "", 0))
    task, scope = asked.question.task, asked.scope
    path = task.data.path if task else ""
    kind, metric = (task.type, task.metric) if task else (kind, metric)
    pinned = "pinned by the suite" if asked.question.suites else "that of most entries: no suite pins it"
    languages = describe_task(name).languages
    return [
        ("Type", kind or "not stated"),
        ("Metric", f"as {scope.view} prints it" if scope.view else metric or "not stated"),
        *([("Languages", _format_name_list(languages, "language"))] if languages else []),
        ("Data set", path or ("local or built" if task else "not stated"),
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


def _build_task_form(state: _TaskState, path: str, asked: _Asked) -> FilterForm:
    names = asked.question.scope.subsets
    label = f"all {len(names)} that are asked for" if len(names) > 1 else f"as asked: {', '.join(names)}"
    is_choice = 1 < len(asked.subsets) <= MANY
    offered: Options = {
        "scope": ("As asked by", [(one.name, one.label) for one in asked.questions]),
        "subset": ("Subset", [("", label), *((n, n) for n in asked.subsets)] if is_choice else ()),
        "revisions": ("Scores", REVISIONS),
        "each": ("A row for", EACH),
    }
    choices = state.offer(offered, values={"scope": asked.question.name})
    if len(asked.subsets) > MANY:
        label = f"Subset, one of {len(asked.subsets):,}"
        choices.append(state.ask("line", "subset", label, placeholder=asked.subsets[0]))
    choices += state.build_entry_controls(one.entry for one in asked.rows)
    return state.build_form(path, choices, chips={**CHIPS, **OWN_CHIPS})


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
