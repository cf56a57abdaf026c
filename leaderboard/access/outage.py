"""A database that does not answer: the site says so, and when to ask again."""

from __future__ import annotations

import logging

from fastapi import FastAPI
from sqlalchemy import exc
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leaderboard.access.refusals import Refusal

log = logging.getLogger(__name__)

AGAIN = 5
"""Seconds after which a client may ask again."""

OURS = (exc.DataError, exc.IntegrityError, exc.ProgrammingError, exc.NotSupportedError)
"""Errors of a statement, not of a database that is away."""


def add(app: FastAPI) -> None:
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
