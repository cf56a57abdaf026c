"""What the numbers are and where they come from, and every address that gives them as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from leaderboard.web.marks import KINDS
from leaderboard.web.page import Page
from leaderboard.web.page_state import State
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, TableRow, build_values_row, link, values_table


@serve_page("/about", "What each origin, mean, interval and rank is.")
def _show_about(site: Site, state: State) -> Page:
    heads = {"origin": "Origin", "name": "Source", "entries": "Entries or tables", "scores": "Scores",
             "when": "As of"}  # fmt: skip
    return Page(
        title="What the numbers are",
        lead="Where scores come from, which mean is which, and when models share a rank.",
        tables=[values_table("sources", "Where the scores come from", heads, _iter_source_rows(site))],
        context=list(KINDS.items()),
    )


def _iter_source_rows(site: Site) -> Iterator[TableRow]:
    """Where the scores of this site come from, with how much there is."""
    # Without the entries over seeds: their members are counted one by one.
    measured = [e for e in site.queries.entries.values() if e.origin == "measured" and not e.of_seeds]
    yield _build_source_row(
        "measured", "records of this harness", len(measured), sum(e.tasks for e in measured), ""
    )
    for source in site.queries.list_imports():
        counts, commit = source.counts, str(source.stamp.get("commit") or "")[:12]
        when = f"{str(source.stamp.get('when', ''))[:10]}{f', commit {commit}' if commit else ''}"
        yield _build_source_row("imported", source.source, int(counts["entries"]), int(counts["files"]), when)
    for paper in site.papers.values():
        yield _build_source_row("reported", paper.title, len(paper.tables), paper.numbers, str(paper.year))


def _build_source_row(origin: str, name: str, entries: int, scores: int, when: str) -> TableRow:
    return build_values_row(link(origin, kind=origin), name, entries, scores, when or None)


@serve_page("/api", "Every page with its parameters.", formats=())
def show_api(site: Site, state: State) -> Page:
    """Every page with its parameters."""
    heads = {"path": "Page", "name": "Parameter", "values": "Takes", "default": "Default",
             "means": "What it does"}  # fmt: skip
    pages = [(one.path, one.summary, one.state) for one in site.pages if one.formats]
    every: list[tuple[str, str, type[State]]] = [("every page", "How it looks.", State), *pages]
    rows = [row for page in every for row in _iter_parameter_rows(*page)]
    return Page(
        title="API",
        lead="Every page is data as well: the same address with an ending. OpenAPI describes it to machines.",
        tables=[values_table("parameters", "Pages and their parameters", heads, rows)],
    )


def _iter_parameter_rows(path: str, summary: str, state: type[State]) -> Iterator[TableRow]:
    """A page, then its parameters; those of every page stand at the first alone."""
    yield _build_parameter_row(path, "", "", "", summary)
    for name, field in state.model_fields.items():
        if state is State or name not in State.model_fields:
            default = field.get_default(call_default_factory=True)
            # As it would stand in an address.
            default = int(default) if isinstance(default, bool) else default
            texts = ("" if default in (None, "", []) else str(default), field.description or "")
            yield _build_parameter_row("", name, _describe_values(field), *texts)


def _build_parameter_row(*texts: str) -> TableRow:
    plain = [text.replace("`", "") for text in texts]
    return TableRow(cells=[Cell(text=text, value=text or None) for text in plain])


def _describe_values(field: FieldInfo) -> str:
    """What a parameter takes, in words."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(str(value) for value in get_args(kind) if value != "")
    if get_origin(kind) is list:
        return "text, again and again for several"
    if plain := {bool: "0, 1", str: "text"}.get(kind):  # type: ignore[arg-type]
        return plain
    what = "a whole number" if "int" in str(kind) else "a number"
    texts = {"ge": " from {:,}", "gt": " above {:,g}", "le": " to {:,.0f}"}
    # pydantic keeps bounds as objects of annotated_types, with validators among them.
    limits = {name: getattr(one, name) for one in field.metadata for name in texts if hasattr(one, name)}
    return what + "".join(text.format(limits[name]) for name, text in texts.items() if name in limits)
