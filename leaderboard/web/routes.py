"""The routes of pages: the address and the formats of each, and how the site finds it."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from starlette.routing import compile_path

from harness.core.files import open_entry
from leaderboard import pages
from leaderboard.web.page import Page
from leaderboard.web.page_state import State

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


def load_page_routes() -> list[PageRoute]:
    """Every page: what `serve_page` makes in each file in pages/ whose name begins without an underscore."""
    # Sorted, so that the order of routes is the same on every machine.
    names = sorted(m.name for m in pkgutil.iter_modules(pages.__path__) if not m.name.startswith("_"))
    modules = [open_entry(f"leaderboard.pages.{name}", "__dict__") for name in names]
    return [route for module in modules for route in module.values() if isinstance(route, PageRoute)]
