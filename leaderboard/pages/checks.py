"""Model lines: the checks against one baseline on the same suites, and the table of all lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from leaderboard.data.documents import OVERALL, CheckedMean, CheckSummary
from leaderboard.data.groups import group_by
from leaderboard.data.queries import Queries
from leaderboard.views.cells import build_delta_cell, build_time_cell, format_count, format_time
from leaderboard.views.check_tables import build_marks_cell, build_verdict_cell, describe_verdicts
from leaderboard.web.charts import Axis, Chart, Point, Track, build_chart
from leaderboard.web.page import NotFound, Page, serve_page
from leaderboard.web.page_state import State, build_address, build_paging
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, TableRow, build_values_row, link, values_table

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
def _show_checks(site: Site, state: _LineState) -> Page:
    lines = list(_group_checks(site.queries).values())
    place = build_paging(len(lines), state, PATH)
    return Page(
        title="Checks",
        lead="New checkpoints against their baselines: what got worse, what got better, what cannot be told.",
        tables=[_build_lines_table(place.cut(lines), len(lines))],
        data={"checks": len(site.queries.checks), "lines": len(lines)},
        context={"recipe": "", "paging": place},
    )


def _group_checks(queries: Queries) -> dict[str, list[CheckSummary]]:
    """The checks of every line, the newest first, by the line's name in URLs."""
    return group_by(queries.checks.values(), lambda check: check.line)


def _build_lines_table(lines: Sequence[Sequence[CheckSummary]], total: int) -> Table:
    recipes = any(line[0].recipe for line in lines)
    heads = {key: label for key, label in HEADS.items() if recipes or key != "recipe"}
    caption = f"{format_count(total, 'model line')}: a baseline, and what is compared with it"
    notes = ["▼ regressed, ? inconclusive, ▲ improved, ✓ passed, = the same; the newest on the right."]
    rows = [_build_line_row(line, recipes=recipes) for line in lines]
    return values_table("lines", caption, heads, rows, notes=notes if lines else [])


def _build_line_row(line: Sequence[CheckSummary], *, recipes: bool) -> TableRow:
    last = line[0]
    return build_values_row(
        link(last.baseline, build_address(f"{PATH}/{last.line}"),
             note="a named baseline" if last.named else "a model"),
        ", ".join(last.suites) or None,
        *([last.recipe or None] if recipes else []),
        build_verdict_cell(last.overall),
        build_delta_cell(last.means[0].delta if last.means else None),
        _link_candidate(last),
        build_time_cell(last.when),
        len(line),
        # A line has its newest check first; the marks are read from the oldest.
        build_marks_cell(line[:MARKS][::-1]),
        key=last.line,
    )  # fmt: skip


def _link_candidate(check: CheckSummary) -> Cell:
    return link(check.candidate, build_address(f"/check/{check.name}"))


@serve_page(
    f"{PATH}/{{line}}",
    "A model line: its checks over time, with the difference of the mean and its interval.",
    paths=lambda site: [f"{PATH}/{name}" for name in _group_checks(site.queries)],
)
def _show_model_line(site: Site, state: _LineState, line: str) -> Page:
    checks = _group_checks(site.queries).get(line)
    if checks is None:
        raise NotFound(f"No model line is called {line!r}.", hint=f"The page {PATH} lists all.")
    last, place = checks[0], build_paging(len(checks), state, build_address(f"{PATH}/{line}"))
    suites = list(dict.fromkeys(mean.suite for check in checks[:DRAWN] for mean in check.means))
    return Page(
        title=f"Against {last.baseline} on {', '.join(last.suites) or 'no suite'}",
        lead=f"Newest verdicts: {describe_verdicts(checks[:5][::-1])}.", crumbs=[("Checks", PATH)],
        tables=[_build_history_table(place.cut(checks), suites, len(checks))],
        charts=[_plot_line_means(checks, suite, at) for at, suite in enumerate(suites)],
        data={
            "line": line, "baseline": last.baseline, "named": last.named, "suites": list(last.suites),
            "recipe": last.recipe or None, "checks": len(checks),
        },
        context={"recipe": last.recipe, "paging": place},
    )  # fmt: skip


def _plot_line_means(checks: Sequence[CheckSummary], suite: str, at: int) -> Chart:
    """The difference of a suite's mean over time, with the margin of the newest check."""
    shown = [(check, mean) for check in checks[:DRAWN] if (mean := _find_suite_mean(check, suite))]
    margin = 100 * shown[0][1].margin
    plot = Track(
        x=Axis(label="time", kind="date"), y=Axis(label="difference of the mean × 100"), tones=TONES,
        points=[_build_check_point(check, mean) for check, mean in shown], band=(-margin, 0.0),
        band_label=f"the loss that the newest check allowed, {margin:.2f}: a mean surely above it has passed",
    )  # fmt: skip
    more = f", the newest {DRAWN}" if len(checks) > DRAWN else ""
    title = f"{suite}: difference of the mean to {checks[0].baseline}, with its interval{more}"
    return build_chart(f"means-{at}", title, plot)


def _find_suite_mean(check: CheckSummary, suite: str) -> CheckedMean | None:
    return next((mean for mean in check.means if mean.suite == suite), None)


def _build_check_point(check: CheckSummary, mean: CheckedMean) -> Point:
    delta, low, high = (None if v is None else 100 * v for v in (mean.delta, mean.low, mean.high))
    return Point(
        label=check.candidate, x=check.when, y=delta, low=low, high=high, series=check.overall,
        href=build_address(f"/check/{check.name}"), note=f"checked {format_time(check.when)}",
    )  # fmt: skip


def _build_history_table(checks: Sequence[CheckSummary], suites: Sequence[str], total: int) -> Table:
    heads, groups = {"name": "Candidate", "verdict": "Verdict"}, dict.fromkeys(COUNTS, "Tasks")
    for index, suite in enumerate(suites):
        columns = {f"delta-{index}": "Difference", f"low-{index}": "from", f"high-{index}": "to"}
        heads |= columns
        groups |= dict.fromkeys(columns, f"Mean over {suite}")
    heads |= {key: label for key, (label, _) in COUNTS.items()} | {"when": "When"}
    rows = [
        build_values_row(
            _link_candidate(check), build_verdict_cell(check.overall),
            *(build_delta_cell(getattr(mean, name)) if mean else EMPTY
              for mean in [_find_suite_mean(check, suite) for suite in suites]
              for name in ("delta", "low", "high")),
            *(sum(n for verdict, n in check.verdicts.items() if verdicts is None or verdict in verdicts)
              for _, verdicts in COUNTS.values()),
            build_time_cell(check.when), key=check.name,
        )
        for check in checks
    ]  # fmt: skip
    caption = f"{format_count(total, 'check')}, the newest first"
    return values_table("history", caption, heads, rows, groups=groups)
