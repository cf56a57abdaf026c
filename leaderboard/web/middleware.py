"""Around every answer: headers for browsers, counts for Prometheus, and a limit on the time of a request."""

from __future__ import annotations

import asyncio
import os
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

UNFRAMED, FRAMED = "frame-ancestors 'none'", "frame-ancestors *"
"""Who may show a page in a frame: nobody, or everybody where a reader wants it embedded."""

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; "
    f"base-uri 'none'; form-action 'self'; {UNFRAMED}"
)
"""The Content-Security-Policy of every answer."""

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""On every answer. Strict-Transport-Security is not here: the proxy that speaks TLS knows about it."""


class SecurityHeaders:
    """Puts the headers on every answer that has none of its own.

    Wrap the whole application in it, so that answers to a failure have them too.
    """

    def __init__(self, app: ASGIApp, *, shared: bool = False) -> None:
        """Wrap an application; what is `shared` may be read by the pages of any other site, but for HTML."""
        self.app = app
        self.shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Only this message has headers; those that follow hold the body.
                headers = MutableHeaders(scope=message)
                for name, value in {"Content-Security-Policy": POLICY, **HEADERS}.items():
                    # Not set: an answer may bring a header of its own.
                    headers.setdefault(name, value)
                if self.shared and not headers.get("content-type", "").startswith("text/html"):
                    headers["Access-Control-Allow-Origin"] = "*"
                if FRAMED in headers["Content-Security-Policy"]:
                    del headers["X-Frame-Options"]
            await send(message)

        await self.app(scope, receive, send_with_headers)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the histogram's buckets."""


class Metrics:
    """The numbers of one process. Every label has few values, whatever strangers request."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ["route", "method", "status"]
        self.requests = Counter("harness_requests", "Requests answered", labels, registry=registry)
        self.seconds = Histogram(
            "harness_request_seconds", "Seconds until an answer was sent", ["route"],
            buckets=SECONDS, registry=registry,
        )  # fmt: skip
        cached = "Requests for pages: hit or miss"
        self.cache = Counter("harness_cache", cached, ["result"], registry=registry)
        self.entries = Gauge("harness_entries", "Entries in the snapshot", registry=registry)
        age = Gauge("harness_index_age_seconds", "Seconds since the last refresh", registry=registry)
        age.set_function(lambda: time.monotonic() - self._refreshed)
        worker = Gauge("harness_worker", "The process that answers", ["pid"], registry=registry)
        worker.labels(os.getpid()).set(1)
        self._refreshed = float("nan")

    def note_refresh(self, entries: int) -> None:
        """Note that the snapshot was refreshed now, and how many entries it has."""
        self._refreshed = time.monotonic()
        self.entries.set(entries)

    def render_metrics(self) -> bytes:
        """All of it as Prometheus reads it."""
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
        # An application that fails before its answer starts counts as 500.
        started, status = time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            # Prometheus keeps every value of a label: a stranger must not add to them.
            other = "(none)" if scope.get("endpoint") is None else "(other)"
            route = getattr(scope.get("route"), "path", other)
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self._metrics.requests.labels(route, method, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - started)


REQUEST_SECONDS = 15.0
"""How long a request may take to arrive; one of this site is a kilobyte."""


class TimedProtocol(H11Protocol):
    """HTTP of uvicorn, which alone waits for the rest of a request for ever."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first request."""
        super().connection_made(transport)
        self._time_request()

    def data_received(self, data: bytes) -> None:
        """Take in a part of a request."""
        super().data_received(data)
        self._time_request()

    def _time_request(self) -> None:
        """Run the clock unless a whole request is being answered; more bytes do not set it back."""
        is_whole = self.cycle and not self.cycle.response_complete and not self.cycle.more_body
        if self._clock is None and not is_whole:
            self._clock = self.loop.call_later(REQUEST_SECONDS, self.transport.close)
        elif self._clock is not None and is_whole:
            self._clock.cancel()
            self._clock = None
