"""Pages that were made, kept until the index changes; nobody makes one twice at the same time."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from leaderboard.web.headers import PLOT, choose, compressed
from leaderboard.web.limits import group
from leaderboard.web.metrics import Metrics


@dataclass(frozen=True, kw_only=True)
class RenderedPage:
    """A page as it is sent.

    Attributes:
        body: Its bytes.
        type: Its media type.
        status: 200, or what an error page has.
        plots: Whether it needs the rules of pages with interactive plots.
        route: The template of its path, for metrics.
        packed: The body in other encodings, filled in when they are first asked for.
    """

    body: bytes
    type: str
    status: int = 200
    plots: bool = False
    route: str = ""
    packed: dict[str, bytes] = field(default_factory=dict, compare=False)

    @cached_property
    def tag(self) -> str:
        """The ETag: a digest of the body."""
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:20]}"'

    @property
    def size(self) -> int:
        """Bytes that keeping it takes."""
        return len(self.body) + sum(map(len, self.packed.values()))


NAMES = 5_000
"""Other names of pages that are kept at one time; the oldest one makes room for a new one."""

LONGEST = 300
"""Bytes of a query beyond which a page gets no name."""

Name = tuple[str, bytes]
"""A path and a query as they were asked for."""


class PageCache:
    """Pages by key, the least lately used ones dropped when they take more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._pages: OrderedDict[Hashable, RenderedPage] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._names: dict[Name, Hashable] = {}
        self.round = 0
        self._lock = threading.Lock()

    def call(self, name: Name, key: Hashable, since: int) -> None:
        """Let a page be found by another name as well, until everything is forgotten.

        `since` is the `round` in which it was asked for: what is of a former one gets no name. Nor
        has a long query one: who asks for such a page finds it by its key.
        """
        if len(name[1]) > LONGEST:
            return
        with self._lock:
            if since == self.round:
                self._names[name] = key
                if len(self._names) > NAMES:
                    del self._names[next(iter(self._names))]

    def called(self, name: Name) -> RenderedPage | None:
        """The page of this other name, if it is kept."""
        key = self._names.get(name)
        return None if key is None else self.get(key)

    def get(self, key: Hashable) -> RenderedPage | None:
        """The page of this key, if it is kept."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
            return self._pages.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], RenderedPage]) -> RenderedPage:
        """The page of this key; of several callers one makes it and the others wait."""
        with self._lock:
            alone = self._making.setdefault(key, threading.Lock())
        try:
            with alone:
                found = self.get(key)
                if found is None:
                    found = make()
                    self._keep(key, found)
        finally:  # also where there is no such page: whoever asks for many of them fills no memory
            with self._lock:
                self._making.pop(key, None)
        return found

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.round += 1
            self._pages.clear()
            self._names.clear()

    def _keep(self, key: Hashable, made: RenderedPage) -> None:
        with self._lock:
            self._pages[key] = made
            held = sum(page.size for page in self._pages.values())
            while held > self.limit and len(self._pages) > 1:
                held -= self._pages.popitem(last=False)[1].size


AT_ONCE = 1
"""Pages made at one time: Python runs one thread at a time, and each more keeps the answers waiting."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Request:
    """A page that somebody waits for."""

    key: Hashable
    make: Callable[[], RenderedPage]
    done: asyncio.Future[RenderedPage]


class RenderQueue:
    """Makes pages; who asks for one that is being made waits for it.

    Clients take turns: each has a row of its own, and the first of every row is made before the
    second of any. So one client with many slow pages keeps another waiting for one of them only.
    """

    def __init__(self, kept: PageCache) -> None:
        self._kept = kept
        self._ordered: dict[Hashable, _Request] = {}
        self._rows: OrderedDict[str, deque[_Request]] = OrderedDict()
        self._limiter: CapacityLimiter | None = None
        self._cooks: set[asyncio.Task[None]] = set()

    async def make(self, key: Hashable, make: Callable[[], RenderedPage], client: str) -> RenderedPage:
        """The page of this key, made in a thread with its compressed body when it is this client's turn."""
        order = self._ordered.get(key)
        if order is None:
            order = _Request(key=key, make=make, done=asyncio.get_running_loop().create_future())
            order.done.add_done_callback(_seen)
            self._ordered[key] = order
            self._rows.setdefault(group(client), deque()).append(order)
            self._go_on()
        return await asyncio.shield(order.done)

    def _go_on(self) -> None:
        """Begin with what is next, as far as there is room."""
        while self._rows and len(self._cooks) < AT_ONCE:
            client, row = self._rows.popitem(last=False)
            order = row.popleft()
            if row:
                self._rows[client] = row  # behind all others
            self._cooks.add(asyncio.ensure_future(self._render(order)))

    async def _render(self, order: _Request) -> None:
        try:
            order.done.set_result(await self._made(order))
        except asyncio.CancelledError:
            order.done.cancel()
            raise
        except Exception as error:
            order.done.set_exception(error)
        finally:
            self._ordered.pop(order.key, None)
            self._cooks.discard(cast(asyncio.Task[None], asyncio.current_task()))
            self._go_on()

    async def _made(self, order: _Request) -> RenderedPage:
        if self._limiter is None:
            self._limiter = CapacityLimiter(AT_ONCE)
        return await run_sync(
            lambda: self._kept.get_or_make(order.key, lambda: _packed(order.make())), limiter=self._limiter
        )


def _seen(done: asyncio.Future[RenderedPage]) -> None:
    """Look at what went wrong: those who waited for it may have gone."""
    if not done.cancelled():
        done.exception()


def _packed(made: RenderedPage) -> RenderedPage:
    pack(made, "br")
    return made


def pack(made: RenderedPage, encoding: str) -> bytes:
    """The body in an encoding, compressed at most once."""
    if encoding not in made.packed:
        made.packed[encoding] = compressed(made.body, f"{encoding}, identity;q=0.1")[0]
    return made.packed[encoding]


class CachedPages:
    """Answers for pages that are kept, before anything else looks at a request."""

    def __init__(self, app: ASGIApp, kept: PageCache, metrics: Metrics) -> None:
        self.app = app
        self._kept = kept
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        asked = scope["type"] == "http" and scope["method"] == "GET"
        made = self._kept.called((scope["path"], scope["query_string"])) if asked else None
        if made is None:
            await self.app(scope, receive, send)
            return
        self._metrics.cache("hit")
        scope["route"] = _Route(made.route)
        scope.setdefault("state", {})[PLOT] = made.plots
        await answer(Request(scope), made)(scope, receive, send)


@dataclass(frozen=True)
class _Route:
    """What metrics want to know of a route."""

    path: str


def answer(request: Request, made: RenderedPage, *, seconds: int = 0) -> Response:
    """The answer: 304 where the client has the page, else its body, compressed at most once.

    Args:
        request: What is answered.
        made: The page.
        seconds: How long a client need not ask again; 0 lets it ask each time whether it changed.
    """
    headers = {
        "ETag": made.tag,
        "Vary": "Accept-Encoding",
        "Cache-Control": f"public, max-age={seconds}" if seconds else "no-cache",
    }
    if made.status == 200 and _matches(request.headers.get("if-none-match", ""), made.tag):
        return Response(status_code=304, headers=headers)
    encoding = choose(request.headers.get("accept-encoding", ""))
    body = pack(made, encoding)
    if encoding != "identity" and body is not made.body:
        headers["Content-Encoding"] = encoding
    return Response(body, status_code=made.status, headers=headers, media_type=made.type)


def _matches(header: str, tag: str) -> bool:
    """Whether If-None-Match names a tag, compared weakly (RFC 9110, section 13.1.2)."""
    plain = tag.removeprefix("W/")
    return header.strip() == "*" or plain in {one.strip().removeprefix("W/") for one in header.split(",")}
