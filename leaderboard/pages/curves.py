"""Compared runs: their scores against what their training took, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Literal

from pydantic import Field

from harness.core.errors import UsageError
from harness.results.notes import format_amount
from harness.watch.curves import (
    AXES,
    NEAR_END,
    CurveComparison,
    RunComparison,
    RunTable,
    SeedCurve,
    SeedInterval,
    build_curves,
    compare_runs,
)
from harness.watch.grids import RunGrid
from leaderboard.views.cells import format_count, format_time
from leaderboard.views.documents import build_documents_table, iter_document_paths, load_document
from leaderboard.web.charts import Axis, Chart, Curve, Heat, Lines, Point, build_chart
from leaderboard.web.filters import EMPTY_IS_NONE
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import Options, State, build_address
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Table, values_table

PATH = "/curves"
GRIDS = "/grids"
LABELS = {"hours": "hours", "cost": "cost in dollars"}


class _CurvesState(State):
    """The parameters of the page of compared runs."""

    against: Literal["", "step", "tokens", "hours", "operations", "cost"] = Field(
        "", description="What scores are drawn against; empty as the runs were compared."
    )
    scale: Literal["log", "linear"] = Field("log", description="The scale of the axis across.")
    reach: Annotated[float | None, EMPTY_IS_NONE] = Field(
        None, ge=-100, le=100, description="The score × 100 that the runs are to reach."
    )
    sound: bool = Field(False, description="Without the seeds that diverged.")


@serve_page(PATH, "Every comparison of training runs.", paths=lambda site: [PATH])
def _list_view(site: Site, state: State) -> Page:
    curves, grids = (site.queries.list_document_facts(kind) for kind in ("curves", "grid"))
    heads = {"name": "Comparison", "column": "Score", "runs": "Runs", "seeds": "Seeds"}
    tables = [build_documents_table(curves, "curves", "comparison", PATH, heads)]
    if grids:
        heads = {"name": "Grid", "column": "Score", "axes": "Facts", "runs": "Runs"}
        named = [{**one, "axes": " × ".join(one["axes"])} for one in grids]
        tables.append(build_documents_table(named, "grids", "grid", GRIDS, heads))
    return Page(
        title="Curves of runs",
        lead="Training runs beside one another: their scores, and what they took to get there.",
        tables=tables,
    )


@serve_page(
    f"{GRIDS}/{{name}}",
    "Runs by two stated facts: the mean score and the number of runs in each cell.",
    paths=iter_document_paths("grid", GRIDS),
)
def _show_grid(site: Site, state: State, name: str) -> Page:
    grid = load_document(site.queries, "grid", name, RunGrid, "grid of runs", PATH)
    (across, up), (means, counts) = grid.axes, grid.compute_cells()
    edges = [axis.edges[:-1] if axis.is_by_value else axis.edges for axis in (across, up)]
    values = [[None if mean != mean else mean for mean in line] for line in means.tolist()]
    x, y = Axis(label=across.name), Axis(label=up.name)
    heat = Heat(x=x, y=y, across=edges[0], up=edges[1], values=values, counts=counts.tolist())
    title = f"{grid.column} × 100: the mean of each cell, and below it the number of runs"
    chart = build_chart("grid", title, heat)
    return Page(
        title=name,
        lead=f"{format_count(len(grid.runs), 'run')} by {across.name} and {up.name}.",
        template="grid.html",
        crumbs=[("Curves of runs", PATH)],
        charts=[chart],
        tables=[chart.table],
        notes=grid.notes,
        data={"column": grid.column, "when": grid.when},
    )


@serve_page(
    f"{PATH}/{{name}}",
    "Runs beside one another at budgets of training, and what each takes to a score.",
    paths=iter_document_paths("curves", PATH),
)
def _show_curves(site: Site, state: _CurvesState, name: str) -> Page:
    table = load_document(site.queries, "curves", name, RunTable, "comparison of runs", PATH)
    built, axis = _build_axes(table), state.against or table.axis
    check_name("axis of these runs", axis, built, then="The form above the chart lists all.")
    curves = built[axis]
    diverged = [curve for curve in curves if curve.diverged]
    comparison = compare_runs(curves, table.reach if state.reach is None else state.reach)
    offered: Options = {
        "against": ("Against", [(one, LABELS.get(one, one)) for one in built]),
        "scale": ("Scale", [("log", "logarithmic"), ("linear", "linear")]),
    }
    reach = "" if state.reach is None else f"{state.reach:g}"
    controls = state.offer(offered, values={"against": axis})
    controls.append(state.ask("number", "reach", "Score to reach", value=reach, step="any"))
    if state.sound or 0 < len(diverged) < len(curves):
        controls.append(state.ask("check", "sound", "Without what diverged"))
    if state.sound:
        curves = [curve for curve in curves if not curve.diverged]
        # At the same score, so that both answer one question.
        comparison = compare_runs(curves, comparison.score)
    path, label = build_address(f"{PATH}/{name}"), LABELS.get(axis, axis)
    return Page(
        title=name,
        lead=_describe_pairs(comparison),
        template="curves_one.html",
        crumbs=[("Curves of runs", PATH)],
        charts=[_plot_runs(comparison, table.column, label, state.scale)],
        tables=[
            *([_build_pairs_table(comparison)] if comparison.pairs else []),
            _build_reach_table(comparison, label),
            _build_scores_table(comparison, label),
        ],
        notes=[f"{curve.name} diverged: {curve.diverged}." for curve in diverged],
        data={"column": table.column, "against": axis, "score": comparison.score, "when": table.when},
        context={
            "several": bool(comparison.pairs),
            "form": state.build_form(path, controls),
            "facts": [
                ("Score", table.column, ""),
                ("Runs", str(len(comparison.reaches)), ""),
                ("Seeds", str(len(curves)), ""),
                ("Compared", format_time(table.when), ""),
            ],
        },
    )


def _build_axes(table: RunTable) -> dict[str, Sequence[SeedCurve]]:
    """The curves against each axis that all runs have."""
    built: dict[str, Sequence[SeedCurve]] = {}
    for axis in AXES:
        with suppress(UsageError):
            built[axis] = build_curves(table.list_rows(), axis, "score")[1]
    return built


def _describe_pairs(comparison: CurveComparison) -> str:
    pairs = [_describe_pair(pair) for pair in comparison.pairs]
    more = f"; and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
    return f"{'; '.join(pairs[:3])}{more}." if pairs else "A single run."


def _describe_pair(pair: RunComparison) -> str:
    return f"{pair.run} against {pair.other}: {pair.describe_verdict()}"


def _plot_runs(
    comparison: CurveComparison, column: str, label: str, scale: Literal["log", "linear"]
) -> Chart:
    lines = []
    for run, scores in comparison.scores.items():
        pairs = zip(comparison.budgets, scores, strict=True)
        points = [Point(x=budget, y=score.value, low=score.low, high=score.high) for budget, score in pairs]
        lines.append(Curve(label=run, points=points))
    plot = Lines(x=Axis(label=label, kind=scale), y=Axis(label=f"{column} × 100"), lines=lines)
    title = f"{column} against {label}: means over seeds with 95 % intervals"
    return build_chart("runs", title, plot)


def _list_ends(
    interval: SeedInterval | None, format_end: Callable[[float], str] = "{:.2f}".format
) -> list[Cell]:
    """An estimate and its bounds as cells."""
    ends = (None, None, None) if interval is None else (interval.value, interval.low, interval.high)
    return [Cell(text="–" if end is None else format_end(end), value=end) for end in ends]


def _build_interval_heads(key: str, label: str) -> Mapping[str, str]:
    return {key: label, f"{key}-low": "from", f"{key}-high": "to"}


def _build_pairs_table(comparison: CurveComparison) -> Table:
    speed = _build_interval_heads("speedup", "Times as fast")
    heads = {"run": "Run", "other": "Against", "verdict": "What is known", **speed}
    rows = [
        (one.run, one.other, one.describe_verdict(), *_list_ends(one.speedup)) for one in comparison.pairs
    ]
    says = {"speedup": f"The budget of the other run to {comparison.score:.2f}, by that of the run."}
    caption = f"Which run is better, and how many times as fast it reaches {comparison.score:.2f}"
    groups = dict.fromkeys(speed, "Speed-up, 95 %")
    return values_table("pairs", caption, heads, rows, " ".join(speed), says=says, groups=groups)


def _build_reach_table(comparison: CurveComparison, label: str) -> Table:
    budget = _build_interval_heads("budget", label)
    counts = {"seeds": "all", "reached": "that reach it", "early": "at their first point"}
    heads = {"run": "Run", **counts, **budget}
    rows = [
        (one.run, *(getattr(one, key) for key in counts), *_list_ends(one.budget, format_amount))
        for one in comparison.reaches
    ]
    notes = [
        "A budget is known if all seeds reach the score between two of their points.",
        f"Without a score to reach it is {NEAR_END:g} of the way from the highest first to the lowest last "
        "score of all seeds, each curve made monotone.",
    ]
    groups = dict.fromkeys(counts, "Seeds") | dict.fromkeys(budget, "Takes, 95 %")
    caption = f"What each run takes to reach {comparison.score:.2f}"
    return values_table("reaches", caption, heads, rows, notes=notes, groups=groups)


def _build_scores_table(comparison: CurveComparison, label: str) -> Table:
    heads, groups = {"budget": label}, dict[str, str]()
    for number, run in enumerate(comparison.scores):
        columns = _build_interval_heads(f"score-{number}", "mean")
        heads |= columns
        groups |= dict.fromkeys(columns, run)
    rows = []
    for number, budget in enumerate(comparison.budgets):
        ends = (_list_ends(scores[number]) for scores in comparison.scores.values())
        rows.append([Cell(text=format_amount(budget), value=budget), *chain(*ends)])
    caption = "Scores × 100 at each budget, with 95 % intervals"
    return values_table("scores", caption, heads, rows, groups=groups)
