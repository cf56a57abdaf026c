"""The application: routes, made of the pages, and what stands around them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from harness import __version__
from leaderboard import errors, extras, redirects, static_files
from leaderboard.access import outage
from leaderboard.access.head import Heads
from leaderboard.access.headers import PLOT, SecurityHeaders
from leaderboard.access.intake import Intake
from leaderboard.access.limits import Limits, client_of
from leaderboard.access.metrics import CountRequests, Metrics
from leaderboard.access.queries import BoundedQueries
from leaderboard.access.routes import router
from leaderboard.answers import KeptAnswers, answer
from leaderboard.current import current
from leaderboard.kitchen import Kitchen
from leaderboard.page import PageRoute
from leaderboard.settings import Settings
from leaderboard.site import TWINS, Site, open_site
from leaderboard.state import State

log = logging.getLogger(__name__)


class CellTwin(BaseModel):
    """A cell of a table: its value, and what else is known of it."""

    value: float | int | str | bool | None
    text: str = ""
    kind: str = Field("", description="Why it looks as it does; the page /about lists all.")
    note: str = ""
    href: str = ""


class ColumnTwin(BaseModel):
    """A column of a table."""

    key: str
    label: str
    group: str
    note: str


class RowTwin(BaseModel):
    """A row of a table: cells by the columns' keys; cells that hold nothing are left out."""

    key: str
    kind: str
    cells: dict[str, CellTwin]


class TableTwin(BaseModel):
    """A table of a page."""

    name: str
    caption: str
    columns: list[ColumnTwin]
    rows: list[RowTwin]
    notes: list[str]


class Twin(BaseModel):
    """A page as data. Scores are shares of 1."""

    title: str
    lead: str
    notes: list[str]
    state: dict[str, Any] = Field(description="The parameters that are not at their defaults.")
    tables: list[TableTwin]
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
    app.state.kitchen = Kitchen(site.kept)
    for route in site.pages:
        _add(app, site, route)
    extras.add(app, site, metrics, limits)
    app.include_router(router(_intake(site, limits, metrics)))
    static_files.add(app)
    errors.add(app, site)
    app.add_middleware(KeptAnswers, kept=site.kept, metrics=metrics)
    redirects.add(app, site)
    outage.add(app)
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
    for form, (label, kind) in TWINS.items() if route.twins else ():
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
            response_model=Twin if form == "json" else None,
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
                partial(current, site, partial(site.make, route, state, arguments, form)),
                client_of(request),
            )
        site.kept.call((request.scope["path"], request.scope["query_string"]), key, since)
        request.scope.setdefault("state", {})[PLOT] = made.plots
        return answer(request, made)

    parameters = [
        inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Request),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, Path(max_length=300)]
            )
            for name in names
        ),
        inspect.Parameter(
            "state", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[route.state, Query()]
        ),
    ]
    endpoint.__signature__ = inspect.Signature(parameters, return_annotation=Any)  # type: ignore[attr-defined]
    return endpoint
