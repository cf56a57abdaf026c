"""Model lines: the checks against one baseline on the same suites, and the table of all lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from leaderboard.data.documents import OVERALL, CheckedMean, CheckSummary
from leaderboard.data.queries import Queries
from leaderboard.views.cells import counted, delta_cell, moment_cell, when_text
from leaderboard.views.check_tables import marks_cell, verdict_cell, verdicts_text
from leaderboard.web.charts import Axis, Chart, Point, Track, chart
from leaderboard.web.page import Crumb, NotFound, Page, serve_page
from leaderboard.web.parameters import State, address, paging
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Table, TableRow, link, values_row, values_table

PATH = "/checks"
MARKS, DRAWN = 20, 200
"""Checks in a row of marks, and in a chart: the newest ones."""
TONES = {
    "regressed": "bad", "inconclusive": "warn", "improved": "good", "passed": "series-1", "same": "series-1",
}  # fmt: skip
assert tuple(TONES) == OVERALL

HEADS = {
    "name": "Baseline", "suites": "Suites", "recipe": "Recipe", "verdict": "Last verdict",
    "delta": "Difference of the mean", "candidate": "Last candidate", "when": "When", "checks": "Checks",
    "history": f"Last {MARKS} verdicts",
}  # fmt: skip
COUNTS = {
    "regressed": ("regressed", {"regressed"}),
    "inconclusive": ("inconclusive", {"inconclusive"}),
    "open": ("untested", {"missing", "not testable"}),
    "tasks": ("of", None),
}
"""Columns that count tasks: heading and verdicts; without verdicts all count."""


class _LineState(State):
    """The parameters of the page of a model line."""

    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


@serve_page(
    PATH,
    "Model lines: a baseline and its suites, with the verdicts of the checks against it.",
    paths=lambda site: [PATH] if site.queries.checks else [],
)
def _view(site: Site, state: _LineState) -> Page:
    """The list of model lines."""
    lines = list(_lines(site.queries).values())
    place = paging(len(lines), state, PATH)
    return Page(
        title="Checks",
        template="checks.html",
        lead="New checkpoints against their baselines: what got worse, what got better, what cannot be told.",
        tables=[_table(place.cut(lines), len(lines))],
        data={"checks": len(site.queries.checks), "lines": len(lines)},
        context={"recipe": "", "paging": place},
    )


def _lines(queries: Queries) -> dict[str, list[CheckSummary]]:
    """The checks of every line, the newest first, by the line's name in URLs."""
    found: dict[str, list[CheckSummary]] = {}
    for check in queries.checks.values():
        found.setdefault(check.line, []).append(check)
    return found


def _table(lines: Sequence[Sequence[CheckSummary]], total: int) -> Table:
    recipes = any(line[0].recipe for line in lines)
    heads = {key: label for key, label in HEADS.items() if recipes or key != "recipe"}
    caption = f"{counted(total, 'model line')}: a baseline, and what is compared with it"
    notes = ["▼ regressed, ? inconclusive, ▲ improved, ✓ passed, = the same; the newest on the right."]
    return values_table(
        "lines", caption, heads, [_row(line, recipes=recipes) for line in lines], notes=notes if lines else []
    )


def _row(line: Sequence[CheckSummary], *, recipes: bool) -> TableRow:
    last = line[0]
    return values_row(
        link(last.baseline, address(f"{PATH}/{last.line}"),
             note="a named baseline" if last.named else "a model"),
        ", ".join(last.suites) or None,
        *([last.recipe or None] if recipes else []),
        verdict_cell(last.overall),
        delta_cell(last.means[0].delta if last.means else None),
        _candidate(last),
        moment_cell(last.when),
        len(line),
        marks_cell(line[:MARKS][::-1]),
        key=last.line,
    )  # fmt: skip


def _candidate(check: CheckSummary) -> Cell:
    return link(check.candidate, address(f"/check/{check.name}"))


@serve_page(
    f"{PATH}/{{line}}",
    "A model line: its checks over time, with the difference of the mean and its interval.",
    paths=lambda site: [f"{PATH}/{name}" for name in _lines(site.queries)],
)
def _line_view(site: Site, state: _LineState, line: str) -> Page:
    """The page of a model line."""
    checks = _lines(site.queries).get(line)
    if checks is None:
        raise NotFound(f"No model line is called {line!r}.", hint=f"The page {PATH} lists all.")
    last, place = checks[0], paging(len(checks), state, address(f"{PATH}/{line}"))
    suites = list(dict.fromkeys(mean.suite for check in checks[:DRAWN] for mean in check.means))
    return Page(
        title=f"Against {last.baseline} on {', '.join(last.suites) or 'no suite'}",
        template="line.html",
        lead=f"Newest verdicts: {verdicts_text(checks[:5][::-1])}.",
        crumbs=[Crumb(label="Checks", href=PATH)],
        tables=[_history(place.cut(checks), suites, len(checks))],
        charts=[_chart(checks, suite, at) for at, suite in enumerate(suites)],
        data={
            "line": line, "baseline": last.baseline, "named": last.named, "suites": list(last.suites),
            "recipe": last.recipe or None, "checks": len(checks),
        },
        context={"recipe": last.recipe, "paging": place},
    )  # fmt: skip


def _chart(checks: Sequence[CheckSummary], suite: str, at: int) -> Chart:
    """The difference of a suite's mean over time, with the margin of the newest check."""
    shown = [(check, mean) for check in checks[:DRAWN] if (mean := _mean(check, suite))]
    margin = 100 * shown[0][1].margin
    plot = Track(
        x=Axis(label="time", kind="date"),
        y=Axis(label="difference of the mean × 100"),
        points=[_point(check, mean) for check, mean in shown],
        tones=TONES,
        band=(-margin, 0.0),
        band_label=f"the loss that the newest check allowed, {margin:.2f}: a mean surely above it has passed",
    )
    more = f", the newest {DRAWN}" if len(checks) > DRAWN else ""
    title = f"{suite}: difference of the mean to {checks[0].baseline}, with its interval{more}"
    return chart(f"means-{at}", title, plot)


def _mean(check: CheckSummary, suite: str) -> CheckedMean | None:
    return next((mean for mean in check.means if mean.suite == suite), None)


def _point(check: CheckSummary, mean: CheckedMean) -> Point:
    delta, low, high = (None if v is None else 100 * v for v in (mean.delta, mean.low, mean.high))
    return Point(
        label=check.candidate, x=check.when, y=delta, low=low, high=high, series=check.overall,
        href=address(f"/check/{check.name}"), note=f"checked {when_text(check.when)}",
    )  # fmt: skip


def _history(checks: Sequence[CheckSummary], suites: Sequence[str], total: int) -> Table:
    heads, groups = {"name": "Candidate", "verdict": "Verdict"}, dict.fromkeys(COUNTS, "Tasks")
    for at, suite in enumerate(suites):
        own = {f"delta-{at}": "Difference", f"low-{at}": "from", f"high-{at}": "to"}
        heads |= own
        groups |= dict.fromkeys(own, f"Mean over {suite}")
    heads |= {key: label for key, (label, _) in COUNTS.items()} | {"when": "When"}
    rows = [
        values_row(
            _candidate(check),
            verdict_cell(check.overall),
            *(cell for suite in suites for cell in _deltas(_mean(check, suite))),
            *(_count(check, verdicts) for _, verdicts in COUNTS.values()),
            moment_cell(check.when),
            key=check.name,
        )
        for check in checks
    ]
    return values_table("history", f"{counted(total, 'check')}, the newest first", heads, rows, groups=groups)


def _deltas(mean: CheckedMean | None) -> Iterator[Cell]:
    for name in ("delta", "low", "high"):
        yield delta_cell(getattr(mean, name)) if mean else Cell()


def _count(check: CheckSummary, verdicts: set[str] | None) -> int:
    return sum(n for verdict, n in check.verdicts.items() if verdicts is None or verdict in verdicts)
