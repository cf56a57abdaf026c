"""Pages: what one shows, and how it is listed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.routing import compile_path

from harness.core.errors import UsageError, explain_unknown, find_similar_names
from leaderboard.web.charts import Chart
from leaderboard.web.page_state import State
from leaderboard.web.tables import Table

FORMATS = {
    "json": ("JSON", "application/json"),
    "csv": ("CSV", "text/csv; charset=utf-8"),
    "md": ("Markdown", "text/markdown; charset=utf-8"),
    "tex": ("LaTeX", "application/x-tex; charset=utf-8"),
    "parquet": ("Parquet", "application/vnd.apache.parquet"),
}
"""The formats of a page beside HTML, with their names and media types, by the end of its address."""
PRINTED = tuple(FORMATS)
"""All of them, for a page whose tables are printed in papers."""
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
    """What a page's address names is at another one, of the same page with other `arguments`."""

    def __init__(self, **arguments: str) -> None:
        super().__init__("The page has another address.", hint=f"It is {' '.join(arguments.values())}.")
        self.arguments = arguments


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


@dataclass(frozen=True, kw_only=True)
class PageRoute:
    """A page as the site lists it; `serve_page` makes one of its view.

    Attributes:
        path: Its address, with the names of its parameters in braces.
        state: What its query may hold.
        view: Takes the site, the state and the path's parameters by name, and gives the page.
        summary: What the page shows, in a sentence of the API's documents.
        all_paths: The addresses of all such pages, for the export of the whole site.
        formats: Its formats beside HTML, among FORMATS.
    """

    path: str
    state: type[State]
    view: Callable[..., Page]
    summary: str
    all_paths: Callable[[Any], Iterable[str]]
    formats: tuple[str, ...]

    def match_path(self, path: str) -> dict[str, str] | None:
        """The parameters of a path, None where it is no path of this page."""
        match = compile_path(self.path)[0].fullmatch(path)
        return match.groupdict() if match else None

    def build_format_path(self, form: str) -> str:
        """The address of a format of the page, with the same names in braces."""
        return f"{'/index' if self.path == '/' else self.path}.{form}"


def serve_page(
    path: str,
    summary: str,
    *,
    paths: Callable[[Any], Iterable[str]] | None = None,
    formats: tuple[str, ...] = ("json", "csv", "parquet"),
) -> Callable[[Callable[..., Page]], PageRoute]:
    """Make a function in a file of leaderboard/pages/ a page; the type of its `state` is the page's.

    Args:
        path: The address, with the names of its parameters in braces.
        summary: What the page shows, in a sentence of the API's documents.
        paths: The addresses of all such pages of a site; without it, `path` is the only one.
        formats: The formats beside HTML, among FORMATS.
    """

    def make_route(view: Callable[..., Page]) -> PageRoute:
        # The annotations are texts, as the files import annotations from __future__.
        state = inspect.signature(view, eval_str=True).parameters["state"].annotation
        template = f"{path.rpartition('/')[2].strip('{}') or 'overview'}.html"

        def show(site: Any, state: State, **arguments: str) -> Page:
            page = view(site, state, **arguments)
            return page if page.template else replace(page, template=template)

        return PageRoute(
            path=path, state=state, view=show, summary=summary, formats=formats,
            all_paths=paths or (lambda site: [path]),
        )  # fmt: skip

    return make_route
