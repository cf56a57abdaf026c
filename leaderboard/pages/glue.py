"""GLUE in one table: every line that papers print, and what was measured, by one convention at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from pydantic import Field as Parameter

from leaderboard.data.backbones import Backbone, GlueLine, collect_glue_lines
from leaderboard.data.paper_lines import format_anchor, format_table_title
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
from leaderboard.views.suite_table import (
    build_mean_cell,
    build_task_cell,
    build_treatment_cell,
    format_entry_kinds,
)
from leaderboard.web.charts import Chart, Point, build_size_chart
from leaderboard.web.formats import add_seed_deviation, parse_cell_value
from leaderboard.web.page import Page
from leaderboard.web.page_state import Text
from leaderboard.web.routes import PRINTED, serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, link

PATH = "/glue"
TEXTS = ("name", "source", "convention", "setting")
"""Columns of texts."""

LONG = 26
"""Characters of a setting, at most."""


class _GlueState(BackboneState):
    """The parameters of the table of GLUE."""

    sort: Text = Parameter("-mean", description="A column's key; with - in front the highest first.")


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row of the table, its cells by column; `own` says that they are by the chosen convention."""

    backbone: Backbone
    origin: str
    own: bool
    cells: Mapping[str, Cell]


@serve_page(
    PATH,
    "GLUE over all papers and what was measured, compared by one paper's convention at a time.",
    formats=PRINTED,
)
def _show_glue(site: Site, state: _GlueState) -> Page:
    convention = GlueView.resolve_convention(state, site.papers)
    every = [*_iter_measured_lines(site, convention), *_iter_printed_lines(site, convention)]
    fields = _build_glue_fields(convention)
    lines = sort_rows(
        [one for one in every if state.should_keep(one.backbone, one.origin)], fields, state.sort
    )
    # Stable: within both groups the order that the reader chose stays.
    lines.sort(key=lambda line: not line.own)
    name, measured = convention.name(convention.chosen), sum(one.origin == "measured" for one in every)
    groups = {True: f"By {name}'s convention", False: "By another convention, or not stated"}
    table = fill_table(
        GLUE, f"GLUE, scores × 100, compared by {name}'s convention", fields, lines, state=state,
        kind=lambda line: "part" if "part" in line.cells.get("mean", EMPTY).kind else "",
        group=lambda line: groups[line.own], cards=True,
    )  # fmt: skip
    return Page(
        title="GLUE",
        lead=f"{len(every) - measured} rows of fine-tuned encoders that papers print"
        f"{f', and {measured} measured by this harness' if measured else ''}, on the development sets of "
        "eight tasks.",
        crumbs=[("Boards", "/suites")],
        tables=[table],
        charts=[_plot_glue(lines, name)],
        data={"view": convention.chosen},
        context={
            "conventions": convention.list_convention_tabs(PATH, state),
            "says": convention.known[convention.chosen].says,
            "form": build_backbone_form(state, PATH, (one.backbone.parameters for one in every)),
        },
    )


def _iter_printed_lines(site: Site, convention: GlueView) -> Iterator[_Line]:
    """The lines that papers print."""
    for line in collect_glue_lines(site.papers):
        if line.backbone:
            differing = convention.find_other_tasks(line.convention)
            cells = build_backbone_cells(line.backbone) | _build_printed_cells(line, convention, differing)
            yield _Line(backbone=line.backbone, origin="reported", own=not differing, cells=cells)


def _build_printed_cells(line: GlueLine, convention: GlueView, differing: Collection[str]) -> dict[str, Cell]:
    why = convention.explain_difference(line.convention)
    cells = {task: build_plain_cell(row) for task, row in line.tasks.items()}
    if line.average:
        cells["printed"] = build_plain_cell(line.average)
    apart = {*differing, *(["printed"] if differing else [])}
    cells = {key: cell.mark("apart", why) if key in apart else cell for key, cell in cells.items()}
    if not differing:
        cells["mean"] = _mean_of(line, len(convention.tasks))
    paper = f"{convention.name(line.paper)}, {format_table_title(line.table)}"
    href = f"/papers/{line.paper}#table-{format_anchor(line.table)}"
    joined = "; ".join(dict.fromkeys(filter(None, [line.setting, line.source])))
    setting = line.setting if line.source in line.setting else joined
    short = setting if len(setting) <= LONG else f"{setting[: LONG - 1]}…"
    return {
        **cells,
        "source": link(paper, href, kind="reported", note=f"printed as {line.name}"),
        "convention": Cell(text=convention.name(line.convention), value=line.convention or None),
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


def _iter_measured_lines(site: Site, convention: GlueView) -> Iterator[_Line]:
    """What was measured, by the chosen convention."""
    queries = site.queries
    if GLUE not in queries.suites:
        return
    scores = queries.load_suite_scores(queries.suites[GLUE], convention.chosen)
    rows = {row: entry for row, entry in enumerate(scores.entries) if entry.origin != "reported"}
    roots, tasks = resolve_backbones(rows.values(), queries.models), list(convention.tasks)
    trainings = {
        (entry, record["task"]["name"]): record.get("training") or {}
        for entry, record in queries.load_entry_records([entry.id for entry in rows.values()], tasks)
    }
    name = convention.name(convention.chosen)
    for row, entry in rows.items():
        task_trainings = {task: trainings.get((entry.id, task), {}) for task in tasks}
        counts = sorted({len(_list_training_seeds(training)) for training in task_trainings.values()} - {0})
        columns = enumerate(scores.site_suite.suite.columns)
        cells = {one.name: build_task_cell(scores, row, at, queries.entries) for at, one in columns}
        more = {
            "mean": build_mean_cell(scores, row),
            "source": link("measured here", f"/models/{entry.model_slug}",
                           kind=f"measured {format_entry_kinds(entry)}".strip()),
            "convention": Cell(text=name, value=convention.chosen), "setting": build_treatment_cell(entry),
            "seeds": Cell(text=" or ".join(map(str, counts)), value=max(counts, default=None)),
        }  # fmt: skip
        for task, training in task_trainings.items():
            # Of the chosen convention alone.
            view, seeds = str(training.get("view")), training.get("seeds") or {}
            is_same = view in convention.known and task not in convention.find_other_tasks(view)
            if is_same and cells[task].value is not None:
                deviation, numbers = seeds.get("standard_deviation"), _list_training_seeds(training)
                cells[task] = add_seed_deviation(cells[task], deviation, numbers)
        every = build_backbone_cells(roots[entry.id]) | {task: cells[task] for task in tasks} | more
        yield _Line(backbone=roots[entry.id], origin="measured", own=True, cells=every)


def _list_training_seeds(training: Mapping[str, Any]) -> list[int]:
    """The seeds behind a task's score; none where the training names no seeds."""
    return list((training.get("seeds") or {}).get("seeds") or ())


def _build_glue_fields(convention: GlueView) -> list[Field[_Line]]:

    def find_cell(key: str) -> Callable[[_Line], Cell]:
        return lambda line: line.cells.get(key, EMPTY)

    tasks = {}
    for task, parts in convention.tasks.items():
        texts = [" ".join([metric, *split.split("_")[1:]]) for split, metric in parts]
        is_single = len(texts) == 1
        note = f"{texts[0].capitalize()}." if is_single else f"The mean of {' and '.join(texts)}."
        tasks[task] = task, note
    heads = {
        "name": ("Backbone", ""),
        "parameters": ("Size", "Parameters, with embeddings."),
        "source": ("From", "The table that prints a row, or the model that was measured."),
        "mean": ("Mean", "Over the tasks, of rows by the chosen convention."),
        **tasks,
        "printed": ("Mean as printed", "The paper's own average."),
        "convention": ("Convention", "Whose way from a task's metrics to its number."),
        "setting": ("Setting", "Of a paper's row as printed, of a measured one the recipe's."),
        "seeds": ("Seeds", "Of a measured row; ± is the standard deviation."),
    }
    return [
        Field(key, label, find_cell(key), partial(_find_sort_value, key=key),
              numeric=key not in TEXTS, up=key in TEXTS, note=note, sticky=key == "name", card=label)
        for key, (label, note) in heads.items()
    ]  # fmt: skip


def _find_sort_value(line: _Line, key: str) -> Any:
    """What sorts a row: a text, or a number as printed; of another convention its paper's average."""
    cell = line.cells.get("printed" if key == "mean" and not line.own else key, EMPTY)
    if key in TEXTS:
        return cell.text.casefold()
    return None if cell.kind == "part" else parse_cell_value(cell)


def _plot_glue(lines: Sequence[_Line], name: str) -> Chart:
    """The mean against the size; hollow where it is by another convention."""
    points = [
        Point(
            label=line.backbone.name, x=line.backbone.parameters, y=_find_sort_value(line, "mean"),
            series=line.origin, hollow=not line.own, href=f"/models/{line.backbone.slug}",
            note=f"{line.cells['source'].text}, convention: {line.cells['convention'].text}",
        )
        for line in lines
    ]  # fmt: skip
    title = f"GLUE against size; hollow: not by {name}'s convention"
    return build_size_chart(title, "Mean over 8 tasks", points)
