"""Model lines: the checks against one baseline on the same suites, and the table of all lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from harness.scores import delta_text
from leaderboard.data.checks import OVERALL, CheckSummary, Mean
from leaderboard.data.queries import Queries
from leaderboard.pages._check_tables import (
    TONES,
    marks_cell,
    moment_cell,
    said,
    verdict_cell,
    when_text,
)
from leaderboard.web.charts import Axis, Chart, Point, Track, chart
from leaderboard.web.filters import Control, Form, form
from leaderboard.web.page import Crumb, NotFound, Page, PageRoute
from leaderboard.web.parameters import Paging, State, Text, address, paging
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


PATH = "/checks"
SHOWN = 20
"""Verdicts in a row of marks."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The checks of one baseline, suites and recipe, the newest first; at least one."""

    checks: Sequence[CheckSummary]

    @property
    def last(self) -> CheckSummary:
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
    found: dict[str, list[CheckSummary]] = {}
    for check in queries.checks.values():
        found.setdefault(check.line, []).append(check)
    return {name: Line(checks=checks) for name, checks in found.items()}


def lines_page(queries: Queries, state: ChecksState) -> LinesPage:
    """The page of all lines in a state."""
    all_paths = lines_of(queries)
    kept = [line for line in all_paths.values() if _keeps(state, line.last)]
    place = paging(len(kept), state, PATH)
    shown = kept[max(0, place.first - 1) : place.last]
    return LinesPage(
        total=len(all_paths),
        checks=len(queries.checks),
        form=form(state, PATH, _controls(state, all_paths), chips=_chips(state)),
        paging=place,
        table=_table(shown, len(kept)),
    )


def _keeps(state: ChecksState, last: CheckSummary) -> bool:
    return (
        state.verdict in ("", last.overall)
        and state.baseline in ("", last.baseline)
        and (not state.suite or state.suite in last.suites)
    )


def _controls(state: ChecksState, all_paths: Mapping[str, Line]) -> list[Control]:
    lasts = [line.last for line in all_paths.values()]
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
    return Row(key=last.line, cells=cells)


DRAWN = 200
"""Checks in the picture, the newest ones."""


@dataclass(frozen=True, kw_only=True)
class LinePage:
    """What the template of a model line takes.

    Attributes:
        line: Its checks.
        said: The newest verdicts in words.
        charts: One for each suite.
        paging: Where in the table the page is.
        table: The checks.
    """

    line: Line
    said: str
    charts: Sequence[Chart]
    paging: Paging
    table: Table


def line_page(line: Line, state: LineState) -> LinePage:
    """The page of a line in a state."""
    place = paging(len(line.checks), state, line.path)
    suites = list(dict.fromkeys(mean.suite for check in line.checks[:DRAWN] for mean in check.means))
    return LinePage(
        line=line,
        said=said(line.checks[:5][::-1]),
        charts=[_chart(line, suite, at) for at, suite in enumerate(suites)],
        paging=place,
        table=_line_table(line, line.checks[max(0, place.first - 1) : place.last], suites),
    )


def _chart(line: Line, suite: str, at: int) -> Chart:
    """The difference of a suite's mean over time, with the margin of the newest check."""
    shown = [(check, mean) for check in line.checks[:DRAWN] if (mean := _mean(check, suite))]
    margin = 100 * shown[0][1].margin
    plot = Track(
        x=Axis(label="time", kind="date"),
        y=Axis(label="difference of the mean × 100"),
        points=[_point(check, mean) for check, mean in shown],
        tones=TONES,
        band=(-margin, margin),
        band_label=f"the margin of the newest check, ±{margin:.2f}: a mean within it counts as equal",
    )
    more = f", the newest {DRAWN}" if len(line.checks) > DRAWN else ""
    title = f"{suite}: difference of the mean to {line.last.baseline}, with its interval{more}"
    return chart(f"means-{at}", title, plot)


def _mean(check: CheckSummary, suite: str) -> Mean | None:
    return next((mean for mean in check.means if mean.suite == suite), None)


def _point(check: CheckSummary, mean: Mean) -> Point:
    delta, low, high = (None if v is None else 100 * v for v in (mean.delta, mean.low, mean.high))
    return Point(
        label=check.candidate,
        x=check.when,
        y=delta,
        low=low,
        high=high,
        series=check.overall,
        href=address(f"/check/{check.name}"),
        note=f"checked {when_text(check.when)}",
    )


def _line_table(line: Line, checks: Sequence[CheckSummary], suites: Sequence[str]) -> Table:
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
        rows=[_line_row(check, suites) for check in checks],
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


def _line_row(check: CheckSummary, suites: Sequence[str]) -> Row:
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


def _count(check: CheckSummary, verdicts: Sequence[str]) -> Cell:
    number = sum(n for verdict, n in check.verdicts.items() if not verdicts or verdict in verdicts)
    return Cell(text=str(number), value=number)


class ChecksState(State):
    """What the list of model lines can be asked."""

    verdict: Literal["", "regressed", "inconclusive", "improved", "equivalent"] = Field(
        "", description="Only lines whose last check has this verdict."
    )
    baseline: Text = Field("", description="Only lines against this baseline: its name, or the model's.")
    suite: Text = Field("", description="Only lines on this suite, as it was typed.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Lines on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of lines.")


def view(site: Site, state: ChecksState) -> Page:
    """The list of model lines."""
    found: LinesPage = lines_page(site.queries, state)
    return Page(
        title="Checks",
        template="checks.html",
        lead="New checkpoints against their baselines: what got worse, what got better, what cannot be told.",
        tables=[found.table],
        data={"checks": found.checks, "lines": found.total},
        context=found,
    )


LIST_PAGE = PageRoute(
    path=PATH,
    state=ChecksState,
    view=view,
    summary="Model lines: a baseline and its suites, with the verdicts of the checks against it.",
    all_paths=lambda site: [PATH] if site.queries.checks else [],
)


class LineState(State):
    """What the page of a model line can be asked."""

    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Checks on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of checks.")


def line_view(site: Site, state: LineState, line: str) -> Page:
    """The page of a model line."""
    lines = lines_of(site.queries)
    if line not in lines:
        raise NotFound(f"No model line is called {line!r}.", hint=f"The page {PATH} lists all.")
    found: LinePage = line_page(lines[line], state)
    last = lines[line].last
    return Page(
        title=lines[line].title,
        template="line.html",
        lead=f"Newest verdicts: {found.said}.",
        crumbs=[Crumb(label="Checks", href=PATH)],
        tables=[found.table],
        data={
            "line": line,
            "baseline": last.baseline,
            "named": last.named,
            "suites": list(last.suites),
            "recipe": last.recipe or None,
            "checks": len(lines[line].checks),
        },
        context=found,
        charts=found.charts,
    )


LINE_PAGE = PageRoute(
    path=f"{PATH}/{{line}}",
    state=LineState,
    view=line_view,
    summary="A model line: its checks over time, with the difference of the mean and its interval.",
    all_paths=lambda site: [f"{PATH}/{name}" for name in lines_of(site.queries)],
)

PAGES = (
    LIST_PAGE,
    LINE_PAGE,
)
