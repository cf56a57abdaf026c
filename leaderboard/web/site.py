"""Pages of an index that others bring up to date, too: a page is made of one version of it."""

from __future__ import annotations

import hashlib
import json
import logging
import pkgutil
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from jinja2 import Environment, PackageLoader, select_autoescape
from pydantic import ValidationError

from harness import __version__
from harness.errors import UsageError
from harness.registry import open_entry
from leaderboard import pages
from leaderboard.data.paper_tables import papers
from leaderboard.data.papers import Paper
from leaderboard.data.queries import IndexChanged, Queries
from leaderboard.data.snapshot import Changes, SiteIndex, open_index
from leaderboard.web import formats as render
from leaderboard.web.cache import PageCache, RenderedPage
from leaderboard.web.page import Page, PageRoute, missing
from leaderboard.web.parameters import WHERE, State, address, refusals
from leaderboard.web.settings import Settings

Result = TypeVar("Result")

TRIES = 4


def retry_on_new_version(site: Site, make: Callable[[], Result]) -> Result:
    """What `make` gives; where the index changed meanwhile, once more with the new one.

    Raises:
        Stale: It changed each time.
    """
    for _ in range(TRIES - 1):
        try:
            return make()
        except IndexChanged:
            site.refresh()
    return make()


log = logging.getLogger(__name__)

TITLE = "Encoder leaderboard"
STATIC = Path(__file__).parent.parent / "static"
BOARDS = (
    ("GLUE", "glue"),
    ("MTEB", "mteb"),
    ("BEIR", "beir"),
    ("Code", "codesearchnet"),
    ("Long documents", "mldr"),
)
"""Suites that every page links to."""
FORMATS = {
    "json": ("JSON", "application/json"),
    "csv": ("CSV", "text/csv; charset=utf-8"),
    "md": ("Markdown", "text/markdown; charset=utf-8"),
    "tex": ("LaTeX", "application/x-tex; charset=utf-8"),
}
"""The forms of a page beside HTML, by the end of its URL."""

LISTED = "The page /api lists every parameter."


class Site:
    """Everything that views and routes share."""

    def __init__(self, settings: Settings, index: SiteIndex) -> None:
        self.settings = settings
        self.index = index
        self.pages = page_routes()
        self.kept = PageCache(settings.cache_bytes)
        self.queries = Queries(index, index.version)
        self.kinds: frozenset[str] = frozenset()
        self._refreshing = threading.Lock()
        self._environment = environment()

    @cached_property
    def papers(self) -> dict[str, Paper]:
        """The papers' tables, by slug."""
        return papers(self.settings.reported) if self.settings.reported else {}

    def refresh(self) -> Changes:
        """Look at the folders; pages are made anew where anything changed."""
        with self._refreshing:
            changes = self.index.refresh()
            if changes.version != self.queries.version:
                self.queries = Queries(self.index, changes.version)
                self.__dict__.pop("papers", None)
                self.kept.clear()
            self.kinds = self.queries.kinds()
        return changes

    def key(self, route: PageRoute, state: State, arguments: Mapping[str, str], form: str) -> Hashable:
        """What a page is kept under."""
        pairs = state.pairs() if form == "html" else [*state.whole().pairs(), *state.pairs()]
        return (route.path, form, tuple(arguments.items()), tuple(pairs), self.queries.version)

    def make(self, route: PageRoute, state: State, arguments: Mapping[str, str], form: str) -> RenderedPage:
        """A page in one of its forms: "html" or one of TWINS, which hold every row of a page's tables.

        A twin whose state names `rows` or `page` holds those rows only.
        """
        page = route.view(self, state if form == "html" else state.whole(), **arguments)
        path = address(route.path.format(**arguments))
        if form == "html":
            return replace(self.html(page, state, path if route.twins else ""), route=route.path)
        return RenderedPage(
            body=_twin(page, state, form).encode(), type=FORMATS[form][1], route=f"{route.path}.{form}"
        )

    def twin(self, path: str, query: Mapping[str, Sequence[str]], form: str) -> bytes:
        """A page by its address as one of TWINS.

        Raises:
            NotFound: There is no such page.
            UsageError: The query holds something that the page does not take.
        """
        found = ((route, _match(route.path, path)) for route in self.pages if route.twins)
        route, arguments = next(((r, a) for r, a in found if a is not None), (None, None))
        if route is None or arguments is None:
            raise missing(
                "page", path, [r.path for r in self.pages if r.twins], then="The page /api lists all."
            )
        return self.make(route, _state(route.state, query), arguments, form).body

    def html(self, page: Page, state: State, path: str, *, status: int = 200) -> RenderedPage:
        """A page as HTML; `path` is where its twins lie, empty for none."""
        query = state.query(theme="auto", density="comfortable", **_whole(state))
        base = "/index" if path == "/" else path
        twins = (
            [(label, address(f"{base}.{end}", query)) for end, (label, _) in FORMATS.items()] if path else []
        )
        text = self._environment.get_template(page.template).render(
            page=page,
            state=state,
            site={
                "title": TITLE,
                "version": __version__,
                "kinds": self.kinds,
                "paths": {route.path for route in self.pages},
                "boards": self._boards(),
            },
            url=_url,
            asset=asset,
            theme=state.theme,
            density=state.density,
            static=self.settings.static,
            twins=twins,
            view_links=_view_links(state),
        )
        return RenderedPage(
            body=text.encode(), type="text/html; charset=utf-8", status=status, plots=bool(page.charts)
        )

    def _boards(self) -> list[tuple[str, str]]:
        """The boards in the head of every page: label and path."""
        suites = [(label, f"/suites/{slug}") for label, slug in BOARDS if slug in self.queries.suites]
        page = any(route.path == "/glue" for route in self.pages)
        return [("GLUE", "/glue"), *suites[1:]] if page else suites


def open_site(settings: Settings) -> Site:
    """A site whose index is up to date."""
    site = Site(settings, open_index(settings))
    site.refresh()
    return site


def _match(template: str, path: str) -> dict[str, str] | None:
    """The parameters of a path, None where it is no path of this template."""
    names, values = template.strip("/").split("/"), path.strip("/").split("/")
    if len(names) != len(values):
        return None
    pairs = list(zip(names, map(unquote, values), strict=True))
    if any(name != value for name, value in pairs if not name.startswith("{")):
        return None
    return {name[1:-1]: value for name, value in pairs if name.startswith("{")}


def _state(kind: type[State], query: Mapping[str, Sequence[str]]) -> State:
    plain = {n: list(v) if _is_list(kind, n) else v[-1] for n, v in query.items()}
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        raise UsageError(refusals(kind, error.errors())[0], hint=LISTED) from None


def _is_list(kind: type[State], name: str) -> bool:
    field = kind.model_fields.get(name)
    return field is not None and isinstance(field.get_default(call_default_factory=True), list)


def _whole(state: State) -> dict[str, Any]:
    """Changes to a state that name neither rows nor a page."""
    fields = type(state).model_fields
    return {name: fields[name].get_default() for name in WHERE if name in fields}


def page_routes() -> list[PageRoute]:
    """Every page: the `PAGES` of each file in pages/ whose name begins without an underscore."""
    names = sorted(m.name for m in pkgutil.iter_modules(pages.__path__) if not m.name.startswith("_"))
    return [route for name in names for route in open_entry(f"leaderboard.pages.{name}", "PAGES")]


def environment() -> Environment:
    """Where templates are: every value that is no Markup is escaped."""
    found = Environment(
        loader=PackageLoader("leaderboard"),
        autoescape=select_autoescape(default=True),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["zip"] = zip
    found.globals["plotly"] = f"/static/plotly.min.js?v={version('plotly')}"
    return found


def asset(name: str) -> str:
    """The URL of a static file, which changes with its content."""
    return f"/static/{name}?v={_digest(STATIC / name)}"


def page_json(page: Page, state: State) -> dict[str, Any]:
    """A page as plain values, with what was asked for."""
    return {
        "title": page.title,
        "lead": page.lead,
        "notes": list(page.notes),
        "state": state.said(),
        "tables": [render.table_json(table) for table in page.tables],
        "data": dict(page.data),
    }


def _twin(page: Page, state: State, form: str) -> str:
    if form == "json":
        return json.dumps(page_json(page, state), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if form == "csv":
        return render.csv_text(page.tables)
    if form == "md":
        return render.markdown(page.title, page.tables, notes=page.notes, view=state.shows())
    return render.tex(page.tables, notes=page.notes, view=state.shows())


def _view_links(state: State) -> dict[str, str]:
    """Links that change how a page looks and keep what it shows."""
    themes = {f"theme_{name}": "?" + state.query(theme=name) for name in ("auto", "light", "dark")}
    return themes | {f"density_{n}": "?" + state.query(density=n) for n in ("comfortable", "dense")}


def _url(path: str, **query: Any) -> str:
    return address(path, query)


_digests: dict[tuple[Path, int], str] = {}


def _digest(path: Path) -> str:
    key = (path, path.stat().st_mtime_ns)
    if key not in _digests:
        _digests[key] = hashlib.sha256(path.read_bytes()).hexdigest()[:10]
    return _digests[key]
