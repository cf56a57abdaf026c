"""Checks: one in full, the line of those against one baseline, and the table of all lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

from pydantic import Field

from harness.checks.advice import SOURCES, describe_next_steps, describe_suspects
from harness.checks.outcome import VERDICTS, Check, CheckedModel, MeanOutcome, TaskOutcome
from harness.core.groups import group_by
from leaderboard.data.documents import OVERALL, CheckSummary, format_line_name
from leaderboard.data.queries import Entry, Queries
from leaderboard.views.cells import (
    build_delta_cell,
    build_score_cell,
    build_time_cell,
    format_count,
    format_time,
)
from leaderboard.views.documents import (
    build_marks_cell,
    build_verdict_cell,
    describe_verdicts,
    find_suite_path,
    iter_document_paths,
    load_document,
)
from leaderboard.views.task_scores import format_task_path, list_site_tasks
from leaderboard.web.charts import Axis, Chart, Point, Track, build_chart
from leaderboard.web.page import NotFound, Page
from leaderboard.web.page_state import State, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import (
    EMPTY,
    Cell,
    Table,
    TableRow,
    build_values_row,
    describe_value,
    link,
    values_table,
)

TONES = {
    "regressed": "bad", "inconclusive": "warn", "improved": "good", "passed": "series-1", "same": "series-1",
}  # fmt: skip
assert tuple(TONES) == OVERALL
TAGS = {**TONES, "passed": "good", "same": "good"}
EXITS = {0: "pass", 1: "regression, or missing scores", 3: "inconclusive"}
OUTCOME_HEADS = {
    "verdict": "Verdict", "delta": "Difference", "low": "from", "high": "to", "p": "p",
    "margin": "Allowed loss", "detectable": "Loss it can see", "candidate": "Candidate",
    "baseline": "Baseline",
}  # fmt: skip
"""What is known of a mean and of a task."""


@serve_page(
    "/check/{check}",
    "A check in full: verdict and why, means and tasks with their intervals, the policy.",
    paths=iter_document_paths("check", "/check"),
)
def _show_check(site: Site, state: State, check: str) -> Page:
    queries = site.queries
    ids = (one.name for one in queries.checks.values() if one.id == check)
    name = check if check in queries.checks else next(ids, check)
    outcome: Check = load_document(queries, "check", name, "check", PATH)
    line = build_address(f"/checks/{format_line_name(outcome)}")
    candidates, baselines = (
        [entry for entry in queries.entries.values() if entry.artifact in party.artifacts]
        for party in (outcome.candidate, outcome.baseline)
    )
    pair = _choose_pair(candidates, baselines, outcome.recipe)
    suites = {typed: find_suite_path(queries, typed) for typed in outcome.suites}
    compare, why = "", "" if pair else "Not both models have records on this site."
    if pair and pair[0] is pair[1]:
        why = "Both are one model here: the files are the same."
    elif pair:
        slugs = [suite.rpartition("/")[2] for suite in suites.values() if suite]
        compare = build_address("/compare", {"m": [pair[1].slug, pair[0].slug], "suite": slugs[:1]})
    sides = pair or (next(iter(candidates), None), next(iter(baselines), None))
    models = [build_address(f"/models/{e.model_slug}", {"entry": e.slug}) if e else "" for e in sides]
    settings = [(name, describe_value(value)) for name, value in outcome.policy.items()]
    labels = {"setting": "Setting", "value": "Value"}
    heads = {"name": "Suite", **OUTCOME_HEADS, "there": "Tasks tested", "wanted": "of"}
    rows = [_build_mean_row(mean, suites.get(mean.suite, "")) for mean in outcome.means]
    tables = [
        values_table("means", "Means over the tasks that were tested", heads, rows),
        _build_check_tasks(queries, outcome),
        values_table("policy", "The policy that decided", labels, settings),
    ]
    against = outcome.baseline.baseline or outcome.baseline.name
    return Page(
        title=f"{outcome.candidate.name} against {against}",
        lead=f"{outcome.overall.capitalize()} on {', '.join(outcome.suites) or 'no suite'}.",
        crumbs=[("Checks", "/checks"), (f"Against {against}", line)], tables=tables,
        data={"check": json.loads(queries.fetch_document("check", name)),
              "line": format_line_name(outcome), "compare": compare or None},
        notes=outcome.warnings,
        context={
            "check": outcome, "tone": TAGS[outcome.overall],
            "advice": describe_next_steps(outcome),
            "suspects": describe_suspects(outcome, most=sys.maxsize),
            "facts": [
                ("Candidate", outcome.candidate.name, models[0], _describe_party(outcome.candidate)),
                ("Baseline", against, models[1], _describe_party(outcome.baseline)),
                *(("Suite", typed, suite, "") for typed, suite in suites.items()),
                *([("Recipe", outcome.recipe, "", "")] if outcome.recipe else []),
                ("When", format_time(outcome.when), "", ""),
                ("Exit code", str(outcome.exit_code), "", EXITS.get(outcome.exit_code, "")),
            ],
            "compare": compare, "why": why, "line": line,
        },
    )  # fmt: skip


def _choose_pair(
    candidates: Sequence[Entry], baselines: Sequence[Entry], recipe: str
) -> tuple[Entry, Entry] | None:
    """An entry of each side: the same treatment first, then the check's recipe, then the most tasks."""

    def weigh_pair(pair: tuple[Entry, Entry]) -> tuple[bool, bool, int]:
        first, other = pair
        return first.treatment == other.treatment, (first.recipe or "") == recipe, first.tasks + other.tasks

    return max(product(candidates, baselines), key=weigh_pair, default=None)


def _describe_party(party: CheckedModel) -> str:
    """What tells one side from others of its name."""
    runs = f"{len(party.artifacts)} runs" if len(party.artifacts) > 1 else ""
    name = party.name if party.baseline else ""
    source = party.source if party.source not in (party.name, party.baseline) else ""
    revision = f"revision {party.revision[:12]}" if party.revision else ""
    return " · ".join(filter(None, (name, source, revision, runs)))


def _build_mean_row(mean: MeanOutcome, href: str) -> TableRow:
    lacking = mean.wanted - mean.there
    note = f"{lacking} of its tasks were not tested" if lacking > 0 else ""
    return build_values_row(
        link(mean.suite, href), build_verdict_cell(mean.verdict), *_show_numbers(mean),
        Cell(text=str(mean.there), value=mean.there, kind="part" if note else "", note=note), mean.wanted,
        key=mean.suite,
    )  # fmt: skip


def _show_numbers(outcome: MeanOutcome | TaskOutcome, pages: Sequence[str] = ("", "")) -> Iterator[Cell]:
    """What is known of a mean or a task; `pages` are those of the candidate's and the baseline's result."""
    yield from map(build_delta_cell, (outcome.delta, outcome.low, outcome.high))
    yield _build_p_value_cell(outcome.p)
    yield build_score_cell(outcome.margin, note=SOURCES[outcome.margin_source])
    yield build_score_cell(outcome.detectable)
    yield from map(build_score_cell, (outcome.candidate, outcome.baseline), pages)


def _build_check_tasks(queries: Queries, check: Check) -> Table:
    """The tasks, by verdict, collapsed ones and the largest losses first."""
    heads = {"name": "Task", **OUTCOME_HEADS, "units": "Units", "why": "Why, what would settle it"}
    keys = [*{k: 0 for task in check.tasks for k in (*task.candidate_keys, *task.baseline_keys)}]
    # In parts, as each key is a parameter of the query.
    parts = [queries.find_results(key=keys[at : at + 500]) for at in range(0, len(keys), 500)]
    results = {row.key or "": f"/results/{row.id}" for some in parts for row in some}
    task_names = list_site_tasks(queries)
    tasks = sorted(check.tasks, key=lambda t: (VERDICTS.index(t.verdict), not t.collapsed, t.delta or 0))
    rows = [
        _build_outcome_row(task, results, format_task_path(task.task) if task.task in task_names else "")
        for task in tasks
    ]
    return values_table("tasks", format_count(len(tasks), "task"), heads, rows)


def _build_outcome_row(task: TaskOutcome, results: Mapping[str, str], href: str) -> TableRow:
    what, units = f"{task.type}, {task.metric}", f"{task.units:,} {task.unit}".strip() if task.units else ""
    runs = "" if task.runs in ((0, 0), (1, 1)) else f", {task.runs[0]} against {task.runs[1]} runs"
    pages = [
        next((results[key] for key in keys if key in results), "")
        for keys in (task.candidate_keys, task.baseline_keys)
    ]
    collapsed = "collapsed" if task.collapsed else ""
    verdict = build_verdict_cell(
        task.verdict, note=what if task.must_not_regress else f"{what} · may regress"
    )
    why = " · ".join(filter(None, (collapsed, task.reason, task.to_settle))) or None
    cells = [verdict, *_show_numbers(task, pages), units + runs or None, why]
    return build_values_row(link(task.task, note=what, href=href), *cells, key=task.task)


def _build_p_value_cell(value: float | None) -> Cell:
    """A p-value with what decides of it.

    >>> _build_p_value_cell(0.00004).text, _build_p_value_cell(0.0312).text
    ('< 0.001', '0.031')
    """
    if value is None:
        return Cell(text="–")
    return Cell(text="< 0.001" if value < 0.001 else f"{value:.3f}", value=value)


PATH = "/checks"
MARKS, DRAWN = 20, 200
"""Checks in a row of marks, and in a chart: the newest ones."""

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
        template="documents.html",
        context={
            "empty": (
                "No check was made yet.",
                "A check compares a new checkpoint with a baseline. The results folder keeps its verdict:",
                "harness check --candidate MODEL --baseline MODEL --suite SUITE",
            ),
            "paging": place,
            "beside": ("Watches of pretraining runs", "/watches") if "watch" in site.kinds else None,
        },
    )


def _group_checks(queries: Queries) -> dict[str, list[CheckSummary]]:
    """The checks of every line, the newest first, by the line's name in URLs."""
    return group_by(queries.checks.values(), lambda check: check.line)


def _build_lines_table(lines: Sequence[Sequence[CheckSummary]], total: int) -> Table:
    recipes = any(line[0].recipe for line in lines)
    heads = {key: label for key, label in HEADS.items() if recipes or key != "recipe"}
    caption = f"{format_count(total, 'model line')}: a baseline, and what is compared with it"
    notes = ["▼ regressed, ? inconclusive, ▲ improved, ✓ passed, = the same; the newest on the right."]
    rows = [
        build_values_row(
            link(last.baseline, build_address(f"{PATH}/{last.line}"),
                 note="a named baseline" if last.named else "a model"),
            ", ".join(last.suites) or None, *([last.recipe or None] if recipes else []),
            build_verdict_cell(last.overall), build_delta_cell(last.means[0].delta if last.means else None),
            _link_candidate(last), build_time_cell(last.when), len(line),
            # A line has its newest check first; the marks are read from the oldest.
            build_marks_cell(line[:MARKS][::-1]), key=last.line,
        )
        for line in lines for last in line[:1]
    ]  # fmt: skip
    return values_table("lines", caption, heads, rows, notes=notes if lines else [])


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
        template="document.html",
        context={
            "command": ("Models trained by", last.recipe) if last.recipe else None,
            "plots": True, "paging": place, "what": "checks",
        },
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


def _find_suite_mean(check: CheckSummary, suite: str) -> MeanOutcome | None:
    return next((mean for mean in check.means if mean.suite == suite), None)


def _build_check_point(check: CheckSummary, mean: MeanOutcome) -> Point:
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
