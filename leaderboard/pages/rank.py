"""Which encoder: the ranking that answers a reader's own question."""

from __future__ import annotations

from collections.abc import Iterator

from harness.core.terminal import shorten_names
from leaderboard.data.ranking import FEWEST
from leaderboard.views.question import (
    PATH,
    Answer,
    QuestionState,
    answer_question,
    build_question_form,
    complete_question,
    list_nearest_models,
    list_presets,
)
from leaderboard.views.suite_table import MissingModel, plot_suite_sizes
from leaderboard.web.page import Page
from leaderboard.web.page_state import build_paging
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site

NAMED = 5
"""Tasks that a note names, at most: JSON has all."""


@serve_page(
    PATH,
    "Which encoder for which tasks, under which bounds: ranks over the tasks that the models share.",
    formats=PRINTED,
)
def _show_ranking(site: Site, state: QuestionState) -> Page:
    queries = site.queries
    question, state = state, complete_question(queries, state)
    note, nearest = "", list[tuple[str, str, bool]]()
    try:
        answer = answer_question(queries, state)
    except MissingModel as error:
        # The reader's form stays, with what was typed; the answer is that without the model.
        note, nearest = f"{error.message} {error.hint}", list_nearest_models(queries, state)
        answer = answer_question(queries, state.apply_changes(beside=""))
    default = "" if question.suite or question.task else "".join(
        queries.suites[name].suite.title for name in state.suite) or "all suites"  # fmt: skip
    table = answer.table
    where = build_paging(len(table.ordered), state, PATH)
    unfolded, every = "all" in state.tasks, [] if "all" in state.tasks else ["all"]
    elsewhere = ""
    if state.suite == ["glue"] and "glue" not in queries.entries_of_suites:
        elsewhere = "No measured GLUE here; what papers print is on /glue."
    rows = where.cut(table.ordered)
    # A model that a reader asks for stands on top of the page that opens first, if not in it.
    pinned = [row for row in table.ordered if state.is_beside(table.scores.entries[row]) and row not in rows]
    rows = [*(() if "page" in state.model_fields_set else pinned), *rows]
    ranking = table.build_suite_table(rows, list(_iter_notes(answer)))
    left_out = answer.build_left_out_table()
    return Page(
        title="Which encoder?", lead=elsewhere or answer.describe(default),
        notes=[note] if note else [], tables=[ranking, left_out] if left_out.rows else [ranking],
        charts=[plot_suite_sizes(table)],
        data={
            "tasks_asked": len(answer.pool.site_suite.suite.columns),
            "tasks": [column.name for column in table.scores.site_suite.suite.columns],
            "counted_as": dict(answer.twins), "weights": list(table.scores.site_suite.weights) or None,
            "models_pass": answer.passing, "models_ranked": len(answer.ranked),
            "choices": [{"tasks": tasks, "models": models} for tasks, models in answer.widths],
        },
        context={
            "form": build_question_form(queries, state), "presets": list_presets(queries, state),
            "widths": answer.list_widths(), "paging": where, "nearest": nearest, "printed": elsewhere,
            "path": PATH, "unfolded": unfolded,
            "unfold": f"{PATH}?{state.build_query(tasks=every)}" if table.folds else "",
        },
    )  # fmt: skip


def _iter_notes(answer: Answer) -> Iterator[str]:
    """The sentences below the ranking."""
    table = answer.table
    if answer.twins:
        names = [f"{name} (as {other})" for name, other in answer.twins.items()]
        yield f"A task that is in another column counts once: {shorten_names(names, NAMED)}."
    if len(answer.places) >= FEWEST:
        yield (
            "± 95 %: half of Student’s interval of the mean, the tasks taken as a sample of such tasks: how "
            "far the mean would move over other tasks. Two models differ by less, as their scores rise and "
            "fall together: ranks use the differences, and possible ranks are those that these leave open."
        )
        yield "Models that cannot be told apart from the first of their group share its rank."
    else:
        yield "Ranks are by the mean alone: these tasks are too few to say which models differ."
    if table.state.zero:
        yield "Zero-shot is counted over the tasks that rank."
