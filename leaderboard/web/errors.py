"""Errors as pages and as JSON."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from harness.errors import HarnessError, StoreError
from leaderboard.web.cache import answer
from leaderboard.web.limits import Refusal
from leaderboard.web.page import NotFound, Page
from leaderboard.web.parameters import State, refusals
from leaderboard.web.site import FORMATS, LISTED, Site

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
        status = 404 if isinstance(error, NotFound) else 503 if isinstance(error, StoreError) else 500
        if status != 404:
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
