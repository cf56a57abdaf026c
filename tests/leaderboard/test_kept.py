"""Made pages: kept by size, made once, and how they are answered."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable

import brotli
import pytest
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.web.cache import LONGEST, NAMES, PageCache, RenderedPage, RenderQueue, answer

# Made pages: kept by size, made once, forgotten


def made(size: int, letter: bytes = b"x") -> RenderedPage:
    return RenderedPage(body=letter * size, type="text/plain")


def maker(size: int) -> Callable[[], RenderedPage]:
    return lambda: made(size)


def test_the_least_lately_used_goes_first() -> None:
    kept = PageCache(100)
    for key in "abc":
        kept.get_or_make(key, maker(30))
    assert kept.get("a") is not None  # now b is the one that nobody asked for
    kept.get_or_make("d", maker(30))
    assert [key for key in "abcd" if kept.get(key) is None] == ["b"]


def test_a_page_in_other_encodings_weighs_more() -> None:
    kept = PageCache(100)
    first = kept.get_or_make("a", maker(30))
    kept.get_or_make("b", maker(30))
    first.packed["br"] = b"y" * 45
    assert first.size == 75
    assert kept.get("b") is not None  # a is the one least lately used
    kept.get_or_make("c", maker(10))
    assert kept.get("a") is None
    assert kept.get("b") is not None


def test_a_page_larger_than_everything_is_kept_alone() -> None:
    kept = PageCache(10)
    kept.get_or_make("small", maker(5))
    kept.get_or_make("large", maker(50))
    assert kept.get("large") is not None
    assert kept.get("small") is None


def test_twenty_callers_make_a_page_once() -> None:
    kept, calls, start = PageCache(1000), [0], threading.Barrier(20)
    found: list[RenderedPage] = []

    def make() -> RenderedPage:
        calls[0] += 1
        threading.Event().wait(0.05)  # the others come in the meantime
        return made(10)

    def ask() -> None:
        start.wait()
        found.append(kept.get_or_make("page", make))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert len({id(one) for one in found}) == 1
    assert len(found) == 20


def test_other_pages_are_made_at_the_same_time() -> None:
    kept, both = PageCache(1000), threading.Barrier(2, timeout=5)

    def make() -> RenderedPage:
        both.wait()  # would never be met if one waited for the other
        return made(1)

    threads = [threading.Thread(target=kept.get_or_make, args=(key, make)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.get("a") is not None
    assert kept.get("b") is not None


def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    kept = PageCache(1000)

    def fail() -> RenderedPage:
        raise LookupError("no such page")

    for number in range(50):
        with pytest.raises(LookupError):
            kept.get_or_make(f"missing-{number}", fail)
    assert kept._making == {}
    assert kept.get_or_make("missing-1", maker(3)).body == b"xxx"


def test_clear_forgets_everything() -> None:
    kept = PageCache(1000)
    kept.get_or_make("a", maker(3))
    kept.clear()
    assert kept.get("a") is None


def test_the_tag_follows_the_body() -> None:
    assert made(3).tag == made(3).tag
    assert made(3).tag != made(3, b"y").tag
    assert made(3).tag.startswith('W/"')


def test_a_page_has_other_names_until_everything_is_forgotten() -> None:
    kept = PageCache(1000)
    page = kept.get_or_make("key", maker(3))
    kept.call(("/x", b"a=1"), "key", kept.round)
    assert kept.called(("/x", b"a=1")) is page
    assert kept.called(("/x", b"a=2")) is None
    former = kept.round
    kept.clear()
    kept.get_or_make("key", maker(3))
    kept.call(("/x", b"a=1"), "key", former)
    assert kept.called(("/x", b"a=1")) is None


def test_a_long_query_is_no_name() -> None:
    kept = PageCache(1000)
    kept.get_or_make("key", maker(3))
    for length, known in ((LONGEST, True), (LONGEST + 1, False)):
        kept.call(("/x", b"q" * length), "key", kept.round)
        assert (kept.called(("/x", b"q" * length)) is not None) == known


def test_names_are_few_and_the_oldest_goes_first() -> None:
    kept = PageCache(1000)
    kept.get_or_make("key", maker(3))
    for number in range(NAMES + 10):
        kept.call(("/x", b"%d" % number), "key", kept.round)
    assert len(kept._names) == NAMES
    assert kept.called(("/x", b"9")) is None
    assert kept.called(("/x", b"10")) is not None
    assert kept.called(("/x", b"%d" % (NAMES + 9))) is not None


# The kitchen: clients take turns, a page is made once, and what fails holds up nobody


def plain_page(name: str) -> RenderedPage:
    return RenderedPage(body=name.encode(), type="text/plain")


class Cooked:
    """Notes what was made in which order; the first one waits until all are ordered."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go = threading.Event()

    def maker(self, name: str) -> Callable[[], RenderedPage]:
        def make() -> RenderedPage:
            assert self.go.wait(10)
            self.names.append(name)
            return plain_page(name)

        return make


async def ordered(orders: list[tuple[str, str]]) -> list[str]:
    """Order pages, each by a client; the order in which they were made."""
    kitchen, cooked = RenderQueue(PageCache(10_000)), Cooked()
    tasks = []
    for client, name in orders:
        tasks.append(asyncio.ensure_future(kitchen.make(name, cooked.maker(name), client)))
        await asyncio.sleep(0)  # it stands in its row now
    cooked.go.set()
    made = await asyncio.gather(*tasks)
    assert [one.body.decode() for one in made] == [name for _, name in orders]
    assert all("br" in one.packed for one in made)
    return cooked.names


def test_a_client_with_many_pages_keeps_others_waiting_for_one() -> None:
    many = [("greedy", f"g{number}") for number in range(20)]
    made = asyncio.run(ordered([*many, ("one", "a"), ("two", "b"), ("one", "c")]))
    assert made[:1] == ["g0"]
    assert max(made.index("a"), made.index("b")) <= 3
    assert made.index("c") <= 5
    assert [name for name in made if name.startswith("g")] == [name for _, name in many]


def test_neighbours_of_an_ipv6_network_are_one_client() -> None:
    many = [(f"2001:db8::{number:x}", f"g{number}") for number in range(1, 20)]
    made = asyncio.run(ordered([*many, ("192.0.2.1", "a")]))
    assert made.index("a") <= 2


def test_who_asks_for_the_same_page_waits_for_it() -> None:
    async def ask() -> None:
        kitchen, cooked = RenderQueue(PageCache(1000)), Cooked()
        make = cooked.maker("page")
        tasks = [asyncio.ensure_future(kitchen.make("page", make, f"c{n}")) for n in range(20)]
        await asyncio.sleep(0)
        cooked.go.set()
        found = await asyncio.gather(*tasks)
        assert cooked.names == ["page"]
        assert len({id(one) for one in found}) == 1

    asyncio.run(ask())


def test_what_cannot_be_made_is_told_to_all_and_holds_up_nobody() -> None:
    def fail() -> RenderedPage:
        raise LookupError("no such page")

    async def ask() -> None:
        kitchen = RenderQueue(PageCache(1000))
        wrong = [kitchen.make("wrong", fail, client) for client in ("a", "b")]
        right = kitchen.make("right", lambda: plain_page("right"), "a")
        *failed, made = await asyncio.gather(*wrong, right, return_exceptions=True)
        assert [type(one) for one in failed] == [LookupError, LookupError]
        assert isinstance(made, RenderedPage)
        with pytest.raises(LookupError):
            await kitchen.make("wrong", fail, "a")
        assert (await kitchen.make("wrong", lambda: plain_page("now"), "a")).body == b"now"

    asyncio.run(ask())


def test_a_client_that_leaves_does_not_stop_the_page() -> None:
    async def ask() -> None:
        kitchen, cooked = RenderQueue(PageCache(1000)), Cooked()
        tasks = [asyncio.ensure_future(kitchen.make(n, cooked.maker(n), "a")) for n in ("first", "second")]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cooked.go.set()
        assert (await kitchen.make("third", lambda: plain_page("third"), "b")).body == b"third"
        assert (await kitchen.make("second", cooked.maker("second"), "a")).body == b"second"
        assert cooked.names == ["first", "second"]

    asyncio.run(ask())


# Made pages as answers: tags, encodings, and what a cache must know


BODY = b"<p>a page of a leaderboard</p>" * 50


def asked(made: RenderedPage, *, seconds: int = 0, **headers: str) -> Response:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return answer(Request({"type": "http", "method": "GET", "headers": raw}), made, seconds=seconds)


def page(body: bytes = BODY, **fields: object) -> RenderedPage:
    return RenderedPage(body=body, type="text/html; charset=utf-8", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("br", "br"),
        ("gzip", "gzip"),
        ("gzip, deflate, br", "br"),
        ("identity", None),
        ("", None),
        ("br;q=0, gzip", "gzip"),
        ("nonsense;;q", None),
    ],
)
def test_every_encoding_holds_the_same_body(accept: str, encoding: str | None) -> None:
    found = asked(page(), accept_encoding=accept)
    assert found.headers.get("content-encoding") == encoding
    unpack = {"br": brotli.decompress, "gzip": gzip.decompress}.get(encoding or "", bytes)
    assert unpack(bytes(found.body)) == BODY
    assert int(found.headers["content-length"]) == len(bytes(found.body))
    assert encoding is None or len(bytes(found.body)) < len(BODY)


def test_caches_are_told_what_it_depends_on() -> None:
    for headers in ({}, {"accept_encoding": "br"}, {"if_none_match": "*"}):
        found = asked(page(), **headers)
        assert found.headers["vary"] == "Accept-Encoding"
        assert found.headers["etag"] == page().tag
        assert found.headers["cache-control"] == "no-cache"
    assert asked(page(), seconds=60).headers["cache-control"] == "public, max-age=60"


def test_a_page_that_the_client_has_is_not_sent_again() -> None:
    tag = page().tag
    for header in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*", f' {tag} , "x"'):
        found = asked(page(), if_none_match=header)
        assert (found.status_code, bytes(found.body)) == (304, b"")
    for header in ('"other"', "", tag[:-2], 'W/"0"'):
        assert asked(page(), if_none_match=header).status_code == 200
    assert asked(page(BODY + b"!"), if_none_match=tag).status_code == 200


def test_an_error_page_is_always_sent() -> None:
    error = page(status=404)
    found = asked(error, if_none_match=error.tag)
    assert (found.status_code, bytes(found.body)) == (404, BODY)


def test_a_body_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(
        "leaderboard.web.cache.compressed", lambda body, accept: calls.append(accept) or (b"packed", "br")
    )
    made = page()
    for _ in range(3):
        assert asked(made, accept_encoding="br").body == b"packed"
    assert len(calls) == 1


def test_a_small_body_is_sent_as_it_is() -> None:
    found = asked(page(b"ok"), accept_encoding="br, gzip")
    assert bytes(found.body) == b"ok"
    assert "content-encoding" not in found.headers
