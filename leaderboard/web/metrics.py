"""Metrics: what a Prometheus server may read of the site."""

from __future__ import annotations

import time
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What `Metrics.text` is."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the histogram's buckets."""


class Metrics:
    """The numbers of one process. Every label has few values, whatever strangers ask for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "harness_requests",
            "Requests answered",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "harness_request_seconds",
            "Seconds until an answer was sent",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._cache = Counter("harness_cache", "Looks into the cache", ["result"], registry=self.registry)
        self._posts = Counter(
            "harness_posts", "Attempts to push a record", ["outcome"], registry=self.registry
        )
        self._entries = Gauge("harness_entries", "Entries in the index", registry=self.registry)
        self._age = Gauge(
            "harness_index_age_seconds", "Seconds since the index was looked after", registry=self.registry
        )
        self._indexed: float | None = None

    def request(self, *, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answer; `route` is a template, never a path."""
        method = method if method in METHODS else "OTHER"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def cache(self, result: Literal["hit", "miss"]) -> None:
        """Count a look into the cache of pages."""
        self._cache.labels(result).inc()

    def post(self, outcome: str) -> None:
        """Count an attempt to push a record; outcomes are the words of the audit."""
        self._posts.labels(outcome).inc()

    def index(self, *, entries: int) -> None:
        """Say that the index was looked after now, and how many entries it has."""
        self._indexed = time.monotonic()
        self._entries.set(entries)

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
        age = float("nan") if self._indexed is None else time.monotonic() - self._indexed
        self._age.set(age)
        return generate_latest(self.registry)


class CountRequests:
    """Counts every answer of the application that it wraps."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            self._metrics.request(
                route=route_of(scope),
                method=scope["method"],
                status=status,
                seconds=time.perf_counter() - started,
            )


def route_of(scope: Scope) -> str:
    """The template that a request matched, `(other)` for one without a template, `(none)` for none."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    return "(other)" if scope.get("endpoint") is not None else "(none)"
