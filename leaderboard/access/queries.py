"""Queries that are too long are refused before anything reads them."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from leaderboard.access.limits import check_query
from leaderboard.access.refusals import Refusal


class BoundedQueries:
    """Answers such a query itself (leaderboard.access.limits says how long one may be)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http":
            try:
                check_query(scope["query_string"])
            except Refusal as refusal:
                await refusal.response()(scope, receive, send)
                return
        await self.app(scope, receive, send)
