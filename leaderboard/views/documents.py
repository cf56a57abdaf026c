"""What the pages of documents share: lists of them, their addresses, and the checks of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from leaderboard.data.documents import CheckSummary, Kind, build_document_adapter
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.suites import format_slug
from leaderboard.views.cells import build_delta_cell, build_time_cell, format_count, format_time
from leaderboard.web.page import check_name
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


def iter_document_paths(kind: str, path: str) -> Callable[[Any], list[str]]:
    """What gives the addresses of the pages of a kind's documents, below a path."""
    return lambda site: [
        build_address(f"{path}/{facts['name']}") for facts in site.queries.list_document_facts(kind)
    ]


def load_document(queries: Queries, kind: Kind, name: str, what: str, path: str) -> Any:
    """A document by the name in an address.

    Args:
        queries: The site's queries.
        kind: The kind of document.
        name: Its name.
        what: What it is, in an error.
        path: The page that lists all.

    Raises:
        NotFound: No document has this name.
    """
    names = [facts["name"] for facts in queries.list_document_facts(kind)]
    check_name(what, name, names, then=f"The page {path} lists all.")
    return build_document_adapter(kind).validate_json(queries.fetch_document(kind, name))


def build_documents_table(
    facts: Sequence[Mapping[str, Any]],
    name: str,
    what: str,
    path: str,
    heads: Mapping[str, str],
    groups: Mapping[str, str] = {},
) -> Table:
    """The documents of a kind, of which each leads to its page below a path.

    Args:
        facts: What the list shows of each, plain values and cells, with its `name` and `when` it is of.
        name: The table's anchor.
        what: What one of them is.
        path: Where their pages are.
        heads: The headings by key, of which the first is `name` and the last `when`.
        groups: The headings over several columns.
    """
    rows = [
        build_values_row(
            link(one["name"], build_address(f"{path}/{one['name']}")),
            *(one[key] for key in [*heads][1:-1]), build_time_cell(one["when"]), key=one["name"],
        )
        for one in facts
    ]  # fmt: skip
    return values_table(name, format_count(len(rows), what), heads, rows, groups=groups)


def build_verdict_cell(verdict: str, *, note: str = "") -> Cell:
    """The cell of a verdict."""
    return link(verdict, kind=KINDS.get(verdict, ""), note=note)


def build_marks_cell(checks: Sequence[CheckSummary]) -> Cell:
    """The results of some checks as small marks, the oldest first."""
    texts = [(one.overall, f"{format_time(one.when)} {one.candidate}: {one.overall}") for one in checks]
    parts = [Cell(text=SIGNS[name], kind=KINDS.get(name, ""), note=note) for name, note in texts]
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
    artifacts = {entry.artifact for entry in entries}
    checks = [check for check in queries.checks.values() if not artifacts.isdisjoint(check.artifacts)]
    times = "once" if len(checks) == 1 else f"{len(checks):,} times"
    rows = [
        build_values_row(
            link(check.baseline, build_address(f"/check/{check.name}")), ", ".join(check.suites) or None,
            build_time_cell(check.when), build_verdict_cell(check.overall),
            build_delta_cell(check.means[0].delta if check.means else None), key=check.name,
        )
        for check in checks[:SHOWN]
    ]  # fmt: skip
    more = f"; the newest {SHOWN}" if len(checks) > SHOWN else ""
    heads = {"name": "Against", "suites": "Suites", "when": "When", "verdict": "Verdict",
             "delta": "Difference of the mean"}  # fmt: skip
    return values_table("checks", f"It was checked {times}{more}", heads, rows) if rows else None
