"""All watches."""

from __future__ import annotations

from harness.scores import score_text
from leaderboard.pages.checks.links import suite_slug
from leaderboard.pages.checks.verdicts import moment_cell
from leaderboard.queries import Queries
from leaderboard.state import address
from leaderboard.tables import Cell, Column, Row, Table
from leaderboard.watched import Watched

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
        rows=[_row(queries, one) for one in watches],
    )


def _row(queries: Queries, one: Watched) -> Row:
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


def _state(one: Watched, state: str) -> Cell:
    number = one.states.get(state, 0)
    return Cell(text=str(number) if number else "–", value=number)
