"""Model lines: the checks against one baseline on the same suites, and the table of all lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.scores import delta_text
from leaderboard.filters import Control, Form, form
from leaderboard.judged import OVERALL, Judged
from leaderboard.pages.checks.verdicts import marks_cell, marks_html, moment_cell, verdict_cell
from leaderboard.paging import Paging, paging
from leaderboard.queries import Queries
from leaderboard.render import cell_html
from leaderboard.state import address
from leaderboard.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.views.checks import ChecksState

PATH = "/checks"
SHOWN = 20
"""Verdicts in a row of marks."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The checks of one baseline, suites and recipe, the newest first; at least one."""

    checks: Sequence[Judged]

    @property
    def last(self) -> Judged:
        """The newest."""
        return self.checks[0]

    @property
    def path(self) -> str:
        """Its page."""
        return address(f"{PATH}/{self.last.line}")

    @property
    def title(self) -> str:
        """Against whom, on what."""
        return f"Against {self.last.baseline} on {', '.join(self.last.suites) or 'no suite'}"


@dataclass(frozen=True, kw_only=True)
class LinesPage:
    """What the template of all lines takes.

    Attributes:
        total: How many lines there are without filters.
        checks: How many checks there are.
        form: The filters.
        paging: Where in the table the page is.
        table: The lines.
    """

    total: int
    checks: int
    form: Form
    paging: Paging
    table: Table


def lines_of(queries: Queries) -> dict[str, Line]:
    """Every line by its name in URLs, the one with the newest check first."""
    found: dict[str, list[Judged]] = {}
    for check in queries.checks.values():
        found.setdefault(check.line, []).append(check)
    return {name: Line(checks=checks) for name, checks in found.items()}


def lines_page(queries: Queries, state: ChecksState) -> LinesPage:
    """The page of all lines in a state."""
    every = lines_of(queries)
    kept = [line for line in every.values() if _keeps(state, line.last)]
    place = paging(len(kept), state, PATH)
    shown = kept[max(0, place.first - 1) : place.last]
    return LinesPage(
        total=len(every),
        checks=len(queries.checks),
        form=form(state, PATH, _controls(state, every), chips=_chips(state)),
        paging=place,
        table=_table(shown, len(kept)),
    )


def _keeps(state: ChecksState, last: Judged) -> bool:
    return (
        state.verdict in ("", last.overall)
        and state.baseline in ("", last.baseline)
        and (not state.suite or state.suite in last.suites)
    )


def _controls(state: ChecksState, every: Mapping[str, Line]) -> list[Control]:
    lasts = [line.last for line in every.values()]
    offered: dict[str, tuple[str, Sequence[str]]] = {
        "verdict": ("Last verdict", [one for one in OVERALL if any(last.overall == one for last in lasts)]),
        "baseline": ("Baseline", sorted({last.baseline for last in lasts})),
        "suite": ("Suite", sorted({suite for last in lasts for suite in last.suites})),
    }
    return [
        Control(kind="select", name=name, label=label, value=getattr(state, name),
                options=[("", "any"), *((one, one) for one in values)])
        for name, (label, values) in offered.items() if len(values) > 1 or getattr(state, name)
    ]  # fmt: skip


def _chips(state: ChecksState) -> list[tuple[str, str]]:
    labels = {"verdict": "last {}", "baseline": "against {}", "suite": "on {}"}
    return [
        (label.format(value), f"{PATH}?{state.query(**{name: '', 'page': 1})}")
        for name, label in labels.items()
        if (value := getattr(state, name))
    ]


def _table(lines: Sequence[Line], total: int) -> Table:
    recipes = any(line.last.recipe for line in lines)
    columns = [
        Column(key="name", label="Baseline", sticky=True),
        Column(key="suites", label="Suites"),
        *([Column(key="recipe", label="Recipe")] if recipes else []),
        Column(key="verdict", label="Last verdict"),
        Column(key="delta", label="Difference of the mean", numeric=True,
               note="Of the last check's first suite, times 100."),
        Column(key="candidate", label="Last candidate"),
        Column(key="when", label="When"),
        Column(key="checks", label="Checks", numeric=True),
        Column(key="history", label=f"Last {SHOWN} verdicts", note="The newest on the right."),
    ]  # fmt: skip
    return Table(
        name="lines",
        caption=f"{total:,} model line{'s' if total != 1 else ''}: a baseline, and what is held against it",
        columns=columns,
        rows=[_row(line, columns) for line in lines],
        notes=["▼ regressed, ? inconclusive, ▲ improved, = equivalent."] if lines else [],
    )


def _row(line: Line, columns: Sequence[Column]) -> Row:
    last, newest = line.last, line.checks[:SHOWN][::-1]
    suites = ", ".join(last.suites)
    delta = last.means[0].delta if last.means else None
    recipe = Cell(text=last.recipe or "–", value=last.recipe or None)
    cells = [
        Cell(text=last.baseline, value=last.baseline, href=line.path,
             note="a named baseline" if last.named else "a model"),
        Cell(text=suites, value=suites),
        *([recipe] if any(column.key == "recipe" for column in columns) else []),
        verdict_cell(last.overall),
        Cell(text=delta_text(delta), value=delta),
        Cell(text=last.candidate, value=last.candidate, href=address(f"/check/{last.name}")),
        moment_cell(last.when),
        Cell(text=str(len(line.checks)), value=len(line.checks)),
        marks_cell(newest),
    ]  # fmt: skip
    own = zip(cells[2:-1], columns[2:-1], strict=True)
    drawn = [cell_html(cell, numeric=column.numeric) for cell, column in own]
    return Row(key=last.line, cells=cells, drawn="".join([*drawn, marks_html(newest)]))
