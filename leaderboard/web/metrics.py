"""Metrics: what a Prometheus server may read of one process of the site."""

from __future__ import annotations

import os
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the histogram's buckets."""


class Metrics:
    """The numbers of one process. Every label has few values, whatever strangers request."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        labels = ["route", "method", "status"]
        self.requests = Counter("harness_requests", "Requests answered", labels, registry=own)
        self.seconds = Histogram(
            "harness_request_seconds", "Seconds until an answer was sent", ["route"],
            buckets=SECONDS, registry=own,
        )  # fmt: skip
        self.cache = Counter("harness_cache", "Requests for pages: hit or miss", ["result"], registry=own)
        self.posts = Counter("harness_posts", "Attempts to push a record", ["outcome"], registry=own)
        self.entries = Gauge("harness_entries", "Entries in the snapshot", registry=own)
        self._age = Gauge("harness_index_age_seconds", "Seconds since the last refresh", registry=own)
        Gauge("harness_worker", "The process that answers", ["pid"], registry=own).labels(os.getpid()).set(1)
        self._refreshed = float("nan")

    def refreshed(self, entries: int) -> None:
        """Note that the snapshot was refreshed now, and how many entries it has."""
        self._refreshed = time.monotonic()
        self.entries.set(entries)

    def text(self) -> bytes:
        """All of it as Prometheus reads it."""
        self._age.set(time.monotonic() - self._refreshed)
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

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            route = _route_of(scope)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)


def _route_of(scope: Scope) -> str:
    """The template that a request matched, `(other)` for one without a template, `(none)` for none."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str):
        return path
    return "(other)" if scope.get("endpoint") is not None else "(none)"
