"""The site: its settings, the queries of one snapshot, and pages rendered in every format."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

from jinja2 import Environment, PackageLoader, Template, select_autoescape
from pydantic import ValidationError

from harness import __version__
from harness.core.errors import StoreError, UsageError
from harness.core.terminal import clean_text, create_console, show_progress
from harness.results.reported import Paper, read_papers
from harness.results.scores import score_text
from leaderboard.data.entries import TRUST
from leaderboard.data.queries import IndexChanged, Queries
from leaderboard.data.settings import RemoteCopy, SiteSettings
from leaderboard.data.snapshot import SiteIndex, Snapshot, open_index
from leaderboard.web import drawing, table_formats
from leaderboard.web.cache import PageCache, RenderedPage
from leaderboard.web.middleware import FRAMED, POLICY, UNFRAMED
from leaderboard.web.page import Moved, NotFound, Page, build_missing_error
from leaderboard.web.page_state import LOOKS, State, build_address, default_values, describe_errors
from leaderboard.web.routes import FORMATS, PRINTED, PageRoute, load_page_routes
from leaderboard.web.static_site import PlainFiles, name_file, write_entries

T = TypeVar("T")
TITLE = "Encoder leaderboard"
STATIC = Path(__file__).parent.parent / "static"
BOARDS = (
    ("GLUE", "glue"), ("MTEB", "mteb"), ("BEIR", "beir"), ("Code", "codesearchnet"),
    ("Long texts", "mldr"),
)  # fmt: skip
"""Suites that the head of every page links to."""
API_HINT = "The page /api lists every parameter."
_Links: TypeAlias = Sequence[tuple[str, str]]

LETTER = 6.6
"""Width of a letter on a badge; the text is stretched to fit, so other fonts look alike."""

KEPT_OPEN = 2
"""Kept snapshots whose tables are in memory."""

HISTORY = 24
"""Kept snapshots that histories go back."""

SNAPSHOT = re.compile(r"/s/([0-9a-f]{12})(?=/)")
"""How the address of a kept snapshot's page begins."""

KEPT_LINK = re.compile(r'(?<!data-now )((?:href|action)=")(?=/(?!static/|/))')
JSON_LINKS = re.compile(rb'"href": "/|"customdata": \[[^\]]*')
"""Links of HTML and JSON that lead to the same snapshot, where a kept one is shown; those of a chart's points
are in one list."""

TRIES = 4
"""How often a page is rendered whose snapshot is replaced meanwhile."""


class Site:
    """Everything that pages and routes share."""

    def __init__(self, settings: SiteSettings, index: SiteIndex) -> None:
        self.settings = settings
        self.index = index
        self.pages = load_page_routes()
        self.cache = PageCache(settings.cache_bytes)
        self.queries = Queries(index, index.version)
        self.kinds: frozenset[str] = frozenset()
        self.is_stale = False
        self.prefix = ""
        self.plain: PlainFiles | None = None
        self.warnings: list[str] = []
        self._copy = RemoteCopy(settings.remote) if settings.remote else None
        self._refreshing = threading.Lock()
        self._opening = threading.Lock()
        self._kept_sites: dict[str, Site] = {}
        self._environment = create_environment()
        own_pages = {route.path for route in self.pages}
        self._boards = [
            (label, f"/{slug}" if f"/{slug}" in own_pages else f"/suites/{slug}")
            for label, slug in BOARDS if slug in index.suites
        ]  # fmt: skip

    @cached_property
    def papers(self) -> dict[str, Paper]:
        """The papers' tables, by slug."""
        return read_papers(self.settings.reported) if self.settings.reported else {}

    @property
    def as_of(self) -> str:
        """The date and the id of the snapshot that is shown; empty without one."""
        snapshot = self.queries.snapshot
        return f"as of {snapshot.made[:10]}, snapshot {snapshot.id}" if snapshot else ""

    def build_citable_address(self, path: str) -> str:
        """The address of a page in a citation: that of a kept snapshot lasts."""
        return f"{self.settings.url or 'SITE'}{self.prefix}{path}"

    def format_bibtex(self, title: str, path: str, quote: str = "") -> str:
        """The BibTeX entry of a page, with a sentence that it says."""
        snapshot = self.queries.snapshot
        assert snapshot
        note = f"As of {snapshot.made[:10]}{f': {quote}' if quote else ''}"
        fields = {
            "title": table_formats.escape_tex(title), "howpublished": f"{TITLE}, snapshot {snapshot.id}",
            "year": snapshot.made[:4], "url": self.build_citable_address(path),
            "note": table_formats.escape_tex(note),
        }  # fmt: skip
        key = re.sub(r"[^A-Za-z0-9]+", "-", f"encoders-{snapshot.id}{path}").strip("-")
        lines = [f"@misc{{{key}", *(f"  {name} = {{{text}}}" for name, text in fields.items())]
        return ",\n".join(lines) + "\n}"

    def list_kept(self) -> list[Snapshot]:
        """The newest kept snapshots beside the one that is shown; none of a kept one, whose pages stay."""
        snapshot = self.queries.snapshot
        others = [] if self.prefix or snapshot is None else self.index.list_kept()
        return [one for one in others if snapshot and one.id != snapshot.id][-HISTORY:]

    def keep(self) -> str:
        """Keep the snapshot that is shown, with its ranks; returns the prefix of its addresses.

        Raises:
            NotFound: As many snapshots are kept as may be.
        """
        queries = self.queries
        assert queries.snapshot
        if not self.index.keep(queries.snapshot, queries.list_ranks):
            raise NotFound(
                f"This site keeps {self.settings.keep} snapshots, and has no place for another.",
                hint="`harness serve --keep N` takes more.",
            )
        return f"/s/{queries.snapshot.id}"

    def open_kept(self, id: str) -> Site:
        """The site of a kept snapshot.

        Raises:
            NotFound: No snapshot with this id is kept.
            StoreError: It cannot be read now.
        """
        # Without the lock: readers of an open one do not wait while another is opened.
        if site := self._kept_sites.get(id):
            return site
        with self._opening:
            site = self._kept_sites.get(id)
            if site is None:
                index = self.index.open_kept(id)
                if index is None:
                    raise _build_unkept_error(id)
                site = copy.copy(self)
                site.index, site.settings, site.prefix = index, index.settings, f"/s/{id}"
                site.queries, site.warnings = Queries(index, index.version), []
                site.__dict__.pop("papers", None)
                site.kinds = site.queries.list_document_kinds()
                self._kept_sites[id] = site
                # Each has its tables in memory: the one that was opened first goes.
                while len(self._kept_sites) > KEPT_OPEN:
                    del self._kept_sites[next(iter(self._kept_sites))]
            return site

    def resolve_address(self, address: str) -> tuple[Site, str]:
        """The site that a page's address is of, and the address in it, without a kept snapshot's prefix.

        Raises:
            NotFound: No snapshot with the id in the address is kept.
        """
        match = SNAPSHOT.match(address)
        if match is None:
            return self, address
        return self if match[0] == self.prefix else self.open_kept(match[1]), address[match.end() :]

    def has_open(self, id: str) -> bool:
        """Whether a kept snapshot is in memory: to open another one reads all its files."""
        return id in self._kept_sites

    def refresh(self) -> int:
        """Bring the snapshot up to date and show it; returns the number of its entries.

        Raises:
            StoreError: The remote cannot be read.
        """
        with self._refreshing:
            if self._copy is not None:
                self._copy.pull()
            self.index.refresh()
            self.is_stale = False
            return self._show_newest()

    def follow(self) -> int:
        """Show the newest snapshot, which another process may have made."""
        with self._refreshing:
            return self._show_newest()

    def _show_newest(self) -> int:
        if self.index.version != self.queries.version:
            # A new object, so that pages that are being rendered keep theirs.
            self.queries = Queries(self.index, self.index.version)
            # A cached_property keeps its value in there.
            self.__dict__.pop("papers", None)
        self.warnings = [
            f"The results folder {folder.name} is gone or empty. What it held at the last look is shown."
            for folder in self.index.vanished
        ]
        self.kinds = self.queries.list_document_kinds()
        return self.queries.count_entries()

    def build_cache_key(
        self, route: PageRoute, state: State, arguments: Mapping[str, str], form: str
    ) -> Hashable:
        """What a rendered page is cached under."""
        # Other formats have all rows unless the query names some, even if it names the default.
        named = tuple(sorted(state.model_fields_set & {"rows", "page"})) if form != "html" else ()
        # With the snapshot: a page that was begun before a refresh is never taken for one of the new
        # snapshot. Versions alone begin anew in an empty cache.
        snapshot = (self.queries.version, self.as_of, *self.warnings)
        place = (self.prefix, snapshot, route.path, form)
        return (*place, tuple(arguments.values()), state.build_query(), named)

    def render(self, route: PageRoute, state: State, arguments: Mapping[str, str], form: str) -> RenderedPage:
        """A page in one of its formats, or as "html"; again where the snapshot is replaced meanwhile.

        Args:
            route: The page.
            state: The parameters of its query.
            arguments: The parameters of its path.
            form: A format of FORMATS, or "html".
        """
        return self.try_again(lambda: self._render(route, state, arguments, form))

    def try_again(self, make: Callable[[], T]) -> T:
        """What `make` returns; called again where the snapshot is replaced meanwhile.

        Raises:
            NotFound: This is a kept snapshot, and its files are gone.
            StoreError: The snapshot cannot be read now.
        """
        for _ in range(TRIES - 1):
            try:
                return make()
            except (IndexChanged, StoreError) as error:
                if self.prefix:
                    # Its address never shows what the folders hold today; the next request opens it again.
                    id = self.prefix.removeprefix("/s/")
                    self._kept_sites.pop(id, None)
                    if not self.index.verify_snapshot():
                        raise _build_unkept_error(id) from error
                    raise StoreError(f"Snapshot {id} cannot be read now.", hint="Reload the page.") from error
                if isinstance(error, StoreError):
                    raise
                with self._refreshing:
                    self.index.refresh()
                    self._show_newest()
        return make()

    def _render(
        self, route: PageRoute, state: State, arguments: Mapping[str, str], form: str
    ) -> RenderedPage:
        page = route.view(self, state if form == "html" else state.show_all_rows(), **arguments)
        page = replace(page, notes=[*self.warnings, *page.notes])
        if form == "html":
            path = route.path.format(**arguments)
            return self.render_html(page, state, _list_format_links(route, state, arguments), path)
        body = self.format_page(page, state, form)
        if self.prefix and form == "json":
            link = f'"{self.prefix}/'.encode()
            body = JSON_LINKS.sub(lambda match: match[0].replace(b'"/', link), body)
        return RenderedPage(body=body, type=FORMATS[form][1])

    def format_page(self, page: Page, state: State, form: str) -> bytes:
        """A page in one of FORMATS."""
        snapshot, as_of = self.queries.snapshot, self.as_of
        if form == "parquet":
            facts = {f"snapshot_{name}": text for name, text in _describe_snapshot(snapshot).items()}
            return table_formats.render_parquet(page.tables, facts)
        if form == "csv":
            return table_formats.render_csv(page.tables, as_of).encode()
        if form == "json":
            document = build_page_json(page, state, snapshot)
            text = clean_text(json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False))
            return f"{text}\n".encode()
        notes = [*page.notes, *([f"{as_of.capitalize()}."] if as_of else [])]
        view = state.build_filter_query()
        if form == "md":
            return table_formats.render_markdown(page.title, page.tables, notes=notes, view=view).encode()
        return table_formats.render_tex(page.tables, notes=notes, view=view).encode()

    def export(self, path: str, query: Mapping[str, Sequence[str]], form: str) -> bytes:
        """A page by its address in one of its formats, with every row unless the query names some.

        Args:
            path: The page's path.
            query: The values of each parameter, as text.
            form: A format of FORMATS.

        Raises:
            NotFound: No page has this path, or it lacks this format.
            UsageError: The query holds something that the page does not take.
        """
        source, path = self.resolve_address(path)
        if source is not self:
            return source.export(path, query, form)
        routes = [route for route in self.pages if form in route.formats]
        for route in routes:
            arguments = route.match_path(f"/{path.strip('/')}")
            if arguments is not None:
                arguments = {name: unquote(value) for name, value in arguments.items()}
                state = _parse_page_state(route.state, query)
                try:
                    return self.render(route, state, arguments, form).body
                except Moved as moved:
                    return self.render(route, state, moved.arguments, form).body
        paths = [route.path for route in routes]
        raise build_missing_error(
            f"page with a {form} format",
            path,
            paths,
            then="Type e.g. /models/NAME or /suites/NAME; /api lists all.",
        )

    def render_html(
        self, page: Page, state: State, links: _Links = (), path: str = "", *, status: int = 200
    ) -> RenderedPage:
        """A page as HTML, with its own path, and links to its other formats."""
        text = self.load_template(page.template).render(
            page=page, own=page.context, state=state,
            site={
                "title": TITLE, "version": __version__, "url": self.settings.url.rstrip("/"),
                "kinds": self.kinds, "warnings": self.warnings, "paths": {route.path for route in self.pages},
                "boards": self._boards, "path": path,
                "address": build_address(path, state.build_filter_query()), "prefix": self.prefix,
                "as_of": self.as_of,
            },
            url=lambda path, **query: build_address(path, query), asset=format_asset_url, theme=state.theme,
            embed=state.embed, static=self.plain, policy=POLICY.partition(f" {UNFRAMED}")[0], formats=links,
            view_links={
                **{f"theme_{n}": "?" + state.build_query(theme=n) for n in ("auto", "light", "dark")},
                "whole": "?" + state.build_query(embed=False),
            },
        )  # fmt: skip
        if self.prefix:
            text = KEPT_LINK.sub(rf"\g<1>{self.prefix}", text)
        policy = POLICY.replace(UNFRAMED, FRAMED) if state.embed else ""
        return RenderedPage(body=text.encode(), type="text/html; charset=utf-8", status=status, policy=policy)

    def load_template(self, name: str) -> Template:
        """A file of templates/."""
        return self._environment.get_template(name)


def _build_unkept_error(id: str) -> NotFound:
    hint = "The button “Cite or embed” of a page keeps one; other software may not read it."
    return NotFound(f"No snapshot {id} is kept.", hint=hint)


def open_site(settings: SiteSettings, *, follows: bool = False, at_once: bool = False) -> Site:
    """A site whose snapshot is up to date.

    Args:
        settings: How it runs.
        follows: Whether another process refreshes the snapshot, and it is shown as that one made it.
        at_once: Whether the snapshot of an earlier run is shown until somebody refreshes it (`is_stale`).
    """
    site = Site(settings, open_index(settings))
    if follows or (at_once and site.index.verify_snapshot()):
        site.is_stale = not follows
        site.follow()
    else:
        site.refresh()
    return site


def render_badge(site: Site, suite: str, slug: str) -> str:
    """The badge of an entry: its mean over tasks, or how much of the suite it has.

    Where scores on some of the tasks chose the model, it also shows the mean over the other tasks, and its
    title names the tasks that are left out.

    Args:
        site: The site.
        suite: The suite's slug.
        slug: The entry's slug, or any name of its model, of whose entries the newest with all tasks is shown.

    Returns:
        The badge as SVG.

    Raises:
        NotFound: No suite has this slug, or no entry of the suite has that one.
    """
    queries = site.queries
    if suite not in queries.suites:
        raise build_missing_error("suite", suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[suite]
    scores = queries.load_suite_scores(listed)
    rows = {entry.slug: row for row, entry in enumerate(scores.entries)}
    mean = scores.over_tasks
    if slug not in rows:
        entries = [entry for entry in queries.find_named_entries(slug) if entry.slug in rows]
        if not entries:
            raise build_missing_error("entry", slug, rows, then=f"The page /suites/{suite} lists all.")
        slug = max(
            (mean.complete[rows[e.slug]], -TRUST.index(e.trust), e.newest or "", e.slug) for e in entries
        )[3]
    row = rows[slug]
    complete = bool(mean.complete[row])
    text = score_text(mean.values[row]) if complete else f"{mean.count[row]} of {mean.expected} tasks"
    untouched, more = scores.compute_untouched_means([row]), ""
    if complete and untouched is not None:
        text += f", {score_text(untouched.over_tasks.values[row])} {untouched.part.text}"
        more = f"; without {', '.join(untouched.part.selected)}"
    elif complete and scores.find_selection_columns(row):
        text += ", chosen by it"
    more += f"; {site.as_of}"
    label, colour = listed.suite.title, "#1f6f54" if complete else "#6b7280"
    widths = {"left": LETTER * len(label) + 12, "right": LETTER * len(text) + 12}
    return site.load_template("badge.svg").render(label=label, text=text, more=more, colour=colour, **widths)


def create_environment() -> Environment:
    """Where templates are: every value that is no Markup is cleaned and escaped."""
    jinja_env = Environment(
        loader=PackageLoader("leaderboard"),
        autoescape=select_autoescape(default=True),
        # By its own type: a Markup is a str, too, and was cleaned as its parts were written.
        finalize=lambda value: clean_text(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja_env.globals |= {"zip": zip, "drawing": drawing}
    return jinja_env


def format_asset_url(name: str) -> str:
    """The address of a static file, which changes with its content."""
    path = STATIC / name
    # With the time of change in the key of the cache, an edited file is read again.
    return f"/static/{name}?v={_digest(path, path.stat().st_mtime_ns)}"


@cache
def _digest(path: Path, _mtime: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:10]


def build_page_json(page: Page, state: State, snapshot: Snapshot | None = None) -> dict[str, Any]:
    """A page as plain values, with the parameters that are not at their defaults."""
    return {
        "snapshot": _describe_snapshot(snapshot) or None,
        "title": page.title,
        "lead": page.lead,
        "notes": list(page.notes),
        "state": {name: value for name, value in state.collect_changes().items() if name not in LOOKS},
        "tables": [table_formats.build_table_json(table) for table in page.tables],
        "charts": [{"name": c.name, "title": c.title, "figure": c.figure} for c in page.charts],
        "data": dict(page.data),
    }


def _describe_snapshot(snapshot: Snapshot | None) -> dict[str, str]:
    return {"id": snapshot.id, "date": snapshot.made[:10]} if snapshot else {}


def _list_format_links(route: PageRoute, state: State, arguments: Mapping[str, str]) -> list[tuple[str, str]]:
    """The other formats of a page, with all rows of its tables: their names and addresses."""
    defaults = default_values(type(state))
    query = state.build_query(**{n: defaults[n] for n in (*LOOKS, "rows", "page") if n in defaults})
    return [
        (FORMATS[form][0], build_address(route.build_format_path(form).format(**arguments), query))
        for form in route.formats
    ]


def _parse_page_state(kind: type[State], query: Mapping[str, Sequence[str]]) -> State:
    defaults = default_values(kind)
    plain = {n: list(v) if isinstance(defaults.get(n), list) else v[-1] for n, v in query.items()}
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        raise UsageError(describe_errors(kind, error.errors())[0], hint=API_HINT) from None


# The whole site as plain files, for any web host


NEEDS_SERVER = {
    "/pareto": "This is a plain file: another suite, axis or filter needs a running site. "
    "harness serve opens one."
}
"""Notes on pages that show little without queries; /compare has its own."""

BADGE = re.compile(rb"/(badges/([^/\"()<>]+)/([^/\"()<>]+)\.svg)\)")

MARK = ".encoder-leaderboard"
"""A file in every folder that was written here: another folder is not written over."""


def write_site(settings: SiteSettings, folder: Path) -> int:
    """Write every page as a file; links lead from file to file.

    Pages show their default state with all of their rows, which a browser sorts, filters and searches: what
    else a query would change needs the server. Pages of imported results are not written, so nothing links to
    them.

    Raises:
        UsageError: The folder holds something else.
        StoreError: It cannot be written.
    """
    began = time.perf_counter()
    site = open_site(settings)
    _prepare(folder)
    # Parquet of what papers print; a browser makes CSV of any table.
    routes = [replace(one, formats=("parquet",) if one.formats == PRINTED else ()) for one in site.pages]
    # All paths first: links to other pages of the site are taken out.
    pages = [(route, path) for route in routes for path in route.all_paths(site)]
    site.plain = PlainFiles(pages, site.queries)
    size = 0
    try:
        with show_progress("pages", quiet=False) as progress:
            for number, (route, path) in enumerate(pages):
                progress(number, len(pages))
                for name, content in _write_page(site, site.plain, route, path):
                    size += _write_site_file(folder / name, content)
        shutil.copytree(STATIC, folder / "static", dirs_exist_ok=True)
        size += _write_site_file(folder / "static" / "entries.js", write_entries(site.queries).encode())
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}.") from error
    seconds, core = time.perf_counter() - began, time.process_time()
    create_console().print(
        f"{len(pages):,} pages, {size / 1e6:.1f} MB, in {seconds:.0f} s ({core:.0f} s of a core). "
        f"Next: python -m http.server -d {folder}, or open {folder / 'index.html'}"
    )
    return 0


def _prepare(folder: Path) -> None:
    hint = "Name an empty or a new folder."
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", hint=hint)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise UsageError(f"{folder} holds files that `--static` did not write.", hint=hint)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def _write_page(site: Site, plain: PlainFiles, route: PageRoute, path: str) -> Iterator[tuple[str, bytes]]:
    """The names and contents of a page's files."""
    arguments = route.match_path(path) or {}
    # The defaults, as a file cannot answer a query; and every task, as it cannot unfold a type either.
    state = route.state.model_validate({"tasks": ["all"]} if "tasks" in route.state.model_fields else {})
    state = state.show_all_rows()
    page = site.try_again(lambda: route.view(site, state, **arguments))
    notes = [*site.warnings, *page.notes, *filter(None, [NEEDS_SERVER.get(route.path)])]
    context = page.context
    if isinstance(context, dict) and context.get("form") and page.tables:
        context = {**context, "form": plain.keep_controls(context["form"], page.tables[0], state)}
    links = _list_format_links(route, state, arguments)
    html = site.render_html(replace(page, notes=notes, context=context), state, links, path).body
    yield plain.files[path], plain.rewrite_links(html, plain.files[path])
    for name, suite, entry in set(BADGE.findall(html)) if site.settings.url else ():
        yield name.decode(), render_badge(site, suite.decode(), entry.decode()).encode()
    for form in route.formats:
        yield f"{name_file(path)}.{form}", site.format_page(page, state, form)


def _write_site_file(path: Path, content: bytes) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.write_bytes(content)
