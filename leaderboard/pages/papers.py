"""The papers: who wrote them, where they differ, and every table as printed, with measured lines below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harness.plan import catalog
from harness.results.reported import AVERAGE, SCORES, TYPES, Paper, PaperTable, PaperValue, normalize_metric
from leaderboard.data.paper_lines import (
    OVER_TYPES,
    SUITES,
    Conflict,
    find_paper_conflicts,
    format_anchor,
    format_table_title,
    has_same_queries,
    match_task_column,
)
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import SuiteScores
from leaderboard.views.paper_tables import Measured, build_paper_table, list_print_warnings
from leaderboard.views.suite_table import build_mean_cell, build_task_cell
from leaderboard.views.training import is_of_paper
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import State
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, build_values_row, link, values_table

PATH = "/papers"
OVER_TASKS = "mean over tasks"
CONFLICT_HEADS = {"backbone": "Backbone", "suite": "Suite", "metric": "Score", "treatment": "Treatment"}
DIFFER = (
    "Values that differ by rounding alone are left out. Papers also copy from one another, take the test "
    "server's numbers, or fine-tune in their own way: a cell's note says what is known."
)
RAW = (
    "Lines measured here are of the model as published: it was not fine-tuned as the paper did, so they show "
    "what the fine-tuning is worth and are no repetition."
)


@serve_page(PATH, "What papers print: the papers, and where they differ.", formats=PRINTED)
def _show_papers(site: Site, state: State) -> Page:
    conflicts = find_paper_conflicts(site.papers)
    printed = sum(paper.numbers for paper in site.papers.values())
    return Page(
        title="Papers",
        lead=f"{printed:,} numbers that {len(site.papers)} papers print, none of them measured here.",
        tables=[_build_papers_table(site.papers),
                *([_build_conflicts_table(site.papers, conflicts)] if conflicts else [])],
    )  # fmt: skip


def _build_papers_table(papers: Mapping[str, Paper]) -> Table:
    heads = {"paper": "Paper", "title": "Title", "authors": "Authors", "year": "Year", "tables": "Tables",
             "numbers": "Numbers", "odd": "Recomputed otherwise"}  # fmt: skip
    rows = [
        build_values_row(
            link(paper.name, f"{PATH}/{slug}"), paper.title, paper.authors,
            # Plainly: a year has no comma.
            *(Cell(text=str(number), value=number)
              for number in (paper.year, len(paper.tables), paper.numbers, _count_odd_numbers(paper))),
            key=slug,
        )
        for slug, paper in papers.items()
    ]  # fmt: skip
    caption = "The papers, and how many of their numbers differ when recomputed"
    return values_table("papers", caption, heads, rows)


def _count_odd_numbers(paper: Paper) -> int:
    return sum(row.follows == "no" for row in paper.rows)


def _build_conflicts_table(papers: Mapping[str, Paper], conflicts: Sequence[Conflict]) -> Table:
    """Scores that papers print with different values, those furthest apart first."""
    names = {row.paper for one in conflicts for row in one.prints}
    slugs = {paper.name: slug for slug, paper in papers.items() if paper.name in names}
    treated = any(one.treatment for one in conflicts)
    heads = {key: label for key, label in CONFLICT_HEADS.items() if treated or key != "treatment"}
    heads |= {"apart": "Apart", **{f"paper-{slug}": name for name, slug in slugs.items()}}
    rows = [
        [*(getattr(one, name) or None for name in CONFLICT_HEADS if name in heads),
         Cell(text=f"{_compute_conflict_range(one):.4g}", value=_compute_conflict_range(one)),
         *(_build_prints_cell([row for row in one.prints if row.paper == name], slug)
           for name, slug in slugs.items())]
        for one in sorted(conflicts, key=lambda one: -_compute_conflict_range(one))
    ]  # fmt: skip
    caption = "What papers print different values of, for one backbone"
    return values_table("conflicts", caption, heads, rows, notes=[DIFFER])


def _compute_conflict_range(one: Conflict) -> float:
    """The greatest value less the least."""
    numbers = [row.number for row in one.prints if row.number is not None]
    return round(max(numbers) - min(numbers), 6)


def _build_prints_cell(rows: Sequence[PaperValue], slug: str) -> Cell:
    """One paper's values, each with its table."""
    if not rows:
        return EMPTY
    text = "; ".join(f"{row.value} ({format_table_title(row.table)})" for row in rows)
    notes = dict.fromkeys(
        f"{row.value}: {', '.join(filter(None, [row.model, row.setting, row.note]))}" for row in rows
    )
    href = f"{PATH}/{slug}#table-{format_anchor(rows[0].table)}"
    return link(text, kind="reported", note="; ".join(notes), href=href)


@serve_page(
    f"{PATH}/{{paper}}",
    "A paper: every table as printed, with what was measured here below its lines.",
    paths=lambda site: [f"{PATH}/{slug}" for slug in site.papers],
    formats=PRINTED,
)
def _show_paper(site: Site, state: State, paper: str) -> Page:
    check_name("paper", paper, site.papers, then="The page /papers lists all.")
    site_paper = site.papers[paper]
    pairs = [
        (table, _add_measured_lines(site.queries, site_paper, table)) for table in site_paper.tables.values()
    ]
    count = f"{len(pairs)} tables" if len(pairs) > 1 else "One table"
    return Page(
        title=site_paper.title,
        lead=f"{count} with {site_paper.numbers} printed numbers, as they stand in the paper.",
        crumbs=[("Papers", PATH)], tables=[table for _, table in pairs],
        data={
            "paper": site_paper.slug, "name": site_paper.name, "year": site_paper.year,
            "authors": site_paper.authors, "arxiv": site_paper.arxiv or None, "numbers": site_paper.numbers,
            "warnings": {
                f"table {table.id}": messages
                for table, _ in pairs if (messages := list_print_warnings(table))
            },
        },
        context={
            "facts": _list_paper_facts(site_paper),
            "sections": [_build_paper_section(*pair) for pair in pairs],
        },
    )  # fmt: skip


def _list_paper_facts(paper: Paper) -> list[tuple[str, str, str]]:
    odd, checked = _count_odd_numbers(paper), sum(bool(row.follows) for row in paper.rows)
    entries = catalog.load_recipe_entries()
    recipes = [name for name in entries if is_of_paper(catalog.open_recipe(name), paper)]
    return [
        ("Authors", paper.authors, ""),
        ("Year", str(paper.year), ""),
        *([("arXiv", paper.arxiv, f"https://arxiv.org/abs/{paper.arxiv}")] if paper.arxiv else []),
        ("Printed numbers", str(paper.numbers), ""),
        *([("Recomputed", f"{checked - odd} of {checked} come out as in the paper", "")] if checked else []),
        *(("Recipe", name, f"/recipes/{name}") for name in recipes),
        *(
            ("Protocol", name, f"/protocols/{name}")
            for name, one in catalog.PROTOCOLS.load_entries().items()
            if paper.slug in {table.paper for table in one.tables}
        ),
    ]


def _build_paper_section(table: PaperTable, shown: Table) -> tuple[str, Sequence[str], Table]:
    """A table on the page: its heading, what would mislead a reader of the print, and the rest."""
    messages, name = list_print_warnings(table), format_table_title(table.id)
    ours = {one.key: one.label.removesuffix(" (recomputed)") for one in shown.columns}
    columns = [
        replace(one, label=ours[one.key], group="recomputed") if ours[one.key] != one.label else one
        for one in shown.columns
    ]
    caption, notes = f"{table.numbers} numbers as printed", [n for n in shown.notes if n not in messages]
    heading = f"{name[0].upper()}{name[1:]}: {table.caption}"
    return heading, messages, replace(shown, caption=caption, columns=columns, notes=notes)


def _add_measured_lines(queries: Queries, paper: Paper, table: PaperTable) -> Table:
    """A table as printed, with the lines that were measured."""
    measured = _collect_measured_lines(queries, paper, table)
    shown = build_paper_table(paper, table, *measured)
    raw = any("as published" in cell.text for cells in measured for cell in cells.values())
    return replace(shown, notes=[*shown.notes, RAW]) if raw else shown


def _collect_measured_lines(queries: Queries, paper: Paper, table: PaperTable) -> list[Measured]:
    """The cells of each measured entry of a table's models, or made of one; in the paper's unit, times 100.

    Only entries of the kind that the table is of: fine-tuned ones for GLUE, several vectors a text for
    ColBERT, one vector a text for the rest. Imported scores are none of these.
    """
    rows = [row for row in _clear(table.rows) if row.hub_id and row.unit in SCORES and row.suite in SUITES]
    lines: dict[int, dict[tuple[str, str, str, str], Cell]] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        listed = queries.suites.get(SUITES[suite])
        if listed is None:
            continue
        conventions = listed.suite.conventions
        scores = queries.load_suite_scores(listed, paper.slug if paper.slug in conventions else "")
        for index, entry in enumerate(scores.entries):
            entry_rows = [row for row in rows if row.suite == suite and _is_of(row, entry)]
            for model in dict.fromkeys((row.model, row.size_class) for row in entry_rows):
                some = [row for row in entry_rows if (row.model, row.size_class) == model]
                if cells := _build_entry_cells(queries, scores, index, some):
                    line = {(*model, suite, name): cell for name, cell in cells.items()}
                    recipe = entry.lineage.text if entry.lineage else entry.recipe or "as published"
                    href = f"/models/{entry.model_slug}"
                    head = link(f"measured here, {recipe}", href, note=entry.treatment)
                    lines.setdefault(entry.id, {}).update({**line, (*model, "", ""): head})
    return list(lines.values())


def _clear(rows: Sequence[PaperValue]) -> list[PaperValue]:
    """The rows whose plain name stands for one column only: two averages of BEIR, say, are left out."""
    columns: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        columns.setdefault((row.suite, normalize_metric(row.suite, row.metric)), set()).add(row.metric)
    return [row for row in rows if len(columns[row.suite, normalize_metric(row.suite, row.metric)]) == 1]


def _is_of(row: PaperValue, entry: Entry) -> bool:
    """Whether an entry is measured for a row: of its model, or of what it was made of, in the same way."""
    several = "ColBERT" in f"{row.setting} {row.metric}"
    output = "multivector" if several else "vector"
    if row.suite.startswith("GLUE"):
        output = "label"
    models = (entry.model, entry.backbone if entry.lineage else "")
    return entry.origin == "measured" and entry.output == output and row.hub_id in models


def _build_entry_cells(
    queries: Queries, scores: SuiteScores, at: int, rows: Sequence[PaperValue]
) -> dict[str, Cell]:
    """What an entry has of what some rows of one model print, by the print's names."""
    names = {normalize_metric(row.suite, row.metric): row for row in rows}
    if rows[0].suite.startswith("MTEB("):
        kinds = {name: kind for name in names if (kind := TYPES.get(name, "")) in scores.by_type}
        kinds |= {OVER_TASKS: "tasks", OVER_TYPES: "types"}
        cells = {name: _build_entry_mean(scores, at, over) for name, over in kinds.items()}
    else:
        columns = [column.name for column in scores.site_suite.suite.columns]
        column_names = {name: match_task_column(name, columns) for name in names if name != AVERAGE}
        places = {name: columns.index(column) for name, column in column_names.items() if column}
        others = [columns[n] for name, n in places.items() if not has_same_queries(names[name], columns[n])]
        cells = {
            name: _mark_other_queries(build_task_cell(scores, at, n, queries.entries), others, columns[n])
            for name, n in places.items() if scores.counted[at, n]
        }  # fmt: skip
        if AVERAGE in names:
            cells[AVERAGE] = _mark_other_queries(_build_entry_mean(scores, at, "tasks"), others)
    return {name: cell for name, cell in cells.items() if cell is not EMPTY}


def _build_entry_mean(scores: SuiteScores, at: int, over: str) -> Cell:
    """A mean over tasks, types, or within a type; empty where it is not complete."""
    is_complete = scores.mean(over).complete[at]
    return build_mean_cell(scores, at, over, detailed=False) if is_complete else EMPTY


def _mark_other_queries(cell: Cell, columns: Sequence[str], column: str = "") -> Cell:
    """A number that the printed one is not to be compared with, if columns are of other queries there."""
    names = ", ".join(dict.fromkeys(one for one in columns if column in ("", one)))
    if cell is EMPTY or not names:
        return cell
    note = f"measured here on {names}; the printed number is of other queries"
    return replace(cell, text=f"{cell.text}, on {names}").mark("apart", note)
