"""A made page as an answer: its ETag, and the encoding that a client takes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from leaderboard.access.compression import choose, compressed
from leaderboard.kept import Made


def answer(request: Request, made: Made, *, seconds: int = 0) -> Response:
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
    if encoding not in made.packed:
        made.packed[encoding] = compressed(made.body, f"{encoding}, identity;q=0.1")[0]
    body = made.packed[encoding]
    if encoding != "identity" and body is not made.body:
        headers["Content-Encoding"] = encoding
    return Response(body, status_code=made.status, headers=headers, media_type=made.type)


def _matches(header: str, tag: str) -> bool:
    """Whether If-None-Match names a tag, compared weakly (RFC 9110, section 13.1.2)."""
    plain = tag.removeprefix("W/")
    return header.strip() == "*" or plain in {one.strip().removeprefix("W/") for one in header.split(",")}
