"""What the numbers are: origins, means, intervals, ranks, and why cells are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaderboard.data.imports import sources
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State
from leaderboard.web.tables import KINDS, Cell, Column, Kind, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


@dataclass(frozen=True, kw_only=True)
class About:
    """What the template takes: the kinds of cells by name."""

    kinds: list[tuple[str, Kind]]


def view(site: Site, state: State) -> Page:
    """The method page."""
    return Page(
        title="What the numbers are",
        template="about.html",
        lead="Where scores come from, which mean is which, and when models share a rank.",
        tables=[_sources(site)],
        context=About(kinds=list(KINDS.items())),
    )


def _sources(site: Site) -> Table:
    """Where the scores of this site come from, with how much there is."""
    rows = []
    measured = [e for e in site.queries.entries.values() if e.origin == "measured" and not e.of_seeds]
    rows.append(
        _row("measured", "records of this harness", len(measured), sum(e.tasks for e in measured), "")
    )
    for one in sources(site.settings.results):
        counts = one.counts
        commit = str(one.stamp.get("commit") or "")[:12]
        when = f"{str(one.stamp.get('when', ''))[:10]}{f', commit {commit}' if commit else ''}"
        rows.append(_row("imported", one.source, int(counts["entries"]), int(counts["files"]), when))
    for paper in site.papers.values():
        rows.append(_row("reported", paper.title, len(paper.tables), paper.numbers, str(paper.year)))
    return Table(
        name="sources",
        caption="Where the scores come from",
        columns=[
            Column(key="origin", label="Origin"),
            Column(key="name", label="Source", sticky=True),
            Column(key="entries", label="Entries or tables", numeric=True),
            Column(key="scores", label="Scores", numeric=True),
            Column(key="when", label="As of"),
        ],
        rows=rows,
    )


def _row(origin: str, name: str, entries: int, scores: int, when: str) -> Row:
    return Row(
        cells=[
            Cell(text=origin, value=origin, kind=origin),
            Cell(text=name, value=name),
            Cell(text=f"{entries:,}", value=entries),
            Cell(text=f"{scores:,}", value=scores),
            Cell(text=when, value=when or None),
        ]
    )


PAGE = PageRoute(
    path="/about",
    state=State,
    view=view,
    summary="What each origin, mean, interval and rank is.",
    all_paths=lambda site: ["/about"],
)

PAGES = (PAGE,)
