"""What the numbers are: origins, means, intervals, ranks, and where the scores come from."""

from __future__ import annotations

from collections.abc import Iterator

from leaderboard.web.marks import KINDS
from leaderboard.web.page import Page, serve_page
from leaderboard.web.page_state import State
from leaderboard.web.site import Site
from leaderboard.web.tables import TableRow, build_values_row, link, values_table


@serve_page("/about", "What each origin, mean, interval and rank is.")
def _show_about(site: Site, state: State) -> Page:
    heads = {"origin": "Origin", "name": "Source", "entries": "Entries or tables", "scores": "Scores",
             "when": "As of"}  # fmt: skip
    return Page(
        title="What the numbers are",
        lead="Where scores come from, which mean is which, and when models share a rank.",
        tables=[values_table("sources", "Where the scores come from", heads, _iter_source_rows(site))],
        context=list(KINDS.items()),
    )


def _iter_source_rows(site: Site) -> Iterator[TableRow]:
    """Where the scores of this site come from, with how much there is."""
    # Without the entries over seeds: their members are counted one by one.
    measured = [e for e in site.queries.entries.values() if e.origin == "measured" and not e.of_seeds]
    yield _build_source_row(
        "measured", "records of this harness", len(measured), sum(e.tasks for e in measured), ""
    )
    for source in site.queries.list_imports():
        counts, commit = source.counts, str(source.stamp.get("commit") or "")[:12]
        when = f"{str(source.stamp.get('when', ''))[:10]}{f', commit {commit}' if commit else ''}"
        yield _build_source_row("imported", source.source, int(counts["entries"]), int(counts["files"]), when)
    for paper in site.papers.values():
        yield _build_source_row("reported", paper.title, len(paper.tables), paper.numbers, str(paper.year))


def _build_source_row(origin: str, name: str, entries: int, scores: int, when: str) -> TableRow:
    return build_values_row(link(origin, kind=origin), name, entries, scores, when or None)
