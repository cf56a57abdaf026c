"""The backbones of papers by recipe and benchmark, and GLUE by task: printed numbers beside measured ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from pydantic import Field as Parameter

from harness.core.groups import group_by
from harness.core.types import Convention
from harness.plan.catalog import open_suite
from harness.results.reported import Paper, PaperValue
from leaderboard.data.backbones import (
    BENCHMARKS,
    RECIPES,
    Backbone,
    Benchmark,
    GlueLine,
    collect_glue_lines,
    collect_printed_scores,
    load_backbones,
    resolve_backbones,
)
from leaderboard.data.entries import compute_precedence
from leaderboard.data.paper_lines import format_anchor, format_table_title, has_same_queries
from leaderboard.data.queries import SIZES, Entry, Queries, find_size_class
from leaderboard.views.cells import build_size_cell
from leaderboard.views.paper_tables import build_printed_cell
from leaderboard.views.sorting import Field, fill_table, sort_rows
from leaderboard.views.suite_table import (
    build_mean_cell,
    build_task_cell,
    build_treatment_cell,
    format_entry_kinds,
)
from leaderboard.web.charts import Point, build_size_chart
from leaderboard.web.filters import CHIPS, SIZE_NAMES
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import Options, State, Text
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.table_formats import add_seed_deviation, format_parameters, parse_cell_value
from leaderboard.web.tables import EMPTY, Cell, Table, link, values_table

PATH = "/backbones"
GLUE = "glue"
NOTES = (
    "Each number leads to the table that prints it, or to the model that was measured.",
    "The title of a size says where it is an estimate, and where a paper prints another one.",
)
TEXTS = ("name", "origin", "source", "convention", "setting")
"""Columns of texts."""
LONG = 26
"""Characters of a setting, at most."""


class _BackboneState(State):
    """The parameters of a page over backbones."""

    view: Text = Parameter(
        "", description="The convention of GLUE that numbers are compared in: a paper's name."
    )
    q: Text = Parameter("", description="Part of a name or alias; of several words each must be in one.")
    size: Literal["", "small", "base", "large", "xl", "xxl"] = Parameter("", description="Size class.")
    origin: Literal["", "reported", "measured"] = Parameter("", description="Printed in papers, or measured.")
    sort: Text = Parameter("-glue", description="A column's key; with - in front the highest first.")

    def should_keep(self, backbone: Backbone, origin: str) -> bool:
        """Whether a backbone's numbers of an origin pass the filters."""
        names = " ".join([backbone.name, *backbone.aliases]).casefold()
        if not all(word in names for word in self.q.casefold().split()) or self.origin not in ("", origin):
            return False
        return self.size in ("", find_size_class(backbone.parameters))


class _BackbonesState(_BackboneState):
    """The parameters of the table of backbones."""

    column: Text = Parameter("glue", description="The column that the chart shows, by its key.")


class _GlueState(_BackboneState):
    """The parameters of the table of GLUE."""

    sort: Text = Parameter("-mean", description="A column's key; with - in front the highest first.")


@dataclass(frozen=True, kw_only=True)
class _GlueView:
    """The convention of GLUE that a page compares numbers in."""

    chosen: str
    papers: Mapping[str, Paper]
    conventions: Mapping[str, Convention]

    @property
    def tasks(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """The metrics of each task, by the chosen convention."""
        return self.conventions[self.chosen].parts

    def name(self, convention: str) -> str:
        """A convention's name as readers know it: that of its paper."""
        paper = self.papers.get(convention)
        return paper.name if paper else convention or "not stated"

    def explain_difference(self, other: str) -> str:
        """Why numbers of another convention are not to be compared."""
        return f"by {self.name(other)}'s convention" if other else "its convention is not known"

    def find_other_tasks(self, other: str) -> frozenset[str]:
        """The tasks whose numbers another convention makes in another way; all tasks if it is not known."""
        return frozenset(
            t for t in self.tasks if not other or self.conventions[other].parts[t] != self.tasks[t]
        )


def _resolve_convention(state: _BackboneState, papers: Mapping[str, Paper]) -> _GlueView:
    """The convention that a state names; the suite's first, if none.

    Raises:
        NotFound: GLUE has no convention of this name.
    """
    conventions = open_suite(GLUE).conventions
    check_name("convention", state.view, conventions, then="The page /glue offers all conventions.")
    return _GlueView(chosen=state.view or next(iter(conventions)), papers=papers, conventions=conventions)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row of a table: numbers of a backbone of one origin, its cells by column.

    `values` sort it, by column; those that cannot be compared with the chosen column's others stand `last`.
    """

    backbone: Backbone
    origin: str
    cells: Mapping[str, Cell]
    values: Mapping[str, Any]
    last: bool | tuple[bool, bool] = False


def _build_backbone_cells(backbone: Backbone) -> dict[str, Cell]:
    """The name and the size of a backbone, with and without embeddings."""
    without = backbone.without_embeddings
    size = build_size_cell(backbone.parameters, unknown="")
    notes = [f"{format_parameters(without)} without embeddings" if without else "", backbone.size_note]
    return {
        "name": link(backbone.name, f"/models/{backbone.slug}"),
        "parameters": replace(size, note="; ".join(filter(None, notes))),
        "without_embeddings": build_size_cell(without, unknown=""),
    }


def _build_plain_cell(row: PaperValue) -> Cell:
    """A printed number without its mark, in a table that says so by row, its interval in the note."""
    cell = build_printed_cell(row)
    interval = cell.text.removeprefix(row.value).strip()
    note = "; ".join(filter(None, [f"printed with {interval}" if interval else "", cell.note.rstrip(".")]))
    return replace(cell, text=row.value, kind="", note=note)


def _build_field(
    key: str, label: str, note: str = "", *, group: str = "", card: str | None = None
) -> Field[_Line]:
    return Field(
        key, label, lambda line: line.cells.get(key, EMPTY), lambda line: line.values.get(key),
        numeric=key not in TEXTS, note=note, sticky=key == "name", group=group,
        card=label if card is None else card,
    )  # fmt: skip


def _sort_lines(lines: Iterable[_Line], fields: Sequence[Field[_Line]], sort: str) -> list[_Line]:
    # Stable: in both groups the order that the reader chose stays.
    return sorted(sort_rows([*lines], fields, sort), key=lambda line: line.last)


def _build_controls(
    state: _BackboneState, path: str, view: _GlueView, backbones: Iterable[Backbone]
) -> dict[str, Any]:
    """The conventions as label, URL and current, and the form, which offers the sizes that there are."""
    classes = {find_size_class(one.parameters) for one in backbones}
    offered: Options = {
        "size": ("Size", [("", "any"), *((name, SIZE_NAMES[name]) for name in SIZES if name in classes)]),
        "origin": ("Origin", [("", "any"), ("reported", "printed in papers"), ("measured", "measured here")]),
    }
    controls = [state.ask_name("Backbone"), *state.offer(offered, always=offered)]
    return {
        "form": state.build_form(
            path, controls, chips={name: CHIPS[name] for name in ("q", "size", "origin")}
        ),
        "conventions": [
            (view.name(name), f"{path}?{state.build_query(view=name)}", name == view.chosen)
            for name in view.conventions
        ],
    }


# Backbones by recipe and benchmark


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


@serve_page(
    PATH, "Backbones by recipe and benchmark: GLUE, MTEB, BEIR, long documents and code.", formats=PRINTED
)
def _show_backbones(site: Site, state: _BackbonesState) -> Page:
    benchmarks = {one.key: one for one in BENCHMARKS}
    hint = "The page /backbones offers all columns."
    check_name("column", state.column, benchmarks, then=hint, is_needed=True)
    benchmark, view = benchmarks[state.column], _resolve_convention(state, site.papers)
    numbers = _mark_incomparable_numbers(
        [*_iter_printed_numbers(site, view), *_iter_measured_means(site.queries, view)]
    )
    shown = [one for one in numbers if state.should_keep(one.backbone, one.origin)]
    fields = [
        _build_field("name", "Backbone"),
        _build_field("parameters", "Size", "Parameters, with embeddings."),
        _build_field("without_embeddings", "Size without embeddings", card="",
                     note="Parameters without the table of token embeddings, as OptiBERT counts them."),
        _build_field("origin", "Numbers"),
        *(_build_field(one.key, one.title, group=one.recipe, card=f"{one.recipe} {one.title}".strip(),
                       note=f"{one.recipe}: the mean over {_choose_mean_kind(one)} of {one.title}.")
          for one in BENCHMARKS),
    ]  # fmt: skip
    lines = [*_build_lines(shown, state.sort.removeprefix("-"))]
    table = fill_table(
        "backbones", "Backbones by recipe and benchmark, scores × 100", fields,
        _sort_lines(lines, fields, state.sort), state=state,
        key=lambda line: f"{line.backbone.slug}-{line.origin}", notes=NOTES, cards=True,
    )  # fmt: skip
    points = [
        Point(
            label=line.backbone.name, x=line.backbone.parameters, y=parse_cell_value(cell),
            series=line.origin, href=cell.href, hollow="apart" in cell.kind, note=cell.note,
        )
        for line in lines for cell in [line.cells.get(state.column, EMPTY)] if cell is not EMPTY
    ]  # fmt: skip
    label = f"{benchmark.recipe}, {benchmark.title}"
    hollow = "; hollow: not to be compared with the others (≠)" if any(p.hollow for p in points) else ""
    measured = {one.backbone.slug for one in numbers if one.origin == "measured"}
    return Page(
        title="Backbones",
        lead=f"What {len({one.backbone.slug for one in numbers})} pretrained encoders come to after "
        "fine-tuning, by recipe and benchmark: as papers print it"
        f"{f', and for {len(measured)} of them as measured here' if measured else ''}.",
        tables=[table, _build_numbers_table(shown)],
        charts=[build_size_chart(f"{label}: score against size{hollow}", label, points)],
        data={"view": view.chosen},
        context={
            **_build_controls(state, PATH, view, (one.backbone for one in numbers)),
            "columns": [
                (f"{one.recipe}: {one.title}" if one.key != GLUE else one.title,
                 f"{PATH}?{state.build_query(column=one.key)}#c-size", one.key == state.column)
                for one in BENCHMARKS
            ],
        },
    )  # fmt: skip


def _iter_printed_numbers(site: Site, view: _GlueView) -> Iterator[_Number]:
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
            if line and view.find_other_tasks(line.convention):
                why = view.explain_difference(line.convention)
            plain, more = _build_plain_cell(row), [note for note in row_notes if note != row.note]
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


def _iter_measured_means(queries: Queries, view: _GlueView) -> Iterator[_Number]:
    """The complete means of what recipes made of backbones."""
    entries = [e for e in queries.entries.values() if e.origin == "measured" and not e.member]
    roots = resolve_backbones(entries, queries.models)
    for benchmark in BENCHMARKS:
        matches, listed = [e for e in entries if _is_of(e, benchmark)], queries.suites.get(benchmark.suite)
        if listed is None or not matches:
            continue
        convention = view.chosen if benchmark.suite == GLUE else ""
        scores = queries.load_suite_scores(listed, convention, entries=matches)
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


def _build_lines(numbers: Sequence[_Number], column: str) -> Iterator[_Line]:
    """What is shown of each backbone and origin; a printed number sorts both, or else the measured one."""
    # Both lines of a backbone follow one another.
    for backbone, its_numbers in group_by(numbers, lambda one: one.backbone).items():
        by_origin = {
            origin: {
                key: _choose_number(each) for key, each in group_by(some, lambda n: n.benchmark.key).items()
            }
            for origin, some in group_by(its_numbers, lambda one: one.origin).items()
        }
        cells = {**by_origin.get("measured", {}), **by_origin.get("reported", {})}
        first = cells.get(column, EMPTY)
        values = {
            "name": backbone.name.casefold(), "parameters": backbone.parameters,
            "without_embeddings": backbone.without_embeddings,
            **{key: parse_cell_value(cell) for key, cell in cells.items()},
        }  # fmt: skip
        for origin, mine in by_origin.items():
            yield _Line(
                backbone=backbone, origin=origin, values={**values, "origin": origin},
                cells=_build_backbone_cells(backbone) | {"origin": link(origin, kind=origin)} | mine,
                last=(first is EMPTY, "apart" in first.kind),
            )  # fmt: skip


def _choose_number(numbers: Sequence[_Number]) -> Cell:
    """One of several numbers, with the others in its note."""
    best = max(numbers, key=lambda one: one.weight)
    others = [f"also {o.cell.text} ({o.source}: {o.setting})" for o in numbers if o is not best]
    return replace(best.cell, note="; ".join([best.cell.note, *others[:4]]))


def _build_numbers_table(numbers: Sequence[_Number]) -> Table:
    """Every number on a line of its own, with where it is from."""
    heads = ("Backbone", "Recipe", "Benchmark", "Origin", "Score", "From", "Setting")
    rows = [
        (_build_backbone_cells(one.backbone)["name"], one.benchmark.recipe, one.benchmark.title, one.origin,
         one.cell, one.source, one.setting)
        for one in numbers
    ]  # fmt: skip
    labels = {head.lower(): head for head in heads}
    return values_table("numbers", "Every number, with where it is from", labels, rows)


# GLUE by task


@serve_page(
    "/glue",
    "GLUE over all papers and what was measured, compared by one paper's convention at a time.",
    formats=PRINTED,
)
def _show_glue(site: Site, state: _GlueState) -> Page:
    view = _resolve_convention(state, site.papers)
    every = [*_iter_measured_lines(site.queries, view), *_iter_printed_lines(site.papers, view)]
    fields = _build_glue_fields(view)
    lines = _sort_lines((e for e in every if state.should_keep(e.backbone, e.origin)), fields, state.sort)
    name, measured = view.name(view.chosen), sum(one.origin == "measured" for one in every)
    groups = {False: f"By {name}'s convention", True: "By another convention, or not stated"}
    table = fill_table(
        GLUE, f"GLUE, scores × 100, compared by {name}'s convention", fields, lines, state=state,
        kind=lambda line: "part" if "part" in line.cells.get("mean", EMPTY).kind else "",
        group=lambda line: groups[bool(line.last)], cards=True,
    )  # fmt: skip
    points = [
        Point(
            label=line.backbone.name, x=line.backbone.parameters, y=line.values["mean"], series=line.origin,
            hollow=bool(line.last), href=f"/models/{line.backbone.slug}",
            note=f"{line.cells['source'].text}, convention: {line.cells['convention'].text}",
        )
        for line in lines
    ]  # fmt: skip
    title = f"GLUE against size; hollow: not by {name}'s convention"
    return Page(
        title="GLUE",
        lead=f"{len(every) - measured} rows of fine-tuned encoders that papers print"
        f"{f', and {measured} measured by this harness' if measured else ''}, on the development sets of "
        "eight tasks.",
        crumbs=[("Boards", "/suites")],
        tables=[table],
        charts=[build_size_chart(title, "Mean over 8 tasks", points)],
        data={"view": view.chosen},
        context={
            **_build_controls(state, "/glue", view, (one.backbone for one in every)),
            "says": view.conventions[view.chosen].says,
        },
    )


def _build_glue_line(backbone: Backbone, origin: str, cells: dict[str, Cell], *, last: bool) -> _Line:
    """A line, sorted by texts or by numbers as printed; of another convention by its paper's average."""
    cells = _build_backbone_cells(backbone) | cells
    values = {
        key: cell.text.casefold() if key in TEXTS else None if cell.kind == "part" else parse_cell_value(cell)
        for key, cell in cells.items()
    }
    values["mean"] = values.get("printed" if last else "mean")
    return _Line(backbone=backbone, origin=origin, cells=cells, values=values, last=last)


def _iter_printed_lines(papers: Mapping[str, Paper], view: _GlueView) -> Iterator[_Line]:
    """The lines that papers print."""
    for line in collect_glue_lines(papers):
        if line.backbone:
            differing = view.find_other_tasks(line.convention)
            cells = _build_printed_cells(line, view, differing)
            yield _build_glue_line(line.backbone, "reported", cells, last=bool(differing))


def _build_printed_cells(line: GlueLine, view: _GlueView, differing: Collection[str]) -> dict[str, Cell]:
    why = view.explain_difference(line.convention)
    cells = {task: _build_plain_cell(row) for task, row in line.tasks.items()}
    if line.average:
        cells["printed"] = _build_plain_cell(line.average)
    apart = {*differing, *(["printed"] if differing else [])}
    cells = {key: cell.mark("apart", why) if key in apart else cell for key, cell in cells.items()}
    if not differing:
        cells["mean"] = _mean_of(line, len(view.tasks))
    paper = f"{view.name(line.paper)}, {format_table_title(line.table)}"
    href = f"/papers/{line.paper}#table-{format_anchor(line.table)}"
    joined = "; ".join(dict.fromkeys(filter(None, [line.setting, line.source])))
    setting = line.setting if line.source in line.setting else joined
    short = setting if len(setting) <= LONG else f"{setting[: LONG - 1]}…"
    return {
        **cells,
        "source": link(paper, href, kind="reported", note=f"printed as {line.name}"),
        "convention": Cell(text=view.name(line.convention), value=line.convention or None),
        "setting": Cell(text=short, value=setting or None, note=setting if short != setting else ""),
    }


def _mean_of(line: GlueLine, tasks: int) -> Cell:
    """The mean of a line's numbers; where it has none its average as printed."""
    numbers = [row.number for row in line.tasks.values() if row.number is not None]
    if len(numbers) == tasks:
        return Cell(text=f"{fmean(numbers):.2f}", value=fmean(numbers), note="of the printed numbers")
    if line.tasks or line.average is None:
        return EMPTY
    return Cell(text=line.average.value, value=line.average.number, note="as printed: its tasks are not")


def _iter_measured_lines(queries: Queries, view: _GlueView) -> Iterator[_Line]:
    """What was measured, by the chosen convention."""
    if GLUE not in queries.suites:
        return
    scores = queries.load_suite_scores(queries.suites[GLUE], view.chosen)
    rows = {row: entry for row, entry in enumerate(scores.entries) if entry.origin != "reported"}
    roots, tasks = resolve_backbones(rows.values(), queries.models), list(view.tasks)
    trainings = {
        (entry, record["task"]["name"]): record.get("training") or {}
        for entry, record in queries.load_entry_records([entry.id for entry in rows.values()], tasks)
    }
    for row, entry in rows.items():
        task_trainings = {task: trainings.get((entry.id, task), {}) for task in tasks}
        counts = sorted({len(_list_training_seeds(training)) for training in task_trainings.values()} - {0})
        columns = enumerate(scores.site_suite.suite.columns)
        cells = {one.name: build_task_cell(scores, row, at, queries.entries) for at, one in columns}
        for task, training in task_trainings.items():
            # Of the chosen convention alone.
            convention, seeds = str(training.get("view")), training.get("seeds") or {}
            is_same = convention in view.conventions and task not in view.find_other_tasks(convention)
            if is_same and cells[task].value is not None:
                deviation, numbers = seeds.get("standard_deviation"), _list_training_seeds(training)
                cells[task] = add_seed_deviation(cells[task], deviation, numbers)
        cells = {task: cells[task] for task in tasks} | {
            "mean": build_mean_cell(scores, row),
            "source": link("measured here", f"/models/{entry.model_slug}",
                           kind=f"measured {format_entry_kinds(entry)}".strip()),
            "convention": Cell(text=view.name(view.chosen), value=view.chosen),
            "setting": build_treatment_cell(entry),
            "seeds": Cell(text=" or ".join(map(str, counts)), value=max(counts, default=None)),
        }  # fmt: skip
        yield _build_glue_line(roots[entry.id], "measured", cells, last=False)


def _list_training_seeds(training: Mapping[str, Any]) -> list[int]:
    """The seeds behind a task's score; none where the training names no seeds."""
    return list((training.get("seeds") or {}).get("seeds") or ())


def _build_glue_fields(view: _GlueView) -> list[Field[_Line]]:
    tasks = []
    for task, parts in view.tasks.items():
        texts = [" ".join([metric, *split.split("_")[1:]]) for split, metric in parts]
        note = f"{texts[0].capitalize()}." if len(texts) == 1 else f"The mean of {' and '.join(texts)}."
        tasks.append(_build_field(task, task, note))
    return [
        _build_field("name", "Backbone"),
        _build_field("parameters", "Size", "Parameters, with embeddings."),
        _build_field("source", "From", "The table that prints a row, or the model that was measured."),
        _build_field("mean", "Mean", "Over the tasks, of rows by the chosen convention."),
        *tasks,
        _build_field("printed", "Mean as printed", "The paper's own average."),
        _build_field("convention", "Convention", "Whose way from a task's metrics to its number."),
        _build_field("setting", "Setting", "Of a paper's row as printed, of a measured one the recipe's."),
        _build_field("seeds", "Seeds", "Of a measured row; ± is the standard deviation."),
    ]
