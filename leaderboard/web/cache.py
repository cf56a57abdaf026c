"""Rendered pages: compressed once, cached by their snapshot, each rendered once for all who wait."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response

SMALLEST = 500
"""Bytes below which compressing a body is not worth its header."""

LEVEL = 5
"""Of gzip: a page of 300 kB takes 5 ms, and is sent often."""


@dataclass(frozen=True, kw_only=True)
class RenderedPage:
    """A page as it is sent.

    Attributes:
        body: Its bytes, in `encoding`.
        type: Its media type.
        status: 200, or what an error page has.
        encoding: "gzip" once it is compressed.
        policy: A Content-Security-Policy of its own.
    """

    body: bytes
    type: str
    status: int = 200
    encoding: str = ""
    policy: str = ""

    @cached_property
    def tag(self) -> str:
        """The ETag: a digest of the body."""
        # Weak, as the same tag stands for the plain and the compressed body.
        return f'W/"{hashlib.sha256(self.body).hexdigest()[:20]}"'

    def encode_gzip(self) -> RenderedPage:
        """The same page with a compressed body."""
        if self.encoding or len(self.body) < SMALLEST:
            return self
        # mtime=0: with the time in its header the same page would have other bytes each time, and another
        # tag.
        return replace(self, body=gzip.compress(self.body, LEVEL, mtime=0), encoding="gzip")


class PageCache:
    """Pages by key, the least recently used ones dropped when they take more than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pages: OrderedDict[Hashable, RenderedPage] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> RenderedPage | None:
        """The page of this key, if it is cached."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
            return self._pages.get(key)

    def put(self, key: Hashable, page: RenderedPage) -> None:
        """Cache a page; a page larger than the whole cache stays in it alone until the next page comes."""
        with self._lock:
            former = self._pages.pop(key, None)
            self._pages[key] = page
            self._size += len(page.body) - (len(former.body) if former else 0)
            # The dictionary is in the order of use, so the first page is the one that waited longest.
            while self._size > self._limit and len(self._pages) > 1:
                self._size -= len(self._pages.popitem(last=False)[1].body)


class RenderQueue:
    """Renders pages in a thread, one after another; requests for a page that is being rendered share it.

    One thread is enough: Python runs one at a time, and a second would only delay answers from the cache.
    """

    def __init__(self, cache: PageCache) -> None:
        self._cache = cache
        self._waiting: dict[Hashable, asyncio.Task[RenderedPage]] = {}
        self._limiter: CapacityLimiter | None = None

    async def render(self, key: Hashable, make: Callable[[], RenderedPage]) -> RenderedPage:
        """The page of this key, rendered, compressed and cached, even if the client leaves meanwhile."""
        task = self._waiting.get(key)
        if task is None:
            task = self._waiting[key] = asyncio.create_task(self._run_render_task(key, make))
            task.add_done_callback(lambda done: self._end(key, done))
        # A client that leaves cancels its wait, and not the page that others wait for.
        return await asyncio.shield(task)

    async def _run_render_task(self, key: Hashable, make: Callable[[], RenderedPage]) -> RenderedPage:
        # Made at the first page, inside the running event loop that anyio wants.
        self._limiter = self._limiter or CapacityLimiter(1)
        page = await run_sync(lambda: make().encode_gzip(), limiter=self._limiter)
        self._cache.put(key, page)
        return page

    def _end(self, key: Hashable, done: asyncio.Task[RenderedPage]) -> None:
        del self._waiting[key]
        if not done.cancelled():
            # Every client that waited may have gone; asyncio logs an exception that nobody looked at.
            done.exception()


def answer(request: Request, page: RenderedPage) -> Response:
    """The answer: 304 where the client has the page, else its body in an encoding that the client takes."""
    headers = {"ETag": page.tag, "Vary": "Accept-Encoding", "Cache-Control": "no-cache"}
    if page.policy:
        headers["Content-Security-Policy"] = page.policy
    # Tags are compared weakly (RFC 9110, section 13.1.2).
    tags = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
    if page.status == 200 and not tags.isdisjoint({"*", page.tag.removeprefix("W/")}):
        return Response(status_code=304, headers=headers)
    body = page.body
    if page.encoding and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = page.encoding
    elif page.encoding:
        body = gzip.decompress(body)
    return Response(body, status_code=page.status, headers=headers, media_type=page.type)
