"""Backbones by recipes: what each pretrained backbone comes to on every benchmark, printed and measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pydantic import Field as Parameter

from leaderboard.data.backbones import (
    BENCHMARKS,
    RECIPES,
    Backbone,
    Benchmark,
    collect_glue_lines,
    collect_printed_scores,
    load_backbones,
)
from leaderboard.data.entries import compute_precedence
from leaderboard.data.groups import group_by
from leaderboard.data.paper_lines import format_anchor, format_table_title, has_same_queries
from leaderboard.data.queries import Entry, Queries
from leaderboard.views.backbones import (
    GLUE,
    BackboneState,
    GlueView,
    build_backbone_cells,
    build_backbone_form,
    build_plain_cell,
    resolve_backbones,
)
from leaderboard.views.sorting import Field, fill_table, sort_rows
from leaderboard.views.suite_table import build_mean_cell, format_entry_kinds
from leaderboard.web.charts import Chart, Point, build_size_chart
from leaderboard.web.formats import parse_cell_value
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import Text
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, link, values_table

PATH = "/backbones"
NOTES = (
    "Each number leads to the table that prints it, or to the model that was measured.",
    "The title of a size says where it is an estimate, and where a paper prints another one.",
)


class _BackbonesState(BackboneState):
    """The parameters of the table of backbones."""

    column: Text = Parameter("glue", description="The column that the chart shows, by its key.")


@dataclass(frozen=True, kw_only=True)
class _Number:
    """One number of a backbone; `source` and `setting` say where it is from and how it was made.

    Of several in one place the one of the greatest `weight` is shown. `why` says why it is not to be compared
    with others of its column; empty where it is.
    """

    backbone: Backbone
    benchmark: Benchmark
    origin: str
    cell: Cell
    source: str
    setting: str
    weight: tuple[float | str, ...]
    why: str = ""


_Line: TypeAlias = tuple[Backbone, str]
"""The numbers of a backbone of one origin."""


@serve_page(
    PATH, "Backbones by recipe and benchmark: GLUE, MTEB, BEIR, long documents and code.", formats=PRINTED
)
def _show_backbones(site: Site, state: _BackbonesState) -> Page:
    benchmarks = {one.key: one for one in BENCHMARKS}
    hint = "The page /backbones offers all columns."
    check_name("column", state.column, benchmarks, then=hint, is_needed=True)
    benchmark = benchmarks[state.column]
    convention = GlueView.resolve_convention(state, site.papers)
    numbers = _mark_incomparable_numbers(
        [*_iter_printed_numbers(site, convention), *_iter_measured_means(site.queries, convention)]
    )
    shown = [one for one in numbers if state.should_keep(one.backbone, one.origin)]
    cells = _group_cells(shown)
    fields = _build_backbone_fields(cells)
    lines = sort_rows(list(dict.fromkeys((one, origin) for one, origin, _ in cells)), fields, state.sort)
    sorting = {line: _find_sorting_cell(cells, line[0], state.sort.removeprefix("-")) for line in lines}
    lines.sort(key=lambda line: (sorting[line] is EMPTY, "apart" in sorting[line].kind))
    table = fill_table(
        "backbones", "Backbones by recipe and benchmark, scores × 100", fields, lines, state=state,
        key=lambda line: f"{line[0].slug}-{line[1]}", notes=NOTES, cards=True,
    )  # fmt: skip
    drawn = {(one, origin): cell for (one, origin, key), cell in cells.items() if key == state.column}
    measured = {one.backbone.slug for one in numbers if one.origin == "measured"}
    every = {one.backbone.slug for one in numbers}
    return Page(
        title="Backbones",
        lead=f"What {len(every)} pretrained encoders come to after fine-tuning, by recipe and benchmark: "
        f"as papers print it{f', and for {len(measured)} of them as measured here' if measured else ''}.",
        tables=[table, _build_numbers_table(shown)],
        charts=[_plot_backbones(drawn, benchmark)],
        data={"view": convention.chosen},
        context={
            "conventions": convention.list_convention_tabs(PATH, state),
            "columns": [
                (f"{one.recipe}: {one.title}" if one.key != GLUE else one.title,
                 f"{PATH}?{state.build_query(column=one.key)}#c-size", one.key == state.column)
                for one in BENCHMARKS
            ],
            "form": build_backbone_form(state, PATH, (one.backbone.parameters for one in numbers)),
        },
    )  # fmt: skip


def _iter_printed_numbers(site: Site, convention: GlueView) -> Iterator[_Number]:
    """What papers print: the chosen convention first, then a paper's own numbers, then the highest."""
    # By identity: equal numbers may stand in several tables, and values compare by content.
    lines = {id(line.average): line for line in collect_glue_lines(site.papers) if line.average}
    suites, benchmarks = site.queries.suites, {one.key: one for one in BENCHMARKS}
    by_slug = load_backbones()
    for (slug, key), scores in collect_printed_scores(site.papers).items():
        benchmark = benchmarks[key]
        columns = suites[benchmark.suite].suite.columns if benchmark.suite in suites else ()
        for paper, row, row_notes in scores:
            line, noted = lines.get(id(row)), replace(row, note="; ".join([row.note, *row_notes]))
            other = [column.name for column in columns if not has_same_queries(noted, column.name)]
            why = f"not of the queries of {', '.join(other)}" if other else ""
            if line and convention.find_other_tasks(line.convention):
                why = convention.explain_difference(line.convention)
            plain, more = build_plain_cell(row), [note for note in row_notes if note != row.note]
            source = f"{row.paper}, {format_table_title(row.table)}"
            notes = filter(None, [f"{source}: {row.setting}", plain.note, *more])
            href = f"/papers/{paper}#table-{format_anchor(row.table)}"
            yield _Number(
                backbone=by_slug[slug], benchmark=benchmark, origin="reported",
                cell=replace(plain, href=href, note="; ".join(notes)), why=why, source=source,
                setting="; ".join([f"{row.name}: {row.setting}", *row_notes]),
                weight=(not why, not (line and line.source), row.number or 0),
            )  # fmt: skip


def _mark_incomparable_numbers(numbers: Sequence[_Number]) -> list[_Number]:
    """The numbers, marked where their column mixes some that are not to be compared."""
    reasons: dict[str, set[str]] = {}
    for number in numbers:
        reasons.setdefault(number.benchmark.key, set()).add(number.why)
    marked = []
    for number in numbers:
        cell = number.cell.mark("apart", number.why) if number.why else number.cell
        is_mixed = len(reasons[number.benchmark.key]) > 1
        marked.append(replace(number, cell=cell if is_mixed else replace(cell, kind=number.cell.kind)))
    return marked


def _find_sorting_cell(cells: Mapping[tuple[Backbone, str, str], Cell], backbone: Backbone, key: str) -> Cell:
    """The number that sorts both lines of a backbone: the printed one, or else the measured one."""
    both = (cells.get((backbone, origin, key), EMPTY) for origin in ("reported", "measured"))
    return next((one for one in both if one is not EMPTY), EMPTY)


def _iter_measured_means(queries: Queries, convention: GlueView) -> Iterator[_Number]:
    """The complete means of what recipes made of backbones."""
    entries = [e for e in queries.entries.values() if e.origin == "measured" and not e.member]
    roots = resolve_backbones(entries, queries.models)
    for benchmark in BENCHMARKS:
        matches, listed = [e for e in entries if _is_of(e, benchmark)], queries.suites.get(benchmark.suite)
        if listed is None or not matches:
            continue
        view = convention.chosen if benchmark.suite == GLUE else ""
        scores = queries.load_suite_scores(listed, view, entries=matches)
        over = _choose_mean_kind(benchmark)
        for row, entry in enumerate(matches):
            if scores.mean(over).complete[row]:
                text = entry.lineage_text or entry.treatment
                cell = build_mean_cell(scores, row, over)
                kinds = dict.fromkeys([*cell.kind.split(), *format_entry_kinds(entry).split()])
                yield _Number(
                    backbone=roots[entry.id], benchmark=benchmark, origin="measured",
                    cell=replace(
                        cell, href=f"/models/{entry.model_slug}", kind=" ".join(kinds),
                        note=f"{text}; {cell.note}".strip("; "),
                    ),
                    source="measured here", setting=text, weight=compute_precedence(entry),
                )  # fmt: skip


def _is_of(entry: Entry, benchmark: Benchmark) -> bool:
    """Whether an entry was made as a benchmark's numbers are."""
    if benchmark.suite == GLUE:
        return entry.output == "label"
    recipe = RECIPES.get(benchmark.key) or RECIPES[benchmark.recipe]
    return entry.lineage is not None and entry.lineage.recipe == recipe


def _choose_mean_kind(benchmark: Benchmark) -> str:
    """The mean that papers print in a column: OptiBERT's of MTEB is over types."""
    return "types" if benchmark.recipe == "SimCSE" else "tasks"


def _group_cells(numbers: Sequence[_Number]) -> dict[tuple[Backbone, str, str], Cell]:
    """What is shown by backbone, origin and benchmark; both lines of a backbone follow one another."""
    order, cells = list(dict.fromkeys(one.backbone for one in numbers)), {}
    rows = sorted(numbers, key=lambda one: order.index(one.backbone))
    for place, some in group_by(rows, lambda one: (one.backbone, one.origin, one.benchmark.key)).items():
        # One of several, with the others in its note.
        best = max(some, key=lambda one: one.weight)
        others = [f"also {o.cell.text} ({o.source}: {o.setting})" for o in some if o is not best]
        cells[place] = replace(best.cell, note="; ".join([best.cell.note, *others[:4]]))
    return cells


def _build_backbone_fields(cells: Mapping[tuple[Backbone, str, str], Cell]) -> list[Field[_Line]]:
    """The columns."""

    def build_benchmark_field(one: Benchmark) -> Field[_Line]:
        return Field(
            one.key, one.title, lambda line: cells.get((*line, one.key), EMPTY),
            lambda line: parse_cell_value(_find_sorting_cell(cells, line[0], one.key)), numeric=True,
            group=one.recipe, card=f"{one.recipe} {one.title}".strip(),
            note=f"{one.recipe}: the mean over {_choose_mean_kind(one)} of {one.title}.",
        )  # fmt: skip

    return [
        Field("name", "Backbone", lambda line: build_backbone_cells(line[0])["name"],
              lambda line: line[0].name.casefold(), up=True, sticky=True, card="Backbone"),
        Field("parameters", "Size", lambda line: build_backbone_cells(line[0])["parameters"],
              lambda line: line[0].parameters, numeric=True, card="Size",
              note="Parameters, with embeddings."),
        Field("without_embeddings", "Size without embeddings",
              lambda line: build_backbone_cells(line[0])["without_embeddings"],
              lambda line: line[0].without_embeddings, numeric=True,
              note="Parameters without the table of token embeddings, as OptiBERT counts them."),
        Field("origin", "Numbers", lambda line: link(line[1], kind=line[1]), lambda line: line[1],
              card="Numbers"),
        *map(build_benchmark_field, BENCHMARKS),
    ]  # fmt: skip


def _build_numbers_table(numbers: Sequence[_Number]) -> Table:
    """Every number on a line of its own, with where it is from."""
    heads = ("Backbone", "Recipe", "Benchmark", "Origin", "Score", "From", "Setting")
    rows = [
        (build_backbone_cells(one.backbone)["name"], one.benchmark.recipe, one.benchmark.title, one.origin,
         one.cell, one.source, one.setting)
        for one in numbers
    ]  # fmt: skip
    labels = {head.lower(): head for head in heads}
    return values_table("numbers", "Every number, with where it is from", labels, rows)


def _plot_backbones(numbers: Mapping[_Line, Cell], benchmark: Benchmark) -> Chart:
    """A column against the size; hollow where a number is not to be compared."""
    points = [
        Point(
            label=backbone.name, x=backbone.parameters, y=parse_cell_value(cell), series=origin,
            href=cell.href, hollow="apart" in cell.kind, note=cell.note,
        )
        for (backbone, origin), cell in numbers.items()
    ]  # fmt: skip
    name = f"{benchmark.recipe}, {benchmark.title}"
    hollow = "; hollow: not to be compared with the others (≠)" if any(p.hollow for p in points) else ""
    return build_size_chart(f"{name}: score against size{hollow}", name, points)
