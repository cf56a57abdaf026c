"""The feed of new records and checks (RSS 2.0)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.etree import ElementTree

from harness.scores import score_text
from leaderboard.judged import Judged

if TYPE_CHECKING:
    from leaderboard.queries import Entry, Queries
    from leaderboard.site import Site

NEWEST = 50

Item: TypeAlias = "tuple[Any, Entry] | Judged"
"""A result and what it is of, or a check."""


class Feed:
    """The feed of a site: what is new is looked up once in each version of the index."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kept: tuple[int, list[Item]] | None = None

    def rss(self, base: str) -> str:
        """The feed as a client at this address of the site reads it; it is kept for none."""
        queries = self._site.queries
        if self._kept is None or self._kept[0] != queries.version:
            self._kept = (queries.version, _newest(queries))
        return _rss(self._kept[1], base)


def rss(site: Site, base: str) -> str:
    """The newest measured records and checks.

    Args:
        site: The site.
        base: The site's address, for links that hold outside it.
    """
    return Feed(site).rss(base)


def _newest(queries: Queries) -> list[Item]:
    checks = islice(queries.checks.values(), NEWEST)
    items: list[Item] = [*queries.newest(NEWEST), *checks]
    return sorted(items, key=_written, reverse=True)[:NEWEST]


def _written(item: Item) -> str:
    return item.when if isinstance(item, Judged) else item[0].written


def _rss(items: Sequence[Item], base: str) -> str:
    root = ElementTree.Element("rss", version="2.0")
    channel = ElementTree.SubElement(root, "channel")
    base = base.rstrip("/")
    _say(
        channel,
        title="New records",
        link=f"{base}/",
        description=f"The newest {NEWEST} measured records and checks.",
    )
    for one in items:
        item = ElementTree.SubElement(channel, "item")
        _say(item, **(_of_check(one, base) if isinstance(one, Judged) else _of_result(*one, base)))
        ElementTree.SubElement(item, "guid", isPermaLink="false").text = (
            one.name if isinstance(one, Judged) else one[0].key
        )
        if _written(one):
            ElementTree.SubElement(item, "pubDate").text = _date(_written(one))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True)


def _of_result(result: Any, entry: Entry, base: str) -> dict[str, str]:
    score = "failed" if result.status == "failed" else score_text(result.value)
    title = f"{entry.model} on {result.task}: {score}"
    return {"title": title, "link": f"{base}/results/{result.id}", "description": entry.treatment}


def _of_check(check: Judged, base: str) -> dict[str, str]:
    title = f"{check.candidate} against {check.baseline}: {check.overall}"
    suites = ", ".join(check.suites)
    return {"title": title, "link": f"{base}/check/{check.name}", "description": f"Check on {suites}"}


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
