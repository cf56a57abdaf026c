"""Routes that are no pages: the feed, badges, the API's description, health, metrics."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from leaderboard import badges
from leaderboard.access.limits import Limits, client_of
from leaderboard.access.metrics import CONTENT_TYPE, Metrics
from leaderboard.answers import answer
from leaderboard.current import current
from leaderboard.errors import DOCUMENTED, SHAPE
from leaderboard.feed import Feed
from leaderboard.kept import Made
from leaderboard.site import Site


def add(app: FastAPI, site: Site, metrics: Metrics, limits: Limits) -> None:
    """Add them to the application."""
    newest = Feed(site)

    @app.get("/feed.xml", response_class=Response, responses=_as("application/rss+xml", 429))
    def new_records(request: Request) -> Response:
        """The newest measured records as RSS."""
        limits.enforce(client_of(request), "page")
        base = str(request.base_url)  # the client says it, so one client's feed is not another's
        body = current(site, lambda: newest.rss(base)).encode()
        return answer(request, Made(body=body, type="application/rss+xml; charset=utf-8"))

    @app.get("/badges/{suite}/{entry}.svg", response_class=Response, responses=_as("image/svg+xml", 404, 422))
    def badge(request: Request, suite: str, entry: str) -> Response:
        """An entry's mean over a suite's tasks as a badge."""
        return _kept(
            request,
            site,
            f"badge/{suite}/{entry}",
            lambda: current(site, lambda: badges.badge(site, suite, entry)),
            "image/svg+xml",
        )

    @app.get("/openapi.json", include_in_schema=False)
    def description(request: Request) -> Response:
        made = site.kept.get_or_make(
            "openapi", lambda: Made(body=json.dumps(app.openapi()).encode(), type="application/json")
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


AWAY = {"description": "The database does not answer.", "content": {"application/json": {"schema": SHAPE}}}


def _as(kind: str, *errors: int) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
    return found | {status: DOCUMENTED[status] for status in (400, 414, *errors)}


def _kept(request: Request, site: Site, key: str, make: Callable[[], str], kind: str) -> Response:
    found = site.kept.get_or_make(
        (key, site.queries.version), lambda: Made(body=make().encode(), type=f"{kind}; charset=utf-8")
    )
    return answer(request, found)
