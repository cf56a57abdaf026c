"""GLUE in one table: every line that papers print, and what was measured, by one convention at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from pydantic import Field as Parameter

from leaderboard.data.backbones import GlueLine, glue_lines
from leaderboard.data.papers import key_of, title
from leaderboard.pages._backbones import (
    GLUE,
    BackboneState,
    Encoder,
    GlueView,
    apart,
    encoders_of,
    filters,
    measured_mean,
    plain_cell,
)  # fmt: skip
from leaderboard.pages._sorting import Field, in_order, row_of
from leaderboard.pages._suite_table import how_cell, task_cell
from leaderboard.web.charts import Axis, Chart, Point, Scatter, chart
from leaderboard.web.filters import Form
from leaderboard.web.formats import over_seeds, printed_value
from leaderboard.web.page import Crumb, Page, PageRoute
from leaderboard.web.parameters import Text
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Row, Table

PATH = "/glue"


class GlueState(BackboneState):
    """The parameters of the table of GLUE."""

    sort: Text = Parameter("-mean", description="A column's key; with - in front the highest first.")


@dataclass(frozen=True, kw_only=True)
class GluePage:
    """The parts of the page beside its table: conventions (label, URL, current), the chosen one, filters."""

    conventions: Sequence[tuple[str, str, bool]]
    says: str
    form: Form


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row of the table; `own` says that its numbers are by the chosen convention."""

    encoder: Encoder
    origin: str
    source: Cell
    setting: Cell
    convention: Cell
    tasks: Mapping[str, Cell]
    mean: Cell
    printed: Cell
    seeds: Cell
    own: bool


def view(site: Site, state: GlueState) -> Page:
    """The table of GLUE."""
    convention = GlueView.of(state, site.papers)
    every = [*_measured(site, convention), *_printed(site, convention)]
    fields = _fields(convention)
    lines = in_order([one for one in every if one.encoder.passes(state, one.origin)], fields, state.sort)
    name, measured = convention.name(convention.chosen), sum(one.origin == "measured" for one in every)
    return Page(
        title="GLUE",
        template="glue.html",
        lead=f"{len(every) - measured} rows of fine-tuned encoders that papers print"
        f"{f', and {measured} measured by this harness' if measured else ''}, on the development sets of "
        "eight tasks.",
        crumbs=[Crumb(label="Boards", href="/suites")],
        tables=[
            Table(
                name=GLUE, caption=f"GLUE, scores × 100, compared by {name}'s convention",
                columns=[field.head(state, PATH) for field in fields],
                rows=list(_rows(lines, fields, name)),
            )
        ],
        charts=[_chart(lines, name)],
        data={"view": convention.chosen},
        context=GluePage(
            conventions=convention.tabs(PATH, state),
            says=convention.known[convention.chosen].says,
            form=filters(state, PATH, (one.encoder.parameters for one in every)),
        ),
    )  # fmt: skip


def _printed(site: Site, convention: GlueView) -> Iterator[_Line]:
    """The lines that papers print."""
    for line in glue_lines(site.papers):
        if line.backbone:
            yield _printed_line(line, Encoder.of(line.backbone), convention)


def _printed_line(line: GlueLine, encoder: Encoder, convention: GlueView) -> _Line:
    differing, name = convention.differing(line.convention), convention.name(line.convention)
    why = convention.reason(line.convention)
    tasks = {task: plain_cell(row) for task, row in line.tasks.items()}
    average = plain_cell(line.average) if line.average else EMPTY
    numbers = [row.number for row in line.tasks.values() if row.number is not None]
    mean = EMPTY
    if not differing and len(numbers) == len(convention.known[convention.chosen].parts):
        mean = Cell(text=f"{fmean(numbers):.2f}", value=fmean(numbers), note="of the printed numbers")
    elif not differing and not tasks:
        mean = Cell(text=average.text, value=average.value, note="as printed: its tasks are not")
    text = "; ".join(filter(None, [line.setting, line.source if line.source not in line.setting else ""]))
    paper = f"{convention.name(line.paper)}, {title(line.table)}"
    href = f"/papers/{line.paper}#table-{key_of(line.table)}"
    return _Line(
        encoder=encoder,
        origin="reported",
        source=Cell(text=paper, value=paper, href=href, kind="reported", note=f"printed as {line.name}"),
        setting=_short(text),
        convention=Cell(text=name, value=line.convention or None),
        tasks={task: apart(cell, why) if task in differing else cell for task, cell in tasks.items()},
        mean=mean,
        printed=apart(average, why) if differing and line.average else average,
        seeds=EMPTY,
        own=not differing,
    )


def _short(text: str, most: int = 36) -> Cell:
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return Cell(text=short, value=text or None, note=text if short != text else "")


def _measured(site: Site, convention: GlueView) -> Iterator[_Line]:
    """What was measured, by the chosen convention."""
    queries = site.queries
    if GLUE not in queries.suites:
        return
    scores = queries.suite_scores(queries.suites[GLUE], convention.chosen)
    rows = {row: entry for row, entry in enumerate(scores.entries) if entry.origin != "reported"}
    encoders = encoders_of(rows.values(), queries.models)
    names = [column.name for column in scores.site_suite.suite.columns]
    trainings = {
        (entry, record["task"]["name"]): record.get("training") or {}
        for entry, record in queries.records([entry.id for entry in rows.values()], names)
    }
    for row, entry in rows.items():
        own = {name: trainings.get((entry.id, name), {}) for name in names}
        cells = {name: task_cell(scores, row, at, queries.entries) for at, name in enumerate(names)}
        counts = sorted({len(_seeds(training)) for training in own.values()} - {0})
        yield _Line(
            encoder=encoders[entry.id],
            origin="measured",
            source=Cell(
                text="measured here", value="measured here", href=f"/models/{entry.model_slug}",
                kind="measured",
            ),
            setting=how_cell(entry),
            convention=Cell(text=convention.name(convention.chosen), value=convention.chosen),
            tasks={name: _with_seeds(cell, own[name], name, convention) for name, cell in cells.items()},
            mean=measured_mean(scores, row),
            printed=EMPTY,
            seeds=Cell(text=" or ".join(map(str, counts)), value=max(counts, default=None)),
            own=True,
        )  # fmt: skip


def _seeds(training: Mapping[str, Any]) -> list[int]:
    """The seeds behind a task's score; none where the training names no seeds."""
    return list((training.get("seeds") or {}).get("seeds") or ())


def _with_seeds(cell: Cell, training: Mapping[str, Any], task: str, convention: GlueView) -> Cell:
    """A task's score with its deviation over seeds, where that is of the chosen convention."""
    known = training.get("view") in convention.known and task not in convention.differing(training["view"])
    deviation = (training.get("seeds") or {}).get("standard_deviation")
    return over_seeds(cell, deviation, _seeds(training)) if known and cell.value is not None else cell


def _fields(convention: GlueView) -> list[Field[_Line]]:
    def number(key: str, label: str, cell: Callable[[_Line], Cell], note: str) -> Field[_Line]:
        sort = partial(_number_of, cell=_mean if key == "mean" else cell)
        return Field(key=key, label=label, numeric=True, note=note, cell=cell, sort=sort)

    parts = convention.known[convention.chosen].parts
    return [
        Field(key="name", label="Backbone", sticky=True, up=True, cell=lambda one: one.encoder.cells[0],
              sort=lambda one: one.encoder.name.casefold()),
        number("parameters", "Size", lambda one: one.encoder.cells[1], "Parameters."),
        Field(key="source", label="From", cell=lambda one: one.source, sort=lambda one: one.source.text),
        number("mean", "Mean", lambda one: one.mean, "Over the tasks, of rows by the chosen convention."),
        *(number(task, task, partial(_task, name=task), _metrics(parts[task])) for task in parts),
        number("printed", "Mean as printed", lambda one: one.printed, "The paper's own average."),
        Field(key="convention", label="Convention", cell=lambda one: one.convention,
              sort=lambda one: one.convention.text, note="Whose way from a task's metrics to its number."),
        Field(key="setting", label="Setting", cell=lambda one: one.setting, sort=lambda one: one.setting.text,
              note="Of a paper's row as printed, of a measured one the recipe's."),
        number("seeds", "Seeds", lambda one: one.seeds, "Of a measured row; ± is the standard deviation."),
    ]  # fmt: skip


def _mean(line: _Line) -> Cell:
    """The mean of a row, of one by another convention that of its paper."""
    return line.mean if line.own else line.printed


def _task(line: _Line, name: str) -> Cell:
    return line.tasks.get(name, EMPTY)


def _metrics(parts: Sequence[tuple[str, str]]) -> str:
    """What a task's number is the mean of, in words."""
    texts = [
        f"{metric}, {split.removeprefix('validation_')}" if "_" in split else metric
        for split, metric in parts
    ]
    return f"The mean of {' and '.join(texts)}." if len(texts) > 1 else f"{texts[0].capitalize()}."


def _number_of(line: _Line, cell: Callable[[_Line], Cell]) -> float | None:
    """The number in a cell as printed; None where it is none, or a mean of some tasks."""
    found = cell(line)
    value = printed_value(found)
    return value if isinstance(value, int | float) and found.kind != "part" else None


def _rows(lines: Sequence[_Line], fields: Sequence[Field[_Line]], name: str) -> Iterator[Row]:
    """The rows by the chosen convention, and those that are not to be compared with them."""
    for own, text in ((True, f"By {name}'s convention"), (False, "By another convention, or not stated")):
        some = [line for line in lines if line.own == own]
        if some:
            yield Row(kind="group", cells=[Cell(text=text), *[EMPTY] * (len(fields) - 1)])
            yield from (
                row_of(line, fields, kind="part" if line.mean.kind == "part" else "") for line in some
            )


def _chart(lines: Sequence[_Line], name: str) -> Chart:
    """The mean against the size; hollow where it is by another convention."""
    points = [
        Point(
            label=line.encoder.name, x=line.encoder.parameters,
            y=_number_of(line, _mean),
            series=line.origin, emphasised=line.origin == "measured", hollow=not line.own,
            href=f"/models/{line.encoder.slug}",
            note=f"{line.source.text}, {line.convention.text}'s convention",
        )
        for line in lines
    ]  # fmt: skip
    plot = Scatter(x=Axis(label="Parameters", kind="log"), y=Axis(label="Mean over 8 tasks"), points=points)
    return chart("size", f"GLUE against size; hollow: not by {name}'s convention", plot)


PAGES = (
    PageRoute(
        path=PATH,
        state=GlueState,
        view=view,
        summary="GLUE over all papers and what was measured, compared by one paper's convention at a time.",
        all_paths=lambda site: [PATH],
        formats=("json", "csv", "md", "tex"),
    ),
)
