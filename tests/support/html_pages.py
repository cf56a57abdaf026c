"""A page as a reader finds it: its text, its tags, and its tables by name."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from typing import Any

from starlette.testclient import TestClient

from leaderboard.web.site import create_environment

BROWSER = {"accept": "text/html"}
"""The headers of a browser."""

Tag = tuple[str, dict[str, str]]


class Html(HTMLParser):
    """An HTML page.

    `tables` holds the rows of every table by its `data-name`; a cell is its text and its classes. `links` has
    where each link leads, and its text.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[Tag] = []
        self.text = ""
        self.tables: dict[str, list[list[tuple[str, list[str]]]]] = {}
        self._rows: list[list[tuple[str, list[str]]]] = []
        self._in_cell = False
        self.links: list[tuple[str, str]] = []
        self._in_link = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append((tag, found))
        if tag == "a":
            self.links.append((found.get("href", ""), ""))
            self._in_link = True
        if tag == "table" and "data-name" in found:
            self._rows = self.tables.setdefault(found["data-name"], [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th") and self._rows:
            self._rows[-1].append(("", found.get("class", "").split()))
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._in_link = self._in_link and tag != "a"
        # HTML lets the ends of cells and rows be left out.
        if tag in ("td", "th", "tr", "tbody", "table"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            text, classes = self._rows[-1][-1]
            self._rows[-1][-1] = (text + data, classes)
        if self._in_link:
            href, text = self.links[-1]
            self.links[-1] = (href, text + data)

    def texts(self, table: str) -> list[list[str]]:
        """The texts of a table's rows, headings first."""
        return [[text for text, _ in row] for row in self.tables[table]]

    @property
    def hrefs(self) -> set[str]:
        """Where its links lead."""
        return {href for href, _ in self.links}

    @property
    def has_foreign_script(self) -> bool:
        """Whether a script is no file."""
        return not all("src" in a for a in self.named("script"))

    def named(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]


def page(client: TestClient, path: str, status: int = 200) -> Html:
    """A page as a browser gets it."""
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code == status, answer.text[:500]
    return Html(answer.text)


def ask(client: TestClient, path: str, status: int = 200) -> dict[str, Any]:
    """A page as JSON; the path is the page's own, with its query."""
    where, _, query = path.partition("?")
    answer = client.get(f"{where}.json?{query}")
    assert answer.status_code == status, answer.text[:500]
    found: dict[str, Any] = answer.json()
    return found


def find_rows(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The rows of a table of a page's JSON; none where there is no such table."""
    return [row for one in document["tables"] if one["name"] == name for row in one["rows"]]


def find_values(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The values of such a table: for each row by column."""
    rows = find_rows(document, name)
    return [{key: cell["value"] for key, cell in row["cells"].items()} for row in rows]


def list_entries(client: TestClient) -> dict[tuple[str, str], str]:
    """The entries of a site by model and origin, but for those of papers."""
    entries = client.app.state.site.queries.entries.values()  # type: ignore[attr-defined]
    return {(e.model, e.origin): e.slug for e in entries if e.origin != "reported"}


def printed(share: float) -> float:
    """A share as tables print it: times 100, two decimals."""
    return float(f"{100 * share:.2f}")


def figures(client: TestClient, path: str) -> list[dict[str, Any]]:
    """The figures of a page's charts; the path is the page's own, with its query."""
    return [chart["figure"] for chart in ask(client, path)["charts"]]


def draw_figure(figure: dict[str, Any]) -> str:
    """A figure as a page has it."""
    return str(_load_figures().draw(figure))


@cache
def _load_figures() -> Any:
    return create_environment().get_template("_figure.html").module
