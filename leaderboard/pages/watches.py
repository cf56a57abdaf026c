"""Watches of pretraining runs: how far each is, its curve, and every checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from harness.results.scores import score_text
from harness.watch.state import ChangePoint, Watch
from harness.watch.state import WatchEntry as Checkpoint
from leaderboard.data.queries import Queries
from leaderboard.views.cells import build_score_cell, build_time_cell, format_count, format_time
from leaderboard.views.documents import find_suite_path
from leaderboard.web.charts import Axis, Chart, Point, Track, build_chart
from leaderboard.web.page import Page, check_name
from leaderboard.web.page_state import Options, State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, TableRow, build_values_row, link, values_table

KINDS = {"failed": "failed", "partial": "unsure", "waiting": "none", "lost": "failed"}
"""The kind of a state's cell; `done` is as any other."""
STATES = ("done", "partial", "waiting", "failed", "lost")
CHANGES = {"drop": "below what was expected", "shift": "a lower level from here on"}
TONES = {"checkpoint": "", "drop of the level": "bad"}


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


@serve_page(
    "/watch/{watch}",
    "A watch: the mean or a task's score against the step, and every checkpoint.",
    paths=lambda site: [f"/watch/{name}" for name in site.queries.watches],
)
def _show_watch(site: Site, state: _WatchState, watch: str) -> Page:
    queries = site.queries
    check_name("watch", watch, queries.watches, then="The page /watches lists all.")
    run = Watch.model_validate_json(queries.fetch_document("watch", watch))
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
        title=run.name, lead=_describe_progress(run),
        crumbs=[*_build_watch_crumbs(site), ("Watches", "/watches")],
        tables=[_build_checkpoint_table(queries, run, place.cut(values[::-1]), state.task)],
        charts=[_plot_watch(run, values, state)],
        data={
            "watch": {**run.dump_output(), "name": watch},
            "points": [{"step": v.checkpoint.step, "value": v.value, "comparable": not v.apart}
                       for v in values],
        },
        context={
            "facts": [("What is watched", run.source, ""),
                      ("Suite", run.suite, find_suite_path(queries, run.suite)),
                      ("Newest score", format_time(newest), "")],
            "form": state.build_form(path, state.offer(offered)), "paging": place,
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
    return build_chart("curve", f"{what[:1].upper()}{what[1:]} against the step", plot)


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


def _build_watch_crumbs(site: Site) -> list[tuple[str, str]]:
    """The way to the list of watches: by the checks, if the site has any."""
    return [("Checks", "/checks")] if "check" in site.kinds else []


@serve_page(
    "/watches",
    "Every watch of a pretraining run: how far it is, and where its level dropped.",
    paths=lambda site: ["/watches"] if site.queries.watches else [],
)
def _list_view(site: Site, state: State) -> Page:
    return Page(
        title="Watches",
        lead="Pretraining runs whose checkpoints are measured as they come.",
        crumbs=_build_watch_crumbs(site),
        tables=[_build_watches_table(site.queries)],
    )


def _build_watches_table(queries: Queries) -> Table:
    """Every watch, the one with the newest score first."""
    heads = {
        "name": "Watch", "source": "What is watched", "suite": "Suite", **{state: state for state in STATES},
        "step": "Last step", "mean": "Its mean", "best": "Best mean", "changes": "Drops at step",
        "when": "Newest score",
    }  # fmt: skip
    rows = []
    for watch in queries.watches.values():
        changes = ", ".join(f"{step:,}" for step in watch.changes)
        best = "" if watch.best_step is None else f"at step {watch.best_step:,}"
        counts = [watch.states.get(state, 0) for state in STATES]
        rows.append(
            build_values_row(
                link(watch.name, build_address(f"/watch/{watch.name}")), watch.source,
                link(watch.suite, find_suite_path(queries, watch.suite)),
                *(Cell(text=str(count or "–"), value=count) for count in counts), watch.step,
                build_score_cell(watch.mean), build_score_cell(watch.best, note=best),
                Cell(text=changes or "–", value=changes or None, kind="regressed" if changes else ""),
                build_time_cell(watch.when), key=watch.name,
            )
        )  # fmt: skip
    caption = f"{format_count(len(rows), 'watch')} of pretraining runs"
    return values_table("watches", caption, heads, rows, groups=dict.fromkeys(STATES, "Checkpoints"))
