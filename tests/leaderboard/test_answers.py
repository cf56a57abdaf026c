"""Made pages as answers: tags, encodings, and what a cache must know."""

from __future__ import annotations

import gzip

import brotli
import pytest
from starlette.requests import Request
from starlette.responses import Response

from leaderboard.answers import answer
from leaderboard.kept import Made

BODY = b"<p>a page of a leaderboard</p>" * 50


def asked(made: Made, *, seconds: int = 0, **headers: str) -> Response:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return answer(Request({"type": "http", "method": "GET", "headers": raw}), made, seconds=seconds)


def page(body: bytes = BODY, **fields: object) -> Made:
    return Made(body=body, type="text/html; charset=utf-8", **fields)  # type: ignore[arg-type]


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
        "leaderboard.answers.compressed", lambda body, accept: calls.append(accept) or (b"packed", "br")
    )
    made = page()
    for _ in range(3):
        assert asked(made, accept_encoding="br").body == b"packed"
    assert len(calls) == 1


def test_a_small_body_is_sent_as_it_is() -> None:
    found = asked(page(b"ok"), accept_encoding="br, gzip")
    assert bytes(found.body) == b"ok"
    assert "content-encoding" not in found.headers
