"""A made page as an answer: its ETag, and the encoding that a client takes."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from leaderboard.access.compression import choose, compressed
from leaderboard.access.headers import PLOT
from leaderboard.access.metrics import Metrics
from leaderboard.kept import Kept, Made


def pack(made: Made, encoding: str) -> bytes:
    """The body in an encoding, compressed at most once."""
    if encoding not in made.packed:
        made.packed[encoding] = compressed(made.body, f"{encoding}, identity;q=0.1")[0]
    return made.packed[encoding]


class KeptAnswers:
    """Answers for pages that are kept, before anything else looks at a request."""

    def __init__(self, app: ASGIApp, kept: Kept, metrics: Metrics) -> None:
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
    body = pack(made, encoding)
    if encoding != "identity" and body is not made.body:
        headers["Content-Encoding"] = encoding
    return Response(body, status_code=made.status, headers=headers, media_type=made.type)


def _matches(header: str, tag: str) -> bool:
    """Whether If-None-Match names a tag, compared weakly (RFC 9110, section 13.1.2)."""
    plain = tag.removeprefix("W/")
    return header.strip() == "*" or plain in {one.strip().removeprefix("W/") for one in header.split(",")}
