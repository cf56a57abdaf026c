"""The site as plain files: where its pages lie, and tables whose rows repeat nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

from markupsafe import Markup, escape

from harness.core.terminal import clean_text
from leaderboard.data.queries import Card, Queries
from leaderboard.web.filters import FACTS
from leaderboard.web.page_state import FilterForm, State
from leaderboard.web.routes import PageRoute
from leaderboard.web.tables import Cell, Table, TableRow, mark_row_heads

LINK = re.compile(rb'(href|src|action)="(/[^"]*)"')
STATES = re.compile(r"(?:^|[&;])(?:view|variant|task|beside|m)=")
"""What in a query makes another page, of which there is no file."""

UNQUOTED = re.compile(r"[\w.+,()@/#?=&;-]+")
"""Values of attributes that need no quotes."""


class PlainFiles:
    """The files of a site that is written: pages of results that were imported are not among them."""

    def __init__(self, pages: Iterable[tuple[PageRoute, str]], queries: Queries) -> None:
        self.files = {path: _locate_page(route, path) for route, path in pages}
        self._downloads = {
            f"{path.rstrip('/') or '/index'}.{form}": f"{name_file(path)}.{form}"
            for route, path in pages
            for form in route.formats
        }
        self._numbers = {entry.slug: number for number, entry in enumerate(queries.entries.values())}

    def keep_controls(self, form: FilterForm, table: Table, state: State) -> FilterForm:
        """A form with the controls that a browser answers by the rows of a table, and by their entries."""
        keys = {column.key for column in table.columns}
        names = {"q", *keys, *(["zero"] if "unseen" in keys else ())}
        names |= FACTS.keys() if any(row.key in self._numbers for row in table.rows) else set()
        # What a list asks for are tasks, and a ranking over others needs a server.
        names -= {name for name, value in state if isinstance(value, list)}
        controls = [control for control in form.controls if table.rows and control.name in names]
        return replace(form, controls=controls, hidden=(), reset=form.path)

    def find_file(self, address: str) -> str | None:
        """The file of an address of the site, with what of its query works there; None for another state."""
        path, _, fragment = address.partition("#")
        path, _, query = path.partition("?")
        path = unquote(path)
        file = path[1:] if path.startswith("/static/") else self.files.get(path) or self._downloads.get(path)
        if not query.startswith("q=") and STATES.search(query):
            return None
        # A part of a name filters in the browser, too.
        more = f"?{query}" if query.startswith("q=") else ""
        return file and f"{file}{more}{f'#{fragment}' if fragment else ''}"

    def rewrite_links(self, html: bytes, home: str) -> bytes:
        """A page whose links lead from its own file to others; those to what has no file lead nowhere."""
        return LINK.sub(partial(self._rewrite_link, "../" * home.count("/")), html)

    def _rewrite_link(self, up: str, match: re.Match[bytes]) -> bytes:
        file = self.find_file(match[2].decode())
        if file is None:
            return b""
        value = up + file if UNQUOTED.fullmatch(up + file) else f'"{up}{file}"'
        return match[1] + b"=" + value.encode()

    def pack_table(self, table: Table) -> tuple[Markup, Markup]:
        """A table's `data-looks` and its rows, from which static/plain.js makes what the server writes.

        A look is the numbers of words: the kinds of a cell, and the parts of its note. The most frequent one
        of a column stands with the column's classes and its label on a card, and no cell repeats it.
        """
        words: dict[str, int] = {"": 0}
        look_of: dict[tuple[str, str], str] = {("", ""): ""}

        def describe_look(cell: Cell) -> str:
            look = look_of.get((cell.kind, cell.note))
            if look is None:
                parts = [cell.kind, *(cell.note.split("; ") if cell.note else ())]
                look = ".".join(str(words.setdefault(part, len(words))) for part in parts)
                look_of[cell.kind, cell.note] = look
            return look

        looks = [[] if row.kind == "group" else list(map(describe_look, row.cells)) for row in table.rows]
        columns = list(zip(*filter(None, looks), strict=True)) or [()] * len(table.columns)
        usual = [next(iter(Counter(column).most_common(1)), ("",))[0] for column in columns]
        heads = [[c.css, c.card, look] for c, look in zip(table.columns, usual, strict=True)]
        names = mark_row_heads(table.columns)
        rows = [
            _write_group(row)
            if row.kind == "group"
            else self._write_row_start(row)
            + "".join(
                self._write_cell(cell, "" if look == most else f" data-n={look}".rstrip("="), names_row)
                for cell, look, most, names_row in zip(row.cells, own, usual, names, strict=True)
            )
            for row, own in zip(table.rows, looks, strict=True)
        ]
        packed = _dump({"words": [clean_text(word) for word in words], "columns": heads})
        return Markup(packed.replace("&", "&amp;").replace("'", "&#39;")), Markup("\n".join(rows))

    def _write_row_start(self, row: TableRow) -> str:
        number = self._numbers.get(row.key)
        kind = f' class="{row.kind}"' if row.kind else ""
        return f"<tr{kind}>" if number is None else f"<tr{kind} data-e={number}>"

    def _write_cell(self, cell: Cell, look: str, names_row: bool) -> str:
        text, tag = _write_text(cell.text), "th" if names_row and cell.text else "td"
        if cell.parts:
            parts = "".join(
                f'<span class="{part.kind}" title="{_write_text(part.note)}">{_write_text(part.text)}</span>'
                for part in cell.parts
            )
            text = f'<span class=parts role=img aria-label="{_write_text(cell.note)}">{parts}</span>'
        elif cell.href and not (cell.href.startswith("/") and self.find_file(cell.href) is None):
            text = f'<a href="{escape(cell.href)}">{text}</a>'
        return f"<{tag}{look}>{text}"


@lru_cache(1 << 16)
def _write_text(text: str) -> str:
    return str(escape(clean_text(text)))


def _write_group(row: TableRow) -> str:
    text = _write_text("".join(cell.text for cell in row.cells))
    return f"<tr class=group><th colspan={len(row.cells)} scope=rowgroup><span>{text}</span></th>"


def name_file(path: str) -> str:
    """A path whose parts are names of files, whatever they were."""
    # A part of dots alone would lead out of the folder.
    parts = [part if part.strip(".") else part.replace(".", "_") for part in path.strip("/").split("/")]
    return "/".join(re.sub(r"[^\w.+,()@ -]", "_", part)[:180] for part in parts) if path != "/" else "index"


def _locate_page(route: PageRoute, path: str) -> str:
    """The file of a page: a folder's index where other pages lie below it."""
    if "{" in route.path:
        return f"{name_file(path)}.html"
    return "index.html" if path == "/" else f"{name_file(path)}/index.html"


def write_entries(queries: Queries) -> str:
    """A script with what the filters ask of each entry; what is not known is left out."""
    entries = []
    for entry in queries.entries.values():
        card = queries.cards.get(entry.id, Card())
        facts = {name: tell(entry, card) for name, tell in FACTS.items()}
        entries.append({name: value for name, value in facts.items() if value})
    return f"window.entries={_dump(entries)};\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
