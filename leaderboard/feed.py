"""The feed of new records (RSS 2.0)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree

from leaderboard.words import score_text

if TYPE_CHECKING:
    from leaderboard.queries import Entry
    from leaderboard.site import Site

NEWEST = 50

Item: TypeAlias = "tuple[Any, Entry]"
"""A result, and what it is of."""


class Feed:
    """The feed of a site: its records are looked up once in each version of the index."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kept: tuple[int, list[Item]] | None = None

    def rss(self, base: str) -> str:
        """The feed as a client at this address of the site reads it; it is kept for none."""
        queries = self._site.queries
        if self._kept is None or self._kept[0] != queries.version:
            self._kept = (queries.version, queries.newest(NEWEST))
        return _rss(self._kept[1], base)


def rss(site: Site, base: str) -> str:
    """The newest measured records.

    Args:
        site: The site.
        base: The site's address, for links that hold outside it.
    """
    return Feed(site).rss(base)


def _rss(items: Sequence[Item], base: str) -> str:
    root = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(root, "channel")
    base = base.rstrip("/")
    _say(channel, title="New records", link=f"{base}/", description=f"The newest {NEWEST} measured records.")
    for result, entry in items:
        item = ElementTree.SubElement(channel, "item")
        score = "failed" if result.status == "failed" else score_text(result.value)
        link = f"{base}/results/{result.id}"
        _say(item, title=f"{entry.model} on {result.task}: {score}", link=link, description=entry.treatment)
        ElementTree.SubElement(item, "guid", isPermaLink="false").text = result.key
        if result.written:
            ElementTree.SubElement(item, "pubDate").text = _date(result.written)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _say(element: ElementTree.Element, **texts: str) -> None:
    for name, text in texts.items():
        ElementTree.SubElement(element, name).text = _xml(text)


def _xml(text: str) -> str:
    """Text without the signs that XML cannot hold."""
    return "".join(c if c in "\t\n" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)


def _date(written: str) -> str:
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        return ""
    return format_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
