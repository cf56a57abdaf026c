"""Suites: the list of them, and the page of each: its ranking, score against size, and what it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from harness.results.scores import list_exclusions, list_small_columns
from leaderboard.data.descriptions import describe_suite, describe_task
from leaderboard.data.ranking import FEWEST
from leaderboard.data.suites import REASONS, SiteSuite, list_conventions
from leaderboard.views import sorting
from leaderboard.views.cells import format_task_count
from leaderboard.views.reproductions import join_models, load_comparisons
from leaderboard.views.suite_table import (
    SuiteState,
    SuiteTable,
    describe_untouched,
    explain_missing_model,
    plot_suite_sizes,
)
from leaderboard.views.task_scores import format_column_path
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import State, Text, build_address, build_paging
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Table, link, values_table

PARAMETERS = ("size", "output", "trust", "dimensions")
"""Filters that the page has as parameters alone."""

TASK_LABELS = ("Task", "Type", "Metric", "Languages", "Data", "Description")


@serve_page(
    "/suites/{suite}",
    "A suite: models x tasks, both means, Borda points, completeness, and ranks with ties.",
    paths=lambda site: [f"/suites/{slug}" for slug in site.queries.suites],
    formats=PRINTED,
)
def _show_suite(site: Site, state: SuiteState, suite: str) -> Page:
    queries, path = site.queries, f"/suites/{suite}"
    check_name("suite", suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[suite]
    title, conventions = listed.suite.title, list_conventions(listed.suite)
    check_name("view", state.view, conventions, then="The suite's page offers its conventions.")
    scores = queries.load_suite_scores(
        listed, state.view, pinned=state.revisions == "pinned", revisions=state.each == "revision"
    )
    if state.beside and not any(map(state.is_beside, scores.entries)):
        raise explain_missing_model(queries.entries.values(), state)
    table = SuiteTable(
        scores=scores, state=state, path=path, cards=queries.cards, entries=queries.entries,
        comparisons=load_comparisons(queries), pages=join_models(queries),
    )  # fmt: skip
    where = build_paging(len(table.ordered), state, path)
    part, every = table.untouched.part if table.untouched else None, "all" in state.tasks
    ranked, count = table.count_ranked()
    return Page(
        title=title, lead=_describe_counts(table), crumbs=[("Boards", "/suites")],
        tables=[table.build_suite_table(where.cut(table.ordered), list(_iter_suite_notes(table)))],
        charts=[plot_suite_sizes(table)],
        data={
            "suite": listed.suite.name, "typed": listed.typed, "view": scores.convention or None,
            "revisions": state.revisions, "rows_seen": count, "rows_complete": ranked,
            "untouched": {"columns": part.count, "left_out": list(part.selected)} if part else None,
        },
        notes=listed.suite.notes,
        context={
            "data": _list_data_choices(table), "ranking": _list_rankings(table),
            "form": table.build_form(
                state.offer({"view": ("Convention", [(name, f"as in {name}") for name in conventions])},
                            values={"view": scores.convention}), without=PARAMETERS), "paging": where,
            "unfold": f"{path}?{state.build_query(tasks=[] if every else ['all'])}" if table.folds else "",
            "whole": f"{path}.csv?{state.build_query(cols=['all'], rows='all', page=1)}",
            "unfolded": every, "path": path, "typed": listed.typed, "tasks": _build_suite_tasks(listed),
            "about": describe_suite(listed.typed, title),
        },
    )  # fmt: skip


def _list_data_choices(table: SuiteTable) -> list[tuple[str, str, bool]]:
    """The switch between all scores and those on pinned data (label, URL, current); none where all are."""
    state, other = table.state, (table.scores.reasons == REASONS.index("other")).any()
    labels = {"any": "All scores", "pinned": "Only those on the suite’s data revisions"} if other else {}
    return [
        (label, f"{table.path}?{state.build_query(revisions=value, page=1)}", state.revisions == value)
        for value, label in labels.items()
    ]


def _list_rankings(table: SuiteTable) -> list[tuple[str, str, bool]]:
    """The ways to rank: label, URL, current."""
    labels = {"tasks": "Mean over tasks"}
    if len(table.scores.by_type) > 1:
        labels["types"] = "Mean over types"
    if table.untouched is not None:
        labels["untouched"] = f"Mean over the {table.untouched.part.count} untouched"
    state, borda = table.state, table.state.rank == "borda"
    changes: list[tuple[str, dict[str, str], bool]] = [
        (label, {"mean": mean, "rank": "mean"}, not borda and table.mean == mean)
        for mean, label in labels.items()
    ]
    ways = [
        (label, f"{table.path}?{state.build_query(**change, sort='-mean', page=1)}", current)
        for label, change, current in [*changes, ("Borda points", {"rank": "borda"}, borda)]
    ]
    suite = table.scores.site_suite.suite
    apart = list_exclusions(suite)
    if small := [name for name in list_small_columns(suite) if name in apart]:
        count = "the small task" if len(small) == 1 else f"the {len(small)} small tasks"
        query = {"suite": table.scores.site_suite.slug, "task": small}
        ways.append((f"Mean over {count}", build_address("/rank", query), False))
    return ways


def _describe_counts(table: SuiteTable) -> str:
    """How many entries have scores, and how many are ranked, in a sentence."""
    ranked, count = table.count_ranked()
    what = "model" if table.state.each == "model" else "revision"
    printed = sum(entry.origin == "reported" for entry in table.scores.entries)
    more = f" {printed} rows are printed in papers." if printed else ""
    if not count:
        return f"No {what} has a score yet.{more}"
    tasks = table.scores.over_tasks.expected
    every = format_task_count(1) if tasks == 1 else f"all {tasks} tasks"
    return f"{ranked} of {count} {what}s have scores on {every} and are ranked.{more}"


def _iter_suite_notes(table: SuiteTable) -> Iterator[str]:
    """The sentences below the table."""
    scores, places = table.scores, table.ranks.place[table.rows]
    places, reasons = places[places > 0], scores.reasons[np.ix_(table.rows, table.find_task_columns())]
    other, bad = (int((reasons == REASONS.index(reason)).sum()) for reason in ("other", "bad"))
    if scores.over_tasks.expected < FEWEST:
        yield "Ranks are by the mean alone: these tasks are too few to say which models differ."
    elif len(set(places.tolist())) < len(places):
        yield "Models that cannot be told apart from the first of their group share its rank."
    if apart := list_exclusions(scores.site_suite.suite):
        named = "; ".join(f"{name}, {reason}" for name, reason in apart.items())
        yield f"Shown and not averaged: {named}."
    if any("spread" in scores.averages.get(row, {}) for row in table.rows):
        yield "The tasks of the mean are small: ± is half of the 95 % interval by the choice of examples."
    if other:
        count = "in no mean" if scores.pinned else "counted"
        yield (
            f"{other:,} scores are not on the pinned revision of their data (‡): {count}. The title of a "
            "heading names that revision, and the one that most of its ‡ are on; a title of a cell any other."
        )
    if any(len(scores.entries[row].revisions) > 1 for row in table.rows):
        yield "The title of a model names the revision that its scores are of; that of a cell any other."
    if contradicted := len({row for row, _ in scores.contradicted} & {*table.rows}):
        models = "1 model has" if contradicted == 1 else f"{contradicted} models have"
        yield f"{models} a mean of parts that its source contradicts (‖): the mean counts, a title has both."
    if bad:
        yield f"{bad} impossible values (above 1, below −1, or no number) are in no mean."
    if any(scores.entries[row].origin == "reported" for row in table.rows):
        yield (
            "Rows of papers have no rank: each paper has a treatment of its own. Their means are made of the "
            "printed numbers."
        )
    if table.untouched is not None:
        over = "the untouched" if table.mean == "untouched" else table.mean
        yield f"{describe_untouched(table.untouched)} Ranks are by the mean over {over}."
    elif scores.selected[table.rows].any():
        yield "Models of this table were selected by scores on every task: none is untouched."


def _build_suite_tasks(listed: SiteSuite) -> Table:
    """The tasks of a suite, each with its metric, languages, data and description."""
    rows = []
    for column in listed.suite.columns:
        about = describe_task(column.tasks[0].name)
        metrics = dict.fromkeys(task.metric for task in column.tasks)
        data = dict.fromkeys((task.data.revision or task.data.content)[:7] for task in column.tasks)
        codes = about.languages
        languages = f"{len(codes)} languages" if len(codes) > 6 else ", ".join(codes)
        texts = (column.type, ", ".join(metrics), languages, ", ".join(data), about.text)
        rows.append((link(column.name, format_column_path(listed, column)), *texts))
    labels = {label.lower(): label for label in TASK_LABELS}
    return values_table("tasks", "Tasks of this suite", labels, rows)


class _SuitesState(State):
    """The parameters of the list of suites."""

    q: Text = Field("", description="Part of a suite's name.")


@serve_page("/suites", "Every suite: its tasks, and how many models have scores in it.")
def _show_suites(site: Site, state: _SuitesState) -> Page:
    entry_counts, query = site.queries.entries_of_suites, state.q.casefold()
    printed = {slug for _, slug, *_ in site.queries.list_averages()}
    suites = [s for s in site.queries.suites.values() if query in f"{s.suite.title} {s.typed}".casefold()]
    suites.sort(key=lambda suite: (not suite.main, -entry_counts.get(suite.slug, 0)))

    def build_count_cell(suite: SiteSuite) -> Cell:
        count, word = entry_counts.get(suite.slug, 0), "papers" if suite.slug in printed else "–"
        return Cell(text=str(count or word), value=count, kind="" if count or word != "–" else "none")

    column = sorting.Field[SiteSuite]
    fields = [
        column("name", "Suite", lambda one: link(one.suite.title, f"/suites/{one.slug}"), sticky=True),
        column("entries", "Models", build_count_cell, numeric=True),
        column("columns", "Tasks", lambda one: len(one.suite.columns), numeric=True),
        column("types", "Task types",
               lambda one: ", ".join(dict.fromkeys(column.type for column in one.suite.columns))),
        column("about", "About", _show_about),
        column("typed", "On the command line", lambda one: Cell(
            text=f"--suite {one.typed!r}" if " " in one.typed else f"--suite {one.typed}", value=one.typed)),
    ]  # fmt: skip
    some = sum(suite.slug in printed or suite.slug in entry_counts for suite in suites)
    table = sorting.fill_table(
        "suites", f"{len(suites)} suites, {some} of them with scores", fields, suites,
        group=lambda one: "Boards" if one.main else "Other benchmarks of mteb",
    )  # fmt: skip
    return Page(
        title="Suites",
        lead="A suite is a list of tasks, each at one revision of its data, with the means over them.",
        tables=[table],
        context=state,
    )


def _show_about(suite: SiteSuite) -> Cell:
    about = describe_suite(suite.typed, suite.suite.title).text
    short = about if len(about) <= 120 else f"{about[:119].rsplit(' ', 1)[0]} …"
    return Cell(text=short, value=about, note=about if short != about else "")
