"""A database that does not answer: the site says so, and when to ask again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy import exc
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harness.errors import HarnessError
from leaderboard.web.cache import answer
from leaderboard.web.limits import Refusal
from leaderboard.web.page import NotFound, Page
from leaderboard.web.parameters import State, refusals
from leaderboard.web.site import FORMATS, LISTED, Site

log = logging.getLogger(__name__)

AGAIN = 5
"""Seconds after which a client may ask again."""

OURS = (exc.DataError, exc.IntegrityError, exc.ProgrammingError, exc.NotSupportedError)
"""Errors of a statement, not of a database that is away."""


def add_outage(app: FastAPI) -> None:
    """Let the application answer 503 while its database is away."""
    app.add_middleware(Outages)


class Outages:
    """Answers in place of what failed because of the database, be it a route or another middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except (exc.DBAPIError, exc.TimeoutError) as error:
            if scope["type"] != "http" or started or not _away(error):
                raise
            log.error("%s: the database does not answer: %s", scope["path"], _reason(error))
            await (await _answer(Request(scope, receive)))(scope, receive, send)


def _away(error: exc.SQLAlchemyError) -> bool:
    return not isinstance(error, OURS) or error.connection_invalidated


async def _answer(request: Request) -> Response:
    """The refusal, as the application says one: a page for a browser."""
    refusal = Refusal(
        503,
        "The database does not answer.",
        hint=f"Ask again in {AGAIN} s.",
        headers={"Retry-After": str(AGAIN), "Cache-Control": "no-store"},
        outcome="database",
    )
    said = request.app.exception_handlers.get(Refusal)
    answered: Response = await said(request, refusal) if said else refusal.response()
    return answered


def _reason(error: Exception) -> str:
    """What the driver says, in one line and without the statement."""
    return " ".join(str(getattr(error, "orig", None) or error).split())[:300]


log = logging.getLogger(__name__)

SHAPE: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["status", "message", "hint"],
            "properties": {
                "status": {"type": "integer"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
            },
        }
    },
}

SAYS = {
    400: "The query is malformed.",
    404: "There is no such page.",
    414: "The query is too long.",
    422: "A parameter is not what it should be.",
    429: "Too many pages asked for; Retry-After says when to ask again.",
}

DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"description": says, "content": {"application/json": {"schema": SHAPE}}}
    for status, says in SAYS.items()
}
"""What every page may answer beside itself, for the API's description."""


def add(app: FastAPI, site: Site) -> None:
    """Let the application say its errors."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        if _wants_data(request):
            return error.response()
        return await _page(site, request, error.status, str(error), error.hint, error.headers)

    async def harness(request: Request, error: Exception) -> Response:
        assert isinstance(error, HarnessError)
        status = 404 if isinstance(error, NotFound) else 500
        if status == 500:
            log.error("%s: %s", request.url.path, error)
        return await _said(site, request, status, error.message, error.hint or "")

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        told = refusals(_asked(site, request), [_inside(one) for one in error.errors()[:5]])
        return await _said(site, request, 422, " ".join(told), LISTED)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        hint = "The way in is /; the page /api lists every address." if error.status_code == 404 else ""
        return await _said(
            site, request, error.status_code, f"{error.detail}.", hint, dict(error.headers or {})
        )

    async def broken(request: Request, error: Exception) -> Response:
        log.error("%s failed", request.url.path, exc_info=error)
        return await _said(site, request, 500, "Something went wrong here.", "It was written to the log.")

    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(HarnessError, harness)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Exception, broken)


def _asked(site: Site, request: Request) -> type[State]:
    """The state of the page that a request is for, or of its twin."""
    path = getattr(request.scope.get("route"), "path", "")
    for end in ("", *(f".{end}" for end in FORMATS)):
        base = path.removesuffix(end)
        for page in site.pages:
            if path.endswith(end) and page.path == ("/" if base == "/index" else base):
                return page.state
    return State


def _inside(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error without the part of the request that it is in: the query, or the path."""
    return {**error, "loc": error["loc"][1:]}


async def _said(
    site: Site, request: Request, status: int, message: str, hint: str, headers: dict[str, str] | None = None
) -> Response:
    if _wants_data(request):
        error = {"status": status, "message": message, "hint": hint}
        return JSONResponse({"error": error}, status_code=status, headers=headers)
    return await _page(site, request, status, message, hint, headers)


async def _page(
    site: Site, request: Request, status: int, message: str, hint: str, headers: dict[str, str] | None
) -> Response:
    page = Page(title=message, template="error.html", lead=hint)
    made = await run_in_threadpool(lambda: site.html(page, State.model_validate({}), "", status=status))
    response = answer(request, made)
    response.headers.update(headers or {})
    return response


def _wants_data(request: Request) -> bool:
    """Whether a client reads data: it asked for a twin or the API, or does not take HTML."""
    path = request.url.path
    takes = request.headers.get("accept", "*/*")
    return (
        path.endswith(tuple(f".{end}" for end in FORMATS))
        or path.startswith(("/api/", "/openapi", "/badges/", "/metrics", "/healthz"))
        or "text/html" not in takes
    )
