"""What a page shows, and the errors for a name that it does not know."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import UsageError, explain_unknown, find_similar_names
from leaderboard.web.charts import Chart
from leaderboard.web.tables import Table

_FEW = 13
"""Fewer names than these can stand in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a page shows.

    Attributes:
        title: The heading, and the window's title.
        template: Its file in templates/; empty for the one with the name of the path's last part.
        lead: One sentence below the heading.
        crumbs: The way here, without this page: label and path.
        tables: What the other formats hold; a template prints those it names.
        data: What JSON holds beside the tables: plain values.
        context: What the template takes beside these, by name.
        notes: Sentences that must be read with the page.
        charts: What it draws; a page with charts loads their library.
    """

    title: str
    template: str = ""
    lead: str = ""
    crumbs: Sequence[tuple[str, str]] = ()
    tables: Sequence[Table] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    notes: Sequence[str] = ()
    charts: Sequence[Chart] = ()

    def find_table(self, name: str) -> Table:
        """One of its tables."""
        return next(table for table in self.tables if table.name == name)


class NotFound(UsageError):
    """A page, or something that its address names, does not exist."""


class Moved(NotFound):
    """What a page's address names is at another one: `address`, or the same page with other `arguments`."""

    def __init__(self, address: str = "", **arguments: str) -> None:
        where = f"It is {address or ' '.join(arguments.values())}."
        super().__init__("The page has another address.", hint=where)
        self.address, self.arguments = address, arguments


def build_missing_error(what: str, name: str, known: Iterable[str], *, then: str) -> NotFound:
    """The error for an unknown name in a URL: with the nearest names, all of a few, or only `then`.

    Args:
        what: What the name is of, such as "suite".
        name: The unknown name.
        known: The names that exist.
        then: What a reader does next, in a sentence.
    """
    names = list(known)
    error = explain_unknown(what, name, names, then=then)
    is_near = len(names) < _FEW or find_similar_names(name, names)
    return NotFound(error.message, hint=error.hint if is_near else then)


def check_name(what: str, name: str, known: Collection[str], *, then: str, is_needed: bool = False) -> None:
    """Refuse an unknown name in a URL; an empty name asks for nothing, unless a name is needed.

    Args:
        what: What the name is of, such as "suite".
        name: The name in the URL.
        known: The names that exist.
        then: What a reader does next, in a sentence.
        is_needed: Whether an empty name is refused, too.

    Raises:
        NotFound: The name is not among the known ones.
    """
    if (name or is_needed) and name not in known:
        raise build_missing_error(what, name, known, then=then)
