"""How a page is cited: its lasting address, a BibTeX entry, and what it says of each model in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs

from pydantic import Field

from leaderboard.views.cells import SOURCES, STATED, describe_score
from leaderboard.views.question import PATH, QuestionState, describe_bounds
from leaderboard.web.marks import KINDS, explain_marks
from leaderboard.web.page import Page
from leaderboard.web.page_state import PageAddress, State, build_address
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site

CITED = ("rank", "tasks", "types", "mean", "untouched", "score", "count")
"""The columns whose numbers a sentence names."""
RANKED = ": scores × 100, ranked by the mean over tasks"
"""How the caption of a suite's table ends whose ranks are by the mean that a sentence names."""
EMPTY: Mapping[str, Any] = {"text": "", "value": None}
"""The cell of a column that a table does not show."""
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
    site, of = site.resolve_address(state.of)
    path, _, query = of.partition("?")
    parameters = parse_qs(query, keep_blank_values=True)
    page = json.loads(site.export(path, parameters, "json"))
    if path == PATH:
        _add_question(site, page)
    page_path = build_address(path, parameters)
    address = site.build_citable_address(page_path)
    (filter_text,) = parameters.get("q", [""])[-1:]
    every = _iter_sentences(page, filter_text if path.startswith("/models/") else "")
    pairs = [(explain_marks(text), more) for text, more in every]
    sentences = [f"{text} ({more}{site.as_of}, {address})." for text, more in pairs]
    quotes_first = len(pairs) > 1 and path.startswith("/models/")
    quote = pairs[0][0] if quotes_first or len(pairs) == 1 else ""
    return Page(
        title=f"Cite: {page['title']}",
        context={"address": address, "bibtex": site.format_bibtex(page["title"], page_path, quote), "of": of,
                 "sentences": sentences[:MOST], "quotes_first": quotes_first, "keep": site.settings.keep},
    )  # fmt: skip


def _add_question(site: Site, page: dict[str, Any]) -> None:
    """Add to a page (PageJson) of a question its tasks and filters as a title, and what its numbers are."""
    filters = describe_bounds(QuestionState.model_validate(page["state"]))
    metrics = {site.queries.tasks.get(name, ("", "", 0))[1] for name in page["data"]["tasks"]}
    metric = metrics.pop() if len(metrics) == 1 else ""
    filters, tasks = f" ({filters})" if filters else "", page["tables"][0]["caption"].partition(": scores")[0]
    page["data"] |= {"filters": filters, "unit": f"{metric or 'main scores'} × 100"}
    page["title"] = f"Which encoder for {tasks}{filters}?"


def _iter_sentences(page: Mapping[str, Any], tasks: str = "") -> Iterator[tuple[str, str]]:
    """What the first table of a page (PageJson) says of each row, and of what; without numbers, the lead.

    Models that a reader named stand first, means over some of the tasks last. Of a model's page with a part
    of the names of `tasks` it is what the table of results says, the task of this very name first.
    """
    results = next((one for one in page["tables"] if one["name"] == "results" and tasks), None)
    if results:
        yield from ((text, "") for text in _iter_result_sentences(page["title"], results, tasks))
        return
    table = page["tables"][0] if page["tables"] else {"columns": [], "rows": []}
    labels = {c["key"]: f"{c['group']} {c['label']}".strip() for c in table["columns"] if c["key"] in CITED}
    data, caption = page["data"], table.get("caption", "")
    suite = caption.removesuffix(RANKED) if caption.endswith(RANKED) else ""
    ranked, total = data.get("models_ranked", data.get("rows_complete")), data.get("tasks_asked")
    rows = table["rows"] if labels else ()
    if data.get("quote"):
        yield data["quote"], ""
        return
    for row in sorted(rows, key=lambda row: (row["kind"] != "beside", row["kind"] == "part")):
        cells = row["cells"]
        name = next((cells[key]["text"] for key in ("model", "name", "board") if key in cells), "")
        has_mean = cells.get("tasks", EMPTY)["value"] is not None
        if suite and has_mean and "there" in cells:
            count, _, expected = cells["there"]["text"].partition("/")
            mean = f"{'weighted ' if data.get('weights') else ''}mean of {_format_cited(cells['tasks'])}"
            over = _format_share(count, str(total or expected))
            half = cells.get("half", EMPTY)["text"]
            details = [data.get("unit"), half and f"± {half} over other such tasks, 95 %"]
            mean += f" ({'; '.join(filter(None, details))})" if any(details) else ""
            possible = cells.get("places", EMPTY)["text"]
            possible = possible if possible[:1].isdigit() else cells.get("rank", EMPTY)["text"]
            place = [_format_place(possible, ranked), _name_source(cells.get("origin", EMPTY))]  # fmt: skip
            asked = f"{suite}{data.get('filters', '')}"
            yield ", ".join([f"{name} has a {mean} over {over} of {asked}", *filter(None, place)]), ""
        elif has_mean and {"name", "count", "source"} <= cells.keys():
            by = f" by the convention of {cells['convention']['text']}" if "convention" in cells else ""
            place = [_format_place(*(cells.get(key, EMPTY)["text"] for key in ("rank", "ranked", "tied"))),
                     _name_source(cells["source"])]  # fmt: skip
            over = _format_share(*cells["count"]["text"].split("/"))
            mean = f"mean of {_format_cited(cells['tasks'])} over {over} of {name}{by}"
            yield ", ".join([f"{page['title']} has a {mean}", *filter(None, place)]), ""
        elif "quartiles" in data and cells["score"]["value"] is not None:
            place = [_format_place(cells.get("rank", EMPTY)["text"], ranked), _name_source(cells["origin"])]
            scale = " × 100" if caption.endswith(" × 100") else ""
            facts = {**data, "task": page["title"]}
            yield describe_score(name, _format_cited(cells["score"]), facts, *place, scale=scale), ""
        else:
            numbers = [f"{text} {_format_cited(cells[key], noted=True)}" for key, text in labels.items()
                       if cells.get(key, EMPTY)["value"] is not None]  # fmt: skip
            if numbers:
                yield f"{name}: {', '.join(numbers)}", f"{suite or page['title'].rstrip('?')}, "
    if not labels:
        yield f"{page['title']}: {page['lead'].removesuffix('.')}", ""


def _iter_result_sentences(name: str, table: Mapping[str, Any], tasks: str) -> Iterator[str]:
    """What the results of a model's page say, each of an entry and a task."""
    sources = {c["key"]: SOURCES[c["label"].partition(",")[0]] for c in table["columns"]
               if c["key"].partition(":")[0] == "score"}  # fmt: skip
    for row in sorted(table["rows"], key=lambda row: row["key"].casefold() != tasks.casefold()):
        cells = row["cells"]
        for key, source in sources.items():
            if cells.get(key, EMPTY)["value"] is not None:
                facts = {"metric": cells["metric"]["value"], "task": row["key"]}
                yield describe_score(name, _format_cited(cells[key]), facts, source, _find_stated(cells[key]))


def _format_share(count: str, total: str = "") -> str:
    """How many of a suite's tasks a mean is over.

    >>> _format_share("41", "41"), _format_share("5", "41"), _format_share("1"), _format_share("90 texts")
    ('the 41 tasks', '5 of the 41 tasks', 'the one task', 'the 90 texts')
    """
    if total not in ("", count):
        return f"{count} of the {total} tasks"
    if count == "1":
        return "the one task"
    return f"the {count} tasks" if count.isdigit() else f"the {count}"


def _format_place(rank: str, ranked: object, tied: str = "") -> str:
    """A rank, or possible ones, among how many, and how many share it; empty without one, and among one.

    >>> _format_place("26", "190", "127"), _format_place("1–2", 3), _format_place("1", 1)
    ('rank 26 of 190, tied with 127', 'rank 1–2 of 3', '')
    """
    if not rank[:1].isdigit() or str(ranked) == "1":
        return ""
    return f"rank {rank} of {ranked}{f', tied with {tied}' if tied else ''}"


def _name_source(cell: Mapping[str, Any]) -> str:
    """Where a row's numbers come from, by the cell that says so; empty where none does."""
    source = next((SOURCES[kind] for kind in cell.get("kind", "").split() if kind in SOURCES), "")
    return ", ".join(filter(None, (source, _find_stated(cell))))


def _find_stated(cell: Mapping[str, Any]) -> str:
    """What a cell or its note says of scores that makers state themselves; empty where it says nothing."""
    parts = re.split("[,;] ", f"{cell['text']}; {cell.get('note', '')}")
    return next((part for part in parts if part.endswith(STATED)), "")


def _format_cited(cell: Mapping[str, Any], *, noted: bool = False) -> str:
    """A number with its marks; `noted` says over how many tasks it is where these are not all."""
    kinds = cell.get("kind", "").split()
    marks = "".join(KINDS[kind].mark for kind in kinds if kind in KINDS)
    note = f" ({cell['note']})" if noted and "part" in kinds and "note" in cell else ""
    return f"{cell['text']}{marks}{note}"
