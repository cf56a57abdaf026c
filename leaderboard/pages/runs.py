"""Training runs: watches with every checkpoint, runs compared at budgets, and grids of two stated facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Literal

from pydantic import Field

from harness.core.errors import UsageError
from harness.results.notes import format_amount
from harness.results.scores import score_text
from harness.watch.curves import (
    AXES,
    NEAR_END,
    CurveComparison,
    RunTable,
    SeedCurve,
    SeedInterval,
    compare_runs,
)
from harness.watch.state import ChangePoint, Watch
from harness.watch.state import WatchEntry as Checkpoint
from leaderboard.data.queries import Queries
from leaderboard.views.cells import (
    build_score_cell,
    build_time_cell,
    format_count,
    format_heading,
    format_time,
)
from leaderboard.views.documents import (
    build_documents_table,
    find_suite_path,
    iter_document_paths,
    load_document,
)
from leaderboard.web.charts import Axis, Chart, Curve, Heat, Lines, Point, Track, build_chart
from leaderboard.web.filters import EMPTY_IS_NONE
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import Options, State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, TableRow, build_values_row, link, values_table

# Runs compared, and grids

PATH = "/curves"
GRIDS = "/grids"
LABELS = {"hours": "hours", "cost": "cost in dollars"}
OVER_SEEDS = "Intervals of runs are Student's over seeds; of a single seed nothing is known."
BETWEEN_RUNS = (
    "Runs are compared at the budgets whose points are drawn. Better at every budget: the interval of the "
    "difference lies above 0 at each, at the level of 0.05; at some of them: at 0.05 for all together. All "
    "pairs of runs share these levels."
)


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


@serve_page(PATH, "Every comparison of training runs.")
def _list_curves(site: Site, state: State) -> Page:
    curves, grids = (site.queries.list_document_facts(kind) for kind in ("curves", "grid"))
    heads = {"name": "Comparison", "column": "Score", "runs": "Runs", "seeds": "Seeds", "when": "When"}
    tables = [build_documents_table(curves, "curves", "comparison", PATH, heads)]
    if grids:
        heads = {"name": "Grid", "column": "Score", "axes": "Facts", "runs": "Runs", "when": "When"}
        named = [{**one, "axes": " × ".join(one["axes"])} for one in grids]
        tables.append(build_documents_table(named, "grids", "grid", GRIDS, heads))
    return Page(
        title="Curves of runs",
        template="documents.html",
        lead="Training runs beside one another: their scores, and what they took to get there.",
        tables=tables,
        context={
            "empty": (
                "No runs are compared yet.",
                "A comparison of watched runs, or of a table of runs, is kept in the results folder:",
                "harness watch --run a=WATCH --run b=WATCH --out NAME",
            )
        },
    )


@serve_page(
    f"{GRIDS}/{{name}}",
    "Runs by two stated facts: the mean score and the number of runs in each cell.",
    paths=iter_document_paths("grid", GRIDS),
)
def _show_grid(site: Site, state: State, name: str) -> Page:
    grid = load_document(site.queries, "grid", name, "grid of runs", PATH)
    (across, up), (means, counts) = grid.axes, grid.list_cells()
    x, y = Axis(label=across.name), Axis(label=up.name)
    heat = Heat(x=x, y=y, across=across.marks, up=up.marks, values=means, counts=counts)
    title = f"{grid.column} × 100: the mean of each cell, and below it the number of runs"
    chart = build_chart("grid", title, heat)
    return Page(
        title=name,
        lead=f"{format_count(len(grid.runs), 'run')} by {across.name} and {up.name}.",
        template="document.html",
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
    table = load_document(site.queries, "curves", name, "comparison of runs", PATH)
    built, axis = _build_axes(table), state.against or table.axis
    check_name("axis of these runs", axis, built, then="The form above the chart lists all.")
    curves, label = built[axis], LABELS.get(axis, axis)
    comparison = compare_runs(curves, table.reach if state.reach is None else state.reach)
    offered: Options = {
        "against": ("Against", [(one, LABELS.get(one, one)) for one in built]),
        "scale": ("Scale", [("log", "logarithmic"), ("linear", "linear")]),
    }
    reach = "" if state.reach is None else f"{state.reach:g}"
    controls = state.offer(offered, values={"against": axis})
    controls.append(state.ask("number", "reach", "Score to reach", value=reach, step="any"))
    sound = [curve for curve in curves if not curve.diverged]
    if state.sound or 0 < len(sound) < len(curves):
        controls.append(state.ask("check", "sound", "Without what diverged"))
    if state.sound:
        # At the same score, so that both answer one question.
        comparison = compare_runs(sound, comparison.score)
    tables = [_build_pairs_table(comparison)] if comparison.pairs else []
    return Page(
        title=name,
        lead=_describe_pairs(comparison),
        template="document.html",
        crumbs=[("Curves of runs", PATH)],
        charts=[_plot_runs(comparison, table.column, label, state.scale)],
        tables=[*tables, _build_reach_table(comparison, label), _build_scores_table(comparison, label)],
        notes=[f"{curve.name} diverged: {curve.diverged}." for curve in curves if curve.diverged],
        data={"column": table.column, "against": axis, "score": comparison.score, "when": table.when},
        context={
            "note": f"{BETWEEN_RUNS} {OVER_SEEDS}" if comparison.pairs else OVER_SEEDS,
            "form": state.build_form(build_address(f"{PATH}/{name}"), controls),
            "facts": [
                ("Score", table.column),
                ("Runs", len(comparison.reaches)),
                ("Seeds", len(sound if state.sound else curves)),
                ("Compared", format_time(table.when)),
            ],
        },
    )


def _build_axes(table: RunTable) -> dict[str, Sequence[SeedCurve]]:
    """The curves against each axis that all runs have."""
    built: dict[str, Sequence[SeedCurve]] = {}
    for axis in AXES:
        with suppress(UsageError):
            built[axis] = table.build_curves(axis)
    return built


def _describe_pairs(comparison: CurveComparison) -> str:
    pairs = [f"{one.run} against {one.other}: {one.describe_verdict()}" for one in comparison.pairs]
    more = f"; and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
    return f"{'; '.join(pairs[:3])}{more}." if pairs else "A single run."


def _plot_runs(
    comparison: CurveComparison, column: str, label: str, scale: Literal["log", "linear"]
) -> Chart:
    lines = []
    for run, scores in comparison.scores.items():
        pairs = zip(comparison.budgets, scores, strict=True)
        points = [Point(x=x, y=score.value, low=score.low, high=score.high) for x, score in pairs]
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
    rows = [
        [Cell(text=format_amount(budget), value=budget), *chain(*map(_list_ends, scores))]
        for budget, *scores in zip(comparison.budgets, *comparison.scores.values(), strict=True)
    ]
    caption = "Scores × 100 at each budget, with 95 % intervals"
    return values_table("scores", caption, heads, rows, groups=groups)


# Watches

KINDS = {"failed": "failed", "partial": "unsure", "waiting": "none", "lost": "failed"}
"""The kind of a state's cell; `done` is as any other."""
STATES = ("done", "partial", "waiting", "failed", "lost")
CHANGES = {"drop": "below what was expected", "shift": "a lower level from here on"}
TONES = {"checkpoint": "", "drop of the level": "bad"}
OUTLINES = (
    "An outline is a checkpoint that is not comparable with the others; the table says why. An upright line "
    "is where the level dropped, with how far it is below what was expected."
)


class _WatchState(State):
    """The parameters of a watch's page."""

    task: Text = Field("", description="The task whose scores are drawn; empty for the mean.")
    scale: Literal["linear", "log"] = Field("linear", description="The scale of the steps.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Checkpoints on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of checkpoints.")


@dataclass(frozen=True, kw_only=True)
class _Value:
    """A checkpoint's value; `apart` says why it is not comparable with the others, empty where it is."""

    checkpoint: Checkpoint
    value: float | None
    apart: str = ""


def _build_watch_crumbs(site: Site) -> list[tuple[str, str]]:
    """The way to the list of watches: by the checks, if the site has any."""
    return [("Checks", "/checks")] if "check" in site.kinds else []


@serve_page(
    "/watches",
    "Every watch of a pretraining run: how far it is, and where its level dropped.",
    paths=lambda site: ["/watches"] if "watch" in site.kinds else [],
)
def _list_watches(site: Site, state: State) -> Page:
    """Every watch, the one with the newest score first."""
    heads = {
        "name": "Watch", "source": "What is watched", "suite": "Suite", **{state: state for state in STATES},
        "step": "Last step", "mean": "Its mean", "best": "Best mean", "changes": "Drops at step",
        "when": "Newest score",
    }  # fmt: skip
    watches = site.queries.list_document_facts("watch")
    for facts in watches:
        best = "" if facts["best_step"] is None else f"at step {facts['best_step']:,}"
        drops = ", ".join(f"{step:,}" for step in facts["changes"])
        counts = {state: facts["states"].get(state, 0) for state in STATES}
        facts |= {state: Cell(text=str(count or "–"), value=count) for state, count in counts.items()}
        facts |= {
            "suite": link(facts["suite"], find_suite_path(site.queries, facts["suite"])),
            "mean": build_score_cell(facts["mean"]), "best": build_score_cell(facts["best"], note=best),
            "changes": Cell(text=drops or "–", value=drops or None, kind="regressed" if drops else ""),
        }  # fmt: skip
    groups = dict.fromkeys(STATES, "Checkpoints")
    table = build_documents_table(watches, "watches", "watch", "/watch", heads, groups)
    return Page(
        title="Watches",
        template="documents.html",
        lead="Pretraining runs whose checkpoints are measured as they come.",
        crumbs=_build_watch_crumbs(site),
        tables=[table],
        context={
            "empty": (
                "Nothing is watched yet.",
                "A watch measures each new checkpoint of a training. The results folder keeps its curve:",
                "harness watch FOLDER --suite SUITE",
            )
        },
    )


@serve_page(
    "/watch/{watch}",
    "A watch: the mean or a task's score against the step, and every checkpoint.",
    paths=iter_document_paths("watch", "/watch"),
)
def _show_watch(site: Site, state: _WatchState, watch: str) -> Page:
    run: Watch = load_document(site.queries, "watch", watch, "watch", "/watches")
    tasks = sorted({task for checkpoint in run.checkpoints for task in checkpoint.scores})
    check_name("task of this watch", state.task, tasks, then="The form above the chart lists all.")
    path, values = build_address(f"/watch/{watch}"), list_watch_values(run, state.task)
    place = build_paging(len(values), state, path)
    offered: Options = {
        "task": ("Curve of", [("", "the mean"), *((task, task) for task in tasks)]),
        "scale": ("Steps", [("linear", "linear"), ("log", "logarithmic")]),
    }
    newest = max((checkpoint.evaluated for checkpoint in run.checkpoints), default="")
    return Page(
        title=run.name, lead=_describe_progress(run), template="document.html",
        crumbs=[*_build_watch_crumbs(site), ("Watches", "/watches")],
        tables=[_build_checkpoint_table(site.queries, run, place.cut(values[::-1]), state.task)],
        charts=[_plot_watch(run, values, state)],
        data={
            "watch": {**run.dump_output(), "name": watch},
            "points": [{"step": v.checkpoint.step, "value": v.value, "comparable": not v.apart}
                       for v in values],
        },
        context={
            "facts": [("What is watched", run.source),
                      ("Suite", run.suite, find_suite_path(site.queries, run.suite)),
                      ("Newest score", format_time(newest))],
            "form": state.build_form(path, state.offer(offered)), "note": OUTLINES,
            "paging": place, "what": "checkpoints", "nothing": "No checkpoint was seen yet.",
        },
    )  # fmt: skip


def list_watch_values(watch: Watch, task: str = "") -> list[_Value]:
    """The value of every checkpoint, by step: its mean, or a task's score.

    An incomplete checkpoint has the mean over the tasks that it has, which is not comparable.
    """
    # When the settings of a watch change, its former checkpoints are not comparable with the new ones.
    latest = watch.curve[-1].treatment if watch.curve else ""
    checkpoints = sorted(watch.checkpoints, key=lambda one: one.step)
    return [_build_watch_value(one, task, latest) for one in checkpoints]


def _build_watch_value(one: Checkpoint, task: str, latest: str) -> _Value:
    other = "measured in another way than the newest one" if latest and one.treatment != latest else ""
    if task:
        return _Value(checkpoint=one, value=one.scores.get(task), apart=other if task in one.scores else "")
    if one.mean is not None:
        return _Value(checkpoint=one, value=one.mean, apart=other)
    mean = sum(one.scores.values()) / len(one.scores) if one.scores else None
    apart = f"{one.there} of {one.wanted} tasks" if one.scores else ""
    return _Value(checkpoint=one, value=mean, apart=apart)


def _describe_progress(watch: Watch) -> str:
    """How far it is, in a sentence."""
    curve, states = watch.curve, [one.state for one in watch.checkpoints]
    done = f"{states.count('done')} of {len(states)} checkpoints are measured"
    if not curve:
        return f"{done}."
    best, last = max(curve, key=lambda one: one.mean or 0.0), curve[-1]
    ends = [f"{one.step:,} with {score_text(one.mean)}" for one in (last, best)]
    return f"{done}; the last of them at step {ends[0]}, the best at {ends[1]}."


def _plot_watch(watch: Watch, values: Sequence[_Value], state: _WatchState) -> Chart:
    what = state.task or f"mean over {watch.suite}"
    changes = {change.step: change for change in watch.change_points} if not state.task else {}
    points = [
        Point(
            label=one.checkpoint.name, x=float(one.checkpoint.step), hollow=bool(one.apart), note=one.apart,
            y=None if one.value is None else 100 * one.value,
            series="drop of the level" if one.checkpoint.step in changes else "checkpoint",
        )
        for one in values
    ]  # fmt: skip
    plot = Track(
        x=Axis(label="step", kind=state.scale), y=Axis(label=f"{'score' if state.task else 'mean'} × 100"),
        points=points, tones=TONES, joined=True,
        marks=[(float(one.step), f"−{100 * one.size:.2f}") for one in changes.values()],
    )  # fmt: skip
    return build_chart("curve", f"{format_heading(what)} against the step", plot)


def _build_checkpoint_table(queries: Queries, watch: Watch, values: Sequence[_Value], task: str) -> Table:
    """Some checkpoints, the newest first."""
    models = {
        entry.artifact: build_address(f"/models/{entry.model_slug}", {"entry": entry.slug})
        for entry in queries.entries.values()
        if entry.artifact
    }
    changes = {change.step: change for change in watch.change_points}
    heads = {
        "name": "Checkpoint", "step": "Step", "state": "State", "mean": "Mean",
        **({"score": task} if task else {}), "there": "Tasks", "wanted": "of",
        "change": "Drop of the level", "reason": "Why", "seconds": "Took, s", "when": "When",
    }  # fmt: skip
    rows = [
        _build_checkpoint_row(v, models.get(v.checkpoint.artifact, ""), changes.get(v.checkpoint.step), task)
        for v in values
    ]
    caption = f"{format_count(len(watch.checkpoints), 'checkpoint')}, the newest first"
    return values_table("checkpoints", caption, heads, rows)


def _build_checkpoint_row(value: _Value, href: str, change: ChangePoint | None, task: str) -> TableRow:
    checkpoint = value.checkpoint
    same = "" if checkpoint.same_as is None else f"the same model as at step {checkpoint.same_as:,}"
    place = checkpoint.folder or f"revision {(checkpoint.revision or 'not known')[:12]}"
    kind = "unsure" if value.apart and checkpoint.mean is not None else ""
    return build_values_row(
        link(checkpoint.name, href, note=place), checkpoint.step,
        link(checkpoint.state, kind=KINDS.get(checkpoint.state, "")),
        build_score_cell(checkpoint.mean, kind=kind),
        *([build_score_cell(checkpoint.scores.get(task))] if task else []), checkpoint.there,
        checkpoint.wanted, _build_change_cell(change),
        " · ".join(filter(None, (checkpoint.reason or value.apart, same))) or None,
        Cell(text=f"{checkpoint.seconds:,.0f}", value=checkpoint.seconds),
        build_time_cell(checkpoint.evaluated), key=checkpoint.name,
    )  # fmt: skip


def _build_change_cell(change: ChangePoint | None) -> Cell:
    if change is None:
        return EMPTY
    note = f"{CHANGES[change.kind]}, up to step {change.last:,}; p {change.p:.2g}"
    return Cell(text=f"−{100 * change.size:.2f}", value=-change.size, kind="regressed", note=note)
