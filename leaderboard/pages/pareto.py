"""The form of the trade-off page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from harness.scores import delta_text, score_text
from leaderboard.data.papers import Paper
from leaderboard.data.queries import Queries
from leaderboard.data.scores import SuiteScores, UntouchedMeans
from leaderboard.data.suites import views
from leaderboard.pages._costs import (
    MEASURES,
    Cloud,
    Dot,
    Measure,
    Place,
    PrintedPoint,
    Target,
    Works,
    cloud,
    printed_points,
    rows_shown,
    target,
    targets,
    works,
)
from leaderboard.pages._suite_table import untouched_note
from leaderboard.web.charts import Axis, Chart, Kind, chart
from leaderboard.web.filters import Control, EntryState, Form, chips, controls, form
from leaderboard.web.page import Page, PageRoute, missing
from leaderboard.web.parameters import Paging, Text, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


SCALES = (("", "as usual"), ("log", "logarithmic"), ("linear", "linear"))
EACH = (("model", "each model"), ("entry", "each revision and treatment"))


def own_controls(
    queries: Queries,
    grid: SuiteScores,
    state: ParetoState,
    scores: Mapping[str, str],
    devices: Sequence[str],
    device: str,
) -> list[Control]:
    """What stands before the filters: the axes; `scores` are those that can be asked for."""
    found = [
        _select("suite", "Suite", state.suite, _suites(queries, state)),
        _select("y", "Score", state.y, [(key, _first(name)) for key, name in scores.items()]),
        _select("x", "Against", state.x, _measures(grid)),
    ]
    if state.x == "cost":
        found.append(
            Control(kind="number", name="price", label="USD an hour", value=state.price, least=0, step="any")
        )
    if len(devices) > 1:
        found.append(_select("device", "Measured on", device, [(name, name) for name in devices]))
    names = views(grid.site_suite.suite)
    if len(names) > 1:
        found.append(
            _select(
                "view", "Numbers", grid.convention, [(name, f"as {name} prints") for name in names], more=True
            )
        )
    return [
        *found,
        Control(
            kind="check", name="part", label="Incomplete means too", checked=state.part,
            note="Means over some of the columns, hollow and never on the frontier.",
        ),
        _select("each", "A point for", state.each, EACH, more=True),
        *([] if state.x == "date" else [_select("scale", "Axis", state.scale, SCALES, more=True)]),
    ]  # fmt: skip


def _first(name: str) -> str:
    return f"{name[0].upper()}{name[1:]}"


def _suites(queries: Queries, state: ParetoState) -> list[tuple[str, str]]:
    known = queries.entries_of_suites
    return [
        (slug, one.suite.title)
        for slug, one in queries.suites.items()
        if slug in known or one.main or slug == state.suite
    ]


def _measures(grid: SuiteScores) -> list[tuple[str, str]]:
    """What a score can be set against; where no entry has it, the choice says so and the page why."""
    measured = any(entry.origin == "measured" for entry in grid.entries)
    found: list[tuple[str, str]] = []
    for key, one in MEASURES.items():
        known = measured if one.of is None else any(one.of(entry) for entry in grid.entries)
        found.append((key, one.name if known or key == "flops" else f"{one.name} (not known)"))
    return found


def _select(
    name: str, label: str, value: str, options: Sequence[tuple[str, str]], *, more: bool = False
) -> Control:
    return Control(kind="select", name=name, label=label, value=value, options=options, more=more)


def frontier_table(found: Cloud, measure: Measure, axis: Axis, score: Target) -> Table:
    """What nothing else beats on both axes, and what each step brings."""
    neighbours = [None, *found.best] if found.plot.better == "lower" else [*found.best[1:], None]
    rows = [
        Row(cells=[*_cells(dot, measure), _gain(dot, last)], key=dot.entry.slug)
        for dot, last in zip(found.best, neighbours, strict=False)
    ]
    return Table(
        name="frontier",
        caption="The frontier: nothing beats these on both axes",
        columns=[
            *_columns(axis, score, whole=True),
            Column(key="step", label="Gain", numeric=True, note=GAIN),
        ],
        rows=rows,
    )


def points_table(found: Cloud, shown: Sequence[Dot], measure: Measure, axis: Axis, score: Target) -> Table:
    """Some of the points, the best score first."""
    return Table(
        name="points",
        caption="All points, the best score first, incomplete ones last",
        columns=[*_columns(axis, score), Column(key="beaten", label="Beaten by", note=BEATEN)],
        rows=[
            Row(
                cells=[*_cells(dot, measure), *_there(dot, score), _beaten(found, dot)],
                key=dot.entry.slug,
                kind="" if dot.whole else "part",
            )
            for dot in shown
        ],
    )


GAIN = "How much higher its score is than that of its neighbour on the frontier which is better across."
BEATEN = "The best point of the frontier that is at least as good on both axes."


def _columns(axis: Axis, score: Target, *, whole: bool = False) -> list[Column]:
    return [
        Column(key="model", label="Model", sticky=True),
        Column(key="origin", label="Origin"),
        Column(key="x", label=axis.label, numeric=True),
        Column(key="score", label=f"{score.label[0].upper()}{score.label[1:]}", numeric=True),
        *([Column(key="there", label="Columns", numeric=True)] if score.wanted > 1 and not whole else []),
    ]


def _cells(dot: Dot, measure: Measure) -> list[Cell]:
    entry = dot.entry
    x = dot.x.isoformat() if isinstance(dot.x, date) else dot.x
    return [
        Cell(text=entry.model, value=entry.model, href=dot.href, note=entry.treatment),
        Cell(text=entry.origin, value=entry.origin, kind=entry.origin),
        Cell(text=measure.text(dot.x), value=x),
        Cell(text=_score(dot), value=dot.score, kind=_kind(dot), note=dot.note),
    ]


def _kind(dot: Dot) -> str:
    kinds = (("part", not dot.whole), ("selected", dot.selected))
    return " ".join(kind for kind, there in kinds if there)


def _there(dot: Dot, score: Target) -> list[Cell]:
    """How much of a mean is there."""
    return [Cell(text=f"{dot.there}/{score.wanted}", value=dot.there)] if score.wanted > 1 else []


def _score(dot: Dot) -> str:
    if dot.low != dot.low:
        return score_text(dot.score)
    return f"{score_text(dot.score)} ± {50 * (dot.high - dot.low):.2f}"


def _gain(dot: Dot, last: Dot | None) -> Cell:
    if last is None:
        return EMPTY
    return Cell(text=delta_text(dot.score - last.score), value=dot.score - last.score)


def _beaten(found: Cloud, dot: Dot) -> Cell:
    if dot in found.best:
        return Cell(text="on the frontier", value=None)
    better = found.beaten_by(dot)
    if better is None:
        return EMPTY
    gap = better.score - dot.score
    return Cell(text=f"{better.entry.model} ({delta_text(gap)})", value=better.entry.model, href=better.href)


LINEAR = ("dimension",)
"""Measures whose axis is linear unless asked for."""


@dataclass(frozen=True, kw_only=True)
class Across:
    """What stands across: values by row, points of papers, the axis, devices, why there is nothing."""

    values: Mapping[int, Place] = field(default_factory=dict)
    printed: Sequence[PrintedPoint] = ()
    axis: Axis
    devices: Sequence[str] = ()
    device: str = ""
    why: str = ""


def across_of(
    queries: Queries, grid: SuiteScores, state: ParetoState, measure: Measure, papers: Iterable[Paper]
) -> Across:
    """What stands across in a state."""
    kind = state.scale or ("linear" if state.x in LINEAR else "log")
    if state.x == "flops":
        printed = printed_points(papers, grid.site_suite.typed, state.y)
        why = "" if printed else measure.why
        return Across(printed=printed, axis=Axis(label=measure.label, kind=kind), why=why)
    if measure.of is None:
        return _worked(works(queries, grid), state, measure, kind)
    found = {row: value for row, entry in enumerate(grid.entries) if (value := measure.of(entry))}
    axis = Axis(label=measure.label, kind="date" if state.x == "date" else kind)
    return Across(values=found, axis=axis, why="" if found else measure.why)


def _worked(known: Works, state: ParetoState, measure: Measure, kind: Kind) -> Across:
    """Of speed and cost: only one device at a time can be compared."""
    devices = known.devices()
    device = state.device if state.device in devices else next(iter(devices), "")
    per = f" at ${state.price:g} an hour" if state.x == "cost" and state.price else ""
    axis = Axis(label=f"{measure.label}{per}, on {device}" if device else measure.label, kind=kind)
    found: Mapping[int, float] = {}
    why = measure.why
    if state.x == "throughput":
        found = known.throughput(device)
    elif state.price:
        found = known.cost(device, state.price)
    elif devices:
        why = "Give the price of an hour of the machine: a cost is that times the hours that were measured."
    return Across(values=found, axis=axis, devices=devices, device=device, why="" if found else why)


PATH = "/pareto"


@dataclass(frozen=True, kw_only=True)
class ParetoPage:
    """What the template takes.

    Attributes:
        cloud: The points.
        tables: The frontier, and all points.
        lead: What is there, in a sentence.
        warnings: What must be read with it.
        empty: Why there is nothing to draw; empty if there is.
        left_out: What is not shown, in sentences.
        chart: The points and their frontier; None where there are none.
        form: The form above it, with the filters in force.
        paging: Where in the points the second table is.
        data: For the JSON twin.
    """

    cloud: Cloud
    tables: Sequence[Table]
    lead: str
    warnings: Sequence[str]
    empty: str
    left_out: Sequence[str]
    chart: Chart | None
    form: Form
    paging: Paging
    data: Mapping[str, Any] = field(default_factory=dict)


def pareto_page(
    queries: Queries, grid: SuiteScores, state: ParetoState, papers: Iterable[Paper]
) -> ParetoPage:
    """The page of a grid in a state.

    Raises:
        NotFound: The state names a score that is none.
    """
    untouched = grid.untouched(rows_shown(grid, state))
    if untouched is None and state.y == "untouched":
        state = state.changed(y="tasks")
    measure, score = MEASURES[state.x], target(grid, state.y, untouched)
    across = across_of(queries, grid, state, measure, papers)
    found = cloud(grid, state, score, across.values, across.printed, across.axis)
    where = paging(len(found.dots), state, PATH)
    shown = found.dots[max(where.first - 1, 0) : where.last]
    tables = [
        frontier_table(found, measure, across.axis, score),
        points_table(found, shown, measure, across.axis, score),
    ]
    return ParetoPage(
        cloud=found,
        tables=tables if found.dots else [],
        lead=_lead(found, grid, across),
        warnings=[*_warnings(found, state, across), *_selection_warnings(found, state, untouched)],
        empty=_empty(found, across),
        left_out=_left_out(found, measure),
        chart=chart("points", found.title, found.plot) if found.dots else None,
        form=form(
            state,
            PATH,
            [
                *own_controls(queries, grid, state, targets(grid, untouched), across.devices, across.device),
                *controls(state, grid.entries),
            ],
            chips=chips(state, PATH),
            reset=f"{PATH}?{_unfiltered(state)}",
        ),
        paging=where,
        data=_data(grid, state, found, across, score),
    )


def _unfiltered(state: ParetoState) -> str:
    own = set(type(state).model_fields) - {"suite", "x", "y", "price", "theme"}
    defaults = {n: type(state).model_fields[n].get_default(call_default_factory=True) for n in own}
    return state.query(**defaults)


def _lead(found: Cloud, grid: SuiteScores, across: Across) -> str:
    whole = sum(dot.whole for dot in found.dots)
    what = f"{'point' if across.printed else 'model'}{'' if whole == 1 else 's'}"
    if not found.dots:
        return f"{grid.site_suite.suite.title}: nothing to draw."
    return f"{grid.site_suite.suite.title}: {whole} {what}, {len(found.best)} on the frontier."


def _warnings(found: Cloud, state: ParetoState, across: Across) -> list[str]:
    recipes = {dot.entry.recipe for dot in found.dots if dot.entry.recipe}
    settings = {dot.entry.treatment.partition(";")[0] for dot in found.dots if dot.entry.origin == "reported"}
    notes = []
    if len(recipes) > 1:
        notes.append(
            f"These models were fine-tuned by {len(recipes)} recipes: a difference may be the recipe's. "
            "Choose one under More filters."
        )
    if settings:
        notes.append(
            "Points printed in papers were not measured here: score and training compute are as printed, "
            "means are made again from the printed numbers."
        )
    if len(settings) > 1:
        notes.append(f"They were fine-tuned in {len(settings)} ways: {'; '.join(sorted(settings))}.")
    if len(across.devices) > 1:
        rest = ", ".join(device for device in across.devices if device != across.device)
        notes.append(f"Only what ran on {across.device} is shown; other records ran on {rest}.")
    if state.device and state.device != across.device:
        notes.append(f"Nothing was measured on {state.device}.")
    return notes


def _selection_warnings(found: Cloud, state: ParetoState, untouched: UntouchedMeans | None) -> list[str]:
    """What is to be known where scores chose some of the models."""
    chosen = sum(dot.selected for dot in found.dots)
    if state.y == "untouched" and untouched is not None:
        return [untouched_note(untouched)]
    if not chosen:
        return []
    what = "a model was" if chosen == 1 else f"{chosen} models were"
    other = f" The mean over the {untouched.part.count} untouched tasks is free of that." if untouched else ""
    return [f"In this score, {what} chosen by scores that it is made of, which err upward.{other}"]


def _empty(found: Cloud, across: Across) -> str:
    if found.dots:
        return ""
    return across.why or "No model that passes these filters has both values."


def _left_out(found: Cloud, measure: Measure) -> list[str]:
    notes = []
    if found.without:
        notes.append(f"Left out, as nobody says their {measure.name}: {found.without} with this score.")
    if found.part:
        notes.append(f"Left out, as they have a part of the columns only: {found.part}.")
    return notes


def _data(
    grid: SuiteScores, state: ParetoState, found: Cloud, across: Across, score: Target
) -> dict[str, Any]:
    return {
        "suite": grid.site_suite.suite.name,
        "x": {"key": state.x, "label": across.axis.label, "scale": across.axis.kind},
        "y": {"key": state.y, "label": score.label},
        "view": grid.convention or None,
        "device": across.device or None,
        "price": state.price,
        "points": len(found.dots),
        "frontier": [_plain(dot) for dot in found.best],
        "left_out": list(_left_out(found, MEASURES[state.x])),
        "why_empty": _empty(found, across) or None,
    }


def _plain(dot: Dot) -> dict[str, Any]:
    x = dot.x.isoformat() if isinstance(dot.x, date) else dot.x
    return {"model": dot.entry.model, "origin": dot.entry.origin, "x": x, "score": dot.score}


def _nothing(value: Any) -> Any:
    """A field of a form that was left empty."""
    return None if value == "" else value


Price = Annotated[
    Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None, BeforeValidator(_nothing)
]


class ParetoState(EntryState):
    """What the page of trade-offs can be asked."""

    suite: Text = Field("mteb", description="The suite that the scores are of.")
    x: Literal["parameters", "dimension", "tokens", "date", "flops", "throughput", "cost"] = Field(
        "parameters", description="What stands across."
    )
    y: Text = Field(
        "tasks",
        description="What stands upwards: tasks or types (means), untouched (the mean over tasks that "
        "chose no model shown), type:NAME, or task:NAME.",
    )
    part: bool = Field(
        False, description="Also means over some of the columns: hollow, never on the frontier."
    )
    price: Price = Field(None, description="US dollars for an hour of the machine, for x=cost.")
    device: Text = Field("", description="Only what ran on this device, for x=throughput and x=cost.")
    scale: Literal["", "log", "linear"] = Field(
        "", description="The axis of x; else logarithmic, but for dates and dimensions."
    )
    each: Literal["model", "entry"] = Field(
        "model", description="One point for each model, or for each revision and treatment."
    )
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows of the table of points.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of those rows.")


def view(site: Site, state: ParetoState) -> Page:
    """The page of trade-offs."""
    queries = site.queries
    if state.suite not in queries.suites:
        raise missing("suite", state.suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[state.suite]
    known = views(listed.suite)
    if state.view and state.view not in known:
        raise missing("view", state.view, known, then="The suite's page offers those there are.")
    grid = queries.suite_scores(listed, state.view or known[0], pinned=True)
    found = pareto_page(queries, grid, state, site.papers.values())
    return Page(
        title="Trade-offs",
        template="pareto.html",
        lead=found.lead,
        tables=found.tables,
        data=found.data,
        context=found,
        notes=found.warnings,
        charts=[found.chart] if found.chart else [],
    )


PAGE = PageRoute(
    path="/pareto",
    state=ParetoState,
    view=view,
    summary="Scores against size, dimension, length, date, compute, speed or cost, with the frontier.",
    all_paths=lambda site: ["/pareto"],
)

PAGES = (PAGE,)
