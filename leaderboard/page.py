"""A page: what its template shows and what its twins hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderboard.tables import Table


@dataclass(frozen=True, kw_only=True)
class Crumb:
    """One step of the way to a page."""

    label: str
    href: str


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a view gives.

    Attributes:
        title: The heading, and the window's title.
        template: Its file in templates/.
        lead: One sentence below the heading.
        crumbs: The way here, without this page.
        tables: What CSV, Markdown and LaTeX hold; a template prints those it names.
        data: What the JSON twin holds beside the tables: plain values.
        context: What the template takes beside these: a frozen dataclass of the view.
        notes: Sentences that must be read with the page.
    """

    title: str
    template: str
    lead: str = ""
    crumbs: Sequence[Crumb] = ()
    tables: Sequence[Table] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    notes: Sequence[str] = ()
