"""The checks that judged a model."""

from __future__ import annotations

from collections.abc import Sequence

from harness.scores import delta_text
from leaderboard.pages.checks.verdicts import moment_cell, verdict_cell
from leaderboard.queries import Entry, Queries
from leaderboard.state import address
from leaderboard.tables import Cell, Column, Row, Table

SHOWN = 10


def judged_table(queries: Queries, entries: Sequence[Entry]) -> Table | None:
    """The newest checks of a model's entries as candidates; None where there are none."""
    artifacts = dict.fromkeys(entry.artifact for entry in entries if entry.artifact)
    found = {check.name: check for key in artifacts for check in queries.judgements.get(key, ())}
    newest = sorted(found.values(), key=lambda check: check.when, reverse=True)[:SHOWN]
    if not newest:
        return None
    return Table(
        name="checks",
        caption=f"It was checked {_times(len(found))}" + (f"; the newest {SHOWN}" * (len(found) > SHOWN)),
        columns=[
            Column(key="name", label="Against", sticky=True),
            Column(key="suites", label="Suites"),
            Column(key="when", label="When"),
            Column(key="verdict", label="Verdict"),
            Column(key="delta", label="Difference of the mean", numeric=True),
        ],
        rows=[
            Row(
                key=check.name,
                cells=[
                    Cell(text=check.baseline, value=check.baseline, href=address(f"/check/{check.name}")),
                    Cell(text=", ".join(check.suites), value=", ".join(check.suites)),
                    moment_cell(check.when),
                    verdict_cell(check.overall),
                    _delta(check.means[0].delta if check.means else None),
                ],
            )
            for check in newest
        ],
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _delta(value: float | None) -> Cell:
    return Cell(text=delta_text(value), value=value)
