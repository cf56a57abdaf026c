"""The application: a route for every page in every format, and what stands around them."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import inspect
import ipaddress
import logging
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Any
from urllib.parse import parse_qs, parse_qsl
from xml.sax.saxutils import escape

from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import PathLike, StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from harness import __version__
from harness.core.errors import HarnessError, StoreError, UsageError
from leaderboard.data.settings import SiteSettings
from leaderboard.web.cache import RenderedPage, RenderQueue, answer
from leaderboard.web.middleware import CONTENT_TYPE, CountRequests, Metrics, SecurityHeaders
from leaderboard.web.page import Moved, NotFound, Page
from leaderboard.web.page_state import PageAddress, State, build_address, describe_errors
from leaderboard.web.routes import FORMATS, PageRoute
from leaderboard.web.site import API_HINT, SNAPSHOT, STATIC, Site, format_asset_url, open_site, render_badge

log = logging.getLogger(__name__)

YEAR = "public, max-age=31536000, immutable"
SUITE = "/suites/{suite}"
NOTICE = 1.0
"""Seconds after which a worker notices at the latest that the snapshot was replaced."""

SWITCH = 0.0005
"""Seconds that a thread which renders a page may keep the one waiting that sends pages."""


class CellJson(BaseModel):
    """A cell of a table: its value, and what else is known of it."""

    value: float | int | str | bool | None
    text: str = ""
    kind: str = Field("", description="Why it looks as it does; the page /about lists all.")
    note: str = ""
    href: str = ""


class ColumnJson(BaseModel):
    """A column of a table."""

    key: str
    label: str
    group: str
    note: str


class RowJson(BaseModel):
    """A row of a table: cells by the columns' keys; cells that hold nothing are left out."""

    key: str
    kind: str
    cells: dict[str, CellJson]


class TableJson(BaseModel):
    """A table of a page."""

    name: str
    caption: str
    columns: list[ColumnJson]
    rows: list[RowJson]
    notes: list[str]


class ChartJson(BaseModel):
    """A chart of a page; the figure is data and layout in Plotly's form."""

    name: str
    title: str
    figure: dict[str, Any]


class PageJson(BaseModel):
    """A page as data; values are as printed."""

    snapshot: dict[str, str] | None = Field(description="What it is of: `id` and `date`; null without data.")
    title: str
    lead: str
    notes: list[str]
    state: dict[str, Any] = Field(description="The parameters that are not at their defaults.")
    tables: list[TableJson]
    charts: list[ChartJson]
    data: dict[str, Any]


def create_app(settings: SiteSettings, site: Site | None = None, *, follows: bool = False) -> FastAPI:
    """The site as an application.

    Args:
        settings: How it runs.
        site: The site, if it is open; else it is opened and refreshed first.
        follows: Whether another process refreshes the snapshot, which is only noticed here.
    """
    site, metrics = site or open_site(settings, follows=follows), Metrics()
    metrics.note_refresh(site.queries.count_entries())

    @asynccontextmanager
    async def run_lifespan(_app: FastAPI) -> AsyncIterator[None]:
        # For the whole process, as nothing else runs in it.
        sys.setswitchinterval(SWITCH)
        warming, ends = asyncio.create_task(run_in_threadpool(_warm, site)), Event()
        looks = {"follows": follows, "note": metrics.note_refresh}
        looking = Thread(target=poll_changes, args=[site, ends], kwargs=looks, daemon=True)
        looking.start()
        yield
        warming.cancel()
        ends.set()
        looking.join()

    app = FastAPI(
        title="Encoder leaderboard",
        version=__version__,
        summary="Scores of text encoders on downstream tasks: measured, imported, and reported by papers.",
        # Their pages load scripts from other hosts, which the policy forbids; /api and /openapi.json stand
        # in for them.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=run_lifespan,
    )
    limits = Limits(f"{settings.pages_a_minute}/minute")
    app.state.site, app.state.metrics, app.state.limits = site, metrics, limits
    app.state.queue = RenderQueue(site.cache)
    for route in site.pages:
        _add_page(app, site, route)
    _add_extras(app, site, metrics)
    static = _StaticFiles(directory=STATIC)
    app.mount("/static", GZipMiddleware(static, compresslevel=5))
    for kind in (HarnessError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, partial(_answer_error, site))
    app.add_middleware(_BoundedQueries)
    app.add_middleware(CountRequests, metrics=metrics)
    # Around everything, so that answers to a failure have the headers too; nothing can be added after it.
    app.middleware_stack = SecurityHeaders(app.build_middleware_stack(), shared=bool(settings.url))
    return app


class _StaticFiles(StaticFiles):
    """Files that a browser keeps for a year where their address names their content."""

    def file_response(
        self, full_path: PathLike, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """The file, or 304."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        path = Path(full_path)
        address = f"/static/{path.name}?{scope['query_string'].decode('latin-1')}"
        # A page from before an update may ask for a version that is gone: it gets the file, but not for a
        # year.
        response.headers["Cache-Control"] = YEAR if address == format_asset_url(path.name) else "no-cache"
        return response


def _add_page(app: FastAPI, site: Site, route: PageRoute) -> None:
    """A page in its formats: those first, as their addresses look like names of the page itself."""
    name = "_".join(part.strip("{}") for part in route.path.split("/") if part) or "overview"
    for form in route.formats:
        label, kind = FORMATS[form]
        content: dict[int | str, dict[str, Any]] = {
            200: {"content": {kind.partition(";")[0]: {}}, "description": f"As {label}."}
        }
        app.add_api_route(
            route.build_format_path(form), _build_endpoint(site, route, form),
            summary=f"{route.summary} As {label}.", tags=[route.path], operation_id=f"{name}_{form}",
            responses={**(content if form != "json" else {}), **DOCUMENTED},
            response_model=PageJson if form == "json" else None,
            response_class=JSONResponse if form == "json" else Response,
        )  # fmt: skip
    html = _build_endpoint(site, route, "html")
    app.add_api_route(route.path, html, include_in_schema=False, response_class=Response, response_model=None)


def _build_endpoint(site: Site, route: PageRoute, form: str) -> Callable[..., Any]:
    """The function that answers for a page in one format, with a signature that FastAPI can read."""

    async def answer_page(request: Request, state: State, **arguments: str) -> Response:
        app = request.app.state
        source = await run_in_threadpool(_find_site, site, request) if "snapshot" in request.scope else site
        key = source.build_cache_key(route, state, arguments, form)
        page = site.cache.get(key)
        app.metrics.cache.labels("hit" if page else "miss").inc()
        if page is None:
            # Only here: pages from the cache cost nothing, and are not counted.
            _count_request(request)
            try:
                page = await app.queue.render(key, partial(source.render, route, state, arguments, form))
            except Moved as moved:
                path = route.path if form == "html" else route.build_format_path(form)
                moved_to = moved.address or build_address(path.format(**moved.arguments), request.url.query)
                return RedirectResponse(source.prefix + moved_to)
        return answer(request, page)

    text = Annotated[str, PathParameter(max_length=300)]
    kinds: dict[str, Any] = {part[1:-1]: text for part in route.path.split("/") if part.startswith("{")}
    kinds |= {"state": Annotated[route.state, Query()], "request": Request}
    named = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    parameters = [named(name, annotation=kind) for name, kind in kinds.items()]
    signature = inspect.Signature(parameters, return_annotation=Any)
    # FastAPI reads the signature to learn the parameters; a function for all pages has none to write out.
    vars(answer_page).update(__signature__=signature, state=route.state)
    return answer_page


def _find_site(site: Site, request: Request) -> Site:
    """The site of the kept snapshot that a request names, or the one that follows the folders."""
    id = request.scope.get("snapshot")
    if id and not site.has_open(id):
        _count_request(request)
    return site.open_kept(id) if id else site


def _count_request(request: Request) -> None:
    """Count a request that takes work; refuse it where its client sent too many."""
    request.app.state.limits.enforce(request.client.host if request.client else "unknown")


def _add_extras(app: FastAPI, site: Site, metrics: Metrics) -> None:
    @app.post("/cite", include_in_schema=False)
    def cite(request: Request, of: PageAddress = "/") -> Response:
        # Browsers of today say where a request comes from.
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            hint = "The button “Cite or embed” of a page keeps its snapshot."
            raise Refusal(403, "Another site sent this.", hint=hint)
        _count_request(request)
        source, of = _find_site(site, request).resolve_address(of)
        path, _, query = of.partition("?")
        # What does not exist keeps nothing.
        source.export(path, parse_qs(query, keep_blank_values=True), "json")
        address = build_address("/cite", {"of": of})
        return RedirectResponse(f"{source.prefix or source.keep()}{address}", status_code=303)

    @app.get("/models/{name:path}", include_in_schema=False)
    def redirect_name_with_slash(request: Request, name: str) -> Response:
        if "/" not in name:
            raise HTTPException(404)
        # The addresses of models have -- for the slash behind the organisation.
        address = build_address(f"/models/{name.replace('/', '--')}", request.url.query)
        return RedirectResponse(request.scope["root_path"] + address)

    @app.get("/robots.txt", include_in_schema=False)
    def list_robot_rules(request: Request) -> Response:
        lines = ["User-agent: *", *(f"Disallow: {path}" for path in ("/s/", "/compare", "/search"))]
        lines.append(f"Sitemap: {site.settings.url or str(request.base_url).rstrip('/')}/sitemap.xml\n")
        return Response("\n".join(lines), media_type="text/plain")

    @app.get("/sitemap.xml", include_in_schema=False)
    def map_site(request: Request) -> Response:
        paths = (path for route in site.pages if "{id}" not in route.path for path in route.all_paths(site))
        url = site.settings.url or str(request.base_url).rstrip("/")
        # A sitemap holds no more addresses.
        urls = (escape(url + build_address(path)) for path in islice(paths, 50_000))
        places = "".join(f"<url><loc>{one}</loc></url>" for one in urls)
        head = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
        return Response(f"{head}{places}</urlset>", media_type="application/xml")

    @app.get(
        "/badges/{suite}/{entry:path}.svg",
        response_class=Response,
        responses=_describe_responses("image/svg+xml", 404, 422),
    )
    def badge_svg(request: Request, suite: str, entry: str) -> Response:
        """The mean over a suite's tasks as a badge: of an entry, or of a model by any of its names."""
        _count_request(request)
        source = _find_site(site, request)
        body = source.try_again(lambda: render_badge(source, suite, entry)).encode()
        return answer(request, RenderedPage(body=body, type="image/svg+xml; charset=utf-8"))

    @app.get("/openapi.json", include_in_schema=False)
    def describe_api() -> JSONResponse:
        return JSONResponse(app.openapi())

    @app.get("/healthz", response_class=Response, responses=_describe_responses("text/plain"))
    def health() -> Response:
        """Whether the site answers, and which snapshot it shows; 503 if a results folder has vanished."""
        gone = ", ".join(folder.name for folder in site.index.vanished)
        word = f"gone or empty: {gone}; still shown:" if gone else "ok,"
        text = f"{word} snapshot {site.queries.version}\n"
        return Response(text, status_code=503 if gone else 200, media_type="text/plain")

    @app.get("/metrics", response_class=Response, responses=_describe_responses("text/plain"))
    def measured() -> Response:
        """Metrics of the process that answers, for Prometheus."""
        return Response(metrics.render_metrics(), media_type=CONTENT_TYPE)


def _describe_responses(kind: str, *errors: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {}}}, **{status: DOCUMENTED[status] for status in (400, 414, *errors)}}


def _warm(site: Site) -> None:
    """Render what most readers open first, so that nobody waits for it."""
    routes = {route.path: route for route in site.pages}
    suites = [s for s, one in site.queries.suites.items() if one.main and s in site.queries.entries_of_suites]
    first: list[tuple[str, dict[str, str]]] = [(path, {}) for path in routes if "{" not in path]
    for path, arguments in [*first, *((SUITE, {"suite": slug}) for slug in suites)]:
        route = routes[path]
        state = route.state.model_validate({})
        page = site.render(route, state, arguments, "html").encode_gzip()
        site.cache.put(site.build_cache_key(route, state, arguments, "html"), page)
    gc.collect()
    # glibc keeps what it freed: 8 MB for good.
    trim_heap = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim_heap:
        trim_heap(0)
    # Frozen objects are not collected at the end, and DuckDB would warn that they were left.
    atexit.register(gc.unfreeze)
    # What stays for as long as the site runs need not be looked through at each collection.
    gc.freeze()


def poll_changes(
    site: Site, ends: Event, *, follows: bool = False, note: Callable[[int], object] = int
) -> None:
    """Look at the folders again and again, in a thread of its own.

    Args:
        site: The site.
        ends: When to stop.
        follows: Whether another process looks at the folders, and only its snapshots are noticed here.
        note: Called with the number of entries after each look.
    """
    seconds, now = (NOTICE, False) if follows else (site.settings.refresh, site.is_stale)
    while now or (seconds and not ends.wait(seconds)):
        now = False
        try:
            note(site.follow() if follows else site.refresh())
        except HarnessError as error:
            log.error("%s The pages stay as they are.", error.message)
        except Exception:
            log.exception("The folders could not be looked at; the pages stay as they are.")


_PARTS = {"status": {"type": "integer"}, "message": {"type": "string"}, "hint": {"type": "string"}}
_ERROR = {"type": "object", "required": list(_PARTS), "properties": _PARTS}
_SHAPE: dict[str, Any] = {"type": "object", "required": ["error"], "properties": {"error": _ERROR}}
_STATUSES = {
    400: "The query is malformed.",
    404: "No page has this address.",
    414: "The query is too long.",
    422: "A parameter is not what it should be.",
    429: "Too many requests; Retry-After says when to try again.",
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": _SHAPE}}}
    for status, text in _STATUSES.items()
}
"""What every page may answer beside itself, for the API's description."""


def _describe_http_error(request: Request, error: Exception) -> tuple[int, str, str, Mapping[str, str]]:
    """The status, message, hint and headers of the answer to an error."""
    if isinstance(error, Refusal):
        return error.status, error.message, error.hint or "", error.headers
    if isinstance(error, HarnessError):
        status = 503 if isinstance(error, StoreError) else 500
        if isinstance(error, UsageError):
            status = 404 if isinstance(error, NotFound) else 422
        if status >= 500:
            log.error("%s: %s", request.url.path, error)
        headers = {"Retry-After": "5", "Cache-Control": "no-store"} if status == 503 else {}
        return status, error.message, error.hint or "", headers
    if isinstance(error, RequestValidationError):
        # The first part of a place is "query" or "path", which says nothing to a reader.
        inside = [{**one, "loc": one["loc"][1:]} for one in error.errors()[:5]]
        state = getattr(request.scope.get("endpoint"), "state", State)
        return 422, " ".join(describe_errors(state, inside)), API_HINT, {}
    if isinstance(error, HTTPException):
        hint = "The way in is /; the page /api lists every address." if error.status_code == 404 else ""
        return error.status_code, f"{error.detail}.", hint, error.headers or {}
    log.error("%s failed", request.url.path, exc_info=error)
    return 500, "Something went wrong here.", "It was written to the log.", {}


async def _answer_error(site: Site, request: Request, error: Exception) -> Response:
    status, message, hint, headers = _describe_http_error(request, error)
    if _is_json_request(request):
        return _build_error_response(status, message, hint, headers)
    page, state = Page(title=message, template="error.html", lead=hint), State.model_validate({})
    response = answer(request, await run_in_threadpool(site.render_html, page, state, status=status))
    response.headers.update(headers)
    return response


def _is_json_request(request: Request) -> bool:
    """Whether a client reads data: it named a format or the API, or does not take HTML."""
    path = request.url.path
    return (
        # A browser that opens such an address shows what it gets, so the ending goes before its Accept.
        path.endswith(tuple(f".{form}" for form in FORMATS))
        or path.startswith(("/api/", "/openapi", "/badges/", "/metrics", "/healthz"))
        or "text/html" not in request.headers.get("accept", "*/*")
    )


# Limits of what one client may request, and the refusals that say so


QUERY_BYTES, PARAMETERS, VALUE = 8192, 256, 512


class Refusal(HarnessError):
    """A request that is not carried out: its HTTP status, and the headers that the answer needs."""

    def __init__(self, status: int, message: str, *, hint: str = "", headers: Mapping[str, str] = {}) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = {"Cache-Control": "no-store", **headers}


def _build_error_response(status: int, message: str, hint: str, headers: Mapping[str, str]) -> JSONResponse:
    """An error as JSON."""
    error = {"status": status, "message": message, "hint": hint}
    return JSONResponse({"error": error}, status_code=status, headers=dict(headers))


class Limits:
    """How often one client may have a page rendered: "1200/minute". Each process counts on its own."""

    def __init__(self, rate: str) -> None:
        self._rate = parse(rate)
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    def enforce(self, client: str) -> None:
        """Count one page for an address, or for anything else that names a client.

        Raises:
            Refusal: 429, with Retry-After.
        """
        name = mask_client_address(client)
        if self._limiter.hit(self._rate, name):
            return
        # Rounded up, and not 0: a client that waits so long is let in.
        ends = self._limiter.get_window_stats(self._rate, name).reset_time
        seconds = max(1, math.ceil(ends - time.time()))
        hint, headers = f"Wait {seconds} s and try again.", {"Retry-After": str(seconds)}
        raise Refusal(429, "Too many requests.", hint=hint, headers=headers)


def mask_client_address(client: str) -> str:
    """Whom an address stands for: an IPv6 one for its /64, which one client has for itself.

    >>> mask_client_address("2001:db8:1:2:3::7"), mask_client_address("192.0.2.1")
    ('2001:db8:1:2::', '192.0.2.1')
    >>> mask_client_address("::ffff:192.0.2.1")
    '192.0.2.1'
    """
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client[:64]
    # A server that listens on IPv6 sees IPv4 clients as ::ffff:192.0.2.1.
    if address.version == 4 or address.ipv4_mapped:
        return str(address if address.version == 4 else address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def check_query(query: bytes) -> None:
    """Look at a query string before it is parsed into parameters.

    Raises:
        Refusal: 414 if it is too long; 400 if it has too many parameters, a parameter that is too
            long, or control characters.
    """
    if len(query) > QUERY_BYTES:
        raise Refusal(414, f"The query is longer than {QUERY_BYTES} bytes.")
    try:
        text = query.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS)
    # Before ValueError, of which UnicodeError is a kind.
    except UnicodeError as error:
        raise Refusal(400, "The query is not UTF-8 in percent-encoding.") from error
    except ValueError as error:
        raise Refusal(400, f"The query has more than {PARAMETERS} parameters.") from error
    for part in (part for pair in pairs for part in pair):
        if len(part) > VALUE:
            raise Refusal(400, f"A part of the query is longer than {VALUE} characters.")
        if any(ord(c) < 32 or ord(c) == 127 for c in part):
            raise Refusal(400, "The query has control characters.")


class _BoundedQueries:
    """Refuses a query that is too much; takes a snapshot's id from the path, and HEAD as a bodiless GET."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request = {**scope}
        try:
            if scope["type"] == "http":
                check_query(scope["query_string"])
                request["method"] = scope["method"].replace("HEAD", "GET")
                if match := SNAPSHOT.match(scope["path"]):
                    # Routes look at what stands behind the root path.
                    request |= {"snapshot": match[1], "root_path": match[0]}
        except Refusal as refusal:
            respond = _build_error_response(*_describe_http_error(Request(scope), refusal))
            await respond(scope, receive, send)
        else:
            try:
                await self.app(request, receive, send)
            finally:
                # Whoever counts requests looks for the route here.
                scope.update(route=request.get("route"), endpoint=request.get("endpoint"))
