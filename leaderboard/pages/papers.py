"""Papers: where they differ, every table as printed, and protocols, whose tables sort measured lines in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from harness.jobs.protocol import ProtocolColumn, ProtocolEntry, ProtocolStep, ProtocolTable
from harness.plan import catalog
from harness.results.reported import AVERAGE, SCORES, TYPES, Paper, PaperTable, PaperValue, normalize_metric
from leaderboard.data.backbones import Backbone, resolve_backbones
from leaderboard.data.entries import compute_precedence
from leaderboard.data.paper_lines import (
    OVER_TYPES,
    SUITES,
    Conflict,
    Line,
    find_paper_conflicts,
    format_anchor,
    format_table_title,
    group_printed_lines,
    has_same_queries,
    match_task_column,
)
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import SuiteScores
from leaderboard.views.paper_tables import (
    Measured,
    build_paper_table,
    build_printed_cell,
    list_print_warnings,
)
from leaderboard.views.suite_table import build_mean_cell, build_task_cell
from leaderboard.views.training import is_of_paper
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import State
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.table_formats import parse_cell_value
from leaderboard.web.tables import EMPTY, Cell, Table, build_values_row, link, values_table

PATH = "/papers"
OVER_TASKS = "mean over tasks"
CONFLICT_HEADS = {"backbone": "Backbone", "suite": "Suite", "metric": "Score", "treatment": "Treatment"}
DIFFER = (
    "Values that differ by rounding alone are left out. Papers also copy from one another, take the test "
    "server's numbers, or fine-tune in their own way: a cell's note says what is known."
)
UNMEASURED = "No measured row yet: harness run --model BACKBONE --protocol {}"
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
    names = [name for name, one in catalog.PROTOCOLS.load_entries().items()
             if (paper.slug, table.id) in {(own.paper, own.table) for own in one.tables}]  # fmt: skip
    if not measured and names:
        return replace(shown, notes=[UNMEASURED.format(names[0]), *shown.notes])
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


# Protocols

PROTOCOLS = "/protocols"


@serve_page(
    f"{PROTOCOLS}/{{name}}",
    "A paper's protocol: the rows that it prints and those measured here, sorted together.",
    paths=lambda _site: [f"{PROTOCOLS}/{name}" for name in catalog.PROTOCOLS.load_entries()],
    formats=PRINTED,
)
def _show_protocol(site: Site, state: State, name: str) -> Page:
    protocols = catalog.PROTOCOLS.load_entries()
    check_name("protocol", name, protocols, then="`harness list protocols` shows all.")
    protocol = protocols[name]
    return Page(
        title=f"Protocol {name}",
        template="document.html",
        lead=f"{protocol.summary}.",
        context={
            "command": ("The same of your backbone:", f"harness run --model BACKBONE --protocol {name}")
        },
        crumbs=[("Papers", PATH)],
        tables=[
            _build_protocol_table(site.queries, protocol, table, site.papers[table.paper])
            for table in protocol.tables
            if table.paper in site.papers
        ],
    )


def _build_protocol_table(
    queries: Queries, protocol: ProtocolEntry, table: ProtocolTable, paper: Paper
) -> Table:
    """The printed lines and the measured ones, complete numbers of the ranking column first."""
    printed_table = paper.tables[table.table]
    names = [column.name for column in table.columns]
    lines = [_collect_printed_cells(line) for line in group_printed_lines(printed_table.rows)]
    measured = _collect_step_lines(queries, protocol, table)
    lines += measured
    names = [name for name in names if any(cells.get(name, EMPTY) is not EMPTY for cells in lines)]
    kept = [cells for cells in lines if any(cells.get(name, EMPTY) is not EMPTY for name in names)]

    def sort_key(cells: Mapping[str, Cell]) -> tuple[bool, float]:
        cell = cells.get(table.rank_column.name, EMPTY)
        value = None if "part" in cell.kind else parse_cell_value(cell)
        return value is None, -float(value or 0)

    keys = {name: format_anchor(name).lower() for name in names}
    heads = {"model": "Model", "setting": "Setting", "origin": "Numbers", **{keys[n]: n for n in names}}
    rules = {keys[c.name]: f"{c.name}: {c.rule}." for c in table.columns if c.rule and c.name in keys}
    suites = [catalog.open_suite(name) for name in dict.fromkeys(one.suite for one in table.columns)]
    conventions = [suite.conventions[table.paper] for suite in suites if table.paper in suite.conventions]
    rows = values_table(
        f"table-{format_anchor(table.table)}",
        f"{paper.name}, {format_table_title(table.table)}: {printed_table.caption}", heads,
        [[cells.get(name, EMPTY) for name in ("model", "setting", "origin", *names)]
         for cells in sorted(kept, key=sort_key)],
        says=rules,
        notes=[*([] if measured else [UNMEASURED.format(protocol.name)]), *list_print_warnings(printed_table),
               *(f"Measured numbers are by the convention of {one.says}." for one in conventions)],
    )  # fmt: skip
    first, *others = rows.columns
    # A phone has no room for numbers beside the settings.
    return replace(rows, columns=[first, *(replace(one, card=one.label) for one in others)], cards=True)


def _collect_printed_cells(line: Line) -> dict[str, Cell]:
    numbers = {name: build_printed_cell(row) for name, row in line.cells.items()}
    for name, row in line.cells.items():
        if row.unit == "fraction" and row.number is not None:
            value = 100 * row.number
            numbers[name] = replace(numbers[name], text=f"{value:g}", value=value)
    setting = line.labels["Setting"]
    return {"model": link(line.first.name), "setting": link(setting), "origin": link("printed"), **numbers}


def _collect_step_lines(
    queries: Queries, protocol: ProtocolEntry, table: ProtocolTable
) -> list[dict[str, Cell]]:
    """The measured cells of each backbone and label, by column."""
    entries = [one for one in queries.entries.values() if one.origin == "measured" and not one.member]
    backbones = resolve_backbones(entries, queries.models)
    lines: dict[tuple[str, str], dict[str, Cell]] = {}
    steps = {step.name: step for step in protocol.steps}
    for label, line_step in (table.lines or {"": ""}).items():
        for column in table.columns:
            step = steps[line_step or column.step]
            matches = [entry for entry in entries if _is_of_step(entry, step, backbones[entry.id])]
            # The best known last, as a later cell replaces an earlier one.
            for entry, cell in _iter_measured_cells(queries, column, table.paper, matches):
                backbone = backbones[entry.id]
                head = link(backbone.name, f"/models/{backbone.slug}")
                # Each number may be of another model of the backbone: its note says of which.
                about = "; ".join(filter(None, (entry.lineage_text, entry.treatment, cell.note)))
                line = lines.setdefault((backbone.slug, label), {"model": head, "setting": link(label)})
                line |= {"origin": link("measured", kind="measured")}
                line[column.name] = replace(cell, note=about)
    # A step without a recipe stands beside those of trained models, not for itself.
    bare = {name for name, step in steps.items() if not step.request.get("recipe")}
    trained = {slug for slug, label in lines if table.lines.get(label) not in bare}
    return [cells for (slug, _), cells in lines.items() if slug in trained]


def _is_of_step(entry: Entry, step: ProtocolStep, backbone: Backbone) -> bool:
    """Whether an entry is what a step makes of a backbone, with no other settings than the step's own."""
    request, lineage = step.request, entry.lineage
    settings = request.get("recipe_settings", {})
    # A treatment begins with its pooling.
    pooled = entry.treatment.startswith(f"{request.get('pooling', '')} pooling") or "pooling" not in request
    if not request.get("recipe"):
        return lineage is None and entry.output == "vector" and entry.model_slug == backbone.slug and pooled
    # The models of a chain of recipes are those of its last one.
    recipe = catalog.resolve_recipe_chain(request["recipe"][0]).rpartition("+")[2]
    refreshed = settings.get("fresh_seeds") == 0 and "fresh seeds" in entry.treatment
    if entry.recipe != recipe or entry.modified or refreshed or not pooled:
        return False
    sweep, swept = lineage.sweep if lineage else None, request.get("sweep", {})
    return lineage is None or (
        not lineage.changed
        and not lineage.all_own_data
        and (sweep.grid if sweep else {}) == swept
        # A part of the combinations is another sweep.
        and (sweep is None or len(sweep.values) == math.prod(map(len, swept.values())))
    )


def _iter_measured_cells(
    queries: Queries, column: ProtocolColumn, view: str, entries: list[Entry]
) -> Iterator[tuple[Entry, Cell]]:
    """The cell of each entry in a column, the best known entries last."""
    listed = next((one for one in queries.suites.values() if one.typed == column.suite), None)
    if listed is None or not entries:
        return
    entries = sorted(entries, key=compute_precedence)
    convention = view if view in listed.suite.conventions else ""
    scores = queries.load_suite_scores(listed, convention, entries=entries)
    kind, names = column.of.removeprefix("type:"), [one.name for one in listed.suite.columns]
    for row, entry in enumerate(entries):
        if column.of not in names and scores.mean(kind).count[row]:
            yield entry, build_mean_cell(scores, row, kind)
        elif column.of in names and scores.counted[row, place := names.index(column.of)]:
            yield entry, build_task_cell(scores, row, place, queries.entries)
