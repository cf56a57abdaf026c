"""Protocols as tables: the rows that a paper prints, and those measured here, sorted together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from harness.jobs.protocol import ProtocolColumn, ProtocolEntry, ProtocolStep, ProtocolTable
from harness.plan import catalog
from harness.results.reported import Paper
from leaderboard.data.backbones import Backbone
from leaderboard.data.entries import compute_precedence
from leaderboard.data.paper_lines import Line, format_anchor, format_table_title, group_printed_lines
from leaderboard.data.queries import Entry, Queries
from leaderboard.views.backbones import resolve_backbones
from leaderboard.views.paper_tables import build_printed_cell, list_print_warnings
from leaderboard.views.suite_table import build_mean_cell, build_task_cell
from leaderboard.web.formats import parse_cell_value
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import State
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, link, values_table

PATH = "/protocols"


@serve_page(
    f"{PATH}/{{name}}",
    "A paper's protocol: the rows that it prints and those measured here, sorted together.",
    paths=lambda _site: [f"{PATH}/{name}" for name in catalog.PROTOCOLS.load_entries()],
    formats=PRINTED,
)
def _show_protocol(site: Site, state: State, name: str) -> Page:
    protocols = catalog.PROTOCOLS.load_entries()
    check_name("protocol", name, protocols, then="`harness list protocols` shows all.")
    protocol = protocols[name]
    return Page(
        title=f"Protocol {name}",
        template="protocol.html",
        lead=f"{protocol.summary}.",
        context={"command": f"harness run --model BACKBONE --protocol {name}"},
        crumbs=[("Papers", "/papers")],
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
    lines += _collect_measured_lines(queries, protocol, table)
    kept = [cells for cells in lines if any(cells.get(name, EMPTY) is not EMPTY for name in names)]

    def sort_key(cells: Mapping[str, Cell]) -> tuple[bool, float]:
        cell = cells.get(table.rank_column.name, EMPTY)
        value = None if "part" in cell.kind else parse_cell_value(cell)
        return value is None, -float(value or 0)

    keys = {name: format_anchor(name).lower() for name in names}
    heads = {"model": "Model", "setting": "Setting", "origin": "Numbers", **{keys[n]: n for n in names}}
    rules = {keys[column.name]: f"{column.name}: {column.rule}." for column in table.columns if column.rule}
    suites = [catalog.open_suite(name) for name in dict.fromkeys(one.suite for one in table.columns)]
    conventions = [suite.conventions[table.paper] for suite in suites if table.paper in suite.conventions]
    rows = values_table(
        f"table-{format_anchor(table.table)}",
        f"{paper.name}, {format_table_title(table.table)}: {printed_table.caption}", heads,
        [[cells.get(name, EMPTY) for name in ("model", "setting", "origin", *names)]
         for cells in sorted(kept, key=sort_key)],
        says=rules,
        notes=[*list_print_warnings(printed_table),
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


def _collect_measured_lines(
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
    for row, entry in enumerate(entries):
        kind = column.of.removeprefix("type:")
        names = [one.name for one in listed.suite.columns]
        if column.of in names:
            cell = build_task_cell(scores, row, names.index(column.of), queries.entries)
            counts = bool(scores.counted[row, names.index(column.of)])
        else:
            cell, counts = build_mean_cell(scores, row, kind), bool(scores.mean(kind).count[row])
        if counts:
            yield entry, cell
