"""One watch: its curve, and every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from harness.scores import score_text
from harness.watch.state import Entry as Checkpoint
from harness.watch.state import Watch
from leaderboard.filters import Control, Form, form
from leaderboard.page import missing
from leaderboard.pages.checks.links import suite_slug
from leaderboard.pages.checks.verdicts import when_text
from leaderboard.pages.watch.checkpoints import checkpoints_table
from leaderboard.pages.watch.values import Value, values_of
from leaderboard.paging import Paging, paging
from leaderboard.plots.shapes import Axis, Tone, Track, TrackPoint
from leaderboard.plots.track_plot import track
from leaderboard.queries import Queries
from leaderboard.state import address
from leaderboard.tables import Table

if TYPE_CHECKING:
    from leaderboard.views.watch import WatchState

Fact = tuple[str, str, str, str]
"""Name, value, URL, and what must be known of it."""

TONES = (Tone(label="checkpoint", place=0), Tone(label="drop of the level", place=4, colour="tone-bad"))


@dataclass(frozen=True, kw_only=True)
class WatchPage:
    """What the template of a watch takes.

    Attributes:
        watch: The watch.
        facts: What is watched.
        lead: How far it is, in a sentence.
        form: The chooser of a task, and of the axis.
        caption: Of the picture.
        plot: The picture.
        notes: What must be read with it.
        paging: Where in the table the page is.
        table: The checkpoints.
        data: For the JSON twin.
    """

    watch: Watch
    facts: Sequence[Fact]
    lead: str
    form: Form
    caption: str
    plot: Markup
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
        caption=f"{what[:1].upper()}{what[1:]} against the step",
        plot=_plot(watch, values, what, state),
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


def _plot(watch: Watch, values: Sequence[Value], what: str, state: WatchState) -> Markup:
    changes = {change.step: change for change in watch.change_points} if not state.task else {}
    return track(
        Track(
            title=f"{watch.name}: {what} against the step",
            x=Axis(label="step", kind=state.scale),
            y=Axis(label=f"{'score' if state.task else 'mean'} × 100"),
            points=[_point(value, drop=value.checkpoint.step in changes) for value in values],
            tones=TONES,
            marks=[(float(c.step), f"−{100 * c.size:.2f}") for c in changes.values()],
            joined=True,
        )
    )


def _point(value: Value, *, drop: bool) -> TrackPoint:
    one: Checkpoint = value.checkpoint
    return TrackPoint(
        label=one.name,
        x=float(one.step),
        y=None if value.value is None else 100 * value.value,
        tone=1 if drop else 0,
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
