"""Errors: one shape for all, as a page for a browser and as JSON for programs."""

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

from harness.core.errors import HarnessError, StoreError
from leaderboard.web.cache import answer
from leaderboard.web.limits import Refusal
from leaderboard.web.page import FORMATS, NotFound, Page
from leaderboard.web.parameters import State, describe_errors
from leaderboard.web.site import API_HINT, Site

log = logging.getLogger(__name__)

_PARTS = {"status": {"type": "integer"}, "message": {"type": "string"}, "hint": {"type": "string"}}
_ERROR = {"type": "object", "required": list(_PARTS), "properties": _PARTS}
_SHAPE: dict[str, Any] = {"type": "object", "required": ["error"], "properties": {"error": _ERROR}}
_STATUSES = {
    400: "The query is malformed.",
    404: "There is no such page.",
    414: "The query is too long.",
    422: "A parameter is not what it should be.",
    429: "Too many requests; Retry-After says when to try again.",
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/json": {"schema": _SHAPE}}}
    for status, text in _STATUSES.items()
}
"""What every page may answer beside itself, for the API's description."""


def add_error_handlers(app: FastAPI, site: Site) -> None:
    """Let the application answer its errors."""

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return await _respond(site, request, error.status, error.message, error.hint, error.headers)

    async def harness(request: Request, error: Exception) -> Response:
        assert isinstance(error, HarnessError)
        status = 404 if isinstance(error, NotFound) else 503 if isinstance(error, StoreError) else 500
        if status != 404:
            log.error("%s: %s", request.url.path, error)
        headers = {"Retry-After": "5", "Cache-Control": "no-store"} if status == 503 else {}
        return await _respond(site, request, status, error.message, error.hint or "", headers)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        inside = [{**one, "loc": one["loc"][1:]} for one in error.errors()[:5]]  # without "query" or "path"
        message = " ".join(describe_errors(_state_of(site, request), inside))
        return await _respond(site, request, 422, message, API_HINT)

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        hint = "The way in is /; the page /api lists every address." if error.status_code == 404 else ""
        return await _respond(site, request, error.status_code, f"{error.detail}.", hint, error.headers)

    async def broken(request: Request, error: Exception) -> Response:
        log.error("%s failed", request.url.path, exc_info=error)
        return await _respond(site, request, 500, "Something went wrong here.", "It was written to the log.")

    for kind, handler in (
        (Refusal, refused), (HarnessError, harness), (RequestValidationError, invalid),
        (HTTPException, http), (Exception, broken),
    ):  # fmt: skip
        app.add_exception_handler(kind, handler)


def _state_of(site: Site, request: Request) -> type[State]:
    """The state of the page that a request is for, in whichever format."""
    path = getattr(request.scope.get("route"), "path", "")
    states = {route.path: route.state for route in site.pages}
    states |= {route.file(form): route.state for route in site.pages for form in route.formats}
    return states.get(path, State)


async def _respond(
    site: Site,
    request: Request,
    status: int,
    message: str,
    hint: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    if _takes_json(request):
        error = {"status": status, "message": message, "hint": hint}
        return JSONResponse({"error": error}, status_code=status, headers=dict(headers or {}))
    page = Page(title=message, template="error.html", lead=hint)
    made = await run_in_threadpool(lambda: site.html(page, State.model_validate({}), status=status))
    response = answer(request, made)
    response.headers.update(headers or {})
    return response


def _takes_json(request: Request) -> bool:
    """Whether a client reads data: it named a format or the API, or does not take HTML."""
    path = request.url.path
    return (
        path.endswith(tuple(f".{form}" for form in FORMATS))
        or path.startswith(("/api/", "/openapi", "/badges/", "/metrics", "/healthz"))
        or "text/html" not in request.headers.get("accept", "*/*")
    )
