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
from leaderboard.web.site import NOWHERE, TITLE, Site

CITED = ("rank", "ranked", "tasks", "types", "mean", "untouched", "score", "count")
"""The columns whose numbers a sentence names."""
RANKED = ": scores × 100, ranked by the mean over tasks"
"""How the caption of a suite's table ends whose ranks are by the mean that a sentence names."""
ORIGINS = {
    "measured": ", measured",
    "imported": ", imported from mteb’s results",
    "reported": ", printed in a paper",
}
KIND_ORDER = {"beside": 0, "part": 2}
"""How rows that look special stand among the sentences; the others are 1."""
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
    address = f"{site.settings.url or NOWHERE}/s/{snapshot.id}{build_address(path, parameters)}"
    fields = {
        "title": escape_tex(page["title"]), "howpublished": f"{TITLE}, snapshot {snapshot.id}",
        "year": snapshot.made[:4], "url": address, "note": f"As of {snapshot.made[:10]}",
    }  # fmt: skip
    key = re.sub(r"[^A-Za-z0-9]+", "-", f"encoders-{snapshot.id}{of}").strip("-")
    texts = [*_iter_sentences(page)]
    if path.startswith("/models/") and texts:
        fields["note"] = escape_tex(f"{texts[0][0]}, as of {snapshot.made[:10]}")
    lines = [f"@misc{{{key}", *(f"  {name} = {{{text}}}" for name, text in fields.items())]
    sentences = [f"{text} ({more}{site.as_of}, {address})." for text, more in texts]
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
    # Rows that a reader named first, those over a part of the tasks last.
    for row in sorted(table["rows"] if labels else (), key=lambda row: KIND_ORDER.get(row["kind"], 1)):
        cells = row["cells"]
        if text := _describe_standing(page["title"], cells):
            yield text, ""
            continue
        name = next((cells[key]["text"] for key in ("model", "name", "board") if key in cells), "")
        if suite and {"tasks", "there"} <= cells.keys() and "/" in cells["there"]["text"]:
            weighted = "weighted " if data.get("weights") else ""
            over = f"{_format_count(cells['there'], total)} of {suite}"
            yield f"{name}{_describe_mean(cells, over, ranked, cells.get('origin'), weighted)}", ""
        else:
            numbers = (f"{text} {_format_cited(cells[key])}" for key, text in labels.items() if key in cells)
            yield f"{name}: {', '.join(numbers)}", f"{suite or page['title'].rstrip('?')}, "
    if not labels:
        yield f"{page['title']}: {page['lead'].removesuffix('.')}", ""


def _describe_standing(model: str, cells: Mapping[str, Any]) -> str:
    """A model in a suite, of a row of the model's page; empty for any other row."""
    if not {"name", "tasks", "source", "count"} <= cells.keys() or "/" not in cells["count"]["text"]:
        return ""
    by = f" by the convention {cells['convention']['text']}" if "convention" in cells else ""
    over = f"{_format_count(cells['count'])} of {cells['name']['text']}{by}"
    return model + _describe_mean(cells, over, cells.get("ranked", {}).get("text"), cells["source"])


def _describe_mean(
    cells: Mapping[str, Any], over: str, ranked: Any, origin: Mapping[str, Any] | None, weighted: str = ""
) -> str:
    """What a row says of its model: the mean, the rank among the `ranked` models, and the origin."""
    # Over how many tasks it is, the sentence says anyway.
    mean = _format_cited({**cells["tasks"], "note": ""})
    rank = f", rank {cells['rank']['text']} of {ranked}" if cells.get("rank", {}).get("value") else ""
    return f" has a {weighted}mean of {mean} over {over}{rank}{_describe_origin(origin)}"


def _format_count(cell: Mapping[str, Any], total: int | None = None) -> str:
    """Over how many tasks a mean is, by a cell such as 5/41; `total` is how many a reader asked for."""
    there, _, expected = cell["text"].partition("/")
    if there != str(total or expected):
        return f"{there} of the {total or expected} tasks"
    return "the one task" if there == "1" else f"the {there} tasks"


def _describe_origin(cell: Mapping[str, Any] | None) -> str:
    """Where numbers come from, by a cell that has this as its kind."""
    kinds = cell.get("kind", "").split() if cell else []
    return next((text for kind, text in ORIGINS.items() if kind in kinds), "")


def _format_cited(cell: Mapping[str, Any]) -> str:
    """A number with its marks, and over how many tasks it is where these are not all."""
    kinds = cell.get("kind", "").split()
    marks = "".join(KINDS[kind].mark for kind in kinds if kind in KINDS)
    return f"{cell['text']}{marks}" + (f" ({cell['note']})" if "part" in kinds and cell.get("note") else "")
