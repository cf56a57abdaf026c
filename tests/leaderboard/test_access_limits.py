"""How often and how much a client may ask."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from leaderboard.access.limits import PARAMETERS, QUERY_BYTES, Limits, check_query, group
from leaderboard.access.refusals import Refusal


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_window_that_moves() -> None:
    clock = Clock()
    limits = Limits({"page": "3/minute"}, clock=clock)
    said = []
    for _ in range(4):
        said.append(limits.check("a", "page"))
        clock.now += 10
    assert said == [None, None, None, pytest.approx(30)]  # the first of 1000 leaves at 1060; now 1030
    clock.now = 1059.9
    assert limits.check("a", "page") == pytest.approx(0.1)
    clock.now = 1060
    assert limits.check("a", "page") is None
    assert limits.check("a", "page") == pytest.approx(10)


def test_clients_and_uses_do_not_share() -> None:
    limits = Limits({"page": "1/minute", "post": "1/minute"}, clock=Clock())
    assert [limits.check(c, w) for c in "ab" for w in ("page", "post")] == [None] * 4
    assert all(limits.check(c, w) for c in "ab" for w in ("page", "post"))
    assert [limits.check("a", "other") for _ in range(9)] == [None] * 9


def test_clients_that_left_are_forgotten() -> None:
    clock = Clock()
    limits = Limits({"page": "5/minute"}, clock=clock)
    for i in range(500):
        limits.check(f"client {i}", "page")
    assert limits.remembered == 500
    clock.now += 61
    limits.check("another", "page")
    assert limits.remembered == 1


def test_memory_is_bounded() -> None:
    clock = Clock()
    limits = Limits({"page": "5/minute"}, clients=100, clock=clock)
    for i in range(10_000):
        limits.check(f"client {i}", "page")
        clock.now += 0.001
        assert limits.remembered <= 100


def test_refused_uses_keep_no_more() -> None:
    clock = Clock()
    limits = Limits({"page": "2/minute"}, clock=clock)
    for _ in range(1000):
        limits.check("a", "page")
    clock.now += 60
    assert limits.check("a", "page") is None


def test_no_more_than_the_limit_get_through_at_once() -> None:
    limits = Limits({"page": "50/minute"})
    gate = threading.Barrier(8)

    def ask(_: int) -> int:
        gate.wait()
        return sum(limits.check("a", "page") is None for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 50


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    limits = Limits({"page": "50/minute"})
    for i in range(100):
        limits.check(str(i), "page")
    assert threading.active_count() == before


def test_the_answer_says_how_long_to_wait() -> None:
    clock = Clock()
    limits = Limits({"post": "1/minute"}, clock=clock)
    limits.enforce("a", "post")
    clock.now += 0.5
    with pytest.raises(Refusal) as caught:
        limits.enforce("a", "post")
    response = caught.value.response()
    assert (response.status_code, response.headers["retry-after"]) == (429, "60")
    error = json.loads(bytes(response.body))["error"]
    assert error == {"status": 429, "message": "Too many requests.", "hint": "Wait 60 s and ask again."}


def test_a_network_of_one_client_is_one_client() -> None:
    assert group("2001:db8:1:2:aaaa::1") == group("2001:db8:1:2:bbbb::9")
    assert group("2001:db8:1:2::1") != group("2001:db8:1:3::1")
    assert group("fe80::1%eth0") == group("fe80::2%eth1")
    assert group("::ffff:192.0.2.1") == group("192.0.2.1") != group("192.0.2.2")
    assert len(group("x" * 10_000)) <= 64


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"m=a&m=b&sort=-x",
        b"q=" + b"x" * 512,
        b"&".join(b"m=%d" % i for i in range(PARAMETERS)),
        "q=é".encode("ascii", "xmlcharrefreplace"),
        b"q=%C3%A9&empty=&flag",
        b"q=" + b"%C3%A9" * 512,
    ],
)
def test_queries_that_are_let_through(query: bytes) -> None:
    check_query(query)
    assert len(query) <= QUERY_BYTES


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (b"x" * (QUERY_BYTES + 1), 414),
        (b"q=" + b"x" * 513, 400),
        (b"x" * 513 + b"=1", 400),
        (b"&".join(b"m=%d" % i for i in range(PARAMETERS + 1)), 400),
        (b"q=%ff", 400),
        (b"q=\xff", 400),
        (b"q=a%00b", 400),
        (b"q=a%0d%0aSet-Cookie:x", 400),
        (b"q%00=a", 400),
        (b"q=%7f", 400),
        (b"q=%ed%a0%80", 400),
    ],
)
def test_queries_that_are_refused(query: bytes, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        check_query(query)
    assert caught.value.status == status
