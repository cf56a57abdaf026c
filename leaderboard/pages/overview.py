"""The first page: the question with its answer, the boards with their best models, the newest records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from harness.results.reported import Paper
from harness.results.scores import score_text
from leaderboard.data.backbones import find_backbone, load_backbones
from leaderboard.data.queries import Queries
from leaderboard.views.cells import build_score_cell, build_size_cell, format_task_count, format_time
from leaderboard.views.question import (
    QuestionState,
    answer_question,
    build_question_form,
    complete_question,
    list_presets,
)
from leaderboard.views.suite_table import (
    SuiteState,
    SuiteTable,
    build_model_cell,
    mean_cell,
    mean_of,
    name_entry_model,
    plot_suite_sizes,
)
from leaderboard.views.task_scores import format_task_path
from leaderboard.web.charts import Chart
from leaderboard.web.page import Page
from leaderboard.web.page_state import State
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, link, values_table

TEXTS: Mapping[str, str] = {
    "glue": "Backbones fine-tuned on English sentences", "mteb": "Embeddings, English, 2025",
    "mteb-v1": "Embeddings, English, 2022", "beir": "Retrieval in many domains",
    "codesearchnet": "Retrieval of code", "mldr": "Retrieval of long documents",
}  # fmt: skip
"""Suites in a few words, by slug."""

MOST, BEST, NEWEST = 6, 5, 8
DOTS = 80
"""Points of the chart of a board, at most, beside its frontier: six boards are one page."""


@dataclass(frozen=True, kw_only=True)
class _Board:
    """A suite on the first page; `rows` are rank, model, size and score of its best models."""

    slug: str
    title: str
    href: str
    text: str
    more: str
    rows: Sequence[Sequence[Cell]]
    chart: Chart | None


@serve_page("/", "The question, which encoder; the boards with their best models; the newest records.")
def _show_overview(site: Site, state: State) -> Page:
    queries = site.queries
    main = [slug for slug in queries.entries_of_suites if queries.suites[slug].main]
    slugs = [slug for slug in dict.fromkeys([*TEXTS, *main]) if slug in queries.suites]
    # A generator: suites behind the sixth are not put together at all.
    pairs = ((s, t) for s in slugs if (t := _load_suite_table(queries, s)).scores.entries)
    tables = dict(islice(pairs, MOST))
    boards = [_build_board(slug, table, site.papers) for slug, table in tables.items()]
    question = complete_question(queries, QuestionState.model_validate({}))
    labels = {"model": "Model", "task": "Task", "score": "Score", "written": "Written"}
    rows = [
        (link(entry.model, f"/models/{entry.model_slug}"), link(row.task, format_task_path(row.task)),
         EMPTY if row.value is None else build_score_cell(row.value),
         Cell(text=format_time(row.written or ""), value=row.written, href=f"/results/{row.id}"))
        for row, entry in queries.list_newest_results(NEWEST)
    ]  # fmt: skip
    newest = values_table("newest", "The newest measured records", labels, rows)
    labels = {"board": "Board", "rank": "Rank", "model": "Model", "size": "Size", "score": "Mean over tasks"}
    heads = {board.slug: link(board.title, board.href) for board in boards}
    places = [(heads[board.slug], *cells) for board in boards for cells in board.rows]
    best = values_table("boards", "The best models of each board", labels, places)
    numbers = sum(paper.numbers for paper in site.papers.values())
    return Page(
        title="Which encoder?",
        lead=f"Scores of {len(queries.models):,} text encoders on public benchmarks: measured by this "
        f"harness, imported from mteb, or printed in papers ({numbers:,} numbers). Each number says which.",
        tables=[best, newest],
        charts=[board.chart for board in boards if board.chart],
        context={
            "boards": [*boards[:1], *_iter_backbone_boards(site), *boards[1:]],
            "answer": answer_question(queries, question) if question.suite else None,
            "form": build_question_form(queries, question, short=True),
            "presets": list_presets(queries, state),
        },
    )


def _load_suite_table(queries: Queries, slug: str) -> SuiteTable:
    """The table of a suite as its page shows it first."""
    listed, state = queries.suites[slug], SuiteState.model_validate({})
    scores = queries.load_suite_scores(listed)
    return SuiteTable(scores=scores, state=state, path=f"/suites/{slug}", cards={}, entries=queries.entries)


def _build_board(slug: str, table: SuiteTable, papers: Mapping[str, Paper]) -> _Board:
    """A suite with its best models; where none is ranked, the rows of papers with the best means."""
    scores, ranked = table.scores, [row for row in table.ordered if table.ranks.place[row]]
    complete = [row for row in table.ordered if scores.over_tasks.complete[row]]
    # Papers print a backbone in several settings: the best one stands for it.
    names = {name_entry_model(scores.entries[row]): row for row in reversed(complete)}
    rows = ranked or [row for row in complete if row in names.values()]
    tasks = format_task_count(scores.over_tasks.expected)
    if paper := papers.get(scores.convention):
        tasks = f"{tasks}, by {paper.name}’s convention"
    return _Board(
        slug=slug,
        title=scores.site_suite.suite.title,
        href="/glue" if slug == "glue" else table.path,
        text=f"{TEXTS[slug]}: {tasks}" if slug in TEXTS else tasks.capitalize(),
        more=f"All {len(ranked)} ranked models" if ranked else "All rows, printed in papers: without rank",
        rows=[_build_place_cells(table, row) for row in rows[:BEST]],
        chart=_plot_board(table, f"size-{slug}") if len(rows) > 2 else None,
    )


def _iter_backbone_boards(site: Site) -> Iterator[_Board]:
    """The backbones with the most printed numbers, as one board; nothing without papers."""
    rows = (row for paper in site.papers.values() for row in paper.rows if row.number is not None)
    counts = Counter(backbone.slug for row in rows if (backbone := find_backbone(row.backbone)))
    ranking = [load_backbones()[slug] for slug, _ in counts.most_common(2 * BEST)]
    if ranking:
        yield _Board(
            slug="backbones", title="Backbones × recipes", href="/backbones",
            text="The papers’ encoders after fine-tuning: GLUE, SimCSE, DPR, ColBERT, code, "
            "long documents. Those that papers print most often, not the best ones:",
            more="All backbones",
            rows=[
                (EMPTY, link(one.name, f"/models/{one.slug}"),
                 build_size_cell(one.parameters, unknown=""), EMPTY)
                for one in ranking
            ],
            chart=None,
        )  # fmt: skip


def _build_place_cells(table: SuiteTable, row: int) -> list[Cell]:
    """Rank, model, size and score of a row."""
    scores, entry, rank = table.scores, table.scores.entries[row], int(table.ranks.place[row])
    score = mean_of(mean_cell(scores.over_tasks, row, None), scores, row)
    score = replace(score, text=score_text(float(scores.over_tasks.values[row])))
    size = build_size_cell(entry.parameters, unknown="")
    return [Cell(text=str(rank or "–"), value=rank or None), build_model_cell(entry), size, score]


def _plot_board(table: SuiteTable, name: str) -> Chart:
    """A chart for a card, with a few names."""
    chart = plot_suite_sizes(table, name, DOTS)
    layout = chart.figure["layout"]
    # Pixels: a card is narrower than a page.
    small = {"height": 260, "meta": {"names": layout["meta"]["names"][:6]}, "showlegend": False}
    return replace(chart, figure={**chart.figure, "layout": {**layout, **small}})
