"""How a page is cited: its lasting address, a BibTeX entry, and what it says of each model in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import parse_qs

from pydantic import Field, StringConstraints

from leaderboard.web.formats import escape_tex
from leaderboard.web.marks import KINDS
from leaderboard.web.page import NotFound, Page, serve_page
from leaderboard.web.parameters import State, build_address
from leaderboard.web.site import TITLE, Site
from leaderboard.web.tables import Cell, values_table

CITED = ("rank", "ranked", "tasks", "types", "mean", "untouched", "score", "count", "value")
"""The columns whose numbers a sentence names."""


class _CiteState(State):
    """What the page takes."""

    of: Annotated[str, StringConstraints(max_length=512)] = Field(
        "/", description="The page to cite: its path and query."
    )


@serve_page("/cite", "A page's lasting address, BibTeX entry, and sentences to quote.", formats=())
def _show_citation(site: Site, state: _CiteState) -> Page:
    """The citation of a page."""
    snapshot = site.queries.snapshot
    if snapshot is None:
        raise NotFound("There is no snapshot to cite.", hint="The site shows no results folder.")
    path, _, query = state.of.partition("?")
    route, own, arguments = site.find_page(path, parse_qs(query, keep_blank_values=True), "json")
    page = route.view(site, own, **arguments)
    of = build_address(route.path.format(**arguments), own.build_filter_query())
    address = f"{site.settings.url or 'SITE'}/s/{snapshot.id}{of}"
    bibtex = (
        f"@misc{{{TITLE.split()[0].lower()}-{snapshot.id},\n  title = {{{escape_tex(page.title)}}},\n"
        f"  howpublished = {{{TITLE}, snapshot {snapshot.id}}},\n  year = {{{snapshot.made[:4]}}},\n"
        f"  url = {{{address}}},\n  note = {{As of {snapshot.made[:10]}}}\n}}"
    )
    sentences = [f"{text} ({site.as_of}, {address})" for text in _iter_sentences(page)]
    rows = [[Cell(text=text, value=text)] for text in sentences]
    return Page(
        title=f"Cite: {page.title}",
        template="cite.html",
        tables=[values_table("sentences", "Sentences to quote", {"sentence": "Sentence"}, rows)],
        context={"address": address, "bibtex": bibtex, "of": of},
    )


def _iter_sentences(page: Page) -> Iterator[str]:
    """What the first table of a page says of each row; of a page of one number what its lead says."""
    table = page.tables[0] if page.tables else None
    cited = [at for at, column in enumerate(table.columns) if column.key in CITED] if table else []
    what = f"{page.title}. {page.lead}".rstrip()
    if table is None or not cited:
        yield what
        return
    for row in (row for _, row in table.entries):
        names = [cell.text for column, cell in zip(table.columns, row.cells, strict=True) if column.names_row]
        numbers = []
        for at in cited:
            column, cell = table.columns[at], row.cells[at]
            if cell.text:
                numbers.append(f"{column.group} {column.label} {_format_cited(cell)}".strip())
        yield f"{' '.join(names)}: {', '.join(numbers)}. {what}"


def _format_cited(cell: Cell) -> str:
    """A number with its marks, and over how many tasks it is where these are not all."""
    marks = "".join(KINDS[kind].mark for kind in cell.kind.split() if kind in KINDS)
    return f"{cell.text}{marks}{f' ({cell.note})' if 'part' in cell.kind.split() and cell.note else ''}"
