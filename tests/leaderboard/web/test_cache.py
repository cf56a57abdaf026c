"""Rendered pages: bounded by size, rendered once, and answered with tags and compression."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.web.cache import PageCache, RenderedPage, RenderQueue, answer

BODY = b"<p>a page of a leaderboard</p>" * 50


def page(body: bytes = BODY, **fields: object) -> RenderedPage:
    return RenderedPage(body=body, type="text/html; charset=utf-8", **fields)  # type: ignore[arg-type]


def test_the_least_recently_used_goes_first() -> None:
    cache = PageCache(100)
    for key in "abc":
        cache.put(key, page(b"x" * 30))
    assert cache.get("a") is not None  # now b is the one that nobody requested
    cache.put("d", page(b"x" * 30))
    assert [key for key in "abcd" if cache.get(key) is None] == ["b"]
    cache.put("a", page(b"x" * 5))  # a page that takes the place of another frees its bytes
    cache.put("e", page(b"x" * 30))
    assert [key for key in "acde" if cache.get(key) is None] == []


def test_a_page_larger_than_everything_is_cached_alone() -> None:
    cache = PageCache(10)
    cache.put("small", page(b"x" * 5))
    cache.put("large", page(b"x" * 50))
    assert (cache.get("small"), cache.get("large")) == (None, page(b"x" * 50))
    cache.put("small", page(b"x" * 5))
    cache.put("other", page(b"x" * 5))
    assert cache.get("small") is not None


class Slow:
    """Notes what was rendered; rendering waits until all are requested."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go = threading.Event()

    def maker(self, name: str) -> Callable[[], RenderedPage]:
        def make() -> RenderedPage:
            assert self.go.wait(60)
            self.names.append(name)
            return page(name.encode() * 500)

        return make


def test_requests_for_one_page_render_it_once() -> None:
    async def request() -> None:
        cache, slow = PageCache(10_000), Slow()
        queue = RenderQueue(cache)
        tasks = [asyncio.ensure_future(queue.render("page", slow.maker("page"))) for _ in range(20)]
        tasks.append(asyncio.ensure_future(queue.render("other", slow.maker("other"))))
        await asyncio.sleep(0)
        slow.go.set()
        *pages, _ = await asyncio.gather(*tasks)
        assert slow.names == ["page", "other"]
        assert {id(one) for one in pages} == {id(cache.get("page"))}
        assert pages[0].encoding == "gzip"

    asyncio.run(request())


def test_a_page_that_fails_fails_for_all_and_delays_nobody() -> None:
    def fail() -> RenderedPage:
        raise LookupError("no such page")

    async def request() -> None:
        queue = RenderQueue(PageCache(1000))
        wrong = [queue.render("wrong", fail) for _ in range(2)]
        *failed, made = await asyncio.gather(*wrong, queue.render("right", page), return_exceptions=True)
        assert [type(one) for one in failed] == [LookupError, LookupError]
        assert isinstance(made, RenderedPage)
        assert (await queue.render("wrong", lambda: page(b"now"))).body == b"now"
        assert queue._waiting == {}

    asyncio.run(request())


def test_a_client_that_leaves_does_not_stop_the_page() -> None:
    async def request() -> None:
        queue, slow = RenderQueue(PageCache(1000)), Slow()
        tasks = [asyncio.ensure_future(queue.render(n, slow.maker(n))) for n in ("first", "second")]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        slow.go.set()
        await queue.render("third", slow.maker("third"))
        assert slow.names == ["first", "second", "third"]

    asyncio.run(request())


def get(page: RenderedPage, **headers: str) -> Response:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return answer(Request({"type": "http", "method": "GET", "headers": raw}), page)


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [("gzip, deflate, br", "gzip"), ("br", None), ("identity", None), ("", None), ("nonsense;;q", None)],
)
def test_every_encoding_holds_the_same_body(accept: str, encoding: str | None) -> None:
    response = get(page().encode_gzip(), accept_encoding=accept)
    assert response.headers.get("content-encoding") == encoding
    body = bytes(response.body)
    assert (gzip.decompress(body) if encoding else body) == BODY
    assert int(response.headers["content-length"]) == len(body)
    assert encoding is None or len(body) < len(BODY) / 5


def test_caches_know_what_an_answer_depends_on() -> None:
    for headers in ({}, {"accept_encoding": "gzip"}, {"if_none_match": "*"}):
        response = get(page(), **headers)
        assert response.headers["vary"] == "Accept-Encoding"
        assert response.headers["etag"] == page().tag
        assert response.headers["cache-control"] == "no-cache"
    assert page().encode_gzip().tag == page().encode_gzip().tag != page(BODY + b"!").encode_gzip().tag


def test_a_page_that_the_client_has_is_not_sent_again() -> None:
    tag = page().tag
    for header in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*", f' {tag} , "x"'):
        response = get(page(), if_none_match=header)
        assert (response.status_code, bytes(response.body)) == (304, b"")
    for header in ('"other"', "", tag[:-2], 'W/"0"'):
        assert get(page(), if_none_match=header).status_code == 200
    assert get(page(BODY + b"!"), if_none_match=tag).status_code == 200
    error = page(status=404)
    assert get(error, if_none_match=error.tag).status_code == 404


def test_a_small_body_is_sent_as_it_is() -> None:
    response = get(page(b"ok").encode_gzip(), accept_encoding="gzip")
    assert (bytes(response.body), "content-encoding" in response.headers) == (b"ok", False)
