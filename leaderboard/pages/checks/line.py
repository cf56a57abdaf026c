"""One model line: its checks as a table and as a picture over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from harness.scores import delta_text
from leaderboard.judged import OVERALL, Judged, Mean
from leaderboard.pages.checks.lines import Line
from leaderboard.pages.checks.verdicts import TONES, moment_cell, said, verdict_cell, when_text
from leaderboard.paging import Paging, paging
from leaderboard.plots.shapes import Axis, Track, TrackPoint
from leaderboard.plots.track_plot import moment, track
from leaderboard.state import address
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.views.line import LineState

DRAWN = 200
"""Checks in the picture, the newest ones."""


@dataclass(frozen=True, kw_only=True)
class LinePage:
    """What the template of a model line takes.

    Attributes:
        line: Its checks.
        said: The newest verdicts in words.
        figures: A caption and a picture for each suite.
        paging: Where in the table the page is.
        table: The checks.
    """

    line: Line
    said: str
    figures: Sequence[tuple[str, Markup]]
    paging: Paging
    table: Table


def line_page(line: Line, state: LineState) -> LinePage:
    """The page of a line in a state."""
    place = paging(len(line.checks), state, line.path)
    suites = list(dict.fromkeys(mean.suite for check in line.checks[:DRAWN] for mean in check.means))
    return LinePage(
        line=line,
        said=said(line.checks[:5][::-1]),
        figures=[_figure(line, suite) for suite in suites],
        paging=place,
        table=_table(line, line.checks[max(0, place.first - 1) : place.last], suites),
    )


def _figure(line: Line, suite: str) -> tuple[str, Markup]:
    """The difference of a suite's mean over time, with the margin of the newest check."""
    shown = [(check, mean) for check in line.checks[:DRAWN] if (mean := _mean(check, suite))]
    margin = 100 * shown[0][1].margin
    plot = Track(
        title=f"{suite}: difference of the mean to {line.last.baseline}, check by check",
        x=Axis(label="time", kind="date"),
        y=Axis(label="difference of the mean × 100"),
        points=[_point(check, mean) for check, mean in shown],
        tones=TONES,
        band=(-margin, margin),
        band_label=f"the margin of the newest check, ±{margin:.2f}: a mean within it counts as equal",
    )
    more = f", the newest {DRAWN}" if len(line.checks) > DRAWN else ""
    return f"Difference of the mean over {suite}, with its interval{more}", track(plot)


def _mean(check: Judged, suite: str) -> Mean | None:
    return next((mean for mean in check.means if mean.suite == suite), None)


def _point(check: Judged, mean: Mean) -> TrackPoint:
    delta, low, high = (None if v is None else 100 * v for v in (mean.delta, mean.low, mean.high))
    return TrackPoint(
        label=check.candidate,
        x=moment(check.when),
        y=delta,
        low=low,
        high=high,
        tone=OVERALL.index(check.overall),
        href=address(f"/check/{check.name}"),
        note=f"checked {when_text(check.when)}",
    )


def _table(line: Line, checks: Sequence[Judged], suites: Sequence[str]) -> Table:
    return Table(
        name="history",
        caption=f"{len(line.checks):,} check{'s' if len(line.checks) != 1 else ''}, the newest first",
        columns=[
            Column(key="name", label="Candidate", sticky=True),
            Column(key="verdict", label="Verdict"),
            *(column for at, suite in enumerate(suites) for column in _mean_columns(at, suite)),
            *(Column(key=key, label=label, group="Tasks", numeric=True) for key, label, _ in COUNTS),
            Column(key="when", label="When"),
        ],
        rows=[_row(check, suites) for check in checks],
    )


def _mean_columns(at: int, suite: str) -> list[Column]:
    heads = (("delta", "Difference"), ("low", "from"), ("high", "to"))
    return [
        Column(key=f"{key}-{at}", label=label, group=f"Mean over {suite}", numeric=True)
        for key, label in heads
    ]


COUNTS = (
    ("regressed", "regressed", ("regressed",)),
    ("inconclusive", "inconclusive", ("inconclusive",)),
    ("open", "untested", ("missing", "not testable")),
    ("tasks", "of", ()),
)
"""Columns that count tasks: key, heading, verdicts; without verdicts all count."""


def _row(check: Judged, suites: Sequence[str]) -> Row:
    return Row(
        key=check.name,
        cells=[
            Cell(text=check.candidate, value=check.candidate, href=address(f"/check/{check.name}")),
            verdict_cell(check.overall),
            *(cell for suite in suites for cell in _mean_cells(_mean(check, suite))),
            *(_count(check, verdicts) for _, _, verdicts in COUNTS),
            moment_cell(check.when),
        ],
    )


def _mean_cells(mean: Mean | None) -> list[Cell]:
    if mean is None:
        return [EMPTY, EMPTY, EMPTY]
    return [Cell(text=delta_text(v), value=v) for v in (mean.delta, mean.low, mean.high)]


def _count(check: Judged, verdicts: Sequence[str]) -> Cell:
    number = sum(n for verdict, n in check.verdicts.items() if not verdicts or verdict in verdicts)
    return Cell(text=str(number), value=number)
