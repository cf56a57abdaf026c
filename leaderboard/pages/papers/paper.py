"""A paper's page: every table as printed, with what was measured here below its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from leaderboard import render
from leaderboard.pages.papers.measured import measured_lines
from leaderboard.pages.recipe.facts import recipes_of
from leaderboard.queries import Queries
from leaderboard.reported.layout import paper_table
from leaderboard.reported.notes import warnings
from leaderboard.reported.printed import Paper, PaperTable, title
from leaderboard.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.site import Site

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
        html: The table without these.
    """

    anchor: str
    heading: str
    warnings: Sequence[str]
    html: Markup


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
        html=render.html(own),
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
