"""Search over models, tasks, suites, papers and recipes by any of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field

from harness import catalog
from leaderboard.data.backbones import backbone_of, backbones
from leaderboard.pages._task_scores import known_tasks, task_path
from leaderboard.web.formats import parameters_text
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State, Text, address, paging
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Column, Row, Table

KINDS = ("backbone", "model", "suite", "task", "recipe", "paper")
"""The kinds of hits; of hits that match alike the earlier kind goes first."""


class SearchState(State):
    """What the search takes."""

    q: Text = Field("", description="Part of a name; of several words each must be in it.")
    kind: Literal["", "backbone", "model", "suite", "task", "recipe", "paper"] = Field(
        "", description="Only hits of this kind."
    )
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Hits on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of hits.")


@dataclass(frozen=True)
class Item:
    """Something with a page: its kind, name, path, other names, and what it is."""

    kind: str
    name: str
    href: str
    aliases: Sequence[str] = ()
    what: str = ""

    @cached_property
    def _names(self) -> list[tuple[str, str]]:
        return [(_letters(name), name) for name in (self.name, *self.aliases)]

    def match(self, words: Sequence[str]) -> tuple[int, int, str] | None:
        """How well it matches: 0 for a whole name, 1 for its beginning, 2 for a part; and by which name.

        A name's organisation may be left out.
        """
        found = []
        for at, (letters, name) in enumerate(self._names):
            if all(word in letters for word in words):
                own, query = _letters(name.rpartition("/")[2]), "".join(words)
                rank = (
                    0
                    if query in (letters, own)
                    else 1
                    if letters.startswith(query) or own.startswith(query)
                    else 2
                )
                found.append((rank, min(at, 1), name))
        return min(found, default=None)


def _letters(text: str) -> str:
    """Letters and digits alone: names differ in signs and capitals."""
    return "".join(sign for sign in text.casefold() if sign.isalnum())


def items(site: Site) -> Iterator[Item]:
    """Everything that has a page of its own."""
    queries = site.queries
    for backbone in backbones().values():
        aliases = sorted({backbone.family, *backbone.aliases} - {"", backbone.name})
        what = f"{parameters_text(backbone.parameters)} parameters" if backbone.parameters else ""
        yield Item("backbone", backbone.name, f"/models/{backbone.slug}", aliases, what)
    for slug, entries in queries.models.items():
        if backbone_of(entries[0].model) is None:
            origins = ", ".join(sorted({entry.origin for entry in entries}))
            size = max((entry.parameters or 0 for entry in entries), default=0)
            what = f"{parameters_text(size)} parameters, {origins}" if size else origins
            yield Item("model", entries[0].model, f"/models/{slug}", what=what)
    for slug, one in queries.suites.items():
        count = len(one.suite.columns)
        yield Item("suite", one.suite.title, f"/suites/{slug}", [one.typed], f"{count} tasks")
    for task in known_tasks(queries):
        kind, _, count = queries.tasks.get(task, ("", "", 0))
        yield Item("task", task, task_path(task), what=", ".join(t for t in (kind, f"{count} results") if t))
    for recipe in catalog.recipes().values():
        yield Item("recipe", recipe.name, address(f"/recipes/{recipe.name}"), what=recipe.summary)
    for paper in site.papers.values():
        yield Item(
            "paper", paper.name, f"/papers/{paper.slug}", [paper.title], f"{paper.title} ({paper.year})"
        )


def search(site: Site, query: str, kind: str = "") -> list[tuple[Item, str]]:
    """What a query finds, each with the name that matched: whole names first, then beginnings, then parts."""
    words = [letters for word in query.split() if (letters := _letters(word))]
    if query.strip() and not words:
        return []
    known = (one for one in items(site) if kind in ("", one.kind))
    found = [(match, one) for one in known if (match := one.match(words)) is not None]
    if words:
        found.sort(
            key=lambda pair: (
                pair[0][:1],
                KINDS.index(pair[1].kind),
                pair[0][1],
                len(pair[1].name),
                pair[1].name,
            )
        )
    return [(one, match[2]) for match, one in found]


def view(site: Site, state: SearchState) -> Page:
    """The hits of a query."""
    found = search(site, state.q, state.kind)
    where = paging(len(found), state, "/search")
    shown = found[where.first - 1 : where.last] if found else []
    table = Table(
        name="hits",
        caption=f"{len(found):,} hit{'' if len(found) == 1 else 's'}",
        columns=[
            Column(key="name", label="Name", sticky=True),
            Column(key="kind", label="Kind"),
            Column(key="matched", label="Found by", note="The other name that matched."),
            Column(key="what", label="What it is"),
        ],
        rows=[
            Row(cells=[
                Cell(text=one.name, value=one.name, href=one.href),
                Cell(text=one.kind, value=one.kind),
                Cell(text=name if name != one.name and state.q else "", value=name if state.q else None),
                Cell(text=one.what, value=one.what or None),
            ])
            for one, name in shown
        ],
    )  # fmt: skip
    return Page(
        title=f"Search: {state.q}" if state.q else "Models, tasks and papers by name",
        template="search.html",
        tables=[table],
        context={"state": state, "kinds": KINDS, "paging": where},
    )


PAGES = (
    PageRoute(
        path="/search",
        state=SearchState,
        view=view,
        summary="Models, tasks, suites, papers and recipes by a part of any of their names.",
        all_paths=lambda site: ["/search"],
    ),
)
