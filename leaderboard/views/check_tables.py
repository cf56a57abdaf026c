"""What the pages of checks share: cells of verdicts, and the checks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from leaderboard.data.documents import CheckSummary
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import slug
from leaderboard.views.cells import delta_cell, moment_cell, when_text
from leaderboard.web.parameters import address
from leaderboard.web.tables import Cell, Table, link, values_row, values_table

KINDS = {
    "regressed": "regressed", "improved": "improved", "inconclusive": "unsure", "missing": "unsure",
    "not testable": "away",
}  # fmt: skip
"""The kind of a verdict's cell; those that passed are as any other."""
SIGNS = {"regressed": "▼", "inconclusive": "?", "improved": "▲", "passed": "✓", "same": "="}
SHOWN = 10
"""Checks on a model's page."""


def verdict_cell(verdict: str, *, note: str = "") -> Cell:
    """The cell of a verdict."""
    return link(verdict, kind=KINDS.get(verdict, ""), note=note)


def marks_cell(checks: Sequence[CheckSummary]) -> Cell:
    """The results of some checks as small marks, the oldest first."""
    parts = [
        Cell(
            text=SIGNS[one.overall],
            kind=KINDS.get(one.overall, ""),
            note=f"{when_text(one.when)} {one.candidate}: {one.overall}",
        )
        for one in checks
    ]
    text, value = " ".join(part.text for part in parts), ", ".join(one.overall for one in checks)
    return Cell(text=text, value=value, note=verdicts_text(checks), parts=parts)


def verdicts_text(checks: Sequence[CheckSummary]) -> str:
    """Verdicts in words, the oldest first: `passed 3 times, then regressed`."""
    runs = [(verdict, len(list(some))) for verdict, some in groupby(checks, key=lambda one: one.overall)]
    return ", then ".join(verdict if n == 1 else f"{verdict} {n} times" for verdict, n in runs)


def suite_slug(queries: Queries, name: str) -> str:
    """The name in URLs of a suite as it calls itself, or as it was typed; empty where it has no page."""
    if slug(name) in queries.suites:
        return slug(name)
    return next((one.slug for one in queries.suites.values() if name in (one.suite.name, one.typed)), "")


def suite_path(queries: Queries, name: str) -> str:
    """The page of a suite; empty where it has none."""
    found = suite_slug(queries, name)
    return address(f"/suites/{found}") if found else ""


def judged_table(queries: Queries, entries: Sequence[Entry]) -> Table | None:
    """The newest checks of a model's entries as candidates; None where there are none."""
    artifacts = dict.fromkeys(entry.artifact for entry in entries if entry.artifact)
    found = {check.name: check for key in artifacts for check in queries.checks_of.get(key, ())}
    newest = sorted(found.values(), key=lambda check: check.when, reverse=True)[:SHOWN]
    times = "once" if len(found) == 1 else f"{len(found):,} times"
    rows = [
        values_row(
            link(check.baseline, address(f"/check/{check.name}")),
            ", ".join(check.suites) or None,
            moment_cell(check.when),
            verdict_cell(check.overall),
            delta_cell(check.means[0].delta if check.means else None),
            key=check.name,
        )
        for check in newest
    ]
    caption = f"It was checked {times}" + f"; the newest {SHOWN}" * (len(found) > SHOWN)
    heads = {"name": "Against", "suites": "Suites", "when": "When", "verdict": "Verdict",
             "delta": "Difference of the mean"}  # fmt: skip
    return values_table("checks", caption, heads, rows) if rows else None
