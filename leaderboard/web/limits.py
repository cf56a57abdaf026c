"""Limits of what one client may request, and the refusals that say so."""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Mapping
from urllib.parse import parse_qsl

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

QUERY_BYTES, PARAMETERS, VALUE = 8192, 256, 512


class Refusal(Exception):
    """A request that is not carried out, and why.

    Attributes:
        status: The HTTP status.
        message: What is wrong, in a sentence.
        hint: What exists or what to do instead; empty for nothing.
        headers: What the answer needs beside its body.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.headers = {"Cache-Control": "no-store", **(headers or {})}

    def build_response(self) -> JSONResponse:
        """The refusal as JSON, in the shape of every error of the site."""
        return build_error_response(self.status, self.message, self.hint, self.headers)


def build_error_response(status: int, message: str, hint: str, headers: Mapping[str, str]) -> JSONResponse:
    """An error as JSON."""
    error = {"status": status, "message": message, "hint": hint}
    return JSONResponse({"error": error}, status_code=status, headers=dict(headers))


class Limits:
    """How often one client may have a page rendered: "1200/minute". Each process counts on its own."""

    def __init__(self, rate: str) -> None:
        self._rate = parse(rate)
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    def enforce(self, client: str) -> None:
        """Count one page for an address, or for anything else that names a client.

        Raises:
            Refusal: 429, with Retry-After.
        """
        name = mask_client_address(client)
        if self._limiter.hit(self._rate, name):
            return
        # Rounded up, and not 0: a client that waits so long is let in.
        ends = self._limiter.get_window_stats(self._rate, name).reset_time
        seconds = max(1, math.ceil(ends - time.time()))
        hint, headers = f"Wait {seconds} s and try again.", {"Retry-After": str(seconds)}
        raise Refusal(429, "Too many requests.", hint=hint, headers=headers)


def mask_client_address(client: str) -> str:
    """Whom an address stands for: an IPv6 one for its /64, which one client has for itself.

    >>> mask_client_address("2001:db8:1:2:3::7"), mask_client_address("192.0.2.1")
    ('2001:db8:1:2::', '192.0.2.1')
    >>> mask_client_address("::ffff:192.0.2.1")
    '192.0.2.1'
    """
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client[:64]
    # A server that listens on IPv6 sees IPv4 clients as ::ffff:192.0.2.1.
    if address.version == 4 or address.ipv4_mapped:
        return str(address if address.version == 4 else address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def check_query(query: bytes) -> None:
    """Look at a query string before it is parsed into parameters.

    Raises:
        Refusal: 414 if it is too long; 400 if it has too many parameters, a parameter that is too
            long, or control characters.
    """
    if len(query) > QUERY_BYTES:
        raise Refusal(414, f"The query is longer than {QUERY_BYTES} bytes.")
    try:
        text = query.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS)
    # Before ValueError, of which UnicodeError is a kind.
    except UnicodeError as error:
        raise Refusal(400, "The query is not UTF-8 in percent-encoding.") from error
    except ValueError as error:
        raise Refusal(400, f"The query has more than {PARAMETERS} parameters.") from error
    for part in (part for pair in pairs for part in pair):
        if len(part) > VALUE:
            raise Refusal(400, f"A part of the query is longer than {VALUE} characters.")
        if any(ord(c) < 32 or ord(c) == 127 for c in part):
            raise Refusal(400, "The query has control characters.")


class BoundedQueries:
    """Refuses a query that is too much before anything else sees it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            if scope["type"] == "http":
                check_query(scope["query_string"])
        except Refusal as refusal:
            await refusal.build_response()(scope, receive, send)
        else:
            await self.app(scope, receive, send)
