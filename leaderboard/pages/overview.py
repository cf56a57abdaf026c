"""The overview: models x suites, and what a search finds beside models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from harness.scores import score_text
from leaderboard.data.entries import precedence
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import Means, SuiteScores, UntouchedMeans
from leaderboard.data.suites import views
from leaderboard.pages._suite_table import mean_of, model_cell, untouched_note
from leaderboard.pages._task_scores import task_path
from leaderboard.web.filters import Choices, EntryState, Form, chips, controls, form
from leaderboard.web.formats import over_seeds, parameters_text
from leaderboard.web.page import Page, PageRoute, missing
from leaderboard.web.parameters import Paging, Text, Texts, address, paging
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


FIRST = "mteb"
"""The suite that comes first, as it is the one that most ask for."""

USUAL = 8
"""Suites that are shown where none are picked."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What the template takes.

    Attributes:
        table: Models x suites.
        tiles: How much there is: label, value, URL.
        found: What a search found beside models: kind, and its (name, URL) pairs.
        form: The form above it, with the filters in force.
        paging: Where in the rows this page is.
    """

    table: Table
    tiles: Sequence[tuple[str, str, str]]
    found: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    form: Form
    paging: Paging


@dataclass(frozen=True, kw_only=True, eq=False)
class _Suite:
    """A suite's column: the row of each entry in its grid; of all columns, or of the untouched alone."""

    slug: str
    grid: SuiteScores
    rows: Mapping[int, int]
    untouched: UntouchedMeans | None = None

    @property
    def key(self) -> str:
        """The name that sorts by it."""
        return f"{self.slug}:untouched" if self.untouched else self.slug

    @property
    def label(self) -> str:
        """The heading."""
        more = f", {self.untouched.part.count} untouched" if self.untouched else ""
        return f"{self.grid.site_suite.suite.title}{more}"

    @property
    def means(self) -> Means:
        """The mean of each row."""
        return self.untouched.over_tasks if self.untouched else self.grid.over_tasks

    def row(self, entries: Sequence[Entry]) -> int | None:
        """The row of the entry that stands for a model; None where it has nothing."""
        there = self.grid.over_tasks.count
        rows = self.grid.one_for_each_model(self.rows[e.id] for e in entries if e.id in self.rows)
        return next((row for row in rows if there[row]), None)

    def mean(self, entries: Sequence[Entry]) -> tuple[float, int, int] | None:
        """The mean of the entry that stands for a model, how many columns that is of, and its row."""
        row, means = self.row(entries), self.means
        if row is None or not means.count[row]:
            return None
        return float(means.values[row]), int(means.count[row]), row


def overview(
    queries: Queries, state: OverviewState, papers: Mapping[str, str], tiles: Sequence[tuple[str, str, str]]
) -> Overview:
    """The overview in a state; `papers` are their titles by slug.

    Raises:
        NotFound: The state names a suite that is none, or sorts by one that is not shown.
    """
    shown = _shown(queries, state)
    models = _models(queries, state)
    columns = [column for slug in shown for column in _suite(queries, slug, models)]
    ordered = _ordered(models, columns, state)
    where = paging(len(ordered), state, "/")
    first = max(where.first - 1, 0)
    return Overview(
        table=Table(
            name="models",
            caption="Means over a suite's tasks, scores × 100",
            columns=_columns(columns, state),
            rows=[_row(models[slug], columns) for slug in ordered[first : where.last]],
            notes=[
                "A mean stands where every column of a suite is there; else it says how many are. Each cell "
                "is of one revision under one treatment: the one with most of that suite.",
                *(
                    f"{c.grid.site_suite.suite.title}: {untouched_note(c.untouched)}"
                    for c in columns
                    if c.untouched
                ),
            ],
        ),
        tiles=tiles,
        found=_found(queries, state.q, papers),
        form=form(
            state,
            "/",
            controls(state, queries.entries.values()),
            chips=chips(state, "/"),
            columns=_choices(queries, shown),
        ),
        paging=where,
    )


def _models(queries: Queries, state: OverviewState) -> dict[str, list[Entry]]:
    """The entries of each model that pass the filters; rows of papers, if asked for, each alone."""
    found: dict[str, list[Entry]] = {}
    for entry in queries.entries.values():
        printed = entry.origin == "reported"
        if state.keeps(entry) and (not printed or state.origin == "reported"):
            found.setdefault(entry.slug if printed else entry.model_slug, []).append(entry)
    return found


def _size(entries: Sequence[Entry]) -> int | None:
    """The number of parameters that some entry of a model tells."""
    return next((entry.parameters for entry in entries if entry.parameters), None)


def _shown(queries: Queries, state: OverviewState) -> list[str]:
    usual = _usual(queries)
    for slug in state.cols:
        if slug not in queries.suites:
            raise missing("suite", slug, queries.suites, then="The page /suites lists all.")
    return list(dict.fromkeys(state.cols)) or usual


def _usual(queries: Queries) -> list[str]:
    known = queries.entries_of_suites
    ordered = sorted(known, key=lambda slug: (slug != FIRST, not queries.suites[slug].main, -known[slug]))
    return ordered[:USUAL]


def _suite(queries: Queries, slug: str, models: Mapping[str, Sequence[Entry]]) -> list[_Suite]:
    """A suite's column, and where tasks of it chose a model shown, that of the mean over the others."""
    listed = queries.suites[slug]
    grid = queries.suite_scores(listed, views(listed.suite)[0], pinned=True)
    found = _Suite(slug=slug, grid=grid, rows={entry.id: row for row, entry in enumerate(grid.entries)})
    if not grid.selected.any():
        return [found]
    rows = [row for entries in models.values() if (row := found.row(entries)) is not None]
    untouched = grid.untouched(rows)
    return [found, *([replace(found, untouched=untouched)] if untouched else [])]


def _ordered(models: Mapping[str, list[Entry]], columns: Sequence[_Suite], state: OverviewState) -> list[str]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-") or not state.sort
    if key == "model":
        return sorted(models, key=lambda slug: models[slug][0].model.casefold(), reverse=down)
    if key == "parameters":
        sizes = {slug: _size(entries) for slug, entries in models.items()}
        known = sorted((s for s in models if sizes[s] is not None), key=lambda s: sizes[s] or 0, reverse=down)
        return [*known, *(slug for slug in models if sizes[slug] is None)]
    if key == "tasks":
        tasks = {slug: sum(e.tasks for e in some if not e.of_seeds) for slug, some in models.items()}
        return sorted(models, key=tasks.__getitem__, reverse=down)
    by = {column.key: column for column in columns}
    key = key if key in by else key.removesuffix(":untouched")
    if key and key not in by:
        raise missing(
            "column", key, [*by, "model", "parameters", "tasks"], then="Click a heading to sort by it."
        )
    column = by[key] if key else next(iter(columns), None)
    if column is None:
        return sorted(models)
    means = {slug: column.mean(entries) for slug, entries in models.items()}

    def rank(slug: str) -> tuple[int, int, float, str]:
        found = means[slug]
        if found is None:
            return (2, 0, 0.0, slug)
        value, there, _ = found
        whole = there == column.means.expected
        return (0 if whole else 1, 0 if whole else -there, -value if down or not whole else value, slug)

    return sorted(models, key=rank)


def _columns(columns: Sequence[_Suite], state: OverviewState) -> list[Column]:
    keys = [column.key for column in columns]
    current = state.sort.removeprefix("-") or next(iter(keys), "")
    current = current if current in keys else current.removesuffix(":untouched")

    def heading(key: str, label: str, *, down: bool = True, **more: object) -> Column:
        is_down = state.sort.startswith("-") or not state.sort
        wanted = (f"-{key}" if down else key) if key != current else (key if is_down else f"-{key}")
        return Column(
            key=key, label=label, sort=address("/", state.query(sort=wanted, page=1)),
            sorted=("descending" if is_down else "ascending") if key == current else "", **more,  # type: ignore[arg-type]
        )  # fmt: skip

    return [
        heading("model", "Model", down=False, sticky=True),
        heading("parameters", "Size", numeric=True),
        Column(key="origin", label="Origin"),
        heading("tasks", "Tasks", numeric=True, note="Scores that are known, of any task."),
        *(
            heading(
                c.key,
                c.label,
                numeric=True,
                href=f"/suites/{c.slug}",
                group="mean over tasks",
            )
            for c in columns
        ),
    ]


def _row(entries: Sequence[Entry], columns: Sequence[_Suite]) -> Row:
    first = max(entries, key=precedence) if entries[0].lineage else entries[0]
    origins = list(dict.fromkeys(entry.origin for entry in entries))
    known = _size(entries)
    tasks = sum(entry.tasks for entry in entries if not entry.of_seeds)
    return Row(
        cells=[
            model_cell(first),
            Cell(text=parameters_text(known), value=known),
            Cell(text=", ".join(origins), value=", ".join(origins), kind=origins[0]),
            Cell(text=str(tasks), value=tasks),
            *(_cell(column, entries) for column in columns),
        ]
    )


def _cell(column: _Suite, entries: Sequence[Entry]) -> Cell:
    found = column.mean(entries)
    if found is None:
        trained = all(entry.output == "label" for entry in entries)
        learnt = any(task.output == "label" for task in column.grid.site_suite.suite.tasks)
        return Cell(text="·", kind="away") if trained and not learnt else Cell(text="–", kind="none")
    value, there, row = found
    means = column.means
    if there < means.expected:
        return Cell(text=f"{there}/{means.expected}", value=None, kind="part")
    cell = Cell(text=score_text(value), value=value)
    cell = over_seeds(cell, float(means.deviations[row]), column.grid.entries[row].seeds)
    return cell if column.untouched else mean_of(cell, column.grid, row)


def _choices(queries: Queries, shown: Sequence[str]) -> Choices:
    known, usual = queries.entries_of_suites, _usual(queries)
    groups: dict[str, list[tuple[str, str, bool, bool]]] = {"Main suites": [], "Benchmarks": []}
    for slug in sorted(known, key=lambda s: queries.suites[s].suite.title.casefold()):
        one = queries.suites[slug]
        group = groups["Main suites" if one.main else "Benchmarks"]
        group.append((slug, one.suite.title, slug in shown, slug in usual))
    return Choices(name="cols", groups=[(label, keys) for label, keys in groups.items() if keys])


def _found(
    queries: Queries, q: str, papers: Mapping[str, str]
) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """Suites, tasks and papers whose name holds what was searched for."""
    if not q:
        return []
    text = q.casefold()
    kinds = {
        "Suites": [(s.suite.title, f"/suites/{s.slug}") for s in queries.suites.values()],
        "Tasks": [(name, task_path(name)) for name in queries.tasks],
        "Papers": [(title, f"/papers/{slug}") for slug, title in papers.items()],
    }
    hits = {kind: [pair for pair in pairs if text in pair[0].casefold()] for kind, pairs in kinds.items()}
    return [(kind, pairs[:20]) for kind, pairs in hits.items() if pairs]


class OverviewState(EntryState):
    """What the overview can be asked."""

    cols: Texts = Field([], description="Only these suites; none named shows the main ones.")
    sort: Text = Field("", description="A column's key; with - in front the highest first.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")


def view(site: Site, state: OverviewState) -> Page:
    """The first page."""
    papers = {slug: paper.title for slug, paper in site.papers.items()}
    found = overview(site.queries, state, papers, _tiles(site))
    return Page(
        title="Which encoder?",
        template="overview.html",
        lead="What is known of text encoders downstream, how well it is known, and what is not comparable.",
        tables=[found.table],
        data={"found": {kind: [name for name, _ in pairs] for kind, pairs in found.found}},
        context=found,
    )


def _tiles(site: Site) -> list[tuple[str, str, str]]:
    entries = site.queries.entries.values()
    results = {
        origin: sum(e.tasks for e in entries if e.origin == origin and not e.of_seeds)
        for origin in ("measured", "imported")
    }
    printed = sum(paper.numbers for paper in site.papers.values())
    return [
        ("models", f"{len(site.queries.models):,}", ""),
        ("scores measured", f"{results['measured']:,}", "/?origin=measured"),
        ("scores imported", f"{results['imported']:,}", "/?origin=imported"),
        ("numbers printed in papers", f"{printed:,}", "/papers"),
        ("suites with scores", f"{len(site.queries.entries_of_suites):,}", "/suites"),
    ]


PAGE = PageRoute(
    path="/",
    state=OverviewState,
    view=view,
    summary="Models x suites: the mean over each suite's tasks where all of them are there.",
    all_paths=lambda site: ["/"],
)

PAGES = (PAGE,)
