"""How a page is cited: its lasting address, a BibTeX entry, and what it says of each model in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from pydantic import Field

from leaderboard.web.formats import escape_tex
from leaderboard.web.marks import KINDS
from leaderboard.web.page import Page, serve_page
from leaderboard.web.parameters import PageAddress, State, build_address
from leaderboard.web.site import TITLE, Site

CITED = ("rank", "ranked", "tasks", "types", "mean", "untouched", "score", "count")
"""The columns whose numbers a sentence names."""
RANKED = ": scores × 100, ranked by the mean over tasks"
"""How the caption of a suite's table ends whose ranks are by the mean that a sentence names."""
MOST = 100
"""Sentences on a page: a filter of the cited page gives those of other rows."""


class _CiteState(State):
    """What the page takes."""

    of: PageAddress = Field("/", description="The page to cite: its path and query.")


@serve_page(
    "/cite",
    "A page's lasting address, BibTeX entry, and sentences to quote.",
    # Plain files have no addresses that stay.
    paths=lambda site: [],
    formats=(),
)
def _show_citation(site: Site, state: _CiteState) -> Page:
    """The citation of a page."""
    site, of = site.resolve_address(state.of)
    snapshot, (path, _, query) = site.queries.snapshot, of.partition("?")
    assert snapshot
    parameters = parse_qs(query, keep_blank_values=True)
    page = json.loads(site.export(path, parameters, "json"))
    address = f"{site.settings.url or 'SITE'}/s/{snapshot.id}{build_address(path, parameters)}"
    fields = {
        "title": escape_tex(page["title"]), "howpublished": f"{TITLE}, snapshot {snapshot.id}",
        "year": snapshot.made[:4], "url": address, "note": f"As of {snapshot.made[:10]}",
    }  # fmt: skip
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"encoders-{snapshot.id}{of}").strip("-")
    lines = [f"@misc{{{key}", *(f"  {name} = {{{text}}}" for name, text in fields.items())]
    sentences = [f"{text} ({more}{site.as_of}, {address})." for text, more in _iter_sentences(page)]
    return Page(
        title=f"Cite: {page['title']}",
        template="cite.html",
        context={
            "address": address,
            "bibtex": ",\n".join(lines) + "\n}",
            "of": of,
            "sentences": sentences[:MOST],
        },
    )


def _iter_sentences(page: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the first table of a page (PageJson) says of each row, and of what; without numbers, the lead.

    Models that a reader named stand first.
    """
    table = page["tables"][0] if page["tables"] else {"columns": [], "rows": []}
    labels = {c["key"]: f"{c['group']} {c['label']}".strip() for c in table["columns"] if c["key"] in CITED}
    data, caption = page["data"], table.get("caption", "")
    suite = caption.removesuffix(RANKED) if caption.endswith(RANKED) else ""
    ranked, total = data.get("models_ranked", data.get("rows_complete")), data.get("tasks_asked")
    for row in sorted(table["rows"] if labels else (), key=lambda row: row["kind"] != "beside"):
        cells = row["cells"]
        name = next((cells[key]["text"] for key in ("model", "name", "board") if key in cells), "")
        if suite and {"rank", "tasks", "there"} <= cells.keys():
            count = cells["there"]["value"]
            over = f"{count} of the {total} tasks" if total not in (None, count) else f"the {count} tasks"
            mean = f"{'weighted ' if data.get('weights') else ''}mean of {_format_cited(cells['tasks'])}"
            yield f"{name} has a {mean} over {over} of {suite}, rank {cells['rank']['text']} of {ranked}", ""
        else:
            numbers = (f"{text} {_format_cited(cells[key])}" for key, text in labels.items() if key in cells)
            yield f"{name}: {', '.join(numbers)}", f"{suite or page['title'].rstrip('?')}, "
    if not labels:
        yield f"{page['title']}: {page['lead'].removesuffix('.')}", ""


def _format_cited(cell: Mapping[str, Any]) -> str:
    """A number with its marks, and over how many tasks it is where these are not all."""
    kinds = cell.get("kind", "").split()
    marks = "".join(KINDS[kind].mark for kind in kinds if kind in KINDS)
    return f"{cell['text']}{marks}" + (f" ({cell['note']})" if "part" in kinds and "note" in cell else "")
