"""The table of a watch's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.scores import score_text
from harness.watch.state import ChangePoint, Watch
from leaderboard.pages.checks.verdicts import moment_cell
from leaderboard.pages.task.names import task_path
from leaderboard.pages.watch.list import step_cell
from leaderboard.pages.watch.values import Value
from leaderboard.queries import Queries
from leaderboard.state import address
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

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
