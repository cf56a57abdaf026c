"""The page of all papers: who they are, where they differ, and their scores side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leaderboard.page import missing
from leaderboard.reported.printed import SCORES, Paper, Printed, key_of, title
from leaderboard.reported.side_by_side import Conflict, conflicts, printed_suites, side_by_side
from leaderboard.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.views.papers import PapersState

PATH = "/papers"
COUNTS = {"year": "Year", "tables": "Tables", "numbers": "Numbers", "odd": "Do not follow"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """A paper on the list."""

    title: str
    href: str
    text: str
    meta: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class PapersPage:
    """What the template takes.

    Attributes:
        cards: The papers.
        tabs: The suites that several papers print: label, URL, current.
        side: The name of the table with their scores; empty where there are no papers.
        tables: The papers, the conflicts, the scores side by side.
        lead: What is there, in a sentence.
        differ: Whether any papers do.
    """

    cards: Sequence[Card]
    tabs: Sequence[tuple[str, str, bool]]
    side: str
    tables: Sequence[Table]
    lead: str
    differ: bool


def papers_page(papers: Mapping[str, Paper], state: PapersState) -> PapersPage:
    """The page of the papers.

    Raises:
        NotFound: No paper prints scores of the suite that the state names.
    """
    suites = printed_suites(papers)
    scored = dict.fromkeys(row.suite for paper in papers.values() for row in paper.rows if row.unit in SCORES)
    if state.suite and state.suite not in scored:
        raise missing("printed suite", state.suite, scored, then="The page /papers offers those there are.")
    chosen = state.suite or next(iter(suites), next(iter(scored), ""))
    side = [side_by_side(papers, chosen)] if chosen else []
    found = conflicts(papers)
    differ = [conflicts_table(papers, found)] if found else []
    printed = sum(paper.numbers for paper in papers.values())
    return PapersPage(
        cards=[_card(paper) for paper in papers.values()],
        tabs=[
            (suite, f"{PATH}?{state.query(suite=suite)}#side-by-side", suite == chosen)
            for suite in dict.fromkeys([*suites, chosen])
            if suite
        ],
        side=side[0].name if side else "",
        tables=[_papers_table(papers), *differ, *side],
        lead=f"{printed:,} numbers that {len(papers)} papers print, none of them measured here.",
        differ=bool(found),
    )


def _card(paper: Paper) -> Card:
    meta = [("Year", str(paper.year)), ("Tables", str(len(paper.tables))), ("Numbers", str(paper.numbers))]
    return Card(
        title=paper.name,
        href=f"{PATH}/{paper.slug}",
        text=f"{paper.title}. {paper.authors}",
        meta=[*meta, *([("Do not follow", str(odd))] if (odd := _odd(paper)) else [])],
    )


def _odd(paper: Paper) -> int:
    return sum(row.follows == "no" for row in paper.rows)


def _counts(paper: Paper) -> list[int]:
    return [paper.year, len(paper.tables), paper.numbers, _odd(paper)]


def _papers_table(papers: Mapping[str, Paper]) -> Table:
    return Table(
        name="papers",
        caption="The papers",
        columns=[
            Column(key="paper", label="Paper", sticky=True),
            Column(key="title", label="Title"),
            Column(key="authors", label="Authors"),
            *(Column(key=key, label=label, numeric=True) for key, label in COUNTS.items()),
        ],
        rows=[
            Row(
                key=paper.slug,
                cells=[
                    Cell(text=paper.name, value=paper.name, href=f"{PATH}/{paper.slug}"),
                    Cell(text=paper.title, value=paper.title),
                    Cell(text=paper.authors, value=paper.authors),
                    *(Cell(text=str(n), value=n) for n in _counts(paper)),
                ],
            )
            for paper in papers.values()
        ],
    )


def conflicts_table(papers: Mapping[str, Paper], found: Sequence[Conflict]) -> Table:
    """What papers print different values of, the furthest apart first."""
    names = {row.paper for one in found for row in one.prints}
    slugs = {paper.name: slug for slug, paper in papers.items() if paper.name in names}
    treated = any(one.treatment for one in found)
    return Table(
        name="conflicts",
        caption="What papers print different values of, for one backbone",
        columns=[
            Column(key="backbone", label="Backbone", sticky=True),
            Column(key="suite", label="Suite"),
            Column(key="metric", label="Score"),
            *([Column(key="treatment", label="Treatment")] if treated else []),
            Column(key="apart", label="Apart", numeric=True, note="The greatest less the least."),
            *(Column(key=f"paper-{slug}", label=name, href=f"{PATH}/{slug}") for name, slug in slugs.items()),
        ],
        rows=[_conflict_row(one, slugs, treated) for one in sorted(found, key=lambda one: -_apart(one))],
        notes=[
            "Values that differ by rounding alone are left out. Papers also copy from one another, take the "
            "test server's numbers, or fine-tune in their own way: a cell's note says what is known."
        ],
    )


def _apart(one: Conflict) -> float:
    numbers = [row.number for row in one.prints if row.number is not None]
    return round(max(numbers) - min(numbers), 6)


def _conflict_row(one: Conflict, slugs: Mapping[str, str], treated: bool) -> Row:
    texts = [one.backbone, one.suite, one.metric, *([one.treatment] if treated else [])]
    apart = _apart(one)
    return Row(
        cells=[
            *(Cell(text=text, value=text) for text in texts),
            Cell(text=f"{apart:.4g}", value=apart),
            *(_prints([row for row in one.prints if row.paper == name], slugs[name]) for name in slugs),
        ]
    )


def _prints(rows: Sequence[Printed], slug: str) -> Cell:
    """One paper's values, each with its table."""
    if not rows:
        return EMPTY
    text = "; ".join(f"{row.value} ({title(row.table)})" for row in rows)
    said = dict.fromkeys(
        f"{row.value}: {', '.join(filter(None, [row.model, row.setting, row.note]))}" for row in rows
    )
    href = f"{PATH}/{slug}#table-{key_of(rows[0].table)}"
    return Cell(text=text, value=text, kind="reported", note="; ".join(said), href=href)
