"""How often and how much a client may ask."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from limits.storage import MemoryStorage

from leaderboard.web.limits import PARAMETERS, QUERY_BYTES, Limits, Refusal, check_query, mask_client_address
from queued_jobs import wait


def test_clients_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    limits = Limits("2/minute")
    for client in ("a", "b", "a"):
        limits.enforce(client)
    now[0] += 0.5
    with pytest.raises(Refusal) as caught:
        limits.enforce("a")
    response = caught.value.build_response()
    assert (response.status_code, response.headers["retry-after"]) == (429, "60")
    error = json.loads(bytes(response.body))["error"]
    assert error == {"status": 429, "message": "Too many requests.", "hint": "Wait 60 s and try again."}
    now[0] += 60
    limits.enforce("a")


def test_no_more_than_the_limit_get_through_at_once() -> None:
    limits = Limits("50/minute")
    gate = threading.Barrier(8)

    def request(_: int) -> int:
        gate.wait()
        done = 0
        for _ in range(20):
            with contextlib.suppress(Refusal):
                limits.enforce("a")
                done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(request, range(8))) == 50


def test_clients_that_left_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    limits = Limits("5/second")
    for i in range(500):
        limits.enforce(f"client {i}")
    storage = limits._limiter.storage
    assert isinstance(storage, MemoryStorage)
    now[0] += 1.1
    limits.enforce("another")
    wait(lambda: len(storage.storage) == len(storage.expirations) == 1)


def test_a_network_of_one_client_is_one_client() -> None:
    assert mask_client_address("2001:db8:1:2:aaaa::1") == mask_client_address("2001:db8:1:2:bbbb::9")
    assert mask_client_address("2001:db8:1:2::1") != mask_client_address("2001:db8:1:3::1")
    assert mask_client_address("fe80::1%eth0") == mask_client_address("fe80::2%eth1")
    assert (
        mask_client_address("::ffff:192.0.2.1")
        == mask_client_address("192.0.2.1")
        != mask_client_address("192.0.2.2")
    )
    assert len(mask_client_address("x" * 10_000)) <= 64


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
