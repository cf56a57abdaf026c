"""Which entries are compared, and how others are found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import nearest
from leaderboard.grid import TRUST
from leaderboard.page import missing
from leaderboard.pages.suite.cells import made_of
from leaderboard.queries import Entry, Queries

if TYPE_CHECKING:
    from leaderboard.views.compare import CompareState

PATH = "/compare"
LEAST, MOST = 2, 6
LETTERS = "ABCDEF"
FOUND = 24
"""Entries that a search lists, at most."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """An entry that a search found: what tells it from others, and the URL that adds it."""

    name: str
    facts: str
    href: str


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """The form that adds entries.

    Attributes:
        chosen: Each entry's label and the URL without it.
        matches: What a search found.
        total: How many there are beyond those shown as well.
        near: Names that are like what was searched for, where nothing was found.
        message: Why nothing is compared; empty where something is.
        searched: What was searched for.
    """

    chosen: Sequence[tuple[str, str]]
    matches: Sequence[Match]
    total: int
    near: Sequence[str]
    message: str
    searched: str


def chosen(queries: Queries, names: Sequence[str]) -> list[Entry]:
    """The entries of some names in URLs, each once; a model's name stands for its best known entry.

    Raises:
        NotFound: A name is none.
    """
    found = {entry.id: entry for entry in (_entry(queries, name) for name in names)}
    return list(found.values())


def _entry(queries: Queries, name: str) -> Entry:
    if name in queries.by_slug:
        return queries.by_slug[name]
    if name in queries.models:
        return min(queries.models[name], key=lambda one: (one.member, TRUST.index(one.trust), -one.tasks))
    raise missing("entry", name, queries.by_slug, then="The page /compare finds entries by name.")


def labels(entries: Sequence[Entry]) -> list[str]:
    """A short name for each, with its letter: `A tiny-base`."""
    return [
        f"{letter} {entry.model.rpartition('/')[2] or entry.model}"
        for letter, entry in zip(LETTERS, entries, strict=False)
    ]


def lettered(entries: Sequence[Entry]) -> list[str]:
    """The whole name of each, with its letter where there is one."""
    return [f"{LETTERS[at : at + 1]} {entry.model}".lstrip() for at, entry in enumerate(entries)]


def chooser(queries: Queries, entries: Sequence[Entry], state: CompareState) -> Chooser:
    """The form for some entries."""
    slugs = [entry.slug for entry in entries]
    matches = _matches(queries, slugs, state.q)
    room = len(slugs) < MOST
    names = {entry.model for entry in queries.entries.values()}
    return Chooser(
        chosen=[
            (label, _link(state, [s for s in slugs if s != e.slug]))
            for e, label in zip(entries, lettered(entries), strict=True)
        ],
        matches=[
            Match(name=e.model, facts=told(e), href=_link(state, [*slugs, e.slug])) for e in matches[:FOUND]
        ]
        if room and (state.q or len(slugs) < LEAST)
        else [],
        total=len(matches),
        near=nearest(state.q, sorted(names)) if state.q and not matches else [],
        message=_message(len(slugs)),
        searched=state.q,
    )


def _matches(queries: Queries, slugs: Sequence[str], q: str) -> list[Entry]:
    """Entries whose model's name has `q`: those that begin with it first, then by how much they have."""
    text = q.casefold().strip()
    found = [
        e
        for e in queries.entries.values()
        if text in e.model.casefold() and e.slug not in slugs and not e.member
    ]

    def order(entry: Entry) -> tuple[bool, int]:
        plain = entry.model.casefold()
        return not (plain.startswith(text) or plain.rpartition("/")[2].startswith(text)), -entry.tasks

    return sorted(found, key=order)


def _link(state: CompareState, slugs: Sequence[str]) -> str:
    return f"{PATH}?{state.query(m=list(slugs), q='', sort='')}"


def told(entry: Entry) -> str:
    """What tells an entry from others of its model, in a line."""
    revision = f"revision {(entry.revision or 'not known')[:10]}" if entry.origin == "imported" else ""
    tasks = f"{entry.tasks} task{'s' if entry.tasks != 1 else ''}" if entry.tasks else ""
    return " · ".join(
        part for part in (entry.origin, revision, made_of(entry) or entry.treatment, tasks) if part
    )


def _message(count: int) -> str:
    if count > MOST:
        return f"{count} entries are chosen, and at most {MOST} can stand side by side. Remove some."
    if count == 1:
        return "One entry is chosen. Add at least one more to compare it with."
    return "" if count else f"Choose {LEAST} to {MOST} entries: search for a model, then add it."
