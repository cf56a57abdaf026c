"""The page of a model: which entry it shows, and everything it says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from leaderboard.database import RESULTS
from leaderboard.grid import knownness
from leaderboard.page import missing
from leaderboard.pages.checks.of_model import judged_table
from leaderboard.pages.model.facts import Fact, Facts, Kin, facts_of, known_models
from leaderboard.pages.model.measured import measured_facts
from leaderboard.pages.model.printed import other_names, printed_rows, printed_table
from leaderboard.pages.model.results import Results, results_of
from leaderboard.pages.model.suites import Standing, answers_of, standings, suites_tables
from leaderboard.pages.model.training import Figure, SweepCurves, Trained, sweeps_of, trained_of
from leaderboard.pages.suite.cells import kinds_of, made_of
from leaderboard.queries import Entry, Queries
from leaderboard.tables import Cell, Column, Row, Table
from leaderboard.words import seeds_text

if TYPE_CHECKING:
    from leaderboard.site import Site
    from leaderboard.views.model import ModelState

KNOWN = {
    "measured": "known by the hash of its files", "commit": "pinned to a commit",
    "external": "told by its makers", "none": "no revision known",
    "other": "a revision that is no commit", "reported": "none is printed",
}  # fmt: skip
"""How far an entry's model is known, in words."""


@dataclass(frozen=True, kw_only=True)
class ModelPage:
    """What the template of a model takes.

    Attributes:
        tables: Those that have rows, in the page's order.
        lead: What there is, in a sentence.
        entry: The one that is shown.
        facts: Of the model.
        same: The names that papers give it, or the hub's.
        results: The task results.
        measured: How it was measured.
        remarks: Notes of the newest record.
        figures: Plots of its training.
        sweeps: Plots of the sweep that chose it.
        badges: Suite and Markdown of its badges.
        path: The page's own.
        data: For the JSON twin.
    """

    tables: Sequence[Table]
    lead: str
    entry: Entry
    facts: Facts
    same: Sequence[Kin]
    results: Results
    measured: Sequence[Fact]
    remarks: Sequence[str]
    figures: Sequence[Figure]
    sweeps: Sequence[Figure]
    badges: Sequence[tuple[str, str]]
    path: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> frozenset[str]:
        """The names of the tables."""
        return frozenset(table.name for table in self.tables)

    @property
    def parts(self) -> int:
        """How many suites stand in the folded table."""
        return sum(len(table.rows) for table in self.tables if table.name == "parts")


def model_page(site: Site, state: ModelState, entries: Sequence[Entry], path: str) -> ModelPage:
    """The page of a model.

    Raises:
        NotFound: The state names an entry, a type or a column that is none.
    """
    queries, name = site.queries, entries[0].model
    ordered = sorted(entries, key=_best, reverse=True)
    entry = _chosen(ordered, state.entry)
    answers = answers_of(queries, entry)
    found = standings(queries, entry, answers)
    rows = queries.results(entry=entry.id)
    documents = _documents(queries, entry, rows)
    trained = trained_of(documents, found)
    swept = sweeps_of([one.lineage for one in queries.members(entry) or [entry] if one.lineage])
    results = results_of(entry, rows, answers, trained.chosen, state, path)
    printed = printed_rows(site.papers, name)
    facts = facts_of(queries, name, ordered, entry)
    newest = _newest(documents)
    tables = [
        _entries_table(ordered, entry, state, path),
        *suites_tables(entry, found),
        judged_table(queries, ordered),
        trained.table,
        swept.table,
        results.table if rows else None,
        printed_table(printed, entry, found),
    ]
    return ModelPage(
        tables=[table for table in tables if table is not None],
        lead=_lead(ordered, entry, found),
        entry=entry,
        facts=facts,
        same=_same(queries, other_names(printed, name)),
        results=results,
        measured=measured_facts(entry, newest) if entry.origin == "measured" else [],
        remarks=_remarks(newest.get("provenance") or {}),
        figures=trained.figures,
        sweeps=swept.figures,
        badges=_badges(entry, found) if entry.origin != "reported" and not entry.member else [],
        path=path,
        data=_data(entry, facts, trained, swept, newest, printed),
    )


def _remarks(provenance: Mapping[str, Any]) -> list[str]:
    """What a record has to say of itself."""
    notes = provenance.get("notes")
    return [str(note) for note in notes] if isinstance(notes, list) else []


def _best(entry: Entry) -> tuple[Any, ...]:
    return (*knownness(entry), entry.slug)


def _chosen(ordered: Sequence[Entry], slug: str) -> Entry:
    if not slug:
        return ordered[0]
    known = {entry.slug: entry for entry in ordered}
    if slug not in known:
        raise missing("entry", slug, known, then="The model's page lists its entries.")
    return known[slug]


def _documents(queries: Queries, entry: Entry, rows: Sequence[Any]) -> dict[int, Mapping[str, Any]]:
    """Records of a measured entry by result: all where a recipe trained, else the newest."""
    if entry.origin != "measured" or not rows:
        return {}
    newest = max(rows, key=lambda row: row.written or "")
    wanted = select(RESULTS.c.id, RESULTS.c.document).where(
        RESULTS.c.entry == entry.id if entry.output == "label" else RESULTS.c.id == newest.id
    )
    with queries.reading() as connection:
        found = connection.execute(wanted.order_by(RESULTS.c.task, RESULTS.c.id)).all()
    return {row.id: json.loads(row.document) for row in found}


def _newest(documents: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    def written(one: Mapping[str, Any]) -> str:
        return str((one.get("provenance") or {}).get("written", ""))

    return max(documents.values(), key=written, default={})


def _entries_table(ordered: Sequence[Entry], chosen: Entry, state: ModelState, path: str) -> Table:
    columns = [
        Column(key="name", label="Entry", sticky=True),
        Column(key="origin", label="Origin"),
        Column(key="trust", label="Revision"),
        Column(key="treatment", label="Treatment"),
        Column(key="tasks", label="Tasks", numeric=True),
        Column(key="newest", label="Newest"),
    ]
    return Table(
        name="entries",
        caption=f"{len(ordered)} entries of this model; the shaded one is shown"
        if len(ordered) > 1
        else "The one entry of this model",
        columns=columns,
        rows=[_entry_row(entry, chosen, state, path) for entry in ordered],
    )


def _entry_row(entry: Entry, chosen: Entry, state: ModelState, path: str) -> Row:
    href = f"{path}?{state.query(entry=entry.slug, page=1, q='', type='')}"
    printed = entry.treatment.partition(":")[0]
    name = printed if entry.origin == "reported" else (entry.revision or entry.artifact or entry.slug)[:12]
    name = seeds_text(entry.seeds) if entry.seeds else name
    cells = [
        Cell(text=name, value=entry.slug, href=href, note=entry.revision or entry.slug, kind=kinds_of(entry)),
        Cell(text=entry.origin, value=entry.origin, kind=entry.origin, note=entry.source),
        Cell(text=KNOWN[entry.trust], value=entry.trust),
        Cell(text=made_of(entry) or entry.treatment or "not said", value=entry.treatment or None),
        Cell(text=str(entry.tasks), value=entry.tasks),
        Cell(text=(entry.newest or "")[:10], value=entry.newest),
    ]
    return Row(cells=cells, key=entry.slug, kind="pinned" if entry is chosen else "")


def _lead(ordered: Sequence[Entry], entry: Entry, found: Sequence[Standing]) -> str:
    entries = f"{len(ordered)} entries" if len(ordered) > 1 else "One entry"
    if entry.of_seeds:
        entries = f"{entries}, of which one is the mean over {len(entry.seeds)} seeds"
    suites = {one.listed.slug: bool(one.grid.over_tasks.complete[0]) for one in found}
    tasks = _counted(entry.tasks, "task result")
    what = "printed means" if entry.origin == "reported" and not entry.tasks else tasks
    return f"{entries}; the one shown is {entry.origin}, with {what}. {_of_suites(suites)}"


def _of_suites(suites: Mapping[str, bool]) -> str:
    """Of how many suites all is there, and of how many a part."""
    whole = sum(suites.values())
    part = len(suites) - whole
    if not suites:
        return "No suite asks for any of it."
    if not whole:
        return f"It has a part of {_counted(part, 'suite')}."
    also = f" and a part of {_counted(part, 'other')}" if part else ""
    return f"It has all of {_counted(whole, 'suite')}{also}."


def _counted(number: int, what: str) -> str:
    return {0: f"no {what}", 1: f"one {what}"}.get(number, f"{number:,} {what}s")


def _same(queries: Queries, names: Sequence[str]) -> list[Kin]:
    known = known_models(queries)
    return [Kin(name=name, href=f"/models/{known[name]}" if name in known else "") for name in names]


def _badges(entry: Entry, found: Sequence[Standing]) -> list[tuple[str, str]]:
    """Markdown of a badge for every suite of which all is there, or for the fullest one."""
    whole = [one for one in found if one.grid.over_tasks.complete[0]] or found[:1]
    titles = {one.listed.slug: one.listed.suite.title for one in whole}
    return [
        (title, f"[![{title}](SITE/badges/{slug}/{entry.slug}.svg)](SITE/models/{entry.model_slug})")
        for slug, title in titles.items()
    ]


def _data(
    entry: Entry,
    facts: Facts,
    trained: Trained,
    swept: SweepCurves,
    newest: Mapping[str, Any],
    printed: Sequence[Any],
) -> dict[str, Any]:
    return {
        "model": entry.model,
        "entry": entry.slug,
        "seeds": list(entry.seeds) or None,
        "lineage": entry.lineage.model_dump(mode="json") if entry.lineage else None,
        "facts": dict(facts.values),
        "made_of": [kin.name for kin in facts.up],
        "made_from_it": [kin.name for kin in facts.down],
        "training": list(trained.data),
        "sweeps": list(swept.data),
        "provenance": newest.get("provenance"),
        "printed": len(printed),
    }
