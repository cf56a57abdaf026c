"""Refusals: what a request that is not carried out is answered."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from limits import parse
from limits.storage import Storage
from limits.storage.base import MovingWindowSupport
from limits.strategies import MovingWindowRateLimiter
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from starlette.requests import Request


class Refusal(Exception):
    """A request that is not carried out, and why.

    Attributes:
        status: The HTTP status.
        message: What is wrong, in a sentence.
        hint: What exists or what to do instead; empty for nothing.
        headers: What the answer needs beside its body.
        outcome: One word for the audit and the metrics.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
        outcome: str = "refused",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})
        self.outcome = outcome

    def response(self) -> JSONResponse:
        """The refusal as the site says every error."""
        error = {"status": self.status, "message": self.message, "hint": self.hint}
        headers = {"Cache-Control": "no-store", **self.headers}
        return JSONResponse({"error": error}, status_code=self.status, headers=headers)


CLIENTS = 20_000
"""Clients remembered at once; beyond it the one that asked longest ago is forgotten."""

QUERY_BYTES, PARAMETERS, VALUE = 8192, 256, 512


class Limits:
    """How often one client may do something, within a window that moves.

    Args:
        rates: What is limited, e.g. `{"page": "1200/minute", "post": "60/minute"}`.
        clients: How many clients are remembered at once.
        clock: Seconds; a test has its own.
    """

    def __init__(
        self,
        rates: Mapping[str, str],
        *,
        clients: int = CLIENTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates = {what: parse(rate) for what, rate in rates.items()}
        self._memory = _Memory(clients=clients, clock=clock)
        self._limiter = MovingWindowRateLimiter(self._memory)
        self._clock = clock

    def check(self, client: str, what: str) -> float | None:
        """Count one use of `what`; None if it may be done, else the seconds to wait.

        A use that is refused does not count. What has no rate is free.
        """
        rate = self._rates.get(what)
        if rate is None or self._limiter.hit(rate, what, group(client)):
            return None
        freed = self._limiter.get_window_stats(rate, what, group(client)).reset_time
        return max(0.001, freed - self._clock())

    def enforce(self, client: str, what: str) -> None:
        """The same as `check`, as an answer.

        Raises:
            Refusal: 429, with Retry-After.
        """
        wait = self.check(client, what)
        if wait is not None:
            seconds = math.ceil(wait)
            raise Refusal(
                429,
                "Too many requests.",
                hint=f"Wait {seconds} s and ask again.",
                headers={"Retry-After": str(seconds)},
                outcome="too-many",
            )

    @property
    def remembered(self) -> int:
        """How many pairs of client and use are in memory."""
        return len(self._memory.seen)


def client_of(request: Request) -> str:
    """The address that a request came from."""
    return request.client.host if request.client else "unknown"


def group(client: str) -> str:
    """Whom an address stands for: an IPv6 one for its /64, which one client has for itself.

    >>> group("2001:db8:1:2:3::7"), group("::ffff:192.0.2.1"), group("192.0.2.1"), group("testclient")
    ('2001:db8:1:2::', '192.0.2.1', '192.0.2.1', 'testclient')
    """
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client[:64]
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def check_query(query: bytes) -> None:
    """Look at a query string before anything is made of it.

    Raises:
        Refusal: 414 where it is too long, 400 where it has too many parameters, one that is too
            long, or characters that no text has.
    """
    if len(query) > QUERY_BYTES:
        raise Refusal(414, f"The query is longer than {QUERY_BYTES} bytes.", outcome="query")
    try:
        pairs = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS
        )
    except UnicodeError as error:
        raise Refusal(400, "The query is not UTF-8 in percent-encoding.", outcome="query") from error
    except ValueError as error:
        raise Refusal(400, f"The query has more than {PARAMETERS} parameters.", outcome="query") from error
    for text in (part for pair in pairs for part in pair):
        if len(text) > VALUE:
            raise Refusal(400, f"A part of the query is longer than {VALUE} characters.", outcome="query")
        if any(ord(c) < 32 or ord(c) == 127 for c in text):
            raise Refusal(400, "The query has control characters.", outcome="query")


class _Memory(Storage, MovingWindowSupport):
    """The times of what was done, in order of the last use; what left its window is forgotten.

    The library's own memory starts a thread for every sweep and keeps the names of all clients.
    """

    def __init__(self, *, clients: int, clock: Callable[[], float]) -> None:
        super().__init__()
        self.seen: OrderedDict[str, tuple[int, deque[float]]] = OrderedDict()
        self._clients = clients
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def base_exceptions(self) -> type[Exception]:
        return ValueError

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        now = self._clock()
        with self._lock:
            times = self.seen.setdefault(key, (expiry, deque()))[1]
            while times and times[0] <= now - expiry:
                times.popleft()
            allowed = len(times) + amount <= limit
            if allowed:
                times.extend([now] * amount)
                self.seen.move_to_end(key)
            self._forget(now)
            return allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        now = self._clock()
        with self._lock:
            inside = [t for t in self.seen.get(key, (expiry, ()))[1] if t > now - expiry]
        return (inside[0] if inside else now), len(inside)

    def clear(self, key: str) -> None:
        self.seen.pop(key, None)

    def reset(self) -> int:
        count = len(self.seen)
        self.seen.clear()
        return count

    def check(self) -> bool:
        return True

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        raise NotImplementedError("only the moving window is kept here")

    def get(self, key: str) -> int:
        return len(self.seen.get(key, (0, ()))[1])

    def get_expiry(self, key: str) -> float:
        return self._clock()

    def _forget(self, now: float) -> None:
        while self.seen:
            key, (expiry, times) = next(iter(self.seen.items()))
            if times and times[-1] > now - expiry and len(self.seen) <= self._clients:
                return
            del self.seen[key]


class BoundedQueries:
    """Answers such a query itself (leaderboard.web.limits says how long one may be)."""

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
