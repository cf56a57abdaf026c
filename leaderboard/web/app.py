"""The files of leaderboard/static, compressed once, and kept by a browser as long as they stay the same."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import logging
import mimetypes
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response

from harness import __version__
from leaderboard.web import badges, errors, redirects
from leaderboard.web.cache import CachedPages, RenderedPage, RenderQueue, answer
from leaderboard.web.charts import plotly_file
from leaderboard.web.errors import DOCUMENTED, SHAPE
from leaderboard.web.headers import PLOT, Heads, SecurityHeaders
from leaderboard.web.intake import Intake, router
from leaderboard.web.limits import BoundedQueries, Limits, client_of
from leaderboard.web.metrics import CONTENT_TYPE, CountRequests, Metrics
from leaderboard.web.page import PageRoute
from leaderboard.web.parameters import State
from leaderboard.web.settings import Settings
from leaderboard.web.site import FORMATS, STATIC, Site, asset, open_site, retry_on_new_version

YEAR = 365 * 24 * 3600
DAY = 24 * 3600
PLOTLY = "plotly.min.js"
ICON = "favicon.svg"
ROBOTS = "User-agent: *\nAllow: /\n"

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def _add_static_files(app: FastAPI) -> None:
    """Add their routes, and the two files that everybody asks every site for."""

    @app.get(f"/static/{PLOTLY}", include_in_schema=False)
    def plotly(request: Request) -> Response:
        return answer(request, _made(plotly_file()), seconds=YEAR)

    @app.get("/static/{name}", include_in_schema=False)
    def static(request: Request, name: str) -> Response:
        path = _files().get(name)
        if path is None:
            raise HTTPException(404)
        current = asset(name).rpartition("=")[2]  # another one may be a newer site's
        return answer(request, _made(path), seconds=YEAR if request.query_params.get("v") == current else 0)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon(request: Request) -> Response:
        return answer(request, _made(STATIC / ICON), seconds=DAY)

    @app.get("/robots.txt", include_in_schema=False)
    def robots(request: Request) -> Response:
        return answer(
            request, RenderedPage(body=ROBOTS.encode(), type="text/plain; charset=utf-8"), seconds=DAY
        )


@cache
def _files() -> dict[str, Path]:
    """The files by name: a path that is not among them leads nowhere."""
    return {path.name: path for path in STATIC.iterdir() if path.is_file()}


def _made(path: Path) -> RenderedPage:
    return _of(path, path.stat().st_mtime_ns)


@cache
def _of(path: Path, _mtime: int) -> RenderedPage:
    """A file as it is sent; made anew where it changed."""
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return RenderedPage(body=path.read_bytes(), type=kind)


def _add_extras(app: FastAPI, site: Site, metrics: Metrics, limits: Limits) -> None:
    """Add them to the application."""

    @app.get("/badges/{suite}/{entry}.svg", response_class=Response, responses=_as("image/svg+xml", 404, 422))
    def badge(request: Request, suite: str, entry: str) -> Response:
        """An entry's mean over a suite's tasks as a badge."""
        return _kept(
            request,
            site,
            f"badge/{suite}/{entry}",
            lambda: retry_on_new_version(site, lambda: badges.badge(site, suite, entry)),
            "image/svg+xml",
        )

    @app.get("/openapi.json", include_in_schema=False)
    def description(request: Request) -> Response:
        made = site.kept.get_or_make(
            "openapi", lambda: RenderedPage(body=json.dumps(app.openapi()).encode(), type="application/json")
        )
        return answer(request, made)

    @app.get("/healthz", response_class=Response, responses={**_as("text/plain"), 503: AWAY})
    def health() -> Response:
        """Whether the index answers."""
        return Response(f"ok, index version {site.index.version}\n", media_type="text/plain")

    @app.get("/metrics", response_class=Response, responses=_as("text/plain"))
    def measured() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)


AWAY = {"description": "The snapshot cannot be read.", "content": {"application/json": {"schema": SHAPE}}}


def _as(kind: str, *errors: int) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
    return found | {status: DOCUMENTED[status] for status in (400, 414, *errors)}


def _kept(request: Request, site: Site, key: str, make: Callable[[], str], kind: str) -> Response:
    found = site.kept.get_or_make(
        (key, site.queries.version), lambda: RenderedPage(body=make().encode(), type=f"{kind}; charset=utf-8")
    )
    return answer(request, found)


log = logging.getLogger(__name__)


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


class PageJson(BaseModel):
    """A page as data. Scores are shares of 1."""

    title: str
    lead: str
    notes: list[str]
    state: dict[str, Any] = Field(description="The parameters that are not at their defaults.")
    tables: list[TableJson]
    data: dict[str, Any]


def create_app(settings: Settings) -> FastAPI:
    """The site as an application; the index is brought up to date first."""
    site = open_site(settings)
    metrics = Metrics()
    metrics.index(entries=len(site.queries.entries))
    limits = Limits(
        {"page": f"{settings.pages_a_minute}/minute", "post": f"{settings.posts_a_minute}/minute"}
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(run_in_threadpool(_warm, site))]
        if settings.refresh:
            tasks.append(asyncio.create_task(_refresh(site, metrics)))
        yield
        for task in tasks:
            task.cancel()

    app = FastAPI(
        title="Encoder leaderboard",
        version=__version__,
        summary="What is known of text encoders downstream, how well, and what is not comparable.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.site, app.state.metrics, app.state.limits = site, metrics, limits
    app.state.kitchen = RenderQueue(site.kept)
    for route in site.pages:
        _add(app, site, route)
    _add_extras(app, site, metrics, limits)
    app.include_router(router(_intake(site, limits, metrics)))
    _add_static_files(app)
    errors.add(app, site)
    app.add_middleware(CachedPages, kept=site.kept, metrics=metrics)
    redirects.add(app, site)
    app.add_middleware(BoundedQueries)
    app.add_middleware(Heads)
    app.add_middleware(CountRequests, metrics=metrics)
    # Around everything, so that answers to a failure have the headers too; nothing can be added after it.
    app.middleware_stack = SecurityHeaders(app.build_middleware_stack())
    return app


def _intake(site: Site, limits: Limits, metrics: Metrics) -> Intake:
    def changed() -> None:
        site.refresh()
        metrics.index(entries=len(site.queries.entries))

    return Intake(results=site.settings.home, limits=limits, changed=changed, counted=metrics.post)


SUITE = "/suites/{suite}"


def _warm(site: Site) -> None:
    """Put together what most pages need, so that the first readers need not wait for it."""
    queries = site.queries
    routes = {route.path: route for route in site.pages}
    found: list[tuple[PageRoute, dict[str, str], dict[str, str]]]
    found = [(route, {}, {}) for path, route in routes.items() if "{" not in path]
    for slug in [s for s, one in queries.suites.items() if one.main and s in queries.entries_of_suites]:
        found += [(routes[SUITE], {"suite": slug}, query) for query in ({"rows": "all"}, {})]
    for route, arguments, query in found:
        state = route.state.model_validate(query)
        key = site.key(route, state, arguments, "html")
        site.kept.get_or_make(key, partial(site.make, route, state, arguments, "html"))
    gc.collect()
    gc.freeze()  # what stays for as long as the site runs need not be looked through again and again


async def _refresh(site: Site, metrics: Metrics) -> None:
    """Look at the folders again and again."""
    while True:
        await asyncio.sleep(site.settings.refresh)
        try:
            await run_in_threadpool(site.refresh)
            metrics.index(entries=len(site.queries.entries))
        except Exception:
            log.exception("The folders could not be looked at; the pages stay as they are.")


def _add(app: FastAPI, site: Site, route: PageRoute) -> None:
    """A page with its twins: those first, as their paths look like names of the page itself."""
    base = "/index" if route.path == "/" else route.path
    for form, (label, kind) in FORMATS.items() if route.twins else ():
        media = kind.partition(";")[0]
        answers: dict[int | str, dict[str, Any]] = {
            200: {"content": {media: {}}, "description": f"As {label}."}
        }
        app.add_api_route(
            f"{base}.{form}",
            _endpoint(site, route, form),
            methods=["GET"],
            summary=f"{route.summary} As {label}.",
            responses={**(answers if form != "json" else {}), **errors.DOCUMENTED},
            response_model=PageJson if form == "json" else None,
            response_class=JSONResponse if form == "json" else Response,
            tags=[route.path],
            operation_id=f"{_name(route)}_{form}",
        )
    app.add_api_route(
        route.path,
        _endpoint(site, route, "html"),
        methods=["GET"],
        include_in_schema=False,
        response_class=Response,
        response_model=None,
    )


def _name(route: PageRoute) -> str:
    return "_".join(part.strip("{}") for part in route.path.split("/") if part) or "overview"


def _endpoint(site: Site, route: PageRoute, form: str) -> Callable[..., Any]:
    """The function that answers for a page in one form, with a signature FastAPI can read."""
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]

    async def endpoint(request: Request, state: State, **arguments: str) -> Response:
        since = site.kept.round  # before the version: what is forgotten meanwhile gets no name
        key = site.key(route, state, arguments, form)
        made = site.kept.get(key)
        request.app.state.metrics.cache("hit" if made else "miss")
        if made is None:
            request.app.state.limits.enforce(client_of(request), "page")
            made = await request.app.state.kitchen.make(
                key,
                partial(retry_on_new_version, site, partial(site.make, route, state, arguments, form)),
                client_of(request),
            )
        site.kept.call((request.scope["path"], request.scope["query_string"]), key, since)
        request.scope.setdefault("state", {})[PLOT] = made.plots
        return answer(request, made)

    parameters = [
        inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, PathParameter(max_length=300)]
            )
            for name in names
        ),
        inspect.Parameter(
            "state", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[route.state, Query()]
        ),
    ]
    endpoint.__signature__ = inspect.Signature(parameters, return_annotation=Any)  # type: ignore[attr-defined]
    return endpoint
