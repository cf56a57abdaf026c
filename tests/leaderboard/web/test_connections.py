"""Connections of slow or half-sent requests are closed, over real sockets; others are not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from unittest import mock

import pytest
import uvicorn
from fastapi import FastAPI

from leaderboard.web.middleware import TimedProtocol

SECONDS = 0.6
"""How long a request may take here."""
GET = b"GET /quick HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    app = FastAPI()

    @app.get("/quick")
    def quick() -> str:
        return "here"

    @app.get("/slow")
    def slow() -> str:
        time.sleep(2 * SECONDS)
        return "here"

    with (
        mock.patch("leaderboard.web.middleware.REQUEST_SECONDS", SECONDS),
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        server = uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def connect(port: int) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port))
    found.settimeout(8 * SECONDS)
    return found


def read_end(found: socket.socket) -> tuple[bytes, float]:
    """What comes until the server closes, and after how many seconds; TimeoutError if it never does."""
    began, parts = time.monotonic(), []
    while part := found.recv(65536):
        parts.append(part)
    return b"".join(parts), time.monotonic() - began


def read_answer(found: socket.socket) -> None:
    said = b""
    while b"here" not in said:
        part = found.recv(65536)
        assert part, said
        said += part


@pytest.mark.parametrize("start", [b"", b"G", GET, GET + b"Content-Length: 9\r\n\r\nhalf"])
def test_half_a_request_is_not_waited_for(port: int, start: bytes) -> None:
    with connect(port) as found:
        found.sendall(start)
        said, seconds = read_end(found)
    assert seconds < 4 * SECONDS
    assert said == b"" or b"Content-Length: 9" in start


def test_bytes_that_trickle_in_do_not_set_the_clock_back(port: int) -> None:
    began = time.monotonic()
    with connect(port) as found, contextlib.suppress(OSError):
        for byte in GET * 3:
            found.sendall(bytes([byte]))
            time.sleep(SECONDS / 10)
    assert time.monotonic() - began < 5 * SECONDS


def test_the_second_request_of_a_connection_is_timed_too(port: int) -> None:
    with connect(port) as found:
        found.sendall(GET + b"\r\n")
        read_answer(found)
        found.sendall(GET)
        said, seconds = read_end(found)
    assert said == b""
    assert seconds < 4 * SECONDS


def test_an_answer_may_take_its_time(port: int) -> None:
    with connect(port) as found:
        for _ in range(2):
            found.sendall(GET.replace(b"quick", b"slow") + b"\r\n")
            read_answer(found)
