"""The values of a curve, and which of them are comparable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from harness.scores import score_text
from harness.watch.state import ChangePoint, Watch
from harness.watch.state import Entry as Checkpoint
from leaderboard.data.queries import Queries
from leaderboard.data.watches import WatchSummary, opened
from leaderboard.pages._check_tables import moment_cell, suite_slug, when_text
from leaderboard.pages._task_scores import task_path
from leaderboard.web.charts import Axis, Chart, Point, Track, chart
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import Paging, State, Text, address, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


@dataclass(frozen=True, kw_only=True)
class Value:
    """A checkpoint's value; `apart` says why it is not comparable with the others, empty where it is."""

    checkpoint: Checkpoint
    value: float | None
    apart: str = ""


def values_of(watch: Watch, task: str = "") -> list[Value]:
    """The value of every checkpoint, by step: its mean, or a task's score.

    An incomplete checkpoint has the mean over the tasks that it has, which is not comparable.
    """
    latest = _treatment(watch)
    return [_value(one, task, latest) for one in sorted(watch.checkpoints, key=lambda one: one.step)]


def _treatment(watch: Watch) -> str:
    """How the newest complete checkpoint was measured; of several that are alike the curve is made."""
    return watch.curve[-1].treatment if watch.curve else ""


def _value(one: Checkpoint, task: str, latest: str) -> Value:
    other = "measured in another way than the newest one" if latest and one.treatment != latest else ""
    if task:
        return Value(checkpoint=one, value=one.scores.get(task), apart=other if task in one.scores else "")
    if one.mean is not None:
        return Value(checkpoint=one, value=one.mean, apart=other)
    there: Sequence[float] = list(one.scores.values())
    value = sum(there) / len(there) if there else None
    return Value(checkpoint=one, value=value, apart=f"{one.there} of {one.wanted} columns" if there else "")


KINDS = {"failed": "failed", "partial": "unsure", "waiting": "none"}
"""The kind of a state's cell; `done` is as any other."""

KIND_WORDS = {"drop": "below what was expected", "shift": "a lower level from here on"}


def checkpoints_table(queries: Queries, watch: Watch, values: Sequence[Value], task: str) -> Table:
    """Some checkpoints, the newest first."""
    models = {
        entry.artifact: address(f"/models/{entry.model_slug}", {"entry": entry.slug})
        for entry in queries.entries.values()
        if entry.artifact
    }
    changes = {change.step: change for change in watch.change_points}
    total = len(watch.checkpoints)
    href = task_path(task) if task in queries.tasks else ""
    return Table(
        name="checkpoints",
        caption=f"{total:,} checkpoint{'s' if total != 1 else ''}, the newest first",
        columns=[
            Column(key="name", label="Checkpoint", sticky=True),
            Column(key="step", label="Step", numeric=True),
            Column(key="state", label="State"),
            Column(key="mean", label="Mean", numeric=True),
            *([Column(key="score", label=task, numeric=True, href=href)] if task else []),
            Column(key="there", label="Columns", numeric=True),
            Column(key="wanted", label="of", numeric=True),
            Column(key="change", label="Drop of the level", numeric=True),
            Column(key="reason", label="Why"),
            Column(key="seconds", label="Took, s", numeric=True),
            Column(key="when", label="When"),
        ],
        rows=[_row(value, models, changes.get(value.checkpoint.step), task) for value in values],
    )


def _row(value: Value, models: Mapping[str, str], change: ChangePoint | None, task: str) -> Row:
    one = value.checkpoint
    why = one.reason or value.apart
    if one.same_as is not None:
        why = " · ".join(filter(None, (why, f"the same model as at step {one.same_as:,}")))
    return Row(
        key=one.name,
        cells=[
            Cell(text=one.name, value=one.name, href=models.get(one.artifact, ""), note=_place(value)),
            step_cell(one.step),
            Cell(text=one.state, value=one.state, kind=KINDS.get(one.state, "")),
            Cell(text=score_text(one.mean), value=one.mean, kind="unsure" if _old(value) else ""),
            *([_score(one.scores.get(task))] if task else []),
            Cell(text=str(one.there), value=one.there),
            Cell(text=str(one.wanted), value=one.wanted),
            _change(change),
            Cell(text=why or "–", value=why or None),
            Cell(text=f"{one.seconds:,.0f}", value=one.seconds),
            moment_cell(one.evaluated),
        ],
    )


def _old(value: Value) -> bool:
    return bool(value.apart) and value.checkpoint.mean is not None


def _score(value: float | None) -> Cell:
    return Cell(text=score_text(value), value=value)


def _place(value: Value) -> str:
    one = value.checkpoint
    return one.folder or f"revision {(one.revision or 'not known')[:12]}"


def _change(change: ChangePoint | None) -> Cell:
    if change is None:
        return EMPTY
    note = f"{KIND_WORDS[change.kind]}, up to step {change.last:,}; p {change.p:.2g}"
    return Cell(text=f"−{100 * change.size:.2f}", value=-change.size, kind="regressed", note=note)


Fact = tuple[str, str, str, str]
"""Name, value, URL, and what must be known of it."""

TONES = {"checkpoint": "", "drop of the level": "bad"}


@dataclass(frozen=True, kw_only=True)
class WatchPage:
    """What the template of a watch takes.

    Attributes:
        watch: The watch.
        facts: What is watched.
        lead: How far it is, in a sentence.
        form: The chooser of a task, and of the axis.
        chart: The curve.
        notes: What must be read with it.
        paging: Where in the table the page is.
        table: The checkpoints.
        data: For the JSON twin.
    """

    watch: Watch
    facts: Sequence[Fact]
    lead: str
    form: Form
    chart: Chart
    notes: Sequence[str]
    paging: Paging
    table: Table
    data: Mapping[str, Any]


def watch_page(queries: Queries, name: str, watch: Watch, state: WatchState) -> WatchPage:
    """The page of a watch in a state.

    Raises:
        NotFound: The state names a task that no checkpoint has.
    """
    tasks = sorted({task for one in watch.checkpoints for task in one.scores})
    if state.task and state.task not in tasks:
        raise missing("task of this watch", state.task, tasks, then="The form above the picture lists all.")
    path, values = address(f"/watch/{name}"), values_of(watch, state.task)
    place = paging(len(values), state, path)
    shown = values[::-1][max(0, place.first - 1) : place.last]
    what = state.task or f"mean over {watch.suite}"
    return WatchPage(
        watch=watch,
        facts=_facts(queries, watch),
        lead=_lead(watch),
        form=form(state, path, _controls(tasks, state)),
        chart=_chart(watch, values, what, state),
        notes=_notes(watch, values, state),
        paging=place,
        table=checkpoints_table(queries, watch, shown, state.task),
        data={
            "watch": {**watch.model_dump(mode="json", by_alias=True), "name": name},
            "points": [
                {"step": v.checkpoint.step, "value": v.value, "comparable": not v.apart} for v in values
            ],
        },
    )


def _facts(queries: Queries, watch: Watch) -> list[Fact]:
    found = suite_slug(queries, watch.suite)
    suite = f"/suites/{found}" if found else ""
    newest = max((one.evaluated for one in watch.checkpoints), default="")
    return [
        ("What is watched", watch.source, "", ""),
        ("Suite", watch.suite, suite, ""),
        ("Newest score", when_text(newest), "", ""),
    ]


def _lead(watch: Watch) -> str:
    curve, states = watch.curve, [one.state for one in watch.checkpoints]
    done = f"{states.count('done')} of {len(states)} checkpoints are measured"
    if not curve:
        return f"{done}."
    best = max(curve, key=lambda one: one.mean or 0.0)
    last = curve[-1]
    return (
        f"{done}; the last of them at step {last.step:,} with {score_text(last.mean)}, the best at "
        f"{best.step:,} with {score_text(best.mean)}."
    )


def _controls(tasks: Sequence[str], state: WatchState) -> list[Control]:
    found = []
    if tasks:
        options = [("", "the mean"), *((task, task) for task in tasks)]
        found.append(Control(kind="select", name="task", label="Curve of", value=state.task, options=options))
    scales = [("linear", "linear"), ("log", "logarithmic")]
    return [*found, Control(kind="select", name="scale", label="Steps", value=state.scale, options=scales)]


def _chart(watch: Watch, values: Sequence[Value], what: str, state: WatchState) -> Chart:
    changes = {change.step: change for change in watch.change_points} if not state.task else {}
    return chart(
        "curve",
        f"{what[:1].upper()}{what[1:]} against the step",
        Track(
            x=Axis(label="step", kind=state.scale),
            y=Axis(label=f"{'score' if state.task else 'mean'} × 100"),
            points=[_point(value, drop=value.checkpoint.step in changes) for value in values],
            tones=TONES,
            marks=[(float(c.step), f"−{100 * c.size:.2f}") for c in changes.values()],
            joined=True,
        ),
    )


def _point(value: Value, *, drop: bool) -> Point:
    one: Checkpoint = value.checkpoint
    return Point(
        label=one.name,
        x=float(one.step),
        y=None if value.value is None else 100 * value.value,
        series="drop of the level" if drop else "checkpoint",
        hollow=bool(value.apart),
        note=value.apart,
    )


def _notes(watch: Watch, values: Sequence[Value], state: WatchState) -> list[str]:
    found = []
    if any(value.apart for value in values if value.value is not None):
        found.append("Outlines are checkpoints that are not comparable with the others; the table says why.")
    if watch.change_points and not state.task:
        found.append("Upright lines are where the level dropped, with how far it is below what was expected.")
    return found


STATES = ("done", "partial", "waiting", "failed")


def watches_table(queries: Queries) -> Table:
    """Every watch, the one with the newest score first."""
    watches = queries.watches.values()
    return Table(
        name="watches",
        caption=f"{len(watches)} watch{'es' if len(watches) != 1 else ''} of pretraining runs",
        columns=[
            Column(key="name", label="Watch", sticky=True),
            Column(key="source", label="What is watched"),
            Column(key="suite", label="Suite"),
            *(Column(key=state, label=state, group="Checkpoints", numeric=True) for state in STATES),
            Column(key="step", label="Last step", numeric=True),
            Column(key="mean", label="Its mean", numeric=True),
            Column(key="best", label="Best mean", numeric=True),
            Column(key="changes", label="Drops at step"),
            Column(key="when", label="Newest score"),
        ],
        rows=[_list_row(queries, one) for one in watches],
    )


def _list_row(queries: Queries, one: WatchSummary) -> Row:
    found = suite_slug(queries, one.suite)
    suite = f"/suites/{found}" if found else ""
    changes = ", ".join(f"{step:,}" for step in one.changes)
    return Row(
        key=one.name,
        cells=[
            Cell(text=one.name, value=one.name, href=address(f"/watch/{one.name}")),
            Cell(text=one.source, value=one.source),
            Cell(text=one.suite, value=one.suite, href=suite),
            *(_state(one, state) for state in STATES),
            step_cell(one.step),
            Cell(text=score_text(one.mean), value=one.mean),
            Cell(text=score_text(one.best), value=one.best,
                 note="" if one.best_step is None else f"at step {one.best_step:,}"),
            Cell(text=changes or "–", value=changes or None, kind="regressed" if changes else ""),
            moment_cell(one.when),
        ],
    )  # fmt: skip


def step_cell(step: int | None, *, href: str = "") -> Cell:
    """The cell of a step."""
    return Cell(text="–" if step is None else f"{step:,}", value=step, href=href)


def _state(one: WatchSummary, state: str) -> Cell:
    number = one.states.get(state, 0)
    return Cell(text=str(number) if number else "–", value=number)


class WatchState(State):
    """What the page of a watch can be asked."""

    task: Text = Field("", description="The task whose scores are drawn; empty for the mean.")
    scale: Literal["linear", "log"] = Field("linear", description="How steps are laid out.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Checkpoints on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of checkpoints.")


def view(site: Site, state: WatchState, watch: str) -> Page:
    """The page of a watch."""
    known = site.queries.watches
    if watch not in known:
        raise missing("watch", watch, known, then="The page /watches lists all.")
    found: WatchPage = watch_page(
        site.queries, watch, opened(json.loads(site.queries.document("watch", watch))), state
    )
    return Page(
        title=found.watch.name,
        template="watch.html",
        lead=found.lead,
        crumbs=[*crumbs(site), Crumb(label="Watches", href="/watches")],
        tables=[found.table],
        data=found.data,
        context=found,
        charts=[found.chart],
    )


WATCH_PAGE = PageRoute(
    path="/watch/{watch}",
    state=WatchState,
    view=view,
    summary="A watch: the mean or a task's score against the step, and every checkpoint.",
    all_paths=lambda site: [f"/watch/{name}" for name in site.queries.watches],
)


def crumbs(site: Site) -> list[Crumb]:
    """The way to the list of watches: by the checks, where there are any."""
    return [Crumb(label="Checks", href="/checks")] if "check" in site.kinds else []


def watches_view(site: Site, state: State) -> Page:
    """The list of watches."""
    return Page(
        title="Watches",
        template="watches.html",
        lead="Pretraining runs whose checkpoints are measured as they come.",
        crumbs=crumbs(site),
        tables=[watches_table(site.queries)],
    )


WATCHES_PAGE = PageRoute(
    path="/watches",
    state=State,
    view=watches_view,
    summary="Every watch of a pretraining run: how far it is, and where its level dropped.",
    all_paths=lambda site: ["/watches"] if site.queries.watches else [],
)

PAGES = (
    WATCH_PAGE,
    WATCHES_PAGE,
)
