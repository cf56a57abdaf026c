"""The feed of new records (RSS 2.0)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from leaderboard.words import score_text

if TYPE_CHECKING:
    from leaderboard.site import Site

NEWEST = 50


def rss(site: Site, base: str) -> str:
    """The newest measured records.

    Args:
        site: The site.
        base: The site's address, for links that hold outside it.
    """
    root = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(root, "channel")
    base = base.rstrip("/")
    _say(channel, title="New records", link=f"{base}/", description=f"The newest {NEWEST} measured records.")
    for result, entry in site.queries.newest(NEWEST):
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
