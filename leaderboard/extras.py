"""Routes that are no pages: the feed, badges, the library of plots, health, metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from leaderboard import badges, feed
from leaderboard.access.metrics import CONTENT_TYPE, Metrics
from leaderboard.answers import answer
from leaderboard.errors import DOCUMENTED
from leaderboard.kept import Made
from leaderboard.plots import plotly_file
from leaderboard.site import Site

YEAR = 365 * 24 * 3600


def add(app: FastAPI, site: Site, metrics: Metrics) -> None:
    """Add them to the application."""

    @app.get("/feed.xml", response_class=Response, responses=_as("application/rss+xml"))
    def new_records(request: Request) -> Response:
        """The newest measured records as RSS."""
        base = str(request.base_url)  # the client says it, so one client's feed is not another's
        return _kept(request, site, f"feed/{base}", lambda: feed.rss(site, base), "application/rss+xml")

    @app.get("/badges/{suite}/{entry}.svg", response_class=Response, responses=_as("image/svg+xml", 404, 422))
    def badge(request: Request, suite: str, entry: str) -> Response:
        """An entry's mean over a suite's tasks as a badge."""
        return _kept(
            request,
            site,
            f"badge/{suite}/{entry}",
            lambda: badges.badge(site, suite, entry),
            "image/svg+xml",
        )

    @app.get("/static/plotly.min.js", include_in_schema=False)
    def plotly(request: Request) -> Response:
        made = site.kept.get_or_make(
            "plotly", lambda: Made(body=plotly_file().read_bytes(), type="text/javascript")
        )
        return answer(request, made, seconds=YEAR)

    @app.get("/healthz", response_class=Response, responses=_as("text/plain"))
    def health() -> Response:
        """Whether the index answers."""
        return Response(f"ok, index version {site.index.version}\n", media_type="text/plain")

    @app.get("/metrics", response_class=Response, responses=_as("text/plain"))
    def measured() -> Response:
        """Metrics for Prometheus."""
        return Response(metrics.text(), media_type=CONTENT_TYPE)


def _as(kind: str, *errors: int) -> dict[int | str, dict[str, Any]]:
    found: dict[int | str, dict[str, Any]] = {200: {"content": {kind: {}}}}
    return found | {status: DOCUMENTED[status] for status in (400, 414, *errors)}


def _kept(request: Request, site: Site, key: str, make: Callable[[], str], kind: str) -> Response:
    found = site.kept.get_or_make(
        (key, site.queries.version), lambda: Made(body=make().encode(), type=f"{kind}; charset=utf-8")
    )
    return answer(request, found)
