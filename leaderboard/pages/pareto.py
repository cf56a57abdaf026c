"""Trade-offs: scores against size, speed or cost, with the frontier."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.core.groups import group_by
from harness.core.types import is_number
from harness.results.reported import TYPES, Paper, normalize_metric
from harness.results.scores import format_delta, score_text
from leaderboard.data.backbones import find_backbone, find_printed_parameters
from leaderboard.data.compute import (
    build_entry_compute,
    has_same_size,
    load_entry_compute,
    load_measured_figures,
)
from leaderboard.data.paper_lines import (
    OVER_TASKS,
    OVER_TYPES,
    SUITES,
    Line,
    format_anchor,
    group_printed_lines,
)
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.ranking import Floats, Means, select_mean_columns
from leaderboard.data.scores import SuiteScores, UntouchedMeans
from leaderboard.data.suites import list_conventions
from leaderboard.views import sorting
from leaderboard.views.cells import build_delta_cell, format_count, format_heading, format_task_count
from leaderboard.views.reproductions import join_models
from leaderboard.views.suite_table import describe_untouched
from leaderboard.web.charts import Axis, Better, Point, Scatter, build_chart, select_frontier_points
from leaderboard.web.filters import CHIPS, EACH, EMPTY_IS_NONE, EntryState
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import FilterForm, Options, Paging, Text, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.table_formats import format_parameters
from leaderboard.web.tables import EMPTY, Cell, Table, link

PATH = "/pareto"

SERIES = ("imported", "reported", "measured")
"""In the order of the chart's colours, which are those of the origins elsewhere."""

SCALES = (("", "default"), ("log", "logarithmic"), ("linear", "linear"))
PRINTED = (
    "Points printed in papers were not measured here: scores and training compute are as printed, by each "
    "paper's own convention, and means are recomputed from the printed numbers."
)
STATED = (
    "Training compute of other points is what users stated, or follows from stated tokens (C = F_N · D): "
    "none of it was measured."
)
NOTHING = "No model that passes these filters has both values."
WHOLE = "The frontier is that of all names: models of other names are shown where they are on it."
SHARED = (
    "No model of this name has all tasks: all are compared over the tasks that each of these has, and "
    "without the means that papers print."
)
GAIN = "How much higher its score is than that of its neighbour on the frontier which is better across."
NO_PRICE = (
    "No price is known: a cost is the hours that were measured times the price of an hour. Give the price of "
    "an hour of the machine as USD an hour."
)
NAMED = 3
"""Points that a reader named whose place is told, at most."""
BEATEN = "The best point of the frontier that is at least as good on both axes."


# What a score can be set against: facts of a model, its speed and its cost, and printed training compute


Place: TypeAlias = "float | date"

Key = Literal[
    "parameters", "without", "dimension", "tokens", "date", "operations", "flops", "throughput", "speed",
    "latency", "memory", "cost",
]  # fmt: skip


def _load_device_figures(
    queries: Queries, scores: SuiteScores, price: float | None
) -> dict[str, dict[int, float]]:
    """What the measured entries of a suite took by their records: a figure by device and row.

    Args:
        queries: The site's queries.
        scores: The suite.
        price: Dollars for an hour of a device, for what each row cost; None for its tokens per second.
    """
    rows = {entry.id: row for row, entry in enumerate(scores.entries) if entry.origin == "measured"}
    names = [task.name for task in scores.site_suite.suite.tasks]
    totals: dict[str, dict[int, defaultdict[str, float]]] = {}
    for entry, document in queries.load_entry_records(list(rows), names):
        # The schema of records makes it an object, so it needs no check.
        provenance = document.get("provenance", {})
        device, steps = provenance.get("device"), provenance.get("seconds")
        name = str(device.get("name") or device.get("kind")) if isinstance(device, dict) else "unknown device"
        total = totals.setdefault(name, {}).setdefault(rows[entry], defaultdict(float))
        seconds = {k: v for k, v in steps.items() if _is_amount(v)} if isinstance(steps, Mapping) else {}
        total["seconds"] += sum(seconds.values())
        # Of the encoding alone: other steps take no tokens.
        if _is_amount(tokens := provenance.get("tokens_encoded")) and seconds.get("encode"):
            total["tokens"] += tokens
            total["encoding"] += seconds["encode"]
    devices = Counter(row for some in totals.values() for row in some)
    figures = dict[str, dict[int, float]]()
    for device, some in totals.items():
        if price is None:
            figures[device] = {
                row: one["tokens"] / one["encoding"] for row, one in some.items() if one["tokens"]
            }
        else:
            # A price is for an hour of one machine: the cost of what ran on two is not known.
            priced = {
                row: one["seconds"] for row, one in some.items() if devices[row] == 1 and one["seconds"]
            }
            figures[device] = {row: price * seconds / 3600 for row, seconds in priced.items()}
    return figures


def _is_amount(value: Any) -> TypeGuard[float]:
    """Whether it is a number of something: a record of any origin may hold anything."""
    return is_number(value) and 0 <= value < math.inf


@dataclass(frozen=True, kw_only=True)
class _Measure:
    """Something to set a score against.

    `name` stands in a sentence, `label` on the axis with its unit. Of dates the earlier one is `better`, so
    the frontier is what led when. `why` is the reason where no entry has it, `text` a value as the table
    prints it, `of` takes it from an entry's own facts, `counted` names what it computes, `figure`
    what records of efficiency hold; all are left out for what other records took. `unit` is that of the axis.
    """

    name: str
    label: str
    better: Better
    why: str
    text: Callable[[Any], str]
    of: Callable[[Entry], Place | None] | None = None
    counted: Literal["", "without_embeddings", "operations", "pretraining"] = ""
    figure: str = ""
    unit: float = 1.0


def _parse_day(text: str | None) -> date | None:
    """A date, None where the text is none.

    >>> _parse_day("2024-05-06"), _parse_day("2024-05"), _parse_day(None)
    (datetime.date(2024, 5, 6), None, None)
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


_whole = "{:,.0f}".format
_CARD = "No model with a score here states {} on its card, and no record holds it.".format

NOTED = "`harness models note` makes it known for a model of your own."
_EFFICIENCY = "No model with a score here was measured by `harness run --suite efficiency`."

MEASURES: Mapping[Key, _Measure] = {
    "parameters": _Measure(
        name="parameter count", label="Parameters", better="lower", text=format_parameters,
        of=lambda entry: entry.parameters, why=_CARD("how many parameters it has"),
    ),
    "without": _Measure(
        name="non-embedding size", label="Parameters without embeddings", better="lower",
        text=format_parameters, counted="without_embeddings",
        why="No card states the embeddings of these models, and no note and no backbone tells their size. "
        f"{NOTED}",
    ),
    "dimension": _Measure(
        name="embedding dimension", label="Embedding dimension", better="lower", text=_whole,
        of=lambda entry: entry.dimension, why=_CARD("how long its vectors are"),
    ),
    "tokens": _Measure(
        name="longest input", label="Longest input, tokens", better="higher", text=_whole,
        of=lambda entry: entry.max_tokens, why=_CARD("how many tokens it takes"),
    ),
    "date": _Measure(
        name="release date", label="Release date", better="lower", text=str,
        of=lambda entry: _parse_day(entry.released), why=_CARD("when it was released"),
    ),
    "operations": _Measure(
        name="forward compute", label="Operations of a forward pass, 512 tokens, 10⁹",
        better="lower", text=lambda value: f"{value / 1e9:,.4g}", counted="operations", unit=1e9,
        why="The shapes of these models are not known: no backbone of the papers and no note tells them. "
        f"{NOTED}",
    ),
    "flops": _Measure(
        name="training compute", label="Training compute, 10¹⁸ FLOP", better="lower",
        text=lambda value: f"{value / 1e18:,.3g}", counted="pretraining", unit=1e18,
        why="The compute of pretraining is not known for these models, and no paper at hand prints it beside "
        f"this score. {NOTED}",
    ),
    "throughput": _Measure(
        name="tokens per second", label="Tokens per second", better="higher", text=_whole,
        why="Only records measured by this harness hold how fast a model encoded; no finished model was "
        "measured on this suite, or all its vectors were known from before.",
    ),
    "speed": _Measure(
        name="measured speed", label="Tokens per second", better="higher", text=_whole,
        figure="tokens_per_second", why=_EFFICIENCY,
    ),
    "latency": _Measure(
        name="latency", label="Latency of one sequence, ms, median", better="lower", unit=1e-3,
        text=lambda value: f"{1000 * value:,.3g}", figure="latency_p50", why=_EFFICIENCY,
    ),
    "memory": _Measure(
        name="peak memory", label="Peak memory, GB", better="lower", unit=1e9,
        text=lambda value: f"{value / 1e9:,.3g}", figure="peak_memory_bytes", why=_EFFICIENCY,
    ),
    "cost": _Measure(
        name="cost in dollars", label="Cost, USD", better="lower", text="${:,.4g}".format,
        why="Only records measured by this harness hold the seconds that a cost is made of; nothing was "
        "measured on this suite.",
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _CostPoint(Point):
    """One point of the chart: an entry, or a line of a paper's table, which is none of the site's entries.

    `amount` is its x in the measure's own unit, `score` a share of 1. `count` says over how many tasks it is
    (None for a printed one), and `selected` whether scores that it is made of selected the model.
    """

    entry: Entry
    amount: Place
    score: float
    count: int | None = None
    selected: bool = False

    @staticmethod
    def from_entry(entry: Entry, amount: Place, score: float, unit: float, **more: Any) -> _CostPoint:
        """A point of an entry; `unit` is that of the axis."""
        return _CostPoint(
            entry=entry, amount=amount, score=score, y=100 * score, label=entry.model, series=entry.origin,
            x=amount if isinstance(amount, date) else amount / unit, **more,
        )  # fmt: skip


_COMPUTE = re.compile(r"\bC=([\d.]+(?:e\d+)?)")
_TOKENS = re.compile(r"\btokens ([\d.]+ ?[KMBT])\b")
_SHORT = {full: short for short, full in TYPES.items()}


def _iter_printed_dots(papers: Iterable[Paper], suite: str, score: str, x: Key) -> Iterator[_CostPoint]:
    """The lines of papers that print a score of the suite that is typed so, where their x is known."""
    seen = set()
    for paper in papers:
        for table in paper.tables.values():
            for line in group_printed_lines(table.rows) if SUITES.get(table.rows[0].suite) == suite else ():
                amount, value = _find_line_amount(line, x), _find_line_score(line, score)
                # Papers print numbers of other papers again.
                place = (line.first.backbone or line.model, amount, value)
                if amount and value is not None and place not in seen:
                    seen.add(place)
                    yield _CostPoint.from_entry(
                        _build_line_entry(line, paper), amount,
                        value / (1 if line.first.unit == "fraction" else 100), MEASURES[x].unit,
                        href=f"/papers/{paper.slug}#table-{format_anchor(table.id)}",
                        note=f"{paper.name}: {line.first.setting}",
                    )  # fmt: skip


def _find_line_amount(line: Line, x: Key) -> float | None:
    first = line.first
    if x == "flops":
        compute = _COMPUTE.search(first.setting)
        return float(compute[1]) if compute else None
    # The paper that it is copied from has the line, too.
    if first.is_copy:
        return None
    parameters, kind = find_printed_parameters(first), MEASURES[x].counted
    compute_card = build_entry_compute(parameters, {}, find_backbone(first.backbone), None)
    return getattr(compute_card, kind) if kind else parameters


def _find_line_score(line: Line, score: str) -> float | None:
    kind, _, name = score.partition(":")
    if name:
        metric, cells = _SHORT.get(name) if kind == "type" else name, line.cells.items()
        rows = (row for column, row in cells if normalize_metric(row.suite, column) == metric)
        return next((row.number for row in rows if row.is_score), None)
    means, first = line.means, next(iter(line.means.values()), None)
    # Not to be had: a printed mean includes the tasks that selected the model.
    if score == "untouched":
        return None
    return means.get(OVER_TYPES) if score == "types" else means.get(OVER_TASKS, first)


def _build_line_entry(line: Line, paper: Paper) -> Entry:
    tokens = _TOKENS.search(line.first.setting)
    model, size = line.model
    name = model if size in model.casefold() else f"{model} {size}"
    name = f"{model} ({tokens[1]} tokens)" if tokens else name
    return Entry(
        id=0, slug="", model=name, model_slug="", origin="reported", source=paper.slug, trust="reported",
        treatment=line.first.setting, output="", parameters=find_printed_parameters(line.first),
        trained_on=None, newest=None, tasks=0,
    )  # fmt: skip


class _ParetoState(EntryState):
    """The parameters of the page of trade-offs."""

    suite: Text = Field("mteb", description="The suite that the scores are of.")
    x: Key = Field("parameters", description="What stands across.")
    y: Text = Field(
        "tasks",
        description="What stands upwards: tasks or types (means), untouched (the mean over tasks that "
        "selected no model shown), type:NAME, or task:NAME.",
    )
    part: bool = Field(False, description="Also means over some of the tasks: hollow, never on the frontier.")
    price: Annotated[Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None, EMPTY_IS_NONE] = (
        Field(None, description="US dollars for an hour of the machine, for x=cost.")
    )
    device: Text = Field("", description="Only what ran on this device, for x=throughput and x=cost.")
    scale: Literal["", "log", "linear"] = Field(
        "", description="The axis of x; else logarithmic, but for dates and dimensions."
    )
    each: Literal["model", "revision"] = Field(
        "model", description="One point for each model, or for each revision and treatment."
    )
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows of the table of points.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of those rows.")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Score:
    """A score of every entry, (entries,) each; `selected` says whether its tasks selected a model."""

    label: str
    means: Means
    low: Floats
    high: Floats
    selected: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class _Across:
    """What stands across: values by row, points of papers, the axis, devices, and why no value is known."""

    axis: Axis
    values: Mapping[int, Place] = field(default_factory=dict)
    printed: Sequence[_CostPoint] = ()
    devices: Sequence[str] = ()
    device: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Points:
    """The points of a name, the best score first, incomplete ones last; the frontier of all by x.

    Models are left out `without` an x, with a `part` of the tasks, and `placed` ones of these have an x.
    `every` are those of all names.
    """

    dots: Sequence[_CostPoint]
    best: Sequence[_CostPoint]
    plot: Scatter
    every: Sequence[_CostPoint]
    without: int
    part: int
    placed: int

    def list_rivals(self, dots: Sequence[_CostPoint], dot: _CostPoint) -> list[_CostPoint]:
        """Those of some points that are at least as good across as one of them."""
        compare: Callable[[Any, Any], bool] = operator.le if self.plot.better == "lower" else operator.ge
        return [one for one in dots if one is not dot and compare(one.amount, dot.amount)]

    def describe_place(self, dot: _CostPoint, measure: _Measure) -> str:
        """Where a point stands among those that are at least as good across, in a sentence."""
        rivals = self.list_rivals([one for one in self.every if not one.hollow], dot)
        more = "no more" if measure.better == "lower" else "no less"
        which = "released no later" if isinstance(dot.amount, date) else f"with {more} of it"
        above = sum(one.score > dot.score for one in rivals) or "none"
        rank = f"{above} {'has' if above in (1, 'none') else 'have'} a higher score"
        place = f"{dot.label} has {score_text(dot.score)} ({measure.name} {measure.text(dot.amount)})"
        if not rivals:
            return f"{place}: there is no other {which}."
        return f"{place}: of the {format_count(len(rivals), 'other')} {which}, {rank}."


@serve_page(PATH, "Scores against size, dimension, length, date, compute, speed or cost, with the frontier.")
def _show_pareto(site: Site, state: _ParetoState) -> Page:
    """The page of trade-offs."""
    queries, measure = site.queries, MEASURES[state.x]
    check_name("suite", state.suite, queries.suites, then="The page /suites lists all.", is_needed=True)
    suite = queries.suites[state.suite]
    views, revisions = list_conventions(suite.suite), state.each == "revision"
    check_name("view", state.view, views, then="The suite's page offers its conventions.")
    scores = queries.load_suite_scores(suite, state.view or views[0], revisions=revisions)
    papers, title = list(site.papers.values()), suite.suite.title
    if shared := _find_shared_columns(scores, state):
        scores = scores.narrow(range(len(scores.entries)), shared, suite.select_columns(shared))
        # Printed means are over all tasks.
        papers, title = [], f"{title}, {len(shared)} of {format_task_count(len(suite.suite.columns))}"
    # A name chooses what is shown, not what it is compared with: it changes no frontier.
    all_names = state.apply_changes(q="")
    rows = [r for r, e in enumerate(scores.entries) if e.origin != "reported" and all_names.should_keep(e)]
    untouched = scores.compute_untouched_means(rows)
    # The filters may leave only models that no score selected: then this is the mean over all tasks.
    if untouched is None and state.y == "untouched":
        state = state.apply_changes(y="tasks")
    labels, hint = _list_score_labels(scores, untouched), "The form above the plot offers all scores."
    check_name("score", state.y, labels, then=hint, is_needed=True)
    score = _select_score(scores, state.y, labels[state.y], untouched)
    across = _load_x_values(queries, scores, state, papers)
    points = _build_pareto_points(scores, rows, state, score, across)
    where, dots = build_paging(len(points.dots), state, PATH), points.dots
    heading = f"{format_heading(score.label)}, {suite.suite.title}, against {measure.name}"
    notes = [SHARED] if shared else []
    notes += [*_iter_pareto_notes(points, state, across), *_iter_selection_notes(points, state, untouched)]
    return Page(
        title="Trade-offs",
        template="pareto.html",
        lead=_describe_points(points, title, across, state),
        tables=_build_pareto_tables(points, where, measure, score) if dots else [],
        charts=[build_chart("points", heading, points.plot)] if dots else [],
        notes=notes,
        data={
            "x": {"key": state.x, "label": across.axis.label, "scale": across.axis.kind},
            "y": {"key": state.y, "label": score.label},
            "device": across.device or None,
        },
        context={
            "empty": "" if dots else across.why or _explain_empty_plot(points, state),
            "left_out": list(_iter_omissions(points, measure)),
            "form": _build_pareto_form(queries, scores, state, labels, across),
            "paging": where,
        },
    )


def _find_shared_columns(scores: SuiteScores, state: _ParetoState) -> list[int]:
    """The columns that all models of a name have, where a mean is asked for and none has all; else none."""
    rows = [r for r, e in enumerate(scores.entries) if e.origin != "reported" and state.should_keep(e)]
    is_mean = state.q and state.y in ("tasks", "types")
    if not rows or not is_mean or scores.over_tasks.complete[rows].any():
        return []
    means = select_mean_columns(scores.site_suite.suite)
    return [at for at in means if scores.counted[rows, at].all()]


def _list_score_labels(scores: SuiteScores, untouched: UntouchedMeans | None) -> dict[str, str]:
    """The scores that can be asked for: key and name."""
    columns, several = scores.site_suite.suite.columns, len(scores.by_type) > 1
    labels = {"tasks": f"mean over {format_task_count(len(columns))}"}
    labels |= {"types": "mean over task types"} if several else {}
    labels |= {"untouched": f"mean over the {untouched.part.count} untouched tasks"} if untouched else {}
    labels |= {f"type:{kind}": f"mean of {kind}" for kind in scores.by_type} if several else {}
    return labels | {f"task:{column.name}": column.name for column in columns}


def _select_score(scores: SuiteScores, key: str, label: str, untouched: UntouchedMeans | None) -> _Score:
    kind, _, name = key.partition(":")
    low, high = np.full((2, len(scores.entries)), np.nan)
    selected = np.zeros(len(low), bool)
    if kind == "task":
        index = [column.name for column in scores.site_suite.suite.columns].index(name)
        mask = scores.counted[:, index]
        means = Means(
            over=name, values=np.where(mask, scores.values[:, index], np.nan), count=mask.astype(np.int64),
            expected=1, deviations=scores.deviations[:, index],
        )  # fmt: skip
        low, high, selected = scores.low[:, index], scores.high[:, index], scores.selected[:, index]
    elif key == "untouched" and untouched:
        means = untouched.over_tasks
    else:
        means = scores.mean(name or key)
        selected = np.array([bool(scores.find_selection_columns(row, name)) for row in range(len(low))], bool)
    for row, average in scores.averages.items() if key == "tasks" else ():
        if average.get("interval"):
            low[row], high[row] = average["interval"]
    return _Score(label=label, means=means, low=low, high=high, selected=selected)


def _load_x_values(
    queries: Queries, scores: SuiteScores, state: _ParetoState, papers: Iterable[Paper]
) -> _Across:
    measure, entries = MEASURES[state.x], scores.entries
    axis = Axis(label=measure.label, kind=state.scale or ("linear" if state.x == "dimension" else "log"))
    find = _prepare_count(queries, entries, measure.counted) if measure.counted else measure.of
    if find is not None:
        is_printed = bool(measure.counted) or state.x == "parameters"
        suite = scores.site_suite.typed
        printed = [*_iter_printed_dots(papers, suite, state.y, state.x)] if is_printed else []
        amounts = {row: value for row, entry in enumerate(entries) if (value := find(entry))}
        axis = Axis(label=measure.label, kind="date") if state.x == "date" else axis
        return _Across(
            values=amounts, printed=printed, axis=axis, why="" if printed or amounts else measure.why
        )
    price = state.price if state.x == "cost" else None
    if measure.figure:
        figures = load_measured_figures(queries, entries, measure.figure)
    else:
        figures = _load_device_figures(queries, scores, price)
    names = sorted(figures, key=lambda name: (-len(figures[name]), name))
    device = state.device if state.device in names else next(iter(names), "")
    values, why = figures.get(device, {}), measure.why
    if state.x == "cost" and price is None and names:
        values, why = {}, NO_PRICE
    label = f"{measure.label} at ${price:g} an hour" if price else measure.label
    axis = Axis(label=f"{label}, on {device}" if device else label, kind=axis.kind)
    return _Across(values=values, axis=axis, devices=names, device=device, why="" if values else why)


def _prepare_count(queries: Queries, entries: Sequence[Entry], kind: str) -> Callable[[Entry], Place | None]:
    """What is computed of each of some entries, known of it under any of the names of its model."""
    pages = join_models(queries)
    by_page = group_by(queries.entries.values(), lambda entry: pages[entry.id])
    pages_shown = dict.fromkeys(pages[entry.id] for entry in entries)
    computes = load_entry_compute(queries, [entry for page in pages_shown for entry in by_page[page]])
    counts = {number: value for number, one in computes.items() if (value := getattr(one, kind))}

    def find_count(entry: Entry) -> Place | None:
        others = (e for e in by_page[pages[entry.id]] if has_same_size(entry.parameters, e.parameters))
        return next((counts[e.id] for e in (entry, *others) if e.id in counts), None)

    return find_count


def _build_pareto_points(
    scores: SuiteScores, rows: Sequence[int], state: _ParetoState, score: _Score, across: _Across
) -> _Points:
    means, measure, all_names = score.means, MEASURES[state.x], state.apply_changes(q="")
    scored_rows = [row for row in rows if means.count[row]]
    complete_rows = [row for row in scored_rows if means.complete[row]]
    eligible_rows = scored_rows if state.part else complete_rows
    shown = [row for row in eligible_rows if row in across.values]
    shown = scores.select_best_rows(shown, means.count) if state.each == "model" else shown
    dots = [_build_entry_dot(scores, score, row, across.values[row], measure.unit) for row in shown]
    dots += [dot for dot in across.printed if all_names.should_keep(dot.entry)]
    dots.sort(key=lambda dot: (dot.hollow, -dot.score))
    dots = [replace(dot, emphasised=bool(state.q) and state.should_keep(dot.entry)) for dot in dots]
    up = Axis(label=f"{format_heading(score.label)} (× 100)")
    plot = Scatter(x=across.axis, y=up, series=SERIES, better=measure.better, points=dots)
    best = select_frontier_points(plot, dots)
    named = [dot for dot in dots if state.should_keep(dot.entry)]

    def count_models(some: Iterable[int]) -> int:
        kept = (scores.entries[row] for row in some)
        return len({entry.model_slug for entry in kept if state.should_keep(entry)})

    return _Points(
        dots=named, best=best, every=dots,
        plot=replace(plot, points=[*named, *(dot for dot in best if dot not in named)]),
        without=count_models(eligible_rows) - count_models(shown),
        part=0 if state.part else count_models(scored_rows) - count_models(complete_rows),
        placed=count_models(row for row in scored_rows if row in across.values),
    )  # fmt: skip


def _build_entry_dot(scores: SuiteScores, score: _Score, row: int, amount: Place, unit: float) -> _CostPoint:
    entry, means = scores.entries[row], score.means
    is_complete, selected = bool(means.complete[row]), bool(score.selected[row])
    notes = [] if is_complete else [f"only {means.count[row]} of {means.expected}: not comparable"]
    notes += ["scores in it selected the model"] if selected else []
    low, high = (100 * float(ends[row]) for ends in (score.low, score.high))
    return _CostPoint.from_entry(
        entry, amount, float(means.values[row]), unit, low=low, high=high, hollow=not is_complete,
        count=int(means.count[row]), href=f"/models/{entry.model_slug}", note="; ".join(notes),
        selected=selected,
    )  # fmt: skip


def _build_pareto_tables(points: _Points, where: Paging, measure: _Measure, score: _Score) -> list[Table]:
    """The frontier, each with its gain, and all points, each with what beats it."""
    expected, column, across = score.means.expected, sorting.Field[_CostPoint], points.plot.x.label
    by_x = points.best if points.plot.better == "lower" else points.best[::-1]
    # By identity, as two points of the frontier may be equal.
    gains = {id(dot): build_delta_cell(dot.score - last.score) for last, dot in pairwise(by_x)}

    def show_amount(dot: _CostPoint) -> Cell:
        amount = dot.amount
        return Cell(text=measure.text(amount), value=str(amount) if isinstance(amount, date) else amount)

    def build_count_cell(dot: _CostPoint) -> Cell:
        return Cell(text=f"{dot.count or expected}/{expected}", value=dot.count or expected)

    def build_rival_cell(dot: _CostPoint) -> Cell:
        if dot in points.best:
            return Cell(text="on the frontier")
        rivals = [] if dot.hollow else points.list_rivals(points.best, dot)
        if (better := max(rivals, key=lambda one: one.score, default=None)) is None:
            return EMPTY
        text = f"{better.label} ({format_delta(better.score - dot.score)})"
        return Cell(text=text, value=better.label, href=better.href)

    fields = [
        column("model", "Model", lambda d: link(d.label, d.href, note=d.entry.treatment), sticky=True),
        column("x", across, show_amount, numeric=True, card=measure.label),
        column("score", format_heading(score.label), _build_score_cell, numeric=True, card="Score"),
        column("step", "Gain", lambda d: gains.get(id(d), EMPTY), numeric=True, note=GAIN, card="Gain"),
        column("there", "Tasks", build_count_cell, numeric=True, card="Tasks"),
        column("origin", "Origin", lambda d: link(d.series, kind=d.series), card="Origin"),
        column("beaten", "Beaten by", build_rival_cell, note=BEATEN, card="Beaten by"),
    ]
    tables = [
        ("frontier", "The frontier: nothing beats these on both axes", ("there", "beaten"), points.best),
        ("points", "All points, the best score first, incomplete ones last",
         ("step", "there" if expected == 1 else ""), where.cut(points.dots)),
    ]  # fmt: skip
    return [
        sorting.fill_table(
            name, caption, [field for field in fields if field.key not in others], dots, cards=True,
            key=lambda dot: dot.entry.slug, kind=lambda dot: "part" if dot.hollow else "",
        )
        for name, caption, others, dots in tables
    ]  # fmt: skip


def _build_score_cell(dot: _CostPoint) -> Cell:
    half = None if dot.low is None or dot.high is None else (dot.high - dot.low) / 2
    interval = f" ± {half:.2f}" if half is not None and half == half else ""
    kinds = {"part": dot.hollow, "selected": dot.selected}
    kind = " ".join(kind for kind, holds in kinds.items() if holds)
    return Cell(text=score_text(dot.score) + interval, value=dot.score, kind=kind, note=dot.note)


def _build_pareto_form(
    queries: Queries, scores: SuiteScores, state: _ParetoState, labels: Mapping[str, str], across: _Across
) -> FilterForm:
    listed, entries = {*queries.entries_of_suites, state.suite}, scores.entries
    measured, measures = any(entry.origin == "measured" for entry in entries), list[tuple[str, str]]()
    for key, measure in MEASURES.items():
        is_available = measure.counted or (measured if measure.of is None else any(map(measure.of, entries)))
        measures.append((key, measure.name if is_available else f"{measure.name} (not known)"))
    views = list_conventions(scores.site_suite.suite)
    suites = [(s, one.suite.title) for s, one in queries.suites.items() if one.main or s in listed]
    offered: Options = {
        "suite": ("Suite", suites),
        "y": ("Score", [(key, format_heading(name)) for key, name in labels.items()]),
        "x": ("Against", measures),
        "device": ("Measured on", [(name, name) for name in across.devices]),
        "view": ("Numbers", [(name, f"as {name} prints") for name in views]),
        "each": ("A point for", EACH),
        "scale": ("Axis", () if state.x == "date" else SCALES),
    }
    values = {"device": across.device, "view": scores.convention}
    choices = state.offer(offered, values=values, always=("suite", "y"))
    if state.x == "cost":
        # Behind the suite, the score and the axis, to which it belongs.
        choices.insert(3, state.ask("number", "price", "USD an hour", least=0, step="any"))
    note = "Means over some of the tasks, hollow and never on the frontier."
    part = state.ask("check", "part", "Incomplete means too", note=note)
    kept = {name: getattr(state, name) for name in ("suite", "x", "y", "price", "theme")}
    reset = f"{PATH}?{_ParetoState(**kept).build_query()}"
    every = [*choices, part, *state.build_entry_controls(entries)]
    return state.build_form(PATH, every, chips=CHIPS, reset=reset)


def _describe_points(points: _Points, title: str, across: _Across, state: _ParetoState) -> str:
    complete_count = sum(not dot.hollow for dot in points.dots)
    what = f"{'point' if across.printed else 'model'}{'' if complete_count == 1 else 's'}"
    if not points.dots:
        return f"{title}: no points."
    best_count = sum(dot in points.best for dot in points.dots)
    named = points.dots[:NAMED] if state.q else []
    places = [points.describe_place(dot, MEASURES[state.x]) for dot in named if not dot.hollow]
    return " ".join([f"{title}: {complete_count} {what}, {best_count} on the frontier.", *places])


def _iter_pareto_notes(points: _Points, state: _ParetoState, across: _Across) -> Iterator[str]:
    entries = [dot.entry for dot in points.dots]
    recipes = {entry.recipe for entry in entries if entry.recipe}
    settings = {one.treatment.partition(";")[0] for one in entries if one.origin == "reported"}
    if settings:
        yield PRINTED
    if state.q and points.dots:
        yield WHOLE
    if state.x == "flops" and any(entry.origin != "reported" for entry in entries):
        yield STATED
    if len(recipes) > 1:
        yield f"These models were fine-tuned by {len(recipes)} recipes: a difference may be the recipe's."
    if len(settings) > 1:
        yield f"They were fine-tuned in {len(settings)} ways: {'; '.join(sorted(settings))}."
    if len(across.devices) > 1:
        rest = ", ".join(device for device in across.devices if device != across.device)
        yield f"Only what ran on {across.device} is shown; other records ran on {rest}."
    if state.device and state.device != across.device:
        yield f"Nothing was measured on {state.device}."


def _iter_selection_notes(
    points: _Points, state: _ParetoState, untouched: UntouchedMeans | None
) -> Iterator[str]:
    count = sum(dot.selected for dot in points.dots)
    other = f" The mean over the {untouched.part.count} untouched tasks is free of that." if untouched else ""
    if state.y == "untouched" and untouched is not None:
        yield describe_untouched(untouched)
    elif count:
        what = "a model was" if count == 1 else f"{count} models were"
        yield f"In this score, {what} selected by scores that it is made of, which err upward.{other}"


def _explain_empty_plot(points: _Points, state: _ParetoState) -> str:
    measure = MEASURES[state.x]
    if points.without:
        how = f" {NOTED}" if measure.counted else ""
        return f"The {measure.name} of what passes these filters is not known.{how}"
    if not points.placed or state.part:
        return NOTHING
    who = "1 model has" if points.placed == 1 else f"{points.placed} models have"
    return (
        f"No model has both all tasks and this value ({measure.name}): {who} it and a part of the "
        "tasks. “Incomplete means too” shows what has a part."
    )


def _iter_omissions(points: _Points, measure: _Measure) -> Iterator[str]:
    if points.without:
        how = f" {NOTED}" if measure.counted else ""
        yield f"Left out, as their {measure.name} is not known: {points.without} with this score.{how}"
    if points.part:
        yield f"Left out, as they have a part of the tasks only: {points.part}."
