"""A page as a reader finds it: its text, its tags, and its tables by name."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

BROWSER = {"accept": "text/html"}
"""The headers of a browser."""

Tag = tuple[str, dict[str, str]]


class Html(HTMLParser):
    """An HTML page.

    `tables` holds the rows of every table by its `data-name`; a cell is its text and its classes.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[Tag] = []
        self.text = ""
        self.tables: dict[str, list[list[tuple[str, list[str]]]]] = {}
        self._rows: list[list[tuple[str, list[str]]]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag == "table" and "data-name" in found:
            self._rows = self.tables.setdefault(found["data-name"], [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append(("", found.get("class", "").split()))
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            text, classes = self._rows[-1][-1]
            self._rows[-1][-1] = (text + data, classes)

    def texts(self, table: str) -> list[list[str]]:
        """The texts of a table's rows, headings first."""
        return [[text for text, _ in row] for row in self.tables[table]]

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def page(client: TestClient, path: str) -> Html:
    answer = client.get(path)
    assert answer.status_code == 200
    return Html(answer.text)


def printed(share: float) -> float:
    """A share as tables print it: times 100, two decimals."""
    return float(f"{100 * share:.2f}")


def figures(html: str) -> list[dict[str, Any]]:
    """The figures of a page's charts."""
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', html)]
