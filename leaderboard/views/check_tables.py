"""What the pages of checks share: cells of verdicts, and the checks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from leaderboard.data.documents import CheckSummary
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import format_slug
from leaderboard.views.cells import build_delta_cell, build_time_cell, format_time
from leaderboard.web.page_state import build_address
from leaderboard.web.tables import Cell, Table, build_values_row, link, values_table

KINDS = {
    "regressed": "regressed", "improved": "improved", "inconclusive": "unsure", "missing": "unsure",
    "not testable": "away",
}  # fmt: skip
"""The kind of a verdict's cell; those that passed are as any other."""
SIGNS = {"regressed": "▼", "inconclusive": "?", "improved": "▲", "passed": "✓", "same": "="}
SHOWN = 10
"""Checks on a model's page."""


def build_verdict_cell(verdict: str, *, note: str = "") -> Cell:
    """The cell of a verdict."""
    return link(verdict, kind=KINDS.get(verdict, ""), note=note)


def build_marks_cell(checks: Sequence[CheckSummary]) -> Cell:
    """The results of some checks as small marks, the oldest first."""
    parts = [
        Cell(
            text=SIGNS[one.overall],
            kind=KINDS.get(one.overall, ""),
            note=f"{format_time(one.when)} {one.candidate}: {one.overall}",
        )
        for one in checks
    ]
    text, value = " ".join(part.text for part in parts), ", ".join(one.overall for one in checks)
    return Cell(text=text, value=value, note=describe_verdicts(checks), parts=parts)


def describe_verdicts(checks: Sequence[CheckSummary]) -> str:
    """Verdicts in words, the oldest first: `passed 3 times, then regressed`."""
    runs = [(verdict, len(list(some))) for verdict, some in groupby(checks, key=lambda one: one.overall)]
    return ", then ".join(verdict if n == 1 else f"{verdict} {n} times" for verdict, n in runs)


def find_suite_path(queries: Queries, name: str) -> str:
    """The page of a suite as it calls itself, or as it was typed; empty where it has none."""
    typed = (one.slug for one in queries.suites.values() if name in (one.suite.name, one.typed))
    slug = format_slug(name) if format_slug(name) in queries.suites else next(typed, "")
    return build_address(f"/suites/{slug}") if slug else ""


def build_checks_table(queries: Queries, entries: Sequence[Entry]) -> Table | None:
    """The newest checks that had one of a model's entries as the candidate; None without any."""
    artifacts = dict.fromkeys(entry.artifact for entry in entries if entry.artifact)
    checks = {check.name: check for key in artifacts for check in queries.checks_of.get(key, ())}
    newest = sorted(checks.values(), key=lambda check: check.when, reverse=True)[:SHOWN]
    times = "once" if len(checks) == 1 else f"{len(checks):,} times"
    rows = [
        build_values_row(
            link(check.baseline, build_address(f"/check/{check.name}")), ", ".join(check.suites) or None,
            build_time_cell(check.when), build_verdict_cell(check.overall),
            build_delta_cell(check.means[0].delta if check.means else None), key=check.name,
        )
        for check in newest
    ]  # fmt: skip
    more = f"; the newest {SHOWN}" if len(checks) > SHOWN else ""
    heads = {"name": "Against", "suites": "Suites", "when": "When", "verdict": "Verdict",
             "delta": "Difference of the mean"}  # fmt: skip
    return values_table("checks", f"It was checked {times}{more}", heads, rows) if rows else None
