"""The page of all papers: who they are, where they differ, and their scores side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import Field

from harness.scores import score_text
from leaderboard.data.papers import (
    AVERAGE,
    OVER_TYPES,
    SCORES,
    SUITES,
    TYPES,
    Conflict,
    Paper,
    PaperTable,
    PaperValue,
    column_of,
    conflicts,
    key_of,
    plain,
    printed_suites,
    same_queries,
    title,
)
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import Means, SuiteMeans, SuiteScores, UntouchedMeans
from leaderboard.data.suites import scopes_of, views
from leaderboard.pages._paper_tables import Measured, paper_table, side_by_side, warnings
from leaderboard.pages._suite_table import choices_made, mean_of, untouched_note
from leaderboard.pages._training import recipes_of
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import State, Text
from leaderboard.web.tables import EMPTY, Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


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


def _prints(rows: Sequence[PaperValue], slug: str) -> Cell:
    """One paper's values, each with its table."""
    if not rows:
        return EMPTY
    text = "; ".join(f"{row.value} ({title(row.table)})" for row in rows)
    said = dict.fromkeys(
        f"{row.value}: {', '.join(filter(None, [row.model, row.setting, row.note]))}" for row in rows
    )
    href = f"{PATH}/{slug}#table-{key_of(rows[0].table)}"
    return Cell(text=text, value=text, kind="reported", note="; ".join(said), href=href)


OVER_TASKS = "mean over tasks"


def measured_lines(queries: Queries, paper: Paper, table: PaperTable) -> list[Measured]:
    """The cells of each measured entry of a table's models, or made of one; in the paper's unit, times 100.

    Only entries of the kind that the table is of: fine-tuned ones for GLUE, several vectors a text for
    ColBERT, one vector a text for the rest. Imported scores are none of these.
    """
    rows = [row for row in _clear(table.rows) if row.hub_id and row.unit in SCORES and row.suite in SUITES]
    found: dict[int, dict[tuple[str, str, str, str], Cell]] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        grid = _grid(queries, suite, paper.slug)
        if grid is None:
            continue
        own = {at: _own([row for row in rows if row.suite == suite], e) for at, e in _measured(grid)}
        shown = {at: rows for at, rows in own.items() if rows}
        beside = _Beside(grid=grid, untouched=grid.untouched(shown))
        for at, mine in shown.items():
            found.setdefault(grid.entries[at].id, {}).update(beside.cells(mine, at))
    return [cells for cells in found.values() if cells]


def _own(rows: Sequence[PaperValue], entry: Entry) -> list[PaperValue]:
    """The rows that an entry is measured for: of its model, or of what it was made of."""
    models = {entry.model, entry.backbone if entry.lineage else entry.model}
    return [row for row in rows if row.hub_id in models and _fits(row, entry)]


def _clear(rows: Sequence[PaperValue]) -> list[PaperValue]:
    """Rows without columns that have one plain name, such as the averages of two treatments of BEIR."""
    columns: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        columns.setdefault((row.suite, plain(row.suite, row.metric)), set()).add(row.metric)
    return [row for row in rows if len(columns[row.suite, plain(row.suite, row.metric)]) == 1]


def _grid(queries: Queries, printed: str, view: str) -> SuiteScores | None:
    """A printed suite of ours, by the paper's own convention where it has one."""
    listed = queries.suites.get(SUITES[printed])
    if listed is None:
        return None
    known = views(listed.suite)
    return queries.suite_scores(listed, view if view in known else known[0])


def _measured(grid: SuiteScores) -> Iterator[tuple[int, Entry]]:
    return ((at, entry) for at, entry in enumerate(grid.entries) if entry.origin == "measured")


def _fits(row: PaperValue, entry: Entry) -> bool:
    if row.suite.startswith("GLUE"):
        return entry.output == "label"
    several = "ColBERT" in f"{row.setting} {row.metric}"
    return entry.output == ("multivector" if several else "vector")


def _head(entry: Entry) -> Cell:
    made = entry.lineage.text if entry.lineage else entry.recipe or "as published"
    text = f"measured here, {made}"
    return Cell(text=text, value=text, note=entry.treatment, href=f"/models/{entry.model_slug}")


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """What a suite has for the rows of a table; `untouched` are the means without columns that chose one."""

    grid: SuiteScores
    untouched: UntouchedMeans | None

    def cells(self, rows: Sequence[PaperValue], at: int) -> dict[tuple[str, str, str, str], Cell]:
        """What an entry has of what `rows` print, and the head of its line."""
        others = self._other_queries(rows)
        found: dict[tuple[str, str, str, str], Cell] = {}
        for row in rows:
            own = {plain(row.suite, row.metric), OVER_TYPES, OVER_TASKS}
            cells = {
                (row.model, row.size_class, row.suite, name): self._cell(row, at, name, others)
                for name in own
            }
            known = {key: cell for key, cell in cells.items() if cell is not None}
            if known:
                head = (row.model, row.size_class, "", "")
                found |= {**known, head: _head(self.grid.entries[at])}
        return found

    @cached_property
    def _names(self) -> list[str]:
        return [column.name for column in self.grid.site_suite.suite.columns]

    def _column(self, row: PaperValue) -> str | None:
        metric = plain(row.suite, row.metric)
        return None if metric == AVERAGE else column_of(metric, self._names)

    def _other_queries(self, rows: Sequence[PaperValue]) -> list[str]:
        """The columns whose printed numbers are of other queries than ours."""
        columns = ((row, self._column(row)) for row in rows)
        return list(dict.fromkeys(name for row, name in columns if name and not same_queries(row, name)))

    def _cell(self, row: PaperValue, at: int, name: str, others: Sequence[str]) -> Cell | None:
        if name in (OVER_TASKS, OVER_TYPES):
            mteb = row.suite.startswith("MTEB(")
            return self._mean("tasks" if name == OVER_TASKS else "types", at) if mteb else None
        if row.suite.startswith("MTEB("):
            kind = TYPES.get(name, "")
            return self._mean(kind, at) if kind in self.grid.by_type else None
        if name == AVERAGE:
            cell = self._mean("tasks", at)
            return _of_others(cell, others) if cell and others else cell
        column = self._column(row)
        cell = self._score(at, self._names.index(column)) if column else None
        return _of_others(cell, [column]) if cell and column and column in others else cell

    def _mean(self, over: str, at: int) -> Cell | None:
        """A mean over tasks, types, or within a type, with that over the untouched columns in its text."""
        means, kind = _means(self.grid, over), "" if over in ("tasks", "types") else over
        if not means.complete[at]:
            return None
        cell = mean_of(_number(float(means.values[at]), ""), self.grid, at, kind)
        found = self.untouched
        if found is None or (kind and kind not in found.by_type):
            return cell
        other = _means(found, over)
        if not other.complete[at] or (kind and other.expected == means.expected):
            return cell
        notes = [*([cell.note] if cell.note else []), untouched_note(found)]
        text = f"{cell.text} ({score_text(float(other.values[at]))} untouched)"
        return replace(cell, text=text, note="; ".join(notes))

    def _score(self, at: int, column: int) -> Cell | None:
        grid = self.grid
        if not grid.counted[at, column]:
            return None
        low, high = float(grid.low[at, column]), float(grid.high[at, column])
        notes = [f"95 %: {score_text(low)} to {score_text(high)}."] if low == low else []
        notes += choices_made(grid.entries[at], scopes_of(grid.site_suite.suite.columns[column]))
        cell = _number(float(grid.values[at, column]), "; ".join(notes))
        return replace(cell, kind="selected") if grid.selected[at, column] else cell


def _of_others(cell: Cell, columns: Sequence[str]) -> Cell:
    """A number that the printed one is not to be compared with, as columns are of other queries there."""
    names = ", ".join(columns)
    note = f"measured here on {names}; the printed number is of other queries"
    notes = [*([cell.note] if cell.note else []), note]
    return replace(
        cell, text=f"{cell.text}, on {names}", kind=f"{cell.kind} other".strip(), note="; ".join(notes)
    )


def _means(means: SuiteMeans | SuiteScores, over: str) -> Means:
    named = {"tasks": means.over_tasks, "types": means.over_types}
    return named[over] if over in named else means.by_type[over]


def _number(value: float, note: str) -> Cell:
    return Cell(text=score_text(value), value=round(100 * value, 4), note=note)


RAW = (
    "Lines measured here are of the model as published: it was not fine-tuned as the paper did, so they show "
    "what the fine-tuning is worth and are no repetition."
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table on the page.

    Attributes:
        anchor: Where links lead to.
        heading: Above it.
        warnings: What would mislead a reader of the print, in sentences.
        table: The table without these.
    """

    anchor: str
    heading: str
    warnings: Sequence[str]
    table: Table


@dataclass(frozen=True, kw_only=True)
class PaperPage:
    """What the template takes.

    Attributes:
        facts: About the paper: name, value, URL.
        sections: Its tables.
        tables: The same for the twins, and its models.
        lead: What is there, in a sentence.
        data: For the JSON twin.
    """

    facts: Sequence[tuple[str, str, str]]
    sections: Sequence[Section]
    tables: Sequence[Table]
    lead: str
    data: Mapping[str, Any]


def paper_page(site: Site, paper: Paper) -> PaperPage:
    """The page of a paper."""
    pairs = [(one, _laid(site.queries, paper, one)) for one in paper.tables.values()]
    printed = paper.numbers
    count = f"{len(pairs)} tables" if len(pairs) > 1 else "One table"
    return PaperPage(
        facts=_facts(paper, printed),
        sections=[_section(paper, one, table) for one, table in pairs],
        tables=[*(table for _, table in pairs), models_table(site.queries, paper)],
        lead=f"{count} with {printed} printed numbers, as they stand in the paper.",
        data={
            "paper": paper.slug,
            "name": paper.name,
            "year": paper.year,
            "authors": paper.authors,
            "arxiv": paper.arxiv or None,
            "numbers": printed,
            "warnings": {f"table {one.id}": found for one, _ in pairs if (found := warnings(one))},
        },
    )


def _laid(queries: Queries, paper: Paper, table: PaperTable) -> Table:
    measured = measured_lines(queries, paper, table)
    found = paper_table(paper, table, *measured)
    heads = [cell.text for cells in measured for cell in cells.values()]
    return replace(found, notes=[*found.notes, RAW]) if any("as published" in h for h in heads) else found


def _section(paper: Paper, table: PaperTable, laid: Table) -> Section:
    told = warnings(table)
    own = replace(
        laid,
        caption=f"{table.numbers} numbers as printed",
        columns=[_grouped(column) for column in laid.columns],
        notes=[note for note in laid.notes if note not in told],
    )
    name = title(table.id)
    return Section(
        anchor=laid.name,
        heading=f"{name[0].upper()}{name[1:]}: {table.caption}",
        warnings=told,
        table=own,
    )


def _grouped(column: Column) -> Column:
    """Our means under one heading."""
    label = column.label.removesuffix(" (recomputed)")
    return column if label == column.label else replace(column, label=label, group="recomputed")


def _facts(paper: Paper, printed: int) -> list[tuple[str, str, str]]:
    recipes = recipes_of(paper)
    odd = sum(row.follows == "no" for row in paper.rows)
    checked = sum(bool(row.follows) for row in paper.rows)
    return [
        ("Authors", paper.authors, ""),
        ("Year", str(paper.year), ""),
        *([("arXiv", paper.arxiv, f"https://arxiv.org/abs/{paper.arxiv}")] if paper.arxiv else []),
        ("Printed numbers", str(printed), ""),
        *([("Made again", f"{checked - odd} of {checked} follow from others", "")] if checked else []),
        *(("Recipe", name, f"/recipes/{name}") for name in recipes),
    ]


def models_table(queries: Queries, paper: Paper) -> Table:
    """What the printed names stand for, and what is known of those models here."""
    names = dict.fromkeys((row.model, row.size_class, row.backbone, row.hub_id) for row in paper.rows)
    known = [name for name in names if name[3]]
    return Table(
        name="models",
        caption="What printed names stand for, where that is beyond doubt",
        columns=[
            Column(key="printed", label="Printed as", sticky=True),
            Column(key="backbone", label="Backbone"),
            Column(key="hub", label="On the hub"),
            Column(key="measured", label="Entries measured here", numeric=True),
            Column(key="imported", label="Entries imported", numeric=True),
        ],
        rows=[_model_row(queries, *name) for name in known],
    )


def _model_row(queries: Queries, model: str, size: str, backbone: str, hub: str) -> Row:
    entries = [entry for entry in queries.entries.values() if entry.model == hub]
    href = f"/models/{entries[0].model_slug}" if entries else ""
    printed = f"{model} {size}".strip()
    counts = [sum(e.origin == origin for e in entries) for origin in ("measured", "imported")]
    return Row(
        cells=[
            Cell(text=printed, value=printed),
            Cell(text=backbone, value=backbone),
            Cell(text=hub, value=hub, href=href),
            *(Cell(text=str(n) if n else "–", value=n, kind="" if n else "none") for n in counts),
        ]
    )


class PapersState(State):
    """What the list of papers can be asked."""

    suite: Text = Field("", description="The printed suite that is laid side by side.")


def view(site: Site, state: PapersState) -> Page:
    """The list of papers."""
    found = papers_page(site.papers, state)
    return Page(
        title="Papers",
        template="papers.html",
        lead=found.lead,
        tables=found.tables,
        context=found,
    )


LIST_PAGE = PageRoute(
    path="/papers",
    state=PapersState,
    view=view,
    summary="What papers print: the papers, what they differ in, and their scores side by side.",
    all_paths=lambda site: ["/papers"],
    formats=("json", "csv", "md", "tex"),
)


def paper_view(site: Site, state: State, paper: str) -> Page:
    """The page of a paper."""
    if paper not in site.papers:
        raise missing("paper", paper, site.papers, then="The page /papers lists all.")
    found = paper_page(site, site.papers[paper])
    return Page(
        title=site.papers[paper].title,
        template="paper.html",
        lead=found.lead,
        crumbs=[Crumb(label="Papers", href="/papers")],
        tables=found.tables,
        data=found.data,
        context=found,
    )


PAPER_PAGE = PageRoute(
    path="/papers/{paper}",
    state=State,
    view=paper_view,
    summary="A paper: every table as printed, with what was measured here below its lines.",
    all_paths=lambda site: [f"/papers/{slug}" for slug in site.papers],
    formats=("json", "csv", "md", "tex"),
)

PAGES = (
    LIST_PAGE,
    PAPER_PAGE,
)
